/* Putting the project into a sandbox: the clone it works in, and the base of a ship. Worker threads; blocks. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>

#include "backend/base/err.h"
#include "sandbox/sandbox.h"

#define BASE_REF "refs/berthfs/base"

struct clone_how {
	struct env *env;
	const char *host_repo;	  /* top of the user's checkout */
	const char *commit;	  /* what the clone starts from */
	const char *branch;	  /* name it gets in the clone: the user's branch; NULL (detached HEAD): "work" */
	const char *name, *email; /* of the user, or NULL */
	const char *clone;	  /* absolute path in the sandbox */
	const char *tmp_dir;	  /* folder on the host for the bundle */
	const char *prefix;	  /* unique to this session and purpose: "s12"; letters, digits, . _ -, at most 32 */
	bool durable; /* sync the sandbox's file system before the clone counts as there (a VM may be killed) */
	const atomic_bool *cancel; /* or NULL */
	const atomic_bool *halt;   /* or NULL; once it is set what is cancelled goes on in the sandbox */
	void (*progress)(void *arg, const char *words); /* or NULL */
	void *arg;
};

/* Makes the clone: whole history of the commit, no remote, user.name and user.email set, refs/berthfs/base at the
 * commit. Does nothing if it is there already. It is made beside its place and renamed at the end, so a repeat after a
 * kill at any point (of the daemon or the sandbox) does what is left. A shallow checkout gives a shallow clone. */
int clone_into(const struct clone_how *how, struct err *err);

/* The clone is there already, made for another commit or user: brings it to this one. Ignored and untracked files stay.
 * -ENOENT: there is no clone. */
int clone_move(const struct clone_how *how, struct err *err);

struct base_how {
	struct env *env;
	const char *host_repo;
	const char *base;		      /* commit in host_repo */
	const char *clone, *tmp_dir, *prefix; /* as above; the prefix names one attempt */
	const atomic_bool *cancel;
};
/* Sets refs/berthfs/base in the clone to the base, sending what the sandbox lacks of it. Safe to repeat. */
int base_into(const struct base_how *how, struct err *err);
