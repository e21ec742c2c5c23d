/* How many tokens a request's input may have: what the meter reserves for it. */
#include <stdlib.h>

#include "backend/base/mem.h"
#include "check.h"
#include "gateway/body.h"

static struct policy *read_policy(const char *extra)
{
	CLEAN_FREE char *text = xasprintf("%s%s", policy_default, extra);
	struct policy *p = NULL;
	CHECK_INT(policy_parse(text, strlen(text), &p, NULL), 0);
	return p;
}

static int ask(struct policy *p, enum api api, const char *body, struct ask *a, struct denial *d)
{
	return body_check(p, api, body, strlen(body), a, d);
}

#define M "\"model\":\"claude-sonnet-5\",\"max_tokens\":9,"

/* What is reserved for an input is not its bytes alone: a white picture of many pixels has few. */
TEST(what_is_no_text)
{
	static const struct {
		enum api api;
		const char *body;
		int64_t extra;
	} cases[] = {
		{API_MESSAGES,
		 "{" M
		 "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"base64\","
		 "\"data\":\"\"}},{\"type\":\"tool_result\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":"
		 "\"base64\","
		 "\"data\":\"\"}}]}]}]}",
		 10000},
		{API_MESSAGES,
		 "{" M "\"messages\":[{\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"data\":"
		 "\"\"}}]}]}",
		 1000000},
		{API_MESSAGES,
		 "{" M
		 "\"messages\":[{\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"text\",\"data\":\"\"}}]}]}",
		 0},
		{API_MESSAGES, "{" M "\"messages\":[{\"content\":\"image\"}]}", 0},
		{API_CHAT, "{\"model\":\"gpt-5\",\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"data:x\"}}]}]}",
		 12000},
		{API_CHAT,
		 "{\"model\":\"gpt-4o-mini\",\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"data:x\"}}]}]}",
		 50000},
		{API_CHAT,
		 "{\"model\":\"gpt-5\",\"messages\":[{\"content\":[{\"type\":\"file\",\"file\":{\"file_data\":\"\"}}]}]"
		 "}",
		 1000000},
		{API_RESPONSES,
		 "{\"model\":\"gpt-5\",\"input\":[{\"type\":\"function_call_output\",\"output\":[{\"type\":\"input_"
		 "image\","
		 "\"image_url\":\"data:x\"}]}]}",
		 12000},
		{API_MESSAGES, "{" M "\"messages\":[],\"tools\":[{\"name\":\"a\"},{\"type\":\"bash_20250124\"}]}",
		 4000},
		{API_MESSAGES, "{" M "\"messages\":[],\"output_config\":{}}", 500},
	};
	struct policy *p = read_policy("");
	struct ask a;
	struct denial d;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		CHECK_INT(ask(p, cases[i].api, cases[i].body, &a, &d), 0);
		CHECK_INT(a.extra, cases[i].extra);
		CHECK_INT(a.input, (int64_t)strlen(cases[i].body) + 16 + cases[i].extra);
	}
	CHECK_INT(
		ask(p, API_COUNT_TOKENS,
		    "{\"model\":\"claude-sonnet-5\",\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{}}]}]}",
		    &a, &d),
		0);
	CHECK_INT(a.input, 0);
	policy_put(p);
}

enum { LARGE = 50000 };
static const struct {
	enum api api;
	const char *before, *after;
	bool seen;
} large[] = {
	{API_MESSAGES,
	 "{" M "\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"data\":\"",
	 "\"}}]}]}", true},
	{API_MESSAGES,
	 "{" M "\"messages\":[{\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"base64\","
	 "\"media_type\":\"application/pdf\",\"data\":\"",
	 "\"}}]}]}", true},
	{API_MESSAGES,
	 "{" M "\"messages\":[{\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"base64\","
	 "\"media_type\":\"text/plain\",\"data\":\"",
	 "\"}}]}]}", false},
	{API_MESSAGES,
	 "{" M "\"messages\":[{\"content\":[{\"type\":\"text\",\"source\":{\"type\":\"base64\",\"data\":\"", "\"}}]}]}",
	 false},
	{API_MESSAGES,
	 "{" M "\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"text\",\"data\":\"", "\"}}]}]}",
	 false},
	{API_MESSAGES, "{" M "\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"data:image/png;base64,",
	 "\"}]}]}", false},
	{API_CHAT, "{\"model\":\"gpt-5\",\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"data:image/png;base64,",
	 "\"}}]}]}", true},
	{API_CHAT, "{\"model\":\"gpt-5\",\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"data:text/plain,",
	 "\"}}]}]}", false},
	{API_RESPONSES,
	 "{\"model\":\"gpt-5\",\"input\":[{\"content\":[{\"type\":\"input_file\",\"file_data\":\"data:"
	 "application/pdf;base64,",
	 "\"}]}]}", true},
};

/* The bytes of a picture are not read: only those, and only where it is one. */
TEST(bytes_that_are_not_read)
{
	struct policy *p = read_policy("");
	struct ask a;
	struct denial d;
	for (size_t i = 0; i < ARRAY_LEN(large); i++) {
		CLEAN_BUF struct buf b = BUF_INIT;
		buf_adds(&b, large[i].before);
		for (int k = 0; k < LARGE; k++)
			buf_addc(&b, 'A');
		buf_adds(&b, large[i].after);
		CHECK_INT(ask(p, large[i].api, b.p, &a, &d), 0);
		int64_t text = (int64_t)b.n + 16 + a.extra - a.input;
		CHECK(large[i].seen ? text >= LARGE && text < LARGE + 40 : text == 0);
	}
	policy_put(p);
}

/* All of a text that a tokenizer makes the most of is reserved; and a size that is only pretended is none. */
TEST(text_that_is_all_tokens)
{
	struct policy *p = read_policy("");
	struct ask a;
	struct denial d;
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_adds(&b, "{" M "\"messages\":[{\"content\":\"");
	for (int k = 0; k < LARGE; k++)
		buf_addc(&b, "!~7^"[k % 4]);
	buf_adds(&b, "\"}]}");
	CHECK_INT(ask(p, API_MESSAGES, b.p, &a, &d), 0);
	CHECK(a.input > LARGE);
	CLEAN_FREE char *lie = xasprintf(
		"{" M "\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"data\":\""
		"%s\\u0001999999999\"}}]}]}",
		"\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9");
	CHECK_INT(ask(p, API_MESSAGES, lie, &a, &d), 0);
	CHECK(a.seen <= (int64_t)strlen(lie) && a.input > 5000);
	policy_put(p);
}

CHECK_MAIN()
