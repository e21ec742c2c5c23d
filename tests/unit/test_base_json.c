/* The strict pass: what is refused and what is not, by a table and against another reader (Python's). */
#include <errno.h>
#include <stdlib.h>

#include "backend/base/child.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "check.h"

struct sample {
	const char *text;
	bool good;
};

/* Both readers have to say the same of these. */
static const struct sample common[] = {
	{"{}", true},
	{"[]", true},
	{" \t\r\n[ 1 , 2 ] \n", true},
	{"\"\"", true},
	{"null", true},
	{"true", true},
	{"false", true},
	{"0", true},
	{"-0", true},
	{"10", true},
	{"1.5", true},
	{"-1.5e+10", true},
	{"1E5", true},
	{"1e-5", true},
	{"1e308", true},
	{"1e-400", true},
	{"0e400", true},
	{"0.0", true},
	{"0e0", true},
	{"{\"a\":{\"b\":[{}]}}", true},
	{"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", true},
	{"\"\\u00e9\\uD83D\\ude80\"", true},
	{"\"\xC3\xA9\xF0\x9F\x9A\x80\"", true},
	{"\"\x7f\"", true},
	{"{\"\":1}", true},
	{"123456789012345678901234567890", true},
	{"[1,[2,[3]]]", true},
	{"{\"a\":1,\"A\":2}", true},

	{"", false},
	{" ", false},
	{"{", false},
	{"}", false},
	{"[", false},
	{"[1", false},
	{"[1,", false},
	{"[1,]", false},
	{"[,1]", false},
	{"[1 2]", false},
	{"{\"a\"}", false},
	{"{\"a\":}", false},
	{"{\"a\":1,}", false},
	{"{a:1}", false},
	{"{'a':1}", false},
	{"{1:1}", false},
	{"nul", false},
	{"nulll", false},
	{"True", false},
	{"+1", false},
	{"-", false},
	{"01", false},
	{"-01", false},
	{"1.", false},
	{".5", false},
	{"1e", false},
	{"1e+", false},
	{"0x10", false},
	{"1_000", false},
	{"\"", false},
	{"\"\\", false},
	{"\"\\x41\"", false},
	{"\"\\u12\"", false},
	{"\"\\u12g4\"", false},
	{"\"\t\"", false},
	{"\"\n\"", false},
	{"[1]]", false},
	{"{}{}", false},
	{"1 2", false},
	{"// c\n1", false},
	{"/* c */1", false},
	{"[1]\xC2\xA0", false},
	{"[1]\x0b", false},
	{"\xEF\xBB\xBF{}", false},
	{"\"a\" \"b\"", false},
	{"[\"a\":1]", false},
	{"{\"a\",\"b\"}", false},
	{"--1", false},
	{"1-1", false},
	{"tru e", false},
};

/* Only the strict pass refuses these. */
static const struct sample strict[] = {
	{"{\"a\":1,\"a\":2}", false},
	{"{\"a\":1,\"\\u0061\":2}", false},
	{"{\"\\u00e9\":1,\"\xC3\xA9\":2}", false},
	{"{\"\\uD83D\\uDE80\":1,\"\xF0\x9F\x9A\x80\":2}", false},
	{"{\"x\":[{\"b\":1,\"c\":2,\"b\":3}]}", false},
	{"{\"/\":1,\"\\/\":2}", false},
	{"\"\\u0000\"", false},
	{"{\"a\\u0000b\":1}", false},
	{"\"\\uD83D\"", false},
	{"\"\\uDE80\"", false},
	{"\"\\uD83D\\uD83D\"", false},
	{"\"\\uD83Dx\"", false},
	{"\"\\uDE80\\uD83D\"", false},
	{"\"\\uD83D\\n\"", false},
	{"\"\x80\"", false},
	{"\"\xC0\xAF\"", false},
	{"\"\xED\xA0\x80\"", false},
	{"\"\xF4\x90\x80\x80\"", false},
	{"\"\xE2\x82\"", false},
	{"NaN", false},
	{"Infinity", false},
	{"-Infinity", false},
};

static void check_table(const struct sample *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct err err = ERR_INIT;
		int rc = json_check(s[i].text, strlen(s[i].text), &err);
		if (rc != (s[i].good ? 0 : -EINVAL) || (rc && !*err.text)) {
			printf("# %s: %d %s\n", s[i].text, rc, err.text);
			CHECK(!"as the table says");
		}
		cJSON *o = json_parse(s[i].text, strlen(s[i].text), NULL);
		CHECK(!o == !s[i].good);
		cJSON_Delete(o);
	}
}

TEST(table)
{
	check_table(common, ARRAY_LEN(common));
	check_table(strict, ARRAY_LEN(strict));
}

TEST(nul_bytes_and_length)
{
	CHECK_INT(json_check("[1]\0", 4, NULL), -EINVAL);
	CHECK_INT(json_check("\"a\0b\"", 5, NULL), -EINVAL);
	CHECK_INT(json_check("[1]x", 3, NULL), 0); /* what lies behind the end does not count */
	CHECK_INT(json_check("[1]", 2, NULL), -EINVAL);
}

static int depth_check(int depth, const char *open, const char *inner, const char *close)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	for (int i = 0; i < depth; i++)
		buf_adds(&b, open);
	buf_adds(&b, inner);
	for (int i = 0; i < depth; i++)
		buf_adds(&b, close);
	return json_check(b.p, b.n, NULL);
}

TEST(depth)
{
	CHECK_INT(depth_check(JSON_DEPTH, "[", "", "]"), 0);
	CHECK_INT(depth_check(JSON_DEPTH, "[", "1", "]"), 0);
	CHECK_INT(depth_check(JSON_DEPTH + 1, "[", "", "]"), -EINVAL);
	CHECK_INT(depth_check(JSON_DEPTH, "{\"a\":", "1", "}"), 0);
	CHECK_INT(depth_check(JSON_DEPTH + 1, "{\"a\":", "1", "}"), -EINVAL);
	CHECK_INT(depth_check(JSON_DEPTH / 2, "[{\"a\":", "1", "}]"), 0);
	CHECK_INT(depth_check(1000000, "[", "", ""), -EINVAL); /* no stack is used up */
	CHECK_INT(depth_check(1000000, "{\"a\":", "", ""), -EINVAL);
}

TEST(errors_name_the_place)
{
	struct err err = ERR_INIT;
	json_check("{\"a\": 01}", 9, &err);
	CHECK(strstr(err.text, "byte 7"));
	json_check("{\"a\":1,\"b\":2,\"a\":3}", 19, &err);
	CHECK(strstr(err.text, "\"a\""));
}

/* Python's json module, with everything that is not JSON switched off, on the common table. Lines: the text as hex. */
static const char second_reader[] =
	"import sys, json\n"
	"def no(x): raise ValueError(x)\n"
	"for line in sys.stdin:\n"
	"    try: json.loads(bytes.fromhex(line).decode('utf-8'), parse_constant=no); print(1)\n"
	"    except (ValueError, RecursionError): print(0)\n";

TEST(the_same_as_another_reader)
{
	if (!child_found("python3")) {
		printf("skip the_same_as_another_reader: no python3\n");
		return;
	}
	CLEAN_BUF struct buf in = BUF_INIT, out = BUF_INIT;
	for (size_t i = 0; i < ARRAY_LEN(common); i++) {
		for (const char *p = common[i].text; *p; p++)
			buf_addf(&in, "%02x", (unsigned char)*p);
		buf_addc(&in, '\n');
	}
	const char *argv[] = {"python3", "-c", second_reader, NULL};
	CHECK_INT(child_run(&(struct child){.argv = argv, .in = in.p, .in_n = in.n, .out = &out}, NULL), 0);
	CHECK_INT(out.n, 2 * ARRAY_LEN(common));
	for (size_t i = 0; i < ARRAY_LEN(common) && 2 * i < out.n; i++)
		if ((out.p[2 * i] == '1') != common[i].good) {
			printf("# %s: the other reader says %c\n", common[i].text, out.p[2 * i]);
			CHECK(!"both say the same");
		}
}

/* Mutated texts: whenever the strict pass accepts one, printing and reading again gives the same. */
TEST(accepted_texts_survive_a_round_trip)
{
	static const char seed_text[] = "{\"a\":[1,-2.5e3,true,null],\"b\":{\"c\":\"x\\n\\u00e9\"},\"d\":\"\xC3\xA9\"}";
	unsigned seed = 5, accepted = 0;
	for (int round = 0; round < 30000; round++) {
		char text[sizeof seed_text];
		memcpy(text, seed_text, sizeof text);
		for (int k = 0; k < 1 + round % 3; k++) {
			seed = seed * 1103515245 + 12345;
			size_t at = (seed >> 8) % (sizeof text - 1);
			text[at] = "{}[]\",:\\u0e1-. tn\xC3"[(seed >> 24) % 19];
		}
		CLEAN_JSON cJSON *o = json_parse(text, sizeof text - 1, NULL);
		if (!o)
			continue;
		CLEAN_BUF struct buf b = BUF_INIT, again = BUF_INIT;
		json_print(&b, o);
		CLEAN_JSON cJSON *second = json_parse(b.p, b.n, NULL);
		if (second)
			json_print(&again, second);
		if (!second || strcmp(buf_str(&b), buf_str(&again))) {
			printf("# %.*s -> %s -> %s\n", (int)sizeof text - 1, text, buf_str(&b), buf_str(&again));
			CHECK(!"the same after a round trip");
		}
		accepted++;
	}
	CHECK(accepted > 100);
}

TEST(quoting)
{
	unsigned seed = 9;
	for (int round = 0; round < 3000; round++) {
		char junk[30];
		CLEAN_BUF struct buf b = BUF_INIT;
		size_t n = (size_t)round % sizeof junk;
		for (size_t i = 0; i < n; i++)
			junk[i] = (char)((seed = seed * 1103515245 + 12345) >> (round % 2 ? 16 : 25));
		json_quote(&b, junk, n);
		CLEAN_JSON cJSON *o = json_parse(b.p, b.n, NULL);
		CHECK(cJSON_IsString(o));
		if (o && utf8_valid(junk, n))
			CHECK(strlen(o->valuestring) == n && !memcmp(o->valuestring, junk, n));
	}
	CLEAN_BUF struct buf b = BUF_INIT;
	json_quote(&b, "a\0\xFF\"\\\n\x1f", 7);
	CHECK_STR(buf_str(&b), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\\\"\\\\\\n\\u001f\"");
}

TEST(getters)
{
	static const char text[] =
		"{\"s\":\"x\",\"S\":\"y\",\"i\":-7,\"f\":1.5,\"big\":9007199254740993,\"huge\":1e300,"
		"\"t\":true,\"n\":null,\"limit\":9007199254740992}";
	CLEAN_JSON cJSON *o = json_parse(text, sizeof text - 1, NULL);
	int64_t i = 1;
	CHECK_STR(json_str(o, "s"), "x");
	CHECK_STR(json_str(o, "S"), "y");
	CHECK(!json_str(o, "i") && !json_str(o, "none") && !json_str(NULL, "s"));
	CHECK(json_int(o, "i", &i));
	CHECK_INT(i, -7);
	CHECK(json_int(o, "limit", &i) && i == 9007199254740992);
	CHECK(!json_int(o, "f", &i) && !json_int(o, "huge", &i) && !json_int(o, "s", &i));
	CHECK(json_bool(o, "t", false) && json_bool(o, "none", true) && !json_bool(o, "n", false) &&
	      json_bool(o, "s", true));
	CHECK(json_get(o, "n") && !json_get(o, "N"));
}

/* The same tree, but that a value's string ends after `cut` characters. */
static void same_but_cut(const cJSON *whole, const cJSON *brief, size_t cut)
{
	for (; whole && brief; whole = whole->next, brief = brief->next) {
		CHECK_INT(brief->type, whole->type);
		CHECK(!whole->string == !brief->string && (!whole->string || !strcmp(whole->string, brief->string)));
		CHECK(whole->valuedouble == brief->valuedouble);
		if (cJSON_IsString(whole)) {
			size_t n = strlen(brief->valuestring), characters = 0;
			for (size_t i = 0; i < n; i++)
				characters += ((unsigned char)brief->valuestring[i] & 0xC0) != 0x80;
			CHECK(!strncmp(whole->valuestring, brief->valuestring, n) && utf8_valid(brief->valuestring, n));
			CHECK(characters == cut || (characters < cut && !whole->valuestring[n]));
		}
		same_but_cut(whole->child, brief->child, cut);
	}
	CHECK(!whole && !brief);
}

static void add_string(struct buf *b, unsigned *seed)
{
	static const char *const pieces[] = {"a",
					     "words ",
					     "\\\"",
					     "\\\\",
					     "\\n",
					     "\\u0041",
					     "\\uD83D\\uDE00",
					     "\\ud7ff",
					     "\xC3\xA9",
					     "\xE2\x82\xAC",
					     "\xF0\x9F\x98\x80",
					     "custom",
					     "\\u00e9",
					     "{\\\"x\\\":["};
	buf_addc(b, '"');
	for (int n = (int)((*seed = *seed * 1103515245 + 12345) >> 16) % 30; n > 0; n--)
		buf_adds(b, pieces[((*seed = *seed * 1103515245 + 12345) >> 16) % ARRAY_LEN(pieces)]);
	buf_addc(b, '"');
}

/* Each byte at each place of strings of all lengths up to 70: good or not, and at which byte that is found. */
TEST(every_byte_at_every_place)
{
	int wrong = 0;
	for (size_t n = 1; n <= 70; n++) {
		char *p = xmalloc(n + 2);
		for (size_t at = 1; at <= n; at++)
			for (int c = 0; c < 256; c++) {
				memset(p, 'y', n + 2);
				p[0] = p[n + 1] = '"';
				p[at] = (char)c;
				bool good = (c >= 0x20 && c < 0x80 && c != '"' && c != '\\');
				char want[32];
				struct err err = ERR_INIT;
				wrong += !json_check(p, n + 2, &err) != good;
				snprintf(want, sizeof want, " byte %zu:", c == '"' || c == '\\' ? at + 1 : at);
				wrong += !good && (c != '\\' || at < n) && !strstr(err.text, want);
				size_t plain = json_plain(p + 1, n);
				wrong += plain > n ||
					 (c < 0x20 || c == '"' || c == '\\' ? plain > at - 1 : plain + 8 <= n);
			}
		free(p);
	}
	CHECK_INT(wrong, 0);
}

TEST(long_strings_are_cut)
{
	unsigned seed = 3;
	for (int round = 0; round < 2000; round++) {
		size_t cut = (size_t)round % 20 + 1;
		CLEAN_BUF struct buf b = BUF_INIT;
		buf_adds(&b, "[1.5,{\"a key that is long and stays as it is\": ");
		add_string(&b, &seed);
		buf_adds(&b, " ,\"b\":[true,");
		add_string(&b, &seed);
		buf_adds(&b, ",{}]},null,");
		add_string(&b, &seed);
		buf_adds(&b, " ] ");
		CLEAN_JSON cJSON *whole = json_parse(b.p, b.n, NULL), *brief = json_parse_cut(b.p, b.n, cut, NULL);
		CHECK(whole && brief);
		if (whole && brief)
			same_but_cut(whole, brief, cut);
	}
	/* What is cut off is checked all the same */
	CHECK(!json_parse_cut("[\"some words \\x\"]", 18, 4, NULL));
	CHECK(!json_parse_cut("[\"some words \xFF\"]", 17, 4, NULL));
	CHECK(!json_parse_cut("{\"a\":\"some words\",\"a\":1}", 24, 4, NULL));
}

/* One member of the top, of a text that is checked as a whole. */
TEST(one_member)
{
	static const struct {
		const char *text;
		int rc;
		double n; /* -1: there is none */
	} cases[] = {{"{\"u\":1}", 0, 1},
		     {" { \"a\" : \"u\" , \"u\" : 2 , \"b\" : [ ] } ", 0, 2},
		     {"{}", 0, -1},
		     {"{\"a\":{\"u\":1},\"b\":[{\"u\":1}],\"uu\":1,\"\":1}", 0, -1},
		     {"{\"a\":{\"u\":1},\"u\":3,\"b\":{\"u\":2}}", 0, 3},
		     {"[{\"u\":1}]", 0, -1},
		     {"\"u\"", 0, -1},
		     {"7", 0, -1},
		     {"{\"\\u0075\":4}", 0, 4},
		     {"{\"u\":5,\"\\u0061\":1}", 0, 5},
		     {"{\"u\":1,\"u\":1}", -EINVAL, -1},
		     {"{\"u\":1,\"\\u0075\":1}", -EINVAL, -1},
		     {"{\"u\":{\"a\":1,\"a\":2}}", -EINVAL, -1},
		     {"{\"u\":1}x", -EINVAL, -1},
		     {"{\"u\":1,}", -EINVAL, -1},
		     {"{\"u\":1", -EINVAL, -1},
		     {"{\"u\":1,\"a\":\"\x01\"}", -EINVAL, -1},
		     {"{\"u\":1e999}", -EINVAL, -1},
		     {"", -EINVAL, -1}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		CLEAN_JSON cJSON *u = NULL;
		CHECK_INT(json_member(cases[i].text, strlen(cases[i].text), "u", &u), cases[i].rc);
		CHECK((u ? cJSON_GetNumberValue(u) : -1) == cases[i].n);
	}
	CLEAN_JSON cJSON *o = NULL;
	static const char text[] = "{\"u\":{\"a\":[1,{\"b\":\"c\"}]},\"z\":0}";
	CHECK_INT(json_member(text, sizeof text - 1, "u", &o), 0);
	CHECK_STR(json_str(cJSON_GetArrayItem(json_get(o, "a"), 1), "b"), "c");
}

/* The size of what was cut is told, and cannot be pretended. */
TEST(sizes_of_cut_strings)
{
	static const struct {
		const char *text;
		size_t size;
	} cases[] = {{"", 0},
		     {"abcd", 4},
		     {"abcde", 5},
		     {"abcdefghijkl", 12},
		     {"\u00e9\u00e9\u00e9\u00e9\u00e9", 10},
		     {"\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9", 30},
		     {"\\u0001999", 4}, /* it has no more than may stay */
		     {"\\u00019", 2},
		     {"abc\\u0001999", 12},
		     {"\u00e9\\u000199", 5}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		CLEAN_FREE char *text = xasprintf("[\"%s\"]", cases[i].text);
		CLEAN_JSON cJSON *o = json_parse_sized(text, strlen(text), 4, NULL);
		CHECK(o != NULL);
		CHECK_INT(json_size(o ? o->child : NULL, 4), (int64_t)cases[i].size);
	}
	CLEAN_JSON cJSON *o = json_parse_sized("[1,null]", 8, 4, NULL);
	CHECK(o && !json_size(o->child, 4) && !json_size(NULL, 4));
}

/* Readers differ in what a number is that no double holds. */
TEST(numbers_are_finite)
{
	static const char *const large[] = {"1e309", "-1e400", "[0.5e39999999999999999999999999999999999999999999]"};
	for (size_t i = 0; i < ARRAY_LEN(large); i++)
		CHECK_INT(json_check(large[i], strlen(large[i]), NULL), -EINVAL);
	char text[601];
	memset(text, '9', 600);
	text[600] = 0;
	CLEAN_JSON cJSON *most = json_parse(text, 308, NULL);
	CLEAN_JSON cJSON *more = json_parse(text, 309, NULL);
	CLEAN_JSON cJSON *all = json_parse(text, 600, NULL);
	CHECK(most && !more && !all);
	memcpy(text, "0.", 2);
	CLEAN_JSON cJSON *small = json_parse(text, 600, NULL);
	CHECK(small != NULL);
}

/* A stranger's text of tiny values does not become gigabytes. */
TEST(values_are_bounded)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	buf_adds(&b, "[{\"a\":[");
	for (int i = 0; i < 249996; i++)
		buf_adds(&b, "1,");
	buf_adds(&b, "1]}]");
	CLEAN_JSON cJSON *most = json_parse_cut(b.p, b.n, 10, &err);
	CHECK(most != NULL);
	buf_cut(&b, b.n - 3);
	buf_adds(&b, ",1]}]");
	CHECK(!json_parse_cut(b.p, b.n, 10, &err));
	CHECK(strstr(err.text, "too many values") != NULL);
	CLEAN_JSON cJSON *own = json_parse(b.p, b.n, &err);
	CHECK(own != NULL);
}

CHECK_MAIN()
