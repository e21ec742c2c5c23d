/* What follows a run: the work comes back, is merged if wanted, and checked by the host. Worker threads. */
#include "finish.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "killpoint.h"
#include "ship.h"
#include "tool.h"
#include "transcript.h"

#define TRIES 3 /* of a sync whose sandbox went away */

/* ---- texts: diff, changes, commits, checks ---- */

static int text_put(struct tx *tx, struct session *s, const char *kind, const struct buf *body, struct text_info *info,
		    struct err *err)
{
	int rc = db_run(tx->db, err,
			"INSERT INTO texts(session,kind,body,changed_ms) VALUES(?,?,?,?) ON CONFLICT(session,kind) DO "
			"UPDATE SET body=excluded.body, changed_ms=excluded.changed_ms",
			"itti", s->id, kind, buf_str(body), tx->now_ms);
	*info = (struct text_info){strlen(buf_str(body)), tx->now_ms};
	return rc;
}

/* The `checks` file from the rows: a result that was made on another commit than the newest is stale. */
static int checks_text(struct tx *tx, struct session *s, struct err *err)
{
	CLEAN_BUF struct buf rows = BUF_INIT;
	CLEAN_BUF struct buf outputs = BUF_INIT;
	struct rows r;
	int rc = db_query(tx->db, &r, err,
			  "SELECT name, result, seconds, head, output FROM checks WHERE session=? ORDER BY pos", "i",
			  s->id);
	while (!rc && rows_next(&r)) {
		const char *result = strcmp(row_text(&r, 3), s->head) ? "stale" : row_text(&r, 1);
		buf_addf(&rows, "%s\t%.1f\t%s\t%.12s\n", result, row_real(&r, 2), row_text(&r, 0), row_text(&r, 3));
		if (row_len(&r, 4))
			buf_addf(&outputs, "\n--- %s\n%s", row_text(&r, 0), row_text(&r, 4));
		if (outputs.n && !buf_ends(&outputs, "\n"))
			buf_addc(&outputs, '\n');
	}
	int end = rows_end(&r);
	rc = rc ? rc : end;
	buf_add(&rows, buf_str(&outputs), outputs.n);
	if (rc || (!rows.n && !s->checks.size))
		return rc;
	return text_put(tx, s, "checks", &rows, &s->checks, err);
}

struct texts {
	struct buf diff, changes, commits;
	const char *base_branch, *base, *head;
};

static int texts_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct texts *t = arg;
	int rc = text_put(tx, s, "diff", &t->diff, &s->diff, err);
	if (*s->uncommitted)
		buf_addf(&t->changes, " %s\n", s->uncommitted);
	rc = rc ? rc : text_put(tx, s, "changes", &t->changes, &s->changes, err);
	return rc ? rc : text_put(tx, s, "commits", &t->commits, &s->commits, err);
}

/* git's texts may hold any bytes; the files are UTF-8. */
static void clean(struct buf *b)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	utf8_scrub(&out, buf_str(b), b->n);
	struct buf t = *b;
	*b = out;
	out = t;
}

int finish_texts(struct worker *w, const char *base, const char *head, struct err *err)
{
	struct texts t = {.head = head};
	int rc = repo_diff(w->s->project, base, head, &t.diff, err);
	rc = rc ? rc : repo_changes(w->s->project, base, head, &t.changes, err);
	rc = rc ? rc : repo_commits(w->s->project, base, head, &t.commits, err);
	clean(&t.diff);
	clean(&t.changes);
	clean(&t.commits);
	rc = rc ? rc : worker_commit(w, texts_fn, &t, err);
	buf_release(&t.diff);
	buf_release(&t.changes);
	buf_release(&t.commits);
	return rc;
}

/* ---- sync ---- */

/* What is not committed, for `status` and `changes`: "2 files not committed in the sandbox: a.txt, b.txt". */
static int note_uncommitted(struct tx *tx, struct session *s, const struct sync_result *r, struct err *err)
{
	CLEAN_BUF struct buf words = BUF_INIT;
	struct text_info info;
	if (r->uncommitted)
		buf_addf(&words, "%zu file%s not committed in the sandbox%s%s%s", r->uncommitted,
			 r->uncommitted == 1 ? "" : "s", r->named ? ": " : "", r->names,
			 r->named && r->named < r->uncommitted ? ", ..." : "");
	if (!strcmp(s->uncommitted, buf_str(&words)))
		return 0;
	session_set(&s->uncommitted, buf_str(&words));
	s->changed_ms = tx->now_ms;
	int rc = text_put(tx, s, "uncommitted", &words, &info, err);
	return rc || !words.n ? rc : log_add(tx, s, words.p, err);
}

static int synced_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct sync_result *r = arg;
	bool moved = strcmp(s->head, r->head);
	session_set(&s->head, r->head);
	if (!*r->left.text) /* else only the sandbox has the work under a name */
		s->unsynced = 0;
	int rc = checks_text(tx, s, err);
	if (!rc && moved) {
		CLEAN_FREE char *line = xasprintf("synced %.12s", r->head);
		rc = log_add(tx, s, line, err);
		rc = rc ? rc : tx_event(tx, s, "synced", r->head, err);
	}
	rc = rc ? rc : note_uncommitted(tx, s, r, err);
	if (!rc && *r->left.text) {
		rc = log_add(tx, s, r->left.text, err);
		rc = rc ? rc : tx_error(tx, s->id, "branch", &r->left, err);
	}
	return rc;
}

int finish_sync(struct worker *w, bool replace, struct sync_result *out, struct err *err)
{
	CLEAN_FREE char *branch = xasprintf("sandbox/%" PRId64, w->id);
	CLEAN_FREE char *tmp = xasprintf("%s/tmp", w->b->paths->state);
	CLEAN_FREE char *prefix = xasprintf("s%" PRId64 ".sync", w->id);
	const char *known[] = {w->s->base_commit, w->s->start_commit, NULL};
	struct sync_how how = {.clone = w->s->clone,
			       .host_repo = w->s->project,
			       .tmp_dir = tmp,
			       .prefix = prefix,
			       .branch = branch,
			       .old_head = w->s->head,
			       .known = known,
			       .replace = replace,
			       .cancel = &w->cancel};
	int rc = 0;
	for (int i = 0; i < TRIES; i++) {
		rc = worker_env(w, err);
		how.env = w->env;
		rc = rc ? rc : sync_fetch(&how, out, err);
		if (!tool_env_lost(rc) || rc == -ECANCELED)
			break;
		worker_env_drop(w);
	}
	if (rc)
		return rc;
	killpoint("sync.fetched");
	rc = worker_commit(w, synced_fn, out, err);
	return rc ? rc : finish_texts(w, w->s->base_commit, out->head, err);
}

static int merge(struct worker *w, struct err *err)
{
	CLEAN_FREE char *branch = xasprintf("sandbox/%" PRId64, w->id);
	enum repo_merge result;
	struct err words = ERR_INIT;
	int rc = repo_merge_ff(w->s->project, branch, &result, &words);
	if (!rc && result == REPO_MERGE_DONE)
		return worker_log(w, "the checked-out branch of %s was fast-forwarded", w->s->project);
	if (!rc && result == REPO_MERGE_NOTHING)
		return 0;
	worker_log(w, "not merged: %s", words.text);
	return err_set(err, rc ? -rc : EBUSY, "not merged: %s", words.text);
}

static int problem_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	return tx_error(tx, s->id, "branch", arg, err);
}

struct after {
	bool failed;
};

static int after_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct after *a = arg;
	if (a->failed)
		s->after &= ~(AFTER_CHECKS | AFTER_SHIP); /* nothing new to check or to ship */
	return session_event(tx, s, EVENT_SYNCED, NULL, err);
}

int sync_step(struct worker *w, struct err *err)
{
	struct sync_result r = {0};
	struct err why = ERR_INIT;
	struct after a = {false};
	int rc = finish_sync(w, false, &r, &why);
	if (!rc && ((w->s->after & AFTER_MERGE) || !strcmp(w->s->setting[SETTING_AFTER_RUN], "merge")))
		merge(w, &why);
	if (rc && atomic_load(&w->cancel) && (atomic_load(&w->halt) || !w->s->stopping))
		return -ECANCELED;
	if (why.code) {
		a.failed = rc != 0;
		worker_commit(w, problem_fn, &why, NULL);
	}
	return worker_commit(w, after_fn, &a, err);
}

/* ---- checks ---- */

struct checked {
	const char *head;
	struct check_result *r;
	size_t n;
};

static int checked_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct checked *c = arg;
	int rc = db_run(tx->db, err, "DELETE FROM checks WHERE session=?", "i", s->id);
	for (size_t i = 0; i < c->n && !rc; i++)
		rc = db_run(tx->db, err,
			    "INSERT INTO checks(session,pos,name,result,seconds,head,output) VALUES(?,?,?,?,?,?,?)",
			    "iittftt", s->id, (int64_t)i + 1, c->r[i].name, check_words[c->r[i].state],
			    (double)c->r[i].ms / 1000.0, c->head, buf_str(&c->r[i].output));
	return rc ? rc : checks_text(tx, s, err);
}

static void broken(const char *words, struct check_result **out, size_t *n)
{
	*out = xcalloc(1, sizeof **out);
	(*out)->name = xstrdup(PROJECT_FILE);
	(*out)->state = CHECK_ERROR;
	buf_addf(&(*out)->output, "%s\n", words);
	*n = 1;
}

static void on_check(void *arg, const struct project_check *check)
{
	worker_log(arg, "checking: %s", check->name);
}

int finish_checks(struct worker *w, const char *head, const char *prefix, struct check_result **results, size_t *n,
		  struct err *err)
{
	struct project p = {0};
	struct err why = ERR_INIT;
	struct config *c = backend_config(w->b);
	struct checks_how how = {.clone = w->s->clone,
				 .project = &p,
				 .prefix = prefix,
				 .cancel = &w->cancel,
				 .halt = &w->halt,
				 .timeout_ms = (int)(config_int(c, CONFIG_CHECK_TIMEOUT) * 1000),
				 .progress = on_check,
				 .arg = w};
	config_put(c);
	*results = NULL;
	*n = 0;
	int rc = checks_load(w->s->project, head, &p, &why);
	if (w->s->stopping) {
		if (!rc && w->env && !env_lost(w->env))
			checks_end(w->env, prefix, p.n_checks);
		rc = err_set(err, ECANCELED, "the checks were stopped");
	} else if (rc) {
		broken(why.text, results, n);
		rc = 0;
	} else if (p.n_checks) {
		for (int i = 0; i < TRIES; i++) {
			rc = worker_env(w, err);
			how.env = w->env;
			rc = rc ? rc : checks_run(&how, results, n, err);
			if (!tool_env_lost(rc) || rc == -ECANCELED)
				break;
			worker_env_drop(w);
		}
	}
	struct checked done = {head, *results, *n};
	rc = rc ? rc : worker_commit(w, checked_fn, &done, err);
	if (!rc && p.n_checks)
		checks_forget(w->env, prefix, p.n_checks);
	project_release(&p);
	return rc;
}

static char *tally(const struct check_result *r, size_t n)
{
	size_t by[3] = {0};
	for (size_t i = 0; i < n; i++)
		by[r[i].state]++;
	return n ? xasprintf("%zu passed, %zu failed, %zu errors", by[CHECK_PASS], by[CHECK_FAIL], by[CHECK_ERROR])
		 : xstrdup("none");
}

static bool all_passed(const struct check_result *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (r[i].state != CHECK_PASS)
			return false;
	return true;
}

struct then {
	const char *words;
	bool passed;
};

/* After a run that was answered, `after-run: ship` or `pr` ships by itself: only what is good, and what asks nothing.
 */
static int then_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct then *t = arg;
	bool ship = s->after & AFTER_SHIP && strcmp(s->head, s->base_commit);
	int rc = session_event(tx, s, EVENT_CHECKED, t->words, err);
	if (rc || !ship || s->state != STATE_IDLE)
		return rc;
	if (s->question_size || !t->passed)
		return log_add(tx, s,
			       s->question_size ? "not shipped: a question is open"
						: "not shipped: a check has not passed",
			       err);
	return ship_start(tx, s, strcmp(s->setting[SETTING_AFTER_RUN], "pr") ? "" : "pr", err);
}

int check_step(struct worker *w, struct err *err)
{
	struct check_result *r;
	size_t n;
	struct err why = ERR_INIT;
	CLEAN_FREE char *prefix = xasprintf("check-%" PRId64 "-%" PRId64, w->id, w->s->check_round);
	int rc = finish_checks(w, w->s->head, prefix, &r, &n, &why);
	if (rc && atomic_load(&w->cancel) && (atomic_load(&w->halt) || !w->s->stopping)) {
		checks_free(r, n);
		return -ECANCELED;
	}
	if (rc)
		worker_commit(w, problem_fn, &why, NULL);
	CLEAN_FREE char *words = rc ? xstrdup("not run") : tally(r, n);
	struct then then = {.words = words, .passed = !rc && all_passed(r, n)};
	checks_free(r, n);
	return worker_commit(w, then_fn, &then, err);
}
