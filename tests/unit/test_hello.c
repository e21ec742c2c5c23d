/* The name in what a TLS client says first: by the rules, in any pieces, and never past its end. */
#include <stdlib.h>

#include "backend/base/buf.h"
#include "backend/base/mem.h"
#include "check.h"
#include "gateway/hello.h"

static void add_number(struct buf *b, size_t n, int bytes)
{
	for (int i = bytes - 1; i >= 0; i--)
		buf_addc(b, (char)(n >> 8 * i));
}

static void add_part(struct buf *b, int bytes, const struct buf *part)
{
	add_number(b, part->n, bytes);
	buf_add(b, buf_str(part), part->n);
}

/* An extension of one name, of a kind. */
static void add_name(struct buf *all, const char *name, size_t n, int kind)
{
	CLEAN_BUF struct buf list = BUF_INIT;
	CLEAN_BUF struct buf entry = BUF_INIT;
	add_number(&entry, (size_t)kind, 1);
	add_number(&entry, n, 2);
	buf_add(&entry, name, n);
	add_part(&list, 2, &entry);
	add_number(all, 0, 2);
	add_part(all, 2, &list);
}

/* The hello with these extensions, in records of so many bytes. */
static void make(struct buf *out, const struct buf *extensions, size_t record)
{
	CLEAN_BUF struct buf body = BUF_INIT;
	CLEAN_BUF struct buf hand = BUF_INIT;
	add_number(&body, 0x303, 2);
	for (int i = 0; i < 32; i++)
		buf_addc(&body, (char)i);
	add_number(&body, 0, 1);
	add_number(&body, 2, 2);
	add_number(&body, 0x1301, 2);
	add_number(&body, 1, 1);
	add_number(&body, 0, 1);
	add_part(&body, 2, extensions);
	add_number(&hand, 1, 1);
	add_part(&hand, 3, &body);
	for (size_t at = 0; at < hand.n; at += record) {
		size_t n = record < hand.n - at ? record : hand.n - at;
		add_number(out, 0x160301, 3);
		add_number(out, n, 2);
		buf_add(out, hand.p + at, n);
	}
}

TEST(hello_names)
{
	static const struct {
		const char *name;
		size_t n;
		int kind, times;
		enum hello want;
	} cases[] = {{"example.org", 11, 0, 1, HELLO_NAMED},
		     {"a", 1, 0, 1, HELLO_NAMED},
		     {"", 0, 0, 1, HELLO_BAD},
		     {"a\0b", 3, 0, 1, HELLO_BAD},
		     {"a", 1, 1, 1, HELLO_BAD},
		     {"a", 1, 0, 2, HELLO_BAD},
		     {"a", 1, 0, 0, HELLO_BAD}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		for (size_t record = 1; record < 200; record += 13) {
			CLEAN_BUF struct buf all = BUF_INIT;
			CLEAN_BUF struct buf text = BUF_INIT;
			char name[256];
			add_number(&all, 0x2b, 2); /* another one before it */
			add_number(&all, 0, 2);
			for (int j = 0; j < cases[i].times; j++)
				add_name(&all, cases[i].name, cases[i].n, cases[i].kind);
			make(&text, &all, record);
			CHECK_INT(hello_name(text.p, text.n, name, sizeof name), cases[i].want);
			CHECK_STR(name, cases[i].want == HELLO_NAMED ? cases[i].name : "");
			for (size_t n = 0; n < text.n; n++)
				CHECK_INT(hello_name(text.p, n, name, sizeof name), HELLO_MORE);
			buf_adds(&text, "\x17\x03\x03"); /* what follows is not looked at */
			CHECK_INT(hello_name(text.p, text.n, name, sizeof name), cases[i].want);
			CHECK_INT(hello_name(text.p, text.n, name, 5), cases[i].n < 5 ? cases[i].want : HELLO_BAD);
		}
	char name[8];
	CHECK_INT(hello_name("GET / HTTP/1.1", 14, name, sizeof name), HELLO_OTHER);
	CHECK_INT(hello_name("\x16\x03\x01\0\0", 5, name, sizeof name), HELLO_BAD);
	CHECK_INT(hello_name("\x16\x02", 2, name, sizeof name), HELLO_BAD);
	CHECK_INT(hello_name("\x16\x03\x01\0\1\2", 6, name, sizeof name), HELLO_BAD);
	CHECK_INT(hello_name("\x16\x03\x01\0\1\1\x17", 7, name, sizeof name), HELLO_BAD);
	static char zeros[HELLO_MAX] = {0x16, 3, 1, 0x20};
	CHECK_INT(hello_name(zeros, sizeof zeros, name, sizeof name), HELLO_BAD);
}

/* Bytes changed at random: read within their bounds (the sanitizers look), and a name is never longer than its room. */
TEST(hello_mutated)
{
	unsigned seed = 11;
	for (int round = 0; round < 100000; round++) {
		CLEAN_BUF struct buf all = BUF_INIT;
		CLEAN_BUF struct buf text = BUF_INIT;
		char name[12];
		add_name(&all, "example.org", 11, 0);
		make(&text, &all, 20 + (size_t)rand_r(&seed) % 100);
		for (int i = rand_r(&seed) % 4; i >= 0; i--)
			text.p[(size_t)rand_r(&seed) % text.n] = (char)rand_r(&seed);
		size_t n = (size_t)rand_r(&seed) % (text.n + 1);
		char *exact = xmalloc(n + 1);
		memcpy(exact, text.p, n);
		exact = xrealloc(exact, n ? n : 1);
		hello_name(exact, n, name, sizeof name);
		CHECK(strlen(name) < sizeof name);
		free(exact);
	}
}

CHECK_MAIN()
