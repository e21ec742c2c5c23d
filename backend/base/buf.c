/* A growing byte string. Any thread; one owner. */
#include "buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

#define ADD_GUESS 48 /* bytes that most formatted pieces fit into */

void buf_release(struct buf *b)
{
	free(b->p);
	*b = BUF_INIT;
}

void buf_reset(struct buf *b)
{
	buf_cut(b, 0);
}

void buf_reserve(struct buf *b, size_t extra)
{
	size_t need = b->n + extra + 1;
	if (need <= b->cap)
		return;
	size_t cap = b->cap ? b->cap + b->cap / 2 : 64;
	b->cap = cap > need ? cap : need;
	b->p = xrealloc(b->p, b->cap);
	b->p[b->n] = 0;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
	buf_reserve(b, n);
	if (n)
		memcpy(b->p + b->n, data, n);
	b->n += n;
	b->p[b->n] = 0;
}

void buf_adds(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_addi(struct buf *b, int64_t n)
{
	char text[24];
	size_t at = sizeof text;
	uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
	do {
		text[--at] = (char)('0' + left % 10);
	} while (left /= 10);
	if (n < 0)
		text[--at] = '-';
	buf_add(b, text + at, sizeof text - at);
}

void buf_addc(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_addv(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	va_copy(again, ap);
	buf_reserve(b, ADD_GUESS);
	size_t room = b->cap - b->n;
	int n = vsnprintf(b->p + b->n, room, fmt, ap);
	if (n > 0 && (size_t)n >= room) { /* now it is known how much it takes */
		buf_reserve(b, (size_t)n);
		vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
	}
	b->n += n > 0 ? (size_t)n : 0;
	b->p[b->n] = 0;
	va_end(again);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	buf_addv(b, fmt, ap);
	va_end(ap);
}

void buf_cut(struct buf *b, size_t n)
{
	if (n < b->n)
		b->n = n;
	if (b->p)
		b->p[b->n] = 0;
}

void buf_drop(struct buf *b, size_t n)
{
	if (n > b->n)
		n = b->n;
	if (!n)
		return;
	memmove(b->p, b->p + n, b->n - n);
	buf_cut(b, b->n - n);
}

const char *buf_str(const struct buf *b)
{
	return b->p ? b->p : "";
}

char *buf_take(struct buf *b)
{
	buf_reserve(b, 0);
	char *p = b->p;
	p[b->n] = 0;
	*b = BUF_INIT;
	return p;
}

bool buf_ends(const struct buf *b, const char *suffix)
{
	size_t n = strlen(suffix);
	return b->n >= n && !memcmp(b->p + b->n - n, suffix, n);
}
