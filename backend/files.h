/* files/ of a session: what is in its work as of the last sync, read from the objects of the user's checkout. */
#pragma once
#include "core.h"

#define FILES_MAX ((uint64_t)1 << 30) /* bytes of one file; a sandbox can make a larger one out of nothing */

struct files; /* what the threads that answer share: contents that were read lately */
struct files *files_new(const struct paths *paths);
void files_free(struct files *f);

/* One a thread: its checkout is kept open for a moment, because a crawler asks for one file after the other. */
struct files_reader;
struct files_reader *files_reader_new(struct files *f, struct db *db);
void files_reader_free(struct files_reader *r);
/* Answers REQ_FILE_FIND, REQ_FILE_LIST and REQ_FILE_READ: fills r->rc, r->err and the rest. */
void files_answer(struct files_reader *reader, struct request *r);
