/* Takes secrets out of text: known shapes (keys of providers, forges and clouds, tokens, private key blocks) and values
 * of this process' own environment. Time grows with the text alone. Any thread. */
#pragma once
#include <stddef.h>

#include "backend/base/buf.h"

#define REDACT_CONTEXT                                                                                                 \
	(16 << 10) /* bytes around a cut that are enough to know a secret by: a private key of 8192 bits               \
		      takes 6.5 KiB */

/* Appends p[from, to) to out with `[redacted: WHAT]` in place of each secret; p[0, from) and p[to, n) are looked at, so
 * that one which the cut divides is known as well. Returns how many were taken out. */
size_t redact(struct buf *out, const char *p, size_t n, size_t from, size_t to);
