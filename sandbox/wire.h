/* The protocol between env (host) and the tool daemon (inside a sandbox): requests and answers in frames.
 *
 *	u32 length      of all that follows, 9 to WIRE_MAX (big-endian, as everything here)
 *	u8  type        enum wire_type
 *	u32 id          of the request; an answer carries its request's; 0 for ping, pong and event
 *	u32 head        length of the head
 *	head            fields: u8 tag (enum wire_tag), u32 length, bytes. Numbers are 8 bytes. Tags ascend; only tags
 *that hold lists (WIRE_ARGV, WIRE_ENVIRON) may repeat payload         raw bytes to the end of the frame
 *
 * A connection carries one request at a time and an answer for each. CANCEL names a request that is waiting (POLL): it
 *is answered at once. PING may come at any time outside a frame and is answered by PONG while a POLL waits. Malformed
 *bytes end the connection. Before the first frame the client says "tool\n" and reads "ok\n". Any thread; a reader or a
 *message belongs to one at a time. Compiles for the static guest too: libc and base only. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

enum {
	WIRE_VERSION = 1,
	WIRE_MAX = 16 << 20,	 /* longest frame */
	WIRE_CHUNK = 256 * 1024, /* longest payload that we send: other streams of the port must get their turn */
	WIRE_FIELDS = 4096,	 /* most fields of a head */
};

enum wire_type {
	WIRE_REQUEST = 1,
	WIRE_RESULT,
	WIRE_ERROR, /* WIRE_CODE, WIRE_TEXT */
	WIRE_EVENT, /* not used by version 1 */
	WIRE_CANCEL,
	WIRE_PING,
	WIRE_PONG,
	WIRE_TYPES,
};

enum wire_op {
	WIRE_HELLO = 1, /* VERSION, TIME; payload: entropy -> VERSION, HOME, URL? */
	WIRE_START,	/* JOB, CWD?, TIMEOUT?, ARGV+, ENVIRON* */
	WIRE_POLL,	/* JOB, SINCE, WAIT -> STATE, EXIT, FLAGS, SIZE */
	WIRE_OUTPUT,	/* JOB, OFFSET, MAX -> payload */
	WIRE_KILL,	/* JOB */
	WIRE_ACK,	/* JOB, FLAGS (WIRE_KEEP) -> PATH? */
	WIRE_STAT,	/* PATH -> SIZE, MODE, MTIME, PATH */
	WIRE_READ,	/* PATH, OFFSET, MAX, GUARD? -> SIZE, GENERATION; payload */
	WIRE_APPEND,	/* PATH, FLAGS, GUARD?; payload: appended at once */
	WIRE_PUT, /* PATH, FLAGS, GUARD?: begins to replace a file; the one before that was not ended is forgotten */
	WIRE_PUT_DATA,	  /* payload: the next bytes */
	WIRE_PUT_END,	  /* puts it in place */
	WIRE_REMOVE,	  /* PATH */
	WIRE_SHUTDOWN,	  /* ends all jobs and the daemon; in a VM powers off. The answer comes first */
	WIRE_SET_ENVIRON, /* ENVIRON*: base environment of all later jobs */
	WIRE_HAS_ENVIRON, /* -> STATE: 1 if one was set */
	WIRE_BUSY,	  /* -> STATE: 1 if something says that it works, SIZE? (processor time in ms), TEXT */
	WIRE_SETTLE,	  /* what was written is on disk when the answer comes */
	WIRE_RENEW, /* TIME, TEXT?: memory that was saved goes on; payload: entropy. TEXT: as another machine of that
		       name */
	WIRE_OPS,
};

enum wire_tag {
	WIRE_OP = 1,
	WIRE_VERSION_TAG,
	WIRE_TIME, /* milliseconds since 1970 */
	WIRE_HOME,
	WIRE_JOB,
	WIRE_PATH,
	WIRE_CWD,
	WIRE_TIMEOUT, /* ms */
	WIRE_ARGV,
	WIRE_ENVIRON,
	WIRE_SINCE,
	WIRE_WAIT,  /* ms */
	WIRE_STATE, /* enum env_job_state */
	WIRE_EXIT,
	WIRE_FLAGS,
	WIRE_SIZE,
	WIRE_OFFSET,
	WIRE_MAXIMUM,
	WIRE_MODE,
	WIRE_MTIME,	 /* ms */
	WIRE_GENERATION, /* changes whenever a file is another one or was written to */
	WIRE_CODE,	 /* errno; numbers are those of Linux x86-64 on both sides */
	WIRE_TEXT,
	WIRE_GUARD, /* patterns of protected paths, see backend/base/guard.h */
	WIRE_URL,   /* where programs in the sandbox reach the gateway */
	WIRE_TAGS,
};

enum { /* WIRE_FLAGS */
       WIRE_TIMED_OUT = 1,
       WIRE_KILLED = 2,
       WIRE_OVERFLOW = 4,
       WIRE_KEEP = 8,
       WIRE_PARENTS = 16,
       WIRE_WHERE = 32, /* ACK: only tell where KEEP would put the output */
       WIRE_FULL = 64,
};

struct wire_field {
	const char *p;
	uint32_t n;
	uint8_t tag;
};

/* A received frame: everything points into the reader and is valid until its next call. */
struct wire_msg {
	enum wire_type type;
	uint32_t id;
	struct wire_field *fields;
	size_t n_fields;
	const char *payload;
	size_t payload_n;
};

/* The first field of that tag, or NULL. */
const struct wire_field *wire_get(const struct wire_msg *m, enum wire_tag tag);
/* A number; missing or not 8 bytes: fallback. */
uint64_t wire_num(const struct wire_msg *m, enum wire_tag tag, uint64_t fallback);
/* Text as a malloc'd C string; NULL if missing or with a NUL inside. */
char *wire_text(const struct wire_msg *m, enum wire_tag tag);

/* ---- writing: wire_begin, fields in ascending order of tags, wire_end ---- */

struct wire_out {
	struct buf b;
	size_t start; /* of the frame in b */
};
void wire_begin(struct wire_out *o, enum wire_type type, uint32_t id); /* appends to what is in b */
void wire_add_num(struct wire_out *o, enum wire_tag tag, uint64_t v);
void wire_add(struct wire_out *o, enum wire_tag tag, const void *p, size_t n);
void wire_add_text(struct wire_out *o, enum wire_tag tag, const char *s); /* NULL: no field */
void wire_end(struct wire_out *o, const void *payload, size_t n);
void wire_out_release(struct wire_out *o);

/* ---- reading: bytes in, frames out ---- */

struct wire_reader {
	struct buf in;
	size_t at; /* used up */
	struct wire_field *fields;
	size_t cap;
};
void wire_reader_release(struct wire_reader *r);
void wire_feed(struct wire_reader *r, const void *p, size_t n);
/* 1: *m is a frame; 0: needs more bytes; -EBADMSG: malformed, the connection has to be closed. */
int wire_next(struct wire_reader *r, struct wire_msg *m);
