/* Server-sent events, as the HTML standard has them: lines end with LF, CR or CRLF, wherever a read was cut. Never
 * looks into an event's data. */
#include "sse.h"

#include <errno.h>
#include <string.h>

void sse_init(struct sse *s, size_t max, sse_fn *fn, void *arg)
{
	*s = (struct sse){.fn = fn, .arg = arg, .max = max};
}

void sse_release(struct sse *s)
{
	buf_release(&s->line);
	buf_release(&s->name);
	buf_release(&s->data);
}

static int dispatch(struct sse *s, struct err *err)
{
	int rc = 0;
	if (s->has_data) {
		buf_cut(&s->data, s->data.n - 1); /* the newline after the last line */
		rc = s->data.n ? s->fn(s->arg, buf_str(&s->name), buf_str(&s->data), s->data.n, err) : 0;
	}
	buf_reset(&s->name);
	buf_reset(&s->data);
	s->has_data = false;
	return rc;
}

/* `field: value`, `field:value` or `field`; id and retry are of no use here. */
static void field(struct sse *s, const char *p, size_t n)
{
	const char *colon = memchr(p, ':', n);
	size_t name = colon ? (size_t)(colon - p) : n;
	const char *value = colon ? colon + 1 : p + n;
	if (value < p + n && *value == ' ')
		value++;
	size_t size = (size_t)(p + n - value);
	if (name == 4 && !memcmp(p, "data", 4)) {
		buf_add(&s->data, value, size);
		buf_addc(&s->data, '\n');
		s->has_data = true;
	} else if (name == 5 && !memcmp(p, "event", 5)) {
		buf_reset(&s->name);
		buf_add(&s->name, value, size);
	}
}

static int end_line(struct sse *s, struct err *err)
{
	const char *p = buf_str(&s->line);
	size_t n = s->line.n;
	int rc = 0;
	if (!s->begun && n >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3)) {
		p += 3;
		n -= 3;
	}
	s->begun = true;
	if (!n)
		rc = dispatch(s, err);
	else if (*p != ':')
		field(s, p, n);
	buf_reset(&s->line);
	return rc;
}

int sse_feed(struct sse *s, const char *p, size_t n, struct err *err)
{
	int rc = 0;
	for (size_t at = 0; at < n && !rc;) {
		if (s->skip_lf && p[at] == '\n')
			at++;
		s->skip_lf = false;
		size_t len = 0;
		while (at + len < n && p[at + len] != '\n' && p[at + len] != '\r')
			len++;
		buf_add(&s->line, p + at, len);
		if (s->line.n + s->name.n + s->data.n > s->max)
			return err_set(err, EMSGSIZE, "the model's answer has an event of more than %zu bytes", s->max);
		at += len;
		if (at == n)
			break;
		s->skip_lf = p[at++] == '\r';
		rc = end_line(s, err);
	}
	return rc;
}
