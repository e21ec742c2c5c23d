/* Feeds bytes to the reader of `config`: a text is accepted only if each of its lines is, and every value of an
 * accepted one holds by itself. Built with -fsanitize=fuzzer, or with -DFUZZ_MAIN. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct config *c = NULL;
	struct err err = ERR_INIT;
	int rc = config_parse((const char *)p, n, &c, &err);
	if (rc && (c || rc != -err.code || !*err.text))
		abort();
	bool lines_hold = true;
	CLEAN_FREE char *copy = xstrndup((const char *)p, n);
	char *rest = copy;
	for (char *line; (line = strsep(&rest, "\n"));)
		lines_hold &= !config_line(line, strlen(line), NULL);
	if (!rc && !lines_hold)
		abort();
	if (rc)
		return 0;
	for (int i = 0; i < CONFIG_KEYS; i++)
		if (!c->value[i])
			abort();
	if (config_int(c, CONFIG_BOOT_TIMEOUT) <= 0 || config_int(c, CONFIG_WORKERS) <= 0)
		abort();
	config_put(c);
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
