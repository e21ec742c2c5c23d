/* Reads the policy's text and answers questions about it. Pure; one thread. */
#include "policy.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "net.h"

#define WORDS 64

static const struct {
	const char *method, *path;
	int kinds; /* bits of enum kind */
} apis[API_N] = {
	[API_MESSAGES] = {"POST", "/v1/messages", 1 << KIND_ANTHROPIC},
	[API_COUNT_TOKENS] = {"POST", "/v1/messages/count_tokens", 1 << KIND_ANTHROPIC},
	[API_CHAT] = {"POST", "/v1/chat/completions", 1 << KIND_OPENAI},
	[API_RESPONSES] = {"POST", "/v1/responses", 1 << KIND_RESPONSES},
	[API_COUNT_INPUT] = {"POST", "/v1/responses/input_tokens", 1 << KIND_RESPONSES},
	[API_MODELS] = {"GET", "/v1/models", 1 << KIND_ANTHROPIC | 1 << KIND_OPENAI | 1 << KIND_RESPONSES},
};

static const char *const kinds[] = {"anthropic", "openai", "responses", NULL};
static const char *const scopes[] = {"session", "project", "day", NULL};
static const char *const limits[] = {"requests-per-minute", "concurrency", "tokens", "money", "bytes", NULL};
static const char *const features[] = {"server-tools", "url-content", "stored-objects", NULL};

static int index_of(const char *const *table, const char *word)
{
	for (int i = 0; table[i]; i++)
		if (!strcmp(table[i], word))
			return i;
	return -1;
}

/* ---- values ---- */

/* A decimal number with at most `places` digits after the point, times 10^places. */
static bool decimal(const char *s, int places, int64_t *out)
{
	int64_t n = 0;
	int after = -1, digits = 0;
	for (; *s; s++) {
		if (*s == '.' && after < 0) {
			after = 0;
			continue;
		}
		if (!isdigit((unsigned char)*s) || n > INT64_MAX / 10 - 10 || (after >= 0 && ++after > places))
			return false;
		n = n * 10 + (*s - '0');
		digits++;
	}
	for (int i = after < 0 ? 0 : after; i < places; i++) {
		if (n > INT64_MAX / 10)
			return false;
		n *= 10;
	}
	*out = n;
	return digits > 0;
}

static void words_add(struct words *w, const char *s)
{
	w->p = xrealloc(w->p, (w->n + 1) * sizeof *w->p);
	w->p[w->n++] = xstrdup(s);
}

void words_release(struct words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->p[i]);
	free(w->p);
}

bool words_have(const struct words *w, const char *word, size_t n)
{
	for (size_t i = 0; i < w->n; i++)
		if (strlen(w->p[i]) == n && !memcmp(w->p[i], word, n))
			return true;
	return false;
}

/* ---- lines: each handler gets the words after the first ---- */

struct line {
	struct policy *p;
	char *w[WORDS];
	int n;
	bool alone; /* judged by itself: names that other lines define are not looked up */
	struct err *err;
};

static int wrong(struct line *l, const char *what, const char *word)
{
	return err_set(l->err, EINVAL, word ? "%s: %.80s" : "%s", what, word);
}

static bool key_name(const char *name)
{
	return *name && !strchr(name, '/') && *name != '.';
}

static struct provider *provider_of(const struct policy *p, const char *name)
{
	list_each (i, &p->providers) {
		struct provider *v = list_entry(i, struct provider, link);
		if (!strcmp(v->name, name))
			return v;
	}
	return NULL;
}

/* scheme://host[:port][/prefix]; http only for what is near. */
static int origin(struct line *l, const char *url, bool *local, char **out)
{
	char host[256];
	int port;
	bool tls = !strncmp(url, "https://", 8);
	if (!tls && strncmp(url, "http://", 7))
		return wrong(l, "a provider's URL begins with https://, or http:// for this machine and its LAN", url);
	const char *at = url + (tls ? 8 : 7), *slash = strchr(at, '/');
	CLEAN_FREE char *authority = xstrndup(at, slash ? (size_t)(slash - at) : strlen(at));
	if (net_host_port(authority, tls ? 443 : 80, host, sizeof host, &port) || strpbrk(url, "?#@\\%"))
		return wrong(l, "a provider's URL is https://HOST[:PORT][/PATH]", url);
	*local = net_near(host);
	if (!tls && !*local)
		return wrong(l, "http:// would show the key to the network; https:// is needed for", host);
	size_t n = strlen(url);
	while (n && url[n - 1] == '/')
		n--;
	if (n > 3 && !strncmp(url + n - 3, "/v1", 3))
		n -= 3;
	*out = xstrndup(url, n);
	return 0;
}

static int on_provider(struct line *l)
{
	bool local;
	char *url;
	if (l->n < 3)
		return wrong(l, "provider NAME KIND URL is needed", NULL);
	int kind = index_of(kinds, l->w[1]);
	if (kind < 0)
		return wrong(l, "a provider's kind is anthropic, openai or responses, not", l->w[1]);
	for (const char *c = l->w[0]; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_')
			return wrong(l, "a provider's name is letters, digits, - and _", l->w[0]);
	if (provider_of(l->p, l->w[0]))
		return wrong(l, "there are two providers of the name", l->w[0]);
	int rc = origin(l, l->w[2], &local, &url);
	if (rc)
		return rc;
	struct provider *v = xcalloc(1, sizeof *v);
	*v = (struct provider){.name = xstrdup(l->w[0]),
			       .url = url,
			       .kind = (enum kind)kind,
			       .local = local,
			       .output_field = "max_completion_tokens"};
	list_append(&l->p->providers, &v->link);
	for (int i = 3; i < l->n; i += 2) {
		char **to = !strcmp(l->w[i], "key") ? &v->key : !strcmp(l->w[i], "ca") ? &v->ca : NULL;
		if (i + 1 < l->n && to && !*to)
			*to = xstrdup(l->w[i + 1]);
		else if (i + 1 < l->n && !strcmp(l->w[i], "output") && !strcmp(l->w[i + 1], "max_tokens"))
			v->output_field = "max_tokens";
		else if (i + 1 >= l->n || strcmp(l->w[i], "output") || strcmp(l->w[i + 1], v->output_field))
			return wrong(l, "after the URL come key NAME, ca FILE, output max_tokens; not", l->w[i]);
	}
	if (!v->key)
		v->key = xstrdup(v->name);
	return key_name(v->key) ? 0 : wrong(l, "no name of a key", v->key);
}

static int on_model(struct line *l)
{
	if (l->n < 2)
		return wrong(l, "model PROVIDER GLOB... is needed", NULL);
	const struct provider *v = provider_of(l->p, l->w[0]);
	if (!v && !l->alone)
		return wrong(l, "no provider line (above this one) names", l->w[0]);
	for (int i = 1; i < l->n; i++) {
		struct model_rule *m = xcalloc(1, sizeof *m);
		*m = (struct model_rule){.glob = xstrdup(l->w[i]), .provider = v};
		list_append(&l->p->models, &m->link);
	}
	return 0;
}

static int on_price(struct line *l)
{
	struct price *c = xcalloc(1, sizeof *c);
	bool in = false, out = false, read = false, write = false;
	c->glob = xstrdup(l->n ? l->w[0] : "");
	list_append(&l->p->prices, &c->link);
	if (l->n == 2 && !strcmp(l->w[1], "free"))
		return 0;
	for (int i = 1; i < l->n; i += 2) {
		const char *w = l->w[i];
		int64_t *to = !strcmp(w, "input")	  ? (in = true, &c->input)
			      : !strcmp(w, "output")	  ? (out = true, &c->output)
			      : !strcmp(w, "cache-read")  ? (read = true, &c->cache_read)
			      : !strcmp(w, "cache-write") ? (write = true, &c->cache_write)
							  : NULL;
		if (!to || i + 1 >= l->n || !decimal(l->w[i + 1], 6, to) || *to > 1000000000000)
			return wrong(l,
				     "a price is input D output D [cache-read D] [cache-write D] in dollars a million "
				     "tokens",
				     w);
	}
	if (!in || !out)
		return wrong(l, "a price needs a GLOB, input and output, or the word free", NULL);
	c->cache_read = read ? c->cache_read : c->input;
	c->cache_write = write ? c->cache_write : c->input;
	return 0;
}

static int on_limit(struct line *l)
{
	int scope = l->n == 3 ? index_of(scopes, l->w[0]) : -1, name = l->n == 3 ? index_of(limits, l->w[1]) : -1;
	int64_t v;
	if (scope < 0 || name < 0)
		return wrong(
			l,
			"limit session|project|day requests-per-minute|concurrency|tokens|money|bytes VALUE is needed",
			NULL);
	if (!decimal(l->w[2], name == LIMIT_MONEY ? 9 : 0, &v) || v >= LIMIT_OFF / 4)
		return wrong(l, "no number", l->w[2]);
	if (name == LIMIT_RATE && v > 100000)
		return wrong(l, "at most 100000 requests a minute", l->w[2]);
	l->p->limits[scope][name] = v;
	return 0;
}

static int api_of_path(const char *path)
{
	for (int i = 0; i < API_N; i++)
		if (!strcmp(apis[i].path, path))
			return i;
	return -1;
}

static int on_route(struct line *l)
{
	int api = l->n >= 2 ? api_of_path(l->w[1]) : -1;
	if (api < 0 || strcmp(l->w[0], apis[api].method))
		return wrong(l,
			     "known routes are POST /v1/messages, POST /v1/messages/count_tokens, POST "
			     "/v1/chat/completions, "
			     "POST /v1/responses, POST /v1/responses/input_tokens and GET /v1/models",
			     NULL);
	l->p->routes[api].on = true;
	if (l->n > 2 && strcmp(l->w[2], "query"))
		return wrong(l, "after the path comes query NAME..., not", l->w[2]);
	for (int i = 3; i < l->n; i++)
		words_add(&l->p->routes[api].query, l->w[i]);
	return 0;
}

static int on_field(struct line *l)
{
	int api = l->n >= 2 ? api_of_path(l->w[0]) : -1;
	if (api < 0 || api == API_MODELS)
		return wrong(l, "field PATH NAME... is needed, with the path of a POST route", NULL);
	for (int i = 1; i < l->n; i++)
		words_add(&l->p->routes[api].fields, l->w[i]);
	return 0;
}

static int on_feature(struct line *l)
{
	for (int i = 0; i < l->n; i++) {
		int f = index_of(features, l->w[i]);
		if (f < 0)
			return wrong(l, "features are server-tools, url-content and stored-objects, not", l->w[i]);
		l->p->features |= 1 << f;
	}
	return l->n ? 0 : wrong(l, "feature NAME... is needed", NULL);
}

static int on_beta(struct line *l)
{
	for (int i = 0; i < l->n; i++)
		words_add(&l->p->betas, l->w[i]);
	return l->n ? 0 : wrong(l, "beta NAME... is needed, or beta none", NULL);
}

static int add_host(struct line *l, struct list *to, const char *word, const char *address, bool vendor)
{
	char host[256];
	int port;
	if (net_host_port(word, 0, host, sizeof host, &port))
		return wrong(l, "no HOST or HOST:PORT", word);
	struct host_rule *h = xcalloc(1, sizeof *h);
	*h = (struct host_rule){.host = xstrdup(host), .port = port, .to = xstrdup(address), .vendor = vendor};
	list_append(to, &h->link);
	return 0;
}

static int on_egress(struct line *l)
{
	bool vendor = l->n && !strcmp(l->w[0], "vendor");
	if (l->n < 2 || (!vendor && strcmp(l->w[0], "registries")))
		return wrong(l, "egress registries|vendor HOST[:PORT]... is needed", NULL);
	int rc = 0;
	for (int i = 1; !rc && i < l->n; i++)
		rc = add_host(l, &l->p->hosts, l->w[i], NULL, vendor);
	return rc;
}

static int on_map(struct line *l)
{
	char host[256];
	int port;
	if (l->n != 2 || net_host_port(l->w[1], 0, host, sizeof host, &port) || !port)
		return wrong(l, "map HOST[:PORT] ADDRESS:PORT is needed", NULL);
	return add_host(l, &l->p->maps, l->w[0], l->w[1], false);
}

static int on_forge(struct line *l)
{
	static const char *const names[] = {"github", "gitlab", "gitea", NULL};
	static const char *const apis_at[] = {"/api/v3", "/api/v4", "/api/v1"};
	int kind = l->n >= 2 ? index_of(names, l->w[1]) : -1;
	if (kind < 0 || !key_name(l->w[0]))
		return wrong(l, "forge HOST github|gitlab|gitea [url URL] [key NAME] [ca FILE] is needed", NULL);
	struct forge_rule *f = xcalloc(1, sizeof *f);
	f->kind = (enum forge)kind;
	f->host = xstrdup(l->w[0]);
	list_append(&l->p->forges, &f->link);
	CLEAN_FREE char *url = xasprintf("https://%s", f->host);
	char **const to[] = {&url, &f->key, &f->ca};
	static const char *const words[] = {"url", "key", "ca", NULL};
	for (int i = 2; i < l->n; i += 2) {
		int which = index_of(words, l->w[i]);
		if (which < 0 || i + 1 >= l->n)
			return wrong(l, "after the kind come url URL, key NAME, ca FILE; not", l->w[i]);
		free(*to[which]);
		*to[which] = xstrdup(l->w[i + 1]);
	}
	bool local;
	CLEAN_FREE char *base = NULL;
	f->key = f->key ? f->key : xstrdup(f->host);
	if (!key_name(f->key))
		return wrong(l, "no name of a key", f->key);
	int rc = origin(l, url, &local, &base);
	f->url = rc ? NULL : xasprintf("%s%s", base, apis_at[kind]);
	return rc;
}

static int on_number(struct line *l, int64_t *to, int64_t max)
{
	if (l->n != 1 || !decimal(l->w[0], 0, to) || !*to || *to > max)
		return wrong(l, "one whole number is needed, within bounds", l->n ? l->w[0] : NULL);
	return 0;
}

static int on_answer(struct line *l)
{
	return on_number(l, &l->p->answer_tokens, 10000000);
}

static int on_body_max(struct line *l)
{
	return on_number(l, &l->p->body_max, 64 << 20);
}

static const struct {
	const char *word;
	int (*read)(struct line *l);
} lines[] = {{"provider", on_provider}, {"model", on_model}, {"price", on_price},     {"limit", on_limit},
	     {"route", on_route},	{"field", on_field}, {"feature", on_feature}, {"egress", on_egress},
	     {"beta", on_beta},		{"map", on_map},     {"forge", on_forge},     {"answer-tokens", on_answer},
	     {"body-max", on_body_max}};

static int read_line(struct line *l, char *text)
{
	char *save = NULL;
	text[strcspn(text, "#")] = 0;
	l->n = 0;
	for (const unsigned char *c = (unsigned char *)text; *c; c++)
		if (*c >= 0x7f || (*c < 0x20 && *c != '\t' && *c != '\r'))
			return wrong(l, "a character that no rule has", NULL);
	char *first = strtok_r(text, " \t\r", &save);
	if (!first)
		return 0;
	for (char *w; (w = strtok_r(NULL, " \t\r", &save));) {
		if (l->n == WORDS)
			return wrong(l, "too many words; use several lines", NULL);
		l->w[l->n++] = w;
	}
	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		if (!strcmp(lines[i].word, first))
			return lines[i].read(l);
	return wrong(l,
		     "lines begin with provider, model, price, limit, route, field, feature, beta, egress, map, forge, "
		     "answer-tokens or body-max; not",
		     first);
}

/* ---- the whole ---- */

static struct policy *blank(void)
{
	struct policy *p = xcalloc(1, sizeof *p);
	p->refs = 1;
	list_init(&p->providers);
	list_init(&p->models);
	list_init(&p->prices);
	list_init(&p->hosts);
	list_init(&p->maps);
	list_init(&p->forges);
	for (int s = 0; s < SCOPES; s++)
		for (int i = 0; i < LIMITS; i++)
			p->limits[s][i] = LIMIT_OFF;
	p->answer_tokens = 32000;
	p->body_max = 32 << 20;
	return p;
}

static void add_betas(struct policy *p, const char *list)
{
	CLEAN_FREE char *copy = xstrdup(list);
	char *rest = copy;
	for (char *w; (w = strsep(&rest, " "));)
		words_add(&p->betas, w);
}

static int whole(struct policy *p, struct err *err)
{
	if (!p->betas.n)
		add_betas(p, POLICY_BETAS_A " " POLICY_BETAS_B " " POLICY_BETAS_C " " POLICY_BETAS_D " " POLICY_BETAS_E
					    " " POLICY_BETAS_F);
	if (p->features & FEATURE_SERVER_TOOLS)
		add_betas(p, "web-search-* web-fetch-* code-execution-* mcp-client-*");
	if (p->features & FEATURE_STORED_OBJECTS)
		add_betas(p, "files-api-* skills-*");
	for (int i = 0; i < API_N; i++)
		if (p->routes[i].on && i != API_MODELS && !words_have(&p->routes[i].fields, "model", 5))
			return err_set(err, EINVAL, "route %s needs a line `field %s model ...`", apis[i].path,
				       apis[i].path);
	return 0;
}

int policy_parse(const char *text, size_t n, struct policy **out, struct err *err)
{
	struct policy *p = blank();
	struct line l = {.p = p, .err = err};
	p->text = xstrndup(text, n);
	CLEAN_FREE char *copy = xstrndup(text, n);
	char *rest = copy;
	int rc = strlen(p->text) != n ? err_set(err, EINVAL, "the policy has a NUL character") : 0, number = 0;
	for (char *line; !rc && (line = strsep(&rest, "\n"));) {
		number++;
		rc = read_line(&l, line);
		if (rc)
			err_prefix(err, "line %d", number);
	}
	if (!rc)
		rc = whole(p, err);
	if (rc)
		policy_put(p);
	else
		*out = p;
	return rc;
}

int policy_line(const char *line, size_t n, struct err *err)
{
	struct policy *p = blank();
	struct line l = {.p = p, .err = err, .alone = true};
	CLEAN_FREE char *copy = xstrndup(line, n);
	copy[strcspn(copy, "\n")] = 0;
	int rc = read_line(&l, copy);
	policy_put(p);
	return rc;
}

struct policy *policy_get(struct policy *p)
{
	p->refs++;
	return p;
}

static void free_hosts(struct list *head)
{
	list_each_safe (i, head) {
		struct host_rule *h = list_entry(i, struct host_rule, link);
		free(h->host);
		free(h->to);
		free(h);
	}
}

void policy_put(struct policy *p)
{
	if (!p || --p->refs)
		return;
	list_each_safe (i, &p->providers) {
		struct provider *v = list_entry(i, struct provider, link);
		free(v->name);
		free(v->url);
		free(v->key);
		free(v->ca);
		free(v);
	}
	list_each_safe (j, &p->models) {
		struct model_rule *m = list_entry(j, struct model_rule, link);
		free(m->glob);
		free(m);
	}
	list_each_safe (k, &p->prices) {
		struct price *c = list_entry(k, struct price, link);
		free(c->glob);
		free(c);
	}
	free_hosts(&p->hosts);
	free_hosts(&p->maps);
	list_each_safe (m, &p->forges) {
		struct forge_rule *f = list_entry(m, struct forge_rule, link);
		free(f->host);
		free(f->url);
		free(f->key);
		free(f->ca);
		free(f);
	}
	for (int i = 0; i < API_N; i++) {
		words_release(&p->routes[i].query);
		words_release(&p->routes[i].fields);
	}
	words_release(&p->betas);
	free(p->text);
	free(p);
}

/* ---- questions ---- */

enum api policy_api(const char *method, size_t method_n, const char *path, size_t path_n)
{
	for (int i = 0; i < API_N; i++)
		if (strlen(apis[i].path) == path_n && !memcmp(apis[i].path, path, path_n) &&
		    strlen(apis[i].method) == method_n && !memcmp(apis[i].method, method, method_n))
			return (enum api)i;
	return API_N;
}

const char *api_method(enum api api)
{
	return apis[api].method;
}

const char *api_path(enum api api)
{
	return apis[api].path;
}

bool api_counts(enum api api)
{
	return api == API_COUNT_TOKENS || api == API_COUNT_INPUT;
}

bool api_served(enum api api, enum kind kind)
{
	return apis[api].kinds >> kind & 1;
}
