/* Keeps config and the gateway's policy of one mind: a provider or a price that stands in config stands in the policy
 * too, in a part of its own. What a person wrote there counts first. */
#include "providers.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "claude.h"
#include "gateway/gateway.h"

#define BEGIN_MARK "# The lines from here on are written from the keys provider.* and price.* of config.\n"
#define END_MARK   "# Here ends what is written from config.\n"

/* ---- the text ---- */

/* The policy without the part that is ours. */
static char *own_text(const char *policy)
{
	const char *from = strstr(policy, BEGIN_MARK), *to = from ? strstr(from, END_MARK) : NULL;
	if (!from)
		return xstrdup(policy);
	return xasprintf("%.*s%s", (int)(from - policy), policy, to ? to + strlen(END_MARK) : "");
}

/* Does a line `provider NAME ...` stand in it? */
static bool has_provider(const char *text, const char *name)
{
	size_t n = strlen(name);
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		const char *p = line + strspn(line, " \t");
		if (strncmp(p, "provider", 8) || !strchr(" \t", p[8]))
			continue;
		p += 8 + strspn(p + 8, " \t");
		if (!strncmp(p, name, n) && (p[n] == ' ' || p[n] == '\t'))
			return true;
	}
	return false;
}

/* text: without our part. */
static void name_in(const char *text, const struct provider_info *p, char *out)
{
	bool clash = p->set && *p->url && has_provider(text, p->name);
	snprintf(out, PROVIDER_POLICY, "%s%s", clash ? "config-" : "", p->name);
}

void providers_name(const char *policy, const struct provider_info *p, char out[PROVIDER_POLICY])
{
	CLEAN_FREE char *text = own_text(policy);
	name_in(text, p, out);
}

static void add_provider(struct buf *out, const char *text, const struct config *c, const char *name)
{
	struct provider_info p;
	char as[PROVIDER_POLICY];
	if (models_provider(c, name, &p, NULL) || !p.set || !*p.url)
		return;
	name_in(text, &p, as);
	buf_addf(out, "provider %s %s %s key %s", as, p.kind, p.url, p.key);
	if (*p.ca)
		buf_addf(out, " ca %s", p.ca);
	buf_addf(out, "%s\nmodel %s *\n", p.quirks & QUIRK_MAX_TOKENS ? " output max_tokens" : "", as);
}

static void add_price(struct buf *out, const struct config *c, const char *key)
{
	struct model_info m;
	struct price p;
	const char *name = key + strlen("price.");
	const char *id = models_find(c, name, &m, NULL) ? name : m.id;
	if (strncmp(key, "price.", 6) || strpbrk(id, "# \t*") || !config_price(c, name, &p))
		return;
	buf_addf(out, "price %s input %.6f output %.6f cache-read %.6f\n", id, p.in, p.out, p.cached);
}

void providers_merge(const char *policy, const struct config *c, struct buf *out)
{
	CLEAN_BUF struct buf names = BUF_INIT;
	CLEAN_BUF struct buf part = BUF_INIT;
	CLEAN_FREE char *text = own_text(policy);
	models_providers(c, &names);
	CLEAN_FREE char *list = buf_take(&names);
	char *rest = list;
	for (char *name; (name = strsep(&rest, "\n"));)
		if (*name)
			add_provider(&part, text, c, name);
	for (size_t i = 0; i < c->n_extra; i++)
		add_price(&part, c, c->extra[i].name);
	buf_adds(out, text);
	if (!part.n)
		return;
	if (out->n && !buf_ends(out, "\n"))
		buf_addc(out, '\n');
	buf_addf(out, BEGIN_MARK "%s" END_MARK, buf_str(&part));
}

/* ---- the gateway ---- */

int providers_tell(struct backend *b, const struct config *c, const struct provider_info *p, char out[PROVIDER_POLICY],
		   struct err *err)
{
	CLEAN_BUF struct buf have = BUF_INIT;
	CLEAN_BUF struct buf want = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = gateway_policy_get(b->paths, &have, &why);
	if (rc)
		return err_set(err, EAGAIN, "the gateway does not answer: %s", why.text);
	providers_merge(buf_str(&have), c, &want);
	providers_name(buf_str(&want), p, out);
	if (want.n == have.n && !memcmp(buf_str(&want), buf_str(&have), want.n))
		return 0;
	rc = gateway_policy_set(b->paths, buf_str(&want), want.n, &why);
	if (rc == -EINVAL)
		return err_set(err, EINVAL,
			       "what config says about providers does not go into the gateway's policy: %s", why.text);
	return rc ? err_set(err, EAGAIN, "the gateway does not answer: %s", why.text) : 0;
}

/* ---- what to take where nothing is set ---- */

static const struct {
	const char *key, *model;
} usual[] = {{"anthropic", "claude-sonnet-5-5"}, {"openai", "gpt-5.6-terra"}};

void providers_keys(const struct paths *paths, struct buf *out)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	if (!gateway_key_list(paths, &text, NULL)) {
		CLEAN_FREE char *copy = buf_take(&text);
		char *rest = copy;
		for (char *row; (row = strsep(&rest, "\n"));)
			if (*row)
				buf_addf(out, "%.*s\n", (int)strcspn(row, " \t"), row);
		return;
	}
	CLEAN_FREE char *path = xasprintf("%s/gateway/keys", paths->state);
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));)
		if (*e->d_name != '.')
			buf_addf(out, "%s\n", e->d_name);
	if (d)
		closedir(d);
}

/* The installed Claude Code, if it looks as if somebody had logged in there. */
static bool has_claude(const struct config *c)
{
	struct claude_place place;
	if (claude_place(c->value[CONFIG_CLAUDE_PROGRAM], &place, NULL))
		return false;
	bool in = place.signed_in;
	claude_place_release(&place);
	return in;
}

char *providers_default(const struct paths *paths, const struct config *c)
{
	if (has_claude(c))
		return xstrdup(CLAUDE_NAME);
	CLEAN_BUF struct buf keys = BUF_INIT;
	buf_addc(&keys, '\n');
	providers_keys(paths, &keys);
	for (size_t i = 0; i < ARRAY_LEN(usual); i++) {
		CLEAN_FREE char *row = xasprintf("\n%s\n", usual[i].key);
		if (strstr(buf_str(&keys), row))
			return xstrdup(usual[i].model);
	}
	return NULL;
}
