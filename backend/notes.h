/* Notes to the face: see backend.h. Any thread. */
#pragma once
#include "backend.h"

/* A failure in words, not sent yet. */
struct note *note_error(int64_t session, const char *path, const struct err *what, int64_t at_ms);
/* Sends a failure in words. */
void notes_error(struct queue *notes, int64_t session, const char *path, const struct err *what, int64_t at_ms);
/* Sends an answered request. */
void notes_done(struct queue *notes, struct request *r);
