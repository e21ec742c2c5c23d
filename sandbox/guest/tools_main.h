/* The lock file by which a tool daemon of kind dir is known: held (an open file description lock) as long as it lives,
 * with its pid inside. Any thread. */
#pragma once
#include <sys/types.h>

#include "backend/base/err.h"

/* pid of the process that holds the lock, or 0 if none does (or it has not yet written its pid). */
pid_t tools_lock_holder(const char *path);
/* Takes such a lock for the rest of this process's life. -EBUSY: it is held. */
int tools_lock_take(const char *path, struct err *err);
