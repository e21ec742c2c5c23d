/* The policy: its text, addresses, and what passes of a request's body. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "check.h"
#include "gateway/body.h"
#include "gateway/net.h"
#include "gateway/policy.h"

static struct policy *read_policy(const char *extra)
{
	CLEAN_FREE char *text = xasprintf("%s%s", policy_default, extra);
	struct policy *p = NULL;
	struct err err = ERR_INIT;
	if (policy_parse(text, strlen(text), &p, &err))
		printf("# %s\n", err.text);
	return p;
}

TEST(policy_default_holds)
{
	struct policy *p = read_policy("");
	CHECK(p != NULL);
	CHECK_INT(p->limits[SCOPE_SESSION][LIMIT_CONCURRENCY], 32);
	CHECK(p->limits[SCOPE_DAY][LIMIT_MONEY] == LIMIT_OFF);
	const struct provider *v = policy_provider(p, API_CHAT, "gpt-5");
	CHECK(v && !strcmp(v->name, "openai"));
	v = policy_provider(p, API_RESPONSES, "gpt-5");
	CHECK(v && !strcmp(v->name, "openai-responses") && !strcmp(v->key, "openai"));
	CHECK(!policy_provider(p, API_MESSAGES, "gpt-5"));
	CHECK(policy_price(p, v, "gpt-5-mini")->cache_read == 125000);
	CHECK(!policy_price(p, v, "other"));
	for (enum api i = 0; i < API_N; i++)
		CHECK_INT(p->routes[i].on, i != API_COUNT_INPUT);
	/* A name that a shorter line would fit as well has the dearer model's price */
	static const struct {
		const char *model;
		int64_t output;
	} dear[] = {{"gpt-5-pro", 120},	     {"gpt-5-pro-2025-10-06", 120}, {"gpt-5.2-pro", 168},
		    {"o3-pro", 80},	     {"o3-deep-research", 40},	    {"gpt-4o-2024-05-13", 15},
		    {"claude-opus-4-0", 75}, {"claude-opus-4-1", 75},	    {"claude-opus-4-20250514", 75}};
	for (size_t i = 0; i < ARRAY_LEN(dear); i++)
		CHECK(policy_price(p, v, dear[i].model)->output >= dear[i].output * 1000000);
	policy_put(p);
}

/* What an anthropic-beta may name. */
TEST(policy_betas)
{
	static const char *const usual[] = {"claude-code-20250219",
					    "interleaved-thinking-2025-05-14",
					    "fine-grained-tool-streaming-2025-05-14",
					    "prompt-caching-scope-2026-01-05",
					    "advisor-tool-2026-03-01",
					    "fallback-credit-2026-06-01",
					    "effort-2025-11-24"},
				 *const off[] = {"files-api-2025-04-14",
						 "code-execution-2025-08-25",
						 "mcp-client-2025-11-20",
						 "skills-2025-10-02",
						 "web-fetch-2025-09-10",
						 "context-1m-2025-08-07",
						 "fast-mode-2026-02-01",
						 "server-side-fallback-2026-06-01",
						 "compact-2026-01-12",
						 "oauth-2025-04-20",
						 "message-batches-2024-09-24",
						 "unheard-of-2031-01-01",
						 "",
						 "claude-code",
						 "*"};
	CLEAN_FREE char *old = xstrndup(policy_default, (size_t)(strstr(policy_default, "\nbeta ") - policy_default));
	struct policy *texts[2] = {read_policy(""), NULL}; /* and one of before there were such lines */
	CHECK_INT(policy_parse(old, strlen(old), &texts[1], NULL), 0);
	for (int k = 0; k < 2; k++) {
		for (size_t i = 0; i < ARRAY_LEN(usual); i++)
			CHECK(policy_beta(texts[k], usual[i], strlen(usual[i])));
		for (size_t i = 0; i < ARRAY_LEN(off); i++)
			CHECK(!policy_beta(texts[k], off[i], strlen(off[i])));
		CHECK(!policy_beta(texts[k], "effort-2025-11-24,files-api-2025-04-14", 38));
		policy_put(texts[k]);
	}
	struct policy *p = NULL;
	CHECK_INT(policy_parse("beta none\n", 10, &p, NULL), 0);
	CHECK(!policy_beta(p, usual[0], strlen(usual[0])));
	policy_put(p);
	CHECK_INT(policy_parse("beta context-1m-*\nfeature server-tools\n", 39, &p, NULL), 0);
	CHECK(policy_beta(p, "context-1m-2025-08-07", 21) && policy_beta(p, "code-execution-2025-08-25", 25));
	CHECK(!policy_beta(p, "files-api-2025-04-14", 20) && !policy_beta(p, usual[0], strlen(usual[0])));
	policy_put(p);
}

TEST(policy_forges)
{
	struct policy *p = read_policy("forge git.example.org gitea\nforge code.example.org gitlab url "
				       "https://lab.example.org:8443/ key lab ca /etc/ca.pem\nforge h github\n");
	CHECK(p != NULL);
	const struct forge_rule *f = policy_forge(p, "git.example.org");
	CHECK(f && f->kind == FORGE_GITEA && !f->ca);
	CHECK_STR(f->url, "https://git.example.org/api/v1");
	CHECK_STR(f->key, "git.example.org");
	f = policy_forge(p, "code.example.org");
	CHECK(f && f->kind == FORGE_GITLAB);
	CHECK_STR(f->url, "https://lab.example.org:8443/api/v4");
	CHECK_STR(f->key, "lab");
	CHECK_STR(f->ca, "/etc/ca.pem");
	CHECK_STR(policy_forge(p, "h")->url, "https://h/api/v3");
	CHECK(!policy_forge(p, "example.org"));
	policy_put(p);
}

static const struct {
	const char *line, *words;
} wrong[] = {
	{"nonsense a b", "lines begin with"},
	{"provider x", "NAME KIND URL"},
	{"provider x grpc https://h", "anthropic, openai or responses"},
	{"provider x openai http://example.org", "https://"},
	{"provider x openai ftp://h", "https://"},
	{"provider x openai https://u@h", "HOST"},
	{"provider x openai https://h?a", "HOST"},
	{"provider ../x openai https://h", "letters"},
	{"provider x openai https://h key ../k", "no name of a key"},
	{"provider x openai https://h colour red", "after the URL"},
	{"forge git.example.org", "HOST github|gitlab|gitea"},
	{"forge git.example.org sourcehut", "HOST github|gitlab|gitea"},
	{"forge ../x github", "HOST github|gitlab|gitea"},
	{"forge h github url http://example.org", "https://"},
	{"forge h github url https://u@h", "HOST"},
	{"forge h github key ../k", "no name of a key"},
	{"forge h github url", "after the kind"},
	{"price a", "input and output"},
	{"price a input 1", "input and output"},
	{"price a input 1 output x", "input D"},
	{"price a input -1 output 1", "input D"},
	{"price a input 1.0000001 output 1", "input D"},
	{"limit week money 1", "session|project|day"},
	{"limit session money", "session|project|day"},
	{"beta", "beta NAME"},
	{"limit session money x", "no number"},
	{"limit session tokens 1.5", "no number"},
	{"limit session tokens 99999999999999999999", "no number"},
	{"route GET /v1/messages", "known routes"},
	{"route POST /v1/files", "known routes"},
	{"route POST /v1/messages beta", "query"},
	{"field /v1/other model", "field PATH"},
	{"feature web", "features are"},
	{"egress all h", "registries|vendor"},
	{"egress registries h/x", "HOST"},
	{"egress registries h.", "HOST"},
	{"map h 1.2.3.4", "ADDRESS:PORT"},
	{"answer-tokens 0", "whole number"},
	{"body-max 1e9", "whole number"},
	{"limit session money 1 \033[31m", "character"},
};

TEST(policy_wrong_lines)
{
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct policy *p = NULL;
		struct err err = ERR_INIT;
		CLEAN_FREE char *text = xasprintf("# comment\n\n%s\n", wrong[i].line);
		CHECK_INT(policy_parse(text, strlen(text), &p, &err), -EINVAL);
		CHECK(!p);
		if (strncmp(err.text, "line 3: ", 8) || !strstr(err.text, wrong[i].words)) {
			printf("# %s: %s\n", wrong[i].line, err.text);
			CHECK(!"words");
		}
		CHECK_INT(policy_line(wrong[i].line, strlen(wrong[i].line), NULL), -EINVAL);
	}
	struct policy *p = NULL;
	CHECK_INT(policy_parse("model x a", 9, &p, NULL), -EINVAL); /* no such provider */
	CHECK_INT(policy_line("model x a\n", 10, NULL), 0);	    /* which a line alone cannot know */
	CHECK_INT(policy_parse("limit day money 1\0", 18, &p, NULL), -EINVAL);
	CHECK_INT(policy_parse("route POST /v1/messages\n", 24, &p, NULL), -EINVAL); /* no fields */
	CHECK_INT(policy_parse("", 0, &p, NULL), 0);				     /* allows nothing */
	policy_put(p);
}

TEST(policy_globs)
{
	CHECK(glob_match("a*c", "abc") && glob_match("*", "") && glob_match("a*b*c", "aXbYbZc") &&
	      glob_match("abc", "abc"));
	CHECK(!glob_match("a*c", "abd") && !glob_match("abc", "ABC") && !glob_match("", "a") &&
	      !glob_match("a*b", "a"));
}

static bool is_public(const char *text)
{
	struct sockaddr_storage a;
	CLEAN_FREE char *with_port = xasprintf(strchr(text, ':') ? "[%s]:1" : "%s:1", text);
	CHECK(net_parse(with_port, &a) > 0);
	return net_public((struct sockaddr *)&a);
}

TEST(net_addresses)
{
	static const char *const no[] = {"0.0.0.0",
					 "0.1.2.3",
					 "10.0.0.1",
					 "100.64.0.1",
					 "100.100.100.200",
					 "100.127.255.255",
					 "127.0.0.1",
					 "127.255.0.1",
					 "169.254.169.254",
					 "172.16.0.1",
					 "172.31.255.255",
					 "192.0.0.1",
					 "192.168.0.1",
					 "198.18.0.1",
					 "198.19.255.1",
					 "203.0.113.1",
					 "224.0.0.1",
					 "240.0.0.1",
					 "255.255.255.255",
					 "168.63.129.16",
					 "::",
					 "::1",
					 "::7f00:1",
					 "::ffff:127.0.0.1",
					 "::ffff:169.254.169.254",
					 "64:ff9b::7f00:1",
					 "64:ff9b::a00:1",
					 "64:ff9b:1::1",
					 "fe80::1",
					 "fc00::1",
					 "fd00:ec2::254",
					 "ff02::1",
					 "2002:7f00:1::",
					 "2002:a00:1::",
					 "2001::1",
					 "2001:db8::1",
					 "100::1",
					 "3fff::1",
					 "5f00::1",
					 "fec0::1"};
	static const char *const yes[] = {"1.1.1.1",	    "8.8.8.8",		"172.32.0.1",	  "100.128.0.1",
					  "192.169.0.1",    "11.0.0.1",		"2606:4700::1",	  "2a00:1450::1",
					  "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"};
	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		if (is_public(no[i])) {
			printf("# %s\n", no[i]);
			CHECK(!"not public");
		}
	for (size_t i = 0; i < ARRAY_LEN(yes); i++)
		if (!is_public(yes[i])) {
			printf("# %s\n", yes[i]);
			CHECK(!"public");
		}
	static const char *const literal[] = {"127.0.0.1",  "127.1", "2130706433", "0x7f000001",
					      "0177.0.0.1", "::1",   "1.2.3.4.5",  "a.1"};
	for (size_t i = 0; i < ARRAY_LEN(literal); i++)
		CHECK(net_is_literal(literal[i]));
	CHECK(!net_is_literal("example.org") && !net_is_literal("a1") && !net_is_literal("1a.de"));
	CHECK(net_near("localhost") && net_near("192.168.1.2") && net_near("::1") && !net_near("1.1.1.1") &&
	      !net_near("h"));
}

/* ---- bodies ---- */

static int ask(struct policy *p, enum api api, const char *body, struct ask *a, struct denial *d)
{
	return body_check(p, api, body, strlen(body), a, d);
}

#define M "\"model\":\"claude-sonnet-5\",\"max_tokens\":9,"
/* A group of tools, with more in it. */
#define SPACE(more)                                                                                                    \
	"{\"type\":\"namespace\",\"name\":\"n\",\"description\":\"d\",\"tools\":[{\"type\":\"function\"}" more "]}"

static const struct {
	enum api api;
	int status; /* 0: allowed */
	const char *rule, *body;
} bodies[] = {
	{API_MESSAGES, 0, "", "{" M "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"},
	{API_MESSAGES, 0, "",
	 " {\n" M " \"tools\" : [ {\"name\":\"a\",\"input_schema\":{\"type\":\"object\"}} ] , \"stream\":true}\n"},
	{API_MESSAGES, 0, "", "{" M "\"tools\":[{\"type\":\"custom\"},{\"type\":\"bash_20250124\"}]}"},
	{API_MESSAGES, 403, "model", "{\"model\":\"gpt-5\"}"},
	{API_MESSAGES, 403, "model", "{\"model\":\"Claude-sonnet-5\"}"},
	{API_MESSAGES, 403, "model", "{\"model\":\"claude-sonnet-5 \"}"},
	{API_MESSAGES, 403, "model", "{\"model\":\"claude-\xd0\xb0\"}"},
	{API_MESSAGES, 403, "model", "{\"model\":\"claude-\\r\\nx: y\"}"},
	{API_MESSAGES, 403, "model", "{\"model\":\"\"}"},
	{API_MESSAGES, 400, "model", "{\"model\":[\"claude-a\"]}"},
	{API_MESSAGES, 400, "model", "{\"model\":7}"},
	{API_MESSAGES, 400, "model", "{}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-a\",\"model\":\"claude-b\"}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-a\",\"\\u006dodel\":\"claude-b\"}"},
	{API_MESSAGES, 403, "field", "{\"\\u006dodel\":\"claude-b\"}"},
	{API_MESSAGES, 403, "field", "{\"model\":\"claude-a\",\"MODEL\":\"x\"}"},
	{API_MESSAGES, 403, "field", "{\"model\":\"claude-a\",\"model \":\"x\"}"},
	{API_MESSAGES, 403, "field", "{" M "\"mcp_servers\":[]}"},
	{API_MESSAGES, 403, "field", "{" M "\"container\":\"x\"}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-a\\u0000b\"}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-a\"}{}"},
	{API_MESSAGES, 400, "json", "\xef\xbb\xbf{\"model\":\"claude-a\"}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-a\xff\"}"},
	{API_MESSAGES, 400, "json", "[{\"model\":\"claude-a\"}]"},
	{API_MESSAGES, 400, "json", "\"claude\""},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-a\",}"},
	{API_MESSAGES, 400, "json", "{'model':'claude-a'}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-a\" /* x */}"},
	{API_MESSAGES, 400, "json", "{" M "\"temperature\":NaN}"},
	{API_MESSAGES, 400, "json", "{" M "\"stream\":1}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-haiku-a\",\"max_tokens\":\"9\"}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-haiku-a\",\"max_tokens\":-9}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-haiku-a\",\"max_tokens\":1.5}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-haiku-a\",\"max_tokens\":9007199254740992}"},
	{API_MESSAGES, 400, "json", "{\"model\":\"claude-haiku-a\",\"max_tokens\":1e999}"},
	{API_MESSAGES, 400, "json", "{" M "\"tools\":{\"type\":\"web_search_20250305\"}}"},
	{API_MESSAGES, 400, "json", "{" M "\"tools\":[{\"type\":[\"web_search\"]}]}"},
	{API_MESSAGES, 403, "feature.server-tools",
	 "{" M "\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"w\"}]}"},
	{API_MESSAGES, 403, "feature.server-tools", "{" M "\"tools\":[{\"type\":\"code_execution_20250522\"}]}"},
	{API_MESSAGES, 403, "feature.server-tools", "{" M "\"tools\":[{\"type\":\"Custom\"}]}"},
	{API_MESSAGES, 403, "feature.server-tools", "{" M "\"tools\":[{\"type\":\"bash_code_execution_20250825\"}]}"},
	{API_MESSAGES, 403, "feature.server-tools", "{" M "\"tools\":[{\"type\":\"computer_\"}]}"},
	{API_MESSAGES, 403, "feature.server-tools", "{" M "\"tools\":[{\"type\":\"bash_202501240\"}]}"},
	{API_MESSAGES, 403, "feature.url-content",
	 "{" M "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":"
	 "\"http://x\"}}]}]}"},
	{API_MESSAGES, 403, "feature.url-content",
	 "{" M
	 "\"messages\":[{\"content\":[{\"type\":\"tool_result\",\"content\":[{\"source\":{\"type\":\"url\"}}]}]}]}"},
	{API_MESSAGES, 403, "feature.stored-objects",
	 "{" M
	 "\"messages\":[{\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"file\",\"file_id\":\"f\"}}]}]}"},
	{API_MESSAGES, 0, "",
	 "{" M "\"messages\":[{\"content\":[{\"type\":\"tool_use\",\"input\":{\"source\":{\"type\":\"url\"},"
	 "\"file_id\":\"x\"}}]}]}"}, /* data of a call */
	{API_MESSAGES, 0, "",
	 "{" M "\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"data\":\"\"}}]}]}"},
	/* keys that servers without regard to case would take for those that are looked at */
	{API_CHAT, 400, "json",
	 "{\"model\":\"gpt-5\",\"messages\":[{\"Content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"http://"
	 "x\"}}]}]}"},
	{API_CHAT, 400, "json",
	 "{\"model\":\"gpt-5\",\"messages\":[{\"content\":[{\"type\":\"image_url\",\"Image_URL\":{\"url\":\"http://"
	 "x\"}}]}]}"},
	{API_CHAT, 400, "json",
	 "{\"model\":\"gpt-5\",\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"data:x\",\"URL\":\"http://"
	 "x\"}}]}]}"},
	{API_CHAT, 400, "json",
	 "{\"model\":\"gpt-5\",\"messages\":[{\"content\":[{\"type\":\"file\",\"file\":{\"\\u0046ile_id\":\"x\"}}]}]}"},
	{API_MESSAGES, 400, "json",
	 "{" M
	 "\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"Type\":\"url\"}}]}]}"},
	{API_MESSAGES, 400, "json", "{" M "\"tools\":[{\"Type\":\"web_search_20250305\",\"name\":\"w\"}]}"},
	{API_CHAT, 0, "", "{\"model\":\"gpt-5\",\"messages\":[],\"tools\":[{\"type\":\"function\"}],\"store\":false}"},
	{API_CHAT, 403, "price", "{\"model\":\"gpt-4x\",\"messages\":[]}"},
	{API_CHAT, 403, "feature.stored-objects", "{\"model\":\"gpt-5\",\"store\":true}"},
	{API_CHAT, 403, "field", "{\"model\":\"gpt-5\",\"web_search_options\":{}}"},
	{API_CHAT, 403, "field", "{\"model\":\"gpt-5\",\"n\":50}"},
	{API_CHAT, 400, "json", "{\"model\":\"gpt-5\",\"max_tokens\":1,\"max_completion_tokens\":1000000}"},
	{API_CHAT, 403, "feature.url-content",
	 "{\"model\":\"gpt-5\",\"messages\":[{\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://"
	 "x\"}}]}]}"},
	{API_CHAT, 0, "",
	 "{\"model\":\"gpt-5\",\"messages\":[{\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:x\"}}]"
	 "}]}"},
	{API_CHAT, 403, "feature.stored-objects",
	 "{\"model\":\"gpt-5\",\"messages\":[{\"content\":[{\"type\":\"file\",\"file\":{\"file_id\":\"x\"}}]}]}"},
	{API_RESPONSES, 0, "", "{\"model\":\"gpt-5\",\"input\":\"hi\",\"tools\":[{\"type\":\"local_shell\"}]}"},
	{API_RESPONSES, 403, "feature.server-tools", "{\"model\":\"gpt-5\",\"tools\":[{\"type\":\"web_search\"}]}"},
	{API_RESPONSES, 403, "feature.server-tools", "{\"model\":\"gpt-5\",\"tools\":[{\"type\":\"mcp\"}]}"},
	{API_RESPONSES, 0, "", "{\"model\":\"gpt-5\",\"tools\":[" SPACE("") "]}"},
	{API_RESPONSES, 403, "feature.server-tools",
	 "{\"model\":\"gpt-5\",\"tools\":[" SPACE(",{\"type\":\"mcp\"}") "]}"},
	{API_RESPONSES, 403, "feature.server-tools",
	 "{\"model\":\"gpt-5\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"server_url\":\"https://"
	 "a\",\"tools\":[]}]}"},
	{API_RESPONSES, 403, "feature.server-tools", "{\"model\":\"gpt-5\",\"tools\":[{\"type\":\"namespace\"}]}"},
	{API_CHAT, 403, "feature.server-tools", "{\"model\":\"gpt-5\",\"tools\":[" SPACE("") "]}"},
	{API_RESPONSES, 403, "field", "{\"model\":\"gpt-5\",\"previous_response_id\":\"r\"}"},
	{API_RESPONSES, 403, "field", "{\"model\":\"gpt-5\",\"background\":true}"},
	{API_RESPONSES, 403, "feature.stored-objects",
	 "{\"model\":\"gpt-5\",\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}"},
	{API_RESPONSES, 403, "feature.stored-objects", "{\"model\":\"gpt-5\",\"input\":[{\"id\":\"msg_1\"}]}"},
	{API_RESPONSES, 403, "feature.stored-objects",
	 "{\"model\":\"gpt-5\",\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":null,\"id\":\"msg_1\"}]}"},
	{API_RESPONSES, 403, "feature.stored-objects",
	 "{\"model\":\"gpt-5\",\"input\":[{\"\\u0069d\":\"msg_1\",\"type\":[\"message\"]}]}"},
	{API_RESPONSES, 0, "",
	 "{\"model\":\"gpt-5\",\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_call_output\"}]}"},
	{API_CHAT, 403, "feature.stored-objects",
	 "{\"model\":\"gpt-5\",\"messages\":[{\"role\":\"assistant\",\"audio\":{\"id\":\"audio_1\"}}]}"},
	{API_RESPONSES, 403, "feature.url-content",
	 "{\"model\":\"gpt-5\",\"input\":[{\"content\":[{\"type\":\"input_image\",\"image_url\":\"https://x\"}]}]}"},
	{API_RESPONSES, 403, "feature.url-content",
	 "{\"model\":\"gpt-5\",\"input\":[{\"content\":[{\"type\":\"input_file\",\"file_url\":\"https://x\"}]}]}"},
	{API_RESPONSES, 403, "feature.url-content",
	 "{\"model\":\"gpt-5\",\"input\":[{\"type\":\"function_call_output\",\"output\":[{\"image_url\":\"https://"
	 "x\"}]}]}"},
	{API_COUNT_INPUT, 0, "",
	 "{\"model\":\"gpt-5\",\"input\":[{\"content\":[{\"image_url\":\"data:x\"}]}],\"instructions\":\"i\","
	 "\"tools\":[{\"type\":\"function\"}],\"tool_choice\":\"none\",\"reasoning\":{}}"},
	{API_COUNT_INPUT, 403, "feature.stored-objects", "{\"model\":\"gpt-5\",\"input\":[{\"id\":\"msg_1\"}]}"},
	{API_COUNT_INPUT, 403, "feature.server-tools", "{\"model\":\"gpt-5\",\"tools\":[{\"type\":\"mcp\"}]}"},
	{API_COUNT_INPUT, 403, "feature.url-content",
	 "{\"model\":\"gpt-5\",\"input\":[{\"content\":[{\"image_url\":\"https://x\"}]}]}"},
	{API_COUNT_INPUT, 403, "field", "{\"model\":\"gpt-5\",\"previous_response_id\":\"r\"}"},
	{API_COUNT_INPUT, 403, "field", "{\"model\":\"gpt-5\",\"stream\":true}"},
	{API_COUNT_INPUT, 403, "model", "{\"model\":\"claude-a\",\"input\":[]}"},
};

TEST(policy_bodies)
{
	struct policy *p = read_policy("");
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		struct ask a;
		struct denial d = {0};
		int rc = ask(p, bodies[i].api, bodies[i].body, &a, &d);
		if (d.status != bodies[i].status || (rc && strcmp(d.rule, bodies[i].rule))) {
			printf("# %s: %d %s %s\n", bodies[i].body, d.status, d.rule ? d.rule : "", d.text);
			CHECK(!"verdict");
		}
		CLEAN_BUF struct buf out = BUF_INIT;
		if (rc) {
			denial_json(&out, &d, i % 2);
			CHECK_INT(json_check(out.p, out.n, NULL), 0);
			continue;
		}
		body_build(p, &a, INT64_MAX, &out);
		CLEAN_JSON cJSON *before = json_parse(bodies[i].body, strlen(bodies[i].body), NULL);
		CLEAN_JSON cJSON *after = json_parse(out.p, out.n, NULL);
		if (a.api == API_RESPONSES) {
			CHECK(cJSON_IsFalse(json_get(after, "store")));
			cJSON_DeleteItemFromObject(after, "store");
		}
		CHECK(cJSON_Compare(before, after, true)); /* the same request otherwise */
	}
	policy_put(p);
}

TEST(policy_features_on)
{
	struct policy *p = read_policy("feature server-tools url-content\nfeature stored-objects\n");
	int allowed = 0;
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		struct ask a;
		struct denial d;
		if (!strncmp(bodies[i].rule, "feature", 7))
			allowed += ask(p, bodies[i].api, bodies[i].body, &a, &d) ? 0 : 1;
		else
			allowed += 0;
	}
	int want = 0;
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++)
		want += !strncmp(bodies[i].rule, "feature", 7);
	CHECK_INT(allowed, want);
	policy_put(p);
}

TEST(policy_rebuilt_bodies)
{
	struct policy *p = read_policy("");
	struct ask a;
	struct denial d;
	CLEAN_BUF struct buf out = BUF_INIT;
	CHECK_INT(ask(p, API_MESSAGES,
		      "{ \"max_tokens\" : 5000,\"model\":\"claude-haiku-\\u0061\" , "
		      "\"metadata\":{\"a\":[1.0,\"}\\\"\"]}}",
		      &a, &d),
		  0);
	CHECK_INT(a.answer, 5000);
	body_build(p, &a, 100, &out);
	CHECK_STR(buf_str(&out),
		  "{\"model\":\"claude-haiku-a\",\"metadata\":{\"a\":[1.0,\"}\\\"\"]},\"max_tokens\":100}");
	buf_reset(&out);
	CHECK_INT(ask(p, API_CHAT, "{\"model\":\"gpt-5\",\"seed\":12345678901234567890}", &a, &d), 0);
	CHECK(a.answer == INT64_MAX);
	body_build(p, &a, 7, &out); /* numbers keep their digits */
	CHECK_STR(buf_str(&out), "{\"model\":\"gpt-5\",\"seed\":12345678901234567890,\"max_completion_tokens\":7}");
	buf_reset(&out);
	CHECK_INT(ask(p, API_RESPONSES, "{\"store\":false,\"model\":\"gpt-5\"}", &a, &d), 0);
	body_build(p, &a, INT64_MAX, &out);
	CHECK_STR(buf_str(&out), "{\"model\":\"gpt-5\",\"store\":false}");
	policy_put(p);
}

CHECK_MAIN()
