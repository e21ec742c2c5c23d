/* Fuzz target: `.agents/project.json` as a commit may bring it. What is taken keeps the limits; what is refused has
 * words and leaves nothing behind. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/parse/project.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct project project;
	struct err err = ERR_INIT;
	int rc = project_parse(n ? (const char *)p : "", n, &project, &err);
	if (rc && (!err.code || !*err.text || project.n_checks || project.checks))
		abort();
	if (project.n_checks > PROJECT_CHECKS)
		abort();
	for (size_t i = 0; i < project.n_checks; i++) {
		const struct project_check *c = &project.checks[i];
		if (!*c->name || strpbrk(c->name, "\t\n") || !*c->command || strlen(c->command) > PROJECT_COMMAND_MAX)
			abort();
		if (c->timeout_ms < 0 || c->timeout_ms > PROJECT_TIMEOUT_MAX * 1000)
			abort();
	}
	project_release(&project);
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
