/* Blocks in a model's answer, read the way Markdown reads fences. Any thread, no I/O; never trusts the text. */
#include "blocks.h"

#include <string.h>
#include <strings.h>

#include "backend/base/utf8.h"

struct line {
	const char *p;
	size_t n; /* without its CR LF */
};

static bool next_line(const char **at, const char *end, struct line *out)
{
	if (*at >= end)
		return false;
	const char *nl = memchr(*at, '\n', (size_t)(end - *at));
	*out = (struct line){*at, (size_t)((nl ? nl : end) - *at)};
	*at = nl ? nl + 1 : end;
	while (out->n && out->p[out->n - 1] == '\r')
		out->n--;
	return true;
}

static size_t indent_of(struct line l)
{
	size_t i = 0;
	while (i < l.n && (l.p[i] == ' ' || l.p[i] == '\t'))
		i++;
	return i;
}

struct fence {
	char mark;     /* ` or ~; 0: none open */
	size_t length; /* of the opening run */
	size_t indent;
	struct line info;
};

/* A run of three or more marks at the line's start. */
static bool fence_line(struct line l, struct fence *f)
{
	f->indent = indent_of(l);
	size_t i = f->indent;
	if (i >= l.n || (l.p[i] != '`' && l.p[i] != '~'))
		return false;
	f->mark = l.p[i];
	while (i < l.n && l.p[i] == f->mark)
		i++;
	f->length = i - f->indent;
	while (i < l.n && (l.p[i] == ' ' || l.p[i] == '\t'))
		i++;
	f->info = (struct line){l.p + i, l.n - i};
	/* `code` in a line of text may begin like a fence */
	return f->length >= 3 && !(f->mark == '`' && memchr(f->info.p, '`', f->info.n));
}

static bool named(struct line info, const char *name)
{
	size_t n = strlen(name);
	return info.n >= n && !strncasecmp(info.p, name, n) && (info.n == n || info.p[n] == ' ' || info.p[n] == '\t');
}

static void add_content(struct buf *out, struct line l, size_t indent)
{
	size_t have = indent_of(l), cut = have < indent ? have : indent;
	utf8_clean(out, l.p + cut, l.n - cut);
	buf_addc(out, '\n');
}

/* Text of the last block of that name; one that is not closed ends with the answer. */
static bool last_block(const char *text, size_t n, const char *name, struct buf *out)
{
	const char *at = text, *end = text + n;
	struct fence open = {0}, f;
	struct line l;
	bool found = false, ours = false;
	while (next_line(&at, end, &l)) {
		bool is_fence = fence_line(l, &f);
		if (!open.mark) {
			if (!is_fence)
				continue;
			open = f;
			ours = named(f.info, name);
			if (ours) {
				found = true;
				buf_reset(out);
			}
		} else if (is_fence && f.mark == open.mark && f.length >= open.length && !f.info.n) {
			open.mark = 0;
			ours = false;
		} else if (ours) {
			add_content(out, l, open.indent);
		}
	}
	return found;
}

bool blocks_plan(const char *text, size_t n, struct buf *out)
{
	CLEAN_BUF struct buf found = BUF_INIT;
	if (!last_block(text, n, "plan", &found))
		return false;
	buf_add(out, buf_str(&found), found.n);
	return true;
}

static bool asks(const struct buf *block)
{
	static const char key[] = "question:";
	const char *at = buf_str(block), *end = at + block->n;
	struct line l;
	while (next_line(&at, end, &l)) {
		size_t i = indent_of(l), k = sizeof key - 1;
		if (l.n - i > k && !strncasecmp(l.p + i, key, k) && !utf8_blank(l.p + i + k, l.n - i - k))
			return true;
	}
	return false;
}

/* `- text`, `* text`, `3. text` or `3) text`: *text is what stands behind the mark. */
static bool option_line(struct line l, struct line *text)
{
	size_t i = indent_of(l), from = i;
	while (i < l.n && l.p[i] >= '0' && l.p[i] <= '9')
		i++;
	bool digits = i > from && i - from <= 3;
	if (i >= l.n || !strchr(digits ? ".)" : "-*+", l.p[i]))
		return false;
	i++;
	*text = (struct line){l.p + i, l.n - i};
	size_t blank = indent_of(*text);
	text->p += blank;
	text->n -= blank;
	return blank && text->n;
}

bool blocks_question(const char *text, size_t n, struct buf *out)
{
	CLEAN_BUF struct buf found = BUF_INIT;
	if (!last_block(text, n, "result", &found) || !asks(&found))
		return false;
	const char *at = buf_str(&found), *end = at + found.n;
	struct line l, option;
	for (int k = 1; next_line(&at, end, &l);) {
		if (option_line(l, &option)) {
			buf_addf(out, "%d. ", k++);
			l = option;
		}
		buf_add(out, l.p, l.n);
		buf_addc(out, '\n');
	}
	return true;
}

bool blocks_option(const char *text, size_t n, int number, struct buf *out)
{
	CLEAN_BUF struct buf found = BUF_INIT;
	if (!last_block(text, n, "result", &found) || !asks(&found))
		return false;
	const char *at = buf_str(&found), *end = at + found.n;
	struct line l, option;
	for (int k = 0; next_line(&at, end, &l);)
		if (option_line(l, &option) && ++k == number) {
			buf_add(out, option.p, option.n);
			return true;
		}
	return false;
}

/* ---- the verdict of a ship ---- */

static bool is_mark(char c)
{
	return c == '*' || c == '_' || c == '`' || c == '~' || c == ' ' || c == '\t' || c == '\r';
}

static struct line strip(struct line l)
{
	while (l.n && is_mark(*l.p)) {
		l.p++;
		l.n--;
	}
	while (l.n && is_mark(l.p[l.n - 1]))
		l.n--;
	return l;
}

enum ship_verdict ship_verdict(const char *text, size_t n, struct buf *why)
{
	static const char ready[] = "SHIP-READY", blocked[] = "SHIP-BLOCKED";
	const char *at = text, *end = text + n;
	struct line l, last = {0};
	while (next_line(&at, end, &l)) {
		l = strip(l);
		if (l.n)
			last = l;
	}
	if (last.n == sizeof ready - 1 && !memcmp(last.p, ready, last.n))
		return SHIP_VERDICT_READY;
	size_t k = sizeof blocked - 1;
	if (last.n < k || memcmp(last.p, blocked, k))
		return SHIP_VERDICT_NONE;
	/* SHIP-BLOCKED alone, or with a colon; the bold type may end before or behind the colon */
	struct line rest = strip((struct line){last.p + k, last.n - k});
	if (rest.n && *rest.p != ':')
		return SHIP_VERDICT_NONE;
	if (rest.n)
		rest = strip((struct line){rest.p + 1, rest.n - 1});
	if (why)
		utf8_clean(why, rest.n ? rest.p : "no reason was given",
			   rest.n ? rest.n : strlen("no reason was given"));
	return SHIP_VERDICT_BLOCKED;
}
