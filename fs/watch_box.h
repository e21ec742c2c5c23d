/* What watchers.c (orders for the poker) and watch_tree.c (what they are about) share. Loop thread only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/list.h"
#include "park.h"
#include "poke.h"

struct ghost {
	struct list link; /* of watchers.ghosts, oldest first */
	int64_t id;
	char *name;
	struct list waiting; /* ops of those who have made a session of that name again */
	bool taken;	     /* a session has got its name by a rename: it must not be removed by that name any more */
};

struct order {
	struct list link; /* of watchers.orders or watchers.flying */
	uint64_t tag;
	enum poke_what what;
	uint64_t ino;	     /* POKE_MODIFY: of the file */
	int64_t session;     /* POKE_MKDIR */
	struct ghost *ghost; /* the last order of a ghost: it goes with it */
	unsigned tries;
	int64_t given_ms;
	char path[POKE_PATH];
};

struct watchers {
	struct face *f;
	struct poke *poke;   /* NULL: no events */
	struct list ready;   /* seen: changed, and may be poked at once */
	struct list resting; /* seen: poked less than REST_MS ago, oldest first */
	struct list unsure;  /* seen: sessions whose attributes may be older than the last word */
	struct list orders;  /* to be given before anything of `ready` */
	struct list flying;  /* given and not answered, oldest first */
	unsigned n_flying;
	struct list ghosts;
	uint64_t next_tag;
	struct timer rest, hang, unsure_timer;
	pid_t hung; /* that was told of in the log */
};

struct order *order_new(enum poke_what what, const char *dir, const char *name); /* path dir/name; either may be NULL */
void ghost_free(struct ghost *g);						 /* also wakes who waits for it */
/* What the poker has answered by now. It does one order after the other: when a request of its comes, the orders before
 * that are done, and have to count as done. */
void watchers_take_answers(struct watchers *w);
