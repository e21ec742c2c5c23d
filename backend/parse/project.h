/* What a project says about itself: `.agents/project.json`. Any thread, no I/O. */
#pragma once
#include <stddef.h>

#include "backend/base/err.h"

#define PROJECT_FILE	    ".agents/project.json"
#define PROJECT_FILE_MAX    (256 << 10) /* bytes of it */
#define PROJECT_CHECKS	    64
#define PROJECT_CHECK_NAME  64	       /* characters */
#define PROJECT_COMMAND_MAX (16 << 10) /* bytes */
#define PROJECT_TIMEOUT_MAX 86400      /* seconds: a day */

struct project_check {
	char *name;	/* 1-64 printable characters, unique */
	char *command;	/* for bash -c, in the clone's root */
	int timeout_ms; /* 0: the configured default */
};
struct project {
	struct project_check *checks; /* in the file's order */
	size_t n_checks;
};

/* Parses the file's bytes. -EINVAL with words that name the check by its number (from 1), and out is empty:
 *   {"checks": [{"name": "test", "command": "make test", "timeout": 60}]}
 * timeout in seconds. Other keys beside "checks" are left to others; an unknown key in a check is refused, since a
 * mistyped timeout would be no timeout. */
int project_parse(const char *text, size_t n, struct project *out, struct err *err);
void project_release(struct project *p);
