/* The engine: gives each session that has something to do a worker thread, and takes it away when nothing is left.
 * A worker loads the session's committed state, does the step that the state calls for, commits, and looks again; so a
 * restarted daemon goes on by the same path as a running one. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core.h"
#include "sandbox/sandbox.h"
#include "session.h"

/* What a provider has counted of one request, so that it is asked once for it. */
struct compact_count {
	char model[128];
	int64_t entries, waiting; /* the request's: up to this entry, and bytes of messages that wait */
	int64_t tokens;		  /* 0: it has told nothing, and is not asked before again_ms of CLOCK_MONOTONIC */
	int64_t again_ms;
};

struct worker {
	struct backend *b;
	int64_t id;
	struct db *db;			 /* its own read connection */
	struct session *s;		 /* a copy of the committed state, loaded anew before each step */
	struct env *env;		 /* open connection to the sandbox, or NULL */
	int64_t pushing;		 /* number of the ship whose push this very worker has begun, 0 = none */
	char *offered;			 /* page for a pull request that the remote named after that push, or NULL */
	struct compact_count counted;	 /* compact_count.c */
	char *prompt;			 /* system prompt of this worker's runs, or NULL */
	struct buf looked;		 /* agents.c: folders that were looked into, a line each */
	bool acked;			 /* calls.c: jobs that an earlier process left behind are forgotten */
	atomic_bool cancel;		 /* the step must end soon: stop, destroy or shutdown */
	atomic_bool halt;		 /* the daemon is stopping: leave everything as it is */
	int64_t retry_ms, retry_mono_ms; /* a session's retry_ms that was seen, and when that is by CLOCK_MONOTONIC */
};

int engine_start(struct backend *b, struct engine **out, struct err *err);
void engine_halt(struct engine *e); /* waits until every worker has left its step; later kicks do nothing */
void engine_free(struct engine *e); /* after the store thread, which still kicks */
void engine_kick(struct engine *e, int64_t session);   /* something changed; never blocks; any thread */
void engine_cancel(struct engine *e, int64_t session); /* ends the step that is going on */
size_t engine_workers(struct engine *e);

/* ---- for the steps; worker threads ---- */

/* Opens w->env if it is not open. If the sandbox is down it is started again first (its jobs are then lost). */
int worker_env(struct worker *w, struct err *err);
void worker_env_drop(struct worker *w);
/* Makes or starts the sandbox of s: the worker's own, or that of a session whose disk it copies. What it says goes to
 * the worker's log. */
int worker_up(struct worker *w, const struct session *s, struct err *err);
/* Where the project's clone is in the sandbox behind env; malloc'd. */
char *worker_clone_path(const struct worker *w, const struct env *env);
/* Brings the project into a sandbox by clone_into(), clone_move() or the like. The caller fills env, commit, clone,
 * prefix, progress and arg; the rest is that of the worker's session. */
struct clone_how;
int worker_clone(struct worker *w, struct clone_how *how, int (*bring)(const struct clone_how *how, struct err *err),
		 struct err *err);
/* Sleeps until CLOCK_REALTIME until_ms as the clock stands now, a kick or cancel; true if cancelled. */
bool worker_sleep(struct worker *w, int64_t until_ms);
/* Sleeps ms whatever is kicked; true if cancelled. */
bool worker_pause(struct worker *w, int64_t ms);
/* Runs fn in a transaction with the session looked up: fn(tx, s, arg). */
typedef int session_fn(struct tx *tx, struct session *s, void *arg, struct err *err);
int worker_commit(struct worker *w, session_fn *fn, void *arg, struct err *err);
/* The same on a full disk too: for the end of something, never for more work. */
int worker_commit_urgent(struct worker *w, session_fn *fn, void *arg, struct err *err);
/* A line of the session's log. */
int worker_log(struct worker *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Sets the words beside the state. */
int worker_detail(struct worker *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Commits an event with words. */
int worker_event(struct worker *w, enum event ev, const char *words, struct err *err);

/* The step of each state. 0, or an error whose words become the reason of `failed`. -ECANCELED: look again. */
typedef int step_fn(struct worker *w, struct err *err);
step_fn lower_step, prepare_step, turn_step, sync_step, check_step, ship_step, compact_step, destroy_step,
	snapshot_step, restore_step;
