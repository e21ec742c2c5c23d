/* after-run merge: fast-forwards the checked-out branch, and only where that can touch nothing of the user's.
 * The one place that changes a work tree. Worker threads. */
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/base/map.h"
#include "backend/base/mem.h"
#include "repo_private.h"

struct merge {
	const char *path, *branch;
	git_repository *repo;
	char head[COMMIT_TEXT], tip[COMMIT_TEXT];
	char *current;	    /* checked-out branch */
	struct map changed; /* path -> "": what the new commits change */
};

static int refuse(enum repo_merge *result, struct err *err)
{
	*result = REPO_MERGE_REFUSED;
	if (err)
		err->code = 0; /* words for a result, no failure */
	return 1;
}

/* 0 go on, 1 *result is set, -errno. */
static int look_at_head(struct merge *m, enum repo_merge *result, struct err *err)
{
	CLEAN_GIT(git_reference) *head = NULL;
	int rc = git_repository_head(&head, m->repo);
	if (rc)
		return lg_err(err, rc, m->path);
	if (!git_reference_is_branch(head)) {
		err_set(err, EBUSY,
			"%s has no branch checked out (detached HEAD); check one out, then write "
			"`merge` to ctl",
			m->path);
		return refuse(result, err);
	}
	m->current = xstrdup(git_reference_shorthand(head));
	git_oid_tostr(m->head, sizeof m->head, git_reference_target(head));
	CLEAN_FREE char *lock = xasprintf("%sindex.lock", git_repository_path(m->repo));
	struct stat st;
	if (!lstat(lock, &st)) { /* git would find it too, but only after it has noted ORIG_HEAD */
		err_set(err, EBUSY,
			"%s is there: another git is at work, or one was killed and left it; when it is gone, write "
			"`merge` to ctl",
			lock);
		return refuse(result, err);
	}
	if (git_repository_state(m->repo) != GIT_REPOSITORY_STATE_NONE) {
		err_set(err, EBUSY,
			"a merge, rebase or the like is under way in %s; finish it, then write "
			"`merge` to ctl",
			m->path);
		return refuse(result, err);
	}
	return 0;
}

static int look_at_history(struct merge *m, enum repo_merge *result, struct err *err)
{
	int rc = lg_descends(m->repo, m->path, m->tip, m->head, err);
	if (rc < 0)
		return rc;
	if (rc) {
		*result = REPO_MERGE_NOTHING;
		return 1;
	}
	rc = lg_descends(m->repo, m->path, m->head, m->tip, err);
	if (rc == 1)
		return 0;
	if (rc < 0)
		return rc;
	err_set(err, EBUSY, "%s has commits that %s lacks; merge or rebase by hand (git merge %s)", m->current,
		m->branch, m->branch);
	return refuse(result, err);
}

/* A commit may name more files than a disk holds. */
static int look_at_weight(struct merge *m, enum repo_merge *result, struct err *err)
{
	CLEAN_GIT(git_commit) *a = NULL;
	CLEAN_GIT(git_commit) *b = NULL;
	CLEAN_GIT(git_tree) *ta = NULL;
	CLEAN_GIT(git_tree) *tb = NULL;
	struct lg_weight weight;
	int rc = lg_commit(m->repo, m->head, &a, err);
	rc = rc ? rc : lg_commit(m->repo, m->tip, &b, err);
	if (!rc && ((rc = git_commit_tree(&ta, a)) || (rc = git_commit_tree(&tb, b))))
		rc = lg_err(err, rc, "cannot read a commit's files");
	rc = rc ? rc : lg_weigh(m->repo, ta, tb, &weight, err);
	if (rc <= 0)
		return rc;
	err_set(err, EFBIG,
		"it changes more than %d files or nests folders too deeply; if you do want that: git merge %s",
		LG_FILES_MAX, m->branch);
	return refuse(result, err);
}

/* Every path that differs, renames as two. An added one must not stand in the work tree, whether ignored or not;
 * *in_way is set to the first that does. */
static int list_changed(struct merge *m, char **in_way, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	const char *args[] = {"diff-tree", "-r",   "-z", "--no-renames", "--name-status", "--ignore-submodules=none",
			      m->head,	   m->tip, NULL};
	int rc = git_must(m->path, args, &out, "cannot list what would change", err);
	for (size_t i = 0; !rc && i < out.n;) {
		const char *kind = out.p + i, *name = kind + strlen(kind) + 1;
		if (name >= out.p + out.n)
			break;
		i = (size_t)(name + strlen(name) + 1 - out.p);
		map_put(&m->changed, name, m);
		CLEAN_FREE char *full = xasprintf("%s/%s", m->path, name);
		struct stat st;
		if (*kind == 'A' && !*in_way && !lstat(full, &st) && !S_ISDIR(st.st_mode))
			*in_way = xstrdup(name);
	}
	return rc;
}

/* Files that git was told to take for unchanged: it would not see what it writes over. */
static int list_hidden(struct merge *m, char **in_way, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	const char *args[] = {"ls-files", "-v", "-z", NULL};
	int rc = *in_way ? 0 : git_must(m->path, args, &out, "cannot read the index", err);
	for (size_t i = 0; !rc && i + 2 < out.n; i += strlen(out.p + i) + 1) {
		const char *name = out.p + i + 2;
		CLEAN_FREE char *full = xasprintf("%s/%s", m->path, name);
		struct stat st;
		/* small letters: assume-unchanged; S: skip-worktree, whose files are not there as a rule */
		if ((islower((unsigned char)out.p[i]) || out.p[i] == 'S') && map_get(&m->changed, name) &&
		    !lstat(full, &st)) {
			*in_way = xstrdup(name);
			return 0;
		}
	}
	return rc;
}

/* The first uncommitted change among what the new commits change; an untracked folder is listed file by file. */
static int list_uncommitted(struct merge *m, char **in_way, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	const char *args[] = {
		"status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty",
		NULL};
	int rc = git_must(m->path, args, &out, "cannot tell what is uncommitted", err);
	for (size_t i = 0; !rc && i + 3 < out.n; i += strlen(out.p + i) + 1)
		if (map_get(&m->changed, out.p + i + 3)) {
			free_ptr(in_way);
			*in_way = xstrdup(out.p + i + 3);
			return 0;
		}
	return rc;
}

/* What a merge writes must not become settings of git on this machine, or a program that it runs. */
static int look_at_settings(struct merge *m, enum repo_merge *result, struct err *err)
{
	struct err why = ERR_INIT;
	int rc = git_settings_guard(m->path, &m->changed, &why);
	if (rc < 0)
		return err_set(err, -rc, "%s", why.text);
	if (!rc)
		return 0;
	err_set(err, EPERM, "%s; look at them (git diff HEAD %s), then merge by hand: git merge %s", why.text,
		m->branch, m->branch);
	return refuse(result, err);
}

static int forward(struct merge *m, enum repo_merge *result, struct err *err)
{
	CLEAN_BUF struct buf said = BUF_INIT;
	CLEAN_FREE char *action = xasprintf("GIT_REFLOG_ACTION=berthfs: merge %s", m->branch);
	/* a commit name and no branch name: what was looked at is what is merged. git looks once more at every file. */
	const char *args[] = {"merge",	     "--ff-only",      "--no-overwrite-ignore",
			      "--no-squash", "--no-autostash", "--no-stat",
			      "--quiet",     m->tip,	       NULL};
	struct git_call c = {.path = m->path,
			     .args = args,
			     .env = (const char *const[]){action, NULL},
			     .errout = &said,
			     .timeout_ms = GIT_NETWORK_MS,
			     .hooks = true};
	int rc = git_call(&c, err);
	if (rc < 0)
		return rc;
	if (!rc) {
		*result = REPO_MERGE_DONE;
		return 0;
	}
	rc = git_said(err, EBUSY, &said, "it cannot be fast-forwarded");
	return rc == -ENOSPC ? rc : refuse(result, err);
}

int repo_merge_ff(const char *path, const char *branch, enum repo_merge *result, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_FREE char *in_way = NULL;
	struct merge m = {.path = path, .branch = branch};
	int rc = repo_branch_commit(path, branch, m.tip, err);
	rc = rc ? rc : lg_open(path, &repo, err);
	m.repo = repo;
	rc = rc ? rc : look_at_head(&m, result, err);
	rc = rc ? rc : look_at_history(&m, result, err);
	rc = rc ? rc : look_at_weight(&m, result, err);
	rc = rc ? rc : list_changed(&m, &in_way, err);
	rc = rc ? rc : list_uncommitted(&m, &in_way, err);
	rc = rc ? rc : list_hidden(&m, &in_way, err);
	if (!rc && in_way) {
		err_set(err, EBUSY,
			"your uncommitted %s is in the way; commit or move it, then write `merge` to "
			"ctl",
			in_way);
		rc = refuse(result, err);
	}
	rc = rc ? rc : look_at_settings(&m, result, err);
	rc = rc ? rc : forward(&m, result, err);
	map_release(&m.changed);
	free_ptr(&m.current);
	return rc < 0 ? rc : 0;
}
