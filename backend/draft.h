/* A draft in the drop box: front matter and the first message. Any thread. */
#pragma once
#include <stdbool.h>

#include "backend/base/err.h"

enum draft_key {
	DRAFT_PROJECT,
	DRAFT_MODEL,
	DRAFT_SANDBOX,
	DRAFT_SIZE,
	DRAFT_NETWORK,
	DRAFT_AFTER_RUN,
	DRAFT_SHIP,
	DRAFT_APPROVALS,
	DRAFT_AGENT,
	DRAFT_FROM, /* name or id of the session to begin as */
	DRAFT_KEYS,
};

struct draft {
	char *value[DRAFT_KEYS]; /* NULL where the front matter has none */
	bool open;		 /* the front matter has begun and its end is not there yet */
	const char *message;	 /* points into the text that was parsed; NULL while open */
};

/* Parses what has been written so far. Complete lines are judged; a last line without its newline is not, unless
 * `whole`. -EINVAL in words (line, reason, known keys), -EOPNOTSUPP for what is not built yet. */
int draft_parse(const char *text, bool whole, struct draft *out, struct err *err);
void draft_release(struct draft *d);
