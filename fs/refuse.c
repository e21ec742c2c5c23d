/* The `error` files. A refusal has gone to its caller as an errno already; these are the words. In memory only: what
 * has to survive a restart is in a session's log. Loop thread only. */
#include "refuse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "changes.h"
#include "face.h"

struct entry {
	int64_t at_ms;
	char *path, *words;
	int code;
};

struct ring {
	struct entry entry[RING_MAX]; /* oldest first */
	size_t n;
	int64_t changed_ms;
};

static void entry_release(struct entry *e)
{
	free(e->path);
	free(e->words);
	*e = (struct entry){0};
}

/* Names come from anybody: one line of valid text, whatever they hold. */
static char *clean(const char *s)
{
	struct buf out = BUF_INIT;
	if (!s)
		return NULL;
	utf8_clean(&out, s, strlen(s));
	for (size_t i = 0; i < out.n; i++)
		if (out.p[i] == '\n')
			out.p[i] = ' ';
	return buf_take(&out);
}

static void ring_add(struct ring **ring, const char *path, const struct err *err)
{
	if (!*ring)
		*ring = xcalloc(1, sizeof **ring);
	struct ring *r = *ring;
	struct entry *last = r->n ? &r->entry[r->n - 1] : NULL;
	char *words = clean(err->text);
	if (last && last->code == err->code && !strcmp(last->words, words)) {
		entry_release(last); /* rm -r of a directory would push out everything else */
		r->n--;
	} else if (r->n == RING_MAX) {
		entry_release(&r->entry[0]);
		memmove(&r->entry[0], &r->entry[1], (RING_MAX - 1) * sizeof r->entry[0]);
		r->n--;
	}
	r->changed_ms = clock_real_ms();
	r->entry[r->n++] = (struct entry){
		.at_ms = r->changed_ms,
		.path = clean(path),
		.words = words,
		.code = err->code,
	};
}

int refuse(struct face *f, int64_t session, const char *path, const struct err *err)
{
	struct session *s = session ? session_by_id(f, session) : NULL;
	ring_add(&f->errors, path, err);
	if (s)
		ring_add(&s->errors, path, err);
	changes_of_errors(f, s ? session : 0);
	return -err->code;
}

int refuse_rc(struct face *f, int64_t session, const char *path, int rc, const struct err *err)
{
	struct err words = *err;
	if (!words.text[0])
		err_sys(&words, -rc, "refused");
	words.code = -rc;
	return refuse(f, session, path, &words);
}

int refuse_at(const struct spot *at, const char *name, int code, const char *fmt, ...)
{
	struct err err = {.code = code};
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(err.text, sizeof err.text, fmt, ap);
	va_end(ap);
	CLEAN_FREE char *path = spot_path(at, name);
	return refuse(at->f, at->session ? at->session->id : 0, path, &err);
}

void ring_print(const struct ring *ring, struct buf *out)
{
	for (size_t i = 0; ring && i < ring->n; i++) {
		const struct entry *e = &ring->entry[i];
		char when[CLOCK_TEXT];
		const char *code = e->code ? strerrorname_np(e->code) : NULL;
		buf_addf(out, "%s %s%s", clock_rfc3339(e->at_ms, when), e->path ? e->path : "", e->path ? ": " : "");
		buf_adds(out, e->words);
		if (code)
			buf_addf(out, " (%s)", code);
		buf_addc(out, '\n');
	}
}

int64_t ring_changed(const struct ring *ring)
{
	return ring ? ring->changed_ms : 0;
}

void ring_clear(struct ring *ring)
{
	if (!ring)
		return;
	for (size_t i = 0; i < ring->n; i++)
		entry_release(&ring->entry[i]);
	ring->n = 0;
	ring->changed_ms = clock_real_ms();
}

void errors_clear(const struct spot *at)
{
	ring_clear(at->session ? at->session->errors : at->f->errors);
	changes_of_errors(at->f, at->session ? at->session->id : 0);
}

void ring_free(struct ring *ring)
{
	ring_clear(ring);
	free(ring);
}
