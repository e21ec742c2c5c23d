/* Feeds bytes to the reader of server-sent events, at once and byte by byte: both have to give the same events, in
 * bounds. Built with -fsanitize=fuzzer, or with -DFUZZ_MAIN. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/parse/sse.h"

#define MAX_EVENT 4096

static int got(void *arg, const char *event, const char *data, size_t n, struct err *err)
{
	struct buf *out = arg;
	if (!n || data[n] || strlen(event) + n > MAX_EVENT)
		abort();
	buf_adds(out, event);
	buf_addc(out, 0);
	buf_add(out, data, n);
	buf_addc(out, 0);
	return 0;
}

static int read_all(struct buf *out, const char *p, size_t n, size_t piece)
{
	struct sse s;
	int rc = 0;
	sse_init(&s, MAX_EVENT, got, out);
	for (size_t at = 0; at < n && !rc; at += piece)
		rc = sse_feed(&s, p + at, piece < n - at ? piece : n - at, NULL);
	sse_release(&s);
	if (rc && rc != -EMSGSIZE)
		abort();
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	CLEAN_BUF struct buf a = BUF_INIT;
	CLEAN_BUF struct buf b = BUF_INIT;
	int x = read_all(&a, (const char *)p, n, n ? n : 1), y = read_all(&b, (const char *)p, n, 1);
	if (x != y || a.n != b.n || (a.n && memcmp(a.p, b.p, a.n)))
		abort();
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
