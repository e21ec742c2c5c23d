/* The gateway's socket of one sandbox, as the processes behind the sandbox find it: keeper (vm) and tool daemon (dir).
 * The path stands in the file `net` of the sandbox's folder, one line, so that it can change while they run. */
#pragma once
#include "backend/base/err.h"

enum {
	NET_PORT = 8080,     /* where a VM's programs find the gateway, on 127.0.0.1 */
	NET_PATH_MAX = 4096, /* of the file */
};

/* Writes the file, or removes it for NULL. Blocks for the disk. */
int net_note(const char *note, const char *socket, struct err *err);
/* A non-blocking connection to the socket that the file names. Never waits. -ENOENT: there is no file;
 * -ECONNREFUSED, -ENOENT, -EAGAIN: nobody listens, or too many are waiting. */
int net_dial(const char *note);
