/* The text of one message while it is being written. Pure; does no I/O. */
#include "message.h"

#include <errno.h>

#include "backend/backend.h"
#include "backend/base/utf8.h"

void message_release(struct message *m)
{
	buf_release(&m->text);
	*m = (struct message){0};
}

void message_drop(struct message *m)
{
	buf_reset(&m->text);
	m->checked = 0;
}

static int fail(struct message *m, int rc)
{
	message_drop(m);
	m->failed = rc;
	return rc;
}

int message_add(struct message *m, const char *p, size_t n, struct err *err)
{
	if (m->failed)
		return m->failed;
	if (n > MESSAGE_MAX || m->text.n + n > MESSAGE_MAX)
		return fail(m, err_set(err, EFBIG,
				       "a message is at most 1 MiB; all of this one was dropped. Put long "
				       "material in a file of the project and name it in the message"));
	buf_add(&m->text, p, n);
	bool cut = false;
	size_t left = m->text.n - m->checked;
	size_t good = utf8_prefix(m->text.p + m->checked, left, &cut);
	if (good < left && !cut)
		return fail(m, err_set(err, EILSEQ, "byte %zu is not UTF-8 text%s; all of this message was dropped",
				       m->checked + good + 1, m->text.p[m->checked + good] ? "" : " (a NUL)"));
	m->checked += good;
	return 0;
}

int message_end(const struct buf *text, struct err *err)
{
	if (!utf8_valid(text->p, text->n))
		return err_set(err, EILSEQ, "the text is not UTF-8 or ends inside a character; it was not sent");
	if (utf8_blank(text->p, text->n))
		return err_set(err, EINVAL, "a message of white space only is not sent; write some words");
	return 0;
}
