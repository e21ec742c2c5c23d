/* One turn of a run. The order of commits is what makes a kill at any point harmless: a request is pinned before it is
 * sent, its answer and the planned calls are one commit, a call's intent is committed before it runs and its result
 * before anything else. Worker threads; blocks in the model and in the sandbox. */
#include "turn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agents.h"
#include "approve.h"
#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "backend/parse/blocks.h"
#include "calls.h"
#include "compact.h"
#include "context.h"
#include "fault.h"
#include "guest.h"
#include "killpoint.h"
#include "message.h"
#include "model.h"
#include "transcript.h"
#include "usage.h"
#include "view.h"

#define PARTIAL_MS    100	/* streamed text is committed at most so often (spec: at most 100 ms apart) */
#define ANSWER_MAX    (4 << 20) /* bytes of an answer with its thinking and arguments; models give a tenth of it */
#define CALLS_MAX     256	/* tools that one answer may ask for */
#define OVERFLOWS_MAX 3		/* requests for a summary that were too long themselves */

/* ---- the prompt ---- */

int turn_prompt(struct worker *w, struct err *err)
{
	if (w->prompt)
		return 0;
	CLEAN_BUF struct buf agents = BUF_INIT;
	int rc = worker_env(w, err);
	rc = rc ? rc : agents_root(w, &agents, err);
	if (rc)
		return rc;
	struct config *c = backend_config(w->b);
	w->prompt = context_prompt(w->s->clone, !strcmp(w->s->sandbox, "host"), c->value[CONFIG_PROTECTED],
				   buf_str(&agents));
	config_put(c);
	return 0;
}

/* ---- usage ---- */

int turn_used(struct tx *tx, struct session *s, struct backend *b, const char *model, enum use_end end,
	      const struct model_reply *r, struct err *err)
{
	struct config *c = backend_config(b);
	int rc = usage_request(tx, s, c, model, end, r ? r->tokens_in : 0, r ? r->tokens_out : 0,
			       r ? r->tokens_cached : 0, err);
	config_put(c);
	return rc;
}

/* ---- pinning ---- */

struct pin {
	struct worker *w;
	int64_t n, cutoff;
	char *model, *prompt; /* of the pinned request */
	bool again;	      /* a message has come whose files are not in the sandbox yet, and nothing else */
	bool nothing;	      /* every message was withdrawn before a request was made of it */
};

int turn_prompt_id(struct tx *tx, const char *text, int64_t *id, struct err *err)
{
	int rc = db_run(tx->db, err, "INSERT OR IGNORE INTO prompts(text) VALUES(?)", "t", text);
	*id = db_int(tx->db, 0, "SELECT id FROM prompts WHERE text=?", "t", text);
	return rc;
}

/* A request that was pinned before a restart is sent again as it was. */
static bool pinned_before(struct tx *tx, struct session *s, struct pin *p, int *rc, struct err *err)
{
	struct rows r;
	bool found = false;
	*rc = db_query(tx->db, &r, err,
		       "SELECT n, cutoff, model, text FROM requests JOIN prompts ON prompts.id=prompt "
		       "WHERE session=? AND n=? AND state='pinned' AND kind='turn'",
		       "ii", s->id, s->request);
	if (!*rc && rows_next(&r)) {
		found = true;
		p->n = row_int(&r, 0);
		p->cutoff = row_int(&r, 1);
		p->model = xstrdup(row_text(&r, 2));
		p->prompt = xstrdup(row_text(&r, 3));
	}
	int end = rows_end(&r);
	*rc = *rc ? *rc : end;
	return found;
}

/* The plan of an answer that came to nothing does not count. */
static int plan_back(struct tx *tx, struct session *s, struct err *err)
{
	CLEAN_BUF struct buf plan = BUF_INIT;
	int rc = plan_text(tx->db, s->id, s->request, s->plan_seq, &plan, err);
	if (!rc && s->plan_size != (int64_t)plan.n) {
		s->plan_size = (int64_t)plan.n;
		s->plan_ms = tx->now_ms;
	}
	return rc;
}

static int pin_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct pin *p = arg;
	int rc;
	int64_t prompt;
	free(p->model);
	free(p->prompt);
	p->model = p->prompt = NULL;
	if (!s->live || s->live->run != s->run) {
		live_put(s->live);
		s->live = live_make(s->run, true, NULL);
	}
	if (pinned_before(tx, s, p, &rc, err) || rc) {
		rc = rc ? rc
			: db_run(tx->db, err, "UPDATE requests SET partial='' WHERE session=? AND n=?", "ii", s->id,
				 p->n);
		rc = rc ? rc : turn_used(tx, s, p->w->b, p->model, USE_ABORTED, NULL, err);
		rc = rc ? rc : plan_back(tx, s, err);
		return rc ? rc : log_add(tx, s, "a model request was cut off by a restart; it is sent again", err);
	}
	rc = s->state == STATE_RUNNING ? message_place(tx, s, err) : 0;
	p->nothing = !rc && s->state == STATE_RUNNING && !s->unanswered;
	p->again = !rc && s->state == STATE_RUNNING && s->waiting && !message_any_placed(tx, s);
	if (p->again)
		return 0;
	if (p->nothing) {
		live_put(s->live);
		s->live = live_make(s->run, false, NULL);
		return 0;
	}
	rc = rc ? rc : turn_prompt_id(tx, p->w->prompt, &prompt, err);
	if (rc)
		return rc;
	p->n = ++s->request;
	p->cutoff = s->entries;
	p->model = xstrdup(s->setting[SETTING_MODEL]);
	p->prompt = xstrdup(p->w->prompt);
	s->retry_ms = 0;
	if (s->state == STATE_RUNNING)
		session_detail(tx, s, "%s", "");
	return db_run(tx->db, err,
		      "INSERT INTO requests(session,n,run,at_ms,model,prompt,cutoff,state,partial) "
		      "VALUES(?,?,?,?,?,?,?,'pinned','')",
		      "iiiitii", s->id, p->n, s->run, tx->now_ms, p->model, prompt, p->cutoff);
}

/* ---- streaming ---- */

struct sink {
	struct worker *w;
	int64_t n;
	struct buf text, before; /* of this answer; of the run's earlier turns, as `wait/live` shows them */
	int64_t last_ms;
	size_t shown;
};

/* A partial on its way to the store thread. */
struct partial {
	int64_t session, n, run;
	struct buf text, all;
};

static int partial_fn(struct tx *tx, void *arg, struct err *err)
{
	struct partial *p = arg;
	struct session *s = tx_session(tx, p->session);
	if (!s || s->run != p->run)
		return 0;
	CLEAN_BUF struct buf plan = BUF_INIT;
	if (s->request == p->n && blocks_plan(buf_str(&p->text), p->text.n, &plan)) {
		s->plan_size = (int64_t)plan.n;
		s->plan_ms = tx->now_ms;
	}
	live_put(s->live);
	s->live = live_make(p->run, true, &p->all);
	return db_run(tx->db, err, "UPDATE requests SET partial=? WHERE session=? AND n=? AND state='pinned'", "tii",
		      buf_str(&p->text), p->session, p->n);
}

static void partial_free(void *arg, int rc, const struct err *err)
{
	struct partial *p = arg;
	buf_release(&p->text);
	buf_release(&p->all);
	free(p);
}

static void stream(void *arg, const char *text, size_t n)
{
	struct sink *k = arg;
	buf_add(&k->text, text, n);
	int64_t now = clock_mono_ms();
	if (now - k->last_ms < PARTIAL_MS)
		return;
	k->last_ms = now;
	struct partial *p = xcalloc(1, sizeof *p);
	p->session = k->w->id;
	p->n = k->n;
	p->run = k->w->s->run;
	utf8_clean(&p->text, buf_str(&k->text), k->text.n);
	buf_add(&p->all, buf_str(&k->before), k->before.n);
	buf_add(&p->all, buf_str(&p->text), p->text.n);
	store_post(k->w->b->store, partial_fn, partial_free, p);
}

void turn_no_stream(void *arg, const char *text, size_t n)
{
}

static int before_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct buf *before = arg;
	if (s->live && s->live->run == s->run)
		buf_add(before, buf_str(&s->live->text), s->live->text.n);
	return 0;
}

/* ---- the answer ---- */

struct done {
	struct worker *w;
	struct pin *pin;
	struct model_reply *reply;
	struct buf *before;
	session_fn *final;
};

static int done_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct done *d = arg;
	struct model_reply *r = d->reply;
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_BUF struct buf thinking = BUF_INIT;
	CLEAN_BUF struct buf all = BUF_INIT;
	bool final = !r->n_calls && !r->more;
	utf8_clean(&text, buf_str(&r->text), r->text.n);
	utf8_clean(&thinking, buf_str(&r->thinking), r->thinking.n);
	int rc = transcript_assistant(tx, s, d->pin->model, buf_str(&text), buf_str(&thinking), r->replay, r->stop,
				      (int)r->n_calls, final, err);
	rc = rc || !*r->notice ? rc : transcript_notice(tx, s, r->notice, err);
	rc = rc || !*r->log ? rc : log_add(tx, s, r->log, err);
	rc = rc ? rc : calls_plan(tx, s, d->pin->n, r, err);
	rc = rc ? rc : turn_used(tx, s, d->w->b, d->pin->model, USE_DONE, r, err);
	rc = rc ? rc
		: db_run(tx->db, err, "UPDATE requests SET state='done', partial='' WHERE session=? AND n=?", "ii",
			 s->id, d->pin->n);
	rc = rc ? rc : plan_back(tx, s, err);
	if (rc)
		return rc;
	s->attempt = s->retry_since_ms = s->overflowed = 0;
	s->compact_turns++;
	s->context_tokens = r->tokens_in ? r->tokens_in + r->tokens_out : 0;
	s->context_off = s->json_size;
	buf_add(&all, buf_str(d->before), d->before->n);
	buf_add(&all, buf_str(&text), text.n);
	if (all.n && !buf_ends(&all, "\n"))
		buf_addc(&all, '\n');
	live_put(s->live);
	s->live = live_make(s->run, !final, &all);
	return final ? d->final(tx, s, NULL, err) : 0;
}

/* ---- a fault ---- */

/* The conversation is too long: it is sent once more with older parts summed up. A summary that was too long is asked
 * for with less. */
static bool overflow(struct session *s, struct turn_fault *f)
{
	if (f->summary && s->compact_tries < OVERFLOWS_MAX) {
		s->compact_tries++;
		return true;
	}
	if (!f->summary && !s->overflowed) {
		s->overflowed = 1;
		s->compact = COMPACT_OVERFLOW;
		return true;
	}
	err_prefix(f->why, "the conversation is longer than the model takes, and compaction makes no room");
	return false;
}

/* Is another try due, and when? The time of the first failure is committed, so that restarts do not lengthen it. */
static bool try_again(struct tx *tx, struct session *s, struct turn_fault *f)
{
	struct config *c = backend_config(f->w->b);
	int64_t limit = config_int(c, CONFIG_RETRY_LIMIT) * 1000;
	config_put(c);
	enum fault_kind kind = fault_judge(f->fault, f->why->text);
	if (kind == FAULT_OVERFLOW)
		return overflow(s, f);
	s->attempt++;
	if (kind != FAULT_RETRY)
		return false;
	if (!s->retry_since_ms || s->retry_since_ms > tx->now_ms)
		s->retry_since_ms = tx->now_ms;
	int64_t wait = fault_backoff_ms(f->fault, s->attempt, (uint64_t)clock_mono_us()),
		spent = tx->now_ms - s->retry_since_ms;
	if (spent + wait > limit) {
		err_prefix(f->why, f->fault->retry_after_ms > limit
					   ? "the server asks for a longer wait than retry.limit allows"
					   : "given up: retry.limit is reached");
		return false;
	}
	s->retry_ms = tx->now_ms + wait;
	return true;
}

int turn_fault_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct turn_fault *f = arg;
	int rc = db_run(tx->db, err, "UPDATE requests SET state='failed' WHERE session=? AND n=?", "ii", s->id, f->n);
	rc = rc ? rc : plan_back(tx, s, err);
	rc = rc ? rc : turn_used(tx, s, f->w->b, f->model, USE_FAILED, f->reply, err);
	f->again = try_again(tx, s, f);
	CLEAN_FREE char *line = xasprintf("model request %" PRId64 ": %s", f->n, f->why->text);
	rc = rc ? rc : log_add(tx, s, line, err);
	if (!rc && s->retry_ms && (s->state == STATE_RUNNING || s->state == STATE_COMPACTING))
		session_detail(tx, s, "%s", f->why->text);
	return rc;
}

/* ---- stop ---- */

static int stopped_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct worker *w = arg;
	int rc = approve_drop(tx, s, err);
	rc = rc ? rc : calls_abandon(tx, s, "stopped by the user", err);
	/* A run that had not taken its message yet is stopped together with it: else it would begin once more. */
	if (!rc && s->state == STATE_RUNNING && !message_any_placed(tx, s))
		rc = message_place(tx, s, err);
	if (!rc && db_int(tx->db, 0, "SELECT 1 FROM requests WHERE session=? AND n=? AND state='pinned'", "ii", s->id,
			  s->request))
		rc = turn_used(tx, s, w->b, s->setting[SETTING_MODEL], USE_ABORTED, NULL, err);
	rc = rc ? rc
		: db_run(tx->db, err, "UPDATE requests SET state='failed' WHERE session=? AND state='pinned'", "i",
			 s->id);
	rc = rc ? rc : plan_back(tx, s, err);
	rc = rc ? rc : transcript_notice(tx, s, "stopped by the user", err);
	s->stopping = s->compact = 0;
	s->retry_ms = s->retry_since_ms = 0;
	live_put(s->live);
	s->live = live_make(s->run, false, NULL);
	return rc;
}

int turn_stopped(struct worker *w, enum turn_end *end, struct err *err)
{
	if (atomic_load(&w->halt) || !w->s->stopping)
		return -ECANCELED; /* shutdown or destroy: the committed state says what is next */
	atomic_store(&w->cancel, false);
	int rc = guest_kill(w, err);
	rc = rc ? rc : calls_kill(w, err);
	rc = rc && !tool_env_lost(rc) ? rc : worker_commit_urgent(w, stopped_fn, w, err);
	*end = TURN_STOPPED;
	return rc;
}

/* ---- one request ---- */

/* An answer that no model gives is not kept: it would be read and sent again with every later request. */
static int check_reply(const struct model_reply *r, struct err *err)
{
	size_t n = r->text.n + r->thinking.n;
	for (size_t i = 0; i < r->n_calls; i++)
		n += strlen(r->calls[i].name) + strlen(r->calls[i].input) + strlen(r->calls[i].id);
	if (n > ANSWER_MAX)
		return err_set(err, EFBIG, "the model's answer has %zu bytes; %d are the most", n, ANSWER_MAX);
	if (r->n_calls > CALLS_MAX)
		return err_set(err, EFBIG, "the model's answer asks for %zu tools; %d are the most", r->n_calls,
			       CALLS_MAX);
	return 0;
}

static int ask(struct worker *w, struct pin *pin, struct done *d, struct model_fault *fault, struct err *err)
{
	struct context ctx = {0};
	struct sink sink = {.w = w, .n = pin->n};
	const struct model_kind *kind = model_find(pin->model, err);
	if (!kind)
		return err ? -err->code : -EINVAL;
	int rc = worker_commit(w, before_fn, &sink.before, err);
	rc = rc ? rc : context_build(w->db, w->id, pin->cutoff, &ctx, err);
	if (!rc) {
		context_ask(&ctx);
		attach_images(w, &ctx, compact_window_of(w));
	}
	struct model_request q = {.model = pin->model,
				  .project = w->s->project,
				  .backend = w->b,
				  .session = w->s,
				  .n = pin->n,
				  .system = pin->prompt,
				  .context = &ctx,
				  .cancel = &w->cancel,
				  .text = stream,
				  .arg = &sink};
	if (!rc) {
		killpoint("model.request");
		rc = kind->run(&q, d->reply, fault, err);
		killpoint("model.reply");
	}
	rc = rc ? rc : check_reply(d->reply, err);
	context_release(&ctx);
	buf_release(&sink.text);
	*d->before = sink.before;
	return rc;
}

static int request(struct worker *w, session_fn *final, enum turn_end *end, struct err *err)
{
	struct pin pin = {.w = w};
	struct model_reply reply = {0};
	struct model_fault fault = {0};
	CLEAN_BUF struct buf before = BUF_INIT;
	struct done d = {w, &pin, &reply, &before, final};
	int rc = turn_prompt(w, err);
	rc = rc ? rc : attach_deliver(w, err);
	rc = rc ? rc : worker_commit(w, pin_fn, &pin, err);
	*end = pin.nothing ? TURN_STOPPED : TURN_MORE;
	if (rc || pin.nothing || pin.again)
		goto out;
	killpoint("turn.pinned");
	struct err why = ERR_INIT;
	rc = ask(w, &pin, &d, &fault, &why);
	if (rc == -ECANCELED || atomic_load(&w->cancel)) {
		rc = -ECANCELED;
		goto out;
	}
	if (rc) {
		struct turn_fault f = {w, pin.n, pin.model, &reply, &fault, &why, false, false};
		rc = worker_commit(w, turn_fault_fn, &f, err);
		*end = TURN_MORE;
		if (!rc && !f.again)
			rc = err_set(err, why.code, "%s", why.text);
		goto out;
	}
	rc = worker_commit(w, done_fn, &d, err);
	*end = reply.n_calls || reply.more ? TURN_MORE : TURN_ANSWERED;
	if (!rc)
		killpoint("turn.done");
out:
	free(pin.model);
	free(pin.prompt);
	model_reply_release(&reply);
	return rc;
}

static int touch_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	return 0; /* publishes a new view: the seconds in `status` count down */
}

static int bounded_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	int64_t most = tx->now_ms + *(int64_t *)arg;
	if (s->retry_ms > most)
		s->retry_ms = most;
	return 0;
}

/* No wait is longer than retry.limit: one that looks longer was set before the clock was set back. */
static int bound_wait(struct worker *w, int64_t now, struct err *err)
{
	struct config *c = backend_config(w->b);
	int64_t limit = config_int(c, CONFIG_RETRY_LIMIT) * 1000;
	config_put(c);
	if (w->s->retry_ms - now <= limit)
		return 0;
	int rc = worker_commit(w, bounded_fn, &limit, err);
	w->s->retry_ms = now + limit;
	return rc;
}

int turn_wait(struct worker *w, bool *waits, struct err *err)
{
	int64_t now = clock_real_ms();
	int rc = w->s->retry_ms != w->retry_ms ? bound_wait(w, now, err) : 0;
	*waits = false;
	if (rc)
		return rc;
	if (w->s->retry_ms != w->retry_ms) { /* from here on by a clock that nobody sets */
		w->retry_ms = w->s->retry_ms;
		w->retry_mono_ms = clock_mono_ms() + w->s->retry_ms - now;
	}
	*waits = w->s->retry_ms && w->retry_mono_ms > clock_mono_ms();
	if (!*waits)
		return 0;
	worker_sleep(w, w->s->retry_ms < now + 1000 ? w->s->retry_ms : now + 1000);
	return worker_commit(w, touch_fn, NULL, err);
}

/* The next request: a turn, or before it a summary that makes room for it. */
static int next_request(struct worker *w, session_fn *final, enum turn_end *end, struct err *err)
{
	bool due;
	int rc = compact_due(w, &due, err);
	return rc ? rc : due ? compact_run(w, err) : request(w, final, end, err);
}

/* The engine's own turn: calls that have no result, else the next request. */
static int own(struct worker *w, session_fn *final, int limit_ms, enum turn_end *end, struct err *err)
{
	bool pending;
	int rc = calls_run(w, limit_ms, &pending, err);
	return rc || pending ? rc : next_request(w, final, end, err);
}

int turn_run(struct worker *w, session_fn *final, int limit_ms, enum turn_end *end, struct err *err)
{
	bool waits;
	*end = TURN_MORE;
	if (atomic_load(&w->cancel))
		return turn_stopped(w, end, err);
	int rc = turn_wait(w, &waits, err);
	if (rc || waits)
		return rc;
	rc = guest_is(w->s->setting[SETTING_AGENT]) ? guest_run(w, final, end, err) : own(w, final, limit_ms, end, err);
	if (rc == -ECANCELED) {
		struct session *s = NULL; /* was it a stop? the flag is in the committed record */
		if (!session_load(w->db, w->id, &s, NULL) && s) {
			session_free(w->s);
			w->s = s;
		}
		return turn_stopped(w, end, err);
	}
	return rc;
}

static int answered_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	return session_event(tx, s, EVENT_ANSWERED, NULL, err);
}

int turn_step(struct worker *w, struct err *err)
{
	enum turn_end end;
	int rc = turn_run(w, answered_fn, 0, &end, err);
	if (!rc && end == TURN_STOPPED)
		rc = worker_event(w, EVENT_STOPPED, NULL, err);
	return rc;
}
