/* The table of models and providers, and how config changes it. Prices, windows and abilities are data: a name that is
 * not here works all the same, with what config says about it. */
#include "models.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "gateway/gateway.h"

/* Providers that have a usual place. url NULL: the gateway's default policy has the line. */
static const struct {
	const char *name, *kind, *url, *key;
	int quirks;
} known[] = {
	{"claude-code", "claude-code", NULL, "", 0}, /* the installed program with a login of its own */
	{"anthropic", "anthropic", NULL, "anthropic", 0},
	{"openai", "openai", NULL, "openai", 0},
	{"openai-responses", "responses", NULL, "openai", 0},
	{"openrouter", "openai", "https://openrouter.ai/api", "openrouter", QUIRK_MAX_TOKENS},
	{"deepseek", "openai", "https://api.deepseek.com", "deepseek", QUIRK_MAX_TOKENS},
	{"ollama", "openai", "http://127.0.0.1:11434", "ollama", QUIRK_MAX_TOKENS},
	{"llamacpp", "openai", "http://127.0.0.1:8080", "llamacpp", QUIRK_MAX_TOKENS},
	{"vllm", "openai", "http://127.0.0.1:8000", "vllm", QUIRK_MAX_TOKENS},
	{"lmstudio", "openai", "http://127.0.0.1:1234", "lmstudio", QUIRK_MAX_TOKENS},
};

/* First fit counts. Dollars for a million tokens, as the providers' pages had them in November 2026; where a price
 * depends on a prompt's length, the dearer one. A family whose newest member is not known is taken for its dearest. */
static const struct row {
	const char *glob, *provider;
	int64_t window, output;
	const char *thinking;
	bool images;
	double in, out, cached; /* in 0: not known */
} rows[] = {
	{"claude-fable-5*", "anthropic", 1000000, 128000, "summarized", true, 10, 50, 1},
	{"claude-opus-5-5*", "anthropic", 1000000, 128000, "summarized", true, 4, 20, 0.2},
	{"claude-opus-5*", "anthropic", 1000000, 128000, "summarized", true, 5, 25, 0.5},
	{"claude-sonnet-5*", "anthropic", 1000000, 128000, "summarized", true, 2, 10, 0.2},
	{"claude-haiku-5*", "anthropic", 1000000, 128000, "summarized", true, 0.5, 2.5, 0.05},
	{"claude-opus-4-[678]*", "anthropic", 200000, 64000, "adaptive", true, 5, 25, 0.5},
	{"claude-sonnet-4-6*", "anthropic", 200000, 64000, "adaptive", true, 3, 15, 0.3},
	{"claude-haiku-4-5*", "anthropic", 200000, 64000, "8192", true, 1, 5, 0.1},
	{"claude-sonnet-4-5*", "anthropic", 200000, 64000, "8192", true, 3, 15, 0.3},
	{"claude-opus-4-5*", "anthropic", 200000, 64000, "8192", true, 5, 25, 0.5},
	{"claude-opus-4-1*", "anthropic", 200000, 32000, "8192", true, 15, 75, 1.5},
	{"claude-opus-*", "anthropic", 200000, 64000, "adaptive", true, 15, 75, 1.5},
	{"claude-sonnet-*", "anthropic", 200000, 64000, "adaptive", true, 3, 15, 0.3},
	{"claude-haiku-*", "anthropic", 200000, 64000, "adaptive", true, 1, 5, 0.1},
	{"claude-*", "anthropic", 200000, 32000, "off", true, 0, 0, 0},
	{"gpt-5.6-luna*", "openai-responses", 922000, 128000, "on", true, 0.4, 1.8, 0.04},
	{"gpt-5.6-terra*", "openai-responses", 922000, 128000, "on", true, 4, 18, 0.4},
	{"gpt-5.6*", "openai-responses", 922000, 128000, "on", true, 10, 50, 1},
	{"gpt-5.5*", "openai-responses", 922000, 128000, "on", true, 10, 45, 1},
	{"gpt-5.4-nano*", "openai-responses", 272000, 128000, "on", true, 0.2, 1.25, 0.02},
	{"gpt-5.4-mini*", "openai-responses", 272000, 128000, "on", true, 0.75, 4.5, 0.075},
	{"gpt-5.4*", "openai-responses", 922000, 128000, "on", true, 5, 22.5, 0.5},
	{"gpt-5-nano*", "openai-responses", 272000, 128000, "on", true, 0.05, 0.4, 0.005},
	{"gpt-5-mini*", "openai-responses", 272000, 128000, "on", true, 0.25, 2, 0.025},
	{"gpt-5", "openai-responses", 272000, 128000, "on", true, 1.25, 10, 0.125},
	{"o3*", "openai-responses", 100000, 100000, "on", true, 2, 8, 0.5},
	{"o4-mini*", "openai-responses", 100000, 100000, "on", true, 1.1, 4.4, 0.275},
	{"gpt-4.1-nano*", "openai", 1047576, 32768, "off", true, 0.1, 0.4, 0.025},
	{"gpt-4.1-mini*", "openai", 1047576, 32768, "off", true, 0.4, 1.6, 0.1},
	{"gpt-4.1*", "openai", 1047576, 32768, "off", true, 2, 8, 0.5},
	{"gpt-4o-mini*", "openai", 128000, 16384, "off", true, 0.15, 0.6, 0.075},
	{"gpt-4o*", "openai", 128000, 16384, "off", true, 2.5, 10, 1.25},
	{"gpt-4*", "openai", 8192, 4096, "off", false, 0, 0, 0},
	{"gpt-*", "openai-responses", 128000, 0, "on", true, 0, 0, 0},
};

static const struct {
	const char *word;
	int quirk;
} quirks[] = {{"max-tokens", QUIRK_MAX_TOKENS},
	      {"no-usage", QUIRK_NO_USAGE},
	      {"tool-name", QUIRK_TOOL_NAME},
	      {"null-content", QUIRK_NULL_CONTENT}};

static const char *const kinds[] = {"anthropic", "openai", "responses"};
static const char *const thinkings[] = {"off", "on", "adaptive", "summarized", "low", "medium", "high", "xhigh", "max"};

static bool one_of(const char *const *list, size_t n, const char *word)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(list[i], word))
			return true;
	return false;
}

/* -1: a word that is no quirk, in bad. */
static int read_quirks(const char *text, char *bad, size_t cap)
{
	int all = 0;
	CLEAN_FREE char *copy = xstrdup(text);
	char *save = NULL;
	for (char *w = strtok_r(copy, " ,\t", &save); w; w = strtok_r(NULL, " ,\t", &save)) {
		int q = 0;
		for (size_t i = 0; i < ARRAY_LEN(quirks); i++)
			q |= strcmp(quirks[i].word, w) ? 0 : quirks[i].quirk;
		if (!q && strcmp(w, "none")) {
			snprintf(bad, cap, "%s", w);
			return -1;
		}
		all |= q;
	}
	return all;
}

/* ---- keys of config ---- */

/* PREFIX.NAME.FIELD: true if key is that, with *value. */
static const char *value_of(const struct config *c, const char *prefix, const char *name, const char *field)
{
	CLEAN_FREE char *key = xasprintf("%s.%s.%s", prefix, name, field);
	return config_extra(c, key);
}

/* Splits "PREFIX.NAME.FIELD" at its first and last point. */
static int split(const char *key, char *name, size_t cap, const char **field, struct err *err)
{
	const char *first = strchr(key, '.'), *last = strrchr(key, '.');
	size_t n = first < last ? (size_t)(last - first - 1) : 0;
	if (!n || n >= cap || !last[1])
		return err_set(err, EINVAL, "\"%.80s\" lacks a name or a field: it is %.*s.NAME.FIELD", key,
			       (int)(first - key), key);
	memcpy(name, first + 1, n);
	name[n] = 0;
	*field = last + 1;
	return 0;
}

static bool name_of_provider(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
	return n && !s[n] && n < 48;
}

static int check_url(const char *name, const char *value, struct err *err)
{
	CLEAN_FREE char *line = xasprintf("provider %s openai %s", name, value);
	if (strpbrk(value, " \t") || strlen(value) >= 256)
		return err_set(err, EINVAL, "a provider's URL is https://HOST[:PORT][/PATH]");
	return gateway_policy_check_line(line, strlen(line), err);
}

int models_check_provider(const char *key, const char *value, struct err *err)
{
	char name[64], bad[64];
	const char *field;
	int rc = split(key, name, sizeof name, &field, err);
	if (rc)
		return rc;
	if (!name_of_provider(name))
		return err_set(err, EINVAL, "a provider's name is letters, digits, - and _, not \"%.60s\"", name);
	if (!strcmp(field, "kind"))
		return one_of(kinds, ARRAY_LEN(kinds), value)
			       ? 0
			       : err_set(err, EINVAL,
					 "%s cannot be \"%.60s\"; possible: anthropic (Messages), openai (Chat "
					 "Completions), "
					 "responses (OpenAI Responses)",
					 key, value);
	if (!strcmp(field, "url"))
		return check_url(name, value, err);
	if (!strcmp(field, "key"))
		return name_of_provider(value) ? 0 : err_set(err, EINVAL, "%s: no name of a key", key);
	if (!strcmp(field, "ca"))
		return *value == '/' && strlen(value) < 256 && !value[strcspn(value, " \t#")]
			       ? 0
			       : err_set(err, EINVAL, "%s is the absolute path of a file of certificates", key);
	if (!strcmp(field, "quirks"))
		return read_quirks(value, bad, sizeof bad) >= 0
			       ? 0
			       : err_set(err, EINVAL,
					 "\"%.60s\" is no quirk; known: max-tokens, no-usage, tool-name, null-content, "
					 "none",
					 bad);
	return err_set(err, EINVAL, "a provider has kind, url, key, ca and quirks, not \"%.60s\"", field);
}

static bool model_name_fits(const char *s)
{
	for (const char *c = s; *c; c++)
		if (*c <= 0x20 || *c >= 0x7f || *c == '"' || *c == '\\')
			return false;
	return *s && strlen(s) < MODEL_NAME;
}

static bool whole_number(const char *s, int64_t max, int64_t *out)
{
	char *end;
	if (!isdigit((unsigned char)*s) || strlen(s) > 12)
		return false;
	*out = strtoll(s, &end, 10);
	return !*end && *out <= max;
}

int models_check_model(const char *key, const char *value, struct err *err)
{
	char name[MODEL_NAME];
	const char *field;
	int64_t n;
	int rc = split(key, name, sizeof name, &field, err);
	if (rc)
		return rc;
	if (!model_name_fits(name))
		return err_set(err, EINVAL, "\"%.80s\" is no model's name", name);
	if (!strcmp(field, "provider"))
		return name_of_provider(value) ? 0 : err_set(err, EINVAL, "%s: no provider's name", key);
	if (!strcmp(field, "id"))
		return model_name_fits(value) ? 0 : err_set(err, EINVAL, "%s: no model's name", key);
	if (!strcmp(field, "window") || !strcmp(field, "max-output"))
		return whole_number(value, 100000000, &n) && n > 0
			       ? 0
			       : err_set(err, EINVAL, "%s is a number of tokens, not \"%.60s\"", key, value);
	if (!strcmp(field, "images"))
		return !strcmp(value, "yes") || !strcmp(value, "no")
			       ? 0
			       : err_set(err, EINVAL, "%s is yes or no, not \"%.60s\"", key, value);
	if (!strcmp(field, "thinking"))
		return one_of(thinkings, ARRAY_LEN(thinkings), value) || (whole_number(value, 1000000, &n) && n >= 1024)
			       ? 0
			       : err_set(err, EINVAL,
					 "%s is off, on, adaptive, summarized, low, medium, high, xhigh, max, or a "
					 "number of tokens from 1024 "
					 "on; not \"%.60s\"",
					 key, value);
	return err_set(err, EINVAL, "a model has provider, id, window, max-output, thinking and images, not \"%.60s\"",
		       field);
}

/* ---- providers ---- */

static void copy(char *to, size_t cap, const char *from)
{
	snprintf(to, cap, "%s", from ? from : "");
}

int models_provider(const struct config *c, const char *name, struct provider_info *out, struct err *err)
{
	char bad[64];
	const char *kind = value_of(c, "provider", name, "kind"), *url = value_of(c, "provider", name, "url"),
		   *key = value_of(c, "provider", name, "key"), *q = value_of(c, "provider", name, "quirks"),
		   *ca = value_of(c, "provider", name, "ca");
	*out = (struct provider_info){.set = kind || url || key || q || ca};
	copy(out->ca, sizeof out->ca, ca);
	copy(out->name, sizeof out->name, name);
	copy(out->key, sizeof out->key, key ? key : name);
	copy(out->url, sizeof out->url, url);
	copy(out->kind, sizeof out->kind, kind);
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strcmp(known[i].name, name))
			continue;
		if (!kind)
			copy(out->kind, sizeof out->kind, known[i].kind);
		if (!url)
			copy(out->url, sizeof out->url, known[i].url);
		if (!key)
			copy(out->key, sizeof out->key, known[i].key);
		out->quirks = known[i].quirks;
	}
	if (q)
		out->quirks = read_quirks(q, bad, sizeof bad);
	if (!*out->kind && out->set)
		return err_set(err, EINVAL,
			       "provider.%s.kind is not set: write anthropic, openai or responses, by what the server "
			       "speaks",
			       name);
	return *out->kind ? 0 : err_set(err, EINVAL, "there is no provider \"%.60s\"", name);
}

bool provider_near(const struct provider_info *p)
{
	return *p->url && gateway_near(p->url);
}

static bool listed(const struct buf *out, const char *name)
{
	CLEAN_FREE char *line = xasprintf("\n%s\n", name);
	CLEAN_FREE char *all = xasprintf("\n%s", buf_str(out));
	return strstr(all, line) != NULL;
}

/* NAME of each key PREFIX.NAME.FIELD of config, once. */
static void names_in(const struct config *c, const char *prefix, struct buf *out)
{
	char name[MODEL_NAME];
	const char *field;
	size_t n = strlen(prefix);
	for (size_t i = 0; i < c->n_extra; i++)
		if (!strncmp(c->extra[i].name, prefix, n) && c->extra[i].name[n] == '.' &&
		    !split(c->extra[i].name, name, sizeof name, &field, NULL) && !listed(out, name))
			buf_addf(out, "%s\n", name);
}

void models_providers(const struct config *c, struct buf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		buf_addf(out, "%s\n", known[i].name);
	names_in(c, "provider", out);
}

/* ---- models ---- */

static const struct row *row_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!fnmatch(rows[i].glob, name, 0))
			return &rows[i];
	return NULL;
}

/* Who serves it, and by what name. */
static int serve(const struct config *c, struct model_info *m, const struct row *row, struct err *err)
{
	char first[64];
	if (!strcmp(m->name, "claude-code")) { /* it chooses */
		*m->id = 0;
		return models_provider(c, m->name, &m->provider, err);
	}
	const char *slash = strchr(m->name, '/'), *set = value_of(c, "model", m->name, "provider");
	size_t n = slash ? (size_t)(slash - m->name) : 0;
	if (set)
		return models_provider(c, set, &m->provider, err);
	if (n && n < sizeof first && slash[1]) {
		memcpy(first, m->name, n);
		first[n] = 0;
		struct err why = ERR_INIT;
		if (!models_provider(c, first, &m->provider, &why)) {
			copy(m->id, sizeof m->id, slash + 1);
			return 0;
		}
		if (m->provider.set)
			return err_set(err, EINVAL, "%s", why.text);
	}
	if (row)
		return models_provider(c, row->provider, &m->provider, err);
	return err_set(err, EINVAL,
		       "no provider is known for the model \"%.60s\": write PROVIDER/%.60s (berthfs models lists "
		       "providers), or "
		       "`model.%.60s.provider = PROVIDER` to config",
		       m->name, m->name, m->name);
}

int models_find(const struct config *c, const char *name, struct model_info *out, struct err *err)
{
	*out = (struct model_info){0};
	if (!model_name_fits(name))
		return err_set(err, EINVAL, "\"%.60s\" is no model's name", name);
	copy(out->name, sizeof out->name, name);
	copy(out->id, sizeof out->id, name);
	copy(out->thinking, sizeof out->thinking, "off");
	const struct row *row = row_of(strncmp(name, "claude-code/", 12) ? name : name + 12);
	int rc = serve(c, out, row, err);
	if (rc)
		return rc;
	if (row) {
		out->window = row->window;
		out->max_output = row->output;
		out->images = row->images;
		copy(out->thinking, sizeof out->thinking, row->thinking);
	}
	const char *id = value_of(c, "model", name, "id"), *window = value_of(c, "model", name, "window"),
		   *most = value_of(c, "model", name, "max-output"), *images = value_of(c, "model", name, "images"),
		   *thinking = value_of(c, "model", name, "thinking");
	if (id)
		copy(out->id, sizeof out->id, id);
	if (window)
		whole_number(window, INT64_MAX, &out->window);
	if (most)
		whole_number(most, INT64_MAX, &out->max_output);
	if (images)
		out->images = !strcmp(images, "yes");
	if (thinking)
		copy(out->thinking, sizeof out->thinking, thinking);
	out->priced = config_price(c, name, &out->price);
	bool login = !strcmp(out->provider.kind, "claude-code"); /* it is paid for by the login, and not by the token */
	if (login && !out->window)
		out->window = 200000;
	if (login)
		out->images = true;
	if (!out->priced && (login || provider_near(&out->provider)))
		out->priced = true; /* free of charge */
	else if (!out->priced && row && row->in > 0 && !strcmp(out->provider.name, row->provider)) {
		out->price = (struct price){row->in, row->out, row->cached};
		out->priced = true;
	}
	return 0;
}

int64_t models_window(const struct config *c, const char *name)
{
	struct model_info info;
	int64_t n;
	const char *set = value_of(c, "model", name, "window");
	if (set && whole_number(set, INT64_MAX, &n))
		return n;
	return models_find(c, name, &info, NULL) ? 0 : info.window;
}

bool models_price(const struct config *c, const char *name, struct price *out)
{
	struct model_info m;
	if (config_price(c, name, out))
		return true;
	if (models_find(c, name, &m, NULL) || !m.priced)
		return false;
	*out = m.price;
	return true;
}

void models_names(const struct config *c, const char *provider, struct buf *out)
{
	CLEAN_BUF struct buf all = BUF_INIT;
	struct model_info m;
	names_in(c, "model", &all);
	CLEAN_FREE char *text = buf_take(&all);
	char *rest = text;
	for (char *line; (line = strsep(&rest, "\n"));)
		if (*line && !models_find(c, line, &m, NULL) && !strcmp(m.provider.name, provider))
			buf_addf(out, "%s\n", line);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char name[MODEL_NAME];
		copy(name, sizeof name, rows[i].glob);
		if (!strcmp(rows[i].provider, provider) && !listed(out, name))
			buf_addf(out, "%s\n", name);
	}
}
