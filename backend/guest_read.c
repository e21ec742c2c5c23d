/* Output → lines → events. Must never take half a line for a whole one, nor grow with what a hostile program prints. */
#include "guest_read.h"

#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"

#define EVENTS_MAX 256	     /* of one line */
#define PIECE_MAX  (4 << 20) /* bytes of a text that streams */

void guest_reader_init(struct guest_reader *r, guest_format *format, uint64_t at)
{
	*r = (struct guest_reader){.format = format, .at = at};
}

static void line_release(struct guest_line *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->events[i].id);
		free(l->events[i].name);
		free(l->events[i].text);
	}
	free(l->events);
}

void guest_reader_release(struct guest_reader *r)
{
	guest_drop(r, r->n);
	free(r->lines);
	buf_release(&r->rest);
	buf_release(&r->piece);
	*r = (struct guest_reader){0};
}

/* ---- for the formats ---- */

static char *clean(const char *text)
{
	if (!text)
		return NULL;
	CLEAN_BUF struct buf b = BUF_INIT;
	utf8_clean(&b, text, strlen(text));
	return xstrdup(buf_str(&b));
}

static struct guest_event *event(struct guest_reader *r, enum guest_what what)
{
	struct guest_line *l = &r->lines[r->n - 1];
	if (l->n == EVENTS_MAX)
		return NULL;
	l->events = xrealloc(l->events, (l->n + 1) * sizeof *l->events);
	l->events[l->n] = (struct guest_event){.what = what};
	return &l->events[l->n++];
}

void guest_add(struct guest_reader *r, enum guest_what what, const char *id, const char *name, const char *text,
	       bool error)
{
	struct guest_event *e = event(r, what);
	if (!e)
		return;
	e->id = clean(id);
	e->name = clean(name);
	e->text = clean(text);
	e->error = error;
	if (what == GUEST_TEXT)
		buf_reset(&r->piece);
}

void guest_used(struct guest_reader *r, int64_t requests, int64_t in, int64_t out, int64_t cached)
{
	struct guest_event *e = event(r, GUEST_USED);
	if (!e)
		return;
	e->requests = requests;
	e->in = in;
	e->out = out;
	e->cached = cached;
}

void guest_piece(struct guest_reader *r, const char *text)
{
	if (text && r->piece.n < PIECE_MAX)
		utf8_clean(&r->piece, text, strlen(text));
}

/* ---- lines ---- */

static void push(struct guest_reader *r, uint64_t from, uint64_t to)
{
	r->lines = xrealloc(r->lines, (r->n + 1) * sizeof *r->lines);
	r->lines[r->n++] = (struct guest_line){.from = from, .to = to};
}

static void pop_if_empty(struct guest_reader *r)
{
	if (!r->lines[r->n - 1].n)
		r->n--;
}

/* What is no JSON object is no event: warnings that a program prints between them. */
static void one_line(struct guest_reader *r, const char *p, size_t n, uint64_t to)
{
	uint64_t from = r->at;
	r->at = to;
	if (!n || *p != '{')
		return;
	CLEAN_BUF struct buf text = BUF_INIT;
	utf8_scrub(&text, p, n);
	CLEAN_JSON cJSON *o = json_parse(buf_str(&text), text.n, NULL);
	if (!cJSON_IsObject(o))
		return;
	push(r, from, to);
	r->format(r, o);
	pop_if_empty(r);
}

static void too_long(struct guest_reader *r)
{
	push(r, r->at, r->at);
	guest_add(r, GUEST_NOTE, NULL, NULL, "a line of the agent's output is too long and left out", false);
}

static void feed_lines(struct guest_reader *r, const char *p, size_t n)
{
	while (n) {
		const char *nl = memchr(p, '\n', n);
		size_t part = nl ? (size_t)(nl - p) : n, whole = part + (nl != NULL);
		if (r->skipping) {
			r->at += whole;
			r->skipping = !nl;
		} else if (r->rest.n + part > GUEST_LINE_MAX) {
			too_long(r);
			r->at += r->rest.n + whole;
			buf_reset(&r->rest);
			r->skipping = !nl;
		} else if (!nl) {
			buf_add(&r->rest, p, part);
		} else if (r->rest.n) {
			buf_add(&r->rest, p, part);
			one_line(r, r->rest.p, r->rest.n, r->at + r->rest.n + 1);
			buf_reset(&r->rest);
		} else {
			one_line(r, p, part, r->at + whole);
		}
		p += whole;
		n -= whole;
	}
}

/* Plain text is kept from its end; its begin is cut at a whole character. */
static void feed_text(struct guest_reader *r, const char *p, size_t n)
{
	buf_add(&r->rest, p, n);
	if (r->rest.n <= 2 * GUEST_ANSWER_MAX)
		return;
	CLEAN_BUF struct buf end = BUF_INIT;
	buf_add(&end, r->rest.p + r->rest.n - GUEST_ANSWER_MAX, GUEST_ANSWER_MAX);
	r->at += r->rest.n - GUEST_ANSWER_MAX;
	struct buf old = r->rest;
	r->rest = end;
	end = old;
}

void guest_feed(struct guest_reader *r, const char *p, size_t n)
{
	if (r->format)
		feed_lines(r, p, n);
	else
		feed_text(r, p, n);
}

void guest_feed_end(struct guest_reader *r)
{
	uint64_t to = r->at + r->rest.n;
	if (r->format) {
		if (!r->skipping && r->rest.n)
			one_line(r, r->rest.p, r->rest.n, to);
		buf_reset(&r->rest);
		return;
	}
	const char *p = buf_str(&r->rest);
	size_t n = r->rest.n, skip = n > GUEST_ANSWER_MAX ? n - GUEST_ANSWER_MAX : 0;
	while (skip < n && (p[skip] & 0xC0) == 0x80)
		skip++;
	while (n > skip && strchr("\r\n \t", p[n - 1]))
		n--;
	CLEAN_FREE char *text =
		xasprintf("%s%.*s", skip || r->at ? "[only the end of it is kept]\n" : "", (int)(n - skip), p + skip);
	push(r, r->at, to);
	guest_add(r, GUEST_TEXT, NULL, NULL, n > skip ? text : "(no output)", false);
	r->at = to;
	buf_reset(&r->rest);
}

uint64_t guest_fed(const struct guest_reader *r)
{
	return r->at + r->rest.n;
}

/* ---- taking ---- */

static bool tells(const struct guest_event *e)
{
	return e->what == GUEST_TEXT || e->what == GUEST_CALL || e->what == GUEST_RESULT || e->what == GUEST_FAULT;
}

/* What counts only if nothing follows it: so it has to be found again after a restart. */
static bool held(const struct guest_event *e)
{
	return e->what == GUEST_TEXT || e->what == GUEST_FAULT;
}

size_t guest_ready(const struct guest_reader *r)
{
	for (size_t i = r->n; i-- > 0;)
		for (size_t k = r->lines[i].n; k-- > 0;)
			if (tells(&r->lines[i].events[k]))
				return held(&r->lines[i].events[k]) ? i : r->n;
	return r->n;
}

uint64_t guest_offset(const struct guest_reader *r, size_t n)
{
	if (n < r->n)
		return r->lines[n].from;
	return r->format ? r->at : 0; /* plain text is read again as a whole */
}

void guest_drop(struct guest_reader *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		line_release(&r->lines[i]);
	if (r->n)
		memmove(r->lines, r->lines + n, (r->n - n) * sizeof *r->lines);
	r->n -= n;
}

const char *guest_pending(const struct guest_reader *r)
{
	size_t ready = guest_ready(r);
	if (!r->format)
		return buf_str(&r->rest);
	if (r->piece.n)
		return buf_str(&r->piece);
	for (size_t i = ready; i < r->n; i++)
		for (size_t k = 0; k < r->lines[i].n; k++)
			if (r->lines[i].events[k].what == GUEST_TEXT)
				return r->lines[i].events[k].text;
	return "";
}
