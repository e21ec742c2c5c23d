/* Inodes that the kernel knows: what it has looked up and not forgotten. Loop thread only.
 *
 * Whoever watches a file or has looked at its attributes keeps its inode known; for all others nothing has to be done
 * when they change. `input` and drop files are counted by their nodes (node.h) instead. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/list.h"

struct face;

struct seen {
	struct seen *next;
	uint64_t ino;
	uint64_t lookups; /* as the kernel counts them; 0 while it is only kept for a watcher of its directory */
	/* watchers.c */
	struct list due;     /* of watchers.ready or watchers.resting */
	int64_t poked_ms;    /* CLOCK_MONOTONIC */
	bool dirty;	     /* changed since it was poked */
	bool flying;	     /* the poker has it */
	unsigned char again; /* pokes that have failed in a row */
};

struct seen_table {
	struct seen **slots;
	size_t n, cap;
};

struct seen *seen_find(const struct face *f, uint64_t ino); /* NULL if it is not known */
struct seen *seen_get(struct face *f, uint64_t ino);	    /* makes it */
void seen_put(struct face *f, struct seen *s);		    /* frees it if nothing needs it any more */
/* Does the kernel know it? The root always. */
bool seen_known(const struct face *f, uint64_t ino);
void seen_forget(struct face *f, uint64_t ino, uint64_t lookups);
void seen_release(struct face *f);
