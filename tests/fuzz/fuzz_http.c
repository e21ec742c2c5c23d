/* Feeds bytes to the HTTP reader, at once and byte by byte: both have to end alike, in bounds, and a body that was
 * taken has the length that its head said. Built with -fsanitize=fuzzer, or with -DFUZZ_MAIN. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/http.h"

#define MAX_BODY 4096

static size_t read_all(struct http_reader *r, const char *p, size_t n, size_t piece)
{
	size_t at = 0;
	http_init(r, MAX_BODY, HTTP_ALLOW_CONNECT | HTTP_ALLOW_ABSOLUTE);
	while (at < n && r->stage != HTTP_DONE) {
		size_t used, take = piece < n - at ? piece : n - at;
		int rc = http_feed(r, p + at, take, &used);
		if (used > take || (rc && (rc != -EBADMSG || r->stage != HTTP_REFUSED || r->status < 400 || !r->why)))
			abort();
		at += used;
		if (rc)
			break;
		if (!used)
			abort(); /* it would loop */
	}
	return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct http_reader a, b;
	size_t x = read_all(&a, (const char *)p, n, n ? n : 1), y = read_all(&b, (const char *)p, n, 1);
	if (a.stage != b.stage || a.status != b.status || a.n_fields != b.n_fields || (a.stage == HTTP_DONE && x != y))
		abort();
	if (a.body.n != b.body.n || a.body.n > MAX_BODY || (a.body.n && memcmp(a.body.p, b.body.p, a.body.n)))
		abort();
	if (a.n_fields > HTTP_HEADERS || a.head.n > HTTP_HEAD_MAX + HTTP_HEADERS)
		abort();
	size_t len;
	for (int i = 0; i < a.n_fields; i++)
		if (a.fields[i].value.at + a.fields[i].value.n > a.head.n || !a.fields[i].name.n)
			abort();
	if (a.stage == HTTP_DONE && http_field(&a, "content-length", &len) && http_field(&a, "transfer-encoding", &len))
		abort();
	http_release(&a);
	http_release(&b);
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
