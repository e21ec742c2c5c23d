/* When a compaction is due, where it cuts, and the step itself: pinned, asked, committed, so that a kill at any point
 * goes on with it. Worker threads; the _fn functions run on the store thread.
 *
 * What is judged is the outcome. A request that is too long is summed up and sent again once; if that does not help, or
 * if there is room for hardly a turn again and again, the run fails and says so: a loop would spend money for nothing.
 */
#include "compact.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "context.h"
#include "killpoint.h"
#include "model.h"
#include "models.h"
#include "transcript.h"
#include "turn.h"
#include "usage.h"

#define RESERVE	      16384 /* tokens of a window that stay free for the answer */
#define KEEP	      20000 /* newest tokens that are kept as they are */
#define TOKEN	      4	    /* bytes of transcript.jsonl, about; good enough where the provider tells nothing */
#define TRIES_MAX     3	    /* for one summary */
#define ROW_MAX	      4	    /* compactions in a row, with less than ROW_TURNS turns after each */
#define ROW_TURNS     3
#define SUMMARY_BYTES (64 << 10) /* of a summary that are kept */
#define UNKNOWN	      128000	 /* tokens of a model that no table knows */

int64_t compact_window(const struct config *c, const char *model)
{
	int64_t most = config_window(c), takes = models_window(c, model);
	if (!takes && strncmp(model, "script:", 7) != 0)
		takes = UNKNOWN;
	return most && (!takes || most < takes) ? most : takes;
}

int64_t compact_window_of(struct worker *w)
{
	struct config *c = backend_config(w->b);
	int64_t n = compact_window(c, w->s->setting[SETTING_MODEL]);
	config_put(c);
	return n;
}

static int64_t part(int64_t whole, int64_t window)
{
	return window && window / 4 < whole ? window / 4 : whole;
}

/* ---- is it due? ---- */

/* The last entry that a summary stands for, 0: there is none. */
static int64_t newest_cut(struct db *db, int64_t session)
{
	return db_int(db, 0, "SELECT cut FROM told_summaries WHERE session=? ORDER BY made DESC LIMIT 1", "i", session);
}

/* Where what follows the cut begins in transcript.jsonl. */
static int64_t offset_behind(struct db *db, const struct session *s, int64_t cut)
{
	return db_int(db, s->json_size, "SELECT json_off FROM entries WHERE session=? AND seq=?", "ii", s->id, cut + 1);
}

/* Bytes of transcript.jsonl behind the cut that a model is told. */
static int64_t told_bytes(struct db *db, const struct session *s, int64_t cut)
{
	int64_t undone = db_int(db, 0, "SELECT sum(bytes) FROM undone WHERE session=? AND kept>=?", "ii", s->id, cut);
	return s->json_size - offset_behind(db, s, cut) - undone;
}

/* Tokens of the next request. */
struct size {
	int64_t known;	 /* what the provider told of the last one */
	int64_t guessed; /* what has come since, else all, by its bytes */
	int64_t waiting; /* bytes of messages, which are in `guessed` */
};

static struct size estimate(struct worker *w)
{
	const struct session *s = w->s;
	int64_t waiting = s->waiting
				  ? db_int(w->db, 0,
					   "SELECT sum(length(CAST(text AS BLOB))) FROM messages WHERE session=? AND "
					   "state='waiting'",
					   "i", w->id)
				  : 0;
	if (s->context_tokens)
		return (struct size){s->context_tokens, (s->json_size - s->context_off + waiting) / TOKEN, waiting};
	int64_t bytes = told_bytes(w->db, s, newest_cut(w->db, w->id)) + waiting;
	return (struct size){0, (bytes + (int64_t)(w->prompt ? strlen(w->prompt) : 0)) / TOKEN, waiting};
}

/* Where a request may begin: -1 if there is nothing to sum up. A group of calls and results is never cut: entries
 * before a message or an answer are whole. */
static int64_t choose_cut(struct db *db, const struct session *s, int64_t window)
{
	int64_t old = newest_cut(db, s->id), half = told_bytes(db, s, old) / 2;
	int64_t most = part(KEEP, window) * TOKEN, keep = s->json_size - (half < most ? half : most);
	int64_t begin = db_int(db, 0,
			       "SELECT seq FROM told_entries WHERE session=? AND json_off>=? AND seq>? AND kind IN "
			       "('user','ship','assistant') ORDER BY json_off LIMIT 1",
			       "iii", s->id, keep, old + 1);
	if (!begin) /* the newest group is longer than what is kept */
		begin = db_int(db, 0,
			       "SELECT seq FROM told_entries WHERE session=? AND seq>? AND kind IN "
			       "('user','ship','assistant') ORDER BY seq DESC LIMIT 1",
			       "ii", s->id, old + 1);
	if (begin > old + 1)
		return begin - 1;
	/* One group is left: a long answer with its results may go as a whole, a message that waits for its answer not.
	 */
	bool message = db_int(db, 0,
			      "SELECT kind IN ('user','ship') FROM told_entries WHERE session=? AND kind<>'notice' "
			      "ORDER BY seq DESC LIMIT 1",
			      "i", s->id);
	bool any = db_int(db, 0, "SELECT 1 FROM told_entries WHERE session=? AND seq>? AND kind<>'notice' LIMIT 1",
			  "ii", s->id, old);
	return any && !message ? s->entries : -1;
}

/* A guess may be twice too large or too small: where that matters, the provider counts. */
static int is_large(struct worker *w, int64_t window, bool *large, struct err *err)
{
	struct size z = estimate(w);
	int64_t most = window - part(RESERVE, window);
	int64_t tokens = z.known + z.guessed;
	int rc = 0;
	*large = z.known + z.guessed * 2 > most && choose_cut(w->db, w->s, window) > 0;
	if (*large && z.known + z.guessed / 2 <= most)
		rc = compact_count(w, z.waiting, &tokens, err);
	*large = *large && tokens > most;
	return rc == -ECANCELED ? rc : 0;
}

int compact_due(struct worker *w, bool *due, struct err *err)
{
	struct rows r;
	bool pinned = false, summary = false;
	int rc = db_query(w->db, &r, err,
			  "SELECT kind='summary' FROM requests WHERE session=? AND n=? AND state='pinned'", "ii", w->id,
			  w->s->request);
	if (!rc && rows_next(&r)) {
		pinned = true;
		summary = row_int(&r, 0);
	}
	int end = rows_end(&r);
	*due = summary;
	if (rc || end || pinned)
		return rc ? rc : end;
	int64_t window = compact_window_of(w);
	*due = w->s->compact;
	if (*due || !window || (!w->s->compact_turns && w->s->compact_row))
		return 0;
	return is_large(w, window, due, err);
}

/* ---- the step ---- */

struct compaction {
	struct worker *w;
	int64_t n, cut, from, window, tries;
	char *model;
	bool nothing;
	struct model_reply reply;
};

static int taken_up(struct tx *tx, struct session *s, struct compaction *c, struct err *err)
{
	struct rows r;
	int rc = db_query(tx->db, &r, err,
			  "SELECT n, cutoff, model FROM requests WHERE session=? AND n=? AND state='pinned' AND "
			  "kind='summary'",
			  "ii", s->id, s->request);
	if (!rc && rows_next(&r)) {
		c->n = row_int(&r, 0);
		c->cut = row_int(&r, 1);
		c->model = xstrdup(row_text(&r, 2));
	}
	int end = rows_end(&r);
	rc = rc ? rc : end;
	if (rc || !c->n)
		return rc;
	rc = turn_used(tx, s, c->w->b, c->model, USE_ABORTED, NULL, err);
	return rc ? rc : log_add(tx, s, "the request for a summary was cut off by a restart; it is sent again", err);
}

static int no_room(const struct session *s, const struct compaction *c, struct err *err)
{
	return err_set(err, E2BIG,
		       "compaction makes no room: what came last is too long by itself for %s (%" PRId64
		       " tokens); choose a model with a larger window in settings/model, then write `retry` to ctl",
		       s->setting[SETTING_MODEL], c->window);
}

/* There is nothing to sum up. */
static int nothing(struct tx *tx, struct session *s, struct compaction *c, struct err *err)
{
	c->nothing = true;
	bool overflow = s->compact == COMPACT_OVERFLOW;
	s->compact = COMPACT_NONE;
	if (overflow)
		return no_room(s, c, err);
	return transcript_notice(tx, s, "there is nothing to compact", err);
}

static int pin_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct compaction *c = arg;
	int64_t prompt;
	free(c->model);
	*c = (struct compaction){.w = c->w, .window = c->window, .tries = s->compact_tries};
	c->from = newest_cut(tx->db, s->id);
	int rc = taken_up(tx, s, c, err);
	if (rc || c->n)
		return rc;
	c->cut = choose_cut(tx->db, s, c->window);
	if (c->cut < 0)
		return nothing(tx, s, c, err);
	rc = turn_prompt_id(tx, compact_prompt, &prompt, err);
	if (rc)
		return rc;
	c->n = ++s->request;
	c->model = xstrdup(s->setting[SETTING_MODEL]);
	s->retry_ms = 0;
	if (s->state == STATE_RUNNING)
		session_detail(tx, s, "compact");
	return db_run(tx->db, err,
		      "INSERT INTO requests(session,n,run,at_ms,model,prompt,cutoff,state,partial,kind) "
		      "VALUES(?,?,?,?,?,?,?,'pinned','','summary')",
		      "iiiitii", s->id, c->n, s->run, tx->now_ms, c->model, prompt, c->cut);
}

static int done_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct compaction *c = arg;
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_BUF struct buf told = BUF_INIT;
	utf8_clean(&text, buf_str(&c->reply.text), c->reply.text.n);
	if (text.n > SUMMARY_BYTES)
		buf_cut(&text, utf8_prefix(text.p, SUMMARY_BYTES, NULL));
	buf_addf(&told,
		 "compacted: from here on the model is told entries 1 to %" PRId64
		 " by this summary; the transcript stays whole\n\n%s",
		 c->cut, buf_str(&text));
	int rc = transcript_notice(tx, s, buf_str(&told), err);
	rc = rc ? rc
		: db_run(tx->db, err, "INSERT INTO summaries(session,made,cut,text) VALUES(?,?,?,?)", "iiit", s->id,
			 s->entries, c->cut, buf_str(&text));
	rc = rc ? rc : turn_used(tx, s, c->w->b, c->model, USE_DONE, &c->reply, err);
	rc = rc ? rc
		: db_run(tx->db, err, "UPDATE requests SET state='done' WHERE session=? AND n=?", "ii", s->id, c->n);
	/* instructions of folders were in what is summed up: they are told once more */
	rc = rc ? rc : db_run(tx->db, err, "DELETE FROM told WHERE session=?", "i", s->id);
	s->compact_row = s->compact_turns < ROW_TURNS ? s->compact_row + 1 : 1;
	s->compact = s->compact_tries = s->compact_turns = 0;
	s->attempt = s->retry_since_ms = s->context_tokens = 0;
	if (s->state == STATE_RUNNING)
		session_detail(tx, s, "%s", "");
	CLEAN_FREE char *detail = xasprintf("1 to %" PRId64, c->cut);
	return rc ? rc : tx_event(tx, s, "compacted", detail, err);
}

/* No summary came of it: another try takes less, a few times. */
static int useless_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct compaction *c = arg;
	int rc = db_run(tx->db, err, "UPDATE requests SET state='failed' WHERE session=? AND n=?", "ii", s->id, c->n);
	rc = rc ? rc : turn_used(tx, s, c->w->b, c->model, USE_FAILED, &c->reply, err);
	c->tries = ++s->compact_tries;
	return rc ? rc : log_add(tx, s, "the model gave no summary", err);
}

/* Bytes of the conversation that are shown: half of the window, and half of that after each try that failed. */
static size_t bytes_max(const struct compaction *c)
{
	int64_t window = c->window ? c->window : UNKNOWN;
	return (size_t)(window * TOKEN / 2 >> c->tries);
}

static int ask(struct compaction *c, struct model_fault *fault, struct err *err)
{
	struct worker *w = c->w;
	CLEAN_BUF struct buf text = BUF_INIT;
	struct context ctx = {0};
	const struct model_kind *kind = model_find(c->model, err);
	if (!kind)
		return err ? -err->code : -EINVAL;
	int rc = compact_text(w->db, w->id, c->from, c->cut, bytes_max(c), &text, err);
	if (rc)
		return rc;
	context_user(&ctx, buf_str(&text));
	struct model_request q = {.model = c->model,
				  .project = w->s->project,
				  .n = c->n,
				  .system = compact_prompt,
				  .context = &ctx,
				  .plain = true,
				  .backend = w->b,
				  .session = w->s,
				  .cancel = &w->cancel,
				  .text = turn_no_stream};
	rc = kind->run(&q, &c->reply, fault, err);
	context_release(&ctx);
	return rc;
}

/* What a failed try leads to. */
static int failed(struct compaction *c, const struct model_fault *fault, struct err *why, struct err *err)
{
	struct turn_fault f = {c->w, c->n, c->model, &c->reply, fault, why, false, true};
	int rc = worker_commit(c->w, turn_fault_fn, &f, err);
	if (!rc && !f.again)
		rc = err_set(err, why->code, "compaction: %s", why->text);
	return rc;
}

static bool useful(const struct model_reply *r)
{
	return !utf8_blank(buf_str(&r->text), r->text.n) && strcmp(r->stop, "max_tokens");
}

int compact_run(struct worker *w, struct err *err)
{
	struct compaction c = {.w = w, .window = compact_window_of(w)};
	struct model_fault fault = {0};
	struct err why = ERR_INIT;
	if (w->s->compact_row >= ROW_MAX && w->s->compact_turns < ROW_TURNS)
		return err_set(err, E2BIG,
			       "compaction makes no room: it was due %" PRId64
			       " times in a row with hardly a turn between; choose a model with a larger window in "
			       "settings/model, or ask for less at a time, then write `retry` to ctl",
			       w->s->compact_row);
	int rc = worker_commit(w, pin_fn, &c, err);
	if (rc || c.nothing)
		goto out;
	killpoint("compact.pinned");
	rc = ask(&c, &fault, &why);
	killpoint("compact.reply");
	if (rc == -ECANCELED || atomic_load(&w->cancel)) {
		rc = -ECANCELED;
	} else if (rc) {
		rc = failed(&c, &fault, &why, err);
	} else if (!useful(&c.reply)) {
		rc = worker_commit(w, useless_fn, &c, err);
		if (!rc && c.tries >= TRIES_MAX)
			rc = err_set(err, EIO, "compaction: the model gave no summary, %d times", TRIES_MAX);
	} else {
		rc = worker_commit(w, done_fn, &c, err);
		buf_reset(&w->looked);
		if (!rc)
			killpoint("compact.done");
	}
out:
	free(c.model);
	model_reply_release(&c.reply);
	return rc;
}

/* ---- `compact` while nothing runs ---- */

int compact_step(struct worker *w, struct err *err)
{
	bool waits;
	enum turn_end end;
	if (!w->s->compact)
		return worker_event(w, EVENT_COMPACTED, NULL, err);
	int rc = atomic_load(&w->cancel) ? -ECANCELED : turn_wait(w, &waits, err);
	if (!rc && !waits)
		rc = compact_run(w, err);
	if (rc != -ECANCELED)
		return rc;
	rc = turn_stopped(w, &end, err);
	return rc ? rc : worker_event(w, EVENT_STOPPED, NULL, err);
}
