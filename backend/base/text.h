/* Small helpers on C strings. Any thread. */
#pragma once
#include <stddef.h>

/* Makes it one line without control characters (each becomes a space) of at most n bytes, in place. NULL is fine. */
void text_one_line(char *s, size_t n);
char *text_trim(char *s); /* cuts blanks (space, tab, CR, newline) at both ends, in place */
