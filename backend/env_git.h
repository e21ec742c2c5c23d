/* Git inside a sandbox: fixed scripts whose data comes as arguments, run as short jobs. Worker threads; blocks. */
#pragma once
#include <stdatomic.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "sandbox/sandbox.h"

struct env_git {
	struct env *env;
	const char *prefix; /* of job ids and file names: 1-32 of letters, digits, . _ - */
	const char *step;   /* short word, part of the job id */
	bool join; /* the id is PREFIX-STEP, so that a repeat after a restart finds the same job; else unique */
	const char *script;	 /* for bash -c; its arguments are $1, $2... */
	const char *const *args; /* NULL-terminated, at most 70 */
	int timeout_ms;
	const atomic_bool *cancel; /* or NULL */
	const atomic_bool *halt;   /* or NULL. join: once it is set a script that is cancelled goes on */
};

/* Runs it to its end; out gets standard output and standard error. The script's exit code, or -errno. */
int env_git(const struct env_git *g, struct buf *out, struct err *err);
/* A path for a file that passes between the two sides, in the sandbox's home: malloc'd. */
char *env_git_file(const struct env_git *g);
