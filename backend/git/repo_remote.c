/* The checkout's remote: which one, its branches, fetch and push. All by `git` as a child, so that credentials, proxies
 * and ssh settings are the user's own and are never read here. Worker threads. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "repo_private.h"

#define FETCH_TRIES   20 /* two fetches of one branch at once: one waits for the other's lock on our ref */
#define FETCH_WAIT_MS 150

static int network(const char *path, const char *const *args, int timeout_ms, const atomic_bool *cancel,
		   struct buf *out, struct buf *said, struct err *err)
{
	struct git_call c = {
		.path = path, .args = args, .out = out, .errout = said, .timeout_ms = timeout_ms, .cancel = cancel};
	return git_call(&c, err);
}

static int unreachable(const char *remote, const struct buf *said, struct err *err)
{
	CLEAN_FREE char *what = xasprintf("remote %s cannot be reached", remote);
	return git_said(err, EHOSTUNREACH, said, what);
}

/* ---- which remote ---- */

/* remote of the checked-out branch's upstream; "." is this repository itself */
static char *upstream(git_repository *repo)
{
	CLEAN_GIT(git_reference) *head = NULL;
	if (git_repository_head(&head, repo) || !git_reference_is_branch(head))
		return NULL;
	git_buf name = GIT_BUF_INIT;
	char *found = NULL;
	if (!git_branch_upstream_remote(&name, repo, git_reference_name(head)) && strcmp(name.ptr, "."))
		found = xstrdup(name.ptr);
	git_buf_dispose(&name);
	return found;
}

int repo_default_remote(const char *path, char **remote, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_BUF struct buf all = BUF_INIT;
	int rc = lg_open(path, &repo, err);
	/* git_remote_list() would do, but in libgit2 1.5 every regex match leaks 20 KiB */
	rc = rc ? rc : git_must(path, (const char *const[]){"remote", NULL}, &all, "cannot list the remotes", err);
	if (rc)
		return rc;
	CLEAN_FREE char *up = upstream(repo);
	char *save = NULL;
	const char *pick = NULL, *origin = NULL, *only = NULL;
	size_t n = 0;
	for (char *name = all.n ? strtok_r(all.p, "\n", &save) : NULL; name; name = strtok_r(NULL, "\n", &save), n++) {
		only = name;
		if (up && !strcmp(name, up))
			pick = name;
		if (!strcmp(name, "origin"))
			origin = name;
	}
	if (!pick)
		pick = origin ? origin : n == 1 ? only : NULL;
	if (pick) {
		*remote = xstrdup(pick);
		return 0;
	}
	if (n)
		return err_set(err, ENOENT,
			       "%s has %zu remotes and none is called origin; set the branch's upstream "
			       "(git branch -u REMOTE/BRANCH)",
			       path, n);
	return err_set(err, ENOENT, "%s has no remote to ship to; add one (git remote add origin URL)", path);
}

/* refs/remotes/REMOTE/HEAD, for servers that do not say what their HEAD stands for */
static char *recorded_head(const char *path, const char *remote)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_GIT(git_reference) *ref = NULL;
	if (lg_open(path, &repo, NULL))
		return NULL;
	CLEAN_FREE char *name = xasprintf("refs/remotes/%s/HEAD", remote),
			*want = xasprintf("refs/remotes/%s/", remote);
	if (git_reference_lookup(&ref, repo, name))
		return NULL;
	const char *target = git_reference_symbolic_target(ref);
	return target && !strncmp(target, want, strlen(want)) ? xstrdup(target + strlen(want)) : NULL;
}

int repo_remote_branch(const char *path, const char *remote, char **branch, const atomic_bool *cancel, struct err *err)
{
	static const char mark[] = "ref: refs/heads/";
	CLEAN_BUF struct buf out = BUF_INIT, said = BUF_INIT;
	const char *args[] = {"ls-remote", "--symref", "--", remote, "HEAD", NULL};
	int rc = network(path, args, GIT_ASK_MS, cancel, &out, &said, err);
	if (rc)
		return rc < 0 ? rc : unreachable(remote, &said, err);
	const char *at = strstr(buf_str(&out), mark);
	if (at && (at == out.p || at[-1] == '\n')) {
		at += strlen(mark);
		*branch = xstrndup(at, strcspn(at, "\t\n"));
		return 0;
	}
	*branch = recorded_head(path, remote);
	return *branch ? 0
		       : err_set(err, ENOENT,
				 "remote %s has no default branch (it may be empty); push the first commit by hand",
				 remote);
}

/* ---- fetch ---- */

/* refs/berthfs/KIND/REMOTE%2FBRANCH: one flat level, so that no name can be in the way of another. */
static char *keep_ref(const char *kind, const char *remote, const char *branch)
{
	CLEAN_FREE char *both = xasprintf("%s/%s", remote, branch);
	struct buf out = BUF_INIT;
	buf_addf(&out, "refs/berthfs/%s/", kind);
	for (const char *s = both; *s; s++) {
		if (isalnum((unsigned char)*s) || *s == '-' || *s == '_' || (unsigned char)*s >= 0x80)
			buf_addc(&out, *s);
		else
			buf_addf(&out, "%%%02X", (unsigned char)*s);
	}
	return buf_take(&out);
}

static int read_ref(const char *path, const char *ref, char commit[COMMIT_TEXT], struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	git_oid id;
	int rc = lg_open(path, &repo, err);
	if (rc)
		return rc;
	rc = git_reference_name_to_id(&id, repo, ref);
	if (rc)
		return lg_err(err, rc, "the fetched branch is gone again");
	git_oid_tostr(commit, COMMIT_TEXT, &id);
	return 0;
}

/* from: what git shall fetch from, the remote's name or its URL; remote: the name, for words. commit: what came. */
static int fetch_branch(const char *path, const char *from, const char *remote, const char *branch,
			char commit[COMMIT_TEXT], const atomic_bool *cancel, struct err *err)
{
	CLEAN_BUF struct buf said = BUF_INIT;
	CLEAN_FREE char *ref = keep_ref(strcmp(from, remote) ? "push" : "fetch", remote, branch);
	CLEAN_FREE char *spec = xasprintf("+refs/heads/%s:%s", branch, ref);
	const char *args[] = {"-c",
			      "fetch.writeCommitGraph=false",
			      "fetch",
			      "--quiet",
			      "--no-tags",
			      "--no-write-fetch-head",
			      "--no-recurse-submodules",
			      "--no-auto-maintenance",
			      "--no-prune",
			      "--refmap=",
			      "--",
			      from,
			      spec,
			      NULL};
	int rc = 0;
	for (int i = 0; i < FETCH_TRIES; i++) {
		buf_reset(&said);
		rc = network(path, args, GIT_NETWORK_MS, cancel, NULL, &said, err);
		if (rc <= 0 || !strstr(buf_str(&said), "cannot lock ref"))
			break;
		clock_sleep_ms(FETCH_WAIT_MS);
	}
	if (rc <= 0)
		return rc ? rc : read_ref(path, ref, commit, err);
	if (strstr(buf_str(&said), "find remote ref"))
		return err_set(err, ENOENT, "remote %s has no branch %s", remote, branch);
	if (strstr(buf_str(&said), "cannot lock ref"))
		return git_said(err, EBUSY, &said, "cannot fetch");
	return unreachable(remote, &said, err);
}

int repo_fetch_base(const char *path, const char *remote, const char *branch, char commit[COMMIT_TEXT],
		    const atomic_bool *cancel, struct err *err)
{
	return fetch_branch(path, remote, remote, branch, commit, cancel, err);
}

/* ---- push ---- */

/* Reasons that mean: someone else was quicker. The last two are those of a remote that found out while writing. */
static const char *const moved_reasons[] = {
	"non-fast-forward",	   "fetch first", "needs force", "stale info", "but expected", "incorrect old value",
	"reference already exists"};

static bool has_moved(const char *what, const struct buf *said)
{
	for (size_t i = 0; i < ARRAY_LEN(moved_reasons); i++)
		if (strstr(what, moved_reasons[i]))
			return true;
	/* git keeps the reason for itself and has the remote print it */
	return strstr(what, "(failed to update ref)") && strstr(buf_str(said), "but expected");
}

/* The porcelain line of the one ref: "FLAG\tFROM:TO\tSUMMARY (REASON)"; NULL if git did not come so far. A hook may
 * have printed anything beside it. */
static const char *ref_line(const struct buf *out, const char *branch)
{
	CLEAN_FREE char *to = xasprintf(":refs/heads/%s\t", branch);
	for (const char *at = buf_str(out); *at;) {
		size_t n = strcspn(at, "\n");
		if (strchr(" +-*!=", *at) && at[1] == '\t' && memmem(at, n, to, strlen(to)))
			return at;
		at += n;
		at += *at == '\n';
	}
	return NULL;
}

static enum repo_push push_refused(const char *line, const struct buf *said, const char *remote, const char *branch,
				   struct err *err)
{
	CLEAN_FREE char *what = xstrndup(line, strcspn(line, "\n"));
	if (has_moved(what, said)) {
		err_set(err, EAGAIN, "%s has moved at %s: ship again", branch, remote);
		return REPO_PUSH_MOVED;
	}
	CLEAN_BUF struct buf remote_words = BUF_INIT, words = BUF_INIT;
	/* what the remote's hooks printed says more than git's summary */
	for (const char *at = buf_str(said); (at = strstr(at, "remote: ")); at++) {
		if (at != said->p && at[-1] != '\n')
			continue;
		buf_add(&remote_words, at, strcspn(at, "\n"));
		buf_addc(&remote_words, '\n');
	}
	git_words(&words, &remote_words);
	const char *summary = strrchr(what, '\t');
	err_set(err, EPERM, "%s%s%s", summary ? summary + 1 : what, words.n ? ": " : "", buf_str(&words));
	return REPO_PUSH_REFUSED;
}

/* What git and ssh say when they may not: it will be the same in a minute. */
static bool may_not(const char *said)
{
	static const char *const words[] = {"returned error: 401",	   "returned error: 403",
					    "Authentication failed",	   "Permission denied (",
					    "could not read Username",	   "could not read Password",
					    "Host key verification failed"};
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (strstr(said, words[i]))
			return true;
	return false;
}

/* git failed before it had an answer about the branch: a pre-push hook of the user's said no, or no connection. */
static enum repo_push push_failed(const struct buf *said, const char *remote, struct err *err)
{
	const char *s = buf_str(said);
	bool broken = !strncmp(s, "fatal:", 6) || strstr(s, "\nfatal:") || strstr(s, "ssh:") || strstr(s, "hung up");
	if (may_not(s)) {
		git_said(err, EPERM, said, "this push is not allowed");
		return REPO_PUSH_REFUSED;
	}
	if (broken) {
		unreachable(remote, said, err);
		return REPO_PUSH_UNREACHABLE;
	}
	git_said(err, EPERM, said, "git push was refused on this machine");
	return REPO_PUSH_REFUSED;
}

int repo_push(const char *path, const char *remote, const char *commit, const char *branch, enum repo_push *result,
	      char **link, const atomic_bool *cancel, struct err *err)
{
	git_oid id;
	int rc = lg_oid(commit, &id, err);
	if (rc)
		return rc;
	CLEAN_BUF struct buf out = BUF_INIT, said = BUF_INIT;
	CLEAN_FREE char *spec = xasprintf("%s:refs/heads/%s", commit, branch);
	CLEAN_FREE char *mirror = xasprintf("remote.%s.mirror=false", remote);
	const char *args[] = {
		"-c", mirror, "push", "--porcelain", "--no-force", "--no-follow-tags", "--recurse-submodules=no",
		"--", remote, spec,   NULL};
	struct git_call c = {.path = path,
			     .args = args,
			     .out = &out,
			     .errout = &said,
			     .timeout_ms = GIT_NETWORK_MS,
			     .hooks = true,
			     .cancel = cancel};
	rc = git_call(&c, err);
	if (rc == -ETIMEDOUT) {
		*result = REPO_PUSH_UNREACHABLE;
		if (err)
			err->code = 0;
		return 0;
	}
	if (rc < 0)
		return rc;
	const char *line = ref_line(&out, branch);
	if (line && *line != '!') {
		*result = REPO_PUSHED;
		if (link)
			*link = repo_pr_offered(&said);
	} else if (line)
		*result = push_refused(line, &said, remote, branch, err);
	else if (rc > 0)
		*result = push_failed(&said, remote, err);
	else
		return err_set(err, EIO, "git push to %s ended without saying what it did", remote);
	if (err)
		err->code = 0; /* words for a result, no failure */
	return 0;
}

int repo_push_url(const char *path, const char *remote, struct buf *out, struct err *err)
{
	int rc = git_must(path, (const char *const[]){"remote", "get-url", "--push", "--", remote, NULL}, out,
			  "cannot tell where a push would go", err);
	if (!rc)
		buf_cut(out, strcspn(buf_str(out), "\n"));
	return rc;
}

int repo_remote_has(const char *path, const char *remote, const char *branch, const char *commit,
		    const atomic_bool *cancel, struct err *err)
{
	CLEAN_BUF struct buf url = BUF_INIT, out = BUF_INIT, said = BUF_INIT;
	CLEAN_FREE char *full = xasprintf("refs/heads/%s", branch);
	char tip[COMMIT_TEXT];
	int rc = repo_push_url(path, remote, &url, err);
	if (rc)
		return rc;
	rc = network(path, (const char *const[]){"ls-remote", "--", url.p, full, NULL}, GIT_ASK_MS, cancel, &out, &said,
		     err);
	if (rc)
		return rc < 0 ? rc : unreachable(remote, &said, err);
	if (out.n < COMMIT_TEXT)
		return 0; /* no such branch */
	memcpy(tip, out.p, COMMIT_TEXT - 1);
	tip[COMMIT_TEXT - 1] = 0;
	rc = repo_has(path, tip, err);
	if (rc == 0)
		rc = fetch_branch(path, url.p, remote, branch, tip, cancel, err);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	return repo_is_ancestor(path, commit, tip, err);
}
