/* OpenAI's Responses, without anything kept there: each request has the whole conversation, and the model's encrypted
 * reasoning goes back to it as it came. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "format.h"
#include "session.h"
#include "tool.h"

#define API "responses"

/* ---- the request ---- */

static struct buf *item(struct buf *out)
{
	if (!buf_ends(out, "["))
		buf_addc(out, ',');
	return out;
}

static void add_message(struct buf *out, const char *role, const char *type, const char *p, size_t n)
{
	buf_addf(item(out), "{\"type\":\"message\",\"role\":\"%s\",\"content\":[{\"type\":\"%s\",\"text\":", role,
		 type);
	json_quote(out, p, n);
	buf_adds(out, "}]}");
}

static void given_text(void *arg, const char *p, size_t n)
{
	add_message(arg, "assistant", "output_text", p, n);
}

static void given_raw(void *arg, const cJSON *block)
{
	json_print(item(arg), block);
}

static void given_call(void *arg, const struct item *call)
{
	struct buf *out = arg;
	buf_adds(item(out), "{\"type\":\"function_call\",\"call_id\":\"");
	given_id(out, call->id);
	buf_adds(out, "\",\"name\":\"");
	given_name(out, call->name);
	buf_adds(out, "\",\"arguments\":");
	json_quote(out, call->input, strlen(call->input));
	buf_addc(out, '}');
}

static void add_result(struct buf *out, const struct item *i)
{
	buf_adds(item(out), "{\"type\":\"function_call_output\",\"call_id\":\"");
	given_id(out, i->id);
	buf_adds(out, "\",\"output\":");
	json_quote(out, i->text, strlen(i->text));
	buf_addc(out, '}');
}

static void add_user(struct buf *out, const struct model_info *m, const struct item *it)
{
	add_message(out, "user", "input_text", it->text, strlen(it->text));
	for (size_t i = 0; i < it->n_images; i++) {
		CLEAN_FREE char *words = NULL;
		buf_cut(out, out->n - 2); /* goes on with the content */
		if (given_image(m, &it->images[i], &words)) {
			buf_addf(out, ",{\"type\":\"input_image\",\"image_url\":\"data:%s;base64,",
				 it->images[i].media);
			given_base64(out, &it->images[i].data);
			buf_addc(out, '"');
		} else {
			buf_adds(out, ",{\"type\":\"input_text\",\"text\":");
			json_quote(out, words, strlen(words));
		}
		buf_adds(out, "}]}");
	}
}

static void put_input(struct buf *out, const struct model_request *q, const struct model_info *m)
{
	const struct context *c = q->context;
	buf_adds(out, ",\"input\":[");
	for (size_t i = 0; i < c->n;) {
		struct given g;
		if (c->items[i].kind == ITEM_ASSISTANT) {
			i = given_open(&g, c, i, q->bare ? "" : q->model, API);
			given_each(&g, &(struct given_to){given_text, given_raw, given_call, out});
			given_close(&g);
			continue;
		}
		if (c->items[i].kind == ITEM_RESULT)
			add_result(out, &c->items[i]);
		if (c->items[i].kind == ITEM_USER)
			add_user(out, m, &c->items[i]);
		i++;
	}
	buf_addc(out, ']');
}

static void put_tools(struct buf *out)
{
	buf_adds(out, ",\"tools\":[");
	for (size_t i = 0; i < tools_n; i++) {
		buf_addf(out, "%s{\"type\":\"function\",\"name\":\"%s\",\"description\":", i ? "," : "", tools[i].name);
		json_quote(out, tools[i].about, strlen(tools[i].about));
		buf_addf(out, ",\"parameters\":%s,\"strict\":false}", tools[i].schema);
	}
	buf_addc(out, ']');
}

/* What decides how the answer comes, and not what the request says. */
static void put_answering(const struct model_request *q, const struct model_info *m, struct buf *out)
{
	buf_adds(out, ",\"stream\":true,\"store\":false");
	if (m->max_output)
		buf_addf(out, ",\"max_output_tokens\":%" PRId64, m->max_output);
	if (strcmp(m->thinking, "off") && !q->bare)
		buf_adds(out, ",\"include\":[\"reasoning.encrypted_content\"]");
	if (q->session &&
	    !*m->provider.url) /* requests of a session find the same cache; others may not know the word */
		buf_addf(out, ",\"prompt_cache_key\":\"berthfs-%" PRId64 "\"", q->session->id);
}

static void put_request(const struct model_request *q, const struct model_info *m, bool answered, struct buf *out)
{
	buf_adds(out, "{\"model\":");
	json_quote(out, m->id, strlen(m->id));
	if (answered)
		put_answering(q, m, out);
	bool shown = !strcmp(m->thinking, "summarized");
	if (shown)
		buf_adds(out, ",\"reasoning\":{\"summary\":\"auto\"}");
	else if (strcmp(m->thinking, "off") && strcmp(m->thinking, "on") && strcmp(m->thinking, "adaptive") &&
		 *m->thinking > '9')
		buf_addf(out, ",\"reasoning\":{\"effort\":\"%s\"}", m->thinking);
	put_tools(out);
	if (q->plain)
		buf_adds(out, ",\"tool_choice\":\"none\"");
	buf_adds(out, ",\"instructions\":");
	json_quote(out, q->system, strlen(q->system));
	put_input(out, q, m);
	buf_addc(out, '}');
}

static void body(const struct model_request *q, const struct model_info *m, struct buf *out)
{
	put_request(q, m, true, out);
}

static void count_body(const struct model_request *q, const struct model_info *m, struct buf *out)
{
	put_request(q, m, false, out);
}

/* ---- the stream ---- */

static int64_t place(const cJSON *o)
{
	int64_t i = -1;
	json_int(o, "output_index", &i);
	return i;
}

static bool known(const struct answer *a, int64_t index)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->parts[i].index == index)
			return true;
	return false;
}

/* The part of an item; made if the stream has not named it yet. NULL: it is ended, what comes is told again. */
static struct part *part_of(struct answer *a, enum part_kind kind, const cJSON *o)
{
	struct part *p = answer_part(a, kind, place(o));
	return p || known(a, place(o)) ? p : answer_add(a, kind, place(o));
}

static int on_begin(struct answer *a, const cJSON *o, struct err *err)
{
	a->began = true;
	return 0;
}

static void take_call(struct part *p, const cJSON *i)
{
	const char *id = json_str(i, "call_id"), *name = json_str(i, "name");
	if (id && !p->id)
		p->id = xstrdup(id);
	if (name && !p->name)
		p->name = xstrdup(name);
}

static int on_added(struct answer *a, const cJSON *o, struct err *err)
{
	const cJSON *i = json_get(o, "item");
	const char *type = json_str(i, "type");
	if (type && !strcmp(type, "function_call")) {
		if (known(a, place(o)))
			return answer_broken(a, err, "a block comes twice");
		take_call(answer_add(a, PART_CALL, place(o)), i);
	}
	return 0;
}

static int on_text(struct answer *a, const cJSON *o, struct err *err)
{
	struct part *p = part_of(a, PART_TEXT, o);
	return p ? answer_text(a, p, json_str(o, "delta"), err) : 0;
}

static int on_refusal(struct answer *a, const cJSON *o, struct err *err)
{
	a->refused = true;
	return on_text(a, o, err);
}

static int on_thought(struct answer *a, const cJSON *o, struct err *err)
{
	struct part *p = part_of(a, PART_THINKING, o);
	return p ? answer_bytes(a, &p->text, json_str(o, "delta"), err) : 0;
}

static int on_args(struct answer *a, const cJSON *o, struct err *err)
{
	struct part *p = answer_part(a, PART_CALL, place(o));
	return p ? answer_bytes(a, &p->text, json_str(o, "delta"), err) : 0;
}

/* The texts of an item's content, where a server gives it whole and without deltas. */
static int whole_text(struct answer *a, struct part *p, const cJSON *i, struct err *err)
{
	const cJSON *c;
	int rc = 0;
	cJSON_ArrayForEach(c, json_get(i, "content"))
	{
		const char *text = json_str(c, "text") ? json_str(c, "text") : json_str(c, "refusal");
		rc = rc ? rc : answer_text(a, p, text, err);
	}
	return rc;
}

static int done_call(struct answer *a, struct part *p, const cJSON *i, struct err *err)
{
	const char *args = json_str(i, "arguments");
	take_call(p, i);
	p->ended = true;
	if (!args || !strcmp(args, buf_str(&p->text)))
		return 0;
	buf_reset(&p->text); /* the item as it is at its end is what counts */
	return answer_bytes(a, &p->text, args, err);
}

static int on_done(struct answer *a, const cJSON *o, struct err *err)
{
	const cJSON *i = json_get(o, "item");
	const char *type = json_str(i, "type");
	int rc = 0;
	if (!type)
		return 0;
	if (!strcmp(type, "function_call")) {
		struct part *p = part_of(a, PART_CALL, o);
		return p ? done_call(a, p, i, err) : 0;
	}
	if (!strcmp(type, "message")) {
		struct part *p = part_of(a, PART_TEXT, o);
		rc = p && !p->size ? whole_text(a, p, i, err) : 0;
		if (p)
			p->ended = true;
	}
	if (!strcmp(type, "reasoning")) {
		struct part *p = part_of(a, PART_THINKING, o);
		if (p && json_str(i, "encrypted_content"))
			p->raw = cJSON_PrintUnformatted(i);
		if (p)
			p->ended = true;
		a->bytes += p && p->raw ? strlen(p->raw) : 0;
	}
	return rc;
}

static void count(struct answer *a, const cJSON *response)
{
	const cJSON *u = json_get(response, "usage");
	answer_count(u, "input_tokens", &a->reply->tokens_in);
	answer_count(u, "output_tokens", &a->reply->tokens_out);
	answer_count(json_get(u, "input_tokens_details"), "cached_tokens", &a->reply->tokens_cached);
}

static int on_completed(struct answer *a, const cJSON *o, struct err *err)
{
	count(a, json_get(o, "response"));
	strcpy(a->reason, "completed");
	a->done = true;
	return 0;
}

static int on_incomplete(struct answer *a, const cJSON *o, struct err *err)
{
	const char *why = json_str(json_get(json_get(o, "response"), "incomplete_details"), "reason");
	count(a, json_get(o, "response"));
	snprintf(a->reason, sizeof a->reason, "%s", why ? why : "incomplete");
	a->done = true;
	return 0;
}

static int on_failed(struct answer *a, const cJSON *o, struct err *err)
{
	count(a, json_get(o, "response"));
	return answer_error(a->fault, 0, json_get(o, "response"), err);
}

static int on_error(struct answer *a, const cJSON *o, struct err *err)
{
	return answer_error(a->fault, 0, o, err);
}

static const struct {
	const char *type;
	int (*fn)(struct answer *a, const cJSON *o, struct err *err);
} events[] = {{"response.created", on_begin},
	      {"response.output_item.added", on_added},
	      {"response.output_item.done", on_done},
	      {"response.output_text.delta", on_text},
	      {"response.refusal.delta", on_refusal},
	      {"response.function_call_arguments.delta", on_args},
	      {"response.reasoning_summary_text.delta", on_thought},
	      {"response.reasoning_text.delta", on_thought},
	      {"response.completed", on_completed},
	      {"response.incomplete", on_incomplete},
	      {"response.failed", on_failed},
	      {"error", on_error}};

static int event(struct answer *a, const char *name, const char *data, size_t n, struct err *err)
{
	if (a->done || (n == 6 && !memcmp(data, "[DONE]", 6)))
		return 0;
	CLEAN_JSON cJSON *o = answer_json(data, n);
	const char *type = json_str(o, "type");
	if (!o)
		return answer_broken(a, err, "an event is no JSON");
	type = type ? type : name;
	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (!strcmp(events[i].type, type))
			return events[i].fn(a, o, err);
	return 0;
}

/* ---- the end ---- */

static int end(struct answer *a, bool clean, struct err *err)
{
	bool whole = !strcmp(a->reason, "completed");
	if (!a->done)
		return answer_broken(a, err, a->began ? "its end is missing" : "it never began");
	for (size_t i = 0; i < a->n; i++)
		if (a->parts[i].kind == PART_CALL && !a->parts[i].ended && whole)
			return answer_broken(a, err, "a block has no end");
	answer_finish(a, API, false, !whole);
	snprintf(a->reply->stop, sizeof a->reply->stop, "%s",
		 a->reply->n_calls ? "tool_use"
		 : a->refused	   ? "refusal"
				   : "end_turn");
	if (whole)
		return 0;
	bool filter = !strcmp(a->reason, "content_filter");
	snprintf(a->reply->stop, sizeof a->reply->stop, "%s", filter ? "refusal" : "max_tokens");
	snprintf(a->reply->notice, sizeof a->reply->notice, "%s",
		 filter ? "the provider's filter ended the answer"
			: "the answer was cut off: it reached the most tokens that an answer may have");
	return 0;
}

static const char *const headers[] = {NULL};

const struct format format_responses = {
	API, "/v1/responses", false, headers, body, event, end, "/v1/responses/input_tokens", count_body};
