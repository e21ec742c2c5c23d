/* A sandbox that rested is needed again: `.agents/resume` of the project runs in it before anything else does. It is a
 * job with an id of its own for each time, so a daemon that was killed in the middle of it goes on with it. Worker
 * threads. Must never fail what woke the sandbox for a script that fails. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "killpoint.h"
#include "rest.h"
#include "transcript.h"

#define RESUME	     ".agents/resume"
#define RESUME_MS    300000 /* then it is ended, and the call goes on */
#define OUTPUT_MAX   65536
#define OUTPUT_LINES 50 /* of its output that are logged: the last */

static int waking_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	int rc = db_run(
		tx->db, err,
		"INSERT INTO idle(session, quiet_ms, waking, wakes) VALUES(?1, ?2, 1, 1) ON CONFLICT(session) DO "
		"UPDATE SET waking = 1, wakes = wakes + 1",
		"ii", s->id, tx->now_ms);
	return rc || !arg ? rc : log_add(tx, s, arg, err);
}

int rest_waking(struct worker *w, enum sandbox_state state, struct err *err)
{
	const char *words = state == SANDBOX_PAUSED	  ? "the sandbox was paused and goes on"
			    : state == SANDBOX_HIBERNATED ? "the sandbox comes back from disk"
							  : NULL;
	return worker_commit(w, waking_fn, (void *)words, err);
}

struct resumed {
	int64_t wakes;
	struct buf log; /* lines */
};

static int resumed_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct resumed *r = arg;
	CLEAN_FREE char *copy = xstrdup(buf_str(&r->log));
	char *rest = copy;
	int rc = db_run(tx->db, err, "UPDATE idle SET waking = 0 WHERE session = ? AND wakes = ?", "ii", s->id,
			r->wakes);
	for (char *line; !rc && (line = strsep(&rest, "\n"));)
		if (*line)
			rc = log_add(tx, s, line, err);
	return rc;
}

static void add_output(struct buf *log, const struct buf *output)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	utf8_clean(&text, output->p, output->n);
	size_t at = text.n, lines = 0;
	while (at && (lines += text.p[at - 1] == '\n') <= OUTPUT_LINES)
		at--;
	char *rest = text.n ? text.p + at : NULL;
	for (char *line; text.n && (line = strsep(&rest, "\n"));)
		if (*line)
			buf_addf(log, RESUME ": %s\n", line);
}

/* The end of the output: the last OUTPUT_MAX bytes of it. */
static void collect(struct worker *w, const char *job, const struct env_job *j, struct buf *log)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	uint64_t from = j->output > OUTPUT_MAX ? j->output - OUTPUT_MAX : 0;
	if (!env_output(w->env, job, from, OUTPUT_MAX, &out, NULL))
		add_output(log, &out);
}

static int run(struct worker *w, const char *job, struct buf *log, struct err *err)
{
	static const char text[] = "if [ -x " RESUME " ]; then exec ./" RESUME "; else exec /bin/bash " RESUME "; fi";
	const char *argv[] = {"/bin/bash", "-c", text, NULL};
	struct env_exec exec = {.job = job, .argv = argv, .cwd = w->s->clone, .timeout_ms = RESUME_MS};
	struct env_job j = {0};
	int rc = env_start(w->env, &exec, err);
	killpoint("rest.resuming");
	rc = rc ? rc : env_wait(w->env, job, RESUME_MS, &w->cancel, &j, err);
	if (rc)
		return rc;
	collect(w, job, &j, log);
	if (j.timed_out)
		buf_adds(log, RESUME " was ended: it took longer than 5 min\n");
	else
		buf_addf(log, RESUME " ended with exit code %d\n", j.exit_code);
	env_ack(w->env, job, false, NULL, NULL);
	return 0;
}

static bool there(struct worker *w, int *rc, struct err *err)
{
	struct env_stat st = {0};
	CLEAN_FREE char *path = xasprintf("%s/" RESUME, w->s->clone);
	*rc = env_stat(w->env, path, &st, err);
	free(st.real);
	return !*rc && S_ISREG(st.mode);
}

int rest_awake(struct worker *w, struct err *err)
{
	struct resumed r = {
		.wakes = db_int(w->db, 0, "SELECT wakes FROM idle WHERE session = ? AND waking = 1", "i", w->id)};
	char job[64];
	int rc;
	struct err why = ERR_INIT;
	if (!r.wakes || !*w->s->clone)
		return 0;
	snprintf(job, sizeof job, "resume-%" PRId64 "-%" PRId64, w->id, r.wakes);
	if (there(w, &rc, &why))
		rc = run(w, job, &r.log, &why);
	else
		rc = rc == -ENOENT || rc == -ENOTDIR ? 0 : rc;
	bool stopped = rc == -ECANCELED && !atomic_load(&w->halt);
	if (stopped && (env_lost(w->env) ? env_abandon(w->env, job, NULL) : env_kill(w->env, job, NULL)))
		stopped = false;
	if ((env_lost(w->env) || rc == -ECANCELED) && !stopped)
		err_set(err, -rc, "%s", why.text); /* it is still due */
	else {
		if (rc)
			buf_addf(&r.log, RESUME ": %s\n", stopped ? "stopped" : why.text);
		rc = stopped ? rc : 0;
		if (stopped)
			err_set(err, ECANCELED, "stopped");
		worker_commit(w, resumed_fn, &r, NULL);
	}
	buf_release(&r.log);
	return rc;
}
