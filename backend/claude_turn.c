/* What Claude Code prints while it answers, read into a reply: the provider's own events, which it passes on. It can
 * only give words: text, thinking, calls that are planned elsewhere, numbers, an error. What is not known is left
 * unread; what it does beside is no answer. Worker threads. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "claude.h"
#include "format.h"
#include "tool.h"

#define LINES_MAX 1000000
#define BYTES_MAX (256LL << 20) /* of one answer; the answer itself has at most a sixtieth of it */
#define LINGER_MS 5000		/* the answer is whole: how long its end is waited for */
#define WORDS_MAX 300
#define HELD_MAX  64   /* questions about calls that wait for the end of the answer */
#define HELD_MS	  2000 /* of silence, after which they wait no longer */
#define FROM_MAX  120

struct turn {
	struct claude *c;
	const struct model_request *q;
	const struct claude_limits *l;
	struct answer a;
	struct model_fault *fault;
	int64_t began_ms, done_ms, lines, bytes;
	char from[FROM_MAX]; /* the model that answers, by the provider's name */
	cJSON *held[HELD_MAX];
	size_t n_held;
	bool failed; /* an error was told */
	char words[WORDS_MAX], word[48];
	bool over, well; /* the end was told; and that all went as it should */
};

/* ---- errors ---- */

/* Its own words for what went wrong, where there is no status. */
static const struct {
	const char *word;
	int status;
	const char *code;
} errors[] = {{"authentication_failed", 401, "authentication_error"},
	      {"oauth_org_not_allowed", 403, "permission_error"},
	      {"billing_error", 402, "billing_error"},
	      {"rate_limit", 429, "rate_limit_error"},
	      {"invalid_request", 400, "invalid_request_error"},
	      {"model_not_found", 404, "not_found_error"}};

/* It is told by a message of the program's own and again at the end, each with other parts of it. */
static void on_fault(struct turn *t, const cJSON *o, const char *words)
{
	int64_t status = 0;
	const char *type = json_str(o, "api_error_type"), *word = json_str(o, "error");
	t->failed = true;
	if (words && !*t->words)
		snprintf(t->words, sizeof t->words, "%.*s", WORDS_MAX - 1, words);
	json_int(o, "api_error_status", &status);
	if (status >= 400 && status < 600)
		t->fault->status = (int)status;
	if (type)
		snprintf(t->fault->code, sizeof t->fault->code, "%.60s", type);
	if (word)
		snprintf(t->word, sizeof t->word, "%.40s", word);
}

/* All that was told of an error, as the provider would have told it. */
static int failed(struct turn *t, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		bool same = !t->fault->status || t->fault->status == errors[i].status;
		if (!same || strcmp(errors[i].word, t->word))
			continue;
		t->fault->status = errors[i].status;
		if (!*t->fault->code)
			snprintf(t->fault->code, sizeof t->fault->code, "%s", errors[i].code);
	}
	text_one_line(t->words, sizeof t->words);
	text_one_line(t->fault->code, sizeof t->fault->code);
	t->fault->retry = !t->fault->status;
	if (t->fault->status == 401)
		return err_set(err, EACCES,
			       "Claude Code is not logged in, or not any more (%s): run `claude` in a terminal and "
			       "type /login, then write `retry` to ctl",
			       t->words);
	return err_set(err, EIO, "Claude Code: %s", *t->words ? t->words : "it failed without words");
}

static const char *text_of(const cJSON *message)
{
	return json_str(cJSON_GetArrayItem(json_get(message, "content"), 0), "text");
}

/* A whole message. Those of the model have come as events already; what it says itself is an error. */
static int on_assistant(struct turn *t, const cJSON *o, struct err *err)
{
	const cJSON *m = json_get(o, "message");
	const char *model = json_str(m, "model");
	bool own = json_get(o, "error") || json_bool(o, "is_api_error_message", false) ||
		   (model && !strcmp(model, "<synthetic>"));
	if (own && !t->a.done)
		on_fault(t, o, text_of(m));
	return 0;
}

static int on_result(struct turn *t, const cJSON *o, struct err *err)
{
	bool bad = json_bool(o, "is_error", false);
	t->over = true;
	t->well = !bad && t->a.done;
	if (!t->a.done && (bad || !t->a.began)) {
		const char *words = json_str(o, "result");
		on_fault(t, o, words && *words ? words : "it ended without an answer");
	}
	return 0;
}

/* ---- the answer ---- */

static int on_stream(struct turn *t, const cJSON *o, struct err *err)
{
	const cJSON *event = json_get(o, "event"), *parent = json_get(o, "parent_tool_use_id");
	const char *type = json_str(event, "type"), *model = json_str(json_get(event, "message"), "model");
	if (cJSON_IsString(parent) || !type)
		return 0; /* not of this conversation */
	bool begins = !strcmp(type, "message_start");
	if (begins && (t->a.done || t->failed)) {
		t->over = true; /* it asks again by itself: that is not wanted, and what it has told before counts */
		return 0;
	}
	if (begins && model)
		snprintf(t->from, sizeof t->from, "%s", model);
	CLEAN_BUF struct buf data = BUF_INIT;
	json_print(&data, event);
	int rc = format_anthropic.event(&t->a, NULL, buf_str(&data), data.n, err);
	rc = rc ? rc : answer_bounds(&t->a, err);
	if (t->a.done && !t->done_ms)
		t->done_ms = clock_mono_ms();
	return rc;
}

/* It tells what it has at hand, each time it is asked: that has to be ours, and nothing else. */
static int check_tools(struct turn *t, const cJSON *o, struct err *err)
{
	const cJSON *tool, *list = json_get(o, "tools");
	size_t n = 0;
	cJSON_ArrayForEach(tool, list)
	{
		const char *name = cJSON_IsString(tool) ? tool->valuestring : "";
		bool ours = !strncmp(name, CLAUDE_PREFIX, strlen(CLAUDE_PREFIX)) &&
			    tool_find(name + strlen(CLAUDE_PREFIX)) && !t->c->plain;
		if (!ours)
			return err_set(
				err, EPROTO,
				"this Claude Code %s has a tool of its own that cannot be turned off, \"%.60s\": "
				"it is not used as a model",
				t->c->version, name);
		n++;
	}
	if (cJSON_IsArray(list) && n != (t->c->plain ? 0 : tools_n))
		return err_set(err, EPROTO, "this Claude Code %s does not take our tools: it is not used as a model",
			       t->c->version);
	return 0;
}

static int on_system(struct turn *t, const cJSON *o, struct err *err)
{
	const char *subtype = json_str(o, "subtype");
	return subtype && !strcmp(subtype, "init") ? check_tools(t, o, err) : 0;
}

/* The subscription's limits: when they are lifted. */
static int on_limit(struct turn *t, const cJSON *o, struct err *err)
{
	const cJSON *info = json_get(o, "rate_limit_info");
	const char *status = json_str(info, "status");
	int64_t at;
	if (status && !strcmp(status, "rejected") && json_int(info, "resetsAt", &at)) {
		int64_t left = at * 1000 - clock_real_ms();
		t->fault->retry_after_ms = left > 0 && left < 8 * 86400000LL ? left : 0;
	}
	return 0;
}

static const struct {
	const char *type;
	int (*fn)(struct turn *t, const cJSON *o, struct err *err);
} kinds[] = {{"stream_event", on_stream},
	     {"assistant", on_assistant},
	     {"result", on_result},
	     {"system", on_system},
	     {"rate_limit_event", on_limit}};

/* It asks about a call as soon as that is there. Told to leave it before the answer is whole, some versions take the
 * call for lost and ask the provider for more by themselves. */
static bool hold(struct turn *t, cJSON **o)
{
	const char *subtype = json_str(json_get(*o, "request"), "subtype");
	if (t->a.done || !t->a.began || t->n_held == HELD_MAX || !subtype || strcmp(subtype, "hook_callback"))
		return false;
	t->held[t->n_held++] = take(*o);
	return true;
}

static int let_go(struct turn *t, struct err *err)
{
	int rc = 0;
	for (size_t i = 0; i < t->n_held; i++) {
		if (rc >= 0)
			rc = claude_answer(t->c, t->held[i], t->q->cancel, err);
		cJSON_Delete(t->held[i]);
	}
	t->n_held = 0;
	return rc < 0 ? rc : 0;
}

static int on_line(struct turn *t, const char *p, size_t n, struct err *err)
{
	CLEAN_JSON cJSON *o = answer_json(p, n);
	const char *type = json_str(o, "type");
	if (hold(t, &o))
		return 0;
	int rc = o ? claude_answer(t->c, o, t->q->cancel, err) : 0;
	if (t->c->ran && rc >= 0) {
		t->failed = true;
		return err_set(
			err, EPROTO,
			"this Claude Code %s tries to run tools although it is told to leave them: it is not used "
			"as a model",
			t->c->version);
	}
	for (size_t i = 0; !rc && type && i < ARRAY_LEN(kinds); i++)
		if (!strcmp(kinds[i].type, type))
			return kinds[i].fn(t, o, err);
	return rc < 0 ? rc : 0;
}

/* ---- its end ---- */

/* Calls get the names that we know; what the program does with others, or with arguments that are none, differs from
 * what is done here. */
static bool name_calls(struct model_reply *r)
{
	bool well = true;
	for (size_t i = 0; i < r->n_calls; i++) {
		char *name = r->calls[i].name;
		size_t n = strlen(CLAUDE_PREFIX);
		bool ours = !strncmp(name, CLAUDE_PREFIX, n);
		if (ours)
			memmove(name, name + n, strlen(name + n) + 1);
		well &= ours && tool_find(name) && !json_check(r->calls[i].input, strlen(r->calls[i].input), NULL);
	}
	return well;
}

/* Which model it was, for its thinking to be given back under that name. */
static void sign(struct turn *t, struct model_reply *r)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	if (!r->replay || !*t->from)
		return;
	buf_adds(&b, "{\"from\":");
	json_quote(&b, t->from, strlen(t->from));
	buf_addf(&b, ",%s", r->replay + 1);
	free(r->replay);
	r->replay = buf_take(&b);
}

/* All that an answer needs is there, but for the program's own end of it. */
static bool calls_known(const struct answer *a)
{
	for (size_t i = 0; i < a->n; i++) {
		const struct part *p = &a->parts[i];
		if (p->kind == PART_CALL && (strncmp(p->name, CLAUDE_PREFIX, strlen(CLAUDE_PREFIX)) ||
					     (p->text.n && json_check(p->text.p, p->text.n, NULL))))
			return false;
	}
	return true;
}

/* How long the next line may take; < 0: too late. */
static int64_t patience(const struct turn *t)
{
	int64_t now = clock_mono_ms();
	if (t->a.done)
		return calls_known(&t->a) ? t->done_ms + LINGER_MS - now : -1;
	return t->a.began ? t->l->idle_ms : t->began_ms + t->l->begin_ms - now;
}

static int silent(struct turn *t, struct err *err)
{
	t->fault->retry = true;
	return err_set(err, ETIMEDOUT,
		       t->a.began ? "the model's answer stalled: nothing came for %lld s (answer.idle-timeout)"
				  : "the model did not begin to answer within %lld s (answer.begin-timeout)",
		       (long long)(t->a.began ? t->l->idle_ms : t->l->begin_ms) / 1000);
}

/* Until the answer is whole or will not come. */
static int listen(struct turn *t, struct err *err)
{
	const char *p;
	size_t n;
	while (!t->over) {
		int64_t left = patience(t), most = t->n_held && left > HELD_MS ? HELD_MS : left;
		int rc = left < 0 ? -ETIMEDOUT : claude_line(t->c, most, t->q->cancel, &p, &n, err);
		if (rc == -ETIMEDOUT && most < left && !let_go(t, err))
			continue;
		if (t->a.done && rc && rc != -ECANCELED)
			return 0; /* it counts all the same */
		if (rc == -ETIMEDOUT)
			return silent(t, err);
		if (rc == -EPIPE)
			t->fault->retry = true;
		if (rc)
			return rc;
		t->bytes += (int64_t)n;
		if (++t->lines > LINES_MAX || t->bytes > BYTES_MAX)
			return err_set(err, EFBIG, "Claude Code prints without end");
		rc = on_line(t, p, n, err);
		rc = !rc && t->a.done ? let_go(t, err) : rc;
		if (rc)
			return rc == -EPIPE && t->a.done ? 0 : rc;
	}
	return 0;
}

int claude_turn(struct claude *c, const struct model_request *q, const struct claude_limits *l,
		struct model_reply *reply, struct model_fault *fault, bool *clean, struct err *err)
{
	struct err why = ERR_INIT;
	struct turn t = {.c = c,
			 .q = q,
			 .l = l,
			 .a = {.q = q, .reply = reply, .fault = fault},
			 .fault = fault,
			 .began_ms = clock_mono_ms()};
	*clean = false;
	int rc = listen(&t, &why);
	if (!rc && t.failed)
		rc = failed(&t, &why);
	else if (!rc)
		rc = format_anthropic.end(&t.a, true, &why);
	if (!rc) {
		*clean = name_calls(reply) && t.well;
		sign(&t, reply);
		fault->retry_after_ms = 0;
	} else {
		err_set(err, why.code ? why.code : -rc, "%s", why.text);
	}
	for (size_t i = 0; i < t.n_held; i++)
		cJSON_Delete(t.held[i]);
	answer_release(&t.a);
	return rc;
}
