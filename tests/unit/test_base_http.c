/* The HTTP request reader: what it takes, what it has to refuse, and that the way bytes are split never matters. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "backend/base/buf.h"
#include "backend/base/http.h"
#include "backend/base/mem.h"
#include "check.h"

#define MAX 100000
#define H   "Host: h\r\n"
#define P   "POST /v1/messages HTTP/1.1\r\n" H

/* Feeds it in pieces; what comes after the first complete request is left. */
static size_t feed(struct http_reader *r, const char *p, size_t n, unsigned *seed, size_t piece)
{
	size_t at = 0;
	while (at < n && r->stage != HTTP_DONE && r->stage != HTTP_REFUSED) {
		size_t take = seed ? 1 + (size_t)rand_r(seed) % 9 : piece;
		take = take < n - at ? take : n - at;
		char *own = xmemdup(p + at, take); /* so that a sanitizer sees a read past its end */
		size_t used;
		http_feed(r, own, take, &used);
		free(own);
		at += used;
	}
	return at;
}

/* status 0: complete; -1: more is needed; else refused with it. */
static int outcome(const struct http_reader *r)
{
	return r->stage == HTTP_DONE ? 0 : r->stage == HTTP_REFUSED ? r->status : -1;
}

static int run(const char *p, size_t n, int allow, size_t piece, unsigned *seed, struct http_reader *r)
{
	http_init(r, MAX, allow);
	feed(r, p, n, seed, piece);
	return outcome(r);
}

struct sample {
	const char *name;
	int want; /* 0 taken, -1 waits for more, else the refusal */
	const char *text;
	size_t n; /* 0: strlen */
};

#define S(name, want, text)                                                                                            \
	{                                                                                                              \
		name, want, text, sizeof text - 1                                                                      \
	}

static const struct sample samples[] = {
	S("plain length", 0, P "Content-Length: 5\r\n\r\nhello"),
	S("plain chunked", 0, P "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
	S("chunked in capitals", 0, P "transfer-ENCODING: CHUNKED\r\n\r\nA\r\nhellohello\r\n0\r\n\r\n"),
	S("no body", 0, "GET / HTTP/1.1\r\n" H "\r\n"),
	S("get with a body", 0, "GET / HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nab"),
	S("http/1.0", 0, "GET / HTTP/1.0\r\n" H "\r\n"),
	S("expect", 0, P "Expect: 100-continue\r\nContent-Length: 1\r\n\r\na"),
	S("empty value", 0, "GET / HTTP/1.1\r\n" H "X:\r\n\r\n"),
	S("tab in a value", 0, "GET / HTTP/1.1\r\n" H "X: a\tb\r\n\r\n"),
	S("host with port", 0, "GET / HTTP/1.1\r\nHost: h:80\r\n\r\n"),
	S("host in brackets", 0, "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
	S("upgrade is seen", 0, "GET / HTTP/1.1\r\n" H "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"),
	S("cut head", -1, "GET / HTTP/1.1\r\nHost: h\r\n"),
	S("cut body", -1, P "Content-Length: 5\r\n\r\nhell"),
	S("cut chunk", -1, P "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"),
	/* framing */
	S("length and chunked", 400, P "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
	S("chunked and length", 400, P "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"),
	S("same length twice", 400, P "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
	S("two lengths", 400, P "Content-Length: 0\r\nContent-Length: 44\r\n\r\n"),
	S("length list", 400, P "Content-Length: 5, 5\r\n\r\nhello"),
	S("length +5", 400, P "Content-Length: +5\r\n\r\nhello"),
	S("length 0x5", 400, P "Content-Length: 0x5\r\n\r\nhello"),
	S("length -1", 400, P "Content-Length: -1\r\n\r\nhello"),
	S("length 5abc", 400, P "Content-Length: 5abc\r\n\r\nhello"),
	S("length 5 5", 400, P "Content-Length: 5 5\r\n\r\nhello"),
	S("length empty", 400, P "Content-Length:\r\n\r\nhello"),
	S("length 2^64+5", 400, P "Content-Length: 18446744073709551621\r\n\r\nhello"),
	S("length over the limit", 413, P "Content-Length: 100001\r\n\r\n"),
	S("te xchunked", 501, P "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
	S("te gzip, chunked", 501, P "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
	S("te chunked, chunked", 501, P "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
	S("te chunked;q", 501, P "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"),
	S("te identity", 501, P "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello"),
	S("te empty", 501, P "Transfer-Encoding:\r\nContent-Length: 5\r\n\r\nhello"),
	S("te twice", 400, P "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
	S("te behind a vertical tab", 400, P "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n"),
	S("te in 1.0", 400, "POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
	S("te behind a blank", 400, P "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
	S("folded te", 400, P "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
	S("te with underscore is another", 0, P "Transfer_Encoding: chunked\r\n\r\n"),
	/* lines */
	S("folded line", 400, P "X: a\r\n b\r\n\r\n"),
	S("folded with a tab", 400, P "X: a\r\n\tb\r\n\r\n"),
	S("first field indented", 400, "GET / HTTP/1.1\r\n Host: h\r\n\r\n"),
	S("bare lf lines", 400, "GET / HTTP/1.1\nHost: h\n\n"),
	S("bare lf at the end", 400, "GET / HTTP/1.1\r\nHost: h\r\n\n"),
	S("bare cr in a value", 400, P "X: a\rb\r\n\r\n"),
	S("bare cr at a line's end", 400, P "X: a\r\r\n\r\n"),
	S("blank before the colon", 400, P "X : a\r\n\r\n"),
	S("tab before the colon", 400, P "X\t: a\r\n\r\n"),
	S("no colon", 400, P "X\r\n\r\n"),
	S("no name", 400, P ": a\r\n\r\n"),
	S("nul in a value", 400, P "X: a\0b\r\n\r\n"),
	S("nul in a name", 400, P "X\0: a\r\n\r\n"),
	S("nul in the target", 400, "GET /\0 HTTP/1.1\r\n" H "\r\n"),
	S("control in a value", 400, P "X: a\033b\r\n\r\n"),
	S("del in a value", 400, P "X: a\177b\r\n\r\n"),
	S("8 bit in a value", 400, P "X: \303\244\r\n\r\n"),
	S("8 bit in a name", 400, P "\303\244: a\r\n\r\n"),
	S("parenthesis in a name", 400, P "X(: a\r\n\r\n"),
	S("quote in a name", 400, P "\"X\": a\r\n\r\n"),
	S("key twice", 400, P "x-api-key: a\r\nX-API-KEY: a\r\n\r\n"),
	S("authorization twice", 400, P "Authorization: a\r\nauthorization: b\r\n\r\n"),
	S("type twice", 400, P "Content-Type: a\r\nContent-Type: b\r\n\r\n"),
	S("no host", 400, "GET / HTTP/1.1\r\n\r\n"),
	S("host twice", 400, "GET / HTTP/1.1\r\n" H H "\r\n"),
	S("host empty", 400, "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
	S("host with user", 400, "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"),
	S("host with slash", 400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
	S("host list", 400, "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
	S("host bad port", 400, "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n"),
	S("host long port", 400, "GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n"),
	S("connection names a field", 400, "GET / HTTP/1.1\r\n" H "Connection: close, x-api-key\r\n\r\n"),
	S("trailer field", 400, P "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\n\r\n"),
	S("other expectation", 417, P "Expect: 200-ok\r\n\r\n"),
	/* the request line */
	S("two blanks", 400, "GET  / HTTP/1.1\r\n" H "\r\n"),
	S("blank at the end", 400, "GET / HTTP/1.1 \r\n" H "\r\n"),
	S("blank at the start", 400, " GET / HTTP/1.1\r\n" H "\r\n"),
	S("tab for a blank", 400, "GET\t/ HTTP/1.1\r\n" H "\r\n"),
	S("empty line first", 400, "\r\nGET / HTTP/1.1\r\n" H "\r\n"),
	S("blank in the target", 400, "GET /a b HTTP/1.1\r\n" H "\r\n"),
	S("no version", 400, "GET /\r\n" H "\r\n"),
	S("http/1.9", 505, "GET / HTTP/1.9\r\n" H "\r\n"),
	S("http/2.0", 505, "GET / HTTP/2.0\r\n" H "\r\n"),
	S("http/1.10", 400, "GET / HTTP/1.10\r\n" H "\r\n"),
	S("http/1.1 small", 400, "GET / http/1.1\r\n" H "\r\n"),
	S("h2 preface", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
	S("tls hello", 400, "\026\003\001\002\000\001\000\001\374\003\003\r\n"),
	S("method with colon", 400, "GE:T / HTTP/1.1\r\n" H "\r\n"),
	S("method too long", 400, "ABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1\r\n" H "\r\n"),
	S("absolute form", 400, "GET http://h/ HTTP/1.1\r\n" H "\r\n"),
	S("authority form", 400, "GET h:80 HTTP/1.1\r\n" H "\r\n"),
	S("asterisk form", 400, "OPTIONS * HTTP/1.1\r\n" H "\r\n"),
	S("connect", 405, "CONNECT h:443 HTTP/1.1\r\n" H "\r\n"),
	S("fragment", 400, "GET /#a HTTP/1.1\r\n" H "\r\n"),
	S("backslash", 400, "GET /\\a HTTP/1.1\r\n" H "\r\n"),
	S("quote", 400, "GET /\"a HTTP/1.1\r\n" H "\r\n"),
	S("8 bit target", 400, "GET /\303\244 HTTP/1.1\r\n" H "\r\n"),
	S("control in the target", 400, "GET /\001 HTTP/1.1\r\n" H "\r\n"),
	/* chunks */
	S("chunk extension", 400, P "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n"),
	S("extension with lf", 400, P "Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n"),
	S("blank after the size", 400, P "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n"),
	S("blank before the size", 400, P "Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n"),
	S("size 0x5", 400, P "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n"),
	S("size +5", 400, P "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n"),
	S("size -5", 400, P "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n"),
	S("size empty", 400, P "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n"),
	S("size overflow", 400, P "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n"),
	S("size over the limit", 413, P "Transfer-Encoding: chunked\r\n\r\nfffffff\r\nhello\r\n0\r\n\r\n"),
	S("chunk line lf", 400, P "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n"),
	S("chunk data lf", 400, P "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n"),
	S("chunk too long", 400, P "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloo\r\n0\r\n\r\n"),
	S("chunk cr without lf", 400, P "Transfer-Encoding: chunked\r\n\r\n5\rhello\r\n0\r\n\r\n"),
	S("trailers", 400, P "Transfer-Encoding: chunked\r\n\r\n0\r\nX: a\r\n\r\n"),
	S("last chunk lf", 400, P "Transfer-Encoding: chunked\r\n\r\n0\r\n\n"),
};

TEST(http_samples)
{
	int bad = 0;
	for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
		const struct sample *s = &samples[i];
		struct http_reader r;
		for (size_t piece = 1; piece < 4096; piece = piece == 1 ? 3 : 4096) {
			int got = run(s->text, s->n, 0, piece, NULL, &r);
			if (got != s->want || (got > 0 && !r.why)) {
				printf("# %s by %zu bytes: %d, not %d (%s)\n", s->name, piece, got, s->want,
				       r.why ? r.why : "");
				bad++;
			}
			http_release(&r);
		}
	}
	CHECK_INT(bad, 0);
}

TEST(http_fields)
{
	static const char text[] =
		"POST /v1/messages?beta=true HTTP/1.1\r\nHost: h\r\nX-Api-Key: \t abc \r\nA: 1\r\nA: 2\r\n"
		"Content-Length: 3\r\n\r\nxyzGET / HTTP/1.1\r\nHost: i\r\nConnection: close\r\n\r\n";
	struct http_reader r;
	http_init(&r, MAX, 0);
	size_t at = feed(&r, text, sizeof text - 1, NULL, 7);
	CHECK_INT(outcome(&r), 0);
	CHECK(http_is(&r, r.method, "POST"));
	CHECK(http_is(&r, r.target, "/v1/messages?beta=true"));
	char v[8];
	CHECK(http_field_copy(&r, "x-api-key", v, sizeof v));
	CHECK_STR(v, "abc");
	CHECK(!http_field_copy(&r, "x-api-key", v, 3));
	CHECK_INT(http_count(&r, "a"), 2);
	size_t n;
	CHECK(!http_field(&r, "a", &n));
	CHECK_STR(buf_str(&r.body), "xyz");
	CHECK(r.keep_alive);
	http_next(&r); /* the second one of the connection */
	CHECK(!http_started(&r));
	feed(&r, text + at, sizeof text - 1 - at, NULL, 5);
	CHECK_INT(outcome(&r), 0);
	CHECK(http_is(&r, r.method, "GET"));
	CHECK(!r.keep_alive);
	CHECK_INT(r.body.n, 0);
	http_release(&r);
}

TEST(http_proxy_forms)
{
	int both = HTTP_ALLOW_CONNECT | HTTP_ALLOW_ABSOLUTE;
	static const struct sample forms[] = {
		S("connect", 0, "CONNECT h.example:443 HTTP/1.1\r\nHost: h.example:443\r\n\r\n"),
		S("connect without port", 400, "CONNECT h.example HTTP/1.1\r\n" H "\r\n"),
		S("connect with a path", 400, "CONNECT h:443/a HTTP/1.1\r\n" H "\r\n"),
		S("connect with a user", 400, "CONNECT u@h:443 HTTP/1.1\r\n" H "\r\n"),
		S("connect with a body", 400, "CONNECT h:443 HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\na"),
		S("absolute", 0, "GET http://h/a HTTP/1.1\r\n" H "\r\n"),
		S("absolute https", 400, "GET https://h/a HTTP/1.1\r\n" H "\r\n"),
	};
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		struct http_reader r;
		CHECK_INT(run(forms[i].text, forms[i].n, both, 4096, NULL, &r), forms[i].want);
		http_release(&r);
	}
}

static int repeated(const char *line, int times, const char *end)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_adds(&b, "GET / HTTP/1.1\r\n" H);
	for (int i = 0; i < times; i++)
		buf_adds(&b, line);
	buf_adds(&b, end);
	struct http_reader r;
	int got = run(b.p, b.n, 0, 4096, NULL, &r);
	CHECK(r.head.cap < 2 * HTTP_HEAD_MAX);
	http_release(&r);
	return got;
}

TEST(http_bounds)
{
	CHECK_INT(repeated("X: a\r\n", HTTP_HEADERS - 1, "\r\n"), 0);
	CHECK_INT(repeated("X: a\r\n", HTTP_HEADERS, "\r\n"), 431);
	CHECK_INT(repeated("X: a\r\n", 2000, "\r\n"), 431);
	CHECK_INT(repeated("aaaaaaaaaaaaaaaa", 4096, "\r\n\r\n"), 431); /* one line of 64 KiB */
	CHECK_INT(repeated("aaaaaaaaaaaaaaaa", 100000, ""), 431);	/* without an end */
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_adds(&b, "GET /");
	for (int i = 0; i < HTTP_LINE_MAX; i++)
		buf_addc(&b, 'a');
	struct http_reader r;
	CHECK_INT(run(b.p, b.n, 0, 4096, NULL, &r), 414);
	http_release(&r);
}

/* Mutated samples in random pieces give exactly what they give at once. */
TEST(http_random_splits)
{
	unsigned seed = 42;
	int differ = 0;
	for (int round = 0; round < 60000; round++) {
		const struct sample *s = &samples[(size_t)rand_r(&seed) % ARRAY_LEN(samples)];
		char *text = xmemdup(s->text, s->n);
		for (int m = rand_r(&seed) % 3; m > 0; m--)
			text[(size_t)rand_r(&seed) % s->n] = "\r\n \t:\0x5,;0"[rand_r(&seed) % 11];
		struct http_reader a, b;
		int x = run(text, s->n, 0, 1 << 20, NULL, &a), y = run(text, s->n, 0, 0, &seed, &b);
		if (x != y || a.n_fields != b.n_fields || (x >= 0 && (a.why != b.why)) ||
		    (!x && a.body.n != b.body.n) || (!x && a.body.n && memcmp(a.body.p, b.body.p, a.body.n)))
			differ++;
		http_release(&a);
		http_release(&b);
		free(text);
	}
	CHECK_INT(differ, 0);
}

CHECK_MAIN()
