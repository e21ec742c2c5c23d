/* Server-sent events: every form of a line's end, cut everywhere. */
#include <errno.h>

#include "backend/base/mem.h"
#include "backend/parse/sse.h"
#include "check.h"

/* "name|data;" for each event */
static int got(void *arg, const char *event, const char *data, size_t n, struct err *err)
{
	buf_addf(arg, "%s|", event);
	buf_add(arg, data, n);
	buf_addc(arg, ';');
	return strcmp(event, "stop") ? 0 : -ECANCELED;
}

static int feed(struct buf *out, const char *p, size_t n, size_t first, size_t piece)
{
	struct sse s;
	sse_init(&s, 1000, got, out);
	int rc = sse_feed(&s, p, first, NULL);
	for (size_t at = first; at < n && !rc; at += piece)
		rc = sse_feed(&s, p + at, piece < n - at ? piece : n - at, NULL);
	sse_release(&s);
	return rc;
}

static const struct {
	const char *in, *out;
} cases[] = {
	{"data: a\n\n", "|a;"},
	{"data: a\r\n\r\n", "|a;"},
	{"data: a\r\r", "|a;"},
	{"data: a\n\r\ndata: b\r\n\n", "|a;|b;"},
	{"event: x\ndata:a\n\ndata:b\n\n", "x|a;|b;"},
	{"data: a\ndata:\ndata:  b\n\n", "|a\n\n b;"},
	{"\xEF\xBB\xBF"
	 "data: a\n\n",
	 "|a;"},
	{"data: \xEF\xBB\xBF\n\n", "|\xEF\xBB\xBF;"},
	{": hello\n\n:\ndata: a\n: in between\ndata: b\n\n", "|a\nb;"},
	{"id: 3\nretry: 10\nother: x\ndata: a\n\n", "|a;"},
	{"data\n\n", ""},
	{"event: lonely\n\ndata: a\n\n", "|a;"},
	{"data: never ended", ""},
	{"data: a\n\ndata: no blank line after\n", "|a;"},
	{"data: \xF0\x9F\x90\xA6 \xC3\xA9\n\n", "|\xF0\x9F\x90\xA6 \xC3\xA9;"},
	{"\n\n\r\n\rdata: a\n\n\n\n", "|a;"},
	{"datax: a\ndat: b\n data: c\n\n", ""},
	{"event: stop\ndata: a\n\ndata: b\n\n", "stop|a;"},
	{"", ""},
};

TEST(events_are_the_same_wherever_a_read_is_cut)
{
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		size_t n = strlen(cases[i].in);
		for (size_t cut = 0; cut <= n; cut++)
			for (size_t piece = 1; piece <= n + 1; piece += n ? n : 1) {
				CLEAN_BUF struct buf out = BUF_INIT;
				feed(&out, cases[i].in, n, cut, piece);
				CHECK_STR(buf_str(&out), cases[i].out);
			}
	}
}

TEST(an_event_has_a_bound)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_BUF struct buf in = BUF_INIT;
	buf_adds(&in, "data: ");
	while (in.n < 1001)
		buf_addc(&in, 'x');
	CHECK_INT(feed(&out, in.p, in.n, 0, 100), -EMSGSIZE);
	buf_reset(&in);
	for (int i = 0; i < 200; i++) /* many short lines are no way around it */
		buf_adds(&in, "data: xxxxx\n");
	CHECK_INT(feed(&out, in.p, in.n, 0, 7), -EMSGSIZE);
	buf_reset(&in);
	for (int i = 0; i < 200; i++) /* comments are not kept */
		buf_adds(&in, ": xxxxxxxxxx\n");
	CHECK_INT(feed(&out, in.p, in.n, 0, 7), 0);
	CHECK_STR(buf_str(&out), "");
}

TEST(what_stops_the_reader_is_given_on)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CHECK_INT(feed(&out, "event: stop\ndata: a\n\ndata: b\n\n", 30, 0, 30), -ECANCELED);
	CHECK_STR(buf_str(&out), "stop|a;");
}

CHECK_MAIN()
