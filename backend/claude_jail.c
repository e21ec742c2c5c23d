/* The jail of Claude Code: namespaces of its own, the system's programs and its own read-only, a home and a /tmp that
 * are empty and end with it, no network but one address that a relay listens on, and its login: the one file of the
 * user's that it may write, since it renews it every few hours, and a login that is renewed but not kept is lost. No
 * project, no key of others, no socket, no setting of the user's is to be seen. Any thread, but for
 * claude_environment(). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "claude.h"

#define SCRATCH "67108864" /* bytes of its home, and of its /tmp */
#define ASK_MS	60000	   /* for a question at the program's start */

void claude_args_add(struct claude_args *a, const char *word)
{
	if (a->n == CLAUDE_ARGS - 1)
		abort(); /* a shorter command line would be another one */
	a->v[a->n++] = word;
	a->v[a->n] = NULL;
}

static void own(struct claude_args *a, char *word)
{
	if (a->owned < (int)ARRAY_LEN(a->own)) {
		a->own[a->owned++] = word;
		claude_args_add(a, word);
	} else {
		free(word);
	}
}

void claude_args_release(struct claude_args *a)
{
	for (int i = 0; i < a->owned; i++)
		free(a->own[i]);
	a->owned = a->n = 0;
}

static void words(struct claude_args *a, const char *option, const char *from, const char *to)
{
	claude_args_add(a, option);
	claude_args_add(a, from);
	if (to)
		claude_args_add(a, to);
}

static const char *const fixed[] = {"bwrap",
				    "--unshare-user",
				    "--unshare-ipc",
				    "--unshare-pid",
				    "--unshare-net",
				    "--unshare-uts",
				    "--unshare-cgroup-try",
				    "--die-with-parent",
				    "--new-session",
				    "--cap-drop",
				    "ALL",
				    "--ro-bind",
				    "/usr",
				    "/usr",
				    "--proc",
				    "/proc",
				    "--dev",
				    "/dev",
				    "--size",
				    SCRATCH,
				    "--tmpfs",
				    "/tmp",
				    "--size",
				    SCRATCH,
				    "--tmpfs",
				    "/dev/shm"};

/* On most systems these lead to folders in /usr. */
static const char *const roots[] = {"/bin", "/sbin", "/lib", "/lib64", "/nix"};

/* What checks certificates and finds libraries. */
static const char *const etc[] = {"/etc/ld.so.cache",	  "/etc/alternatives", "/etc/ssl",
				  "/etc/ca-certificates", "/etc/pki",	       "/etc/localtime"};

static void system_view(struct claude_args *a)
{
	struct stat st;
	char target[256];
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		claude_args_add(a, fixed[i]);
	for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
		if (lstat(roots[i], &st))
			continue;
		ssize_t n = S_ISLNK(st.st_mode) ? readlink(roots[i], target, sizeof target - 1) : -1;
		if (n > 0) {
			claude_args_add(a, "--symlink");
			own(a, xstrndup(target, (size_t)n));
			claude_args_add(a, roots[i]);
		} else {
			words(a, "--ro-bind", roots[i], roots[i]);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(etc); i++)
		words(a, "--ro-bind-try", etc[i], etc[i]);
}

/* May a folder of that name be made there? */
static bool free_place(const char *path)
{
	static const char *const taken[] = {"/usr", "/etc",  "/proc", "/dev", "/sys",
					    "/bin", "/sbin", "/lib",  "/nix", "/run"};
	for (size_t i = 0; i < ARRAY_LEN(taken); i++)
		if (!strncmp(path, taken[i], strlen(taken[i])))
			return false;
	return *path == '/' && path[1] && !strstr(path, "/..");
}

void claude_jail(struct claude_args *a, const struct claude_place *p, const char *cwd, const char *self)
{
	a->n = a->owned = 0;
	system_view(a);
	if (free_place(p->home)) {
		words(a, "--size", SCRATCH, NULL);
		words(a, "--tmpfs", p->home, NULL);
	}
	for (int i = 0; i < p->n_show; i++)
		words(a, "--ro-bind", p->show[i], p->show[i]);
	if (self && strncmp(self, "/usr/", 5))
		words(a, "--ro-bind", self, self);
	if (p->login)
		words(a, "--bind", p->login, p->login);
	cwd = cwd && free_place(cwd) ? cwd : "/tmp/work";
	words(a, "--dir", cwd, NULL);
	words(a, "--remount-ro", "/", NULL); /* what is no scratch folder is not to be filled */
	words(a, "--chdir", cwd, NULL);
	claude_args_add(a, "--");
}

/* ---- its environment ---- */

/* Its own login and certificates are passed on unread; of ours that is all. */
static const char *const kept[] = {"HOME",
				   "USER",
				   "LANG",
				   "LC_ALL",
				   "LC_CTYPE",
				   "TZ",
				   "ANTHROPIC_API_KEY",
				   "ANTHROPIC_AUTH_TOKEN",
				   "CLAUDE_CODE_OAUTH_TOKEN",
				   "CLAUDE_CONFIG_DIR",
				   "NODE_EXTRA_CA_CERTS",
				   "SSL_CERT_FILE"};

/* A model alone: no try of its own is made again (that is decided here, durably), nothing is summed up, added to the
 * conversation or fetched beside it. */
static const char *const settings[][2] = {
	{"PATH", "/usr/local/bin:/usr/bin:/bin"},
	{"SHELL", "/bin/bash"},
	{"TERM", "dumb"},
	{"HTTPS_PROXY", "http://127.0.0.1:" CLAUDE_PROXY},
	{"HTTP_PROXY", "http://127.0.0.1:" CLAUDE_PROXY},
	{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"},
	{"DISABLE_AUTOUPDATER", "1"},
	{"DISABLE_TELEMETRY", "1"},
	{"DISABLE_ERROR_REPORTING", "1"},
	{"DISABLE_AUTO_COMPACT", "1"},
	{"DISABLE_COMPACT", "1"},
	{"ENABLE_TOOL_SEARCH", "0"},
	{"CLAUDE_CODE_MAX_RETRIES", "0"},
	{"CLAUDE_CODE_NO_MODEL_FALLBACK", "1"},
	{"CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "1"},
	{"CLAUDE_CODE_DISABLE_CLAUDE_MDS", "1"},
	{"CLAUDE_CODE_DISABLE_ATTACHMENTS", "1"},
	{"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"},
	{"CLAUDE_CODE_DISABLE_FILE_CHECKPOINTING", "1"},
	{"CLAUDE_CODE_SKIP_PROMPT_HISTORY", "1"},
};

static bool keeps(const char *entry)
{
	size_t n = strcspn(entry, "=");
	for (size_t i = 0; i < ARRAY_LEN(kept); i++)
		if (strlen(kept[i]) == n && !strncmp(kept[i], entry, n))
			return true;
	return false;
}

void claude_environment(void)
{
	extern char **environ;
	size_t to = 0;
	for (size_t i = 0; environ[i]; i++)
		if (keeps(environ[i]))
			environ[to++] = environ[i];
	environ[to] = NULL;
	for (size_t i = 0; i < ARRAY_LEN(settings); i++)
		setenv(settings[i][0], settings[i][1], 1);
}

/* ---- is it logged in? ---- */

static int judge(const struct buf *out, char *text, size_t cap, struct err *err)
{
	const char *from = strchr(buf_str(out), '{');
	CLEAN_JSON cJSON *o = from ? json_parse(from, out->n - (size_t)(from - buf_str(out)), NULL) : NULL;
	const char *how = json_str(o, "authMethod"), *plan = json_str(o, "subscriptionType");
	if (!cJSON_IsBool(json_get(o, "loggedIn")))
		return err_set(err, EPROTO, "Claude Code does not say whether it is logged in: is it too old?");
	if (!json_bool(o, "loggedIn", false))
		return err_set(err, EACCES, "Claude Code is not logged in: run `claude` in a terminal and type /login");
	snprintf(text, cap, "logged in%s%.40s%s%.40s", how ? ", " : "", how ? how : "", plan ? ", " : "",
		 plan ? plan : "");
	text_one_line(text, cap);
	return 0;
}

int claude_status(const struct paths *paths, const char *program, char *text, size_t cap, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_BUF struct buf said = BUF_INIT;
	struct claude_place place;
	struct err why = ERR_INIT;
	int rc = claude_place(program, &place, err);
	if (rc)
		return rc;
	const char *const argv[] = {paths_program(paths), "claude-jail", "status", program, NULL};
	rc = child_run(
		&(struct child){.argv = argv, .out = &out, .errout = &said, .max = 1 << 20, .timeout_ms = ASK_MS},
		&why);
	claude_place_release(&place);
	if (rc < 0)
		return err_set(err, -rc, "Claude Code cannot be asked: %s", why.text);
	if (!out.n)
		return err_set(err, EPERM, "Claude Code does not start in its jail: %.300s",
			       said.n ? text_trim(said.p) : "it says nothing");
	return judge(&out, text, cap, err);
}
