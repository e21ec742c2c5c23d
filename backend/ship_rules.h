/* The rules of a ship without its doing: what may be written to `ship`, what the model is asked, and what the host
 * looks at before it pushes. Pure functions; any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "checks.h"

#define SHIP_COMMAND_MS (5 * 60 * 1000) /* longest time of a command that the model runs during a ship */

enum ship_target {
	SHIP_TO_DEFAULT, /* the remote's default branch */
	SHIP_TO_BRANCH,	 /* a named branch */
	SHIP_TO_PR,	 /* a branch of its own and a pull request */
};
/* One line written to `ship`: empty or `main`, `branch NAME`, `pr`. branch: malloc'd for SHIP_TO_BRANCH, else NULL.
 * -EINVAL in words. */
int ship_parse(const char *line, enum ship_target *target, char **branch, struct err *err);

/* The message that asks the model to make its work ready. branch: where it will go; base: commit of it that is in the
 * sandbox as refs/berthfs/base; pr: it is offered to that branch by a pull request. */
void ship_prompt(struct buf *out, bool pr, const char *remote, const char *branch, const char *base);

struct ship_facts {
	const char *branch; /* target */
	size_t uncommitted; /* from the forced sync */
	const char *busy;   /* rebase or the like under way in the clone, or "" */
	bool on_base;	    /* the base is an ancestor of the head */
	bool landed;	    /* the head is the base or an ancestor of it: nothing to push */
	const struct check_result *checks;
	size_t n_checks;
};
/* True if the head may be pushed. Else outcome has the line of the `ship` file, and words (may be NULL) what to do. */
bool ship_allowed(const struct ship_facts *facts, struct buf *outcome, struct buf *words);
