/* The text of one message while it is being written. Pure; any thread, one owner.
 *
 * Writes arrive cut anywhere, also inside a UTF-8 sequence. What can be refused is refused at the write, because
 * shells do not look at the result of close; then the whole message is dropped and later writes fail the same way. */
#pragma once
#include <stddef.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

struct message {
	struct buf text;
	size_t checked; /* leading bytes known to be whole, valid UTF-8 */
	int failed;	/* 0, or the -errno every later write gets */
};

void message_release(struct message *m);
/* Appends. -EFBIG past MESSAGE_MAX, -EILSEQ for NUL or invalid UTF-8; err has words at the first failure only. */
int message_add(struct message *m, const char *p, size_t n, struct err *err);
/* Checks a text that is complete: -EILSEQ if it ends inside a sequence, -EINVAL if it is only white space. */
int message_end(const struct buf *text, struct err *err);
/* Drops what has not been sent; a failed message stays failed. */
void message_drop(struct message *m);
