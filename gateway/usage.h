/* Reads token counts out of an answer as it passes: three wire formats, as events or as one JSON object. Changes
 * nothing of it. One thread. */
#pragma once
#include "backend/base/buf.h"
#include "meter.h"
#include "policy.h"

struct usage_reader {
	enum api api;
	bool events;	  /* text/event-stream; else one object */
	bool skip;	  /* the line, or the object, is longer than what is read */
	bool input_seen;  /* the input's tokens are known */
	bool output_seen; /* and those of the whole answer */
	bool odd;	  /* it says numbers that cannot be: at the end nothing is known then */
	bool final;	  /* the event that ends an answer has come */
	struct buf line;
	struct usage u;
};

void usage_start(struct usage_reader *r, enum api api, bool events);
void usage_release(struct usage_reader *r);
void usage_feed(struct usage_reader *r, const char *p, size_t n);
void usage_end(struct usage_reader *r); /* the answer has ended */
