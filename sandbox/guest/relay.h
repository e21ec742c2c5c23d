/* The gateway's place inside a sandbox of kind dir: a port of 127.0.0.1 that leads to the gateway's unix socket. */
#pragma once
#include "backend/base/err.h"

enum { RELAY_CONNECTIONS = 256 }; /* at once; more wait to be accepted */

/* Listens on a free port and serves it on threads of its own until the process ends. note: the file that names the
 * socket (sandbox/net.h), copied. The port, or -errno. */
int relay_start(const char *note, struct err *err);
