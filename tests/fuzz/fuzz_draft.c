/* Feeds bytes to the reader of drafts as a writer would, in growing pieces: a draft that is good in the end is refused
 * at no point before, and a refusal has words. Built with -fsanitize=fuzzer, or with -DFUZZ_MAIN. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/draft.h"

static int parse(const char *text, bool whole)
{
	struct draft d;
	struct err err = ERR_INIT;
	int rc = draft_parse(text, whole, &d, &err);
	if (rc && (rc != -err.code || !*err.text))
		abort();
	if (!rc && d.message && (d.message < text || d.message > text + strlen(text)))
		abort();
	if (!rc && whole && (d.open || !d.message))
		abort();
	if (!rc)
		draft_release(&d);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	if (n > 4096)
		n = 4096;
	CLEAN_FREE char *text = xstrndup((const char *)p, n);
	size_t len = strlen(text);
	bool good = !parse(text, true);
	for (size_t k = len; k > 0; k -= k < 64 ? 1 : k / 64) {
		CLEAN_FREE char *part = xstrndup(text, k);
		if (parse(part, false) && good)
			abort();
	}
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
