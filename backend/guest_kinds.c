/* Flags and variables of each agent: headless, a JSON object a line, no question asked (the sandbox is what holds it),
 * no update, no word to anyone but the gateway. Prompts come by standard input. Tokens are in the sandbox's environment
 * (gate_env.c), never here. */
#include "guest_kinds.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "gateway/gateway.h"

#define WINDOW_GUESS 128000 /* tokens of a model whose window nobody told */
#define ANSWER_GUESS 16000

void guest_words_add(struct guest_words *w, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	w->p = xrealloc(w->p, (w->n + 2) * sizeof *w->p);
	w->p[w->n++] = xvasprintf(fmt, ap);
	w->p[w->n] = NULL;
	va_end(ap);
}

void guest_words_release(struct guest_words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->p[i]);
	free(w->p);
	*w = (struct guest_words){0};
}

static void add_all(struct guest_words *w, const char *const *words)
{
	for (; *words; words++)
		guest_words_add(w, "%s", *words);
}

/* ---- Claude Code ---- */

static void claude_argv(const struct guest_start *s, struct guest_words *argv)
{
	static const char *const words[] = {"claude",
					    "-p",
					    "--verbose",
					    "--output-format",
					    "stream-json",
					    "--include-partial-messages",
					    "--dangerously-skip-permissions",
					    "--model",
					    NULL};
	add_all(argv, words);
	guest_words_add(argv, "%s", s->m->id);
	if (*s->talk) {
		guest_words_add(argv, "--resume");
		guest_words_add(argv, "%s", s->talk);
	}
}

/* Helpers of its own ask the same model: another may not be served here. */
static void claude_environ(const struct guest_start *s, struct guest_words *pairs)
{
	static const char *const models[] = {"ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
					     "ANTHROPIC_DEFAULT_OPUS_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL"};
	guest_words_add(pairs, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1");
	guest_words_add(pairs, "DISABLE_AUTOUPDATER=1");
	guest_words_add(pairs, "IS_SANDBOX=1");
	for (size_t i = 0; i < ARRAY_LEN(models); i++)
		guest_words_add(pairs, "%s=%s", models[i], s->m->id);
	if (*s->provider)
		guest_words_add(pairs, "ANTHROPIC_CUSTOM_HEADERS=" GATE_PROVIDER ": %s", s->provider);
}

/* ---- OpenCode ---- */

static void opencode_argv(const struct guest_start *s, struct guest_words *argv)
{
	static const char *const words[] = {"opencode", "run", "--format", "json", "-m", NULL};
	add_all(argv, words);
	guest_words_add(argv, "berthfs/%s", s->m->id);
	if (*s->talk) {
		guest_words_add(argv, "--session");
		guest_words_add(argv, "%s", s->talk);
	}
}

static int64_t else_of(int64_t n, int64_t otherwise)
{
	return n > 0 ? n : otherwise;
}

/* Which of the policy's providers it asks, as a member and a comma. malloc'd. */
static char *fields_json(const struct guest_start *s)
{
	return *s->provider ? xasprintf("\"headers\":{\"" GATE_PROVIDER "\":\"%s\"},", s->provider) : xstrdup("");
}

static void opencode_environ(const struct guest_start *s, struct guest_words *pairs)
{
	bool anthropic = !strcmp(s->m->provider.kind, "anthropic"), chat = !strcmp(s->m->provider.kind, "openai");
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_BUF struct buf id = BUF_INIT;
	CLEAN_FREE char *fields = fields_json(s);
	json_quote(&id, s->m->id, strlen(s->m->id));
	buf_addf(&b,
		 "{\"autoupdate\":false,\"share\":\"disabled\",\"permission\":{\"*\":\"allow\"},\"small_model\":"
		 "\"berthfs/%.*s,\"provider\":{\"berthfs\":{\"name\":\"berthfs\",\"npm\":\"%s\",\"options\":{"
		 "\"baseURL\":\"%s/v1\",%s\"apiKey\":\"{env:%s}\"},\"models\":{%s:{\"name\":%s,\"tool_call\":true,"
		 "\"limit\":{\"context\":%" PRId64 ",\"output\":%" PRId64 "}}}}}}",
		 (int)id.n - 1, buf_str(&id) + 1,
		 anthropic ? "@ai-sdk/anthropic"
		 : chat	   ? "@ai-sdk/openai-compatible"
			   : "@ai-sdk/openai",
		 s->url, fields, anthropic ? "ANTHROPIC_API_KEY" : "OPENAI_API_KEY", buf_str(&id), buf_str(&id),
		 else_of(s->m->window, WINDOW_GUESS), else_of(s->m->max_output, ANSWER_GUESS));
	guest_words_add(pairs, "OPENCODE_CONFIG_CONTENT=%s", buf_str(&b));
	guest_words_add(pairs, "OPENCODE_DISABLE_MODELS_FETCH=1");
	guest_words_add(pairs, "OPENCODE_DISABLE_AUTOUPDATE=1");
	guest_words_add(pairs, "OPENCODE_DISABLE_LSP_DOWNLOAD=1");
}

/* ---- Codex ---- */

static void codex_argv(const struct guest_start *s, struct guest_words *argv)
{
	static const char *const words[] = {"--json", "--skip-git-repo-check",
					    "--dangerously-bypass-approvals-and-sandbox", NULL};
	guest_words_add(argv, "codex");
	guest_words_add(argv, "exec");
	if (*s->talk)
		guest_words_add(argv, "resume");
	add_all(argv, words);
	guest_words_add(argv, "-m");
	guest_words_add(argv, "%s", s->m->id);
	guest_words_add(argv, "-c");
	guest_words_add(argv, "web_search=\"disabled\"");
	guest_words_add(argv, "-c");
	guest_words_add(argv, "model_provider=\"berthfs\"");
	guest_words_add(argv, "-c");
	guest_words_add(argv,
			"model_providers.berthfs={name=\"berthfs\",base_url=\"%s/v1\",env_key=\"OPENAI_API_KEY\","
			"wire_api=\"responses\"%s%s%s}",
			s->url, *s->provider ? ",http_headers={\"" GATE_PROVIDER "\"=\"" : "", s->provider,
			*s->provider ? "\"}" : "");
	if (s->m->window) {
		guest_words_add(argv, "-c");
		guest_words_add(argv, "model_context_window=%" PRId64, s->m->window);
	}
	if (*s->talk)
		guest_words_add(argv, "%s", s->talk);
	guest_words_add(argv, "-");
}

static void no_environ(const struct guest_start *s, struct guest_words *pairs)
{
}

/* ---- pi ---- */

#define PI_FOLDER ".cache/berthfs/pi" /* its settings and conversations: it reads models from a file alone */

/* It prints the whole message with each piece of it; the filter leaves the piece. */
static const char pi_filter[] =
	"s/"
	"^[{]\"type\":\"message_update\",\"assistantMessageEvent\":[{]\"type\":\"text_delta\",\"contentIndex\":[0-9]*,"
	"\"delta\":\"(([^\"\\\\]|\\\\.)*)\".*/{\"type\":\"piece\",\"text\":\"\\1\"}/\n"
	"/^[{]\"type\":\"(message_update|tool_execution_update|agent_end|turn_end)\"/d";

static void pi_argv(const struct guest_start *s, struct guest_words *argv)
{
	static const char *const words[] = {"pi", "-p", "--mode", "json", "--provider", "berthfs", "--model", NULL};
	add_all(argv, words);
	guest_words_add(argv, "%s", s->m->id);
	if (*s->talk) {
		guest_words_add(argv, "--session");
		guest_words_add(argv, "%s", s->talk);
	}
}

static void pi_environ(const struct guest_start *s, struct guest_words *pairs)
{
	guest_words_add(pairs, "PI_CODING_AGENT_DIR=%s/" PI_FOLDER, s->home);
	guest_words_add(pairs, "PI_OFFLINE=1");
	guest_words_add(pairs, "PI_SKIP_VERSION_CHECK=1");
}

static void pi_models(const struct guest_start *s, struct buf *out)
{
	bool anthropic = !strcmp(s->m->provider.kind, "anthropic"), chat = !strcmp(s->m->provider.kind, "openai");
	CLEAN_BUF struct buf id = BUF_INIT;
	CLEAN_FREE char *fields = fields_json(s);
	json_quote(&id, s->m->id, strlen(s->m->id));
	buf_addf(out,
		 "{\"providers\":{\"berthfs\":{\"baseUrl\":\"%s%s\",%s\"api\":\"%s\",\"apiKey\":\"%s\",\"models\":[{"
		 "\"id\":%s,"
		 "\"name\":%s,\"reasoning\":false,\"input\":[\"text\"%s],\"contextWindow\":%" PRId64
		 ",\"maxTokens\":%" PRId64
		 ",\"cost\":{\"input\":0,\"output\":0,\"cacheRead\":0,\"cacheWrite\":0}}]}}}\n",
		 s->url, anthropic ? "" : "/v1", fields,
		 anthropic ? "anthropic-messages"
		 : chat	   ? "openai-completions"
			   : "openai-responses",
		 anthropic ? "ANTHROPIC_API_KEY" : "OPENAI_API_KEY", buf_str(&id), buf_str(&id),
		 s->m->images ? ",\"image\"" : "", else_of(s->m->window, WINDOW_GUESS),
		 else_of(s->m->max_output, ANSWER_GUESS));
}

/* ---- a command ---- */

static void command_argv(const struct guest_start *s, struct guest_words *argv)
{
	guest_words_add(argv, "/bin/bash");
	guest_words_add(argv, "-c");
	guest_words_add(argv, "%s", s->command);
}

static void command_environ(const struct guest_start *s, struct guest_words *pairs)
{
	guest_words_add(pairs, "BERTHFS_PROMPT=%" PRId64, s->n);
	if (s->m)
		guest_words_add(pairs, "BERTHFS_MODEL=%s", s->m->id);
	if (*s->provider)
		guest_words_add(pairs, "BERTHFS_PROVIDER=%s", s->provider);
}

/* ---- the table ---- */

static const struct guest_kind kinds[] = {
	{"opencode", "opencode", "anthropic openai responses", true, guest_opencode, NULL, opencode_argv,
	 opencode_environ, NULL, NULL},
	{"claude", "claude", "anthropic", false, guest_claude, NULL, claude_argv, claude_environ, NULL, NULL},
	{"codex", "codex", "responses", true, guest_codex, NULL, codex_argv, no_environ, NULL, NULL},
	{"pi", "pi", "anthropic openai responses", true, guest_pi, pi_filter, pi_argv, pi_environ,
	 PI_FOLDER "/models.json", pi_models},
	{NULL, NULL, NULL, false, NULL, NULL, command_argv, command_environ, NULL, NULL},
};

const struct guest_kind *guest_kind(const char *agent)
{
	const struct guest_kind *k = kinds;
	while (k->name && strcmp(k->name, agent))
		k++;
	return k;
}

void guest_kind_names(struct buf *out)
{
	for (const struct guest_kind *k = kinds; k->name; k++)
		buf_addf(out, "%s%s", k == kinds ? "" : ", ", k->name);
}
