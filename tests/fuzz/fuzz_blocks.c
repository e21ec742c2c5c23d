/* Fuzz target: a model's answer. Whatever it is, what comes out is valid UTF-8 in whole lines and no longer than three
 * bytes for each that went in. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "backend/base/utf8.h"
#include "backend/parse/blocks.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void judge(const struct buf *b, size_t n)
{
	if (b->n > 3 * n + 1 || !utf8_valid(buf_str(b), b->n) || (b->n && b->p[b->n - 1] != '\n'))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const char *text = n ? (const char *)p : "";
	CLEAN_BUF struct buf plan = BUF_INIT;
	CLEAN_BUF struct buf question = BUF_INIT;
	CLEAN_BUF struct buf why = BUF_INIT;
	if (!blocks_plan(text, n, &plan) && plan.n)
		abort();
	if (!blocks_question(text, n, &question) && question.n)
		abort();
	judge(&plan, n);
	judge(&question, n);
	enum ship_verdict v = ship_verdict(text, n, &why);
	if ((v == SHIP_VERDICT_BLOCKED) != (why.n > 0) && v != SHIP_VERDICT_BLOCKED)
		abort();
	if (!utf8_valid(buf_str(&why), why.n) || ship_verdict(text, n, NULL) != v)
		abort();
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
