/* Feeds bytes as the stream of each provider's format: no crash, bounds kept, a reply only after the stream's end, and
 * no call in what is refused. The first byte chooses the format. Built with -fsanitize=fuzzer, or with -DFUZZ_MAIN. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/utf8.h"
#include "tests/unit/streams.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	if (!n)
		return 0;
	const struct stream *s = &streams[p[0] % 3];
	struct heard h;
	hear(&h, s->format, (const char *)p + 1, n - 1, 1 + p[0] % 7, p[0] & 8);
	if (h.rc > 0 || (h.rc && (h.reply.n_calls || h.reply.replay)) || (!h.rc && !*h.reply.stop))
		abort();
	if (!utf8_valid(buf_str(&h.reply.text), h.reply.text.n) || h.streamed.n != h.reply.text.n)
		abort();
	if (h.reply.replay && json_check(h.reply.replay, strlen(h.reply.replay), NULL))
		abort();
	for (size_t i = 0; i < h.reply.n_calls; i++)
		if (!*h.reply.calls[i].id || !h.reply.calls[i].name || !h.reply.calls[i].input)
			abort();
	heard_release(&h);
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
