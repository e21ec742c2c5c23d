/* Feeds bytes to the reader of the tool protocol, in pieces whose sizes the bytes choose, and checks what it promises:
 * everything of a frame lies inside what was fed, and a second reading in one piece gives the same frames.
 * Built with -fsanitize=fuzzer, or with -DFUZZ_MAIN to run files. */
#include <stdint.h>
#include <stdlib.h>

#include "sandbox/wire.h"

static uint64_t digest(struct wire_reader *r, uint64_t h, int *end)
{
	struct wire_msg m;
	int rc;
	while ((rc = wire_next(r, &m)) > 0) {
		h = (h ^ m.type ^ (uint64_t)m.id << 8 ^ m.payload_n << 40) * 0x100000001b3ULL;
		if (m.payload < r->in.p || m.payload + m.payload_n > r->in.p + r->in.n)
			abort();
		for (size_t i = 0; i < m.n_fields; i++) {
			const struct wire_field *f = &m.fields[i];
			if (f->p < r->in.p || f->p + f->n > r->in.p + r->in.n)
				abort();
			for (uint32_t k = 0; k < f->n; k++)
				h = (h ^ (unsigned char)f->p[k]) * 0x100000001b3ULL;
			free(wire_text(&m, f->tag));
			h ^= wire_num(&m, f->tag, 1);
		}
	}
	*end = rc;
	return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct wire_reader pieces = {0}, whole = {0};
	uint64_t a = 1, b = 1;
	int end_a = 0, end_b = 0;
	for (size_t at = 0; at < n && !end_a;) {
		size_t part = 1 + p[at] % 61;
		part = part < n - at ? part : n - at;
		wire_feed(&pieces, p + at, part);
		a = digest(&pieces, a, &end_a);
		at += part;
	}
	wire_feed(&whole, p, n);
	b = digest(&whole, b, &end_b);
	if (a != b || end_a != end_b)
		abort();
	wire_reader_release(&pieces);
	wire_reader_release(&whole);
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
