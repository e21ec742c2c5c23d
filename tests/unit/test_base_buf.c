/* struct buf and struct err: bytes that grow, words that are cut well. */
#include <errno.h>
#include <stdlib.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "check.h"

TEST(a_buf_is_always_a_string)
{
	struct buf b = BUF_INIT;
	CHECK_STR(buf_str(&b), "");
	buf_adds(&b, "one");
	buf_addc(&b, ' ');
	buf_addf(&b, "%d %s", 2, "three");
	CHECK_STR(buf_str(&b), "one 2 three");
	CHECK(buf_ends(&b, "three") && buf_ends(&b, "") && !buf_ends(&b, "two") && !buf_ends(&b, "zone 2 three"));
	buf_cut(&b, 3);
	CHECK_STR(buf_str(&b), "one");
	buf_cut(&b, 100);
	CHECK_INT(b.n, 3);
	buf_drop(&b, 1);
	CHECK_STR(buf_str(&b), "ne");
	buf_drop(&b, 100);
	CHECK_INT(b.n, 0);
	buf_add(&b, "a\0b", 3);
	CHECK(b.n == 3 && !memcmp(b.p, "a\0b", 4));
	buf_release(&b);
	CHECK_STR(buf_str(&b), "");
}

TEST(empty_operations_do_nothing)
{
	struct buf b = BUF_INIT;
	buf_drop(&b, 3);
	buf_cut(&b, 3);
	buf_reset(&b);
	buf_add(&b, NULL, 0);
	CHECK_INT(b.n, 0);
	CLEAN_FREE char *s = buf_take(&b);
	CHECK_STR(s, "");
	CHECK(!b.p && !b.cap);
}

/* The same bytes by appending and dropping at random as by plain arithmetic. */
TEST(random_appends_and_drops)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	unsigned seed = 7;
	size_t head = 0, tail = 0; /* byte i of the stream is (char)(i * 31) */
	for (int round = 0; round < 20000; round++) {
		seed = seed * 1103515245 + 12345;
		size_t n = seed >> 16 & 63;
		if (seed & 0x8000000) {
			for (size_t i = 0; i < n; i++, tail++)
				buf_addc(&b, (char)(tail * 31));
		} else {
			buf_drop(&b, n);
			head = head + n < tail ? head + n : tail;
		}
		if (b.n != tail - head ||
		    (b.n && (b.p[0] != (char)(head * 31) || b.p[b.n - 1] != (char)((tail - 1) * 31)))) {
			CHECK(!"the bytes are those that were added");
			return;
		}
	}
	CHECK(tail > 100000);
}

TEST(long_formats)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *wide = xmalloc(100001);
	memset(wide, 'x', 100000);
	wide[100000] = 0;
	buf_addf(&b, "<%s>", wide);
	CHECK_INT(b.n, 100002);
	CHECK(buf_ends(&b, "x>"));
}

TEST(numbers)
{
	static const int64_t some[] = {0, 7, -7, 10, 1000000000, INT64_MAX, INT64_MIN};
	for (size_t i = 0; i < ARRAY_LEN(some); i++) {
		CLEAN_BUF struct buf is = BUF_INIT, want = BUF_INIT;
		buf_addi(&is, some[i]);
		buf_addf(&want, "%lld", (long long)some[i]);
		CHECK_STR(buf_str(&is), buf_str(&want));
	}
}

TEST(errors_give_their_code_and_words)
{
	struct err e = ERR_INIT;
	CHECK_INT(err_set(&e, ENOENT, "no %s", "file"), -ENOENT);
	CHECK_INT(e.code, ENOENT);
	CHECK_STR(e.text, "no file");
	CHECK_INT(err_prefix(&e, "line %d", 3), -ENOENT);
	CHECK_STR(e.text, "line 3: no file");
	CHECK_INT(err_sys(&e, EACCES, "cannot open %s", "x"), -EACCES);
	CHECK_STR(e.text, "cannot open x: Permission denied");
	CHECK_INT(err_set(&e, EIO, "again: %s", e.text), -EIO);
	CHECK_STR(e.text, "again: cannot open x: Permission denied");
	CHECK_INT(err_set(&e, EIO, "two\nlines\n"), -EIO);
	CHECK_STR(e.text, "two lines");
	CHECK_INT(err_set(NULL, EPERM, "nobody listens"), -EPERM);
	CHECK_INT(err_sys(NULL, EPERM, "nobody listens"), -EPERM);
}

/* Cut at a whole character, whatever stands at the border. */
TEST(long_errors_are_cut_between_characters)
{
	for (size_t pad = 0; pad < 8; pad++) {
		struct err e = ERR_INIT;
		CLEAN_BUF struct buf b = BUF_INIT;
		buf_add(&b, "xxxxxxxx", pad);
		while (b.n < 2 * sizeof e.text)
			buf_adds(&b, "\xE2\x82\xAC\xF0\x9F\x9A\xA2");
		err_set(&e, EIO, "%s", buf_str(&b));
		CHECK(utf8_valid(e.text, strlen(e.text)));
		CHECK(strlen(e.text) > sizeof e.text - 6);
		err_prefix(&e, "a prefix");
		CHECK(utf8_valid(e.text, strlen(e.text)));
	}
}

CHECK_MAIN()
