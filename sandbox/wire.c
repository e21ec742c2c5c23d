/* Frames of the tool protocol: builds and takes them apart. Any thread. Must never trust a length. */
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"

#define HEAD  9 /* type, id, length of the head */
#define FIELD 5 /* tag, length */

static void put32(char *p, uint32_t v)
{
	for (int i = 3; i >= 0; i--, v >>= 8)
		p[i] = (char)(v & 255);
}

static uint32_t get32(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void wire_begin(struct wire_out *o, enum wire_type type, uint32_t id)
{
	char head[4 + HEAD] = {0};
	head[4] = (char)type;
	put32(head + 5, id);
	o->start = o->b.n;
	buf_add(&o->b, head, sizeof head);
}

void wire_add(struct wire_out *o, enum wire_tag tag, const void *p, size_t n)
{
	char head[FIELD] = {(char)tag};
	put32(head + 1, (uint32_t)n);
	buf_add(&o->b, head, sizeof head);
	buf_add(&o->b, p, n);
}

void wire_add_num(struct wire_out *o, enum wire_tag tag, uint64_t v)
{
	char p[8];
	put32(p, (uint32_t)(v >> 32));
	put32(p + 4, (uint32_t)v);
	wire_add(o, tag, p, sizeof p);
}

void wire_add_text(struct wire_out *o, enum wire_tag tag, const char *s)
{
	if (s)
		wire_add(o, tag, s, strlen(s));
}

void wire_end(struct wire_out *o, const void *payload, size_t n)
{
	put32(o->b.p + o->start + 4 + 5, (uint32_t)(o->b.n - o->start - 4 - HEAD));
	buf_add(&o->b, payload, n);
	put32(o->b.p + o->start, (uint32_t)(o->b.n - o->start - 4));
}

void wire_out_release(struct wire_out *o)
{
	buf_release(&o->b);
	o->start = 0;
}

const struct wire_field *wire_get(const struct wire_msg *m, enum wire_tag tag)
{
	for (size_t i = 0; i < m->n_fields; i++)
		if (m->fields[i].tag == tag)
			return &m->fields[i];
	return NULL;
}

uint64_t wire_num(const struct wire_msg *m, enum wire_tag tag, uint64_t fallback)
{
	const struct wire_field *f = wire_get(m, tag);
	return f && f->n == 8 ? (uint64_t)get32(f->p) << 32 | get32(f->p + 4) : fallback;
}

char *wire_text(const struct wire_msg *m, enum wire_tag tag)
{
	const struct wire_field *f = wire_get(m, tag);
	return f && !memchr(f->p, 0, f->n) ? xstrndup(f->p, f->n) : NULL;
}

void wire_reader_release(struct wire_reader *r)
{
	buf_release(&r->in);
	free(r->fields);
	*r = (struct wire_reader){0};
}

void wire_feed(struct wire_reader *r, const void *p, size_t n)
{
	/* frames that were handed out are dropped here, not in wire_next(), since messages point into them */
	if (r->at) {
		buf_drop(&r->in, r->at);
		r->at = 0;
	}
	buf_add(&r->in, p, n);
}

static bool repeats(uint8_t tag)
{
	return tag == WIRE_ARGV || tag == WIRE_ENVIRON;
}

static bool read_fields(struct wire_reader *r, struct wire_msg *m, const char *p, size_t n)
{
	uint8_t last = 0;
	m->n_fields = 0;
	while (n) {
		if (n < FIELD || m->n_fields == WIRE_FIELDS)
			return false;
		struct wire_field f = {.p = p + FIELD, .n = get32(p + 1), .tag = (uint8_t)p[0]};
		if (!f.tag || f.tag >= WIRE_TAGS || f.n > n - FIELD || f.tag < last ||
		    (f.tag == last && !repeats(f.tag)))
			return false;
		if (m->n_fields == r->cap) {
			r->cap = r->cap ? r->cap * 2 : 16;
			r->fields = xrealloc(r->fields, r->cap * sizeof *r->fields);
		}
		r->fields[m->n_fields++] = f;
		last = f.tag;
		p += FIELD + f.n;
		n -= FIELD + f.n;
	}
	m->fields = r->fields;
	return true;
}

int wire_next(struct wire_reader *r, struct wire_msg *m)
{
	const char *p = r->in.p + r->at;
	size_t have = r->in.n - r->at;
	if (have < 4)
		return 0;
	uint32_t n = get32(p);
	if (n < HEAD || n > WIRE_MAX)
		return -EBADMSG;
	if (have - 4 < n)
		return 0;
	*m = (struct wire_msg){.type = (unsigned char)p[4], .id = get32(p + 5)};
	uint32_t head = get32(p + 9);
	if (!m->type || m->type >= WIRE_TYPES || head > n - HEAD)
		return -EBADMSG;
	p += 4 + HEAD;
	if (!read_fields(r, m, p, head))
		return -EBADMSG;
	m->payload = p + head;
	m->payload_n = n - HEAD - head;
	r->at += 4 + n;
	return 1;
}
