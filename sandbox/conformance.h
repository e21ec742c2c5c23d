/* Inside of the conformance suite: what a case gets, and the tables of cases. A case runs on the suite's only thread
 * and may do what it likes below its folder and with jobs of its own. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox.h"

#define CASE_MS 60000 /* longest that a case waits for one thing: an emulated machine on a busy host */

struct conf {
	const struct paths *paths;
	const char *kind;
	int64_t id;
	struct env *env;
	const char *dir; /* of this case, inside the sandbox: absolute, there and empty */
	int number;	 /* of this case */
	int serial;	 /* of its last job */
	struct buf out;	 /* output of the last conf_sh() */
	struct err err;	 /* of the last call that failed, for words */
	char why[900];	 /* what did not hold, or why it was left out */
	bool skipped;
};

struct conf_case {
	const char *name; /* what holds, in words */
	bool (*run)(struct conf *c);
};

/* Both end with a case without a name. */
extern const struct conf_case conf_files[], conf_jobs[];

/* NAME in the case's folder; malloc'd. */
char *conf_path(const struct conf *c, const char *name);
/* Name for a new job; malloc'd. */
char *conf_job(struct conf *c);
/* Runs a script of /bin/sh in the case's folder: its exit code or -errno, its output in c->out. */
int conf_sh(struct conf *c, const char *script);
/* Starts such a script as a job. */
int conf_start(struct conf *c, const char *job, const char *script, int timeout_ms);
/* Waits for a job's end. */
int conf_wait(struct conf *c, const char *job, struct env_job *out);
/* Whether the file NAME holds exactly these bytes. */
bool conf_holds(struct conf *c, const char *name, const void *p, size_t n);
bool conf_put(struct conf *c, const char *name, const char *text); /* writes it, with parents */
bool conf_fail(struct conf *c, const char *what, int line);	   /* false, and says so */

#define REQUIRE(c, condition)                                                                                          \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			return conf_fail(c, #condition, __LINE__);                                                     \
	} while (0)
