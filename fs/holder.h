/* Who still holds an open file? Looked up under /proc by worker threads. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"

/* Who has had to do with an open file; kept by the loop. */
struct writers {
	pid_t *pid; /* processes (not threads): the opener, then those that wrote */
	size_t n;
	pid_t last_tid;	      /* the thread seen last, to spare the look-up */
	pid_t last_pid;	      /* newest pid of the machine when the file was opened */
	int64_t opened_ticks; /* CLOCK_BOOTTIME in clock ticks then, as in field 22 of /proc/PID/stat */
	bool foreign;	      /* one of them is in another pid namespace: cannot be told */
	bool hasty;	      /* it was waited once for what cannot be told: not again */
};
void writers_init(struct writers *w, pid_t tid); /* reads /proc/loadavg and /proc/TID/status */
void writers_note(struct writers *w, pid_t tid);
void writers_release(struct writers *w);

#define STRANGER_MS 500

enum held {
	HELD_NO,
	HELD_YES,
	HELD_UNKNOWN, /* not allowed to look at one of them, or new ones kept coming */
};

/* Blocks for some 50 us to some ms, and where it cannot be told for STRANGER_MS at most. flusher is a thread id. Reads
 * fdinfo alone: looking at a link under /proc/PID (fd, cwd, exe) or at its environ takes a lock which an exec holds
 * while it closes files, and that close may be the very FLUSH which waits for this scan. */
enum held holder_look(const struct writers *w, pid_t flusher, uint64_t ino);

struct holder;
struct handle;
struct op;

/* One scan; made and freed by the loop, lent to a worker. */
struct scan {
	struct note note; /* NOTE_OTHER in the face's queue when it is done */
	struct queue_node job;
	struct writers writers; /* a copy */
	pid_t flusher;
	uint64_t ino;
	enum held held;
	struct op *op; /* the FLUSH; a reference of its op */
};

int holder_start(struct queue *results, struct holder **out); /* two threads */
void holder_stop(struct holder *h);			      /* waits for scans under way */
void holder_submit(struct holder *h, struct scan *scan);
struct scan *scan_new(const struct writers *w, pid_t flusher, uint64_t ino);
void scan_free(struct scan *scan);
