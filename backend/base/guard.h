/* Patterns of protected paths. Any thread, no I/O. Compiles for the static guest too.
 *
 * A list is words with blanks between them; the last one that matches counts:
 *	NAME    a file of that name in any folder     .env*
 *	A/B     the same with its folder              .docker/config.json
 *	NAME/   a folder, and all that is below it    .ssh/
 *	/A/B    from the root                         /proc/ * /environ (without the blanks)
 *	!...    what is not protected after all       !.env.example
 * `*`, `?` and `[...]` match as in a shell, never across a slash. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define GUARD_WORD_MAX 255 /* bytes of one pattern */

/* Does the list protect this absolute path? which (n bytes, may be NULL) gets the pattern that decided. */
bool guard_match(const char *list, const char *path, char *which, size_t n);
/* Is the list well formed? -EINVAL in words. */
int guard_check(const char *list, struct err *err);
