/* One turn: a pinned model request, its answer, the tool calls of it, each a committed step. Worker threads. */
#pragma once
#include "engine.h"
#include "model.h"
#include "usage.h"

/* What a turn leaves to its caller: turn_step for a run, ship_step for the model's part of a ship. */
enum turn_end {
	TURN_MORE,     /* another turn is due */
	TURN_ANSWERED, /* the model has given its final answer; committed together with `final` */
	TURN_STOPPED,  /* the user wrote `stop`; the history is clean again */
};

/* Runs what is due: a retry's wait, unfinished calls, or the next request. final: committed in the same transaction as
 * the final answer. limit_ms: most that a command may take, 0: no limit. Errors are those that fail the run. */
int turn_run(struct worker *w, session_fn *final, int limit_ms, enum turn_end *end, struct err *err);

/* ---- shared with compact.c, which asks the same model; the _fn functions and those with a tx on the store thread ----
 */

/* Loads w->prompt, once. */
int turn_prompt(struct worker *w, struct err *err);
/* Waits for a retry's time, a second at most; waits: it has not come yet. */
int turn_wait(struct worker *w, bool *waits, struct err *err);
/* After -ECANCELED: cleans up if it was `stop`, else gives -ECANCELED again. */
int turn_stopped(struct worker *w, enum turn_end *end, struct err *err);
int turn_prompt_id(struct tx *tx, const char *text, int64_t *id, struct err *err);
int turn_used(struct tx *tx, struct session *s, struct backend *b, const char *model, enum use_end end,
	      const struct model_reply *r, struct err *err);
void turn_no_stream(void *arg, const char *text, size_t n);

/* A request that failed. */
struct turn_fault {
	struct worker *w;
	int64_t n; /* of the request */
	const char *model;
	const struct model_reply *reply; /* what is known of the tokens */
	const struct model_fault *fault;
	struct err *why; /* the model's words; what ends the run is added */
	bool again;	 /* out: another try is due */
	bool summary;	 /* it asked for a summary */
};
session_fn turn_fault_fn;
