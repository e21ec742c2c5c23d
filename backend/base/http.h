/* A strict HTTP/1.1 request reader. It refuses what two parsers could read differently instead of repairing it: bare CR
 * or LF, folded lines, blanks before a colon, both or repeated framing fields, odd lengths, chunk extensions, trailers.
 * Incremental: the same bytes give the same result however they are split. One reader belongs to one thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

#define HTTP_HEADERS  100	  /* fields a request may have; clients in use send under 30 */
#define HTTP_HEAD_MAX (48 * 1024) /* bytes of request line and fields together */
#define HTTP_LINE_MAX (16 * 1024) /* bytes of one line */

/* Forms of the request target that are accepted beside "/path?query". */
enum { HTTP_ALLOW_CONNECT = 1, /* CONNECT host:port */ HTTP_ALLOW_ABSOLUTE = 2 /* http://host/path, for a proxy */ };

struct http_span {
	uint32_t at, n; /* into the reader's head */
};
struct http_field {
	struct http_span name, value; /* the value without blanks around it */
};

enum http_stage {
	HTTP_LINE,
	HTTP_FIELDS,
	HTTP_BODY,
	HTTP_CHUNK_SIZE,
	HTTP_CHUNK_DATA,
	HTTP_CHUNK_END,
	HTTP_LAST_CHUNK,
	HTTP_DONE,
	HTTP_REFUSED
};

struct http_reader {
	size_t max_body; /* bytes; set before the first http_feed() */
	int allow;	 /* HTTP_ALLOW_... */

	enum http_stage stage;
	struct buf head; /* the lines so far, each without its CR LF */
	size_t head_n;	 /* bytes of the head as received */
	size_t line_at;	 /* where the line that is being read begins in head */
	bool cr;	 /* the last byte was CR */
	struct http_span method, target, version;
	struct http_field fields[HTTP_HEADERS];
	int n_fields;
	bool http10, keep_alive, chunked, has_length, expect, upgrade;
	uint64_t left; /* body bytes still to come, of the whole or of this chunk */
	int size_digits;
	struct buf body;

	int status;	 /* HTTP_REFUSED: the answer's status code */
	const char *why; /* and words for it */
};

void http_init(struct http_reader *r, size_t max_body, int allow);
void http_release(struct http_reader *r);
void http_next(struct http_reader *r); /* ready for the next request of the connection; keeps memory for the head */

/* Reads bytes until the request is complete (HTTP_DONE) or refused; used tells how many were taken. -EBADMSG once it is
 * refused (status and why are set, and the connection has to be closed after the answer), else 0. */
int http_feed(struct http_reader *r, const char *p, size_t n, size_t *used);
bool http_head_done(const struct http_reader *r); /* method, target and fields can be read */
bool http_started(const struct http_reader *r);	  /* some byte of a request has come */

/* The only field of that name (ASCII case ignored), or NULL; n gets its length. Not terminated by NUL. */
const char *http_field(const struct http_reader *r, const char *name, size_t *n);
int http_count(const struct http_reader *r, const char *name);
/* The same as a C string in out (cut off never: false if absent, given twice or too long). */
bool http_field_copy(const struct http_reader *r, const char *name, char *out, size_t cap);
const char *http_span(const struct http_reader *r, struct http_span s);		 /* its first byte */
bool http_is(const struct http_reader *r, struct http_span s, const char *word); /* equal, byte for byte */
const char *http_reason(int status);						 /* "Not Found" */
