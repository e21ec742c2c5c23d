/* Pull requests, by the `gh` program as a child: its login stays the user's own, and nothing of it is read here. Worker
 * threads. */
#include <errno.h>
#include <string.h>

#include "backend/base/child.h"
#include "backend/base/mem.h"
#include "repo_private.h"

#define TITLE_MAX 200 /* characters that forges show of a title, or fewer */

/* The first URL in a text, up to a blank; NULL if there is none. */
static char *first_url(const char *text)
{
	const char *a = strstr(text, "https://"), *b = strstr(text, "http://");
	const char *at = a && (!b || a < b) ? a : b;
	return at ? xstrndup(at, strcspn(at, " \t\r\n\"'<>\x1b")) : NULL;
}

char *repo_pr_offered(const struct buf *said)
{
	for (const char *at = buf_str(said); (at = strstr(at, "remote:")); at++) {
		CLEAN_FREE char *line = xstrndup(at, strcspn(at, "\n"));
		char *url = first_url(line);
		if (url)
			return url;
	}
	return NULL;
}

int repo_pr_url(const char *path, const char *remote, struct buf *out, struct err *err)
{
	int rc = repo_push_url(path, remote, out, err);
	char *scheme = rc ? NULL : strstr(out->p, "://");
	if (!scheme)
		return rc;
	size_t host = (size_t)(scheme + 3 - out->p), end = host + strcspn(out->p + host, "/");
	char *at = memrchr(out->p + host, '@', end - host);
	if (!at)
		return 0;
	CLEAN_FREE char *rest = xstrdup(at + 1);
	buf_cut(out, host);
	buf_adds(out, rest);
	return 0;
}

int repo_pr_open(const char *path, const struct repo_pr *pr, char **url, const atomic_bool *cancel, struct err *err)
{
	static const char *const env[] = {"GH_PROMPT_DISABLED=1",  "GH_NO_UPDATE_NOTIFIER=1",
					  "GIT_TERMINAL_PROMPT=0", "NO_COLOR=1",
					  "GH_FORCE_TTY",	   "GIT_DIR",
					  "GIT_WORK_TREE",	   NULL};
	CLEAN_BUF struct buf repo = BUF_INIT, out = BUF_INIT, said = BUF_INIT;
	int rc = repo_pr_url(path, pr->remote, &repo, err);
	if (rc)
		return rc;
	CLEAN_FREE char *title = xstrndup(pr->title, TITLE_MAX);
	const char *argv[] = {"gh",	"pr",	  "create",  "--repo", repo.p,	      "--head", pr->branch,
			      "--base", pr->base, "--title", title,    "--body-file", "-",	NULL};
	struct child c = {.argv = argv,
			  .env = env,
			  .cwd = path,
			  .in = pr->body,
			  .in_n = strlen(pr->body),
			  .out = &out,
			  .errout = &said,
			  .timeout_ms = GIT_ASK_MS,
			  .cancel = cancel};
	rc = child_run(&c, err);
	if (rc < 0)
		return rc;
	/* one that an earlier try has opened is named in what it says */
	bool exists = strstr(buf_str(&said), "already exists");
	*url = first_url(buf_str(rc && exists ? &said : &out));
	if (*url)
		return 0;
	if (rc)
		return git_said(err, EIO, &said, "gh cannot open the pull request");
	return err_set(err, EIO, "gh ended without naming the pull request");
}
