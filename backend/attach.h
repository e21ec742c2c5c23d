/* attach/: files that go with the next message. An image is shown to the model, any other file is copied into the
 * sandbox and named. The bytes stand in a folder of the state, on the disk before their row is committed. */
#pragma once
#include "engine.h"

struct context;

/* The number in a name of such files: attach/SESSION/FILE in the state folder. malloc'd. */
char *attach_folder(const struct paths *paths, int64_t session);

/* ---- pool threads ---- */

/* REQ_ATTACH, REQ_ATTACH_READ, REQ_ATTACH_REMOVE. true: the answer comes by the store. */
bool attach_add(struct backend *b, struct request *r);
void attach_read(struct backend *b, struct db *db, struct request *r);
void attach_remove(struct backend *b, struct db *db, struct request *r);

/* ---- store thread ---- */

/* Those that wait go with message k. */
int attach_take(struct tx *tx, struct session *s, int64_t k, struct err *err);
/* Message k was withdrawn: they wait again. */
int attach_give_back(struct tx *tx, struct session *s, int64_t k, struct err *err);
/* Is something of message k not in the sandbox yet? */
bool attach_missing(struct tx *tx, const struct session *s, int64_t k);
/* What the transcript's entry says of them: JSON array (",\"attached\":[...]" or nothing), and Markdown. */
int attach_entry(struct tx *tx, const struct session *s, int64_t k, struct buf *fields, struct buf *md,
		 struct err *err);
int attach_load(struct db *db, struct session *s, struct err *err); /* s->attach */

/* ---- worker threads ---- */

/* Copies what the messages that wait bring along into the sandbox. Safe to repeat. */
int attach_deliver(struct worker *w, struct err *err);
/* Reads the images of a request, the newest first, as many as fit into the budget; of others it says that they are left
 * out. window: tokens of the model, 0: any. */
void attach_images(struct worker *w, struct context *c, int64_t window);
/* The session ends. */
void attach_forget(struct worker *w);
