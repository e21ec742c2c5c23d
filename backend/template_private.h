/* Shared by template.c (records) and template_build.c (builds). */
#pragma once
#include <pthread.h>

#include "backend/base/buf.h"
#include "template.h"
#include "template_plan.h"

#define TEMPLATE_DAY_MS (24 * 60 * 60 * 1000LL) /* a chain that left the base image longer ago is not extended */

/* One build at a time of a project and kind; the others wait. */
struct claim {
	struct claim *next;
	char *project, *kind;
	int waiting;
};

struct templates {
	pthread_mutex_t lock; /* guards claims; held for moments */
	pthread_cond_t change;
	struct claim *claims;
	pthread_mutex_t sweeping; /* one sweep at a time; held while it removes folders */
	pthread_t thread;	  /* of the start */
	bool has_thread;
};

/* A template that is being built, as its record says. */
struct template
{
	int64_t id, sandbox;	   /* number; id of the sandbox it is built in */
	int64_t parent, origin_ms; /* template that it started from, 0: the base image; when its chain left that */
	int64_t step_no, seen;	   /* step of the plan that runs, and how much of its output is in the log */
	char *name, *step;	   /* PROJECT@COMMIT; starting, cloning, installing, saving */
};
void template_release(struct template *t);

/* malloc'd. db: any connection. */
char *template_dir(const struct paths *paths, struct db *db, int64_t id);
/* Makes the folder above it, if it is missing. */
int template_place(const struct paths *paths, struct db *db, struct err *err);

/* In a transaction: the session lies on it. */
int template_use(struct tx *tx, int64_t session, int64_t id, struct err *err);

/* Transactions of a build, from its worker; blocking. */
int template_begin(struct worker *w, const struct plan *plan, struct template *t, struct err *err);
/* From its first step; same: from the same template as before, else from the base image. */
int template_restart(struct worker *w, struct template *t, bool same, struct err *err);
int template_step(struct worker *w, struct template *t, const char *step, struct err *err);
/* A line of its log. */
int template_log(struct worker *w, const struct template *t, const char *line);
/* Lines of a step's output, and how far they go. */
int template_output(struct worker *w, struct template *t, const struct buf *lines, int64_t step_no, int64_t seen,
		    struct err *err);
/* It is whole: the session uses it, older ones of the project are old. */
int template_ready(struct worker *w, const struct template *t, bool alone, int64_t size, struct err *err);
int template_failed(struct worker *w, const struct template *t, const struct err *why);
/* Its folder was taken away from outside: no session starts from it any more, nor does this one. */
int template_lost(struct worker *w, int64_t id, struct err *err);
/* Nobody wants it any more. */
int template_forget(struct worker *w, const struct template *t);

/* template_build.c: builds it to the end. */
int template_build(struct worker *w, const struct plan *plan, struct template *t, struct err *err);
