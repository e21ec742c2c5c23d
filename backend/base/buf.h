/* A growing byte string, always followed by a NUL that does not count. Any thread; one owner. */
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	char *p;    /* NULL until the first byte; use buf_str() for a C string */
	size_t n;   /* bytes in use */
	size_t cap; /* bytes allocated */
};

#define BUF_INIT  ((struct buf){0})
#define CLEAN_BUF __attribute__((cleanup(buf_release)))

void buf_release(struct buf *b);	       /* frees; b is empty and usable afterwards */
void buf_reset(struct buf *b);		       /* empties, keeps the memory */
void buf_reserve(struct buf *b, size_t extra); /* room for extra more bytes */
void buf_add(struct buf *b, const void *data, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_addi(struct buf *b, int64_t n); /* in decimal, without the cost of a format */
__attribute__((format(printf, 2, 3))) void buf_addf(struct buf *b, const char *fmt, ...);
void buf_addv(struct buf *b, const char *fmt, va_list ap);
void buf_cut(struct buf *b, size_t n);	  /* shortens to n bytes */
void buf_drop(struct buf *b, size_t n);	  /* removes the first n bytes */
const char *buf_str(const struct buf *b); /* C string, never NULL, valid until the next change */
char *buf_take(struct buf *b);		  /* the bytes as a malloc'd C string; b becomes empty */
bool buf_ends(const struct buf *b, const char *suffix);
