/* What the simple commands of a line do: programs that run others are looked through, what cannot be told is said so.
 * Pure. */
#include "shell.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/buf.h"
#include "backend/base/mem.h"

#define DEPTH_MAX 8

struct question {
	const char *const *words; /* of a command, or NULL */
	size_t n;
	const char *hosts;
	int depth;
};

static enum shell_sight look(const struct question *q, const struct shell_word *w, size_t n);

static enum shell_sight more(enum shell_sight a, enum shell_sight b)
{
	return a > b ? a : b;
}

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool one_of(const char *s, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!fnmatch(list[i], s, 0))
			return true;
	return false;
}
#define ONE_OF(s, list) one_of(s, list, ARRAY_LEN(list))

static enum shell_sight look_at_line(const struct question *q, const char *text)
{
	struct shell_line l;
	struct question in = *q;
	if (++in.depth > DEPTH_MAX)
		return SHELL_UNSURE;
	shell_parse(text, &l);
	enum shell_sight s = l.unsure ? SHELL_UNSURE : SHELL_NO;
	for (size_t i = 0; i < l.n && s != SHELL_YES; i++)
		s = more(s, look(&in, l.command[i].word, l.command[i].n));
	shell_release(&l);
	return s;
}

/* ---- programs that run what they are given ---- */

/* options: letters whose value is the next word; skip: words before the command. */
static const struct wrapper {
	const char *name, *options;
	size_t skip;
} wrappers[] = {
	{"env", "uC", 0},     {"sudo", "ugChpRTUD", 0}, {"doas", "uC", 0},	   {"nohup", "", 0},
	{"setsid", "", 0},    {"nice", "n", 0},		{"ionice", "cnp", 0},	   {"stdbuf", "ioe", 0},
	{"timeout", "ks", 1}, {"time", "fo", 0},	{"exec", "a", 0},	   {"command", "", 0},
	{"builtin", "", 0},   {"chronic", "", 0},	{"unbuffer", "", 0},	   {"busybox", "", 0},
	{"chroot", "", 1},    {"strace", "eoPsu", 0},	{"xargs", "nIPdaELsi", 0}, {"ssh-agent", "at", 0},
	{"catchsegv", "", 0}, {"flock", "Ew", 1},
};

static bool assignment(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
	return n && (*s < '0' || *s > '9') && (s[n] == '=' || (s[n] == '+' && s[n + 1] == '=') || s[n] == '[');
}

static enum shell_sight through(const struct question *q, const struct wrapper *wr, const struct shell_word *w,
				size_t n)
{
	size_t i = 1;
	for (; i < n && *w[i].text == '-' && w[i].text[1]; i++) {
		const char *o = w[i].text;
		if (w[i].open || !strcmp(o, "-S") || !strncmp(o, "--split", 7) || !strcmp(o, "-c") ||
		    !strcmp(o, "--command"))
			return SHELL_UNSURE; /* a command in one word */
		if (!strcmp(wr->name, "command") && (o[1] == 'v' || o[1] == 'V'))
			return SHELL_NO;
		if (!strcmp(o, "--")) {
			i++;
			break;
		}
		if (o[1] != '-' && !o[2] && strchr(wr->options, o[1]))
			i++;
	}
	while (i < n && assignment(w[i].text))
		i++;
	for (size_t k = 0; k < wr->skip; k++)
		i++;
	if (i >= n)
		return SHELL_NO;
	enum shell_sight s = look(q, w + i, n - i);
	bool adds = !strcmp(wr->name, "xargs"); /* more words come from its input */
	return adds && s == SHELL_NO && q->words && !fnmatch(q->words[0], base(w[i].text), 0) ? SHELL_UNSURE : s;
}

/* sh -c LINE; a script or what comes by a pipe cannot be seen. */
static enum shell_sight shell(const struct question *q, const struct shell_word *w, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		const char *o = w[i].text;
		if (*o != '-' && *o != '+')
			return SHELL_UNSURE;
		if (o[1] == '-') {
			if (!strcmp(o, "--version") || !strcmp(o, "--help"))
				return SHELL_NO;
			continue;
		}
		if (strchr(o, 'c'))
			return i + 1 < n && !w[i + 1].open ? look_at_line(q, w[i + 1].text) : SHELL_UNSURE;
		i += strchr(o, 'o') || strchr(o, 'O');
	}
	return SHELL_UNSURE;
}

/* All words as one line: eval, watch. */
static enum shell_sight joined(const struct question *q, const struct shell_word *w, size_t n)
{
	CLEAN_BUF struct buf line = BUF_INIT;
	for (size_t i = 1; i < n; i++) {
		if (w[i].open)
			return SHELL_UNSURE;
		buf_addf(&line, "%s ", w[i].text);
	}
	return look_at_line(q, buf_str(&line));
}

static enum shell_sight find(const struct question *q, const struct shell_word *w, size_t n)
{
	static const char *const runs[] = {"-exec", "-execdir", "-ok", "-okdir"};
	enum shell_sight s = SHELL_NO;
	for (size_t i = 1; i < n; i++)
		if (ONE_OF(w[i].text, runs) && i + 1 < n)
			s = more(s, look(q, w + i + 1, n - i - 1));
	return s;
}

/* Code in another language that names the program at all. */
static enum shell_sight code(const struct question *q, const struct shell_word *w, size_t n)
{
	static const char *const inline_code[] = {"-c", "-e", "-E", "-p", "-pe", "-ne", "-r", "--eval", "--print"};
	for (size_t i = 1; i + 1 < n; i++) {
		if (!ONE_OF(w[i].text, inline_code))
			continue;
		if (w[i + 1].open || (q->words && strstr(w[i + 1].text, q->words[0])) ||
		    (q->hosts && (strstr(w[i + 1].text, "ssh") || strstr(w[i + 1].text, "scp"))))
			return SHELL_UNSURE;
	}
	return SHELL_NO;
}

/* ---- git ---- */

/* Commands of git that push nothing and run nothing of others. What is not here may be an alias. */
static const char *const git_known[] = {
	"add",	     "am",	     "apply",	      "archive",
	"blame",     "branch",	     "bundle",	      "cat-file",
	"checkout",  "cherry*",	     "clean",	      "clone",
	"commit",    "config",	     "count-objects", "describe",
	"diff*",     "fetch",	     "for-each-ref",  "format-patch",
	"fsck",	     "gc",	     "grep",	      "hash-object",
	"help",	     "init",	     "log",	      "ls-files",
	"ls-remote", "ls-tree",	     "merge*",	      "mv",
	"notes",     "pull",	     "range-diff",    "read-tree",
	"reflog",    "remote",	     "repack",	      "reset",
	"restore",   "revert",	     "rev-list",      "rev-parse",
	"rm",	     "shortlog",     "show*",	      "sparse-checkout",
	"stash",     "status",	     "switch",	      "symbolic-ref",
	"tag",	     "update-index", "update-ref",    "version",
	"worktree",  "write-tree",   "push",	      "rebase",
	"bisect",    "submodule",    "send-pack",
};

/* The place of git's own command among its words, n if there is none. */
static size_t git_command(const struct shell_word *w, size_t n, bool *unsure)
{
	static const char *const with_value[] = {"-C",		"-c",	       "--git-dir",    "--work-tree",
						 "--namespace", "--exec-path", "--config-env", "--super-prefix"};
	size_t i = 1;
	for (; i < n && (*w[i].text == '-' || (w[i].open && !*w[i].text)); i++) {
		const char *value = i + 1 < n ? w[i + 1].text : "";
		*unsure |=
			w[i].open || (!strcmp(w[i].text, "-c") && (!strncasecmp(value, "alias.", 6) || w[i + 1].open));
		i += ONE_OF(w[i].text, with_value);
	}
	return i;
}

static bool git_runs_others(const struct shell_word *w, size_t at, size_t n)
{
	const char *c = w[at].text;
	for (size_t i = at + 1; i < n; i++) {
		const char *o = w[i].text;
		if (!strcmp(c, "rebase") && (!strncmp(o, "-x", 2) || !strncmp(o, "--exec", 6)))
			return true;
		if ((!strcmp(c, "bisect") && !strcmp(o, "run")) || (!strcmp(c, "submodule") && !strcmp(o, "foreach")))
			return true;
	}
	return false;
}

static enum shell_sight git(const struct question *q, const struct shell_word *w, size_t n)
{
	bool unsure = false;
	size_t at = git_command(w, n, &unsure);
	if (at >= n)
		return unsure ? SHELL_UNSURE : SHELL_NO;
	if (q->hosts)
		return SHELL_NO; /* its own words are looked at for a host by look() */
	if (w[at].open)
		return SHELL_UNSURE;
	if (q->n < 2 || !fnmatch(q->words[1], w[at].text, 0)) {
		for (size_t k = 2, i = at + 1; k < q->n; k++, i++) {
			while (i < n && fnmatch(q->words[k], w[i].text, 0) && !w[i].open)
				i++;
			if (i >= n)
				return SHELL_NO;
			unsure |= w[i].open;
		}
		return unsure ? SHELL_UNSURE : SHELL_YES;
	}
	return unsure || !ONE_OF(w[at].text, git_known) || git_runs_others(w, at, n) ? SHELL_UNSURE : SHELL_NO;
}

/* ---- one command ---- */

/* The asked words in their order among those of the command. */
static enum shell_sight plain(const struct question *q, const struct shell_word *w, size_t n)
{
	bool unsure = false;
	if (fnmatch(q->words[0], base(w[0].text), 0))
		return SHELL_NO;
	for (size_t k = 1, i = 1; k < q->n; k++, i++) {
		while (i < n && !w[i].open && fnmatch(q->words[k], w[i].text, 0))
			i++;
		if (i >= n)
			return SHELL_NO;
		unsure |= w[i].open;
	}
	return unsure ? SHELL_UNSURE : SHELL_YES;
}

/* host, user@host, host:path, ssh://user@host:port/path */
static bool is_host(const char *word, const char *pattern)
{
	const char *s = strstr(word, "://") ? strstr(word, "://") + 3 : word;
	const char *sign = memrchr(s, '@', strcspn(s, "/"));
	s = sign ? sign + 1 : s;
	CLEAN_FREE char *host = xstrndup(s, strcspn(s, ":/"));
	return *host && !fnmatch(pattern, host, FNM_CASEFOLD);
}

static enum shell_sight reaches(const struct question *q, const struct shell_word *w, size_t n)
{
	static const char *const programs[] = {"ssh",	  "scp",   "sftp", "rsync",	 "mosh",
					       "autossh", "sshfs", "git",  "ssh-copy-id"};
	if (!ONE_OF(base(w[0].text), programs))
		return SHELL_NO;
	enum shell_sight s = SHELL_NO;
	CLEAN_FREE char *hosts = xstrdup(q->hosts);
	for (char *save = NULL, *h = strtok_r(hosts, " ", &save); h; h = strtok_r(NULL, " ", &save))
		for (size_t i = 1; i < n; i++)
			if (w[i].open)
				s = more(s, SHELL_UNSURE);
			else if (is_host(w[i].text, h))
				return SHELL_YES;
	return s;
}

static enum shell_sight known_program(const struct question *q, const char *name, const struct shell_word *w, size_t n)
{
	static const char *const shells[] = {"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "mksh"};
	static const char *const languages[] = {"python*", "perl*", "ruby*", "node*", "nodejs",
						"deno",	   "bun",   "php*",  "lua*"};
	static const char *const hidden[] = {"source", ".",	 "parallel", "su",    "runuser", "unshare", "nsenter",
					     "script", "expect", "at",	     "batch", "crontab", "tmux",    "screen"};
	for (size_t i = 0; i < ARRAY_LEN(wrappers); i++)
		if (!strcmp(wrappers[i].name, name))
			return through(q, &wrappers[i], w, n);
	if (ONE_OF(name, shells))
		return shell(q, w, n);
	if (ONE_OF(name, languages))
		return code(q, w, n);
	if (!strcmp(name, "eval") || !strcmp(name, "watch"))
		return joined(q, w, n);
	if (!strcmp(name, "find"))
		return find(q, w, n);
	if (!strcmp(name, "trap"))
		return n > 1 && !w[1].open ? look_at_line(q, w[1].text) : n > 1 ? SHELL_UNSURE : SHELL_NO;
	if (ONE_OF(name, hidden))
		return SHELL_UNSURE;
	return SHELL_NO;
}

static enum shell_sight look(const struct question *q, const struct shell_word *w, size_t n)
{
	struct question in = *q;
	while (n && assignment(w->text)) {
		w++;
		n--;
	}
	if (!n)
		return SHELL_NO;
	if (w->open || ++in.depth > 4 * DEPTH_MAX)
		return SHELL_UNSURE;
	const char *name = base(w->text);
	enum shell_sight s = known_program(&in, name, w, n);
	if (q->hosts)
		return more(s, reaches(q, w, n));
	if (!strcmp(name, "git") && !fnmatch(q->words[0], "git", 0))
		return more(s, git(q, w, n));
	return more(s, plain(q, w, n));
}

enum shell_sight shell_runs(const char *line, const char *const *words, size_t n)
{
	return n ? look_at_line(&(struct question){.words = words, .n = n}, line) : SHELL_YES;
}

enum shell_sight shell_reaches(const char *line, const char *hosts)
{
	return hosts[strspn(hosts, " ")] ? look_at_line(&(struct question){.hosts = hosts}, line) : SHELL_NO;
}
