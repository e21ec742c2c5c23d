/* What a name or a first line in the drop box means. Pure; any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* A name that editors and savers use for a moment: .x, x~, #x#, vim's 4913 and its successors, and those that end as
 * temporary files do (x.tmp). Files of such names are drafts and never become sessions. */
bool name_is_scratch(const char *name);

enum front {
	FRONT_UNDECIDED, /* so short that it may still become either */
	FRONT_NONE,	 /* the whole text is the message */
	FRONT_OPEN,	 /* between the first --- line and the second */
	FRONT_FINISHED,
};
enum front front_of(const char *p, size_t n);
/* Where the message begins: after the second --- line, or 0. */
size_t front_body(const char *p, size_t n);
