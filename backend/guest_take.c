/* Events of an agent → entries, calls and usage, in one commit with the place in its output up to which they reach: so
 * nothing is lost and nothing doubled, whenever the daemon dies. Store thread. */
#include "guest_take.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "backend/parse/redact.h"
#include "calls.h"
#include "message.h"
#include "transcript.h"
#include "turn.h"
#include "usage.h"
#include "view.h"

#define INPUT_MAX (1 << 20) /* bytes of a call's arguments in the transcript */

void guest_run_release(struct guest_run *g)
{
	free(g->agent);
	free(g->model);
	free(g->talk);
	*g = (struct guest_run){0};
}

/* ---- pinning ---- */

static char *talk_of(struct tx *tx, const struct session *s, const char *agent, int64_t *given)
{
	struct rows r;
	char *id = NULL;
	*given = 0;
	if (!db_query(tx->db, &r, NULL, "SELECT talk, given FROM guest_talks WHERE session=? AND agent=?", "it", s->id,
		      agent) &&
	    rows_next(&r)) {
		id = xstrdup(row_text(&r, 0));
		*given = row_int(&r, 1);
	}
	rows_end(&r);
	return id ? id : xstrdup("");
}

static bool pinned_before(struct tx *tx, struct session *s, struct guest_run *g, int *rc, struct err *err)
{
	struct rows r;
	int64_t given;
	bool found = false;
	*rc = db_query(tx->db, &r, err,
		       "SELECT requests.n, first, cutoff, prompts, off, again, agent, model FROM requests JOIN guests "
		       "USING(session, n) "
		       "WHERE session=? AND n=? AND state='pinned'",
		       "ii", s->id, s->request);
	if (!*rc && rows_next(&r)) {
		found = true;
		*g = (struct guest_run){.n = row_int(&r, 0),
					.from = row_int(&r, 1),
					.cutoff = row_int(&r, 2),
					.prompts = row_int(&r, 3),
					.offset = (uint64_t)row_int(&r, 4),
					.again = row_int(&r, 5) != 0,
					.agent = xstrdup(row_text(&r, 6)),
					.model = xstrdup(row_text(&r, 7))};
	}
	int end = rows_end(&r);
	*rc = *rc ? *rc : end;
	if (found)
		g->talk = talk_of(tx, s, g->agent, &given);
	return found;
}

static int pin(struct tx *tx, struct session *s, struct guest_pin *p, struct err *err)
{
	int64_t prompt, given;
	struct guest_run *g = &p->run;
	g->agent = xstrdup(s->setting[SETTING_AGENT]);
	g->model = xstrdup(s->setting[SETTING_MODEL]);
	g->talk = talk_of(tx, s, g->agent, &given);
	/* Only this run's words: what an earlier run was told is answered, by whomever. */
	g->from = db_int(tx->db, s->entries,
			 "SELECT seq - 1 FROM entries WHERE session=? AND run=? AND seq>? AND kind IN ('user','ship') "
			 "ORDER BY seq LIMIT 1",
			 "iii", s->id, s->run, given);
	g->cutoff = s->entries;
	g->again = db_int(tx->db, 0,
			  "SELECT 1 FROM requests JOIN guests USING(session, n) WHERE session=? AND run=? AND agent=? "
			  "AND first=?",
			  "iiti", s->id, s->run, g->agent, g->from);
	g->prompts =
		1 + db_int(tx->db, 0, "SELECT count(*) FROM guests WHERE session=? AND agent=?", "it", s->id, g->agent);
	g->n = ++s->request;
	s->unsynced++; /* whatever it does from here on is in the sandbox alone */
	s->retry_ms = 0;
	int rc = turn_prompt_id(tx, "", &prompt, err);
	rc = rc ? rc
		: db_run(tx->db, err,
			 "INSERT INTO requests(session,n,run,at_ms,model,prompt,cutoff,state,partial,kind) "
			 "VALUES(?,?,?,?,?,?,?,'pinned','','guest')",
			 "iiiitii", s->id, g->n, s->run, tx->now_ms, g->model, prompt, g->cutoff);
	return rc ? rc
		  : db_run(tx->db, err,
			   "INSERT INTO guests(session,n,agent,first,prompts,off,again) VALUES(?,?,?,?,?,0,?)",
			   "iitiii", s->id, g->n, g->agent, g->from, g->prompts, (int64_t)g->again);
}

int guest_pin_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct guest_pin *p = arg;
	int rc;
	p->nothing = p->again = false;
	guest_run_release(&p->run);
	if (!s->live || s->live->run != s->run) {
		live_put(s->live);
		s->live = live_make(s->run, true, NULL);
	}
	if (pinned_before(tx, s, &p->run, &rc, err) || rc)
		return rc;
	/* The engine's own turn was cut off, and since then the session has an agent: that one answers. */
	rc = db_run(tx->db, err, "UPDATE requests SET state='failed' WHERE session=? AND n=? AND state='pinned'", "ii",
		    s->id, s->request);
	rc = rc ? rc : calls_abandon(tx, s, "not run: another agent goes on from here", err);
	rc = rc || s->state != STATE_RUNNING ? rc : message_place(tx, s, err);
	p->nothing = !rc && s->state == STATE_RUNNING && !s->unanswered;
	p->again = !rc && s->state == STATE_RUNNING && s->waiting && !message_any_placed(tx, s);
	if (rc || p->again)
		return rc;
	if (p->nothing) {
		live_put(s->live);
		s->live = live_make(s->run, false, NULL);
		return 0;
	}
	if (s->state == STATE_RUNNING)
		session_detail(tx, s, "%s", s->setting[SETTING_AGENT]);
	return pin(tx, s, p, err);
}

/* ---- events ---- */

static bool last_is(struct tx *tx, const struct session *s, const struct guest_run *g, const char *kind)
{
	return db_int(tx->db, 0, "SELECT 1 FROM entries WHERE session=? AND seq=? AND seq>? AND kind=?", "iiit", s->id,
		      s->entries, g->cutoff, kind);
}

static int say(struct tx *tx, struct session *s, struct guest_take *t, const char *text, const char *stop, bool final,
	       struct err *err)
{
	CLEAN_BUF struct buf clear = BUF_INIT;
	redact(&clear, text, strlen(text), 0, strlen(text));
	if (clear.n > GUEST_ANSWER_MAX) {
		buf_cut(&clear, utf8_prefix(clear.p, GUEST_ANSWER_MAX, NULL));
		buf_adds(&clear, "\n[the rest of it is left out]\n");
	}
	if (clear.n)
		buf_addf(t->said, "%s%s", t->said->n ? "\n" : "", buf_str(&clear));
	if (clear.n && !buf_ends(t->said, "\n"))
		buf_addc(t->said, '\n');
	return transcript_assistant(tx, s, t->run->model, buf_str(&clear), NULL, NULL, stop, 0, final, err);
}

static char *call_id(const struct guest_take *t, const char *id)
{
	CLEAN_FREE char *short_id = xstrndup(id, utf8_prefix(id, strnlen(id, 40), NULL));
	return xasprintf("a%" PRId64 ".%s", t->run->n, short_id);
}

static int64_t pos_of(struct tx *tx, const struct session *s, const struct guest_take *t, const char *id)
{
	return db_int(tx->db, 0, "SELECT pos FROM calls WHERE session=? AND request=? AND id=?", "iit", s->id,
		      t->run->n, id);
}

/* A call that was told of before is told once. */
static int call(struct tx *tx, struct session *s, struct guest_take *t, const struct guest_event *e, struct err *err)
{
	CLEAN_FREE char *id = call_id(t, e->id);
	CLEAN_FREE char *name = xstrndup(e->name, utf8_prefix(e->name, strnlen(e->name, 64), NULL));
	const char *args = strlen(e->text) > INPUT_MAX ? "{\"left out\":\"too long\"}" : e->text;
	CLEAN_BUF struct buf clear = BUF_INIT;
	text_one_line(name, SIZE_MAX);
	if (pos_of(tx, s, t, id))
		return 0;
	redact(&clear, args, strlen(args), 0, strlen(args));
	CLEAN_JSON cJSON *o = cJSON_Parse(buf_str(&clear));
	int64_t pos = 1 + db_int(tx->db, 0, "SELECT max(pos) FROM calls WHERE session=? AND request=?", "ii", s->id,
				 t->run->n);
	int rc = last_is(tx, s, t->run, "assistant") || last_is(tx, s, t->run, "tool_call")
			 ? 0
			 : say(tx, s, t, "", "tool_use", false, err);
	rc = rc ? rc : transcript_call(tx, s, id, name, cJSON_IsObject(o) ? buf_str(&clear) : "{}", err);
	if (!rc && s->state == STATE_RUNNING)
		session_detail(tx, s, "%s", name);
	return rc ? rc
		  : db_run(tx->db, err,
			   "INSERT INTO calls(session,request,pos,id,name,args,state,note) "
			   "VALUES(?,?,?,?,?,'{}','started','')",
			   "iiitt", s->id, t->run->n, pos, id, name);
}

static int result(struct tx *tx, struct session *s, struct guest_take *t, const struct guest_event *e, struct err *err)
{
	struct rows r;
	CLEAN_FREE char *id = call_id(t, e->id);
	CLEAN_FREE char *name = NULL;
	int rc = db_query(tx->db, &r, err,
			  "SELECT name FROM calls WHERE session=? AND request=? AND id=? AND state<>'done'", "iit",
			  s->id, t->run->n, id);
	if (!rc && rows_next(&r))
		name = xstrdup(row_text(&r, 0));
	int end = rows_end(&r);
	if (rc || end || !name) /* no such call, or it has its result */
		return rc ? rc : end;
	CLEAN_BUF struct buf clear = BUF_INIT;
	redact(&clear, e->text, strlen(e->text), 0, strlen(e->text));
	calls_keep_budget(t->b, s, &clear);
	s->output_bytes += (int64_t)clear.n;
	rc = transcript_result(tx, s, id, name, buf_str(&clear), e->error, err);
	rc = rc ? rc : usage_call(tx, s, name, e->error ? USE_FAILED : USE_DONE, err);
	s->unsynced++;
	if (s->state == STATE_RUNNING)
		session_detail(tx, s, "%s", t->run->agent);
	return rc ? rc
		  : db_run(tx->db, err, "UPDATE calls SET state='done' WHERE session=? AND request=? AND id=?", "iit",
			   s->id, t->run->n, id);
}

static int talk(struct tx *tx, struct session *s, struct guest_take *t, const char *id, struct err *err)
{
	/* It becomes an argument of a program: what looks like an option is none of them. */
	size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
	if (id[n] || n > 100 || *id == '-' || !n)
		return 0;
	return db_run(
		tx->db, err,
		"INSERT INTO guest_talks(session,agent,talk,since,given) VALUES(?1,?2,?3,?4,0) "
		"ON CONFLICT(session,agent) DO UPDATE SET since=CASE talk WHEN ?3 THEN since ELSE ?4 END, talk=?3",
		"itti", s->id, t->run->agent, id, t->run->cutoff);
}

static int used(struct tx *tx, struct session *s, struct guest_take *t, const struct guest_event *e, struct err *err)
{
	struct config *c = backend_config(t->b);
	int rc = usage_requests(tx, s, c, t->run->model, e->requests > 0 ? e->requests : 1, e->in, e->out, e->cached,
				err);
	config_put(c);
	return rc;
}

static int take_event(struct tx *tx, struct session *s, struct guest_take *t, const struct guest_event *e, bool final,
		      struct err *err)
{
	switch (e->what) {
	case GUEST_TALK: return e->id ? talk(tx, s, t, e->id, err) : 0;
	case GUEST_TEXT: return say(tx, s, t, e->text, "end_turn", final, err);
	case GUEST_CALL: return call(tx, s, t, e, err);
	case GUEST_RESULT: return result(tx, s, t, e, err);
	case GUEST_USED: return used(tx, s, t, e, err);
	case GUEST_FAULT: /* guest_run.c looks at it; a later text takes it back */
	case GUEST_NOTE: {
		CLEAN_FREE char *line = xasprintf("%s: %.1000s", t->run->agent, e->text);
		return log_add(tx, s, line, err);
	}
	}
	return 0;
}

/* ---- the end ---- */

static int end(struct tx *tx, struct session *s, struct guest_take *t, struct err *err)
{
	bool good = t->end == GUEST_ANSWERED;
	const char *why = t->end == GUEST_CUT ? "interrupted: the sandbox was restarted while the agent ran"
					      : "interrupted: the agent has ended";
	int rc = calls_abandon(tx, s, why, err);
	rc = rc || good ? rc : transcript_notice(tx, s, t->why, err);
	rc = rc ? rc
		: db_run(tx->db, err, "UPDATE requests SET state=?, partial='' WHERE session=? AND n=?", "tii",
			 good ? "done" : "failed", s->id, t->run->n);
	if (!rc && t->lost)
		rc = db_run(tx->db, err, "UPDATE guest_talks SET talk='' WHERE session=? AND agent=?", "it", s->id,
			    t->run->agent);
	if (!rc && good)
		rc = db_run(tx->db, err,
			    "INSERT INTO guest_talks(session,agent,talk,since,given) VALUES(?1,?2,'',0,?3) "
			    "ON CONFLICT(session,agent) DO UPDATE SET given=?3",
			    "iti", s->id, t->run->agent, t->run->cutoff);
	if (rc)
		return rc;
	if (good)
		s->attempt = s->retry_since_ms = 0;
	else if (t->end == GUEST_CUT)
		s->attempt++;
	s->context_tokens = 0;
	live_put(s->live);
	s->live = live_make(s->run, t->end == GUEST_CUT, t->said);
	return good ? t->final(tx, s, NULL, err) : 0;
}

/* The last text of the lines: with GUEST_ANSWERED it is the answer. */
static const struct guest_event *last_text(const struct guest_take *t)
{
	for (size_t i = t->n; i-- > 0;)
		for (size_t k = t->lines[i].n; k-- > 0;) {
			const struct guest_event *e = &t->lines[i].events[k];
			if (e->what == GUEST_TEXT)
				return e;
			if (e->what == GUEST_CALL || e->what == GUEST_RESULT)
				return NULL;
		}
	return NULL;
}

static int show(struct tx *tx, struct session *s, struct guest_take *t, struct err *err)
{
	CLEAN_BUF struct buf all = BUF_INIT;
	buf_add(&all, buf_str(t->said), t->said->n);
	buf_addf(&all, "%s%s", all.n && *t->pending ? "\n" : "", t->pending);
	live_put(s->live);
	s->live = live_make(s->run, true, &all);
	return db_run(tx->db, err, "UPDATE requests SET partial=? WHERE session=? AND n=? AND state='pinned'", "tii",
		      t->pending, s->id, t->run->n);
}

int guest_take_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct guest_take *t = arg;
	const struct guest_event *answer = t->end == GUEST_ANSWERED ? last_text(t) : NULL;
	size_t said = t->said->n;
	int rc = 0;
	if (s->request != t->run->n)
		return err_set(err, ECANCELED, "another prompt has taken its place");
	for (size_t i = 0; i < t->n && !rc; i++)
		for (size_t k = 0; k < t->lines[i].n && !rc; k++)
			rc = take_event(tx, s, t, &t->lines[i].events[k], &t->lines[i].events[k] == answer, err);
	if (!rc && t->end == GUEST_ANSWERED && !answer)
		rc = say(tx, s, t, "(no answer)", "end_turn", true, err);
	rc = rc ? rc
		: db_run(tx->db, err, "UPDATE guests SET off=? WHERE session=? AND n=?", "iii", (int64_t)t->offset,
			 s->id, t->run->n);
	rc = rc ? rc : t->end == GUEST_GOES_ON ? show(tx, s, t, err) : end(tx, s, t, err);
	if (rc)
		buf_cut(t->said, said);
	return rc;
}
