/* Reads a TLS ClientHello (RFC 8446, 4.1.2; RFC 6066, 3) as strictly as servers do. Must never take for its name what a
 * server would not. */
#include "hello.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "backend/base/buf.h"

#define RECORD_MAX 16384

struct view { /* what is left to be read */
	const unsigned char *p;
	size_t n;
};

static bool number(struct view *v, int bytes, size_t *out)
{
	if (v->n < (size_t)bytes)
		return false;
	*out = 0;
	for (int i = 0; i < bytes; i++)
		*out = *out << 8 | v->p[i];
	v->p += bytes;
	v->n -= (size_t)bytes;
	return true;
}

/* A part that begins with its length. */
static bool part(struct view *v, int bytes, struct view *out)
{
	size_t n;
	if (!number(v, bytes, &n) || n > v->n)
		return false;
	*out = (struct view){v->p, n};
	v->p += n;
	v->n -= n;
	return true;
}

/* The handshake's bytes out of their records, up to the first of another kind; false: no such records. */
static bool unwrap(struct view v, struct buf *out, bool *ends)
{
	while (v.n) {
		size_t type, version, n;
		number(&v, 1, &type);
		*ends = type != 22;
		if (*ends)
			return true;
		if (v.n && *v.p != 3)
			return false;
		if (!number(&v, 2, &version) || !number(&v, 2, &n))
			return true;
		if (!n || n > RECORD_MAX)
			return false;
		n = n < v.n ? n : v.n;
		buf_add(out, v.p, n);
		v.p += n;
		v.n -= n;
	}
	return true;
}

/* One host name, and nothing else. */
static bool take_name(struct view v, char *out, size_t cap)
{
	struct view list, name;
	size_t type;
	if (!part(&v, 2, &list) || v.n || !number(&list, 1, &type) || type || !part(&list, 2, &name) || list.n ||
	    !name.n || name.n >= cap || memchr(name.p, 0, name.n))
		return false;
	memcpy(out, name.p, name.n);
	out[name.n] = 0;
	return true;
}

static bool take_hello(struct view v, char *out, size_t cap)
{
	struct view id, suites, methods, all, body;
	size_t version, random, type, names = 0;
	if (!number(&v, 2, &version))
		return false;
	for (int i = 0; i < 8; i++)
		if (!number(&v, 4, &random))
			return false;
	if (!part(&v, 1, &id) || id.n > 32 || !part(&v, 2, &suites) || !part(&v, 1, &methods) || !part(&v, 2, &all) ||
	    v.n)
		return false;
	while (all.n) {
		if (!number(&all, 2, &type) || !part(&all, 2, &body))
			return false;
		if (!type && (names++ || !take_name(body, out, cap)))
			return false;
	}
	return names == 1;
}

enum hello hello_name(const void *bytes, size_t n, char *out, size_t cap)
{
	struct view v = {bytes, n};
	CLEAN_BUF struct buf hand = BUF_INIT;
	size_t type, size;
	bool ends = false;
	*out = 0;
	if (n && *v.p != 22)
		return HELLO_OTHER;
	if (!unwrap(v, &hand, &ends))
		return HELLO_BAD;
	enum hello more = ends || n >= HELLO_MAX ? HELLO_BAD : HELLO_MORE;
	v = (struct view){(const unsigned char *)buf_str(&hand), hand.n};
	if (number(&v, 1, &type) && type != 1)
		return HELLO_BAD;
	if (!number(&v, 3, &size))
		return more;
	if (size > HELLO_MAX)
		return HELLO_BAD;
	if (v.n < size)
		return more;
	v.n = size;
	if (take_hello(v, out, cap))
		return HELLO_NAMED;
	*out = 0;
	return HELLO_BAD;
}
