/* Sync: the sandbox's HEAD comes back into the user's checkout as its branch. Worker threads; blocks. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "backend/base/err.h"
#include "backend/git/repo.h"
#include "sandbox/sandbox.h"

struct sync_how {
	struct env *env;
	const char *clone; /* absolute path in the sandbox */
	const char *host_repo;
	const char *tmp_dir;	   /* folder on the host for the bundle */
	const char *prefix;	   /* names one attempt: "s12-r3"; letters, digits, . _ -, at most 32 */
	const char *branch;	   /* "sandbox/12" */
	const char *old_head;	   /* commit the branch was given last time, or "" */
	const char *const *known;  /* NULL-terminated: other commits that both sides may have (start, base); or NULL */
	bool replace;		   /* for a ship: the branch may leave old_head */
	const atomic_bool *cancel; /* or NULL */
};

struct sync_result {
	char head[COMMIT_TEXT]; /* the sandbox's HEAD; its objects are in the checkout whatever became of the branch */
	size_t uncommitted;	/* files changed or untracked in the clone */
	char names[200];	/* the first few of them, "a.txt, b.txt" */
	size_t named;		/* how many those are */
	char busy[16];		/* "rebase", "merge", "cherry-pick" or "revert" under way in the clone, or "" */
	enum repo_fetch fetch;	/* what became of the branch */
	bool transferred;	/* objects had to be fetched */
	struct err left;	/* words if the branch was left alone (code 0), else empty */
};

/* Success also if the branch was left alone: see fetch and left. -ENOENT: the clone is gone or has no commit;
 * -ENOTCONN...: errors of the sandbox. Repeating it is safe at any time. */
int sync_fetch(const struct sync_how *how, struct sync_result *out, struct err *err);
