/* JSON: cJSON behind a strict pass. Any thread. */
#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "mem.h"
#include "utf8.h"

#define VALUES_MAX 250000 /* cJSON has 64 bytes and more for each, even if it stands there in two */
#define WORD	   64	  /* characters that strings of json_member()'s keep */

struct scan {
	const char *p, *start, *end;
	struct err *err;
	size_t cut;	   /* characters that a string may have in brief; 0: brief is not made */
	struct buf *brief; /* the text without the ends of long strings */
	bool sized;	   /* where one was cut, its size follows */
	const char *from;  /* what follows here is not in it yet */
	size_t values;	   /* that it has; of strangers, no more than VALUES_MAX */
	const char *want;  /* a key of the top: where its value stands is noted, and brief is not made */
	struct {
		const char *p;
		size_t n;
		int times;
		bool escaped; /* a key of the top is written with an escape: it may be the same one */
	} member;
};

static int bad(struct scan *s, const char *what)
{
	return err_set(s->err, EINVAL, "not strict JSON at byte %zu: %s", (size_t)(s->p - s->start), what);
}

static void blanks(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
		s->p++;
}

static int hex4(struct scan *s, unsigned *out)
{
	*out = 0;
	for (int i = 0; i < 4; i++, s->p++) {
		if (s->p >= s->end)
			return bad(s, "cut escape");
		char c = *s->p;
		int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
		if (d < 0)
			return bad(s, "bad \\u escape");
		*out = *out << 4 | (unsigned)d;
	}
	return 0;
}

static int escape(struct scan *s)
{
	unsigned a, b;
	if (++s->p >= s->end)
		return bad(s, "cut escape");
	if (*s->p != 'u') {
		if (!strchr("\"\\/bfnrt", *s->p) || !*s->p)
			return bad(s, "unknown escape");
		s->p++;
		return 0;
	}
	s->p++;
	int rc = hex4(s, &a);
	if (rc)
		return rc;
	if (!a)
		return bad(s, "NUL character");
	if (a >= 0xDC00 && a <= 0xDFFF)
		return bad(s, "lone surrogate");
	if (a < 0xD800 || a > 0xDBFF)
		return 0;
	if (s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u')
		return bad(s, "lone surrogate");
	s->p += 2;
	rc = hex4(s, &b);
	if (rc)
		return rc;
	return b >= 0xDC00 && b <= 0xDFFF ? 0 : bad(s, "lone surrogate");
}

#ifdef __SSE2__
/* Steps of 16 bytes, up to the first that ends or escapes a string or is a control character. */
static size_t quick(const char *p, size_t n, bool *found)
{
	const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
	size_t i = 0;
	for (; n - i >= 16; i += 16) {
		__m128i w = _mm_loadu_si128((const __m128i *)(p + i));
		__m128i any = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(w, quote), _mm_cmpeq_epi8(w, slash)),
					   _mm_cmpeq_epi8(_mm_min_epu8(w, control), w));
		int bits = _mm_movemask_epi8(any);
		if (bits) {
			*found = true;
			return i + (size_t)__builtin_ctz((unsigned)bits);
		}
	}
	return i;
}
#else
static size_t quick(const char *p, size_t n, bool *found)
{
	return 0;
}
#endif

size_t json_plain(const char *p, size_t n)
{
	const uint64_t ones = 0x0101010101010101, high = 0x8080808080808080;
	bool found = false;
	size_t i = quick(p, n, &found);
	for (uint64_t w; !found && n - i >= sizeof w; i += sizeof w) {
		memcpy(&w, p + i, sizeof w);
		uint64_t quote = w ^ ones * '"', slash = w ^ ones * '\\';
		uint64_t zero = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((w - ones * 0x20) & ~w);
		if (zero & high)
			break;
	}
	return i;
}

static int string(struct scan *s)
{
	if (s->p >= s->end || *s->p != '"')
		return bad(s, "a string is expected");
	for (s->p++; s->p += json_plain(s->p, (size_t)(s->end - s->p)), s->p < s->end;) {
		unsigned char c = (unsigned char)*s->p;
		if (c == '"') {
			s->p++;
			return 0;
		}
		if (c < 0x20)
			return bad(s, "control character in a string");
		if (c == '\\') {
			int rc = escape(s);
			if (rc)
				return rc;
		} else {
			s->p++;
		}
	}
	return bad(s, "string without an end");
}

/* Where a long string is cut: after so many of its characters. Its text is known to be good. */
static const char *cut_at(const char *p, const char *end, size_t characters)
{
	for (; characters && p < end; characters--) {
		if (*p != '\\')
			for (p++; p < end && ((unsigned char)*p & 0xC0) == 0x80;)
				p++;
		else if (p[1] != 'u')
			p += 2;
		else /* the two halves of a pair stay together */
			p += (p[2] | 32) == 'd' && strchr("89abAB", p[3]) ? 12 : 6;
	}
	return p;
}

/* The string that a value is. */
static int text(struct scan *s)
{
	const char *first = s->p + 1;
	int rc = string(s);
	if (rc || !s->cut || s->want || (size_t)(s->p - first) <= s->cut)
		return rc;
	const char *end = s->p - 1, *to = cut_at(first, end, s->cut); /* end: its last quote */
	if (to < end) {
		buf_add(s->brief, s->from, (size_t)(to - s->from));
		if (s->sized)
			buf_addf(s->brief, "\\u0001%zu", (size_t)(end - first));
		s->from = end;
	}
	return 0;
}

static bool digits(struct scan *s)
{
	const char *from = s->p;
	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return s->p > from;
}

#define LARGE_DIGITS 308 /* more of them, or an exponent, can be more than a double holds */

/* Where a number is too large, readers differ: some take it for infinite, some for null, some for the largest one. */
static int finite_number(struct scan *s, const char *from, bool exponent)
{
	size_t n = (size_t)(s->p - from);
	if (!exponent && n <= LARGE_DIGITS)
		return 0;
	CLEAN_FREE char *copy = xstrndup(from, n);
	return isfinite(strtod(copy, NULL)) ? 0 : bad(s, "a number is too large");
}

static int number(struct scan *s)
{
	const char *from = s->p;
	bool exponent = false;
	if (s->p < s->end && *s->p == '-')
		s->p++;
	if (s->p < s->end && *s->p == '0')
		s->p++;
	else if (!digits(s))
		return bad(s, "unknown value");
	if (s->p < s->end && *s->p == '.') {
		s->p++;
		if (!digits(s))
			return bad(s, "digits are missing after the point");
	}
	if (s->p < s->end && (*s->p | 32) == 'e') {
		s->p++;
		if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
			s->p++;
		if (!digits(s))
			return bad(s, "digits are missing in the exponent");
		exponent = true;
	}
	return finite_number(s, from, exponent);
}

static int value(struct scan *s, int depth);

/* The member of the top whose key's text is key[0..n), and that ends here, may be the one that is wanted. */
static void note_member(struct scan *s, const char *key, size_t n, const char *from)
{
	s->member.escaped = s->member.escaped || memchr(key, '\\', n);
	if (n != strlen(s->want) || memcmp(key, s->want, n) != 0)
		return;
	s->member.p = from;
	s->member.n = (size_t)(s->p - from);
	s->member.times++;
}

static int member(struct scan *s, bool object, int depth)
{
	const char *key = s->p + 1, *from;
	size_t n = 0;
	if (object) {
		int rc = string(s);
		if (rc)
			return rc;
		n = (size_t)(s->p - 1 - key);
		blanks(s);
		if (s->p >= s->end || *s->p != ':')
			return bad(s, "a colon is expected");
		s->p++;
	}
	from = s->p;
	int rc = value(s, depth + 1);
	if (!rc && object && !depth && s->want)
		note_member(s, key, n, from);
	return rc;
}

static int container(struct scan *s, int depth)
{
	bool object = *s->p == '{';
	char close = object ? '}' : ']';
	if (depth >= JSON_DEPTH)
		return bad(s, "nested too deeply");
	s->p++;
	blanks(s);
	if (s->p < s->end && *s->p == close) {
		s->p++;
		return 0;
	}
	for (;;) {
		blanks(s);
		int rc = member(s, object, depth);
		if (rc)
			return rc;
		blanks(s);
		if (s->p >= s->end)
			return bad(s, "it ends too early");
		char c = *s->p;
		if (c != ',' && c != close)
			return bad(s, "a comma is expected");
		s->p++;
		if (c == close)
			return 0;
	}
}

static int literal(struct scan *s, const char *word)
{
	size_t n = strlen(word);
	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n))
		return bad(s, "unknown value");
	s->p += n;
	return 0;
}

static int value(struct scan *s, int depth)
{
	blanks(s);
	if (s->p >= s->end)
		return bad(s, "it ends too early");
	if (++s->values > VALUES_MAX && s->cut)
		return bad(s, "too many values");
	switch (*s->p) {
	case '{':
	case '[': return container(s, depth);
	case '"': return text(s);
	case 't': return literal(s, "true");
	case 'f': return literal(s, "false");
	case 'n': return literal(s, "null");
	default: return number(s);
	}
}

#define FEW 8 /* keys that are compared one by one */

static int by_key(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int twice(const char *key, struct err *err)
{
	return err_set(err, EINVAL, "not strict JSON: the key \"%.80s\" stands twice", key);
}

/* Duplicate keys are looked for in the parsed tree: there, escapes are resolved, so "a" and "\u0061" are the same. */
static int unique(const cJSON *o, struct err *err)
{
	size_t n = 0;
	for (const cJSON *c = o->child; c; c = c->next, n++) {
		int rc = unique(c, err);
		if (rc)
			return rc;
	}
	if (!cJSON_IsObject(o) || n < 2)
		return 0;
	if (n <= FEW) {
		for (const cJSON *a = o->child; a; a = a->next)
			for (const cJSON *b = a->next; b; b = b->next)
				if (!strcmp(a->string, b->string))
					return twice(a->string, err);
		return 0;
	}
	CLEAN_FREE const char **keys = xmalloc(n * sizeof *keys);
	size_t i = 0;
	for (const cJSON *c = o->child; c; c = c->next)
		keys[i++] = c->string;
	qsort(keys, n, sizeof *keys, by_key);
	for (i = 1; i < n; i++)
		if (!strcmp(keys[i - 1], keys[i]))
			return twice(keys[i], err);
	return 0;
}

static int syntax(struct scan *s)
{
	size_t n = (size_t)(s->end - s->start), good = utf8_prefix(s->start, n, NULL);
	if (good < n) {
		s->p = s->start + good;
		return bad(s, *s->p ? "invalid UTF-8" : "NUL character");
	}
	int rc = value(s, 0);
	if (rc)
		return rc;
	blanks(s);
	return s->p < s->end ? bad(s, "more follows after the value") : 0;
}

static cJSON *parse(const char *p, size_t n, size_t cut, bool sized, struct err *err)
{
	CLEAN_BUF struct buf brief = BUF_INIT;
	struct scan s = {
		.p = p, .start = p, .end = p + n, .err = err, .cut = cut, .brief = &brief, .sized = sized, .from = p};
	if (syntax(&s))
		return NULL;
	if (brief.n) {
		buf_add(&brief, s.from, (size_t)(s.end - s.from));
		p = brief.p;
		n = brief.n;
	}
	cJSON *o = cJSON_ParseWithLength(p, n);
	if (!o) {
		err_set(err, EINVAL, "not JSON that can be read");
		return NULL;
	}
	if (unique(o, err)) {
		cJSON_Delete(o);
		return NULL;
	}
	return o;
}

cJSON *json_parse(const char *p, size_t n, struct err *err)
{
	return parse(p, n, 0, false, err);
}

cJSON *json_parse_cut(const char *p, size_t n, size_t cut, struct err *err)
{
	return parse(p, n, cut, false, err);
}

cJSON *json_parse_sized(const char *p, size_t n, size_t cut, struct err *err)
{
	return parse(p, n, cut, true, err);
}

/* One that was not cut has no more than cut characters, so what stands behind them is ours. */
size_t json_size(const cJSON *item, size_t cut)
{
	const char *s = cJSON_GetStringValue(item), *mark = s ? strrchr(s, 1) : NULL;
	size_t characters = 0;
	for (const char *p = s; mark && p < mark; p++)
		characters += ((unsigned char)*p & 0xC0) != 0x80;
	return mark && characters == cut ? strtoull(mark + 1, NULL, 10) : s ? strlen(s) : 0;
}

int json_member(const char *p, size_t n, const char *key, cJSON **out)
{
	struct scan s = {.p = p, .start = p, .end = p + n, .cut = 1, .want = key};
	*out = NULL;
	if (syntax(&s) || s.member.times > 1)
		return -EINVAL;
	if (!s.member.escaped) {
		*out = s.member.times ? json_parse_cut(s.member.p, s.member.n, WORD, NULL) : NULL;
		return s.member.times && !*out ? -EINVAL : 0;
	}
	CLEAN_JSON cJSON *o = json_parse_cut(p, n, WORD, NULL);
	*out = o ? cJSON_DetachItemFromObjectCaseSensitive(o, key) : NULL;
	return o ? 0 : -EINVAL;
}

int json_check(const char *p, size_t n, struct err *err)
{
	cJSON *o = json_parse(p, n, err);
	if (!o)
		return -EINVAL;
	cJSON_Delete(o);
	return 0;
}

const cJSON *json_get(const cJSON *o, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(o, key);
}

const char *json_str(const cJSON *o, const char *key)
{
	return cJSON_GetStringValue(json_get(o, key));
}

bool json_int(const cJSON *o, const char *key, int64_t *out)
{
	const cJSON *v = json_get(o, key);
	if (!cJSON_IsNumber(v) || fabs(v->valuedouble) > 9007199254740992.0 || trunc(v->valuedouble) != v->valuedouble)
		return false;
	*out = (int64_t)v->valuedouble;
	return true;
}

bool json_bool(const cJSON *o, const char *key, bool fallback)
{
	const cJSON *v = json_get(o, key);
	return cJSON_IsBool(v) ? cJSON_IsTrue(v) : fallback;
}

void json_print(struct buf *out, const cJSON *o)
{
	char *s = cJSON_PrintUnformatted(o);
	if (s)
		buf_adds(out, s);
	cJSON_free(s);
}

static void quote_special(struct buf *out, char c)
{
	static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";
	const char *e = c ? strchr(plain, c) : NULL;
	if (e)
		buf_addf(out, "\\%c", escaped[e - plain]);
	else
		buf_addf(out, "\\u%04x", c);
}

/* Text without a fault: what needs no escape is added in one piece. */
static void quote_good(struct buf *out, const char *s, size_t n)
{
	size_t from = 0;
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)s[i] >= 0x20 && s[i] != '"' && s[i] != '\\')
			continue;
		buf_add(out, s + from, i - from);
		quote_special(out, s[i]);
		from = i + 1;
	}
	buf_add(out, s + from, n - from);
}

void json_quote(struct buf *out, const char *s, size_t n)
{
	buf_addc(out, '"');
	while (n) {
		size_t good = utf8_prefix(s, n, NULL);
		quote_good(out, s, good);
		s += good;
		n -= good;
		if (n) {
			buf_adds(out, "\xEF\xBF\xBD");
			s++;
			n--;
		}
	}
	buf_addc(out, '"');
}

void json_free(cJSON **o)
{
	cJSON_Delete(*o);
	*o = NULL;
}
