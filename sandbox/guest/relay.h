/* The gateway's place inside a sandbox: a port of 127.0.0.1 that leads to the gateway's unix socket. Kind dir has a
 * port of its own; a container's is served from outside by its keeper. */
#pragma once
#include "backend/base/err.h"

enum { RELAY_CONNECTIONS = 256 }; /* at once; more wait to be accepted */

/* Serves a socket that listens already, which it keeps. 0 or -errno. */
int relay_serve(int listener, const char *note, struct err *err);
/* Listens on a free port and serves it on threads of its own until the process ends. note: the file that names the
 * socket (sandbox/net.h), copied. The port, or -errno. */
int relay_start(const char *note, struct err *err);
