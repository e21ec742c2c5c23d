/* Jobs: the commands that run in a sandbox, their output and how they ended.
 *
 * On disk, below the jobs folder (made 0755, so that the tools' user can read what is kept):
 *	run/ID/out    the output so far
 *	run/ID/job    one record of 64 bytes, "R" while it runs and "E CODE FLAGS" after; written in place, so that the
 *	              end of a job can be told even when the disk is full
 *	kept/ID.log   output of an acknowledged job that was to be kept
 *
 * The child's standard output and error are the same pipe, which a thread of the job moves to `out`. Not the file
 * itself: a script's `> /dev/stderr` would open that again and cut it to nothing, or be denied where the tools' user
 * does not own it. Nobody waits for the pipe's end: a job has ended when its first process has, after what was in the
 * pipe at that moment; a background child that still holds it goes on and is read on.
 *
 * Any thread may call; the folder belongs to one struct jobs in one process. That process's children are all reaped
 * here. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/err.h"
#include "sandbox/sandbox.h"

#define JOB_OUTPUT_MAX (256ULL << 20) /* more output than this ends a job */

#define JOB_ENVIRON	  256 /* entries of the base environment, and its bytes */
#define JOB_ENVIRON_BYTES 65536
#define JOB_MARK	  "BERTHFS_JOB=" /* followed by the jobs folder, "/" and the id, in every job's environment */

struct jobs;

struct jobs_config {
	const char *folder; /* absolute; made if missing */
	const char *home;   /* HOME and first working directory */
	const char *path;   /* PATH of the jobs */
	bool drop;	    /* run as uid and gid (needs root) */
	uid_t uid;
	gid_t gid;
	const char *user;	     /* LOGNAME and USER, or NULL */
	const char *user_home;	     /* HOME where that is not `home`, or NULL */
	const char *const *environ;  /* below all else in the environment of jobs, or NULL; not copied */
	void (*ask_disk)(void *arg); /* has jobs_disk() called soon; NULL: it is never called. Any thread */
	void *arg;
	const char *cgroup; /* a cgroup v2 folder in which each job gets a group of its own, or NULL */
};

/* Takes over the folder. What an earlier process left running in it is ended, and those jobs are LOST. The strings of
 * config are copied. */
int jobs_new(const struct jobs_config *config, struct jobs **out, struct err *err);
/* From here on nothing can be started, and a job that ends is LOST: the sandbox going down is what ended it. */
void jobs_close(struct jobs *jobs);
/* That, and ends everything that runs below this process (background children as well). The records stay. */
void jobs_stop(struct jobs *jobs);

/* argv and environ NULL-terminated; cwd absolute or NULL: home. 0 also if the id is known; -errno of exec or chdir. */
int jobs_start(struct jobs *jobs, const struct env_exec *exec, struct err *err);
/* The base environment of jobs that start from here on: "KEY=value", copied; it replaces the one before. -EINVAL: an
 * entry without a name, or too much of it. */
int jobs_set_environ(struct jobs *jobs, const char *const *pairs, struct err *err);
bool jobs_has_environ(struct jobs *jobs); /* whether one was set */
/* That environment, with LANG, for a program that is no job; NULL-terminated, malloc'd like its entries. */
char **jobs_environ(struct jobs *jobs);
/* How much is on this sandbox's disk: more than there may be, or not. While it is, jobs that start cannot make any file
 * longer, so that all they can do is remove some. end: all that runs below this process is ended; blocks while it does.
 */
void jobs_disk(struct jobs *jobs, bool full, bool end);
/* Whether files may be written. If they might not, it is asked for how it is now, and waited for that. */
bool jobs_have_room(struct jobs *jobs);
/* A child was forked by someone else in this process: it is reaped here, too. */
void jobs_forked(struct jobs *jobs);
int jobs_kill(struct jobs *jobs, const char *id, struct err *err);
int jobs_where(struct jobs *jobs, const char *id, char **path, struct err *err);	  /* of what would be kept */
int jobs_ack(struct jobs *jobs, const char *id, bool keep, char **path, struct err *err); /* -EBUSY while it runs */
/* Up to max bytes from offset, appended to out. */
int jobs_output(struct jobs *jobs, const char *id, uint64_t offset, size_t max, struct buf *out, struct err *err);

/* Tells how a job is. True if there is nothing to wait for: it does not run, or has more than since bytes. */
bool jobs_poll(struct jobs *jobs, const char *id, uint64_t since, struct env_job *out);
/* Between these two, event (an eventfd) is written to whenever jobs_poll(id, since) may have become true. */
struct job_watch *jobs_watch(struct jobs *jobs, const char *id, uint64_t since, int event);
void jobs_unwatch(struct jobs *jobs, struct job_watch *watch);

/* 1-64 of letters, digits, . _ - and neither "." nor "..". */
bool job_id_ok(const char *id);
