/* The lock file by which a tool daemon of kind dir is known: held (an open file description lock) as long as it lives,
 * with its pid inside. Any thread. */
#pragma once
#include <sys/types.h>

/* pid of the process that holds the lock, or 0 if none does (or it has not yet written its pid). */
pid_t tools_lock_holder(const char *path);
