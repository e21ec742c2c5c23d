/* Small helpers on C strings. Any thread. */
#include "text.h"

#include <string.h>

char *text_trim(char *s)
{
	s += strspn(s, " \t\r\n");
	size_t n = strlen(s);
	while (n && strchr(" \t\r\n", s[n - 1]))
		s[--n] = 0;
	return s;
}

void text_one_line(char *s, size_t n)
{
	for (; s && *s && n; s++, n--)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			*s = ' ';
	if (s)
		*s = 0;
}
