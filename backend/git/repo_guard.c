/* What a merged commit could do to this machine by way of git's settings: a settings file that git includes may lie in
 * the work tree, and so may a program that a setting names. Such a commit is not merged without a person. Worker
 * threads; reads only. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/mem.h"
#include "repo_private.h"

struct guard {
	const char *top; /* real path of the work tree */
	const struct map *changed;
	char *found; /* path below top that decided it */
};

/* Settings whose value is a command. always: git runs it by itself in a merge or when it next looks, so that it may not
 * lie in the work tree at all (one script may lead to another); else it must not be among what changes. */
static const struct {
	const char *begin, *end; /* of the key, in small letters but for its middle part */
	bool always;
} programs[] = {
	{"filter.", ".clean", true},
	{"filter.", ".smudge", true},
	{"filter.", ".process", true},
	{"core.fsmonitor", "", true},
	{"core.sshcommand", "", true},
	{"core.askpass", "", true},
	{"core.gitproxy", "", true},
	{"core.alternaterefscommand", "", true},
	{"credential.", "helper", true},
	{"remote.", ".uploadpack", true},
	{"remote.", ".receivepack", true},
	{"merge.", ".driver", false},
	{"diff.external", "", false},
	{"diff.", ".command", false},
	{"diff.", ".textconv", false},
	{"core.pager", "", false},
	{"core.editor", "", false},
	{"sequence.editor", "", false},
	{"interactive.difffilter", "", false},
	{"pager.", "", false},
	{"gpg.", "program", false},
	{"difftool.", ".cmd", false},
	{"mergetool.", ".cmd", false},
	{"trailer.", ".command", false},
	{"trailer.", ".cmd", false},
	{"alias.", "", false},
};

static bool ends(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);
	return n >= m && !strcmp(s + n - m, end);
}

static bool fits(const char *key, const char *begin, const char *end)
{
	return !strncmp(key, begin, strlen(begin)) && ends(key, end) &&
	       (*end || begin[strlen(begin) - 1] == '.' || !strcmp(key, begin));
}

/* ---- places ---- */

/* Takes "", "." and ".." out of an absolute path, as text alone. */
static char *straight(const char *path)
{
	struct buf out = BUF_INIT;
	for (const char *at = path; *at;) {
		at += strspn(at, "/");
		size_t n = strcspn(at, "/");
		if (n == 2 && !strncmp(at, "..", 2)) {
			char *slash = out.n ? strrchr(out.p, '/') : NULL;
			buf_cut(&out, slash ? (size_t)(slash - out.p) : 0);
		} else if (n && !(n == 1 && *at == '.')) {
			buf_addc(&out, '/');
			buf_add(&out, at, n);
		}
		at += n;
	}
	return buf_take(&out);
}

#define LINKS_MAX 40 /* as the kernel follows */

/* Where a link leads, as a path; NULL if it is none. */
static char *link_target(const char *path)
{
	char target[PATH_MAX];
	ssize_t n = readlink(path, target, sizeof target - 1);
	if (n <= 0)
		return NULL;
	target[n] = '\0';
	const char *slash = strrchr(path, '/');
	return *target == '/' ? xstrdup(target) : xasprintf("%.*s/%s", (int)(slash - path), path, target);
}

/* The same with all links followed; what is not there yet keeps its name. A link that leads to nothing is followed too:
 * a commit may bring what it leads to. */
static char *followed(const char *path)
{
	char *whole = xstrdup(path);
	for (int links = 0; links < LINKS_MAX;) {
		CLEAN_FREE char *head = xstrdup(whole);
		CLEAN_FREE char *real = NULL;
		CLEAN_FREE char *target = NULL;
		while (!(real = realpath(head, NULL)) && !(target = link_target(head))) {
			char *slash = strrchr(head, '/');
			if (!slash || slash == head)
				return whole;
			*slash = 0;
		}
		char *next = xasprintf("%s%s", real ? real : target, whole + strlen(head));
		free(whole);
		whole = next;
		if (real)
			return whole;
		links++;
	}
	return whole;
}

/* The path below the top of the work tree, or NULL. */
static const char *below_top(const struct guard *g, const char *path)
{
	size_t n = strlen(g->top);
	if (strncmp(path, g->top, n) || path[n] != '/')
		return NULL;
	path += n + 1;
	return strncmp(path, ".git", 4) || (path[4] && path[4] != '/') ? path : NULL;
}

/* The commits change it, or a folder or link on the way to it. */
static bool is_changed(const struct guard *g, const char *path)
{
	CLEAN_FREE char *part = xstrdup(path);
	for (char *slash = part + strlen(part); slash; slash = strrchr(part, '/')) {
		*slash = 0;
		if (map_get(g->changed, part))
			return true;
	}
	return false;
}

/* A name in a setting, relative to dir: does it lie in the work tree and, unless any will do, change? */
static bool touches(struct guard *g, const char *dir, const char *name, bool any)
{
	const char *home = getenv("HOME");
	CLEAN_FREE char *full = !strncmp(name, "~/", 2) && home ? xasprintf("%s%s", home, name + 1)
				: *name == '/'			? xstrdup(name)
								: xasprintf("%s/%s", dir, name);
	CLEAN_FREE char *text = straight(full), *real = followed(full);
	const char *places[] = {below_top(g, text ? text : ""), below_top(g, real)};
	struct stat st;
	for (int i = 0; i < 2; i++)
		if (places[i] && (is_changed(g, places[i]) || (any && !stat(full, &st) && !S_ISDIR(st.st_mode)))) {
			g->found = xstrdup(places[i]);
			return true;
		}
	return false;
}

/* ---- settings ---- */

/* Words of a command. The first one without a slash is looked for in PATH, and so is no file here. */
static bool names_inside(struct guard *g, const char *command, bool any)
{
	static const char *const ways[] = {"--show-toplevel", "$GIT_WORK_TREE", "$PWD", "$(pwd)"};
	for (size_t i = 0; any && i < ARRAY_LEN(ways); i++)
		if (strstr(command, ways[i])) {
			g->found = xstrdup(ways[i]);
			return true;
		}
	CLEAN_FREE char *copy = xstrdup(command);
	char *save = NULL;
	bool first = true;
	for (char *word = strtok_r(copy, " \t\n\"'`;|&<>()$={}!", &save); word;
	     word = strtok_r(NULL, " \t\n\"'`;|&<>()$={}!", &save), first = false)
		if ((!first || strchr(word, '/')) && touches(g, g->top, word, any))
			return true;
	return false;
}

static bool is_include(const char *key)
{
	return !strcmp(key, "include.path") || fits(key, "includeif.", ".path");
}

/* One setting: `file:ORIGIN`, then KEY newline VALUE. True: it is in the way; err says how. */
static bool in_the_way(struct guard *g, const char *origin, const char *key, const char *value, struct err *err)
{
	const char *file = !strncmp(origin, "file:", 5) ? origin + 5 : NULL;
	CLEAN_FREE char *full = file ? *file == '/' ? xstrdup(file) : xasprintf("%s/%s", g->top, file) : NULL;
	if (full && touches(g, g->top, full, false)) {
		err_set(err, EPERM, "they change %s, a file of settings for git on this machine", g->found);
		return true;
	}
	if (is_include(key) && full) {
		CLEAN_FREE char *real = followed(full);
		*strrchr(real, '/') = 0;
		if (touches(g, real, value, false)) {
			err_set(err, EPERM, "they change %s, which git on this machine would take settings from (%s)",
				g->found, key);
			return true;
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(programs); i++)
		if (fits(key, programs[i].begin, programs[i].end) && (strncmp(key, "alias.", 6) || *value == '!') &&
		    names_inside(g, value, programs[i].always)) {
			err_set(err, EPERM, "git on this machine runs %s (%s), which commits can change", g->found,
				key);
			return true;
		}
	return false;
}

int git_settings_guard(const char *path, const struct map *changed, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *top = realpath(path, NULL);
	struct guard g = {.top = top, .changed = changed};
	const char *args[] = {"config", "--list", "--includes", "--show-origin", "-z", NULL};
	int rc = top ? git_must(path, args, &out, "cannot read git's settings", err) : err_sys(err, errno, "%s", path);
	for (size_t i = 0; !rc && i < out.n;) {
		const char *origin = out.p + i, *key = origin + strlen(origin) + 1;
		if (key >= out.p + out.n)
			break;
		i = (size_t)(key + strlen(key) + 1 - out.p);
		char *value = strchr(key, '\n'); /* none: `key` alone, which means true */
		CLEAN_FREE char *name = xstrndup(key, value ? (size_t)(value - key) : strlen(key));
		rc = in_the_way(&g, origin, name, value ? value + 1 : "", err);
	}
	free(g.found);
	return rc;
}
