/* OpenAI's Chat Completions, as OpenAI has it and as other servers do: Ollama, llama.cpp, vLLM, OpenRouter... */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "format.h"
#include "tool.h"

#define API "openai"

/* ---- the request ---- */

struct talk {
	struct buf *out;
	int quirks;
	struct buf text, calls; /* of the turn */
};

static void begin(struct talk *t, const char *role)
{
	buf_addf(t->out, "%s{\"role\":\"%s\"", buf_ends(t->out, "[") ? "" : ",", role);
}

static void add_content(struct talk *t, const char *p, size_t n)
{
	buf_adds(t->out, ",\"content\":");
	json_quote(t->out, p, n);
}

static void given_text(void *arg, const char *p, size_t n)
{
	struct talk *t = arg;
	if (t->text.n)
		buf_adds(&t->text, "\n\n");
	buf_add(&t->text, p, n);
}

static void given_raw(void *arg, const cJSON *block)
{
	/* this format has no blocks of its own */
}

static void given_call(void *arg, const struct item *call)
{
	struct talk *t = arg;
	buf_addf(&t->calls, "%s{\"id\":\"", t->calls.n ? "," : "");
	given_id(&t->calls, call->id);
	buf_adds(&t->calls, "\",\"type\":\"function\",\"function\":{\"name\":\"");
	given_name(&t->calls, call->name);
	buf_adds(&t->calls, "\",\"arguments\":");
	json_quote(&t->calls, call->input, strlen(call->input));
	buf_adds(&t->calls, "}}");
}

static void add_turn(struct talk *t, const struct given *g)
{
	buf_reset(&t->text);
	buf_reset(&t->calls);
	given_each(g, &(struct given_to){given_text, given_raw, given_call, t});
	begin(t, "assistant");
	if (t->text.n || !t->calls.n || !(t->quirks & QUIRK_NULL_CONTENT))
		add_content(t, buf_str(&t->text), t->text.n);
	else
		buf_adds(t->out, ",\"content\":null");
	if (t->calls.n) {
		buf_adds(t->out, ",\"tool_calls\":[");
		buf_add(t->out, t->calls.p, t->calls.n);
		buf_addc(t->out, ']');
	}
	buf_addc(t->out, '}');
}

static void add_result(struct talk *t, const struct item *i)
{
	begin(t, "tool");
	buf_adds(t->out, ",\"tool_call_id\":\"");
	given_id(t->out, i->id);
	buf_addc(t->out, '"');
	if (t->quirks & QUIRK_TOOL_NAME) {
		buf_adds(t->out, ",\"name\":\"");
		given_name(t->out, i->name);
		buf_addc(t->out, '"');
	}
	add_content(t, i->text, strlen(i->text));
	buf_addc(t->out, '}');
}

/* A text alone is a text: some servers know nothing else. */
static void add_user(struct talk *t, const struct model_info *m, const struct item *it)
{
	begin(t, "user");
	if (!it->n_images) {
		add_content(t, it->text, strlen(it->text));
		buf_addc(t->out, '}');
		return;
	}
	buf_adds(t->out, ",\"content\":[{\"type\":\"text\",\"text\":");
	json_quote(t->out, it->text, strlen(it->text));
	for (size_t i = 0; i < it->n_images; i++) {
		CLEAN_FREE char *words = NULL;
		if (given_image(m, &it->images[i], &words)) {
			buf_addf(t->out, "},{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:%s;base64,",
				 it->images[i].media);
			given_base64(t->out, &it->images[i].data);
			buf_adds(t->out, "\"}");
		} else {
			buf_adds(t->out, "},{\"type\":\"text\",\"text\":");
			json_quote(t->out, words, strlen(words));
		}
	}
	buf_adds(t->out, "}]}");
}

static void put_messages(struct talk *t, const struct model_request *q, const struct model_info *m)
{
	const struct context *c = q->context;
	buf_adds(t->out, ",\"messages\":[");
	begin(t, "system");
	add_content(t, q->system, strlen(q->system));
	buf_addc(t->out, '}');
	for (size_t i = 0; i < c->n;) {
		struct given g;
		if (c->items[i].kind == ITEM_ASSISTANT) {
			i = given_open(&g, c, i, q->bare ? "" : q->model, API);
			add_turn(t, &g);
			given_close(&g);
			continue;
		}
		if (c->items[i].kind == ITEM_RESULT)
			add_result(t, &c->items[i]);
		if (c->items[i].kind == ITEM_USER)
			add_user(t, m, &c->items[i]);
		i++;
	}
	buf_addc(t->out, ']');
}

static void put_tools(struct buf *out)
{
	buf_adds(out, ",\"tools\":[");
	for (size_t i = 0; i < tools_n; i++) {
		buf_addf(out, "%s{\"type\":\"function\",\"function\":{\"name\":\"%s\",\"description\":", i ? "," : "",
			 tools[i].name);
		json_quote(out, tools[i].about, strlen(tools[i].about));
		buf_addf(out, ",\"parameters\":%s}}", tools[i].schema);
	}
	buf_addc(out, ']');
}

static bool is_effort(const char *thinking)
{
	static const char *const efforts[] = {"low", "medium", "high", "xhigh", "max"};
	for (size_t i = 0; i < ARRAY_LEN(efforts); i++)
		if (!strcmp(efforts[i], thinking))
			return true;
	return false;
}

static void body(const struct model_request *q, const struct model_info *m, struct buf *out)
{
	struct talk t = {.out = out, .quirks = m->provider.quirks};
	buf_adds(out, "{\"model\":");
	json_quote(out, m->id, strlen(m->id));
	buf_adds(out, ",\"stream\":true");
	if (!(t.quirks & QUIRK_NO_USAGE))
		buf_adds(out, ",\"stream_options\":{\"include_usage\":true}");
	if (m->max_output)
		buf_addf(out, ",\"%s\":%" PRId64, t.quirks & QUIRK_MAX_TOKENS ? "max_tokens" : "max_completion_tokens",
			 m->max_output);
	if (is_effort(m->thinking))
		buf_addf(out, ",\"reasoning_effort\":\"%s\"", m->thinking);
	if (!q->plain)
		put_tools(out); /* not "none": some servers do not know tool_choice */
	put_messages(&t, q, m);
	buf_addc(out, '}');
	buf_release(&t.text);
	buf_release(&t.calls);
}

/* ---- the stream ---- */

static void count(struct answer *a, const cJSON *u)
{
	answer_count(u, "prompt_tokens", &a->reply->tokens_in);
	answer_count(u, "completion_tokens", &a->reply->tokens_out);
	answer_count(u, "cached_tokens", &a->reply->tokens_cached);
	answer_count(u, "prompt_cache_hit_tokens", &a->reply->tokens_cached);
	answer_count(json_get(u, "prompt_tokens_details"), "cached_tokens", &a->reply->tokens_cached);
}

static struct part *only(struct answer *a, enum part_kind kind)
{
	struct part *p = answer_part(a, kind, 0);
	return p ? p : answer_add(a, kind, 0);
}

/* Its call: by index; by id where a server gives every call the same index, or none. */
static struct part *call_of(struct answer *a, const cJSON *t)
{
	const char *id = json_str(t, "id");
	int64_t index = -1;
	struct part *last = NULL;
	bool numbered = json_int(t, "index", &index);
	for (size_t i = 0; i < a->n; i++) {
		struct part *p = &a->parts[i];
		if (p->kind != PART_CALL)
			continue;
		last = p;
		if (id && *id && p->id && !strcmp(p->id, id))
			return p;
		if (numbered && p->index == index && (!id || !*id || !p->id || !*p->id))
			return p;
	}
	if (last && !numbered && (!id || !*id) && !json_str(json_get(t, "function"), "name"))
		return last;
	return answer_add(a, PART_CALL, index);
}

static int on_call(struct answer *a, const cJSON *t, struct err *err)
{
	const cJSON *f = json_get(t, "function"), *args = json_get(f, "arguments");
	const char *name = json_str(f, "name"), *id = json_str(t, "id");
	struct part *p = call_of(a, t);
	if (id && *id && !p->id)
		p->id = xstrdup(id);
	if (name && *name && !p->name)
		p->name = xstrdup(name);
	if (!cJSON_IsObject(args))
		return answer_bytes(a, &p->text, cJSON_GetStringValue(args), err);
	CLEAN_FREE char *text = cJSON_PrintUnformatted(args); /* whole at once, in a native server's way */
	return p->text.n ? 0 : answer_bytes(a, &p->text, text, err);
}

static int on_delta(struct answer *a, const cJSON *d, struct err *err)
{
	static const char *const thoughts[] = {"reasoning_content", "reasoning", "reasoning_text"};
	const char *text = json_str(d, "content"), *refusal = json_str(d, "refusal");
	const cJSON *t;
	int rc = 0;
	for (size_t i = 0; i < ARRAY_LEN(thoughts) && !rc; i++) /* some give the same under two names */
		if (json_str(d, thoughts[i])) {
			rc = answer_bytes(a, &only(a, PART_THINKING)->text, json_str(d, thoughts[i]), err);
			break;
		}
	if (!rc && text && *text)
		rc = answer_text(a, only(a, PART_TEXT), text, err);
	if (!rc && refusal && *refusal) {
		a->refused = true;
		rc = answer_text(a, only(a, PART_TEXT), refusal, err);
	}
	cJSON_ArrayForEach(t, json_get(d, "tool_calls"))
	{
		rc = rc ? rc : on_call(a, t, err);
	}
	return rc;
}

static int event(struct answer *a, const char *name, const char *data, size_t n, struct err *err)
{
	if (a->done)
		return 0;
	if (n == 6 && !memcmp(data, "[DONE]", 6)) {
		a->done = true;
		return 0;
	}
	CLEAN_JSON cJSON *o = answer_json(data, n);
	if (!o)
		return answer_broken(a, err, "an event is no JSON");
	if (cJSON_IsObject(json_get(o, "error")) || cJSON_IsString(json_get(o, "error")))
		return answer_error(a->fault, 0, o, err);
	const cJSON *choice = cJSON_GetArrayItem(json_get(o, "choices"), 0);
	const char *why = json_str(choice, "finish_reason");
	a->began = true;
	count(a, json_get(choice, "usage"));
	count(a, json_get(o, "usage"));
	int rc = a->ending && !why ? 0 : on_delta(a, json_get(choice, "delta"), err);
	if (why && *why && !a->ending) {
		snprintf(a->reason, sizeof a->reason, "%s", why);
		a->ending = true;
	}
	return rc;
}

/* ---- the end ---- */

static const struct {
	const char *reason, *stop, *notice;
} stops[] = {{"stop", "end_turn", NULL},
	     {"end", "end_turn", NULL},
	     {"tool_calls", "tool_use", NULL},
	     {"function_call", "tool_use", NULL},
	     {"length", "max_tokens", "the answer was cut off: it reached the most tokens that an answer may have"},
	     {"content_filter", "refusal", "the provider's filter ended the answer"}};

static int end(struct answer *a, bool clean, struct err *err)
{
	bool length = !strcmp(a->reason, "length"), filter = !strcmp(a->reason, "content_filter");
	if (!a->ending || !(a->done || clean))
		return answer_broken(a, err, a->began ? "its end is missing" : "it never began");
	if (!strcmp(a->reason, "network_error") || !strcmp(a->reason, "error"))
		return answer_broken(a, err, a->reason);
	if (!strcmp(a->reason, "model_context_window_exceeded") ||
	    (length && !a->reply->text.n && !a->n && !a->reply->tokens_out)) {
		strcpy(a->fault->code, "model_context_window_exceeded");
		return err_set(err, EIO, "the conversation leaves no room for an answer in the model's window");
	}
	for (size_t i = 0; i < a->n; i++) /* a call of a finished answer is whole, and there is no other sign of it */
		a->parts[i].ended = !length && !filter;
	answer_finish(a, API, true, length || filter);
	snprintf(a->reply->stop, sizeof a->reply->stop, "%s", a->reply->n_calls ? "tool_use" : "end_turn");
	for (size_t i = 0; i < ARRAY_LEN(stops); i++)
		if (!strcmp(stops[i].reason, a->reason)) {
			if (strcmp(stops[i].stop, "end_turn"))
				snprintf(a->reply->stop, sizeof a->reply->stop, "%s", stops[i].stop);
			snprintf(a->reply->notice, sizeof a->reply->notice, "%s",
				 stops[i].notice ? stops[i].notice : "");
		}
	if (a->refused)
		strcpy(a->reply->stop, "refusal");
	return 0;
}

static const char *const headers[] = {NULL};

const struct format format_openai = {API, "/v1/chat/completions", false, headers, body, event, end};
