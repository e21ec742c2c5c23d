/* The helper processes. The janitor is forked before the mount, holds nothing in it, and clears it away when the daemon
 * dies. On demand it starts a poker, which makes events for inotify by acting through the mount (poker.c). */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/err.h"

struct poke {
	pid_t pid;    /* the janitor */
	int fd;	      /* to the janitor; its end dies with the daemon; that is how the janitor knows */
	int work_fd;  /* to whichever poker runs; -1: events are not wanted */
	pid_t worker; /* the poker, 0 while there is none */
};

enum poke_what {
	POKE_NOTHING, /* only answered */
	POKE_MODIFY,
	POKE_MKNOD,
	POKE_MKDIR,
	POKE_UNLINK,
	POKE_RMDIR,
};

#define POKE_PATH 256 /* sessions/NAME/settings/FILE, and names have at most 64 bytes */

struct poke_order {
	uint64_t tag; /* comes back with the answer; they grow */
	uint32_t what;
	char path[POKE_PATH]; /* below the mount point */
};

struct poke_answer {
	uint64_t tag;
	int32_t rc; /* 0 or -errno */
};

/* Forks the janitor; before any thread exists. It keeps lock_fd open (a lock that it shares with the daemon). log_fd
 * becomes its standard error, so that it does not hold the terminal of whoever mounted. watch: pokers are wanted. */
int poke_start(int lock_fd, int log_fd, bool watch, struct poke *out, struct err *err);
/* Tells it what to clear away. dev as in struct mounted. */
int poke_mounted(const struct poke *p, const char *dir, const char *dev);
/* A clean end: the daemon unmounts by itself. Waits for the janitor, which ends its pokers first. */
void poke_stop(struct poke *p);

/* ---- for the loop; none of these blocks ---- */

/* Asks for a poker; the one there is ended. poke_news() tells when there is one. */
void poke_start_worker(struct poke *p);
/* Takes what the janitor has to tell into p->worker: 1 if that has changed, 0 if not, -EPIPE if the janitor is dead. A
 * new poker does nothing before the next call of poke_go(). */
int poke_news(struct poke *p);
void poke_go(struct poke *p);
int poke_send(const struct poke *p, const struct poke_order *order); /* -EAGAIN when it is behind */
int poke_receive(const struct poke *p, struct poke_answer *answer);  /* 1, or 0 if there is none */
