/* Allocation that cannot fail. Any thread. */
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *need(void *p)
{
	static const char words[] = "berthfs: out of memory; everything acknowledged is on disk, start it again\n";
	if (p)
		return p;
	ssize_t r = write(2, words, sizeof words - 1);
	(void)r;
	abort();
}

void *xmalloc(size_t n)
{
	return need(malloc(n ? n : 1));
}

void *xcalloc(size_t n, size_t size)
{
	return need(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t n)
{
	return need(realloc(p, n ? n : 1));
}

char *xstrdup(const char *s)
{
	return s ? need(strdup(s)) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
	return s ? need(strndup(s, n)) : NULL;
}

void *xmemdup(const void *p, size_t n)
{
	void *d = xmalloc(n);
	if (n)
		memcpy(d, p, n);
	return d;
}

char *xvasprintf(const char *fmt, va_list ap)
{
	char *s;
	if (vasprintf(&s, fmt, ap) < 0)
		s = NULL;
	return need(s);
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	char *s = xvasprintf(fmt, ap);
	va_end(ap);
	return s;
}
