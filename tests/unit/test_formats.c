/* The providers' streams: what comes of them whole, cut at every byte, in pieces, and with events doubled, lost or out
 * of turn. Never half a call, never a block twice. */
#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/fault.h"
#include "check.h"
#include "streams.h"

static void calls_text(const struct model_reply *r, struct buf *out)
{
	for (size_t i = 0; i < r->n_calls; i++)
		buf_addf(out, "%s %s %s;", r->calls[i].id, r->calls[i].name, r->calls[i].input);
}

static void check_whole(const struct stream *s, const struct heard *h)
{
	CLEAN_BUF struct buf calls = BUF_INIT;
	CHECK_INT(h->rc, 0);
	calls_text(&h->reply, &calls);
	CHECK_STR(buf_str(&h->reply.text), s->text);
	CHECK_STR(buf_str(&h->streamed), s->text);
	CHECK_STR(buf_str(&h->reply.thinking), s->thinking);
	CHECK_STR(h->reply.stop, s->stop);
	CHECK_STR(buf_str(&calls), s->calls);
	CHECK_STR(h->reply.replay ? h->reply.replay : "", s->replay ? s->replay : "");
	CHECK_INT(h->reply.tokens_in, s->in_tokens);
	CHECK_INT(h->reply.tokens_out, s->out_tokens);
	CHECK_INT(h->reply.tokens_cached, s->cached);
}

TEST(a_whole_stream_in_pieces_of_any_size)
{
	for (size_t i = 0; i < ARRAY_LEN(streams); i++)
		for (size_t piece = 1; piece < 2000; piece += piece < 20 ? 1 : 97) {
			struct heard h;
			hear(&h, streams[i].format, streams[i].in, strlen(streams[i].in), piece, true);
			check_whole(&streams[i], &h);
			heard_release(&h);
		}
}

/* Cut off, however: no reply, another try is due, no call is there; or the reply is the whole one. */
static void cut_at(const struct stream *s, size_t n, bool clean)
{
	struct heard h;
	hear(&h, s->format, s->in, n, 4096, clean);
	if (!h.rc) {
		CLEAN_BUF struct buf calls = BUF_INIT;
		calls_text(&h.reply, &calls);
		CHECK_STR(buf_str(&calls), s->calls);
		CHECK_STR(buf_str(&h.reply.text), s->text);
	} else {
		CHECK_INT(h.reply.n_calls, 0);
		CHECK(fault_judge(&h.fault, h.err.text) == FAULT_RETRY);
		CHECK(h.streamed.n <= strlen(s->text) && !strncmp(buf_str(&h.streamed), s->text, h.streamed.n));
	}
	heard_release(&h);
}

TEST(a_stream_cut_at_every_byte)
{
	for (size_t i = 0; i < ARRAY_LEN(streams); i++)
		for (size_t n = 0; n < strlen(streams[i].in); n++) {
			cut_at(&streams[i], n, false);
			cut_at(&streams[i], n, true);
		}
}

/* Where each event of a stream begins, and behind the last one where it ends. */
static size_t events_of(const char *in, size_t at[64])
{
	size_t n = 0;
	at[n] = 0;
	for (const char *p = in; (p = strstr(p, "\n\n")); p += 2)
		at[++n] = (size_t)(p + 2 - in);
	return n;
}

static void check_damaged(const struct stream *s, const struct buf *in, size_t most)
{
	struct heard h;
	hear(&h, s->format, in->p, in->n, 4096, true);
	CHECK(h.rc ? !h.reply.n_calls : h.reply.n_calls <= most);
	heard_release(&h);
}

TEST(events_lost_doubled_or_swapped)
{
	for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
		const char *in = streams[i].in;
		size_t at[64], n = events_of(in, at);
		for (size_t k = 0; k < n; k++) {
			CLEAN_BUF struct buf lost = BUF_INIT;
			CLEAN_BUF struct buf twice = BUF_INIT;
			CLEAN_BUF struct buf swapped = BUF_INIT;
			buf_add(&lost, in, at[k]);
			buf_adds(&lost, in + at[k + 1]);
			buf_add(&twice, in, at[k + 1]);
			buf_adds(&twice, in + at[k]);
			size_t next = k + 2 <= n ? at[k + 2] : at[k + 1];
			buf_add(&swapped, in, at[k]);
			buf_add(&swapped, in + at[k + 1], next - at[k + 1]);
			buf_add(&swapped, in + at[k], at[k + 1] - at[k]);
			buf_adds(&swapped, in + next);
			check_damaged(&streams[i], &lost, 2);
			check_damaged(&streams[i], &twice, 2);
			check_damaged(&streams[i], &swapped,
				      3); /* numbers that come late make one more, which is no JSON */
		}
	}
}

/* ---- ends ---- */

#define A_START                                                                                                        \
	EV("message_start",                                                                                            \
	   "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}")
#define A_TEXT                                                                                                         \
	EV("x",                                                                                                        \
	   "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Hi\"}}")     \
	EV("x", "{\"type\":\"content_block_stop\",\"index\":0}")
#define A_CALL(args)                                                                                                   \
	EV("x", "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\"," \
		"\"name\":\"bash\",\"input\":{}}}")                                                                    \
	EV("x", "{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_"    \
		"json\":" args "}}")
#define A_END(why)                                                                                                     \
	EV("x", "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"" why "\",\"stop_details\":{\"category\":"   \
		"\"cyber\"}},\"usage\":{\"output_tokens\":3}}")                                                        \
	EV("x", "{\"type\":\"message_stop\"}")
#define C(delta, why) DATA("{\"choices\":[{\"delta\":" delta ",\"finish_reason\":" why "}]}")
#define R_CALL                                                                                                         \
	EV("x", "{\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"function_call\","    \
		"\"call_id\":\"c\",\"name\":\"bash\"}}")                                                               \
	EV("x", "{\"type\":\"response.function_call_arguments.delta\",\"output_index\":0,\"delta\":\"{}\"}")

static const struct end_case {
	const char *name;
	const struct format *format;
	const char *in;
	int fault; /* -1: it is a reply */
	const char *stop, *calls, *notice;
} ends[] = {
	{"end_turn", &format_anthropic, A_START A_TEXT A_END("end_turn"), -1, "end_turn", "", ""},
	{"pause_turn", &format_anthropic, A_START A_TEXT A_END("pause_turn"), -1, "pause_turn", "", ""},
	{"refusal", &format_anthropic, A_START A_TEXT A_END("refusal"), -1, "refusal", "", "refused to go on: cyber"},
	{"of tomorrow", &format_anthropic, A_START A_TEXT A_END("tomorrow"), -1, "end_turn", "", ""},
	{"max_tokens", &format_anthropic,
	 A_START A_TEXT A_CALL("\"{\\\"command\\\":\\\"rm -rf /\"") A_END("max_tokens"), -1, "max_tokens",
	 "t bash {\"command\":\"rm -rf /;", "cut off"},
	{"max_tokens before any argument", &format_anthropic, A_START A_CALL("\"\"") A_END("max_tokens"), -1,
	 "max_tokens", "t bash ;", "cut off"},
	{"max_tokens at what could be whole", &format_anthropic, A_START A_CALL("\"{}\"") A_END("max_tokens"), -1,
	 "max_tokens", "t bash ;", "cut off"},
	{"an open block", &format_anthropic, A_START A_CALL("\"{}\"") A_END("tool_use"), FAULT_RETRY, NULL, NULL, NULL},
	{"window", &format_anthropic, A_START A_TEXT A_END("model_context_window_exceeded"), FAULT_OVERFLOW, NULL, NULL,
	 NULL},
	{"error in it", &format_anthropic,
	 A_START EV("error",
		    "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}"),
	 FAULT_RETRY, NULL, NULL, NULL},
	{"money in it", &format_anthropic,
	 A_START EV("error",
		    "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"x\",\"details\":{"
		    "\"error_code\":\"enforced_spend_limit_reached\"}}}"),
	 FAULT_NEVER, NULL, NULL, NULL},
	{"two begins", &format_anthropic, A_START A_START A_TEXT A_END("end_turn"), FAULT_RETRY, NULL, NULL, NULL},
	{"no JSON", &format_anthropic, A_START DATA("{oops"), FAULT_RETRY, NULL, NULL, NULL},
	{"nothing", &format_anthropic, "", FAULT_RETRY, NULL, NULL, NULL},

	{"stop", &format_openai, C("{\"content\":\"Hi\"}", "null") C("{}", "\"stop\"") DATA("[DONE]"), -1, "end_turn",
	 "", ""},
	{"stop with calls", &format_openai,
	 C("{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"bash\",\"arguments\":\"{}\"}}]}", "\"stop\""), -1,
	 "tool_use", "call_5_1 bash {};", ""},
	{"no numbers", &format_openai,
	 C("{\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"bash\",\"arguments\":\"{}\"}},{\"id\":\"b\","
	   "\"function\":"
	   "{\"name\":\"read\",\"arguments\":{\"path\":\"x\"}}}]}",
	   "\"tool_calls\""),
	 -1, "tool_use", "call_5_1 bash {};call_5_2 read {\"path\":\"x\"};", ""},
	{"the same number", &format_openai,
	 C("{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"bash\",\"arguments\":\"{}\"}}]}",
	   "null") C("{\"tool_calls\":[{\"index\":0,\"id\":\"b\",\"function\":{\"name\":\"read\",\"arguments\":\"{}\"}}"
		     "]}",
		     "\"tool_calls\""),
	 -1, "tool_use", "call_5_1 bash {};call_5_2 read {};", ""},
	{"no arguments", &format_openai,
	 C("{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"bash\"}}]}", "\"tool_calls\""), -1, "tool_use",
	 "call_5_1 bash {};", ""},
	{"length in a call", &format_openai,
	 C("{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"bash\",\"arguments\":\"{}\"}}]}", "\"length\""), -1,
	 "max_tokens", "call_5_1 bash ;", "cut off"},
	{"length of nothing", &format_openai, C("{}", "\"length\""), FAULT_OVERFLOW, NULL, NULL, NULL},
	{"filter", &format_openai, C("{\"content\":\"a\"}", "\"content_filter\""), -1, "refusal", "", "filter"},
	{"refusal", &format_openai, C("{\"refusal\":\"No.\"}", "\"stop\""), -1, "refusal", "", ""},
	{"network_error", &format_openai, C("{\"content\":\"a\"}", "\"network_error\""), FAULT_RETRY, NULL, NULL, NULL},
	{"error", &format_openai, DATA("{\"error\":{\"message\":\"x\",\"code\":\"context_length_exceeded\"}}"),
	 FAULT_OVERFLOW, NULL, NULL, NULL},
	{"error in words", &format_openai, DATA("{\"error\":\"the runner has ended\"}"), FAULT_RETRY, NULL, NULL, NULL},
	{"only DONE", &format_openai, DATA("[DONE]"), FAULT_RETRY, NULL, NULL, NULL},

	{"incomplete", &format_responses,
	 R_CALL EV("x", "{\"type\":\"response.incomplete\",\"response\":{\"incomplete_details\":{\"reason\":"
			"\"max_output_tokens\"}}}"),
	 -1, "max_tokens", "c bash ;", "cut off"},
	{"completed, call open", &format_responses, R_CALL EV("x", "{\"type\":\"response.completed\",\"response\":{}}"),
	 FAULT_RETRY, NULL, NULL, NULL},
	{"failed", &format_responses,
	 EV("x",
	    "{\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\",\"message\":\"x\"}}}"),
	 FAULT_RETRY, NULL, NULL, NULL},
	{"failed: window", &format_responses,
	 EV("x", "{\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"context_length_exceeded\"}}}"),
	 FAULT_OVERFLOW, NULL, NULL, NULL},
	{"error", &format_responses,
	 EV("error", "{\"type\":\"error\",\"code\":\"insufficient_quota\",\"message\":\"x\"}"), FAULT_NEVER, NULL, NULL,
	 NULL},
	{"text without deltas", &format_responses,
	 EV("x",
	    "{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"message\",\"content\":[{"
	    "\"type\":\"output_text\",\"text\":\"Hi\"}]}}")
		 EV("x", "{\"type\":\"response.completed\",\"response\":{}}"),
	 -1, "end_turn", "", ""},
};

TEST(how_an_answer_ends)
{
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		const struct end_case *e = &ends[i];
		CLEAN_BUF struct buf calls = BUF_INIT;
		struct heard h;
		int before = check_failed;
		check_failed = 0;
		hear(&h, e->format, e->in, strlen(e->in), 4096, true);
		calls_text(&h.reply, &calls);
		if (e->fault >= 0) {
			CHECK(h.rc < 0);
			CHECK_INT((int)fault_judge(&h.fault, h.err.text), e->fault);
		} else {
			CHECK_INT(h.rc, 0);
			CHECK_STR(h.reply.stop, e->stop);
			CHECK_STR(buf_str(&calls), e->calls);
			CHECK(strstr(h.reply.notice, e->notice) != NULL);
			CHECK(!*h.reply.notice == !*e->notice);
			CHECK_INT(h.reply.more, !strcmp(e->stop, "pause_turn"));
		}
		if (check_failed)
			printf("# in %s of %s: %s\n", e->name, e->format->kind, h.err.text);
		check_failed |= before;
		heard_release(&h);
	}
}

TEST(half_a_surrogate_does_not_end_an_answer)
{
	static const char in[] =
		DATA("{\"choices\":[{\"delta\":{\"content\":\"a\\ud83d|\\udc26|\\ud83d\\udc26|\\u0000|\\\\u0000\"},"
		     "\"finish_reason\":\"stop\"}]}") DATA("[DONE]");
	struct heard h;
	hear(&h, &format_openai, in, strlen(in), 7, true);
	CHECK_INT(h.rc, 0);
	CHECK_STR(buf_str(&h.reply.text), "a\xEF\xBF\xBD|\xEF\xBF\xBD|\xF0\x9F\x90\xA6|\xEF\xBF\xBD|\\u0000");
	heard_release(&h);
}

TEST(an_answer_without_end_is_refused)
{
	CLEAN_BUF struct buf in = BUF_INIT;
	struct heard h;
	CLEAN_FREE char *long_text = xmalloc(100001);
	memset(long_text, 'x', 100000);
	long_text[100000] = 0;
	for (int i = 0; i < 60; i++)
		buf_addf(&in, "data: {\"choices\":[{\"delta\":{\"content\":\"%s\"}}]}\n\n", long_text);
	hear(&h, &format_openai, in.p, in.n, 65536, true);
	CHECK_INT(h.rc, -EFBIG);
	CHECK(fault_judge(&h.fault, h.err.text) == FAULT_NEVER);
	heard_release(&h);
}

TEST(blocks_without_end_are_refused)
{
	CLEAN_BUF struct buf in = BUF_INIT;
	CLEAN_BUF struct buf raw = BUF_INIT;
	struct heard h;
	buf_adds(&in, A_START);
	for (int i = 0; i < 3000; i++)
		buf_addf(
			&in,
			"data: {\"type\":\"content_block_start\",\"index\":%d,\"content_block\":{\"type\":\"tool_use\","
			"\"id\":\"t\",\"name\":\"bash\"}}\n\n",
			i);
	hear(&h, &format_anthropic, in.p, in.n, 65536, true);
	CHECK_INT(h.rc, -EFBIG);
	heard_release(&h);
	buf_adds(&raw,
		 "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"reasoning\","
		 "\"encrypted_content\":\"");
	for (int i = 0; i < 5 << 20; i++)
		buf_addc(&raw, 'x');
	buf_adds(&raw, "\"}}\n\n");
	hear(&h, &format_responses, raw.p, raw.n, 65536, true);
	CHECK_INT(h.rc, -EFBIG);
	heard_release(&h);
}

/* ---- what is sent ---- */

#define T(s) ((char *)(s))
static struct item items[] = {
	{.kind = ITEM_USER, .text = T("first")},
	{.kind = ITEM_ASSISTANT, .text = T("I look \xF0\x9F\x90\xA6 now."), .model = T("m"), .replay = NULL},
	{.kind = ITEM_CALL, .id = T("toolu_1"), .name = T("bash"), .input = T("{\"command\":\"ls\"}")},
	{.kind = ITEM_CALL, .id = T("functions.read:0"), .name = T("no such tool!"), .input = T("{}")},
	{.kind = ITEM_RESULT, .id = T("toolu_1"), .name = T("bash"), .text = T("a\n")},
	{.kind = ITEM_RESULT, .id = T("functions.read:0"), .name = T("no such tool!"), .text = T("bad"), .error = true},
	{.kind = ITEM_USER, .text = T("in between")},
	{.kind = ITEM_ASSISTANT, .text = T("done"), .model = T("other")},
	{.kind = ITEM_USER, .text = T("second")},
};

static cJSON *body_of(const struct format *f, const struct model_info *m, const char *model, size_t n, struct buf *text)
{
	struct context c = {items, n};
	struct model_request q = {.model = model, .n = 9, .system = "be \"good\"", .context = &c};
	struct err err = ERR_INIT;
	buf_reset(text);
	f->body(&q, m, text);
	cJSON *o = json_parse(buf_str(text), text->n, &err); /* strict: no key twice */
	CHECK_STR(err.text, "");
	return o;
}

static struct model_info info(const char *thinking, int quirks)
{
	struct model_info m = {.name = "m", .id = "m-id", .max_output = 9000, .provider.quirks = quirks};
	snprintf(m.thinking, sizeof m.thinking, "%s", thinking);
	return m;
}

TEST(messages_of_anthropic)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	struct model_info m = info("2048", 0);
	items[1].replay = (char *)ANTHROPIC_REPLAY;
	CLEAN_JSON cJSON *o = body_of(&format_anthropic, &m, "m", 6, &text);
	const char *p = strstr(text.p, "\"messages\":");
	CHECK_STR(
		p,
		"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"first\",\"cache_control\":"
		"{"
		"\"type\":\"ephemeral\"}}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":"
		"\"Let "
		"me \\\"see\\\" \xC3\xA9\\nmore\",\"signature\":\"EqRk/+==\"},{\"type\":\"redacted_thinking\",\"data\":"
		"\"Zm9v\"},{\"type\":\"text\",\"text\":\"I look \xF0\x9F\x90\xA6 now.\"},{\"type\":\"tool_use\",\"id\":"
		"\"toolu_1\",\"name\":\"bash\",\"input\":{\"command\":\"ls\"}},{\"type\":\"tool_use\",\"id\":"
		"\"call_5b4c7fc9f36ea68e\",\"name\":\"no_such_tool_\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{"
		"\"type\":\"tool_result\",\"tool_use_id\":\"toolu_1\",\"content\":\"a\\n\"},{\"type\":\"tool_result\","
		"\"tool_use_id\":\"call_5b4c7fc9f36ea68e\",\"content\":\"bad\",\"is_error\":true,\"cache_control\":{"
		"\"type\":"
		"\"ephemeral\"}}]}]}");
	CHECK(strstr(text.p, "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2048}") != NULL);
	CHECK(strstr(text.p, "\"max_tokens\":9000") != NULL);
	m.window = 30000;
	CLEAN_JSON cJSON *small = body_of(&format_anthropic, &m, "m", 6, &text);
	CHECK(strstr(text.p, "\"max_tokens\":5000") != NULL);
	/* another model gets no thinking back, and cannot be asked to think in the middle of that turn */
	CLEAN_JSON cJSON *other = body_of(&format_anthropic, &m, "n", 6, &text);
	CHECK(!strstr(text.p, "thinking"));
	CHECK(strstr(text.p, "I look") && strstr(text.p, "toolu_1"));
	items[1].replay = NULL;
}

/* All that stood before the last message stands there again, byte for byte, but for the marks. */
TEST(a_longer_conversation_begins_with_the_same_bytes)
{
	static const struct format *const all[] = {&format_anthropic, &format_openai, &format_responses};
	struct model_info m = info("off", 0);
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		CLEAN_BUF struct buf longer = BUF_INIT;
		CLEAN_BUF struct buf text = BUF_INIT;
		static const size_t ends_at[] = {1, 6, 7, 9};
		for (size_t k = 0; k < ARRAY_LEN(ends_at); k++) {
			CLEAN_JSON cJSON *o = body_of(all[i], &m, "m", ends_at[k], &text);
			char *mark;
			while ((mark = strstr(text.p, ",\"cache_control\":{\"type\":\"ephemeral\"}"))) {
				size_t at = (size_t)(mark - text.p),
				       size = strlen(",\"cache_control\":{\"type\":\"ephemeral\"}");
				memmove(mark, mark + size, text.n - at - size + 1);
				text.n -= size;
			}
			size_t tail = strspn("}]", "}]") + 4; /* brackets that close the last message and the whole */
			CHECK(longer.n < tail || (text.n > longer.n && !memcmp(text.p, longer.p, longer.n - tail)));
			buf_reset(&longer);
			buf_add(&longer, text.p, text.n);
		}
	}
}

TEST(chat_completions_and_their_quirks)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	struct model_info m = info("high", 0);
	CLEAN_JSON cJSON *o = body_of(&format_openai, &m, "m", 7, &text);
	const char *p = strstr(text.p, ",\"messages\":");
	CHECK_STR(p,
		  ",\"messages\":[{\"role\":\"system\",\"content\":\"be \\\"good\\\"\"},{\"role\":\"user\",\"content\":"
		  "\"first\"},{\"role\":\"assistant\",\"content\":\"I look \xF0\x9F\x90\xA6 "
		  "now.\",\"tool_calls\":[{\"id\":"
		  "\"toolu_1\",\"type\":\"function\",\"function\":{\"name\":\"bash\",\"arguments\":\"{\\\"command\\\":"
		  "\\\"ls\\\"}\"}},{\"id\":\"call_5b4c7fc9f36ea68e\",\"type\":\"function\",\"function\":{\"name\":"
		  "\"no_such_tool_\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"toolu_1\","
		  "\"content\":"
		  "\"a\\n\"},{\"role\":\"tool\",\"tool_call_id\":\"call_5b4c7fc9f36ea68e\",\"content\":\"bad\"},{"
		  "\"role\":"
		  "\"user\",\"content\":\"in between\"}]}");
	CHECK(strstr(text.p, "\"max_completion_tokens\":9000") && strstr(text.p, "\"include_usage\":true") &&
	      strstr(text.p, "\"reasoning_effort\":\"high\""));
	char *kept = items[1].text;
	items[1].text = (char *)"";
	m = info("off", QUIRK_MAX_TOKENS | QUIRK_NO_USAGE | QUIRK_TOOL_NAME | QUIRK_NULL_CONTENT);
	CLEAN_JSON cJSON *other = body_of(&format_openai, &m, "m", 7, &text);
	CHECK(strstr(text.p, "\"max_tokens\":9000") && !strstr(text.p, "include_usage") &&
	      !strstr(text.p, "reasoning_effort"));
	CHECK(strstr(text.p, "\"content\":null,\"tool_calls\"") && strstr(text.p, "\"name\":\"bash\",\"content\":\"a"));
	items[1].text = kept;
}

TEST(responses_give_the_reasoning_back)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	struct model_info m = info("on", 0);
	char *kept = items[1].text;
	items[1].text = (char *)"I look \xE2\x82\xAC";
	items[1].replay = (char *)RESPONSES_REPLAY;
	CLEAN_JSON cJSON *o = body_of(&format_responses, &m, "m", 6, &text);
	const char *p = strstr(text.p, ",\"input\":");
	CHECK_STR(
		p,
		",\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
		"\"first\"}]},{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"type\":\"summary_text\",\"text\":"
		"\"thinking\"}],\"encrypted_content\":\"gAAA/"
		"b+=\"},{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{"
		"\"type\":\"output_text\",\"text\":\"I look \xE2\x82\xAC\"}]},{\"type\":\"function_call\",\"call_id\":"
		"\"toolu_1\",\"name\":\"bash\",\"arguments\":\"{\\\"command\\\":\\\"ls\\\"}\"},{\"type\":\"function_"
		"call\","
		"\"call_id\":\"call_5b4c7fc9f36ea68e\",\"name\":\"no_such_tool_\",\"arguments\":\"{}\"},{\"type\":"
		"\"function_call_output\",\"call_id\":\"toolu_1\",\"output\":\"a\\n\"},{\"type\":\"function_call_"
		"output\","
		"\"call_id\":\"call_5b4c7fc9f36ea68e\",\"output\":\"bad\"}]}");
	CHECK(strstr(text.p, "\"store\":false") && strstr(text.p, "reasoning.encrypted_content"));
	/* another format of the same name, or a text that is not the one: nothing is given back that does not fit */
	CLEAN_JSON cJSON *other = body_of(&format_anthropic, &m, "m", 6, &text);
	CHECK(!strstr(text.p, "rs_1"));
	items[1].text = (char *)"I look at something else";
	CLEAN_JSON cJSON *third = body_of(&format_responses, &m, "m", 6, &text);
	CHECK(!strstr(text.p, "rs_1") && strstr(text.p, "something else"));
	items[1].text = kept;
	items[1].replay = NULL;
}

/* An image's bytes go as base64; a model that takes none is told so. */
TEST(images)
{
	static const struct {
		const struct format *f;
		const char *shown;
	} all[] = {
		{&format_anthropic, "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\","
				    "\"data\":\"iVBORw==\"}"},
		{&format_openai, "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,iVBORw==\"}}"},
		{&format_responses, "{\"type\":\"input_image\",\"image_url\":\"data:image/png;base64,iVBORw==\"}"}};
	struct item_image image = {.name = T("a.png"), .media = T("image/png")};
	buf_adds(&image.data, "\x89PNG");
	items[0].images = &image;
	items[0].n_images = 1;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		CLEAN_BUF struct buf text = BUF_INIT;
		struct model_info m = info("off", 0);
		CLEAN_JSON cJSON *none = body_of(all[i].f, &m, "m", 1, &text);
		CHECK(!strstr(text.p, "iVBORw") &&
		      strstr(text.p, "[the image a.png is not shown: this model takes no images]"));
		m.images = true;
		CLEAN_JSON cJSON *o = body_of(all[i].f, &m, "m", 1, &text);
		CHECK(strstr(text.p, all[i].shown) != NULL);
		CHECK(strstr(text.p, "first") != NULL);
	}
	buf_release(&image.data);
	items[0].n_images = 0;
	items[0].images = NULL;
}

TEST(base64_of_any_length)
{
	CLEAN_BUF struct buf data = BUF_INIT;
	for (size_t n = 0; n < 7000; n += n < 10 ? 1 : 1021) {
		CLEAN_BUF struct buf whole = BUF_INIT;
		CLEAN_BUF struct buf text = BUF_INIT;
		while (data.n < n)
			buf_addc(&data, (char)(data.n * 7));
		given_base64(&text, &data);
		buf_reserve(&whole, n * 2 + 8);
		CHECK_INT(EVP_EncodeBlock((unsigned char *)whole.p, (const unsigned char *)buf_str(&data), (int)n),
			  (long long)text.n);
		CHECK(!text.n || !memcmp(whole.p, text.p, text.n));
	}
}

TEST(arguments_that_are_nested_too_deep_do_not_spoil_the_request)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_BUF struct buf deep = BUF_INIT;
	struct model_info m = info("off", 0);
	buf_adds(&deep, "{\"a\":");
	for (int i = 0; i < 62; i++)
		buf_addc(&deep, '[');
	for (int i = 0; i < 62; i++)
		buf_addc(&deep, ']');
	buf_addc(&deep, '}');
	CHECK_INT(json_check(deep.p, deep.n, NULL), 0);
	items[2].input = deep.p;
	CLEAN_JSON cJSON *o = body_of(&format_anthropic, &m, "m", 6, &text);
	CHECK(o != NULL);
	items[2].input = (char *)"{\"command\":\"ls\"}";
}

CHECK_MAIN()
