/* Small helpers on C strings. Any thread. */
#pragma once

char *text_trim(char *s); /* cuts blanks (space, tab, CR, newline) at both ends, in place */
