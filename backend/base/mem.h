/* Allocation that cannot fail: out of memory ends the process with a message, since every
 * commit is durable and a restart loses nothing. Any thread. Results are freed with free(). */
#pragma once
#include <stdarg.h>
#include <stddef.h>

void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);		 /* NULL gives NULL */
char *xstrndup(const char *s, size_t n); /* at most n bytes, always terminated */
void *xmemdup(const void *p, size_t n);
__attribute__((format(printf, 1, 2))) char *xasprintf(const char *fmt, ...);
char *xvasprintf(const char *fmt, va_list ap);

static inline void free_ptr(void *pp)
{
	extern void free(void *);
	free(*(void **)pp);
}
/* CLEAN_FREE char *s = ...; frees s when it leaves scope. */
#define CLEAN_FREE __attribute__((cleanup(free_ptr)))
/* take(p): moves ownership out of a CLEAN_FREE variable. */
#define take(p)                                                                                                        \
	({                                                                                                             \
		__typeof__(p) t_ = (p);                                                                                \
		(p) = NULL;                                                                                            \
		t_;                                                                                                    \
	})
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
