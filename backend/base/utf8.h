/* UTF-8 checks. Any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "buf.h"

/* Length of the valid prefix; n if all is valid. NUL, surrogates and overlong forms are invalid. A sequence cut by
 * the end stops the prefix; *cut (if not NULL) tells whether more bytes could still make it valid. */
size_t utf8_prefix(const char *p, size_t n, bool *cut);
bool utf8_valid(const char *p, size_t n);
/* Appends p with each invalid byte replaced by U+FFFD and control characters but tab and newline removed. */
void utf8_clean(struct buf *out, const char *p, size_t n);
/* The same, but control characters other than NUL stay: for diffs, whose carriage returns count. */
void utf8_scrub(struct buf *out, const char *p, size_t n);
bool utf8_blank(const char *p, size_t n); /* only white space */
