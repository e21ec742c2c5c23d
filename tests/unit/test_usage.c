/* Token counts read from answers of all three formats, however they are split. */
#include <stdlib.h>

#include "backend/base/mem.h"
#include "check.h"
#include "gateway/usage.h"

static const struct {
	const char *name, *text;
	enum api api;
	bool events, input, output, final;
	struct usage want;
} samples[] = {
	{"messages",
	 "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,"
	 "\"cache_read_input_tokens\":7,\"cache_creation_input_tokens\":2,\"output_tokens\":1}}}\n\n"
	 "event: ping\ndata: {\"type\":\"ping\"}\n\n: comment\n\n"
	 "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\\"usage\\\": message_stop\"}}\n\n"
	 "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":3}}\n\n"
	 "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9,\"input_tokens\":null}}\n\n"
	 "data: {\"type\":\"message_stop\"}\n\n",
	 API_MESSAGES,
	 true,
	 true,
	 true,
	 true,
	 {5, 9, 7, 2}},
	{"messages, cut",
	 "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n"
	 "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x",
	 API_MESSAGES,
	 true,
	 true,
	 false,
	 false,
	 {5, 1, 0, 0}},
	{"messages, error",
	 "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\r\n\r\n",
	 API_MESSAGES,
	 true,
	 false,
	 false,
	 true,
	 {0}},
	{"messages, text that looks like it",
	 "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"{\\\"type\\\":"
	 "\\\"message_stop\\\",\\\"usage\\\":{\\\"output_tokens\\\":99}}\"}}\n\n",
	 API_MESSAGES,
	 true,
	 false,
	 false,
	 false,
	 {0}},
	{"messages, whole",
	 "{\"usage\":{\"input_tokens\":5,\"output_tokens\":6,\"cache_read_input_tokens\":1}}",
	 API_MESSAGES,
	 false,
	 true,
	 true,
	 true,
	 {5, 6, 1, 0}},
	{"chat",
	 "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}],\"usage\":null}\n\n"
	 "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	 "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":4,\"prompt_tokens_details\":"
	 "{\"cached_tokens\":3}}}\n\ndata: [DONE]\n\n",
	 API_CHAT,
	 true,
	 true,
	 true,
	 true,
	 {7, 4, 3, 0}},
	{"chat without usage",
	 "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\ndata:[DONE]\r\n\r\n",
	 API_CHAT,
	 true,
	 false,
	 false,
	 true,
	 {0}},
	{"responses",
	 "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n"
	 "data: {\"type\":\"response.output_text.delta\",\"delta\":\"response.completed usage\\\"\"}\n\n"
	 "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":4,"
	 "\"input_tokens_details\":{\"cached_tokens\":10}}}}\n\n",
	 API_RESPONSES,
	 true,
	 true,
	 true,
	 true,
	 {0, 4, 10, 0}},
	{"responses, incomplete",
	 "data: {\"type\":\"response.incomplete\",\"response\":{\"usage\":{\"input_tokens\":1,"
	 "\"output_tokens\":2}}}", /* no line end */
	 API_RESPONSES,
	 true,
	 true,
	 true,
	 true,
	 {1, 2, 0, 0}},
	{"nonsense",
	 "data: {\"usage\":{\"input_tokens\":-5,\"output_tokens\":1.5}}\n\ndata: {\"usage\"\n\n",
	 API_RESPONSES,
	 true,
	 false,
	 false,
	 false,
	 {0}},
	{"messages, a figure that cannot be",
	 "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n"
	 "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9007199254740992}}\n\n"
	 "data: {\"type\":\"message_stop\"}\n\n",
	 API_MESSAGES,
	 true,
	 false,
	 false,
	 true,
	 {5, 1, 0, 0}},
	{"messages, less than nothing",
	 "{\"usage\":{\"input_tokens\":5,\"output_tokens\":6,\"cache_read_input_tokens\":-100}}",
	 API_MESSAGES,
	 false,
	 false,
	 false,
	 true,
	 {5, 6, 0, 0}},
	{"chat, beyond all numbers",
	 "{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1e999}}",
	 API_CHAT,
	 false,
	 false,
	 false,
	 false,
	 {0}},
	{"messages, not at the top, and at it",
	 "{\"content\":[{\"usage\":{\"input_tokens\":1}}],\"a\":\"\\\"usage\\\":{}\",\"usage\":{\"input_tokens\":5,"
	 "\"output_tokens\":6}}",
	 API_MESSAGES,
	 false,
	 true,
	 true,
	 true,
	 {5, 6, 0, 0}},
	{"messages, twice",
	 "{\"usage\":{\"input_tokens\":5,\"output_tokens\":6},\"usag\\u0065\":{\"input_tokens\":0,\"output_tokens\":0}"
	 "}",
	 API_MESSAGES,
	 false,
	 false,
	 false,
	 false,
	 {0}},
	{"negative",
	 "{\"usage\":{\"prompt_tokens\":-5,\"completion_tokens\":\"9\"}}",
	 API_CHAT,
	 false,
	 false,
	 false,
	 true,
	 {0}},
};

TEST(usage_of_all_formats)
{
	unsigned seed = 5;
	for (size_t i = 0; i < ARRAY_LEN(samples); i++)
		for (int round = 0; round < 300; round++) {
			struct usage_reader r = {0};
			size_t n = strlen(samples[i].text), at = 0;
			usage_start(&r, samples[i].api, samples[i].events);
			while (at < n) {
				size_t take = round ? 1 + (size_t)rand_r(&seed) % (round % 40 + 1) : n;
				take = take < n - at ? take : n - at;
				usage_feed(&r, samples[i].text + at, take);
				at += take;
			}
			usage_end(&r);
			if (r.final != samples[i].final || r.input_seen != samples[i].input ||
			    r.output_seen != samples[i].output || memcmp(&r.u, &samples[i].want, sizeof r.u)) {
				printf("# %s: %d %d %d: %d %d %d %d\n", samples[i].name, r.final, r.input_seen,
				       r.output_seen, (int)r.u.input, (int)r.u.output, (int)r.u.cache_read,
				       (int)r.u.cache_write);
				CHECK(!"usage");
				round = 300;
			}
			usage_release(&r);
		}
}

/* A line without an end takes no more memory than its bound. */
TEST(usage_is_bounded)
{
	struct usage_reader r = {0};
	static char piece[1 << 16];
	memset(piece, 'x', sizeof piece);
	usage_start(&r, API_MESSAGES, true);
	for (int i = 0; i < 1000; i++) {
		usage_feed(&r, piece, sizeof piece);
		CHECK(r.line.cap < 8 << 20);
	}
	static const char end[] = "\ndata: {\"type\":\"message_stop\"}\n";
	usage_feed(&r, end, sizeof end - 1);
	CHECK(r.final); /* and what follows it is read again */
	usage_release(&r);
}

CHECK_MAIN()
