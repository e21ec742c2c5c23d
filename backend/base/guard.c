/* Patterns of protected paths: matching only. Any thread; must never look at the file system. */
#include "guard.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

/* A path cut into its components: NULs in place of the slashes. */
struct parts {
	char *text;
	char **at;
	size_t n;
};

static void parts_init(struct parts *p, const char *path)
{
	size_t slashes = 1;
	for (const char *c = path; *c; c++)
		slashes += *c == '/';
	p->text = xstrdup(path);
	p->at = xmalloc(slashes * sizeof *p->at);
	p->n = 0;
	char *rest = p->text;
	for (char *word; (word = strsep(&rest, "/"));)
		if (*word)
			p->at[p->n++] = word;
}

static void parts_release(struct parts *p)
{
	free(p->text);
	free(p->at);
}

static bool same_from(const struct parts *pattern, const struct parts *path, size_t from)
{
	for (size_t i = 0; i < pattern->n; i++)
		if (fnmatch(pattern->at[i], path->at[from + i], 0))
			return false;
	return true;
}

static bool one_matches(const char *word, const struct parts *path)
{
	struct parts p;
	bool folder = word[strlen(word) - 1] == '/', found = false;
	parts_init(&p, word);
	if (p.n && p.n <= path->n) {
		size_t end = path->n - p.n;			 /* last place where it could stand */
		size_t first = *word == '/' || folder ? 0 : end; /* a file's pattern stands at the end */
		size_t last = *word == '/' ? 0 : end;
		if (*word == '/' && !folder && end)
			first = 1; /* the path goes on behind it */
		for (size_t i = first; i <= last && !found; i++)
			found = same_from(&p, path, i);
	}
	parts_release(&p);
	return found;
}

/* The next word of a list; false at its end. */
static bool next_word(const char **at, char out[GUARD_WORD_MAX + 1], size_t *n)
{
	*at += strspn(*at, " \t\n");
	*n = strcspn(*at, " \t\n");
	if (!*n)
		return false;
	size_t keep = *n < GUARD_WORD_MAX ? *n : GUARD_WORD_MAX;
	memcpy(out, *at, keep);
	out[keep] = 0;
	*at += *n;
	return true;
}

bool guard_match(const char *list, const char *path, char *which, size_t n)
{
	char word[GUARD_WORD_MAX + 1];
	struct parts p;
	size_t len;
	bool is = false;
	parts_init(&p, path);
	while (next_word(&list, word, &len)) {
		bool not = *word == '!';
		if (not == is && word[not ] && one_matches(word + not, &p)) { /* others cannot change the answer */
			is = !not ;
			if (which)
				snprintf(which, n, "%s", word);
		}
	}
	parts_release(&p);
	return is;
}

int guard_check(const char *list, struct err *err)
{
	char word[GUARD_WORD_MAX + 1];
	size_t n;
	while (next_word(&list, word, &n)) {
		const char *name = word + (*word == '!');
		if (n > GUARD_WORD_MAX)
			return err_set(err, EINVAL, "the pattern %.40s... is longer than %d bytes", word,
				       GUARD_WORD_MAX);
		if (!name[strspn(name, "/")])
			return err_set(err, EINVAL, "\"%s\" is no pattern: it names nothing", word);
	}
	return 0;
}
