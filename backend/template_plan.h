/* What a project's sandbox is set up with: found in the commit, run in the clone. Worker threads; runs no git. */
#pragma once
#include <stddef.h>

#include "backend/base/err.h"
#include "backend/git/repo.h"

#define PLAN_STEPS 4

struct plan_step {
	const char *name;   /* as it is told: "npm ci" */
	const char *script; /* for bash -c, in the clone's root */
};

struct plan {
	char setup[COMMIT_TEXT]; /* object of .agents/setup, ""  without one: a new one is a new beginning */
	const struct plan_step *steps[PLAN_STEPS];
	size_t n; /* 0: nothing has to be set up */
};

/* .agents/setup if there is one, else what the lockfiles in the top folder ask for. */
int plan_find(const char *project, const char *commit, struct plan *out, struct err *err);
