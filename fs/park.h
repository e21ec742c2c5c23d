/* Requests that wait: parked until the backend answers, a condition comes true, a signal reaches the caller or the time
 * is up. A parked request costs one struct op and no thread. Loop thread only. */
#pragma once
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/base/list.h"

struct face;
struct handle;

/* A WRITE holds the inode's lock and a change of a directory holds that of the directory, and whoever meets those locks
 * hangs unkillably: such requests are answered after this time, come what may. */
#define PARK_MS 2000

struct timer {
	struct list link;
	int64_t at_ms; /* CLOCK_MONOTONIC */
	void (*fire)(struct timer *);
};
void timer_init(struct timer *t);
void timer_set(struct face *f, struct timer *t, int ms, void (*fire)(struct timer *)); /* also moves one that is set */
void timer_clear(struct timer *t);
int timers_next(const struct face *f); /* milliseconds until the first one, 0 if it is due, -1 without */
void timers_fire(struct face *f);

enum op_kind {
	OP_LOOK,   /* reads: a signal ends it at once with EINTR */
	OP_CHANGE, /* changes something: a signal cannot take that back, so the answer is awaited for PARK_MS more */
};

struct op {
	struct list link;	 /* of face.ops while it is unanswered */
	struct list interrupted; /* of face.interrupted once a signal has come */
	struct list wait;	 /* of a list that wakes it: session.waits, handle.waiters */
	struct face *f;
	fuse_req_t req;	  /* NULL once it is answered */
	struct handle *h; /* a reference, or NULL */
	enum op_kind kind;
	unsigned refs; /* one while unanswered, one for each request that the backend has */
	struct timer timer;
	/* When the timer fires; NULL: ETIMEDOUT with words. */
	void (*late)(struct op *);
	/* When the backend has answered; look at op->req before replying. */
	void (*then)(struct op *, struct request *);
	/* When the list that it waits in is woken; it has been taken out of the list. */
	void (*wake)(struct op *);
	size_t size; /* of the READ or WRITE */
	off_t off;
	uint64_t version; /* of the view that a snapshot is asked for */
	void *data;	  /* of the file that parked it; freed with free() */
	char *path;	  /* for words; may be NULL */
	int64_t session;
};

/* The op owns a reference of h (if any). ms: limit, 0 for none. */
struct op *op_park(struct face *f, fuse_req_t req, struct handle *h, enum op_kind kind, int ms);
void op_limit(struct op *op, int ms, void (*late)(struct op *)); /* another limit, and what is done then */
/* Submits r for op; then() is called with the answer even when op has been answered meanwhile. */
void op_ask(struct op *op, struct request *r, void (*then)(struct op *, struct request *));

struct op *op_get(struct op *op); /* for what else refers to it: a scan */
void op_put(struct op *op);
/* Closes op without answering; the caller answers the request. NULL if it is answered already. */
fuse_req_t op_take(struct op *op);

/* Answers; op must not be used afterwards unless the caller holds it. No-ops once it is answered. */
void op_error(struct op *op, int rc); /* 0 or -errno */
void op_data(struct op *op, const char *p, size_t n);
void op_wrote(struct op *op); /* all op->size bytes */

/* Answers a READ with what the backend gave, or with its refusal. */
void op_answer(struct op *op, struct request *r);

/* Records the words of a failed request under op's path, or nothing; returns its rc. */
int op_refused(struct op *op, struct request *r);

void ops_interrupt(struct face *f);   /* answers those that signals have reached */
void ops_wake(struct list *waiting);  /* calls wake() of each */
void ops_end(struct face *f, int rc); /* answers every one */
