/* What providers refuse a request for, as far as a history can be the reason: by what they say in their documentation
 * and in their errors. Each function gives the fault in words, or NULL. */
#pragma once
#include <stdlib.h>

#include "backend/base/json.h"
#include "backend/base/map.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "backend/format.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

struct rules {
	struct map calls;  /* id -> "open", "done" */
	size_t open;	   /* calls without a result */
	struct map things; /* ids of other items */
	int marks;	   /* cache_control */
};

static bool word(const char *s, size_t most)
{
	return s && *s && strlen(s) <= most && strspn(s, LETTERS) == strlen(s);
}

static bool says(const char *s)
{
	return s && !utf8_blank(s, strlen(s));
}

static bool type_is(const cJSON *o, const char *type)
{
	const char *is = json_str(o, "type");
	return is && !strcmp(is, type);
}

static const char *rule_call(struct rules *r, const char *id, const char *name, size_t most)
{
	if (!word(id, most))
		return "a call's id that is not taken";
	if (!word(name, 64))
		return "a tool's name that is not taken";
	if (map_put(&r->calls, id, (void *)"open"))
		return "two calls of one id";
	r->open++;
	return NULL;
}

static const char *rule_result(struct rules *r, const char *id)
{
	const char *was = id ? map_get(&r->calls, id) : NULL;
	if (!was)
		return "a result of no call";
	if (strcmp(was, "open"))
		return "a second result of a call";
	map_put(&r->calls, id, (void *)"done");
	r->open--;
	return NULL;
}

static bool is_object_text(const char *text)
{
	CLEAN_JSON cJSON *o = text ? json_parse(text, strlen(text), NULL) : NULL;
	return cJSON_IsObject(o);
}

/* ---- Messages ---- */

static const char *anthropic_block(struct rules *r, const cJSON *b, bool user, bool *late)
{
	r->marks += json_get(b, "cache_control") != NULL;
	bool result = type_is(b, "tool_result");
	if (user && result && *late)
		return "a result behind something else";
	*late |= !result;
	if (user && !result && r->open)
		return "calls whose results do not follow at once";
	if (type_is(b, "text"))
		return says(json_str(b, "text")) ? NULL : "a text without words";
	if (type_is(b, "image"))
		return user ? NULL : "an image of the assistant";
	if (result)
		return user ? rule_result(r, json_str(b, "tool_use_id")) : "a result of the assistant";
	if (user)
		return "a block that a user does not have";
	if (type_is(b, "tool_use"))
		return cJSON_IsObject(json_get(b, "input")) ? rule_call(r, json_str(b, "id"), json_str(b, "name"), 64)
							    : "arguments that are no object";
	if (type_is(b, "thinking") || type_is(b, "redacted_thinking"))
		return json_get(b, "cache_control") ? "a mark on thinking" : NULL;
	return "a block that nobody knows";
}

static const char *anthropic_message(struct rules *r, const cJSON *m, bool user)
{
	const cJSON *b, *content = json_get(m, "content");
	const char *role = json_str(m, "role"), *fault = NULL;
	bool late = false;
	int n = cJSON_GetArraySize(content);
	if (!role || strcmp(role, user ? "user" : "assistant"))
		return "roles that do not alternate";
	if (!n)
		return "a message without content";
	cJSON_ArrayForEach(b, content)
	{
		fault = fault ? fault : anthropic_block(r, b, user, &late);
	}
	if (!fault && user && r->open)
		return "calls without a result";
	const cJSON *last = cJSON_GetArrayItem(content, n - 1);
	if (!fault && (type_is(last, "thinking") || type_is(last, "redacted_thinking")))
		return "a message that ends with thinking";
	return fault;
}

/* While a turn goes on that has called tools, thinking by a budget asks for thinking at its begin. */
static const char *anthropic_thinking(const cJSON *o)
{
	const cJSON *thinking = json_get(o, "thinking"), *messages = json_get(o, "messages");
	int64_t budget = 0, most = 0;
	if (!thinking || !type_is(thinking, "enabled"))
		return NULL;
	json_int(thinking, "budget_tokens", &budget);
	json_int(o, "max_tokens", &most);
	if (budget < 1024 || budget >= most)
		return "a budget that does not fit";
	const cJSON *before = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 2);
	const cJSON *first = cJSON_GetArrayItem(json_get(before, "content"), 0);
	const cJSON *b;
	cJSON_ArrayForEach(b, json_get(before, "content"))
	{
		if (type_is(b, "tool_use") && !type_is(first, "thinking") && !type_is(first, "redacted_thinking"))
			return "a turn that goes on without its thinking";
	}
	return NULL;
}

static const char *rules_anthropic(struct rules *r, const cJSON *o)
{
	const cJSON *m, *messages = json_get(o, "messages");
	const char *fault = NULL;
	bool user = true;
	cJSON_ArrayForEach(m, messages)
	{
		fault = fault ? fault : anthropic_message(r, m, user);
		user = !user;
	}
	if (fault)
		return fault;
	if (!cJSON_GetArraySize(messages))
		return "no message at all";
	if (user)
		return "an answer that is to be gone on with"; /* newer models refuse that */
	if (r->marks > 2)				       /* two more stand in the prompt and the tools */
		return "too many marks";
	return anthropic_thinking(o);
}

/* ---- Chat Completions ---- */

static const char *openai_calls(struct rules *r, const cJSON *m)
{
	const cJSON *c, *calls = json_get(m, "tool_calls"), *content = json_get(m, "content");
	const char *fault = NULL;
	if (calls && !cJSON_GetArraySize(calls))
		return "an empty list of calls";
	if (!calls && !says(json_str(m, "content")))
		return "an answer without words or calls";
	if (!cJSON_IsString(content) && !cJSON_IsNull(content))
		return "an answer's content";
	cJSON_ArrayForEach(c, calls)
	{
		const cJSON *f = json_get(c, "function");
		fault = fault ? fault : rule_call(r, json_str(c, "id"), json_str(f, "name"), 40);
		fault = fault || is_object_text(json_str(f, "arguments")) ? fault : "arguments that are no object";
	}
	return fault;
}

static const char *openai_message(struct rules *r, const cJSON *m, const char *role, bool first)
{
	if (first)
		return strcmp(role, "system") || !says(json_str(m, "content")) ? "no prompt" : NULL;
	if (!strcmp(role, "tool"))
		return cJSON_IsString(json_get(m, "content")) ? rule_result(r, json_str(m, "tool_call_id"))
							      : "a result's content";
	if (r->open)
		return "calls whose results do not follow at once";
	if (!strcmp(role, "user"))
		return says(json_str(m, "content")) || cJSON_GetArraySize(json_get(m, "content"))
			       ? NULL
			       : "a user without words";
	return strcmp(role, "assistant") ? "a role that nobody knows" : openai_calls(r, m);
}

static const char *rules_openai(struct rules *r, const cJSON *o)
{
	const cJSON *m, *messages = json_get(o, "messages");
	const char *fault = NULL, *role = "";
	cJSON_ArrayForEach(m, messages)
	{
		role = json_str(m, "role");
		fault = fault ? fault : openai_message(r, m, role ? role : "", m == messages->child);
	}
	if (!fault && r->open)
		return "calls without a result";
	if (!fault && (!role || (strcmp(role, "user") && strcmp(role, "tool"))))
		return "nothing to answer";
	return fault;
}

/* ---- Responses ---- */

static const char *responses_message(const cJSON *i, bool *user)
{
	const cJSON *b;
	const char *role = json_str(i, "role");
	*user = role && !strcmp(role, "user");
	if (!cJSON_GetArraySize(json_get(i, "content")))
		return "a message without content";
	cJSON_ArrayForEach(b, json_get(i, "content"))
	{
		if (json_get(b, "text") && !says(json_str(b, "text")))
			return "a text without words";
		if (!type_is(b, *user ? "input_text" : "output_text") && !type_is(b, "input_image"))
			return "a content that nobody knows";
	}
	return NULL;
}

static const char *responses_item(struct rules *r, const cJSON *i, bool *user, bool *thinks)
{
	bool thought = *thinks;
	*user = *thinks = false;
	if (type_is(i, "function_call_output")) {
		*user = true;
		if (thought || !cJSON_IsString(json_get(i, "output")))
			return "reasoning without what followed it, or a result's output";
		return rule_result(r, json_str(i, "call_id"));
	}
	if (type_is(i, "function_call"))
		return is_object_text(json_str(i, "arguments"))
			       ? rule_call(r, json_str(i, "call_id"), json_str(i, "name"), 64)
			       : "arguments that are no object";
	if (type_is(i, "reasoning")) {
		*thinks = true;
		const char *id = json_str(i, "id");
		return id && map_put(&r->things, id, (void *)"there") ? "reasoning that comes twice" : NULL;
	}
	if (!type_is(i, "message"))
		return "an item that nobody knows";
	const char *fault = responses_message(i, user);
	return !fault && thought && *user ? "reasoning without what followed it" : fault;
}

static const char *rules_responses(struct rules *r, const cJSON *o)
{
	const cJSON *i, *input = json_get(o, "input");
	const char *fault = NULL;
	bool user = false, thinks = false;
	cJSON_ArrayForEach(i, input)
	{
		fault = fault ? fault : responses_item(r, i, &user, &thinks);
	}
	if (!fault && r->open)
		return "calls without a result";
	return fault ? fault : user ? NULL : "nothing to answer";
}

/* ---- */

static const char *rules_fault(const struct format *f, const struct buf *body)
{
	struct rules r = {0};
	CLEAN_JSON cJSON *o = json_parse(buf_str(body), body->n, NULL); /* strict: UTF-8, surrogates, keys, depth */
	const char *fault = !o			     ? "no JSON"
			    : f == &format_anthropic ? rules_anthropic(&r, o)
			    : f == &format_openai    ? rules_openai(&r, o)
						     : rules_responses(&r, o);
	map_release(&r.calls);
	map_release(&r.things);
	return fault;
}
