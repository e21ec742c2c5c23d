/* What the files of repo share and nobody else may use: git as a child process, and small helpers over libgit2. */
#pragma once
#include <git2.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/base/map.h"
#include "repo.h"

#define GIT_LOCAL_MS   (5 * 60 * 1000) /* commands that look at a work tree; a large one on a slow disk takes minutes */
#define GIT_NETWORK_MS (20 * 60 * 1000) /* fetch and push: as long as a slow line may need */
#define GIT_ASK_MS     (60 * 1000)	/* ls-remote */

/* ---- git as a child ---- */

struct git_call {
	const char *path;	 /* work tree: the folder it runs in */
	const char *const *args; /* NULL-terminated, without "git" */
	const char *const *env;	 /* NULL-terminated "KEY=value" beside the fixed ones, at most 3; or NULL */
	const void *in;		 /* standard input, or NULL */
	size_t in_n;
	struct buf *out, *errout; /* appended to; errout NULL: dropped */
	int in_fd, out_fd;	  /* > 0: standard input is this, standard output goes there */
	int timeout_ms;
	size_t memory; /* bytes that it may allocate, 0: no limit */
	bool hooks;    /* the user's hooks run, unless one of them lies inside a work tree */
	const atomic_bool *cancel;
};

/* Runs git with prompts, background work and hooks off. Exit code, or -errno with words (git not found, timeout). */
int git_call(const struct git_call *c, struct err *err);
/* The same for short commands that must end with 0; anything else is -EIO with git's own words after `what`. */
int git_must(const char *path, const char *const *args, struct buf *out, const char *what, struct err *err);
/* What git said, as one line for people: without hints, prefixes, progress and the passwords of URLs. */
void git_words(struct buf *out, const struct buf *said);
/* Sets err from git's words: -ENOSPC for a full disk, else -code. */
int git_said(struct err *err, int code, const struct buf *said, const char *what);
/* Where a push to this remote goes: pushurl may differ from where fetches come from. */
int repo_push_url(const char *path, const char *remote, struct buf *out, struct err *err);
/* The first URL in what a remote has said; malloc'd, or NULL. */
char *repo_pr_offered(const struct buf *said);
/* True if a hook that fetch, merge or push would run lies inside a work tree of this repository (or cannot be told). */
bool git_hooks_inside(const char *path);
/* 1 with words (`they change ...`) if commits that change these paths (keys of the map) would become settings of git on
 * this machine, or programs that it runs; 0 if not. */
int git_settings_guard(const char *path, const struct map *changed, struct err *err);

/* ---- libgit2 ---- */

/* Sets err from libgit2's last error: `what: message`; returns -errno for rc. */
int lg_err(struct err *err, int rc, const char *what);
int lg_open(const char *path, git_repository **out, struct err *err);
/* A commit by its full hex name; -EINVAL for a bad name, -ENOENT in words if it is not there. */
int lg_commit(git_repository *repo, const char *hex, git_commit **out, struct err *err);
int lg_oid(const char *hex, git_oid *out, struct err *err);

/* 1 if newer is older or descends from it, else 0. */
int lg_descends(git_repository *repo, const char *path, const char *older, const char *newer, struct err *err);

/* Files and folders on the way beyond which a difference is not looked at: the daemon would need gigabytes for it, and
 * no person reads it. */
#define LG_FILES_MAX 100000
#define LG_DEPTH_MAX 256

struct lg_weight {
	size_t files;	/* that differ, both sides counted */
	uint64_t bytes; /* in them */
};
/* Weighs the difference of two trees (NULL: an empty one). 1: more than the limits. */
int lg_weigh(git_repository *repo, const git_tree *a, const git_tree *b, struct lg_weight *out, struct err *err);

#define LG_CLEANER(type, fn)                                                                                           \
	static inline void fn##_clean(type **p)                                                                        \
	{                                                                                                              \
		fn(*p);                                                                                                \
	}
LG_CLEANER(git_repository, git_repository_free)
LG_CLEANER(git_reference, git_reference_free)
LG_CLEANER(git_commit, git_commit_free)
LG_CLEANER(git_tree, git_tree_free)
LG_CLEANER(git_tree_entry, git_tree_entry_free)
LG_CLEANER(git_blob, git_blob_free)
LG_CLEANER(git_diff, git_diff_free)
LG_CLEANER(git_patch, git_patch_free)
LG_CLEANER(git_revwalk, git_revwalk_free)
LG_CLEANER(git_config, git_config_free)
#define CLEAN_GIT(type) __attribute__((cleanup(type##_free_clean))) type
