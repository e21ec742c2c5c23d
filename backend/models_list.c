/* `berthfs models`: what can be used now, and why the rest cannot. The thread of the command; asks servers on this
 * machine or its LAN for their lists, others never: their keys are not here. */
#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "backend/base/fd.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "claude.h"
#include "guest_kinds.h"
#include "models.h"
#include "providers.h"

#define LOOK_MS	  2000L	    /* for a server on this machine or its LAN */
#define LIST_MAX  (1 << 20) /* bytes of its list */
#define NAMES_MAX 200	    /* models that are shown of one server */

struct listing {
	const struct config *c;
	const struct paths *paths;
	void (*line)(void *arg, bool ok, const char *name, const char *words);
	void *arg;
	struct buf keys; /* names, each between newlines */
	int usable;
	struct buf kinds; /* of providers whose models can be used, with blanks between them */
};

/* ---- keys ---- */

static void look_keys(struct listing *l, const struct paths *paths)
{
	buf_addc(&l->keys, '\n');
	providers_keys(paths, &l->keys);
}

static bool has_key(const struct listing *l, const char *name)
{
	CLEAN_FREE char *row = xasprintf("\n%s\n", name);
	return strstr(buf_str(&l->keys), row) != NULL;
}

/* ---- a server that is near ---- */

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct buf *b = arg;
	if (b->n + n > LIST_MAX)
		return 0;
	buf_add(b, p, n);
	return n;
}

/* Its list of models; false with words if there is none. */
static bool ask(const char *base, struct buf *out, char *words)
{
	size_t n = strlen(base);
	while (n && base[n - 1] == '/')
		n--;
	if (n > 3 && !strncmp(base + n - 3, "/v1", 3))
		n -= 3;
	CLEAN_FREE char *url = xasprintf("%.*s/v1/models", (int)n, base);
	CURL *e = curl_easy_init();
	long status = 0;
	if (!e)
		return false;
	curl_easy_setopt(e, CURLOPT_URL, url);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, LOOK_MS);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, out);
	CURLcode rc = curl_easy_perform(e);
	curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(e);
	if (rc)
		snprintf(words, 128, "%.100s", curl_easy_strerror(rc));
	else if (status != 200)
		snprintf(words, 128, "it answers %ld to /v1/models", status);
	return !rc && status == 200;
}

/* ---- lines ---- */

static void put_number(struct buf *out, int64_t n, const char *what)
{
	if (n)
		buf_addf(out, "%s%" PRId64 " %s", out->n ? ", " : "", n, what);
}

static void put_model(struct listing *l, const char *name)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	struct model_info m;
	if (models_find(l->c, name, &m, NULL))
		return;
	put_number(&b, m.window, "tokens of window");
	put_number(&b, m.max_output, "of an answer");
	if (m.priced && m.price.out > 0)
		buf_addf(&b, "%s$%g in, $%g out, $%g cached a million", b.n ? ", " : "", m.price.in, m.price.out,
			 m.price.cached);
	else
		buf_addf(&b, "%s%s", b.n ? ", " : "", m.priced ? "free" : "price not known: set price.MODEL");
	l->usable++;
	buf_addf(&l->kinds, " %s", m.provider.kind);
	l->line(l->arg, true, name, buf_str(&b));
}

static void put_names(struct listing *l, const struct provider_info *p)
{
	CLEAN_BUF struct buf names = BUF_INIT;
	models_names(l->c, p->name, &names);
	CLEAN_FREE char *copy = buf_take(&names);
	char *rest = copy;
	bool any = false;
	for (char *name; (name = strsep(&rest, "\n"));)
		if (*name) {
			put_model(l, name);
			any = true;
		}
	if (any)
		return;
	CLEAN_FREE char *form = xasprintf("%s/NAME", p->name);
	l->usable++;
	buf_addf(&l->kinds, " %s", p->kind);
	l->line(l->arg, true, form, "any model that it has, by its name there");
}

static void put_near(struct listing *l, const struct provider_info *p)
{
	CLEAN_BUF struct buf body = BUF_INIT;
	char why[128] = "";
	const cJSON *m;
	int n = 0;
	if (!ask(p->url, &body, why)) {
		CLEAN_FREE char *words = xasprintf("%s: %s", p->url, why);
		l->line(l->arg, false, p->name, words);
		return;
	}
	if (!p->set) {
		CLEAN_FREE char *words = xasprintf(
			"runs at %s, but config does not name it: add `provider.%s.url = %s`", p->url, p->name, p->url);
		l->line(l->arg, false, p->name, words);
		return;
	}
	CLEAN_JSON cJSON *o = json_parse(buf_str(&body), body.n, NULL);
	cJSON_ArrayForEach(m, json_get(o, "data"))
	{
		const char *id = json_str(m, "id");
		CLEAN_FREE char *name = id ? xasprintf("%s/%s", p->name, id) : NULL;
		text_one_line(name, MODEL_NAME);
		if (name && n++ < NAMES_MAX)
			put_model(l, name);
	}
	if (!n)
		put_names(l, p);
}

/* The installed program is asked itself. */
static void put_claude(struct listing *l)
{
	struct err err = ERR_INIT;
	char words[160];
	bool ok = !claude_status(l->paths, l->c->value[CONFIG_CLAUDE_PROGRAM], words, sizeof words, &err);
	l->line(l->arg, ok, CLAUDE_NAME, ok ? words : err.text);
	if (!ok)
		return;
	l->usable++;
	l->line(l->arg, true, CLAUDE_NAME "/NAME", "one of its models by name: opus, sonnet, claude-sonnet-5...");
}

static void put_provider(struct listing *l, const char *name)
{
	struct provider_info p;
	struct err err = ERR_INIT;
	if (models_provider(l->c, name, &p, &err)) {
		l->line(l->arg, false, name, err.text);
	} else if (!strcmp(p.kind, CLAUDE_NAME)) {
		put_claude(l);
	} else if (provider_near(&p)) {
		put_near(l, &p);
	} else if (!has_key(l, p.key)) {
		CLEAN_FREE char *words =
			xasprintf("no key: echo KEY > ~/berth/gateway/keys/%s%s", p.key,
				  *p.url && !p.set ? "; and its provider.NAME.url has to be in config" : "");
		l->line(l->arg, false, name, words);
	} else if (*p.url && !p.set) {
		CLEAN_FREE char *words = xasprintf(
			"there is a key, but config does not name it: add `provider.%s.url = %s`", name, p.url);
		l->line(l->arg, false, name, words);
	} else {
		put_names(l, &p);
	}
}

/* An agent of the sandbox can be used as soon as one of the models above speaks its language. */
static void put_agents(struct listing *l)
{
	CLEAN_BUF struct buf names = BUF_INIT;
	guest_kind_names(&names);
	CLEAN_FREE char *copy = buf_take(&names);
	char *save = NULL;
	for (char *name = strtok_r(copy, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
		const struct guest_kind *k = guest_kind(name);
		CLEAN_FREE char *as = xasprintf("agent: %s", name);
		CLEAN_FREE char *kinds = xstrdup(k->speaks);
		char *rest = kinds;
		bool any = false;
		for (char *kind; (kind = strsep(&rest, " "));)
			any = any || strstr(buf_str(&l->kinds), kind);
		CLEAN_FREE char *words =
			any ? xasprintf("once it is in the sandbox: contrib/agents/%s", name)
			    : xasprintf("it asks models of providers of kind %s, and none of those can be used",
					k->speaks);
		l->line(l->arg, any, as, words);
	}
}

int backend_models(const struct paths *paths, void (*line)(void *arg, bool ok, const char *name, const char *words),
		   void *arg, struct err *err)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_BUF struct buf names = BUF_INIT;
	struct config *c = NULL;
	int rc = file_exists(paths->config) ? file_read(paths->config, &text, 1 << 20, err) : 0;
	rc = rc ? rc : config_parse(buf_str(&text), text.n, &c, err);
	if (rc)
		return err_prefix(err, "%s", paths->config);
	struct listing l = {.c = c, .paths = paths, .line = line, .arg = arg};
	look_keys(&l, paths);
	models_providers(c, &names);
	CLEAN_FREE char *copy = buf_take(&names);
	char *rest = copy;
	for (char *name; (name = strsep(&rest, "\n"));)
		if (*name)
			put_provider(&l, name);
	line(arg, true, "script:FILE", "answers from a file, for a try and for tests");
	put_agents(&l);
	buf_release(&l.keys);
	buf_release(&l.kinds);
	config_put(c);
	return l.usable;
}
