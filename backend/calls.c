/* Tool calls as durable steps. Worker threads; the _fn functions run on the store thread. */
#include "calls.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agents.h"
#include "approve.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "backend/parse/redact.h"
#include "killpoint.h"
#include "transcript.h"
#include "usage.h"

#define KEPT	       "kept"	  /* note of a call whose output stays in the sandbox */
#define BAD_ARGS       "bad-args" /* note of a call that must not run */
#define SHORT_BYTES    2048	  /* kept at each end of a result when the budget is used up */
#define STOP_MS	       5000	  /* `stop` waits no longer than this for a sandbox to end its command */
#define NAME_MAX_BYTES 64	  /* of a tool: what providers take back */

struct call {
	int64_t request, pos;
	char *id, *name, *args, *note;
	bool started;
};

static void call_release(struct call *c)
{
	free(c->id);
	free(c->name);
	free(c->args);
	free(c->note);
}

static char *job_id(int64_t session, const struct call *c)
{
	return xasprintf("s%" PRId64 ".%" PRId64 ".%" PRId64, session, c->request, c->pos);
}

/* ---- planning ---- */

int calls_plan(struct tx *tx, struct session *s, int64_t request, const struct model_reply *reply, struct err *err)
{
	int rc = 0;
	for (size_t i = 0; i < reply->n_calls && !rc; i++) {
		const struct model_call *c = &reply->calls[i];
		struct err why = ERR_INIT;
		CLEAN_JSON cJSON *o = json_parse(c->input, strlen(c->input), &why);
		bool good = cJSON_IsObject(o);
		CLEAN_BUF struct buf args = BUF_INIT, note = BUF_INIT, name = BUF_INIT;
		if (good)
			json_print(&args, o);
		else
			buf_adds(&args, "{}");
		if (!good)
			buf_addf(&note, BAD_ARGS " %s", why.code ? why.text : "they are no JSON object");
		utf8_clean(&name, c->name, strlen(c->name));
		text_one_line(name.p,
			      utf8_prefix(buf_str(&name), name.n < NAME_MAX_BYTES ? name.n : NAME_MAX_BYTES, NULL));
		rc = transcript_call(tx, s, c->id, buf_str(&name), buf_str(&args), err);
		rc = rc ? rc
			: db_run(tx->db, err,
				 "INSERT INTO calls(session,request,pos,id,name,args,state,note) "
				 "VALUES(?,?,?,?,?,?,'planned',?)",
				 "iiitttt", s->id, request, (int64_t)i + 1, c->id, buf_str(&name), buf_str(&args),
				 buf_str(&note));
	}
	return rc;
}

/* The first call without a result; false if there is none. */
static bool next_call(struct worker *w, struct call *c, int *rc, struct err *err)
{
	struct rows r;
	bool found = false;
	*c = (struct call){0};
	*rc = db_query(w->db, &r, err,
		       "SELECT request, pos, id, name, args, note, state='started' FROM calls WHERE session=? AND "
		       "request=? AND state<>'done' ORDER BY pos LIMIT 1",
		       "ii", w->id, w->s->request);
	if (!*rc && rows_next(&r)) {
		found = true;
		*c = (struct call){row_int(&r, 0),	     row_int(&r, 1),	       xstrdup(row_text(&r, 2)),
				   xstrdup(row_text(&r, 3)), xstrdup(row_text(&r, 4)), xstrdup(row_text(&r, 5)),
				   row_int(&r, 6) != 0};
	}
	int end = rows_end(&r);
	*rc = *rc ? *rc : end;
	return found;
}

/* ---- the steps of one call ---- */

struct intent {
	const struct call *call;
	const char *note;
};

static int intent_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct intent *i = arg;
	if (s->state == STATE_RUNNING)
		session_detail(tx, s, "%s", i->call->name);
	return db_run(tx->db, err, "UPDATE calls SET state='started', note=? WHERE session=? AND request=? AND pos=?",
		      "tiii", i->note, s->id, i->call->request, i->call->pos);
}

struct result {
	struct backend *b;
	const struct call *call;
	struct tool_result *r;
	const struct buf *told; /* folders whose instructions stand in the result */
};

void calls_keep_budget(struct backend *b, const struct session *s, struct buf *text)
{
	struct config *c = backend_config(b);
	int64_t limit = config_int(c, CONFIG_OUTPUT_LIMIT);
	config_put(c);
	if (text->n <= 2 * SHORT_BYTES || (s->output_bytes + (int64_t)text->n) >> 20 < limit)
		return;
	CLEAN_BUF struct buf cut = BUF_INIT;
	size_t head = utf8_prefix(text->p, SHORT_BYTES, NULL), tail = text->n - SHORT_BYTES;
	while (tail < text->n && (text->p[tail] & 0xC0) == 0x80)
		tail++;
	buf_add(&cut, text->p, head);
	buf_addf(&cut,
		 "\n[%zu bytes are left out here: this session's tools have given more than %" PRId64
		 " MiB, the output.limit of "
		 "config; let commands print less]\n",
		 tail - head, limit);
	buf_add(&cut, text->p + tail, text->n - tail);
	struct buf old = *text;
	*text = cut;
	cut = old;
}

static int full_disk(struct tx *tx, struct session *s, struct err *err)
{
	struct err words = ERR_INIT;
	err_set(&words, ENOSPC,
		ENV_FULL ". What was running in it was ended. `sandbox.disk` of config is how much it may fill, from "
			 "its next start");
	int rc = tx_error(tx, s->id, "sandbox", &words, err);
	return rc ? rc : log_add(tx, s, ENV_FULL, err);
}

static int result_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct result *a = arg;
	const struct call *c = a->call;
	calls_keep_budget(a->b, s, &a->r->text);
	s->output_bytes += (int64_t)a->r->text.n;
	int rc = transcript_result(tx, s, c->id, c->name, buf_str(&a->r->text), a->r->error, err);
	rc = rc || !a->r->full || !a->r->error ? rc : full_disk(tx, s, err);
	rc = rc ? rc : usage_call(tx, s, c->name, a->r->error ? USE_FAILED : USE_DONE, err);
	rc = rc ? rc : agents_told(tx, s, buf_str(a->told), err);
	s->unsynced++;
	if (s->state == STATE_RUNNING)
		session_detail(tx, s, "%s", "");
	return rc ? rc
		  : db_run(tx->db, err, "UPDATE calls SET state='done', note=? WHERE session=? AND request=? AND pos=?",
			   "tiii", a->r->keep ? KEPT : "", s->id, c->request, c->pos);
}

/* The sandbox, closed for protected files. */
static int guarded_env(struct worker *w, struct tool_run *t, struct err *err)
{
	int rc = worker_env(w, err);
	if (rc)
		return rc;
	t->env = w->env;
	env_guard(w->env, t->protected);
	return 0;
}

/* Runs the tool itself. A sandbox that went away is started again once; its command is then lost, and said so. */
static int execute(struct worker *w, const struct call *c, const char *job, int limit_ms, struct tool_result *out,
		   struct err *err)
{
	const struct tool *tool = tool_find(c->name);
	if (!strncmp(c->note, BAD_ARGS, strlen(BAD_ARGS)))
		return tool_fail(out, "not run: the arguments cannot be read:%s", c->note + strlen(BAD_ARGS));
	if (!tool)
		return tool_fail(out, "there is no tool %s; there are read, write, edit and bash", c->name);
	CLEAN_JSON cJSON *args = cJSON_Parse(c->args);
	struct config *config = backend_config(w->b);
	CLEAN_FREE char *protected = xstrdup(config->value[CONFIG_PROTECTED]);
	config_put(config);
	struct tool_run t = {.clone = w->s->clone,
			     .job = job,
			     .args = args,
			     .protected = protected,
			     .again = c->started,
			     .note = c->note,
			     .limit_ms = limit_ms,
			     .cancel = &w->cancel};
	CLEAN_BUF struct buf note = BUF_INIT;
	int rc = guarded_env(w, &t, err);
	if (!rc && !c->started && tool->intend)
		rc = tool->intend(&t, &note, err);
	if (!rc && !c->started) {
		struct intent i = {c, buf_str(&note)};
		rc = worker_commit(w, intent_fn, &i, err);
		t.note = i.note;
	}
	if (rc)
		return rc;
	killpoint("call.intent");
	for (int tries = 0;; tries++) {
		rc = tool->run(&t, out, err);
		if (!tool_env_lost(rc) || rc == -ECANCELED || tries == 2)
			return rc;
		worker_log(w, "the connection to the sandbox was lost (%s); taking it up again", err->text);
		worker_env_drop(w);
		buf_reset(&out->text);
		rc = guarded_env(w, &t, err);
		if (rc)
			return rc;
		t.again = true;
	}
}

/* What the folders above a file say is told with the first call that touches it. The call itself has taken effect, so a
 * sandbox that is lost here is no error of it: another call will tell. */
static void add_instructions(struct worker *w, const struct call *c, struct tool_result *r, struct buf *told)
{
	if (r->error || (strcmp(c->name, "read") && strcmp(c->name, "write") && strcmp(c->name, "edit")))
		return;
	CLEAN_JSON cJSON *args = cJSON_Parse(c->args);
	agents_above(w, json_str(args, "path"), &r->text, told, NULL);
}

/* Asks before a call runs for the first time. What is refused has a result that says so. */
static int gate(struct worker *w, const struct call *c, enum approve_verdict *verdict, struct tool_result *r,
		struct err *err)
{
	struct approve_call ask = {c->request, c->pos, c->name, c->args};
	CLEAN_BUF struct buf reason = BUF_INIT;
	*verdict = APPROVE_RUN;
	if (c->started || !tool_find(c->name) || !strncmp(c->note, BAD_ARGS, strlen(BAD_ARGS)))
		return 0;
	int rc = approve_call(w, &ask, verdict, &reason, err);
	if (!rc && *verdict == APPROVE_REFUSED)
		tool_fail(r, "not run: the user has refused it%s%s", reason.n ? ": " : "", buf_str(&reason));
	return rc;
}

/* The result is what the model and the transcript get: clean text without secrets. */
static int commit_result(struct worker *w, const struct call *c, struct tool_result *r, const struct buf *told,
			 struct err *err)
{
	CLEAN_BUF struct buf clean = BUF_INIT;
	CLEAN_BUF struct buf clear = BUF_INIT;
	utf8_clean(&clear, buf_str(&r->text), r->text.n);
	redact(&clean, buf_str(&clear), clear.n, 0, clear.n); /* whatever a tool says; the tools look over their cuts */
	buf_release(&r->text);
	r->text = clean;
	clean = BUF_INIT;
	struct result a = {w->b, c, r, told};
	return worker_commit(w, result_fn, &a, err);
}

/* waits: for a person's word. */
static int one(struct worker *w, const struct call *c, int limit_ms, bool *waits, struct err *err)
{
	struct tool_result r = {.text = BUF_INIT};
	CLEAN_FREE char *job = job_id(w->id, c);
	CLEAN_BUF struct buf told = BUF_INIT;
	enum approve_verdict verdict;
	int rc = gate(w, c, &verdict, &r, err);
	*waits = !rc && verdict == APPROVE_WAIT;
	if (rc || *waits)
		return rc;
	if (verdict == APPROVE_RUN) {
		rc = execute(w, c, job, limit_ms, &r, err);
		if (!rc)
			add_instructions(w, c, &r, &told);
		if (w->env)
			env_guard(w->env, NULL);
		if (!rc)
			killpoint("tool.end"); /* it has had its effect, and nobody knows it yet */
	}
	rc = rc ? rc : commit_result(w, c, &r, &told, err);
	if (!rc) {
		killpoint("call.result");
		if (r.job) /* if it is lost, forget_done() of the next worker makes up for it */
			env_ack(w->env, job, r.keep, NULL, NULL);
	}
	buf_release(&r.text);
	return rc;
}

/* A daemon that died between a result and its acknowledgement left a job behind; only the newest call can have one. */
static void forget_done(struct worker *w)
{
	struct rows r;
	struct call c = {0};
	bool keep = false;
	w->acked = true;
	int rc = db_query(w->db, &r, NULL,
			  "SELECT request, pos, note FROM calls WHERE session=? AND request=? AND state='done' AND "
			  "name='bash' ORDER BY pos "
			  "DESC LIMIT 1",
			  "ii", w->id, w->s->request);
	if (!rc && rows_next(&r)) {
		c = (struct call){.request = row_int(&r, 0), .pos = row_int(&r, 1)};
		keep = !strcmp(row_text(&r, 2), KEPT);
	}
	rows_end(&r);
	if (!c.pos || worker_env(w, NULL))
		return;
	CLEAN_FREE char *job = job_id(w->id, &c);
	env_ack(w->env, job, keep, NULL, NULL);
}

int calls_run(struct worker *w, int limit_ms, bool *pending, struct err *err)
{
	struct call c;
	bool waits;
	int rc;
	*pending = false;
	if (!w->acked)
		forget_done(w);
	while (next_call(w, &c, &rc, err)) {
		*pending = true;
		waits = false;
		rc = atomic_load(&w->cancel) ? -ECANCELED : one(w, &c, limit_ms, &waits, err);
		call_release(&c);
		if (rc || waits)
			return rc;
	}
	return rc;
}

/* ---- stop ---- */

int calls_kill(struct worker *w, struct err *err)
{
	struct call c;
	int rc;
	if (!next_call(w, &c, &rc, err))
		return rc;
	CLEAN_FREE char *job = job_id(w->id, &c);
	struct err why = ERR_INIT;
	enum sandbox_state state = sandbox_state(w->b->paths, w->s->sandbox, w->id);
	if (c.started && !strcmp(c.name, "bash") && (state == SANDBOX_RUNNING || state == SANDBOX_PAUSED) &&
	    env_end_job(w->b->paths, w->s->sandbox, w->id, job, STOP_MS, &why))
		worker_log(w, "the command may still run in the sandbox: %s", why.text);
	call_release(&c);
	return rc;
}

int calls_abandon(struct tx *tx, struct session *s, const char *why, struct err *err)
{
	for (;;) {
		struct rows r;
		struct call c = {0};
		int rc = db_query(tx->db, &r, err,
				  "SELECT pos, id, name FROM calls WHERE session=? AND request=? AND state<>'done' "
				  "ORDER BY pos LIMIT 1",
				  "ii", s->id, s->request);
		bool found = !rc && rows_next(&r);
		if (found)
			c = (struct call){.pos = row_int(&r, 0),
					  .id = xstrdup(row_text(&r, 1)),
					  .name = xstrdup(row_text(&r, 2))};
		int end = rows_end(&r);
		rc = rc ? rc : end;
		if (!rc && found) {
			rc = transcript_result(tx, s, c.id, c.name, why, true, err);
			rc = rc ? rc : usage_call(tx, s, c.name, USE_ABORTED, err);
			rc = rc ? rc
				: db_run(tx->db, err,
					 "UPDATE calls SET state='done' WHERE session=? AND request=? AND pos=?", "iii",
					 s->id, s->request, c.pos);
		}
		call_release(&c);
		if (rc || !found)
			return rc;
	}
}
