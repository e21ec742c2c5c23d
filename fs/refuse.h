/* The `error` files: the last refusals and failures in words. Loop thread only. */
#pragma once
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

struct face;
struct spot;
struct ring;

#define RING_MAX 8 /* as in the kernel's tracefs error_log: enough to look back, too few to become a log */

/* Records words in the `error` of the root, and of the session if there is one (id, 0 for none). path is where it
 * happened, for people; NULL leaves it out. Returns -err->code. */
int refuse(struct face *f, int64_t session, const char *path, const struct err *err);
/* The same for an answer of the backend that may have come without words. Returns rc. */
int refuse_rc(struct face *f, int64_t session, const char *path, int rc, const struct err *err);
/* The same, path taken from a spot and the name of an entry in it (or NULL). */
__attribute__((format(printf, 4, 5))) int refuse_at(const struct spot *at, const char *name, int code, const char *fmt,
						    ...);
void ring_print(const struct ring *ring, struct buf *out); /* oldest first */
int64_t ring_changed(const struct ring *ring);		   /* CLOCK_REALTIME ms, 0 if it was never used */
void errors_clear(const struct spot *at);		   /* of the session, or of the whole */
void ring_clear(struct ring *ring);
void ring_free(struct ring *ring);
