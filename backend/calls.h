/* The tool calls of a turn as durable steps: planned, started, done. Worker threads but where a tx is given. */
#pragma once
#include "engine.h"
#include "model.h"
#include "tool.h"

/* Inserts the calls of an answer and their transcript entries. Arguments that are no strict JSON object are recorded as
 * {} and never run: their result says so. */
int calls_plan(struct tx *tx, struct session *s, int64_t request, const struct model_reply *reply, struct err *err);
/* Runs the calls of the newest request that have no result yet. pending: there were some. limit_ms: for commands. */
int calls_run(struct worker *w, int limit_ms, bool *pending, struct err *err);
/* Kills the command that is running, if any. */
int calls_kill(struct worker *w, struct err *err);
/* Past the session's budget of output only the begin and the end of a result are kept. Store thread. */
void calls_keep_budget(struct backend *b, const struct session *s, struct buf *text);
/* Gives every call without a result one that says why there is none. */
int calls_abandon(struct tx *tx, struct session *s, const char *why, struct err *err);
