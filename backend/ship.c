/* Ship. Each step is committed before the next begins, so a restart goes on where it was:
 *   fetching   the remote's branch comes to the host and into the sandbox as refs/berthfs/base
 *   asking     the model commits, rebases, tests and says SHIP-READY or SHIP-BLOCKED
 *   verifying  the host looks for itself: forced sync, nothing uncommitted, the base is an ancestor
 *   checking   the project's checks on that very commit
 *   pushing    never forced; a push whose answer was lost is looked up at the remote first
 *   opening    a pull request, if that was asked for
 * Worker threads but ship_start() and the _fn functions. */
#include "ship.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/parse/blocks.h"
#include "bundle.h"
#include "finish.h"
#include "killpoint.h"
#include "ship_pr.h"
#include "ship_rules.h"
#include "transcript.h"
#include "turn.h"

#define PUSH_TRIES   5	  /* at a remote that does not answer */
#define PUSH_WAIT_MS 2000 /* between them; doubles */

struct ship {
	int64_t n;
	char *target, *step, *remote, *branch, *base, *head;
};

/* ---- the record ---- */

static void ship_release(struct ship *s)
{
	char *fields[] = {s->target, s->step, s->remote, s->branch, s->base, s->head};
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		free(fields[i]);
}

static int ship_load(struct worker *w, struct ship *s, struct err *err)
{
	struct rows r;
	int rc = db_query(w->db, &r, err,
			  "SELECT target, step, remote, branch, base, head FROM ships WHERE session=? AND n=?", "ii",
			  w->id, w->s->ship);
	bool found = !rc && rows_next(&r);
	if (found)
		*s = (struct ship){w->s->ship,
				   xstrdup(row_text(&r, 0)),
				   xstrdup(row_text(&r, 1)),
				   xstrdup(row_text(&r, 2)),
				   xstrdup(row_text(&r, 3)),
				   xstrdup(row_text(&r, 4)),
				   xstrdup(row_text(&r, 5))};
	int end = rows_end(&r);
	rc = rc ? rc : end;
	return rc || found ? rc : err_set(err, EIO, "ship %" PRId64 " has no record", w->s->ship);
}

static void show(struct tx *tx, struct session *s, const char *text)
{
	session_set(&s->ship_text, text);
	s->ship_ms = tx->now_ms;
}

static int set_step(struct tx *tx, struct session *s, const char *step, struct err *err)
{
	CLEAN_FREE char *text = xasprintf("running %s", step);
	show(tx, s, text);
	session_detail(tx, s, "%s", step);
	return db_run(tx->db, err, "UPDATE ships SET step=?, outcome=?, at_ms=? WHERE session=? AND n=?", "ttiii", step,
		      text, tx->now_ms, s->id, s->ship);
}

int ship_start(struct tx *tx, struct session *s, const char *line, struct err *err)
{
	enum ship_target target;
	CLEAN_FREE char *branch = NULL;
	CLEAN_FREE char *copy = xstrdup(line);
	const char *want = text_trim(copy);
	if (!*want)
		want = s->setting[SETTING_SHIP];
	int rc = ship_parse(want, &target, &branch, err);
	rc = rc ? rc : session_event(tx, s, EVENT_SHIP, want, err);
	if (rc)
		return rc;
	s->ship++;
	rc = db_run(tx->db, err,
		    "INSERT INTO ships(session,n,at_ms,target,step,remote,branch,base,head,outcome) "
		    "VALUES(?,?,?,?,'fetching','',?,'','','')",
		    "iiitt", s->id, s->ship, tx->now_ms, want, branch ? branch : "");
	return rc ? rc : set_step(tx, s, "fetching", err);
}

static bool is_pr(const struct ship *s)
{
	return !strcmp(s->target, "pr");
}

/* ---- the end ---- */

struct outcome {
	const char *text;	   /* of the `ship` file */
	const char *words;	   /* what to do, for `error`; NULL or "" if all is well */
	const char *branch, *head; /* landed: what diff compares with from now on; else NULL */
};

static int outcome_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct outcome *o = arg;
	CLEAN_FREE char *notice = xasprintf("ship: %s", o->text);
	show(tx, s, o->text);
	if (o->head) {
		session_set(&s->base_branch, o->branch);
		session_set(&s->base_commit, o->head);
	}
	int rc = db_run(tx->db, err, "UPDATE ships SET step='', outcome=?, at_ms=? WHERE session=? AND n=?", "tiii",
			o->text, tx->now_ms, s->id, s->ship);
	rc = rc ? rc : log_add(tx, s, notice, err);
	rc = rc ? rc : transcript_notice(tx, s, notice, err);
	if (!rc && o->words && *o->words) {
		struct err e = ERR_INIT;
		err_set(&e, ECANCELED, "%s (%s)", o->words, o->text);
		rc = tx_error(tx, s->id, "ship", &e, err);
	}
	return rc ? rc : session_event(tx, s, EVENT_SHIPPED, o->text, err);
}

static int finish(struct worker *w, const char *text, const char *words, struct err *err)
{
	CLEAN_FREE char *line = xstrdup(text);
	text_one_line(line, SIZE_MAX);
	struct outcome o = {line, words, NULL, NULL};
	return worker_commit(w, outcome_fn, &o, err);
}

static int blocked(struct worker *w, const char *why, struct err *err)
{
	CLEAN_FREE char *text = xasprintf("blocked: %s", why);
	return finish(w, text, why, err);
}

static int landed(struct worker *w, const struct ship *s, const char *text, const char *head, struct err *err)
{
	struct outcome o = {text, NULL, s->branch, head};
	int rc = finish_texts(w, head, head, err);
	return rc ? rc : worker_commit(w, outcome_fn, &o, err);
}

/* Errors of a step: what the daemon or its user stopped is looked at again; the rest blocks the ship. */
static int step_failed(struct worker *w, int rc, const struct err *why, struct err *err)
{
	if (rc == -ECANCELED && (atomic_load(&w->halt) || !w->s->stopping))
		return -ECANCELED;
	if (rc == -ECANCELED || atomic_load(&w->cancel)) {
		atomic_store(&w->cancel, false);
		return blocked(w, "stopped by the user", err);
	}
	return blocked(w, why->text, err);
}

/* ---- fetching ---- */

struct fetched {
	const struct ship *s;
	const struct buf *prompt;
};

static int fetched_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct fetched *f = arg;
	int rc = db_run(tx->db, err, "UPDATE ships SET remote=?, branch=?, base=? WHERE session=? AND n=?", "tttii",
			f->s->remote, f->s->branch, f->s->base, s->id, s->ship);
	rc = rc ? rc : transcript_ship(tx, s, buf_str(f->prompt), err);
	return rc ? rc : set_step(tx, s, "asking", err);
}

/* Remote, branch and its commit. A named branch that is not there yet starts from the default branch. */
static int find_base(struct worker *w, struct ship *s, struct err *err)
{
	char commit[COMMIT_TEXT];
	const char *repo = w->s->project;
	CLEAN_FREE char *fallback = NULL;
	CLEAN_FREE char *remote = NULL;
	CLEAN_FREE char *branch = NULL;
	int rc = repo_default_remote(repo, &remote, err);
	if (!rc)
		session_set(&s->remote, remote);
	if (!rc && !*s->branch) {
		rc = repo_remote_branch(repo, s->remote, &branch, &w->cancel, err);
		if (!rc)
			session_set(&s->branch, branch);
	}
	rc = rc ? rc : repo_fetch_base(repo, s->remote, s->branch, commit, &w->cancel, err);
	if (rc == -ENOENT && !strncmp(s->target, "branch ", 7)) {
		rc = repo_remote_branch(repo, s->remote, &fallback, &w->cancel, err);
		rc = rc ? rc : repo_fetch_base(repo, s->remote, fallback, commit, &w->cancel, err);
	}
	if (!rc)
		session_set(&s->base, commit);
	return rc;
}

static int step_fetching(struct worker *w, struct ship *s, struct err *err)
{
	struct err why = ERR_INIT;
	CLEAN_BUF struct buf prompt = BUF_INIT;
	CLEAN_FREE char *tmp = xasprintf("%s/tmp", w->b->paths->state);
	CLEAN_FREE char *prefix = xasprintf("s%" PRId64 ".ship%" PRId64, w->id, s->n);
	int rc = find_base(w, s, &why);
	rc = rc ? rc : worker_env(w, &why);
	struct base_how how = {.env = w->env,
			       .host_repo = w->s->project,
			       .base = s->base,
			       .clone = w->s->clone,
			       .tmp_dir = tmp,
			       .prefix = prefix,
			       .cancel = &w->cancel};
	rc = rc ? rc : base_into(&how, &why);
	if (rc)
		return step_failed(w, rc, &why, err);
	ship_prompt(&prompt, is_pr(s), s->remote, s->branch, s->base);
	struct fetched f = {s, &prompt};
	return worker_commit(w, fetched_fn, &f, err);
}

/* ---- asking ---- */

static int answered_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	return set_step(tx, s, "verifying", err);
}

static int step_asking(struct worker *w, struct ship *s, struct err *err)
{
	enum turn_end end;
	struct err why = ERR_INIT;
	int rc = turn_run(w, answered_fn, SHIP_COMMAND_MS, &end, &why);
	if (rc == -ECANCELED)
		return rc;
	if (rc)
		return step_failed(w, rc, &why, err);
	return end == TURN_STOPPED ? blocked(w, "stopped by the user", err) : 0;
}

/* ---- verifying ---- */

struct next {
	const char *step, *head;
};

static int next_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct next *n = arg;
	int rc = db_run(tx->db, err, "UPDATE ships SET head=? WHERE session=? AND n=?", "tii", n->head, s->id, s->ship);
	return rc ? rc : set_step(tx, s, n->step, err);
}

static int go_on(struct worker *w, const char *step, const char *head, struct err *err)
{
	struct next n = {step, head};
	return worker_commit(w, next_fn, &n, err);
}

/* The model's word. 0: ready; 1: the ship has ended (committed); or an error. */
static int verdict(struct worker *w, struct err *err)
{
	CLEAN_BUF struct buf answer = BUF_INIT;
	CLEAN_BUF struct buf why = BUF_INIT;
	int rc = text_read(w->db, w->id, TEXT_ANSWER, 0, SIZE_MAX, &answer, err);
	if (rc)
		return rc;
	switch (ship_verdict(buf_str(&answer), answer.n, &why)) {
	case SHIP_VERDICT_READY: return 0;
	case SHIP_VERDICT_BLOCKED: rc = blocked(w, why.n ? buf_str(&why) : "the model gave no reason", err); break;
	case SHIP_VERDICT_NONE: rc = blocked(w, "the answer ends with neither SHIP-READY nor SHIP-BLOCKED", err); break;
	}
	return rc ? rc : 1;
}

static int facts_of(struct worker *w, const struct ship *s, const struct sync_result *r, struct ship_facts *f,
		    struct err *err)
{
	int on_base = repo_is_ancestor(w->s->project, s->base, r->head, err);
	int there = on_base < 0 ? on_base : repo_is_ancestor(w->s->project, r->head, s->base, err);
	*f = (struct ship_facts){.branch = s->branch,
				 .uncommitted = r->uncommitted,
				 .busy = r->busy,
				 .on_base = on_base > 0,
				 .landed = there > 0};
	return there < 0 ? there : 0;
}

static int step_verifying(struct worker *w, struct ship *s, struct err *err)
{
	struct err why = ERR_INIT;
	struct sync_result r = {0};
	struct ship_facts f;
	CLEAN_BUF struct buf outcome = BUF_INIT;
	CLEAN_BUF struct buf words = BUF_INIT;
	int rc = verdict(w, err);
	if (rc)
		return rc > 0 ? 0 : rc;
	rc = finish_sync(w, true, &r, &why);
	rc = rc ? rc : facts_of(w, s, &r, &f, &why);
	if (rc)
		return step_failed(w, rc, &why, err);
	if (ship_allowed(&f, &outcome, &words))
		return go_on(w, "checking", r.head, err);
	if (f.landed && !f.uncommitted && !*f.busy)
		return landed(w, s, buf_str(&outcome), s->base, err);
	return finish(w, buf_str(&outcome), buf_str(&words), err);
}

/* ---- checking ---- */

static int step_checking(struct worker *w, struct ship *s, struct err *err)
{
	struct err why = ERR_INIT;
	struct check_result *r = NULL;
	size_t n = 0;
	CLEAN_BUF struct buf outcome = BUF_INIT;
	CLEAN_BUF struct buf words = BUF_INIT;
	CLEAN_FREE char *prefix = xasprintf("ship-%" PRId64 "-%" PRId64, w->id, s->n);
	int rc = finish_checks(w, s->head, prefix, &r, &n, &why);
	struct ship_facts f = {.branch = s->branch, .busy = "", .on_base = true, .checks = r, .n_checks = n};
	bool good = !rc && ship_allowed(&f, &outcome, &words);
	checks_free(r, n);
	if (rc)
		return step_failed(w, rc, &why, err);
	if (!good)
		return finish(w, buf_str(&outcome), buf_str(&words), err);
	w->pushing = s->n;
	return go_on(w, "pushing", s->head, err);
}

/* ---- pushing ---- */

static int pushed(struct worker *w, const struct ship *s, struct err *err)
{
	if (is_pr(s))
		return go_on(w, "opening", s->head, err);
	CLEAN_FREE char *text = xasprintf("landed %s %s", s->branch, s->head);
	return landed(w, s, text, s->head, err);
}

/* One try. 0 and *done, or 0 and words why it has to be tried again. */
static int push_once(struct worker *w, const struct ship *s, bool look_first, bool *done, struct err *why,
		     struct err *err)
{
	enum repo_push result;
	CLEAN_FREE char *branch = is_pr(s) ? ship_pr_branch(w->id, s->head) : xstrdup(s->branch);
	*done = true;
	if (look_first) {
		int has = repo_remote_has(w->s->project, s->remote, branch, s->head, &w->cancel, why);
		if (has > 0)
			return pushed(w, s, err);
		*done = has == 0;
		if (has < 0)
			return 0;
	}
	free(w->offered);
	w->offered = NULL;
	int rc = repo_push(w->s->project, s->remote, s->head, branch, &result, &w->offered, &w->cancel, why);
	killpoint("ship.pushed");
	if (rc)
		return step_failed(w, rc, why, err);
	CLEAN_FREE char *refused = xasprintf("refused: %s", why->text);
	switch (result) {
	case REPO_PUSHED: return pushed(w, s, err);
	case REPO_PUSH_MOVED:
		return finish(w, "moved: ship again", "the remote has new commits: write to ship again", err);
	case REPO_PUSH_REFUSED: return finish(w, refused, "the remote refused the push", err);
	case REPO_PUSH_UNREACHABLE: break;
	}
	*done = false;
	return 0;
}

static int step_pushing(struct worker *w, struct ship *s, struct err *err)
{
	struct err why = ERR_INIT;
	bool look = w->pushing != s->n; /* an earlier process may have pushed already */
	int64_t wait = PUSH_WAIT_MS;
	killpoint("ship.pushing");
	for (int i = 0; i < PUSH_TRIES; i++, look = true, wait *= 2) {
		bool done;
		int rc = push_once(w, s, look, &done, &why, err);
		if (done || rc)
			return rc;
		worker_log(w, "the remote cannot be reached: %s", why.text);
		if (i + 1 < PUSH_TRIES && worker_pause(w, wait))
			return step_failed(w, -ECANCELED, &why, err);
	}
	return blocked(w, why.text, err);
}

/* ---- opening ---- */

/* The branch is pushed by now, so this ends well whatever comes of the pull request; the words say what is left. */
static int step_opening(struct worker *w, struct ship *s, struct err *err)
{
	struct err why = ERR_INIT;
	CLEAN_FREE char *link = NULL;
	CLEAN_BUF struct buf words = BUF_INIT;
	int rc = ship_pr_open(w, s->remote, s->branch, s->head, &link, &words, &why);
	if (rc)
		return step_failed(w, rc, &why, err);
	killpoint("ship.opened");
	CLEAN_FREE char *branch = ship_pr_branch(w->id, s->head);
	CLEAN_FREE char *text = xasprintf("landed %s %s%s%s", branch, s->head, link ? " " : "", link ? link : "");
	/* It has not landed on the base: that is still what the work is compared with. */
	rc = finish_texts(w, s->base, s->head, err);
	struct outcome o = {text, buf_str(&words), s->branch, s->base};
	return rc ? rc : worker_commit(w, outcome_fn, &o, err);
}

/* ---- */

static const struct {
	const char *name;
	int (*run)(struct worker *w, struct ship *s, struct err *err);
} ship_steps[] = {{"fetching", step_fetching}, {"asking", step_asking},	  {"verifying", step_verifying},
		  {"checking", step_checking}, {"pushing", step_pushing}, {"opening", step_opening}};

int ship_step(struct worker *w, struct err *err)
{
	struct ship s = {0};
	int rc = ship_load(w, &s, err);
	for (size_t i = 0; i < ARRAY_LEN(ship_steps) && !rc; i++)
		if (!strcmp(ship_steps[i].name, s.step)) {
			rc = ship_steps[i].run(w, &s, err);
			break;
		}
	ship_release(&s);
	return rc;
}
