/* What the processes that stand between a sandbox and the daemon have in common (keeper of a VM, bridge to a host):
 * where they listen, and the guest's way to the gateway. On their only thread. */
#pragma once
#include <stdbool.h>

#include "backend/base/err.h"

/* Listens where the file `socket` in the folder says: at the start, and whenever the socket was lost (folders of a
 * login's runtime are removed at its end) or is wanted elsewhere. *socket (malloc'd or NULL) and *listener (or -1) are
 * those of before; they are replaced, or on an error left as they are. */
int listen_noted(const char *folder, char **socket, int *listener, struct err *err);
/* The other side opens a stream of that kind: only ever to the gateway's socket that the file note names. A descriptor,
 * or -errno. It may ask as often as it likes: one line of the log each time that it begins to fail (*failed) is enough.
 * what: "VM"... for that line. */
int listen_net(const char *kind, const char *note, const char *what, bool *failed);
