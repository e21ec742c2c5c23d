/* Reads a stream of server-sent events in pieces of any size. Pure; one thread, one owner. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

#define SSE_MAX (16 << 20) /* bytes of one event with its names; the largest that providers send is an image's */

/* One whole event: its name ("" if it has none) and its data, lines joined by newlines; both end with a NUL that does
 * not count, valid until it returns. Not 0: the reader stops with that. */
typedef int sse_fn(void *arg, const char *event, const char *data, size_t n, struct err *err);

struct sse {
	sse_fn *fn;
	void *arg;
	size_t max;
	struct buf line, name, data;
	bool begun, skip_lf, has_data;
};

void sse_init(struct sse *s, size_t max, sse_fn *fn, void *arg);
void sse_release(struct sse *s);
/* Takes the next bytes. 0, -EMSGSIZE (an event is larger than max), or what fn returned; then no more may be fed. What
 * stands after the last blank line when the stream ends is no event and is never given. */
int sse_feed(struct sse *s, const char *p, size_t n, struct err *err);
