/* Token counts of an answer. Positions: Messages: message_start.usage (input and cache) and the last
 * message_delta.usage (output, cumulative); Responses: the last event's response.usage; Chat Completions: a chunk with
 * usage, which comes only if the request asked for it. What cannot be read is not guessed here. */
#include "usage.h"

#include <string.h>

#include "backend/base/json.h"

#define LINE_MAX_BYTES (4 << 20)
#define WORD	       64 /* bytes; no word that is looked for is longer */

void usage_start(struct usage_reader *r, enum api api, bool events)
{
	buf_release(&r->line);
	*r = (struct usage_reader){.api = api, .events = events};
}

void usage_release(struct usage_reader *r)
{
	buf_release(&r->line);
}

/* A number that cannot be one of tokens makes all figures of the answer worthless. */
static bool take(struct usage_reader *r, const cJSON *o, const char *key, int64_t *to)
{
	int64_t n;
	if (!o || !cJSON_IsNumber(json_get(o, key)))
		return false;
	if (!json_int(o, key, &n) || n < 0 || n > TOKENS_MAX) {
		r->odd = true;
		return false;
	}
	*to = n;
	return true;
}

/* A usage object of any of the formats. Fields that are null or missing leave what was known. */
static void take_usage(struct usage_reader *r, const cJSON *u)
{
	int64_t cached = 0;
	if (!cJSON_IsObject(u))
		return;
	if (r->api == API_MESSAGES) {
		r->input_seen |= take(r, u, "input_tokens", &r->u.input);
		take(r, u, "cache_read_input_tokens", &r->u.cache_read);
		take(r, u, "cache_creation_input_tokens", &r->u.cache_write);
		take(r, u, "output_tokens", &r->u.output);
		return;
	}
	bool chat = r->api == API_CHAT;
	r->input_seen |= take(r, u, chat ? "prompt_tokens" : "input_tokens", &r->u.input);
	r->output_seen |= take(r, u, chat ? "completion_tokens" : "output_tokens", &r->u.output);
	take(r, json_get(u, chat ? "prompt_tokens_details" : "input_tokens_details"), "cached_tokens", &cached);
	if (cached <= r->u.input) { /* they count it within the input */
		r->u.cache_read = cached;
		r->u.input -= cached;
	}
}

static bool is(const char *s, const char *word)
{
	return s && !strcmp(s, word);
}

static void messages_event(struct usage_reader *r, const cJSON *o, const char *type)
{
	if (is(type, "message_start")) {
		take_usage(r, json_get(json_get(o, "message"), "usage"));
	} else if (is(type, "message_delta")) {
		take_usage(r, json_get(o, "usage"));
		r->output_seen |= cJSON_IsObject(json_get(o, "usage"));
	}
	r->final |= is(type, "message_stop") || is(type, "error");
}

static void responses_event(struct usage_reader *r, const cJSON *o, const char *type)
{
	bool end = is(type, "response.completed") || is(type, "response.incomplete") || is(type, "response.failed");
	if (end)
		take_usage(r, json_get(json_get(o, "response"), "usage"));
	r->final |= end || is(type, "error");
}

static void chat_event(struct usage_reader *r, const cJSON *o)
{
	const cJSON *choice;
	take_usage(r, json_get(o, "usage"));
	cJSON_ArrayForEach(choice, json_get(o, "choices")) r->final |= json_str(choice, "finish_reason") != NULL;
	r->final |= cJSON_IsObject(json_get(o, "error"));
}

/* Most events carry text alone; only those that may say something are parsed. */
static bool may_tell(const char *p, size_t n)
{
	static const char *const words[] = {"usage\"",	 "message_stop",       "\"error\"",
					    "response.", "finish_reason\":\"", "finish_reason\": \""};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (memmem(p, n, words[i], strlen(words[i])))
			return true;
	return false;
}

static void event_line(struct usage_reader *r, const char *p, size_t n)
{
	if (n && p[n - 1] == '\r')
		n--;
	if (n < 6 || memcmp(p, "data:", 5))
		return;
	p += 5;
	n -= 5;
	if (*p == ' ') {
		p++;
		n--;
	}
	if (n == 6 && !memcmp(p, "[DONE]", 6)) {
		r->final = true;
		return;
	}
	/* every delta of a Responses stream says "response." */
	if (!may_tell(p, n) || (r->api == API_RESPONSES && memmem(p, n < 80 ? n : 80, ".delta\"", 7)))
		return;
	CLEAN_JSON cJSON *o = json_parse_cut(p, n, WORD, NULL);
	const char *type = o ? json_str(o, "type") : NULL;
	if (!o)
		return;
	if (r->api == API_MESSAGES)
		messages_event(r, o, type);
	else if (r->api == API_RESPONSES)
		responses_event(r, o, type);
	else
		chat_event(r, o);
}

static void keep(struct usage_reader *r, const char *p, size_t n)
{
	if (r->skip || r->line.n + n > LINE_MAX_BYTES) {
		r->skip = true;
		buf_reset(&r->line);
		return;
	}
	buf_add(&r->line, p, n);
}

void usage_feed(struct usage_reader *r, const char *p, size_t n)
{
	while (r->events && n) {
		const char *nl = memchr(p, '\n', n);
		if (!nl)
			break;
		size_t len = (size_t)(nl - p);
		if (r->line.n || r->skip) {
			keep(r, p, len);
			if (!r->skip)
				event_line(r, r->line.p, r->line.n);
			buf_reset(&r->line);
			r->skip = false;
		} else {
			event_line(r, p, len);
		}
		p = nl + 1;
		n -= len + 1;
	}
	keep(r, p, n);
}

void usage_end(struct usage_reader *r)
{
	if (r->events) {
		if (r->line.n && !r->skip)
			event_line(r, r->line.p, r->line.n);
	} else if (!r->skip && r->line.n) {
		CLEAN_JSON cJSON *u = NULL;
		r->final = !json_member(r->line.p, r->line.n, "usage", &u);
		take_usage(r, u);
		r->output_seen |= r->api == API_MESSAGES && cJSON_IsObject(u);
	}
	if (r->odd)
		r->input_seen = r->output_seen = false;
	buf_reset(&r->line);
}
