/* Front matter of a draft. Any thread; no I/O. */
#include "draft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "config.h"

static const char *const names[DRAFT_KEYS] = {"project",   "model", "sandbox",	 "size",  "network",
					      "after-run", "ship",  "approvals", "agent", "from"};

void draft_release(struct draft *d)
{
	for (int i = 0; i < DRAFT_KEYS; i++)
		free(d->value[i]);
	*d = (struct draft){0};
}

static int unknown(const char *key, struct err *err)
{
	CLEAN_BUF struct buf list = BUF_INIT;
	for (int i = 0; i < DRAFT_KEYS; i++)
		buf_addf(&list, "%s%s", i ? ", " : "", names[i]);
	return err_set(err, EINVAL, "unknown key \"%.60s\"; known: %s", key, buf_str(&list));
}

/* One line of the front matter; changed in place. */
static int line_of(struct draft *d, char *line, struct err *err)
{
	char *s = text_trim(line), *colon = strchr(s, ':');
	if (!*s || *s == '#')
		return 0;
	if (!colon)
		return err_set(err, EINVAL, "\"%.60s\" is no `key: value` line (is the closing --- missing?)", s);
	*colon = 0;
	char *key = text_trim(s), *value = text_trim(colon + 1);
	int i = 0;
	while (i < DRAFT_KEYS && strcmp(names[i], key))
		i++;
	if (i == DRAFT_KEYS)
		return unknown(key, err);
	if (d->value[i])
		return err_set(err, EINVAL, "%s stands twice", key);
	if (!*value)
		return err_set(err, EINVAL, "%s has no value", key);
	int rc = i == DRAFT_PROJECT || i == DRAFT_FROM ? 0 : value_check(names[i], value, err);
	if (!rc)
		d->value[i] = xstrdup(value);
	return rc;
}

static bool fence(const char *line, size_t n)
{
	while (n && strchr(" \t\r", line[n - 1]))
		n--;
	return n == 3 && !memcmp(line, "---", 3);
}

/* Could these first bytes still become the opening line? */
static bool may_open(const char *text)
{
	size_t n = strlen(text);
	return n < 4 && !strncmp(text, "---\n", n);
}

int draft_parse(const char *text, bool whole, struct draft *out, struct err *err)
{
	*out = (struct draft){0};
	const char *nl = strchr(text, '\n');
	size_t first = nl ? (size_t)(nl - text) : strlen(text);
	if (!whole && !nl && may_open(text)) {
		out->open = true;
		return 0;
	}
	if (!fence(text, first)) {
		out->message = text;
		return 0;
	}
	int no = 1;
	for (const char *p = text + first + (nl != NULL);;) {
		nl = strchr(p, '\n');
		size_t n = nl ? (size_t)(nl - p) : strlen(p);
		no++;
		if (!nl && !whole) {
			out->open = true;
			return 0;
		}
		if (fence(p, n)) {
			out->message = p + n + (nl != NULL);
			return 0;
		}
		CLEAN_FREE char *line = xstrndup(p, n);
		int rc = nl || *p ? line_of(out, line, err)
				  : err_set(err, EINVAL, "the front matter has no closing --- line");
		if (rc) {
			err_prefix(err, "line %d", no);
			draft_release(out);
			return rc;
		}
		if (!nl && whole) {
			draft_release(out);
			return err_set(err, EINVAL, "the front matter has no closing --- line");
		}
		p = nl + 1;
	}
}
