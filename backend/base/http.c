/* A strict HTTP/1.1 request reader. Lines are checked as they end, so a bad one is refused before the rest has come.
 * No allocation a field: the head is one buffer, fields are offsets into it. Any thread; never blocks. */
#include "http.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

void http_init(struct http_reader *r, size_t max_body, int allow)
{
	*r = (struct http_reader){.max_body = max_body, .allow = allow};
}

void http_release(struct http_reader *r)
{
	buf_release(&r->head);
	buf_release(&r->body);
}

void http_next(struct http_reader *r)
{
	struct buf head = r->head;
	buf_release(&r->body);
	size_t max = r->max_body;
	int allow = r->allow;
	http_init(r, max, allow);
	r->head = head;
	buf_reset(&r->head);
}

static int refuse(struct http_reader *r, int status, const char *why)
{
	r->stage = HTTP_REFUSED;
	r->status = status;
	r->why = why;
	return -EBADMSG;
}

/* ---- characters ---- */

static bool is_token(unsigned char c) /* RFC 9110, 5.6.2 */
{
	return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_target(unsigned char c) /* RFC 3986 without the fragment's '#', brackets only for IPv6 hosts */
{
	return isalnum(c) || (c && strchr("-._~:/?@!$&'()*+,;=%[]", c));
}

static bool all(const char *p, size_t n, bool (*ok)(unsigned char))
{
	for (size_t i = 0; i < n; i++)
		if (!ok((unsigned char)p[i]))
			return false;
	return true;
}

static bool is_host(unsigned char c)
{
	return isalnum(c) || (c && strchr("-._:[]", c));
}

/* name:port, name, [v6]:port. */
static bool host_ok(const char *p, size_t n, bool port_needed)
{
	if (!n || n > 255 + 6 || !all(p, n, is_host))
		return false;
	const char *colon = NULL;
	if (*p == '[') {
		const char *end = memchr(p, ']', n);
		if (!end || end == p + 1)
			return false;
		if (end + 1 < p + n && end[1] != ':')
			return false;
		colon = end + 1 < p + n ? end + 1 : NULL;
	} else {
		if (memchr(p, '[', n) || memchr(p, ']', n))
			return false;
		colon = memchr(p, ':', n);
	}
	if (!colon)
		return !port_needed;
	size_t digits = (size_t)(p + n - colon - 1);
	if (colon == p || !digits || digits > 5)
		return false;
	for (size_t i = 1; i <= digits; i++)
		if (!isdigit((unsigned char)colon[i]))
			return false;
	return true;
}

/* ---- the request line ---- */

static int target_ok(struct http_reader *r)
{
	const char *t = http_span(r, r->target);
	size_t n = r->target.n;
	if (http_is(r, r->method, "CONNECT")) {
		if (!(r->allow & HTTP_ALLOW_CONNECT))
			return refuse(r, 405, "CONNECT is not served here");
		return host_ok(t, n, true) ? 0 : refuse(r, 400, "CONNECT needs host:port");
	}
	if (!all(t, n, is_target))
		return refuse(r, 400, "a character that the request target may not have");
	if (*t == '/')
		return 0;
	if ((r->allow & HTTP_ALLOW_ABSOLUTE) && n > 7 && !strncmp(t, "http://", 7))
		return 0;
	return refuse(r, 400, "the request target is no path");
}

static int request_line(struct http_reader *r, const char *p, size_t n)
{
	const char *a = memchr(p, ' ', n);
	const char *b = a ? memchr(a + 1, ' ', (size_t)(p + n - a - 1)) : NULL;
	if (!b || a == p || b == a + 1)
		return refuse(r, 400, "the request line is not METHOD TARGET VERSION");
	uint32_t at = (uint32_t)(p - r->head.p);
	r->method = (struct http_span){at, (uint32_t)(a - p)};
	r->target = (struct http_span){at + (uint32_t)(a + 1 - p), (uint32_t)(b - a - 1)};
	r->version = (struct http_span){at + (uint32_t)(b + 1 - p), (uint32_t)(p + n - b - 1)};
	if (r->method.n > 20 || !all(p, r->method.n, is_token))
		return refuse(r, 400, "the method is no word");
	r->http10 = http_is(r, r->version, "HTTP/1.0");
	if (!r->http10 && !http_is(r, r->version, "HTTP/1.1")) {
		bool other = r->version.n == 8 && !strncmp(b + 1, "HTTP/", 5) && isdigit((unsigned char)b[6]) &&
			     b[7] == '.' && isdigit((unsigned char)b[8]);
		return refuse(r, other ? 505 : 400, "only HTTP/1.1 is spoken here");
	}
	r->stage = HTTP_FIELDS;
	return target_ok(r);
}

/* ---- fields ---- */

static int field_line(struct http_reader *r, const char *p, size_t n)
{
	if (*p == ' ' || *p == '\t')
		return refuse(r, 400, "a folded header line");
	const char *colon = memchr(p, ':', n);
	if (!colon || colon == p)
		return refuse(r, 400, "a header line without a name");
	if (!all(p, (size_t)(colon - p), is_token))
		return refuse(r, 400, "a character that a header's name may not have");
	if (r->n_fields == HTTP_HEADERS)
		return refuse(r, 431, "too many header lines");
	const char *v = colon + 1, *end = p + n;
	while (v < end && (*v == ' ' || *v == '\t'))
		v++;
	while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	for (const char *c = v; c < end; c++)
		if ((unsigned char)*c >= 0x7f || ((unsigned char)*c < 0x20 && *c != '\t'))
			return refuse(r, 400, "a character that a header's value may not have");
	uint32_t at = (uint32_t)(p - r->head.p);
	r->fields[r->n_fields++] =
		(struct http_field){{at, (uint32_t)(colon - p)}, {at + (uint32_t)(v - p), (uint32_t)(end - v)}};
	return 0;
}

/* Fields that decide how a message is read or who sends it: one at most. */
static const char *const single[] = {"host",
				     "content-length",
				     "transfer-encoding",
				     "content-type",
				     "content-encoding",
				     "expect",
				     "authorization",
				     "x-api-key",
				     "connection",
				     "upgrade",
				     "cookie",
				     "proxy-authorization",
				     "origin",
				     "te",
				     "trailer",
				     "range",
				     "anthropic-version"};

static int framing(struct http_reader *r)
{
	size_t n;
	const char *te = http_field(r, "transfer-encoding", &n);
	if (te) {
		if (n != 7 || strncasecmp(te, "chunked", 7))
			return refuse(r, 501, "a transfer encoding other than chunked");
		if (http_field(r, "content-length", &n))
			return refuse(r, 400, "both Content-Length and Transfer-Encoding");
		if (r->http10)
			return refuse(r, 400, "Transfer-Encoding in HTTP/1.0");
		r->chunked = true;
		return 0;
	}
	const char *cl = http_field(r, "content-length", &n);
	if (!cl)
		return 0;
	if (!n || n > 19)
		return refuse(r, 400, "a Content-Length that is no number");
	for (size_t i = 0; i < n; i++) {
		if (!isdigit((unsigned char)cl[i]))
			return refuse(r, 400, "a Content-Length that is no number");
		r->left = r->left * 10 + (uint64_t)(cl[i] - '0');
	}
	r->has_length = true;
	return r->left > r->max_body ? refuse(r, 413, "the body is too large") : 0;
}

/* One word of a comma-separated list. */
static bool list_has(const char *p, size_t n, const char *word)
{
	for (const char *end = p + n; p < end;) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		const char *stop = comma ? comma : end;
		while (p < stop && (*p == ' ' || *p == '\t'))
			p++;
		const char *last = stop;
		while (last > p && (last[-1] == ' ' || last[-1] == '\t'))
			last--;
		if ((size_t)(last - p) == strlen(word) && !strncasecmp(p, word, strlen(word)))
			return true;
		p = stop + 1;
	}
	return false;
}

/* A connection option that names another field would have to be obeyed by removing that field: refused instead. */
static int connection(struct http_reader *r)
{
	static const char *const known[] = {"close", "keep-alive", "upgrade", "te", "http2-settings"};
	size_t n;
	const char *c = http_field(r, "connection", &n);
	r->keep_alive = !r->http10;
	if (!c)
		return 0;
	size_t words = 1, good = 0;
	for (size_t i = 0; i < n; i++)
		words += c[i] == ',';
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		good += list_has(c, n, known[i]);
	if (good != words)
		return refuse(r, 400, "an unknown word in Connection");
	if (list_has(c, n, "close"))
		r->keep_alive = false;
	else if (list_has(c, n, "keep-alive"))
		r->keep_alive = true;
	return 0;
}

static int head_end(struct http_reader *r)
{
	size_t n;
	for (size_t i = 0; i < sizeof single / sizeof *single; i++)
		if (http_count(r, single[i]) > 1)
			return refuse(r, 400, "a header line is given twice that may stand once");
	const char *host = http_field(r, "host", &n);
	if (!host || !host_ok(host, n, false))
		return refuse(r, 400, "there has to be one Host line with a host name");
	if (http_field(r, "trailer", &n))
		return refuse(r, 400, "trailers are not accepted");
	const char *expect = http_field(r, "expect", &n);
	if (expect && (n != 12 || strncasecmp(expect, "100-continue", 12)))
		return refuse(r, 417, "an expectation other than 100-continue");
	r->expect = expect && !r->http10;
	r->upgrade = http_field(r, "upgrade", &n) != NULL;
	int rc = framing(r);
	if (!rc)
		rc = connection(r);
	if (rc)
		return rc;
	if (http_is(r, r->method, "CONNECT") && (r->chunked || r->left))
		return refuse(r, 400, "CONNECT with a body");
	r->stage = r->chunked ? HTTP_CHUNK_SIZE : r->left ? HTTP_BODY : HTTP_DONE;
	return 0;
}

static int line_end(struct http_reader *r)
{
	const char *p = buf_str(&r->head) + r->line_at;
	size_t n = r->head.n - r->line_at;
	int rc;
	if (r->stage == HTTP_LINE)
		rc = n ? request_line(r, p, n) : refuse(r, 400, "an empty line where a request is expected");
	else
		rc = n ? field_line(r, p, n) : head_end(r);
	buf_addc(&r->head, 0);
	r->line_at = r->head.n;
	return rc;
}

/* Takes bytes of the head up to and with the end of a line. */
static int head_bytes(struct http_reader *r, const char *p, size_t n, size_t *used)
{
	size_t i = 0;
	if (r->cr) {
		if (*p != '\n')
			return refuse(r, 400, "a CR without LF");
		r->cr = false;
		r->head_n++;
		*used = 1;
		return line_end(r);
	}
	while (i < n && p[i] != '\r' && p[i] != '\n' && p[i])
		i++;
	r->head_n += i;
	if (r->head_n >= HTTP_HEAD_MAX || r->head.n - r->line_at + i > HTTP_LINE_MAX)
		return refuse(r, r->stage == HTTP_LINE ? 414 : 431, "the head is too large");
	buf_add(&r->head, p, i);
	*used = i;
	if (i == n)
		return 0;
	if (p[i] != '\r')
		return refuse(r, 400, p[i] ? "a LF without CR" : "a NUL character");
	r->cr = true;
	r->head_n++;
	*used = i + 1;
	return 0;
}

/* ---- the body ---- */

static int body_bytes(struct http_reader *r, const char *p, size_t n, size_t *used)
{
	size_t take = n < r->left ? n : (size_t)r->left;
	buf_add(&r->body, p, take);
	r->left -= take;
	*used = take;
	if (!r->left)
		r->stage = r->stage == HTTP_BODY ? HTTP_DONE : HTTP_CHUNK_END;
	return 0;
}

static int size_end(struct http_reader *r)
{
	if (!r->size_digits)
		return refuse(r, 400, "a chunk without a size");
	if (r->left > r->max_body - r->body.n)
		return refuse(r, 413, "the body is too large");
	r->stage = r->left ? HTTP_CHUNK_DATA : HTTP_LAST_CHUNK;
	r->size_digits = 0;
	return 0;
}

/* One byte of what stands between the chunks' data. */
static int chunk_byte(struct http_reader *r, char c)
{
	if (r->cr) {
		r->cr = false;
		if (c != '\n')
			return refuse(r, 400, "a CR without LF");
		if (r->stage == HTTP_CHUNK_SIZE)
			return size_end(r);
		r->stage = r->stage == HTTP_LAST_CHUNK ? HTTP_DONE : HTTP_CHUNK_SIZE;
		return 0;
	}
	if (c == '\r') {
		r->cr = true;
		return 0;
	}
	if (r->stage == HTTP_LAST_CHUNK)
		return refuse(r, 400, "trailers are not accepted");
	if (r->stage == HTTP_CHUNK_END || !isxdigit((unsigned char)c))
		return refuse(r, 400, "a chunk whose size or end is not plain");
	if (++r->size_digits > 15)
		return refuse(r, 400, "a chunk size with too many digits");
	r->left = r->left << 4 | (uint64_t)(isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10);
	return 0;
}

int http_feed(struct http_reader *r, const char *p, size_t n, size_t *used)
{
	*used = 0;
	while (*used < n && r->stage != HTTP_DONE) {
		size_t took = 1;
		int rc;
		switch (r->stage) {
		case HTTP_LINE:
		case HTTP_FIELDS:
			took = 0;
			rc = head_bytes(r, p + *used, n - *used, &took);
			break;
		case HTTP_BODY:
		case HTTP_CHUNK_DATA: rc = body_bytes(r, p + *used, n - *used, &took); break;
		case HTTP_REFUSED: return -EBADMSG;
		default: rc = chunk_byte(r, p[*used]);
		}
		*used += took;
		if (rc)
			return rc;
	}
	return r->stage == HTTP_REFUSED ? -EBADMSG : 0;
}

/* ---- what was read ---- */

bool http_head_done(const struct http_reader *r)
{
	return r->stage > HTTP_FIELDS && r->stage != HTTP_REFUSED;
}

bool http_started(const struct http_reader *r)
{
	return r->head_n > 0;
}

const char *http_span(const struct http_reader *r, struct http_span s)
{
	return buf_str(&r->head) + s.at;
}

bool http_is(const struct http_reader *r, struct http_span s, const char *word)
{
	return s.n == strlen(word) && !memcmp(http_span(r, s), word, s.n);
}

static const struct http_field *find(const struct http_reader *r, const char *name, int *count)
{
	const struct http_field *first = NULL;
	size_t n = strlen(name);
	*count = 0;
	for (int i = 0; i < r->n_fields; i++) {
		const struct http_field *f = &r->fields[i];
		if (f->name.n != n || strncasecmp(http_span(r, f->name), name, n))
			continue;
		first = first ? first : f;
		++*count;
	}
	return first;
}

const char *http_field(const struct http_reader *r, const char *name, size_t *n)
{
	int count;
	const struct http_field *f = find(r, name, &count);
	*n = count == 1 ? f->value.n : 0;
	return count == 1 ? http_span(r, f->value) : NULL;
}

int http_count(const struct http_reader *r, const char *name)
{
	int count;
	find(r, name, &count);
	return count;
}

bool http_field_copy(const struct http_reader *r, const char *name, char *out, size_t cap)
{
	size_t n;
	const char *v = http_field(r, name, &n);
	*out = 0;
	if (!v || n >= cap)
		return false;
	memcpy(out, v, n);
	out[n] = 0;
	return true;
}

const char *http_reason(int status)
{
	static const struct {
		int status;
		const char *words;
	} known[] = {{100, "Continue"},
		     {101, "Switching Protocols"},
		     {200, "OK"},
		     {201, "Created"},
		     {202, "Accepted"},
		     {204, "No Content"},
		     {304, "Not Modified"},
		     {400, "Bad Request"},
		     {401, "Unauthorized"},
		     {402, "Payment Required"},
		     {403, "Forbidden"},
		     {404, "Not Found"},
		     {405, "Method Not Allowed"},
		     {407, "Proxy Authentication Required"},
		     {408, "Request Timeout"},
		     {409, "Conflict"},
		     {411, "Length Required"},
		     {413, "Content Too Large"},
		     {414, "URI Too Long"},
		     {415, "Unsupported Media Type"},
		     {417, "Expectation Failed"},
		     {421, "Misdirected Request"},
		     {422, "Unprocessable Content"},
		     {426, "Upgrade Required"},
		     {429, "Too Many Requests"},
		     {431, "Request Header Fields Too Large"},
		     {500, "Internal Server Error"},
		     {501, "Not Implemented"},
		     {502, "Bad Gateway"},
		     {503, "Service Unavailable"},
		     {504, "Gateway Timeout"},
		     {505, "HTTP Version Not Supported"},
		     {529, "Overloaded"}};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].status == status)
			return known[i].words;
	return status < 400 ? "OK" : status < 500 ? "Bad Request" : "Internal Server Error";
}
