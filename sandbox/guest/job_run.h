/* Inside jobs: what job.c (the table and the folder) and job_run.c (processes and threads) share. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/list.h"
#include "job.h"

enum { JOB_RECORD = 64 }; /* bytes of run/ID/job: within one sector, so that writing it is all or nothing */
enum { JOB_ENDED = 32 };  /* names kept of jobs that were ended before they began */

struct job {
	struct list link; /* in jobs->all; guarded by jobs->lock as all here but `fd`s, which are the job thread's */
	struct jobs *jobs;
	char id[65];
	struct env_job now; /* state, flags and size */
	pid_t pid;	    /* 0 once reaped */
	bool reaped;
	int status; /* from waitpid(), once reaped */
	bool kill_asked;
	bool acked;   /* no longer in the table; freed when its thread ends */
	bool discard; /* acknowledged without keep: what background children still write is dropped */
	bool has_thread;
	int64_t deadline; /* clock_mono_ms(), 0: none */
	int out, record;  /* files */
	int pipe;	  /* our end, -1 at its end */
	int wake;	  /* eventfd: reaped, kill_asked or stopping has changed */
};

struct job_watch {
	struct list link;
	char id[65];
	uint64_t since;
	int event;
};

struct jobs {
	struct jobs_config config; /* strings owned */
	pthread_mutex_t lock;
	pthread_mutex_t starting; /* one start at a time: the second of an id must see the first's end */
	pthread_cond_t forked;	  /* `forks` has changed: there is a child to wait for */
	unsigned forks;
	pthread_cond_t thread_gone;
	struct list all, watches;
	int threads; /* job threads that live */
	bool stopping;
	bool full;	/* job.h: jobs_disk() */
	unsigned disks; /* how often that was called */
	pthread_cond_t disk;
	char **base; /* environment of all jobs, NULL-terminated, or NULL */
	char ended[JOB_ENDED][65];
	size_t n_ended;
};

/* job.c */
char *job_path(const struct job *job, const char *name); /* run/ID/NAME, malloc'd */
void job_free(struct job *job);
void job_changed(struct job *job); /* tells the watchers; lock held */
int job_write_record(struct job *job, const char *text);
bool jobs_ended_before(const struct jobs *jobs, const char *id); /* it was to be killed before it began; lock held */

/* job_run.c */
/* Forks and execs; job has its files and is in the table as running. On failure it was reaped again and has no thread.
 */
int job_launch(struct job *job, const struct env_exec *exec, struct err *err);
void *job_reaper(void *jobs); /* thread of the whole life of jobs */
