/* Feeds bytes to the strict JSON reader and checks what it promises: what it accepts is UTF-8 without NUL and without
 * duplicate keys, and prints and reads again to the same. Built with -fsanitize=fuzzer, or with -DFUZZ_MAIN. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/utf8.h"

static void no_duplicates(const cJSON *o)
{
	for (const cJSON *a = o->child; a; a = a->next) {
		int n = 0;
		for (const cJSON *b = a->next; cJSON_IsObject(o) && b && n < 50; b = b->next, n++)
			if (!strcmp(a->string, b->string))
				abort();
		no_duplicates(a);
	}
}

/* Strings of values may be shorter; nothing else differs. */
static void same_form(const cJSON *a, const cJSON *b)
{
	for (; a && b; a = a->next, b = b->next) {
		if (a->type != b->type || (a->string && strcmp(a->string, b->string)) ||
		    (cJSON_IsString(a) && strncmp(a->valuestring, b->valuestring, strlen(b->valuestring))))
			abort();
		same_form(a->child, b->child);
	}
	if (a || b)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct err err = ERR_INIT;
	CLEAN_BUF struct buf once = BUF_INIT, twice = BUF_INIT;
	CLEAN_JSON cJSON *o = json_parse((const char *)p, n, &err);
	CLEAN_JSON cJSON *brief = json_parse_cut((const char *)p, n, 3, NULL);
	if (!brief != !o)
		abort();
	if (!o) {
		if (!err.code || !utf8_valid(err.text, strlen(err.text)))
			abort();
		return 0;
	}
	if (!utf8_valid((const char *)p, n))
		abort();
	no_duplicates(o);
	same_form(o, brief);
	json_print(&once, o);
	CLEAN_JSON cJSON *again = json_parse(once.p, once.n, &err);
	if (!again)
		abort();
	json_print(&twice, again);
	if (once.n != twice.n || memcmp(once.p, twice.p, once.n))
		abort();
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
