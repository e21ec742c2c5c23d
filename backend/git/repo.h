/* repo: all that touches the user's checkout.
 *
 * Everything here blocks and runs on worker threads. Nothing is kept between calls, so any number of threads may work
 * on the same checkout at once. Reads go through libgit2; branches, packs, the network and the work tree through `git`
 * as a child process, whose locks are right, whose packs are far faster and whose credentials stay the user's.
 *
 * Never: forces a push, makes a merge commit, moves the checked-out branch but in repo_merge_ff(), touches the work
 * tree but in repo_merge_ff(), runs a hook that lies inside a work tree.
 *
 * `path` is always the top folder of a work tree as repo_discover() gives it. Commits are full hex names. Functions
 * return 0 or -errno with words in err unless said otherwise. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

#define COMMIT_TEXT 41 /* 40 hex digits and the end; SHA-256 repositories are refused by repo_discover() */

/* Once in a process, before anything else here and before threads; repo_end() undoes it. */
int repo_begin(struct err *err);
void repo_end(void);

/* ---- what is there ---- */

/* The top folder of the work tree that holds path (a folder or file), malloc'd. -ENOENT: no checkout, a bare
 * repository, or one without any commit; -EACCES: git does not trust its owner; -EOPNOTSUPP: a format that cannot be
 * read. A submodule is a checkout of its own. */
int repo_discover(const char *path, char **top, struct err *err);

struct repo_head {
	char commit[COMMIT_TEXT];
	char *branch;	    /* "main", or NULL: HEAD is detached */
	char *name, *email; /* of the user as git would write them into a commit, or NULL */
	size_t uncommitted; /* changed and untracked files (an untracked folder counts once) */
};
int repo_head(const char *path, struct repo_head *out, struct err *err);
/* Its branch and commit alone: quick, whatever the size of the checkout; runs no git. */
int repo_tip(const char *path, struct repo_head *out, struct err *err);
void repo_head_release(struct repo_head *h);

/* What a clone of commit lacks, in words, a line each: submodules, files in Git LFS. Nothing: out stays as it is. */
int repo_not_carried(const char *path, const char *commit, struct buf *out, struct err *err);
/* Text of `.git/shallow` (a commit a line) if the checkout is a shallow clone; a clone of it needs the same file. */
int repo_shallow(const char *path, struct buf *out, struct err *err);

/* 1 if a local branch has this name or lies below it, else 0. -EEXIST in words if it cannot be made because a part of
 * its path is a branch (`sandbox` when asked for `sandbox/3`). */
int repo_branch_exists(const char *path, const char *branch, struct err *err);
/* The branch's commit; -ENOENT if there is no such branch. */
int repo_branch_commit(const char *path, const char *branch, char commit[COMMIT_TEXT], struct err *err);
int repo_has(const char *path, const char *commit, struct err *err); /* 1 if the commit is there, else 0 */
/* 1 if `newer` is `older` or descends from it, else 0. Both must be there. */
int repo_is_ancestor(const char *path, const char *older, const char *newer, struct err *err);
/* A file's bytes as of a commit. -ENOENT if there is none, -EFBIG past max, -EINVAL if it is no plain file. */
int repo_file(const char *path, const char *commit, const char *file, size_t max, struct buf *out, struct err *err);

/* ---- the tree of a commit; one thread at a time ---- */

struct repo_tree;
struct repo_entry {
	unsigned mode; /* as in git: 040000 folder, 0100644, 0100755, 0120000 symlink, 0160000 submodule */
	char object[COMMIT_TEXT];
	uint64_t size; /* bytes of a file or link */
};
int repo_tree_open(const char *path, const char *commit, struct repo_tree **out, struct err *err);
void repo_tree_free(struct repo_tree *t); /* NULL is fine */
/* file: path from the top, "" for the top itself. -ENOENT. */
int repo_tree_find(struct repo_tree *t, const char *file, struct repo_entry *out, struct err *err);
/* Calls each() for every entry of a folder; sizes are not filled in. -ENOENT, -ENOTDIR. */
int repo_tree_list(struct repo_tree *t, const char *dir,
		   void (*each)(void *arg, const char *name, const struct repo_entry *entry), void *arg,
		   struct err *err);
int repo_blob_size(struct repo_tree *t, const char *object, uint64_t *size, struct err *err);
int repo_blob(struct repo_tree *t, const char *object, struct buf *out, struct err *err); /* all of it, in memory */
int repo_blob_to_fd(const char *path, const char *object, int fd, struct err *err);	  /* by git; -ENOSPC */

/* ---- differences; texts are cut at REPO_TEXT_MAX, and a last line says so ---- */

#define REPO_TEXT_MAX (8 << 20)

int repo_diff(const char *path, const char *base, const char *head, struct buf *out, struct err *err);	  /* unified */
int repo_changes(const char *path, const char *base, const char *head, struct buf *out, struct err *err); /* diffstat */
/* Commits of head that base lacks, newest first: `SHORT  DATE  AUTHOR  SUBJECT`. */
int repo_commits(const char *path, const char *base, const char *head, struct buf *out, struct err *err);

/* ---- bundles ---- */

/* Writes a bundle whose one tip is `ref` at commit. have: commits (NULL-terminated, may be NULL) that the reader has:
 * they become its prerequisites and their history is left out. An old file of that name is replaced. -ENOSPC. */
int repo_bundle_create(const char *path, const char *commit, const char *ref, const char *const *have, const char *file,
		       const atomic_bool *cancel, struct err *err);

enum repo_fetch {
	REPO_CREATED,	     /* the branch is new */
	REPO_FORWARDED,	     /* it moved to a descendant */
	REPO_REPLACED,	     /* it moved elsewhere; the old head is in its reflog */
	REPO_UNCHANGED,	     /* it was there already */
	REPO_NOT_DESCENDANT, /* left alone: the new head does not descend from it */
	REPO_MOVED,	     /* left alone: somebody else moved it, so it may not be replaced */
	REPO_CHECKED_OUT,    /* left alone: it is checked out in a work tree */
};
struct repo_fetch_how {
	const char *file;    /* the bundle; NULL: all objects are here already */
	const char *head;    /* commit that the branch shall have; must come with the bundle or be here */
	const char *branch;  /* short name */
	const char *replace; /* NULL: fast-forward only. Else the commit that it was given last ("": none): the branch
				is replaced if it is still there, or if its reflog says that we put it where it is */
	const atomic_bool *cancel;
};
/* Objects land first, checked by git's fsck, then the branch moves by compare-and-swap with a reflog entry. On the
 * results that leave it alone words hold the reason and what to do (err->code is 0). -EBADMSG: a broken bundle or one
 * that lacks the commit. */
int repo_bundle_fetch(const char *path, const struct repo_fetch_how *how, enum repo_fetch *result, struct err *err);

/* ---- the work tree ---- */

enum repo_merge {
	REPO_MERGE_DONE,    /* the checked-out branch is at the branch's commit now */
	REPO_MERGE_NOTHING, /* it had it already */
	REPO_MERGE_REFUSED, /* nothing was touched; words say why and what to do (err->code is 0) */
};
/* Fast-forwards the checked-out branch to `branch`: only if HEAD is a branch which that contains, and no uncommitted
 * change, untracked or ignored file is in the way. */
int repo_merge_ff(const char *path, const char *branch, enum repo_merge *result, struct err *err);

/* ---- the remote ---- */

/* The remote to ship to: the upstream's of the checked-out branch, else `origin`, else the only one. -ENOENT. */
int repo_default_remote(const char *path, char **remote, struct err *err);
/* Its default branch, asked now. -ENOENT if it has none (an empty repository), -EHOSTUNREACH with the remote's words.
 */
int repo_remote_branch(const char *path, const char *remote, char **branch, const atomic_bool *cancel, struct err *err);
/* Fetches a branch; nothing of the user's moves (refs/berthfs/fetch/... keeps the objects). -ENOENT, -EHOSTUNREACH. */
int repo_fetch_base(const char *path, const char *remote, const char *branch, char commit[COMMIT_TEXT],
		    const atomic_bool *cancel, struct err *err);

enum repo_push {
	REPO_PUSHED,	       /* it is there, or was already */
	REPO_PUSH_MOVED,       /* the remote's branch has commits that ours lacks */
	REPO_PUSH_REFUSED,     /* by a hook or rule; words hold what the remote (or a local pre-push hook) said */
	REPO_PUSH_UNREACHABLE, /* no answer, no credentials...: words. It may have landed: ask repo_remote_has() */
};
/* Pushes commit to refs/heads/branch of the remote; never forced. err has words unless pushed (err->code is 0). */
/* link: NULL, or gets the first URL that the remote said after a push (malloc'd, NULL if none): forges offer the page
 * that opens a pull request. */
int repo_push(const char *path, const char *remote, const char *commit, const char *branch, enum repo_push *result,
	      char **link, const atomic_bool *cancel, struct err *err);

struct repo_pr {
	const char *remote;
	const char *branch, *base; /* from, to: names of branches there */
	const char *title, *body;
};
/* Opens a pull request with the user's `gh`, or finds the one that is open for that branch. url: malloc'd. -ENOENT: no
 * gh; -EIO with its words; -ETIMEDOUT, -ECANCELED. */
int repo_pr_open(const char *path, const struct repo_pr *pr, char **url, const atomic_bool *cancel, struct err *err);
/* Where pushes to the remote go, without name and password. */
int repo_pr_url(const char *path, const char *remote, struct buf *out, struct err *err);
/* 1 if the branch at the place that is pushed to contains the commit now, 0 if not, -EHOSTUNREACH. */
int repo_remote_has(const char *path, const char *remote, const char *branch, const char *commit,
		    const atomic_bool *cancel, struct err *err);
