/* Anthropic's Messages. What is sent begins with the same bytes in each request of a session, so that the provider's
 * cache serves it; nothing that changes, such as a time, may stand before the last message. */
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

#define API	      "anthropic"
#define OUTPUT_USUAL  32000 /* tokens of an answer where the model's own limit is not known */
#define OUTPUT_SHARE  6	    /* at most this part of the window: some models refuse when prompt and answer exceed it */
#define MARKED_LAST   2	    /* messages of the user that mark where a cache may end */
#define INPUT_LEVEL   8	    /* levels of the request around a call's arguments, and some more */
#define CACHE_CONTROL ",\"cache_control\":{\"type\":\"ephemeral\"}"

/* ---- messages ---- */

struct turn { /* of one role: its blocks, comma-separated */
	bool user;
	struct buf blocks;
	size_t last; /* offset of the last block's closing brace */
	char *from;  /* the model that wrote it, by the provider's name; or NULL */
};

struct talk {
	struct turn *turns;
	size_t n;
	const char *prefix; /* of a tool's name */
};

static struct turn *turn_of(struct talk *t, bool user)
{
	if (!t->n || t->turns[t->n - 1].user != user) {
		t->turns = xrealloc(t->turns, (t->n + 1) * sizeof *t->turns);
		t->turns[t->n++] = (struct turn){.user = user};
	}
	struct turn *r = &t->turns[t->n - 1];
	if (r->blocks.n)
		buf_addc(&r->blocks, ',');
	return r;
}

static void close_block(struct turn *r)
{
	r->last = r->blocks.n;
	buf_addc(&r->blocks, '}');
}

static void add_text(struct talk *t, bool user, const char *p, size_t n)
{
	struct turn *r = turn_of(t, user);
	buf_adds(&r->blocks, "{\"type\":\"text\",\"text\":");
	json_quote(&r->blocks, p, n);
	close_block(r);
}

static void given_text(void *arg, const char *p, size_t n)
{
	add_text(arg, false, p, n);
}

static void given_raw(void *arg, const cJSON *block)
{
	json_print(&turn_of(arg, false)->blocks, block);
}

/* Arguments stand as JSON in JSON: what is nested deeper would make the whole request one that nobody takes. */
static bool too_deep(const char *json)
{
	int depth = 0, most = 0;
	for (const char *p = json; *p; p++) {
		if (*p == '"')
			for (p++; *p && *p != '"'; p++)
				p += *p == '\\' && p[1];
		depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
		most = depth > most ? depth : most;
		if (!*p)
			break;
	}
	return most > JSON_DEPTH - INPUT_LEVEL;
}

static void given_call(void *arg, const struct item *call)
{
	const struct talk *t = arg;
	struct turn *r = turn_of(arg, false);
	CLEAN_FREE char *name = xasprintf("%s%s", t->prefix ? t->prefix : "", call->name);
	buf_adds(&r->blocks, "{\"type\":\"tool_use\",\"id\":\"");
	given_id(&r->blocks, call->id);
	buf_adds(&r->blocks, "\",\"name\":\"");
	given_name(&r->blocks, name);
	buf_addf(&r->blocks, "\",\"input\":%s", too_deep(call->input) ? "{}" : call->input);
	close_block(r);
}

static void add_result(struct talk *t, const struct item *i)
{
	struct turn *r = turn_of(t, true);
	buf_adds(&r->blocks, "{\"type\":\"tool_result\",\"tool_use_id\":\"");
	given_id(&r->blocks, i->id);
	buf_adds(&r->blocks, "\"");
	if (!utf8_blank(i->text, strlen(i->text))) {
		buf_adds(&r->blocks, ",\"content\":");
		json_quote(&r->blocks, i->text, strlen(i->text));
	}
	if (i->error)
		buf_adds(&r->blocks, ",\"is_error\":true");
	close_block(r);
}

static void add_image(struct talk *t, const struct model_info *m, const struct item_image *i)
{
	CLEAN_FREE char *words = NULL;
	if (!given_image(m, i, &words)) {
		add_text(t, true, words, strlen(words));
		return;
	}
	struct turn *r = turn_of(t, true);
	buf_addf(&r->blocks, "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"%s\",\"data\":\"",
		 i->media);
	given_base64(&r->blocks, &i->data);
	buf_adds(&r->blocks, "\"}");
	close_block(r);
}

static void add_user(struct talk *t, const struct model_info *m, const struct item *it)
{
	for (size_t i = 0; i < it->n_images; i++)
		add_image(t, m, &it->images[i]);
	add_text(t, true, it->text, strlen(it->text));
}

static void wrote(struct talk *t, const char *from)
{
	struct turn *last = t->n ? &t->turns[t->n - 1] : NULL;
	if (!from || !last || last->user)
		return;
	free(last->from);
	last->from = xstrdup(from);
}

/* *thinks: the turn whose calls were just answered begins with its thinking, or there is none. */
static void add_items(struct talk *t, const struct context *c, const struct model_info *m, const char *model,
		      bool *thinks)
{
	bool begins = true; /* the message at which it is does so */
	*thinks = true;
	for (size_t i = 0; i < c->n;) {
		const struct item *it = &c->items[i];
		struct given g;
		switch (it->kind) {
		case ITEM_ASSISTANT:
			i = given_open(&g, c, i, model, API);
			if (!t->n) /* the first message has to be the user's */
				add_text(t, true, "Go on.", 6);
			if (t->turns[t->n - 1].user) /* else two of its turns are one message */
				begins = given_thinks(&g);
			*thinks = !g.n_calls || begins;
			given_each(&g, &(struct given_to){given_text, given_raw, given_call, t});
			wrote(t, json_str(g.layout, "from"));
			given_close(&g);
			continue;
		case ITEM_RESULT: add_result(t, it); break;
		case ITEM_USER: add_user(t, m, it); break;
		case ITEM_CALL: break; /* taken with its turn */
		}
		i++;
	}
}

static void put_messages(struct buf *out, const struct talk *t)
{
	size_t users = 0, seen = 0;
	for (size_t i = 0; i < t->n; i++)
		users += t->turns[i].user;
	buf_adds(out, ",\"messages\":[");
	for (size_t i = 0; i < t->n; i++) {
		const struct turn *r = &t->turns[i];
		seen += r->user;
		bool mark = r->user && users - seen < MARKED_LAST;
		buf_addf(out, "%s{\"role\":\"%s\",\"content\":[", i ? "," : "", r->user ? "user" : "assistant");
		buf_add(out, r->blocks.p, mark ? r->last : r->blocks.n);
		if (mark) {
			buf_adds(out, CACHE_CONTROL);
			buf_add(out, r->blocks.p + r->last, r->blocks.n - r->last);
		}
		buf_adds(out, "]}");
	}
	buf_addc(out, ']');
}

/* ---- the request ---- */

static void put_thinking(struct buf *out, const char *thinking, int64_t most, bool thinks)
{
	char *end;
	long long budget = strtoll(thinking, &end, 10);
	if (!*end && *thinking) { /* a budget asks for thinking at the begin of the turn that goes on */
		if (thinks && budget < most)
			buf_addf(out, ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":%lld}", budget);
		return;
	}
	if (!strcmp(thinking, "off"))
		return;
	bool shown = !strcmp(thinking, "summarized");
	buf_addf(out, ",\"thinking\":{\"type\":\"adaptive\"%s}", shown ? ",\"display\":\"summarized\"" : "");
	if (strcmp(thinking, "adaptive") && strcmp(thinking, "on") && !shown)
		buf_addf(out, ",\"output_config\":{\"effort\":\"%s\"}", thinking);
}

static void put_tools(struct buf *out)
{
	buf_adds(out, ",\"tools\":[");
	for (size_t i = 0; i < tools_n; i++) {
		buf_addf(out, "%s{\"name\":\"%s\",\"description\":", i ? "," : "", tools[i].name);
		json_quote(out, tools[i].about, strlen(tools[i].about));
		buf_addf(out, ",\"input_schema\":%s%s}", tools[i].schema, i + 1 == tools_n ? CACHE_CONTROL : "");
	}
	buf_addc(out, ']');
}

static void release(struct talk *t)
{
	for (size_t i = 0; i < t->n; i++) {
		buf_release(&t->turns[i].blocks);
		free(t->turns[i].from);
	}
	free(t->turns);
}

static void put_request(const struct model_request *q, const struct model_info *m, bool answered, struct buf *out)
{
	struct talk t = {0};
	bool thinks;
	int64_t most = m->max_output ? m->max_output : OUTPUT_USUAL;
	if (m->window && most > m->window / OUTPUT_SHARE)
		most = m->window / OUTPUT_SHARE;
	add_items(&t, q->context, m, q->bare ? "" : q->model, &thinks);
	buf_adds(out, "{\"model\":");
	json_quote(out, m->id, strlen(m->id));
	if (answered)
		buf_addf(out, ",\"max_tokens\":%" PRId64 ",\"stream\":true", most);
	if (!q->plain && !q->bare)
		put_thinking(out, m->thinking, most, thinks);
	put_tools(out); /* also where none is wanted: calls in the history need them, and the cache begins with them */
	if (q->plain)
		buf_adds(out, ",\"tool_choice\":{\"type\":\"none\"}");
	buf_adds(out, ",\"system\":[{\"type\":\"text\",\"text\":");
	json_quote(out, q->system, strlen(q->system));
	buf_adds(out, CACHE_CONTROL "}]");
	put_messages(out, &t);
	buf_addc(out, '}');
	release(&t);
}

static void body(const struct model_request *q, const struct model_info *m, struct buf *out)
{
	put_request(q, m, true, out);
}

static void count_body(const struct model_request *q, const struct model_info *m, struct buf *out)
{
	put_request(q, m, false, out);
}

void anthropic_talk(const struct context *c, const struct model_info *m, const char *model, const char *prefix,
		    anthropic_message_fn *message, void *arg)
{
	struct talk t = {.prefix = prefix};
	bool thinks;
	add_items(&t, c, m, model, &thinks);
	for (size_t i = 0; i < t.n; i++)
		message(arg, t.turns[i].user, buf_str(&t.turns[i].blocks), t.turns[i].blocks.n, t.turns[i].from);
	release(&t);
}

/* ---- the stream ---- */

static void count(struct answer *a, const cJSON *usage)
{
	static const char *const inputs[] = {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"};
	int64_t in = 0, cached = a->reply->tokens_cached;
	bool any = false;
	for (size_t i = 0; i < ARRAY_LEN(inputs); i++) {
		int64_t n = -1;
		answer_count(usage, inputs[i], &n);
		any |= n >= 0;
		in += n > 0 ? n : 0;
	}
	answer_count(usage, "cache_read_input_tokens", &cached);
	if (any && in >= a->reply->tokens_in) { /* at the end only some of them are told again */
		a->reply->tokens_in = in;
		a->reply->tokens_cached = cached;
	}
	answer_count(usage, "output_tokens", &a->reply->tokens_out);
}

static int on_start(struct answer *a, const cJSON *o, struct err *err)
{
	if (a->began)
		return answer_broken(a, err, "it begins twice");
	a->began = true;
	count(a, json_get(json_get(o, "message"), "usage"));
	return 0;
}

static struct part *open_part(struct answer *a, const cJSON *o)
{
	int64_t index;
	if (!json_int(o, "index", &index))
		return NULL;
	for (size_t i = 0; i < a->n; i++)
		if (a->parts[i].index == index && !a->parts[i].ended)
			return &a->parts[i];
	return NULL;
}

static int begin_call(struct answer *a, struct part *p, const cJSON *b, struct err *err)
{
	const cJSON *input = json_get(b, "input");
	p->id = xstrdup(json_str(b, "id"));
	p->name = xstrdup(json_str(b, "name"));
	if (!p->id || !p->name)
		return answer_broken(a, err, "a tool's call has no id or no name");
	if (cJSON_IsObject(input) && input->child) { /* whole at once */
		CLEAN_FREE char *text = cJSON_PrintUnformatted(input);
		return answer_bytes(a, &p->text, text, err);
	}
	return 0;
}

static int on_block(struct answer *a, const cJSON *o, struct err *err)
{
	const cJSON *b = json_get(o, "content_block");
	const char *type = json_str(b, "type");
	int64_t index;
	if (!a->began || !type || !json_int(o, "index", &index))
		return answer_broken(a, err, "a block begins where none can");
	for (size_t i = 0; i < a->n; i++)
		if (a->parts[i].index == index)
			return answer_broken(a, err, "a block comes twice");
	if (!strcmp(type, "text"))
		return answer_text(a, answer_add(a, PART_TEXT, index), json_str(b, "text"), err);
	if (!strcmp(type, "tool_use"))
		return begin_call(a, answer_add(a, PART_CALL, index), b, err);
	if (!strcmp(type, "thinking")) {
		struct part *p = answer_add(a, PART_THINKING, index);
		int rc = answer_bytes(a, &p->text, json_str(b, "thinking"), err);
		return rc ? rc : answer_bytes(a, &p->sign, json_str(b, "signature"), err);
	}
	if (!strcmp(type, "redacted_thinking")) {
		struct part *p = answer_add(a, PART_THINKING, index);
		p->raw = cJSON_PrintUnformatted(b);
		a->bytes += strlen(p->raw);
	}
	return 0; /* of a kind that is not known: its deltas find nothing */
}

static int on_delta(struct answer *a, const cJSON *o, struct err *err)
{
	const cJSON *d = json_get(o, "delta");
	const char *type = json_str(d, "type");
	struct part *p = open_part(a, o);
	if (!p || !type)
		return 0;
	if (!strcmp(type, "text_delta") && p->kind == PART_TEXT)
		return answer_text(a, p, json_str(d, "text"), err);
	if (!strcmp(type, "input_json_delta") && p->kind == PART_CALL)
		return answer_bytes(a, &p->text, json_str(d, "partial_json"), err);
	if (!strcmp(type, "thinking_delta") && p->kind == PART_THINKING)
		return answer_bytes(a, &p->text, json_str(d, "thinking"), err);
	if (!strcmp(type, "signature_delta") && p->kind == PART_THINKING)
		return answer_bytes(a, &p->sign, json_str(d, "signature"), err);
	return 0;
}

/* Thinking goes back as it came, if it is signed; else the provider would refuse it. */
static int on_stop(struct answer *a, const cJSON *o, struct err *err)
{
	struct part *p = open_part(a, o);
	if (!p)
		return 0;
	p->ended = true;
	if (p->kind == PART_THINKING && !p->raw && p->sign.n) {
		CLEAN_BUF struct buf raw = BUF_INIT;
		buf_adds(&raw, "{\"type\":\"thinking\",\"thinking\":");
		json_quote(&raw, buf_str(&p->text), p->text.n);
		buf_adds(&raw, ",\"signature\":");
		json_quote(&raw, buf_str(&p->sign), p->sign.n);
		buf_addc(&raw, '}');
		p->raw = buf_take(&raw);
	}
	return 0;
}

static int on_message_delta(struct answer *a, const cJSON *o, struct err *err)
{
	const cJSON *d = json_get(o, "delta");
	const char *why = json_str(d, "stop_reason"), *kind = json_str(json_get(d, "stop_details"), "category");
	count(a, json_get(o, "usage"));
	if (why) {
		snprintf(a->reason, sizeof a->reason, "%s", why);
		a->ending = true;
		if (!strcmp(why, "refusal"))
			snprintf(a->reply->notice, sizeof a->reply->notice, "the model refused to go on%s%.60s",
				 kind ? ": " : "", kind ? kind : "");
	}
	return 0;
}

static int on_message_stop(struct answer *a, const cJSON *o, struct err *err)
{
	if (!a->began || !a->ending)
		return answer_broken(a, err, "it ends before it says why");
	a->done = true;
	return 0;
}

static int on_error(struct answer *a, const cJSON *o, struct err *err)
{
	return answer_error(a->fault, 0, o, err);
}

static const struct {
	const char *type;
	int (*fn)(struct answer *a, const cJSON *o, struct err *err);
} events[] = {{"message_start", on_start},
	      {"content_block_start", on_block},
	      {"content_block_delta", on_delta},
	      {"content_block_stop", on_stop},
	      {"message_delta", on_message_delta},
	      {"message_stop", on_message_stop},
	      {"error", on_error}};

static int event(struct answer *a, const char *name, const char *data, size_t n, struct err *err)
{
	if (a->done)
		return 0;
	CLEAN_JSON cJSON *o = answer_json(data, n);
	const char *type = json_str(o, "type");
	if (!o)
		return answer_broken(a, err, "an event is no JSON");
	for (size_t i = 0; type && i < ARRAY_LEN(events); i++)
		if (!strcmp(events[i].type, type))
			return events[i].fn(a, o, err);
	return 0; /* ping, and what is not known */
}

/* ---- the end ---- */

static const struct {
	const char *reason, *stop, *notice;
} stops[] = {{"end_turn", "end_turn", NULL},
	     {"stop_sequence", "end_turn", NULL},
	     {"tool_use", "tool_use", NULL},
	     {"max_tokens", "max_tokens", "the answer was cut off: it reached the most tokens that an answer may have"},
	     {"pause_turn", "pause_turn", NULL},
	     {"refusal", "refusal", NULL}};

static int end(struct answer *a, bool clean, struct err *err)
{
	if (!a->done)
		return answer_broken(a, err, a->began ? "its end is missing" : "it never began");
	if (!strcmp(a->reason, "model_context_window_exceeded")) {
		snprintf(a->fault->code, sizeof a->fault->code, "%s", a->reason);
		return err_set(err, EIO, "the answer found no room in the model's window");
	}
	strcpy(a->reply->stop, "end_turn");
	for (size_t i = 0; i < ARRAY_LEN(stops); i++)
		if (!strcmp(stops[i].reason, a->reason)) {
			snprintf(a->reply->stop, sizeof a->reply->stop, "%s", stops[i].stop);
			if (stops[i].notice)
				snprintf(a->reply->notice, sizeof a->reply->notice, "%s", stops[i].notice);
		}
	bool cut = !strcmp(a->reason, "max_tokens") || !strcmp(a->reason, "refusal");
	a->reply->more = !strcmp(a->reason, "pause_turn");
	for (size_t i = 0; i < a->n; i++)
		if (a->parts[i].kind == PART_CALL && !a->parts[i].ended && !cut)
			return answer_broken(a, err, "a block has no end");
	answer_finish(a, API, false, cut);
	return 0;
}

static const char *const headers[] = {"anthropic-version: 2023-06-01", NULL};

const struct format format_anthropic = {
	API, "/v1/messages", true, headers, body, event, end, "/v1/messages/count_tokens", count_body};
