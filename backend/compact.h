/* Compaction: older parts of a conversation are told to the model by a summary, which the session's own model makes.
 * Nothing is deleted: the transcript stays whole, only requests begin later. Worker threads unless said otherwise. */
#pragma once
#include "engine.h"

/* Is a compaction due before the next request? *due is set. A pinned request is sent first, whatever it is. */
int compact_due(struct worker *w, bool *due, struct err *err);
/* One try: pins a request for a summary, or takes up the pinned one, asks, commits. -ECANCELED: stopped. Errors are
 * those that fail the run. */
int compact_run(struct worker *w, struct err *err);
int64_t compact_window_of(struct worker *w); /* of the session's model */
/* Tokens that a model takes: as config says, else by the table; 0 for a scripted one, which takes anything. */
int64_t compact_window(const struct config *c, const char *model);

/* ---- compact_count.c ---- */

/* Tokens of the next request as the provider counts them. waiting: bytes of messages that wait. -EAGAIN: not known.
 * Only -ECANCELED ends a step. */
int compact_count(struct worker *w, int64_t waiting, int64_t *tokens, struct err *err);

/* ---- compact_text.c; any thread with its own connection ---- */

/* What the model is asked to sum up: the summary before, then entries after `from` up to `to`, the newest ones of them
 * that fit into max bytes. Reads at most a few times max, however long the transcript is. */
int compact_text(struct db *db, int64_t session, int64_t from, int64_t to, size_t max, struct buf *out,
		 struct err *err);
extern const char compact_prompt[]; /* the system prompt of such a request */
