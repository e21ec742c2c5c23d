/* Runs a program to its end with limits: own session, no inherited descriptors but 0-2, signals reset.
 * Blocks the calling thread (a worker, never the loop). */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"

struct child {
	const char *const *argv; /* NULL-terminated; argv[0] looked up in PATH */
	const char *const *env;	 /* "KEY=value" added to the environment; "KEY" alone removes; or NULL */
	const char *cwd;	 /* or NULL */
	const void *in;		 /* bytes for standard input; NULL: /dev/null */
	size_t in_n;
	struct buf *out, *errout;  /* appended to; NULL: /dev/null; the same buf for both is allowed */
	int in_fd;		   /* > 0: standard input is this descriptor, from its offset on; stays the caller's */
	int out_fd;		   /* > 0: standard output goes to this descriptor and not to out; stays the caller's */
	size_t max;		   /* bytes kept of each (0: 16 MiB); what follows is read and dropped */
	size_t memory;		   /* bytes that it may allocate (RLIMIT_DATA; mapped files are free); 0: no limit */
	int timeout_ms;		   /* 0: none; over it the whole group is killed */
	const atomic_bool *cancel; /* or NULL; once true the group is killed (looked at every 50 ms) */
	void (*line)(void *arg, const char *line); /* or NULL: called for each line of both streams */
	void *arg;
};

/* Exit code (0-255, 128+n for a signal), or -errno: -ENOENT not found, -ETIMEDOUT, -ECANCELED. */
int child_run(const struct child *c, struct err *err);
/* True if the program is in PATH. */
bool child_found(const char *name);

/* Kills (SIGKILL) a child of the calling process and that one's children. bwrap does not take along the process inside
 * if it is killed in the moment in which it has made that: so it is stopped first, for which this waits 100 ms at
 * most, and makes no more then. */
void child_kill_jail(pid_t pid);
