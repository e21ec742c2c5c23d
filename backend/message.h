/* Messages: a durable queue for each session. Store thread, inside transactions. */
#pragma once
#include "session.h"

/* Accepts a message: it gets the next K and waits; EVENT_MESSAGE follows. -EINVAL for white space only. */
int message_accept(struct tx *tx, struct session *s, const char *text, int64_t *k, struct err *err);
/* Takes back one that still waits. -ENOENT / -EBUSY in words. */
int message_withdraw(struct tx *tx, struct session *s, int64_t k, struct err *err);
/* Moves to the transcript what the model may see now: the first message of a run, and those sent during it, in order;
 * a held message opens a run of its own and is not passed. */
int message_place(struct tx *tx, struct session *s, struct err *err);
/* The run is over: what was placed is answered. */
int message_answer_all(struct tx *tx, struct session *s, struct err *err);
/* Fills the derived fields (waiting, unanswered, queue) from the rows. */
int message_count(struct db *db, struct session *s, int64_t now_ms, struct err *err);
/* The `queue` file: `K  TIME  first line`, tab-separated. */
int message_queue_text(struct db *db, int64_t session, struct buf *out, struct err *err);
/* Is a message in the transcript whose run has not ended? */
bool message_any_placed(struct tx *tx, const struct session *s);
