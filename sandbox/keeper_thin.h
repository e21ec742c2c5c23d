/* Inside of the keeper: a VM that has been paused for a while gives back memory. Its only thread, with a helper that
 * copies. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/err.h"
#include "ram.h"

/* How long after its guest has stopped; set before the keeper begins. Who pauses for a moment pays nothing. */
extern int thin_after_ms;

struct thin {
	char *base; /* the file of memory that the VM began from, or NULL */
	int ram;    /* the guest's memory, once it has been found; -1 */
	struct ram_owner qemu;
	int64_t due; /* to give back (mono ms); INT64_MAX: not */
	bool still;  /* QEMU has been stopped, by a signal: it touches nothing */
	bool ending; /* QEMU is to go on */
	struct ram_lent lent;
	/* the helper */
	pthread_t thread;
	bool helping, fetching; /* it works; it brings pages back */
	atomic_bool over;	/* it ends early */
	int ended;		/* eventfd: it has */
	int rc;
	struct err result;
};

struct keeper;

void thin_init(struct keeper *k);
/* The file of memory that the VM begins from, for this time and all later ones; NULL: as noted before, if at all. */
void thin_from(struct keeper *k, const char *path);
void thin_begin(struct keeper *k); /* the guest has just stopped */
/* QEMU is to go on: keeper_whole() follows, at once or later, from thin_work(). */
void thin_end(struct keeper *k);
int thin_fd(const struct keeper *k); /* to poll; -1 */
int64_t thin_due(const struct keeper *k);
void thin_work(struct keeper *k); /* what is due or has ended */
void thin_finish(struct keeper *k);
