/* The text of a message while it is written: limits, UTF-8 cut anywhere, what failed stays failed. */
#include <errno.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "check.h"
#include "fs/message.h"

static int add(struct message *m, const char *s)
{
	return message_add(m, s, strlen(s), NULL);
}

TEST(gathers)
{
	struct message m = {0};
	CHECK_INT(add(&m, "one\n"), 0);
	CHECK_INT(add(&m, "two\n"), 0);
	CHECK_STR(buf_str(&m.text), "one\ntwo\n");
	CHECK_INT(message_end(&m.text, NULL), 0);
	message_release(&m);
}

TEST(cut_sequences)
{
	const char *text = "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80\n";
	for (size_t at = 1; at < strlen(text); at++) {
		struct message m = {0};
		CHECK_INT(message_add(&m, text, at, NULL), 0);
		CHECK_INT(add(&m, text + at), 0);
		CHECK_STR(buf_str(&m.text), text);
		CHECK_INT(message_end(&m.text, NULL), 0);
		message_release(&m);
	}
	struct message m = {0};
	for (const char *p = text; *p; p++)
		CHECK_INT(message_add(&m, p, 1, NULL), 0);
	CHECK_INT(message_end(&m.text, NULL), 0);
	message_release(&m);
}

TEST(bad_text_is_refused_at_its_write)
{
	static const struct {
		const char *first, *second;
		size_t n;
	} cases[] = {
		{"ok", "a\377b", 3},	 {"ok", "a\0b", 3}, {"cut \xC3", "A", 1}, {"cut \xE2\x82", "\xC3\xBC", 2},
		{"", "\xED\xA0\x80", 3},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct message m = {0};
		struct err err = ERR_INIT;
		CHECK_INT(add(&m, cases[i].first), 0);
		CHECK_INT(message_add(&m, cases[i].second, cases[i].n, &err), -EILSEQ);
		CHECK_INT(err.code, EILSEQ);
		CHECK_INT(m.text.n, 0);
		err = ERR_INIT;
		CHECK_INT(message_add(&m, "fine", 4, &err), -EILSEQ);
		CHECK_INT(err.code, 0); /* words once */
		CHECK_INT(m.text.n, 0);
		message_release(&m);
	}
}

TEST(limit)
{
	struct message m = {0};
	char *part = malloc(MESSAGE_MAX);
	memset(part, 'x', MESSAGE_MAX);
	CHECK_INT(message_add(&m, part, MESSAGE_MAX, NULL), 0);
	CHECK_INT(message_end(&m.text, NULL), 0);
	CHECK_INT(message_add(&m, "y", 1, NULL), -EFBIG);
	CHECK_INT(m.text.n, 0);
	CHECK_INT(message_add(&m, "y", 1, NULL), -EFBIG);
	message_release(&m);
	CHECK_INT(message_add(&m, part, MESSAGE_MAX - 1, NULL), 0);
	CHECK_INT(message_add(&m, "yz", 2, NULL), -EFBIG);
	message_release(&m);
	free(part);
}

TEST(end)
{
	const struct {
		const char *text;
		int rc;
	} cases[] = {{" \n\t", -EINVAL}, {"", -EINVAL}, {"x", 0}, {"x\xC3", -EILSEQ}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf b = BUF_INIT;
		buf_adds(&b, cases[i].text);
		CHECK_INT(message_end(&b, NULL), cases[i].rc);
		buf_release(&b);
	}
}

CHECK_MAIN()
