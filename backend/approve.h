/* Approvals: calls that a person has to allow before they run. Which ones is a table and the keys `approvals` and
 * `approvals.ask`; what waits and what was granted is in the database, so it survives a restart. */
#pragma once
#include <cjson/cJSON.h>

#include "engine.h"

#define APPROVE_RULES_MAX 8

/* What a session's calls are judged by. */
struct approve_how {
	const char *kind;  /* of its sandbox */
	bool on;	   /* settings/approvals */
	const char *ask;   /* approvals.ask */
	const char *hosts; /* ship.hosts: asked for on the host, whatever is set */
};
/* The rules that the call needs a word for, malloc'd; a grant stands for one rule. Returns their number. Any thread. */
size_t approve_rules(const struct approve_how *how, const char *tool, const cJSON *args,
		     char *rules[APPROVE_RULES_MAX]);
int approve_check_ask(const char *value, struct err *err); /* is it a value of approvals.ask? */

enum approve_verdict { APPROVE_RUN, APPROVE_WAIT, APPROVE_REFUSED };

struct approve_call {
	int64_t request, pos;
	const char *tool, *args;
};
/* May it run? Asks if need be, as a committed step: then the worker has nothing to do until it is answered. reason: of
 * a refusal. Worker threads. */
int approve_call(struct worker *w, const struct approve_call *c, enum approve_verdict *verdict, struct buf *reason,
		 struct err *err);

/* ---- store thread ---- */

/* The answer to approval k: once, session, project, no [reason]. */
int approve_answer(struct tx *tx, struct session *s, int64_t k, const char *line, struct err *err);
/* Takes back a grant by the number that settings/approvals shows, or `all`. */
int approve_revoke(struct tx *tx, struct session *s, const char *which, struct err *err);
/* Nobody has to answer any more: the call is given up. */
int approve_drop(struct tx *tx, struct session *s, struct err *err);
/* The texts of what waits and of what is granted. Any thread with its own connection. */
int approve_load(struct db *db, struct session *s, struct err *err);
