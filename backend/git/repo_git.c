/* Runs `git` as a child for the files of repo, always the same way: no prompts, no background work, no hook that lies
 * inside a work tree, words in English because they are read by programs. Worker threads. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "repo_private.h"

#define ARGS_MAX   64
#define WORDS_MAX  400	      /* of git's own, so that the words of ours around them fit into struct err */
#define OUTPUT_MAX (64 << 20) /* a status of half a million files */

/* A daemon that was started from a git hook or alias would hand its repository on to every git below it. */
static const char *const fixed_env[] = {
	"GIT_DIR",
	"GIT_WORK_TREE",
	"GIT_INDEX_FILE",
	"GIT_OBJECT_DIRECTORY",
	"GIT_ALTERNATE_OBJECT_DIRECTORIES",
	"GIT_COMMON_DIR",
	"GIT_CONFIG",
	"GIT_CONFIG_PARAMETERS",
	"GIT_CONFIG_COUNT",
	"GIT_PREFIX",
	"GIT_NAMESPACE",
	"GIT_GRAFT_FILE=/dev/null", /* history as it is, for that is what gets sent */
	"GIT_SHALLOW_FILE",
	"GIT_NO_REPLACE_OBJECTS",
	"GIT_REPLACE_REF_BASE",
	"GIT_IMPLICIT_WORK_TREE",
	"GIT_QUARANTINE_PATH",
	"GIT_TRACE",
	"LANGUAGE",
	"LC_ALL=C",
	"GIT_TERMINAL_PROMPT=0",
	"GIT_ASKPASS=", /* nor a window that waits where nobody sits; it stands for the other askpass settings too */
	"SSH_ASKPASS_REQUIRE=never",
	"GIT_OPTIONAL_LOCKS=0",
	"GIT_MERGE_AUTOEDIT=no",
};

/* fsmonitor may name a program, gc and maintenance would go on in the background after the call. */
static const char *const fixed_options[] = {
	"-c", "core.fsmonitor=false",	"-c", "gc.auto=0",
	"-c", "maintenance.auto=false", "-c", "submodule.recurse=false",
};

int git_call(const struct git_call *c, struct err *err)
{
	const char *argv[ARGS_MAX], *env[ARRAY_LEN(fixed_env) + 4];
	size_t n = 0, m = 0;
	argv[n++] = "git";
	for (size_t i = 0; i < ARRAY_LEN(fixed_options); i++)
		argv[n++] = fixed_options[i];
	if (!c->hooks || git_hooks_inside(c->path)) {
		argv[n++] = "-c";
		argv[n++] = "core.hooksPath=/dev/null";
	}
	for (size_t i = 0; c->args[i]; i++) {
		if (n == ARGS_MAX - 1)
			return err_set(err, E2BIG, "too many arguments for git");
		argv[n++] = c->args[i];
	}
	argv[n] = NULL;
	for (; m < ARRAY_LEN(fixed_env); m++)
		env[m] = fixed_env[m];
	for (size_t i = 0; i < 3 && c->env && c->env[i]; i++)
		env[m++] = c->env[i];
	env[m] = NULL;
	struct child child = {.argv = argv,
			      .env = env,
			      .cwd = c->path,
			      .in = c->in,
			      .in_n = c->in_n,
			      .in_fd = c->in_fd,
			      .out = c->out,
			      .errout = c->errout,
			      .out_fd = c->out_fd,
			      .max = OUTPUT_MAX,
			      .memory = c->memory,
			      .timeout_ms = c->timeout_ms,
			      .cancel = c->cancel};
	return child_run(&child, err);
}

int git_must(const char *path, const char *const *args, struct buf *out, const char *what, struct err *err)
{
	CLEAN_BUF struct buf said = BUF_INIT;
	struct git_call c = {.path = path, .args = args, .out = out, .errout = &said, .timeout_ms = GIT_LOCAL_MS};
	int rc = git_call(&c, err);
	return rc > 0 ? git_said(err, EIO, &said, what) : rc;
}

/* ---- words ---- */

static const char *skip(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);
	return strncmp(s, prefix, n) ? s : s + n;
}

/* Appends a line, leaving out what stands between "://" and "@": user and password of a URL. */
static void add_without_passwords(struct buf *out, const char *s)
{
	for (const char *at; (at = strstr(s, "://")); s = at) {
		buf_add(out, s, (size_t)(at + 3 - s));
		at += 3;
		size_t host = strcspn(at, "/ '\"");
		const char *sign = memrchr(at, '@', host);
		if (sign)
			at = sign + 1;
	}
	buf_adds(out, s);
}

static bool worth_telling(const char *line)
{
	static const char *const dull[] = {"hint:",
					   "To ",
					   "From ",
					   "remote: Resolving deltas",
					   "remote: Counting objects",
					   "remote: Compressing objects",
					   "remote: Enumerating objects",
					   "remote: Total "};
	for (size_t i = 0; i < ARRAY_LEN(dull); i++)
		if (!strncmp(line, dull[i], strlen(dull[i])))
			return false;
	return !utf8_blank(line, strlen(line)) && line[strspn(line, "@ ")]; /* ssh frames its warnings with @ */
}

static void add_line(struct buf *out, char *line)
{
	char *last = strrchr(line, '\r'); /* progress rewrites its line */
	if (last && last[1])
		line = last + 1;
	size_t n = strcspn(line, "\x1b"); /* remote lines end with an erase sequence */
	while (n && strchr(" \t\r", line[n - 1]))
		n--;
	line[n] = 0;
	if (!worth_telling(line))
		return;
	static const char *const prefixes[] = {"remote:", "fatal:", "error:", "warning:"};
	const char *s = line;
	for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
		s = skip(s, prefixes[i]);
		s += strspn(s, " ");
	}
	if (utf8_blank(s, strlen(s)))
		return;
	if (out->n)
		buf_adds(out, "; ");
	add_without_passwords(out, s);
}

void git_words(struct buf *out, const struct buf *said)
{
	CLEAN_BUF struct buf text = BUF_INIT, clean = BUF_INIT;
	CLEAN_FREE char *copy = xstrndup(buf_str(said), said->n);
	char *save = NULL;
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		add_line(&text, line);
	utf8_clean(&clean, buf_str(&text), text.n);
	if (clean.n > WORDS_MAX) {
		buf_cut(&clean, utf8_prefix(clean.p, WORDS_MAX, NULL));
		buf_adds(&clean, "...");
	}
	buf_add(out, buf_str(&clean), clean.n);
}

int git_said(struct err *err, int code, const struct buf *said, const char *what)
{
	CLEAN_BUF struct buf words = BUF_INIT;
	git_words(&words, said);
	if (strstr(buf_str(said), strerror(ENOSPC)) || strstr(buf_str(said), strerror(EDQUOT)))
		code = ENOSPC;
	return err_set(err, code, "%s: git says: %s", what, words.n ? buf_str(&words) : "nothing");
}

/* ---- hooks ---- */

/* A commit may bring any file into a work tree. A hook that lives there would let whoever wrote the commit run
 * programs on this machine, so such hooks do not run. */

static bool below(const char *path, const char *folder)
{
	size_t n = strlen(folder);
	return !strncmp(path, folder, n) && (path[n] == 0 || path[n] == '/');
}

struct roots {
	char *git[2];	 /* real paths of the git folders: of this work tree, and the common one */
	struct buf list; /* real paths of all work trees, each with its NUL */
};

static void roots_release(struct roots *r)
{
	free(r->git[0]);
	free(r->git[1]);
	buf_release(&r->list);
}

/* A git folder stands inside its work tree and still is no part of it, so the longest root decides. */
static bool inside(const struct roots *r, const char *real)
{
	size_t tree = 0, git = 0;
	for (size_t i = 0; i < r->list.n; i += strlen(r->list.p + i) + 1)
		if (below(real, r->list.p + i) && strlen(r->list.p + i) > tree)
			tree = strlen(r->list.p + i);
	for (int i = 0; i < 2; i++)
		if (r->git[i] && below(real, r->git[i]) && strlen(r->git[i]) > git)
			git = strlen(r->git[i]);
	return tree > git;
}

static int ask(const char *path, const char *const *args, struct buf *out)
{
	struct git_call c = {.path = path, .args = args, .out = out, .timeout_ms = GIT_LOCAL_MS};
	int rc = git_call(&c, NULL);
	return rc > 0 ? -EIO : rc;
}

static char *real_below(const char *path, const char *name)
{
	CLEAN_FREE char *full = *name == '/' ? xstrdup(name) : xasprintf("%s/%s", path, name);
	return realpath(full, NULL);
}

static int find_roots(const char *path, struct roots *r)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	int rc = ask(path, (const char *const[]){"rev-parse", "--git-dir", NULL}, &out);
	if (rc)
		return rc;
	buf_cut(&out, out.n - 1);
	r->git[0] = real_below(path, buf_str(&out));
	buf_reset(&out);
	rc = ask(path, (const char *const[]){"rev-parse", "--git-common-dir", NULL}, &out);
	if (rc)
		return rc;
	buf_cut(&out, out.n - 1);
	r->git[1] = real_below(path, buf_str(&out));
	buf_reset(&out);
	rc = ask(path, (const char *const[]){"worktree", "list", "--porcelain", "-z", NULL}, &out);
	if (rc)
		return rc;
	for (size_t i = 0; i < out.n; i += strlen(out.p + i) + 1) {
		const char *tree = skip(out.p + i, "worktree ");
		CLEAN_FREE char *real = tree == out.p + i ? NULL : realpath(tree, NULL);
		if (real)
			buf_add(&r->list, real, strlen(real) + 1);
	}
	CLEAN_FREE char *own = realpath(path, NULL);
	if (own)
		buf_add(&r->list, own, strlen(own) + 1);
	return own ? 0 : -errno;
}

static bool hook_inside(const struct roots *r, const char *folder, const char *name)
{
	CLEAN_FREE char *full = xasprintf("%s/%s", folder, name);
	struct stat st;
	if (lstat(full, &st))
		return false;
	CLEAN_FREE char *real = realpath(full, NULL);
	return !real || inside(r, real); /* a dangling link may come to life by a merge */
}

/* A hooks folder that is a link to nothing may come to life by a merge too. */
static bool dangling(const char *git)
{
	CLEAN_FREE char *full = xasprintf("%s/hooks", git ? git : "");
	struct stat st;
	return !lstat(full, &st);
}

bool git_hooks_inside(const char *path)
{
	static const char *const names[] = {"pre-push",		 "post-merge",	  "reference-transaction",
					    "post-index-change", "post-checkout", "pre-merge-commit",
					    "pre-auto-gc"};
	CLEAN_BUF struct buf out = BUF_INIT;
	struct roots r = {{NULL, NULL}, BUF_INIT};
	/* --git-path would show the /dev/null that git_call() sets, hence the question for the configured value. */
	CLEAN_FREE char *folder = NULL;
	struct git_call c = {.path = path,
			     .args = (const char *const[]){"config", "--path", "--get-all", "core.hooksPath", NULL},
			     .out = &out,
			     .timeout_ms = GIT_LOCAL_MS};
	bool bad = git_call(&c, NULL) != 0 || find_roots(path, &r) != 0;
	if (!bad) {
		/* the last value is our own /dev/null, the one before it the user's */
		buf_cut(&out, out.n - 1);
		char *last = strrchr(out.p, '\n');
		if (last) {
			*last = 0;
			char *user = strrchr(out.p, '\n');
			folder = real_below(path, user ? user + 1 : out.p);
		} else if (r.git[1]) {
			folder = real_below(r.git[1], "hooks");
		}
		bad = folder ? inside(&r, folder) : last || dangling(r.git[1]);
	}
	for (size_t i = 0; !bad && folder && i < ARRAY_LEN(names); i++)
		bad = hook_inside(&r, folder, names[i]);
	roots_release(&r);
	return bad;
}
