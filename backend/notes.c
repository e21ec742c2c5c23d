/* Notes to the face. Any thread; never blocks. */
#include "notes.h"

#include <stdio.h>

#include "backend/base/mem.h"

struct note *note_error(int64_t session, const char *path, const struct err *what, int64_t at_ms)
{
	struct note *n = xcalloc(1, sizeof *n);
	n->kind = NOTE_ERROR;
	n->session = session;
	n->at_ms = at_ms;
	n->err = *what;
	snprintf(n->path, sizeof n->path, "%s", path);
	return n;
}

void notes_error(struct queue *notes, int64_t session, const char *path, const struct err *what, int64_t at_ms)
{
	queue_push(notes, &note_error(session, path, what, at_ms)->node);
}

void notes_done(struct queue *notes, struct request *r)
{
	struct note *n = xcalloc(1, sizeof *n);
	n->kind = NOTE_DONE;
	n->request = r;
	queue_push(notes, &n->node);
}
