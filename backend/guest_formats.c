/* What each agent prints, a JSON object a line, as events. The shapes are those of Claude Code 2.1 (stream-json),
 * OpenCode 1.18 (run --format json), Codex 0.171 (exec --json) and pi 0.74 (--mode json); what is unknown is passed
 * over. Pure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "guest_read.h"

static int64_t number(const cJSON *o, const char *key)
{
	int64_t v = 0;
	json_int(o, key, &v);
	return v > 0 ? v : 0;
}

static bool is(const char *word, const char *what)
{
	return word && !strcmp(word, what);
}

static const cJSON *list(const cJSON *o)
{
	return cJSON_IsArray(o) ? o : NULL;
}

static void call(struct guest_reader *r, const char *id, const char *name, const cJSON *input)
{
	CLEAN_BUF struct buf args = BUF_INIT;
	if (cJSON_IsObject(input))
		json_print(&args, input);
	else
		buf_adds(&args, "{}");
	if (id && name)
		guest_add(r, GUEST_CALL, id, name, buf_str(&args), false);
}

/* The text of a string, or of a list of blocks. */
static void put_text(struct buf *out, const cJSON *content)
{
	const cJSON *b;
	if (cJSON_IsString(content))
		buf_adds(out, content->valuestring);
	cJSON_ArrayForEach(b, list(content))
	{
		const char *text = json_str(b, "text"), *type = json_str(b, "type");
		if (text)
			buf_addf(out, "%s%s", out->n && !buf_ends(out, "\n") ? "\n" : "", text);
		else if (type)
			buf_addf(out, "%s[%s]", out->n && !buf_ends(out, "\n") ? "\n" : "", type);
	}
}

static void result(struct guest_reader *r, const char *id, const cJSON *content, bool error)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	put_text(&text, content);
	if (id)
		guest_add(r, GUEST_RESULT, id, NULL, buf_str(&text), error);
}

static void text(struct guest_reader *r, const char *words)
{
	if (words && words[strspn(words, " \t\r\n")])
		guest_add(r, GUEST_TEXT, NULL, NULL, words, false);
}

static void fault(struct guest_reader *r, const char *words, const char *otherwise)
{
	guest_add(r, GUEST_FAULT, NULL, NULL, words && *words ? words : otherwise, true);
}

/* ---- Claude Code ---- */

static void claude_blocks(struct guest_reader *r, const cJSON *content, bool assistant)
{
	const cJSON *b;
	if (cJSON_IsString(content) && assistant)
		text(r, content->valuestring);
	cJSON_ArrayForEach(b, list(content))
	{
		const char *type = json_str(b, "type");
		if (assistant && is(type, "text"))
			text(r, json_str(b, "text"));
		else if (assistant && is(type, "tool_use"))
			call(r, json_str(b, "id"), json_str(b, "name"), json_get(b, "input"));
		else if (!assistant && is(type, "tool_result"))
			result(r, json_str(b, "tool_use_id"), json_get(b, "content"), json_bool(b, "is_error", false));
	}
}

void guest_claude(struct guest_reader *r, const cJSON *o)
{
	const char *type = json_str(o, "type");
	const cJSON *event = json_get(o, "event"), *usage = json_get(o, "usage");
	if (json_str(o, "parent_tool_use_id")) /* of an agent below it: its task is one call of this one */
		return;
	if (is(type, "system") && is(json_str(o, "subtype"), "init"))
		guest_add(r, GUEST_TALK, json_str(o, "session_id"), NULL, NULL, false);
	else if (is(type, "stream_event") && is(json_str(json_get(event, "delta"), "type"), "text_delta"))
		guest_piece(r, json_str(json_get(event, "delta"), "text"));
	else if (is(type, "assistant") || is(type, "user"))
		claude_blocks(r, json_get(json_get(o, "message"), "content"), is(type, "assistant"));
	if (!is(type, "result"))
		return;
	int64_t cached = number(usage, "cache_read_input_tokens"),
		in = number(usage, "input_tokens") + number(usage, "cache_creation_input_tokens") + cached;
	guest_used(r, number(o, "num_turns"), in, number(usage, "output_tokens"), cached);
	if (json_bool(o, "is_error", false))
		fault(r, json_str(o, "result"), json_str(o, "subtype") ? json_str(o, "subtype") : "it failed");
}

/* ---- OpenCode ---- */

static void opencode_tool(struct guest_reader *r, const cJSON *part)
{
	const cJSON *state = json_get(part, "state");
	const char *id = json_str(part, "callID"), *status = json_str(state, "status");
	call(r, id, json_str(part, "tool"), json_get(state, "input"));
	if (is(status, "error"))
		result(r, id, json_get(state, "error"), true);
	else if (is(status, "completed"))
		result(r, id, json_get(state, "output"), false);
}

void guest_opencode(struct guest_reader *r, const cJSON *o)
{
	const char *type = json_str(o, "type");
	const cJSON *part = json_get(o, "part"), *tokens = json_get(part, "tokens"), *error = json_get(o, "error");
	if (is(type, "step_start"))
		guest_add(r, GUEST_TALK, json_str(o, "sessionID"), NULL, NULL, false);
	else if (is(type, "text"))
		text(r, json_str(part, "text"));
	else if (is(type, "tool_use"))
		opencode_tool(r, part);
	else if (is(type, "error"))
		fault(r, json_str(json_get(error, "data"), "message"),
		      json_str(error, "name") ? json_str(error, "name") : "it failed");
	if (!is(type, "step_finish"))
		return;
	int64_t cached = number(json_get(tokens, "cache"), "read"),
		in = number(tokens, "input") + number(json_get(tokens, "cache"), "write") + cached;
	guest_used(r, 1, in, number(tokens, "output") + number(tokens, "reasoning"), cached);
}

/* ---- Codex ---- */

/* Arguments of an item, under the names that it has there. */
static void codex_call(struct guest_reader *r, const cJSON *item, const char *id, const char *type)
{
	static const char *const keys[] = {"command", "changes", "server", "tool", "arguments", "query"};
	CLEAN_JSON cJSON *input = cJSON_CreateObject();
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (json_get(item, keys[i]))
			cJSON_AddItemToObject(input, keys[i], cJSON_Duplicate(json_get(item, keys[i]), true));
	call(r, id, is(type, "command_execution") ? "bash" : type, input);
}

static void codex_result(struct guest_reader *r, const cJSON *item, const char *id)
{
	static const char *const keys[] = {"aggregated_output", "result", "error"};
	const char *status = json_str(item, "status");
	int64_t code = 0;
	CLEAN_BUF struct buf out = BUF_INIT;
	for (size_t i = 0; i < ARRAY_LEN(keys) && !out.n; i++) {
		const cJSON *v = json_get(item, keys[i]);
		put_text(&out, cJSON_IsObject(v) ? json_get(v, json_get(v, "message") ? "message" : "content") : v);
	}
	json_int(item, "exit_code", &code);
	if (code)
		buf_addf(&out, "%s[exit code %lld]\n", out.n && !buf_ends(&out, "\n") ? "\n" : "", (long long)code);
	guest_add(r, GUEST_RESULT, id, NULL, buf_str(&out), code || is(status, "failed") || is(status, "declined"));
}

static void codex_item(struct guest_reader *r, const cJSON *item, bool done)
{
	static const char *const tools[] = {"command_execution", "file_change", "mcp_tool_call", "web_search"};
	const char *type = json_str(item, "type"), *id = json_str(item, "id");
	if (done && is(type, "agent_message"))
		text(r, json_str(item, "text"));
	if (done && is(type, "error") && json_str(item, "message"))
		guest_add(r, GUEST_NOTE, NULL, NULL, json_str(item, "message"), false);
	for (size_t i = 0; i < ARRAY_LEN(tools); i++)
		if (is(type, tools[i]) && id) {
			codex_call(r, item, id, type); /* it has no effect if the begin was told */
			if (done)
				codex_result(r, item, id);
		}
}

void guest_codex(struct guest_reader *r, const cJSON *o)
{
	const char *type = json_str(o, "type");
	const cJSON *usage = json_get(o, "usage"), *item = json_get(o, "item");
	if (is(type, "thread.started"))
		guest_add(r, GUEST_TALK, json_str(o, "thread_id"), NULL, NULL, false);
	else if (is(type, "item.started"))
		codex_item(r, item, false);
	else if (is(type, "item.completed"))
		codex_item(r, item, true);
	else if (is(type, "turn.completed"))
		guest_used(r, 1, number(usage, "input_tokens"), number(usage, "output_tokens"),
			   number(usage, "cached_input_tokens"));
	else if (is(type, "turn.failed"))
		fault(r, json_str(json_get(o, "error"), "message"), "the turn failed");
	else if (is(type, "error") && json_str(o, "message"))
		guest_add(r, GUEST_NOTE, NULL, NULL, json_str(o, "message"), false);
}

/* ---- pi ---- */

/* One message is one line: its texts first, as one, then its calls, in their order. */
static void pi_assistant(struct guest_reader *r, const cJSON *m)
{
	const cJSON *b, *content = json_get(m, "content"), *usage = json_get(m, "usage");
	CLEAN_BUF struct buf words = BUF_INIT;
	cJSON_ArrayForEach(b, list(content))
	{
		if (is(json_str(b, "type"), "text") && json_str(b, "text"))
			buf_addf(&words, "%s%s", words.n ? "\n\n" : "", json_str(b, "text"));
	}
	text(r, buf_str(&words));
	cJSON_ArrayForEach(b, list(content))
	{
		if (is(json_str(b, "type"), "toolCall"))
			call(r, json_str(b, "id"), json_str(b, "name"), json_get(b, "arguments"));
	}
	int64_t cached = number(usage, "cacheRead"), in = number(usage, "input") + number(usage, "cacheWrite") + cached;
	guest_used(r, 1, in, number(usage, "output"), cached);
	if (is(json_str(m, "stopReason"), "error"))
		fault(r, json_str(m, "errorMessage"), "the model's request failed");
}

void guest_pi(struct guest_reader *r, const cJSON *o)
{
	const char *type = json_str(o, "type");
	const cJSON *m = json_get(o, "message");
	const char *role = json_str(m, "role");
	if (is(type, "session"))
		guest_add(r, GUEST_TALK, json_str(o, "id"), NULL, NULL, false);
	else if (is(type, "piece")) /* what the filter that it is started with leaves of its updates */
		guest_piece(r, json_str(o, "text"));
	else if (is(type, "message_end") && is(role, "assistant"))
		pi_assistant(r, m);
	else if (is(type, "message_end") && is(role, "toolResult"))
		result(r, json_str(m, "toolCallId"), json_get(m, "content"), json_bool(m, "isError", false));
}
