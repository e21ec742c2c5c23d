/* Words for a failure. Any thread. */
#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

/* Cuts a text that filled its array back to a whole UTF-8 character, and makes it one line without control characters:
 * it may repeat what a sandbox or a file name said, and ends up in tables and on terminals. */
static void tidy(struct err *e)
{
	size_t n = strlen(e->text);
	if (n == sizeof e->text - 1)
		e->text[utf8_prefix(e->text, n, NULL)] = 0;
	while (n && e->text[n - 1] == '\n')
		e->text[--n] = 0;
	for (char *p = e->text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = ' ';
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	if (!e)
		return -code;
	/* fmt's arguments may point into e->text itself */
	char text[sizeof e->text];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	memcpy(e->text, text, sizeof text);
	e->code = code;
	tidy(e);
	return -code;
}

int err_sys(struct err *e, int code, const char *fmt, ...)
{
	if (!e)
		return -code;
	char text[sizeof e->text];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	/* strerror() is thread-safe in glibc and musl; strerror_r() has two shapes */
	return err_set(e, code, "%s: %s", text, strerror(code));
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	if (!e)
		return -EIO;
	char head[sizeof e->text];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(head, sizeof head, fmt, ap);
	va_end(ap);
	return err_set(e, e->code ? e->code : EIO, "%s: %s", head, e->text);
}
