/* What agents print, as events: every kind of line, cut everywhere, and what a hostile one prints. */
#include <stdlib.h>

#include "backend/base/mem.h"
#include "backend/guest_read.h"
#include "check.h"

static void show_event(struct buf *out, const struct guest_event *e)
{
	static const char *const names[] = {"talk", "text", "call", "result", "used", "fault", "note"};
	buf_addf(out, "%s", names[e->what]);
	if (e->what == GUEST_USED)
		buf_addf(out, " %d %d %d %d", (int)e->requests, (int)e->in, (int)e->out, (int)e->cached);
	const char *words[] = {e->id, e->name, e->text};
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (words[i])
			buf_addf(out, " %s", words[i]);
	buf_addf(out, "%s;", e->what == GUEST_RESULT && e->error ? "!" : "");
}

/* Feeds in pieces and takes what is ready each time, as a run does; the rest at the end. again: the reader is made anew
 * from what was taken, as by a daemon that was killed. */
static void run(guest_format *format, const char *in, size_t n, size_t first, size_t piece, bool again, struct buf *out)
{
	struct guest_reader r;
	guest_reader_init(&r, format, 0);
	for (size_t at = 0; at < n;) {
		size_t part = at < first ? first : piece;
		part = part < n - at ? part : n - at;
		guest_feed(&r, in + at, part);
		at += part;
		CHECK_INT(guest_fed(&r), at);
		size_t ready = guest_ready(&r);
		for (size_t i = 0; i < ready; i++)
			for (size_t k = 0; k < r.lines[i].n; k++)
				show_event(out, &r.lines[i].events[k]);
		uint64_t offset = guest_offset(&r, ready);
		guest_drop(&r, ready);
		if (!again)
			continue;
		guest_reader_release(&r);
		guest_reader_init(&r, format, offset);
		guest_feed(&r, in + offset, at - offset);
	}
	guest_feed_end(&r);
	for (size_t i = 0; i < r.n; i++)
		for (size_t k = 0; k < r.lines[i].n; k++)
			show_event(out, &r.lines[i].events[k]);
	guest_reader_release(&r);
}

static const struct {
	guest_format *format;
	const char *in, *out;
} cases[] = {
	{guest_claude,
	 "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s-1\",\"tools\":[]}\n"
	 "{\"type\":\"system\",\"subtype\":\"thinking_tokens\",\"session_id\":\"s-1\"}\n"
	 "{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\","
	 "\"text\":\"I lo\"}},\"parent_tool_use_id\":null}\n"
	 "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":"
	 "\"x\"}]}}\n"
	 "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"I look \xC3\xA9\"}]}}\n"
	 "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"Bash\","
	 "\"input\":{\"command\":\"ls\"}}]}}\n"
	 "{\"type\":\"assistant\",\"parent_tool_use_id\":\"t1\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":"
	 "\"below\"}]}}\n"
	 "a warning between\n\n"
	 "{\"type\":\"user\",\"message\":{\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":[{"
	 "\"type\":\"text\",\"text\":\"a\\nb\"},{\"type\":\"image\"}],\"is_error\":true}]}}\n"
	 "{\"type\":\"user\",\"message\":{\"content\":\"words of the user\"}}\n"
	 "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"Done.\"}]}}\n"
	 "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"num_turns\":2,\"result\":\"Done.\","
	 "\"usage\":{"
	 "\"input_tokens\":5,\"cache_creation_input_tokens\":10,\"cache_read_input_tokens\":100,\"output_tokens\":9}}"
	 "\n",
	 "talk s-1;text I look \xC3\xA9;call t1 Bash {\"command\":\"ls\"};result t1 a\nb\n[image]!;text Done.;used 2 "
	 "115 9 "
	 "100;"},
	{guest_claude,
	 "{\"type\":\"result\",\"subtype\":\"error_during_execution\",\"is_error\":true,\"num_turns\":0,\"usage\":null}"
	 "\n"
	 "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\"num_turns\":1,\"result\":\"API Error: "
	 "403\"}\n",
	 "used 0 0 0 0;fault error_during_execution;used 1 0 0 0;fault API Error: 403;"},
	{guest_opencode,
	 "{\"type\":\"step_start\",\"sessionID\":\"ses_1\",\"part\":{\"type\":\"step-start\"}}\n"
	 "{\"type\":\"text\",\"sessionID\":\"ses_1\",\"part\":{\"type\":\"text\",\"text\":\"I look.\"}}\n"
	 "{\"type\":\"tool_use\",\"part\":{\"tool\":\"bash\",\"callID\":\"c1\",\"state\":{\"status\":\"completed\","
	 "\"input\":{"
	 "\"command\":\"ls\"},\"output\":\"a\\n\"}}}\n"
	 "{\"type\":\"tool_use\",\"part\":{\"tool\":\"edit\",\"callID\":\"c2\",\"state\":{\"status\":\"error\","
	 "\"input\":{},"
	 "\"error\":\"no file\"}}}\n"
	 "{\"type\":\"step_finish\",\"part\":{\"tokens\":{\"input\":10,\"output\":5,\"reasoning\":2,\"cache\":{"
	 "\"read\":40,"
	 "\"write\":1}}}}\n"
	 "{\"type\":\"text\",\"part\":{\"text\":\"Done.\"}}\n"
	 "{\"type\":\"text\",\"part\":{\"text\":\" \\n\"}}\n",
	 "talk ses_1;text I look.;call c1 bash {\"command\":\"ls\"};result c1 a\n;call c2 edit {};result c2 no "
	 "file!;used 1 51 "
	 "7 40;text Done.;"},
	{guest_opencode,
	 "{\"type\":\"error\",\"error\":{\"name\":\"APIError\",\"data\":{\"message\":\"too many\"}}}\n"
	 "{\"type\":\"text\",\"part\":{\"text\":\"after all\"}}\n{\"type\":\"error\",\"error\":{\"name\":\"Odd\"}}",
	 "fault too many;text after all;fault Odd;"},
	{guest_codex,
	 "{\"type\":\"thread.started\",\"thread_id\":\"th-1\"}\n"
	 "{\"type\":\"turn.started\"}\n"
	 "{\"type\":\"item.completed\",\"item\":{\"id\":\"item_0\",\"type\":\"error\",\"message\":\"no metadata\"}}\n"
	 "{\"type\":\"item.completed\",\"item\":{\"id\":\"item_1\",\"type\":\"reasoning\",\"text\":\"hm\"}}\n"
	 "{\"type\":\"item.completed\",\"item\":{\"id\":\"item_2\",\"type\":\"agent_message\",\"text\":\"I look.\"}}\n"
	 "{\"type\":\"item.started\",\"item\":{\"id\":\"item_3\",\"type\":\"command_execution\",\"command\":\"ls "
	 "x\"}}\n"
	 "{\"type\":\"item.completed\",\"item\":{\"id\":\"item_3\",\"type\":\"command_execution\",\"command\":\"ls x\","
	 "\"aggregated_output\":\"no x\\n\",\"exit_code\":2,\"status\":\"failed\"}}\n"
	 "{\"type\":\"item.completed\",\"item\":{\"id\":\"item_4\",\"type\":\"file_change\",\"changes\":[{\"path\":"
	 "\"a\",\"kind\":"
	 "\"add\"}],\"status\":\"completed\"}}\n"
	 "{\"type\":\"item.completed\",\"item\":{\"id\":\"item_5\",\"type\":\"mcp_tool_call\",\"server\":\"s\","
	 "\"tool\":\"t\","
	 "\"arguments\":{\"k\":1},\"error\":{\"message\":\"away\"},\"status\":\"failed\"}}\n"
	 "{\"type\":\"item.updated\",\"item\":{\"id\":\"item_6\",\"type\":\"todo_list\",\"items\":[]}}\n"
	 "{\"type\":\"item.completed\",\"item\":{\"id\":\"item_7\",\"type\":\"agent_message\",\"text\":\"Done.\"}}\n"
	 "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":200,\"cached_input_tokens\":80,\"output_tokens\":14}"
	 "}\n",
	 "talk th-1;note no metadata;text I look.;call item_3 bash {\"command\":\"ls x\"};call item_3 bash "
	 "{\"command\":\"ls "
	 "x\"};result item_3 no x\n[exit code 2]\n!;call item_4 file_change "
	 "{\"changes\":[{\"path\":\"a\",\"kind\":\"add\"}]};"
	 "result item_4 ;call item_5 mcp_tool_call {\"server\":\"s\",\"tool\":\"t\",\"arguments\":{\"k\":1}};result "
	 "item_5 "
	 "away!;text Done.;used 1 200 14 80;"},
	{guest_codex,
	 "{\"type\":\"error\",\"message\":\"Reconnecting... "
	 "1/5\"}\n{\"type\":\"turn.failed\",\"error\":{\"message\":\"403\"}}\n",
	 "note Reconnecting... 1/5;fault 403;"},
	{guest_pi,
	 "{\"type\":\"session\",\"version\":3,\"id\":\"p-1\"}\n"
	 "{\"type\":\"message_start\",\"message\":{\"role\":\"assistant\",\"content\":[]}}\n"
	 "{\"type\":\"piece\",\"text\":\"I lo\"}\n"
	 "{\"type\":\"message_end\",\"message\":{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}}"
	 "\n"
	 "{\"type\":\"message_end\",\"message\":{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
	 "\"thinking\":\"hm\"},{"
	 "\"type\":\"text\",\"text\":\"I "
	 "look.\"},{\"type\":\"toolCall\",\"id\":\"c1\",\"name\":\"bash\",\"arguments\":{"
	 "\"command\":\"ls\"}}],\"usage\":{\"input\":10,\"output\":5,\"cacheRead\":40,\"cacheWrite\":1},\"stopReason\":"
	 "\"toolUse\""
	 "}}\n"
	 "{\"type\":\"tool_execution_end\",\"toolCallId\":\"c1\",\"result\":{}}\n"
	 "{\"type\":\"message_end\",\"message\":{\"role\":\"toolResult\",\"toolCallId\":\"c1\",\"content\":[{\"type\":"
	 "\"text\","
	 "\"text\":\"a\\n\"}],\"isError\":false}}\n"
	 "{\"type\":\"message_end\",\"message\":{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":"
	 "\"Do\"},{\"type\":"
	 "\"text\",\"text\":\"ne.\"}],\"usage\":{\"input\":1,\"output\":1},\"stopReason\":\"stop\"}}\n"
	 "{\"type\":\"message_end\",\"message\":{\"role\":\"assistant\",\"content\":[],\"usage\":{},\"stopReason\":"
	 "\"error\","
	 "\"errorMessage\":\"502 away\"}}\n",
	 "talk p-1;text I look.;call c1 bash {\"command\":\"ls\"};used 1 51 5 40;result c1 a\n;text Do\n\nne.;used 1 1 "
	 "1 0;used 1 0 "
	 "0 0;fault 502 away;"},
	{NULL, "The answer,\nin two lines \xC3\xA9.\n\n", "text The answer,\nin two lines \xC3\xA9.;"},
	{NULL, " \n", "text (no output);"},
	/* What no agent should print, and a hostile one does. */
	{guest_claude,
	 "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"id\":7,\"name\":\"x\"},{\"type\":"
	 "\"tool_"
	 "use\",\"id\":\"a\",\"name\":\"b\",\"input\":[1]},3,null]}}\n[1]\n{\"type\":7}\n{}\n{\"type\":\"result\","
	 "\"usage\":{"
	 "\"input_tokens\":-5,\"output_tokens\":1e300}}\n{\"type\":\"assistant\"",
	 "call a b {};used 0 0 0 0;"},
	{guest_pi,
	 "{\"type\":\"message_end\",\"message\":{\"role\":\"assistant\",\"content\":\"x\"}}\n{\"type\":\"message_end\"}"
	 "\n",
	 "used 1 0 0 0;"},
};

TEST(events_are_the_same_wherever_a_read_is_cut)
{
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		size_t n = strlen(cases[i].in);
		for (size_t cut = 1; cut <= n; cut++) {
			CLEAN_BUF struct buf out = BUF_INIT;
			run(cases[i].format, cases[i].in, n, cut, n, false, &out);
			if (strcmp(buf_str(&out), cases[i].out))
				printf("# case %zu cut at %zu\n", i, cut);
			CHECK_STR(buf_str(&out), cases[i].out);
			if (strcmp(buf_str(&out), cases[i].out))
				return;
		}
	}
}

TEST(a_reader_that_is_made_anew_neither_loses_nor_doubles)
{
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		size_t n = strlen(cases[i].in);
		for (size_t piece = 1; piece < n; piece += 1 + n / 97) {
			CLEAN_BUF struct buf out = BUF_INIT;
			run(cases[i].format, cases[i].in, n, piece, piece, true, &out);
			CHECK_STR(buf_str(&out), cases[i].out);
		}
	}
}

TEST(an_answer_is_held_back_until_something_follows)
{
	static const char
		text[] = "{\"type\":\"text\",\"part\":{\"text\":\"Done.\"}}\n",
		tool[] = "{\"type\":\"tool_use\",\"part\":{\"tool\":\"bash\",\"callID\":\"c\",\"state\":{}}}\n";
	struct guest_reader r;
	guest_reader_init(&r, guest_opencode, 0);
	guest_feed(&r, text, sizeof text - 1);
	CHECK_INT(guest_ready(&r), (size_t)0);
	CHECK_STR(guest_pending(&r), "Done.");
	CHECK_INT(guest_offset(&r, 0), (uint64_t)0);
	guest_feed(&r, tool, sizeof tool - 1);
	CHECK_INT(guest_ready(&r), (size_t)2);
	CHECK_STR(guest_pending(&r), "");
	guest_drop(&r, 2);
	CHECK_INT(guest_offset(&r, 0), (uint64_t)(sizeof text + sizeof tool - 2));
	guest_reader_release(&r);
}

TEST(streamed_text_is_shown_until_the_whole_is_there)
{
	static const char piece[] = "{\"type\":\"piece\",\"text\":\"Do\"}\n";
	struct guest_reader r;
	guest_reader_init(&r, guest_pi, 0);
	guest_feed(&r, piece, sizeof piece - 1);
	guest_feed(&r, piece, sizeof piece - 1);
	CHECK_STR(guest_pending(&r), "DoDo");
	CHECK_INT(guest_ready(&r), (size_t)0);
	guest_reader_release(&r);
}

TEST(a_line_that_is_too_long_is_left_out_and_said_so)
{
	struct guest_reader r;
	size_t n = (size_t)GUEST_LINE_MAX + 5;
	CLEAN_FREE char *big = xmalloc(n);
	memset(big, 'x', n);
	CLEAN_BUF struct buf out = BUF_INIT;
	guest_reader_init(&r, guest_opencode, 0);
	for (int i = 0; i < 2; i++)
		guest_feed(&r, big, n);
	CHECK(r.rest.n <= GUEST_LINE_MAX);
	static const char rest[] = "\n{\"type\":\"text\",\"part\":{\"text\":\"Done.\"}}\n";
	guest_feed(&r, rest, sizeof rest - 1);
	CHECK_INT(guest_fed(&r), 2 * n + sizeof rest - 1);
	for (size_t i = 0; i < r.n; i++)
		for (size_t k = 0; k < r.lines[i].n; k++)
			show_event(&out, &r.lines[i].events[k]);
	CHECK_STR(buf_str(&out), "note a line of the agent's output is too long and left out;text Done.;");
	guest_reader_release(&r);
}

TEST(of_plain_text_the_end_is_kept)
{
	struct guest_reader r;
	size_t n = (size_t)GUEST_ANSWER_MAX * 3 + 1;
	CLEAN_FREE char *big = xmalloc(n);
	for (size_t i = 0; i < n; i++) /* two bytes a letter, so that a cut may fall into one */
		big[i] = (char)(i % 2 ? 0xA9 : 0xC3);
	guest_reader_init(&r, NULL, 0);
	for (size_t at = 0; at < n - 1; at += 65536)
		guest_feed(&r, big + at, n - 1 - at < 65536 ? n - 1 - at : 65536);
	guest_feed_end(&r);
	const char *text = r.lines[0].events[0].text;
	CHECK(strstr(text, "[only the end of it is kept]\n\xC3\xA9") == text);
	CHECK(!strstr(text, "\xEF\xBF\xBD"));
	CHECK_INT(guest_fed(&r), n - 1);
	guest_reader_release(&r);
}

CHECK_MAIN()
