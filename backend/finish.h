/* What follows a run: sync, merge, checks; and their parts that a ship uses too. Worker threads. */
#pragma once
#include "checks.h"
#include "engine.h"
#include "sync.h"

/* Brings the sandbox's HEAD back. A lost connection is taken up again. The result is committed: head, texts, log. */
int finish_sync(struct worker *w, bool replace, struct sync_result *out, struct err *err);
/* Runs the checks that the commit `head` declares and commits their results. prefix: of job ids, the same after a
 * restart. results (n of them) are the caller's, freed by checks_free(). A broken declaration is one result, an error.
 */
int finish_checks(struct worker *w, const char *head, const char *prefix, struct check_result **results, size_t *n,
		  struct err *err);
/* Writes diff, changes and commits between the session's base and head anew. */
int finish_texts(struct worker *w, const char *base, const char *head, struct err *err);
