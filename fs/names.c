/* What a name or a first line in the drop box means. Pure. */
#include "names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"

/* Of files that a saver writes and then renames, and of what it puts aside: of whoever writes NAME.tmp, of browsers, of
 * VS Code, of the JetBrains editors, of patch, and of nano whose terminal has gone. A number may follow. */
static bool has_scratch_end(const char *name, size_t n)
{
	static const char *const ends[] = {".tmp",  ".part",   ".swp",	       ".bak",	      ".orig",
					   ".save", ".vsctmp", "___jb_tmp___", "___jb_old___"};
	size_t digits = 0;
	while (digits < n && isdigit((unsigned char)name[n - 1 - digits]))
		digits++;
	if (digits && digits < n && name[n - 1 - digits] == '.')
		n -= digits + 1;
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		size_t len = strlen(ends[i]);
		if (n > len && !memcmp(name + n - len, ends[i], len))
			return true;
	}
	return false;
}

bool name_is_scratch(const char *name)
{
	size_t n = strlen(name);
	if (!n || name[0] == '.' || name[n - 1] == '~')
		return true;
	if ((n > 1 && name[0] == '#' && name[n - 1] == '#') || has_scratch_end(name, n))
		return true;
	if (strspn(name, "0123456789") != n || n > 6)
		return false;
	long v = strtol(name, NULL, 10); /* vim tries 4913, then 123 further on while the name is taken */
	return v >= 4913 && (v - 4913) % 123 == 0;
}

/* Length of the line at p without its newline, and whether it has one. A carriage return before it is ignored. */
static size_t line_of(const char *p, size_t n, bool *ended)
{
	const char *nl = memchr(p, '\n', n);
	size_t len = nl ? (size_t)(nl - p) : n;
	*ended = nl;
	return len;
}

static bool is_fence(const char *p, size_t len)
{
	while (len > 3 && isspace((unsigned char)p[len - 1]))
		len--;
	return len == 3 && !memcmp(p, "---", 3);
}

/* Both questions at once; *body is only set when the front matter is finished. */
static enum front look(const char *p, size_t n, size_t *body)
{
	bool ended;
	if (!n)
		return FRONT_UNDECIDED;
	size_t len = line_of(p, n, &ended);
	if (!ended && (len < 3 ? !memcmp(p, "---", len) : is_fence(p, len)))
		return FRONT_UNDECIDED;
	if (!is_fence(p, len))
		return FRONT_NONE;
	for (size_t at = len + 1; at < n; at += len + 1) {
		len = line_of(p + at, n - at, &ended);
		if (!ended || !is_fence(p + at, len))
			continue;
		*body = at + len + 1;
		return FRONT_FINISHED;
	}
	return FRONT_OPEN;
}

enum front front_of(const char *p, size_t n)
{
	size_t body = 0;
	return look(p, n, &body);
}

size_t front_body(const char *p, size_t n)
{
	size_t body = 0;
	look(p, n, &body);
	return body;
}
