/* The helper process: forked before the mount, holds nothing in it, and clears it away when the daemon dies. */
#pragma once
#include <sys/types.h>

#include "backend/base/err.h"

struct poke {
	pid_t pid;
	int fd; /* its end dies with the daemon; that is how the helper knows */
};

/* Forks it; before any thread exists. It keeps lock_fd open (a lock that it shares with the daemon). log_fd becomes its
 * standard error, so that it does not hold the terminal of whoever mounted. */
int poke_start(int lock_fd, int log_fd, struct poke *out, struct err *err);
/* Tells it what to clear away. dev as in struct mounted. */
int poke_mounted(const struct poke *p, const char *dir, const char *dev);
/* A clean end: the daemon unmounts by itself. Waits for the helper. */
void poke_stop(struct poke *p);
