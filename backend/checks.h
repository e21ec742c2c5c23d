/* Checks: the commands that a project declares, run by the host in the sandbox. Worker threads; blocks. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/parse/project.h"
#include "sandbox/sandbox.h"

#define CHECK_OUTPUT_MAX (64 << 10) /* bytes kept of a failing check's output: its end */

/* The declaration as of a commit in the host's checkout. No file: no checks, 0. -EINVAL: it is broken, in words. */
int checks_load(const char *host_repo, const char *commit, struct project *out, struct err *err);

enum check_state {
	CHECK_PASS,
	CHECK_FAIL,  /* exit code other than 0 */
	CHECK_ERROR, /* it could not tell: not started, over its time, killed, the sandbox went down */
};
extern const char *const check_words[]; /* "pass", "fail", "error" */

struct check_result {
	char *name;
	enum check_state state;
	int64_t ms;	   /* how long it took, as far as this process saw it */
	struct buf output; /* valid UTF-8; empty for a pass. The last line says why if the command itself did not */
};

struct checks_how {
	struct env *env;
	const char *clone; /* where they run: absolute path in the sandbox */
	const struct project *project;
	const char *prefix; /* job ids are PREFIX-1, PREFIX-2...: "check-SESSION-ROUND", at most 56 characters. The same
			       prefix after a restart joins and collects, and runs nothing twice */
	int timeout_ms;	    /* for checks that name none */
	const atomic_bool *cancel; /* or NULL; true ends the call with -ECANCELED: the running check is killed... */
	const atomic_bool *halt;   /* ...unless this is true too (or NULL): then it goes on */
	void (*progress)(void *arg, const struct project_check *check); /* before each one; or NULL */
	void *arg;
};

/* Runs them one after the other. out: n results in order, freed by checks_free(). The sandbox keeps the jobs until
 * checks_forget(), so that results can be committed first. Errors are the sandbox's (-ENOTCONN...) or -ECANCELED. */
int checks_run(const struct checks_how *how, struct check_result **out, size_t *n, struct err *err);
void checks_free(struct check_result *results, size_t n);
/* Acknowledges the jobs of n checks; call it once their results are committed. Unknown ones are fine. */
void checks_forget(struct env *env, const char *prefix, size_t n);
/* The same for checks that were stopped: what runs still is ended. */
void checks_end(struct env *env, const char *prefix, size_t n);
