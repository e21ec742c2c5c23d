/* One turn: a pinned model request, its answer, the tool calls of it, each a committed step. Worker threads. */
#pragma once
#include "engine.h"

/* What a turn leaves to its caller: turn_step for a run, ship_step for the model's part of a ship. */
enum turn_end {
	TURN_MORE,     /* another turn is due */
	TURN_ANSWERED, /* the model has given its final answer; committed together with `final` */
	TURN_STOPPED,  /* the user wrote `stop`; the history is clean again */
};

/* Runs what is due: a retry's wait, unfinished calls, or the next request. final: committed in the same transaction as
 * the final answer. Errors are those that fail the run. */
int turn_run(struct worker *w, session_fn *final, int limit_ms, enum turn_end *end, struct err *err);
