/* utf8.c, text.c, map.c, clock.c: small things, each against a second opinion. */
#include <stdlib.h>

#include "backend/base/clock.h"
#include "backend/base/map.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "check.h"

static size_t encode(unsigned c, char *p)
{
	if (c < 0x80)
		return p[0] = (char)c, 1;
	if (c < 0x800)
		return p[0] = (char)(0xC0 | c >> 6), p[1] = (char)(0x80 | (c & 63)), 2;
	if (c < 0x10000)
		return p[0] = (char)(0xE0 | c >> 12), p[1] = (char)(0x80 | (c >> 6 & 63)),
		       p[2] = (char)(0x80 | (c & 63)), 3;
	p[0] = (char)(0xF0 | c >> 18);
	p[1] = (char)(0x80 | (c >> 12 & 63));
	return p[2] = (char)(0x80 | (c >> 6 & 63)), p[3] = (char)(0x80 | (c & 63)), 4;
}

TEST(every_character_is_valid_and_each_cut_of_it_is_known)
{
	size_t wrong = 0;
	for (unsigned c = 1; c < 0x120000; c++) {
		char p[4];
		bool cut, good = !(c >= 0xD800 && c < 0xE000) && c < 0x110000;
		size_t n = encode(c, p);
		wrong += utf8_valid(p, n) != good;
		for (size_t k = 1; good && k < n; k++)
			wrong += utf8_prefix(p, k, &cut) != 0 || !cut;
	}
	CHECK_INT(wrong, 0);
	CHECK(!utf8_valid("\0", 1));
	CHECK(utf8_valid("", 0));
}

/* Each byte at each place of texts of all lengths up to 70: what is good before it. */
TEST(utf8_in_steps)
{
	int wrong = 0;
	for (size_t n = 1; n <= 70; n++) {
		char *p = xmalloc(n);
		for (size_t at = 0; at < n; at++)
			for (int c = 0; c < 256; c++) {
				bool cut, starts = c >= 0xC2 && c <= 0xF4;
				memset(p, 'y', n);
				p[at] = (char)c;
				wrong += utf8_prefix(p, n, &cut) != (c && c < 0x80 ? n : at);
				wrong += cut != (starts && at == n - 1);
			}
		free(p);
	}
	CHECK_INT(wrong, 0);
}

/* How many strings of three bytes are valid is known by arithmetic: 127 characters of one byte (no NUL), 1920 of two,
 * 61440 of three. */
TEST(all_strings_of_three_bytes)
{
	long valid = 0;
	for (unsigned i = 0; i < 1 << 24; i++) {
		char p[3] = {(char)(i >> 16), (char)(i >> 8), (char)i};
		valid += utf8_valid(p, 3);
	}
	CHECK_INT(valid, 127 * 127 * 127 + 2 * 127 * 1920 + 61440);
}

TEST(cleaning_gives_valid_text)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	utf8_clean(&b,
		   "a\x80"
		   "b\xC3\xA9\x1b[1m\r\n\t\x7f\xED\xA0\x80.\xE2\x82",
		   19);
	CHECK_STR(buf_str(&b), "a\xEF\xBF\xBD"
			       "b\xC3\xA9[1m\n\t\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD.\xEF\xBF\xBD\xEF\xBF\xBD");
	buf_reset(&b);
	utf8_scrub(&b, "a\r\x1b\0b\xFF", 6);
	CHECK_STR(buf_str(&b), "a\r\x1b"
			       "b\xEF\xBF\xBD");
	unsigned seed = 3;
	for (int round = 0; round < 2000; round++) {
		char junk[40];
		for (size_t i = 0; i < sizeof junk; i++)
			junk[i] = (char)((seed = seed * 1103515245 + 12345) >> 16);
		buf_reset(&b);
		utf8_clean(&b, junk, sizeof junk);
		CHECK(utf8_valid(buf_str(&b), b.n));
	}
}

TEST(blank_is_white_space_alone)
{
	CHECK(utf8_blank("", 0) && utf8_blank(" \t\r\n\v\f", 6));
	CHECK(!utf8_blank(" .", 2) && !utf8_blank("\0", 1));
}

TEST(trim)
{
	static const char *const table[][2] = {
		{"", ""}, {" \t\r\n", ""}, {"a", "a"}, {"  a b\t\n", "a b"}, {"a \n\n", "a"}};
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		CLEAN_FREE char *s = xstrdup(table[i][0]);
		CHECK_STR(text_trim(s), table[i][1]);
	}
}

enum { KEYS = 300 };

static bool same(const struct map *m, void *const *model, size_t n)
{
	bool ok = m->n == n;
	for (int i = 0; i < KEYS; i++) {
		char key[16];
		snprintf(key, sizeof key, "key%d", i);
		ok &= map_get(m, key) == model[i];
	}
	return ok;
}

/* Random changes, each compared with a plain array; few enough keys that clusters form and are torn apart. */
TEST(map_against_an_array)
{
	struct map m = {0};
	void *model[KEYS] = {0};
	static char things[KEYS];
	size_t n = 0;
	unsigned seed = 11;
	CHECK(!map_get(&m, "key1") && !map_put(&m, "key1", NULL));
	for (int round = 0; round < 40000; round++) {
		seed = seed * 1103515245 + 12345;
		int i = (int)(seed >> 16) % KEYS;
		bool fill = round % 10000 < 5000; /* grows, then shrinks, again and again */
		void *value = (seed >> 8 & 3) == 0 ? (fill ? NULL : &things[i]) : (fill ? &things[i] : NULL);
		char key[16];
		snprintf(key, sizeof key, "key%d", i);
		void *old = map_put(&m, key, value);
		n += (value != NULL) - (model[i] != NULL);
		if (old != model[i]) {
			CHECK(!"map_put gives the old value");
			break;
		}
		model[i] = value;
		if (round % 97 == 0 && !same(&m, model, n)) {
			CHECK(!"the map holds what the array holds");
			break;
		}
	}
	CHECK(same(&m, model, n));
	map_release(&m);
	CHECK(!m.n && !map_get(&m, "key1"));
}

TEST(times_as_text)
{
	static const struct {
		int64_t ms;
		const char *text;
	} table[] = {{0, "1970-01-01T00:00:00Z"},
		     {951782399999, "2000-02-28T23:59:59Z"},
		     {951782400000, "2000-02-29T00:00:00Z"},
		     {4102444800000, "2100-01-01T00:00:00Z"},
		     {253402300799000, "9999-12-31T23:59:59Z"}};
	static const struct {
		int64_t ms;
		const char *text;
	} ages[] = {{-5, "0m"},
		    {0, "0m"},
		    {59999, "0m"},
		    {60000, "1m"},
		    {119 * 60000, "119m"},
		    {120 * 60000, "2h"},
		    {47 * 3600000LL, "47h"},
		    {48 * 3600000LL, "2d"},
		    {3650 * 86400000LL, "3650d"}};
	char out[CLOCK_TEXT];
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		CHECK_STR(clock_rfc3339(table[i].ms, out), table[i].text);
	for (size_t i = 0; i < ARRAY_LEN(ages); i++)
		CHECK_STR(clock_age(ages[i].ms, out), ages[i].text);
	int64_t from = clock_mono_ms();
	clock_sleep_ms(30);
	CHECK(clock_mono_ms() - from >= 30);
	CHECK(clock_real_ms() > 1700000000000);
}

CHECK_MAIN()
