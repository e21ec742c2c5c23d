/* The output of an agent in a sandbox, line by line, as events that all agents have in common. Nothing here trusts it:
 * it comes from inside. Pure; one owner, any thread. */
#pragma once
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/buf.h"

#define GUEST_LINE_MAX	 (16 << 20) /* bytes; a longer one is left out, and said so */
#define GUEST_ANSWER_MAX (1 << 20)  /* of an agent that prints text alone: the end counts */

enum guest_what {
	GUEST_TALK,   /* id: by which its conversation is taken up again */
	GUEST_TEXT,   /* text: a whole message of its model */
	GUEST_CALL,   /* id, name, text: a tool and its arguments, a JSON object */
	GUEST_RESULT, /* id, text, error */
	GUEST_USED,   /* requests, in, out, cached: tokens; in holds the cached ones */
	GUEST_FAULT,  /* text: it says that it has failed, and why; text that follows takes that back */
	GUEST_NOTE,   /* text: for the log */
};

struct guest_event {
	enum guest_what what;
	char *id, *name, *text; /* malloc'd, or NULL */
	bool error;
	int64_t requests, in, out, cached;
};

/* A line that says something: its place in the output, and what it says. */
struct guest_line {
	uint64_t from, to;
	struct guest_event *events;
	size_t n;
};

struct guest_reader;
/* Adds events of one line; streamed text goes to guest_piece(). NULL: the output is text, and as a whole the answer. */
typedef void guest_format(struct guest_reader *r, const cJSON *o);
guest_format guest_claude, guest_opencode, guest_codex, guest_pi;

struct guest_reader {
	guest_format *format;
	struct buf rest; /* of a line that is not whole; of plain text: all */
	uint64_t at;	 /* how much of the output is read into lines */
	bool skipping;	 /* in a line that is too long */
	struct guest_line *lines;
	size_t n;
	struct buf piece; /* of a text that streams */
};

void guest_reader_init(struct guest_reader *r, guest_format *format, uint64_t at);
void guest_reader_release(struct guest_reader *r);
void guest_feed(struct guest_reader *r, const char *p, size_t n);
void guest_feed_end(struct guest_reader *r);	  /* no more will come: a last line without its end counts */
uint64_t guest_fed(const struct guest_reader *r); /* how much of the output was fed, from its begin */
/* How many lines can be taken for good: a text that may be the answer, and a failure, are held back until something
 * follows. */
size_t guest_ready(const struct guest_reader *r);
/* The place behind which nothing of the first n lines stands: from there on is read again after a restart. */
uint64_t guest_offset(const struct guest_reader *r, size_t n);
void guest_drop(struct guest_reader *r, size_t n); /* forgets the first n lines */
/* The text that stands there now and is not taken: streamed, or held back. Valid until the next call. */
const char *guest_pending(const struct guest_reader *r);

/* ---- for the formats ---- */

void guest_add(struct guest_reader *r, enum guest_what what, const char *id, const char *name, const char *text,
	       bool error);
void guest_used(struct guest_reader *r, int64_t requests, int64_t in, int64_t out, int64_t cached);
void guest_piece(struct guest_reader *r, const char *text);
