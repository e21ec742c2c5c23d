/* The gateway's place inside a sandbox: a port of 127.0.0.1 that leads to the gateway's unix socket. Kind dir has a
 * port of its own; a container's is served from outside by its keeper. */
#pragma once
#include <stdbool.h>

#include "backend/base/err.h"

enum { RELAY_CONNECTIONS = 256 }; /* at once; more wait to be accepted */

/* Serves a socket that listens already, which it keeps. shared: others of this machine can connect to it, and only the
 * user of this process and root are served; else it is in a network of its own. 0 or -errno. */
int relay_serve(int listener, bool shared, const char *note, struct err *err);
/* Listens on a free port and serves it on threads of its own until the process ends. note: the file that names the
 * socket (sandbox/net.h), copied. The port, or -errno. */
int relay_start(const char *note, struct err *err);
/* Moves bytes between two sockets until both ways have ended. Blocks. */
void relay_pair(int a, int b);
