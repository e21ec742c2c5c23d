/* Has all that runs in a container stand still, where no group of it can be frozen from outside. The caller is PID 1;
 * one thread at a time. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct still {
	struct still_one {
		pid_t pid;
		unsigned long long born;
	} * before; /* those that had been stopped by somebody else */
	size_t n;
	bool stands;
};

/* SIGSTOP for every other process. */
void still_stop(struct still *s);
/* SIGCONT, but for those that had been stopped before. Nothing if nothing was stopped. */
void still_go(struct still *s);
