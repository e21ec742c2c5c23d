/* Takes secrets out of text. One pass: at each place where a shape may begin its prefix is compared, and what follows
 * is read once. A shape that turns out not to be one costs no more than its shortest length. Any thread; keeps nothing.
 */
#include "redact.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "backend/base/mem.h"

#define VALUE_MIN 12	     /* shortest value of the environment that is a secret: shorter ones are words */
#define BLOCK_MAX (12 << 10) /* bytes of a private key block whose end does not show */

/* Sets of characters. */
enum set { ALNUM, UPPER, HEX, WORD, DASH, BASE64, TOKEN, SETS };

static bool in_set(enum set set, unsigned char c)
{
	bool digit = c >= '0' && c <= '9', low = c >= 'a' && c <= 'z', up = c >= 'A' && c <= 'Z';
	switch (set) {
	case ALNUM: return digit || low || up;
	case UPPER: return digit || up;
	case HEX: return digit || (c >= 'a' && c <= 'f');
	case WORD: return digit || low || up || c == '_';
	case DASH: return digit || low || up || c == '_' || c == '-';
	case BASE64: return digit || low || up || c == '+' || c == '/' || c == '=';
	case TOKEN: return digit || low || up || (c && strchr("-._~+/=", c));
	case SETS: break;
	}
	return false;
}

/* A literal prefix, then at least min characters of a set; exact: no more than that. */
static const struct shape {
	const char *prefix, *what;
	enum set set;
	unsigned min;
	bool exact, digit; /* digit: one at least among them, or it is a word */
} shapes[] = {
	{"sk-ant-", "Anthropic key", DASH, 20, false, true},
	{"sk-proj-", "OpenAI key", DASH, 20, false, true},
	{"sk-svcacct-", "OpenAI key", DASH, 20, false, true},
	{"sk-admin-", "OpenAI key", DASH, 20, false, true},
	{"sk-or-v1-", "OpenRouter key", HEX, 32, false, true},
	{"sk-", "provider key", ALNUM, 32, false, true},
	{"gsk_", "Groq key", ALNUM, 40, false, true},
	{"xai-", "xAI key", ALNUM, 40, false, true},
	{"pplx-", "Perplexity key", ALNUM, 40, false, true},
	{"hf_", "Hugging Face token", ALNUM, 30, false, false},
	{"r8_", "Replicate token", ALNUM, 30, false, true},
	{"AIza", "Google key", DASH, 35, true, false},
	{"ya29.", "Google token", DASH, 30, false, true},
	{"GOCSPX-", "Google client secret", DASH, 20, false, false},
	{"AKIA", "AWS key id", UPPER, 16, true, false},
	{"ASIA", "AWS key id", UPPER, 16, true, false},
	{"ghp_", "GitHub token", ALNUM, 36, false, false},
	{"gho_", "GitHub token", ALNUM, 36, false, false},
	{"ghu_", "GitHub token", ALNUM, 36, false, false},
	{"ghs_", "GitHub token", ALNUM, 36, false, false},
	{"ghr_", "GitHub token", ALNUM, 36, false, false},
	{"github_pat_", "GitHub token", WORD, 50, false, false},
	{"glpat-", "GitLab token", DASH, 20, false, false},
	{"glrt-", "GitLab token", DASH, 20, false, false},
	{"gldt-", "GitLab token", DASH, 20, false, false},
	{"glcbt-", "GitLab token", DASH, 20, false, false},
	{"xoxb-", "Slack token", DASH, 20, false, true},
	{"xoxp-", "Slack token", DASH, 20, false, true},
	{"xoxa-", "Slack token", DASH, 20, false, true},
	{"xoxr-", "Slack token", DASH, 20, false, true},
	{"xoxs-", "Slack token", DASH, 20, false, true},
	{"xapp-", "Slack token", DASH, 20, false, true},
	{"hooks.slack.com/services/", "Slack webhook", BASE64, 30, false, true},
	{"sk_live_", "Stripe key", ALNUM, 16, false, false},
	{"sk_test_", "Stripe key", ALNUM, 16, false, false},
	{"rk_live_", "Stripe key", ALNUM, 16, false, false},
	{"whsec_", "webhook secret", BASE64, 24, false, false},
	{"npm_", "npm token", ALNUM, 36, true, false},
	{"pypi-", "PyPI token", DASH, 80, false, false},
	{"rubygems_", "RubyGems key", HEX, 48, true, false},
	{"dckr_pat_", "Docker token", DASH, 20, false, false},
	{"SG.", "SendGrid key", TOKEN, 60, false, true},
	{"dop_v1_", "DigitalOcean token", HEX, 64, true, false},
	{"lin_api_", "Linear key", ALNUM, 32, false, false},
	{"ntn_", "Notion token", ALNUM, 40, false, false},
	{"ATATT3", "Atlassian token", TOKEN, 60, false, false},
	{"shpat_", "Shopify token", HEX, 32, true, false},
	{"dapi", "Databricks token", HEX, 32, true, false},
	{"hvs.", "Vault token", DASH, 24, false, false},
	{"dp.pt.", "Doppler token", ALNUM, 40, false, false},
	{"tskey-", "Tailscale key", DASH, 20, false, true},
	{"sbp_", "Supabase token", HEX, 40, true, false},
	{"AGE-SECRET-KEY-1", "age key", UPPER, 58, true, false},
	{"Bearer ", "bearer token", TOKEN, 20, false, true},
	{"bearer ", "bearer token", TOKEN, 20, false, true},
	{"Authorization: Basic ", "basic login", BASE64, 8, false, false},
	{"authorization: basic ", "basic login", BASE64, 8, false, false},
};

/* Names behind which a value is a secret whatever it looks like: NAME, a few of ` \t"':=>,`, the value. */
static const struct named {
	const char *name, *what;
	enum set set;
	unsigned length;
} named[] = {
	{"aws_secret_access_key", "AWS secret key", BASE64, 40},
	{"secretaccesskey", "AWS secret key", BASE64, 40},
	{"aws_session_token", "AWS session token", BASE64, 100},
};

/* The text, and where the last runs were seen to end: in `sk-sk-sk-...` every third place may begin a shape, and none
 * may read all the rest again. */
struct text {
	const char *p;
	size_t n;
	struct {
		size_t from, to;
	} seen[SETS], no_digit;
};

/* A secret that was found. keep: bytes at its begin that are shown all the same ("Bearer "). */
struct hit {
	size_t keep, length;
	const char *what;
};

static bool has(const struct text *t, size_t at, const char *s)
{
	size_t n = strlen(s);
	return n <= t->n - at && !memcmp(t->p + at, s, n);
}

static size_t run(struct text *t, size_t at, enum set set)
{
	size_t i = at;
	if (at >= t->seen[set].from && at < t->seen[set].to)
		return t->seen[set].to - at;
	while (i < t->n && in_set(set, (unsigned char)t->p[i]))
		i++;
	t->seen[set].from = at;
	t->seen[set].to = i;
	return i - at;
}

static bool any_digit(struct text *t, size_t at, size_t n)
{
	size_t i = at >= t->no_digit.from && at < t->no_digit.to ? t->no_digit.to : at,
	       from = i == at ? at : t->no_digit.from;
	while (i < at + n && !(t->p[i] >= '0' && t->p[i] <= '9'))
		i++;
	t->no_digit.from = from;
	t->no_digit.to = i;
	return i < at + n;
}

static bool find_shape(struct text *t, size_t at, struct hit *h)
{
	for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
		const struct shape *s = &shapes[i];
		if (*s->prefix != t->p[at] || !has(t, at, s->prefix))
			continue;
		size_t from = at + strlen(s->prefix), n = run(t, from, s->set);
		if (n < s->min || (s->exact && n != s->min) || (s->digit && !any_digit(t, from, n)))
			continue;
		if (s->set == UPPER && n >= 7 && !memcmp(t->p + from + n - 7, "EXAMPLE", 7))
			continue; /* the one of the vendor's manuals */
		bool word = s->prefix[strlen(s->prefix) - 1] == ' ';
		*h = (struct hit){word ? strlen(s->prefix) : 0, from - at + n, s->what};
		return true;
	}
	return false;
}

/* Three parts with points between; the first two are JSON, so they begin with `{"`. */
static bool find_jwt(struct text *t, size_t at, struct hit *h)
{
	if (!has(t, at, "eyJ") || (at && (t->p[at - 1] == '_' || t->p[at - 1] == '-')))
		return false;
	size_t a = at + run(t, at, DASH);
	if (a - at < 12 || !has(t, a, ".eyJ"))
		return false;
	size_t b = a + 1 + run(t, a + 1, DASH), sign = has(t, b, ".") ? run(t, b + 1, DASH) : 0;
	if (sign < 16)
		return false;
	*h = (struct hit){0, b + 1 + sign - at, "JSON web token"};
	return true;
}

static bool find_named(struct text *t, size_t at, struct hit *h)
{
	for (size_t i = 0; i < ARRAY_LEN(named); i++) {
		size_t n = strlen(named[i].name), from = at + n;
		if (n > t->n - at || strncasecmp(t->p + at, named[i].name, n))
			continue;
		while (from < t->n && from - at - n < 8 && t->p[from] && strchr(" \t\"':=>,", t->p[from]))
			from++;
		size_t value = run(t, from, named[i].set);
		bool good = named[i].length == 40 ? value == 40 : value >= named[i].length;
		if (from == at + n || !good)
			continue;
		*h = (struct hit){from - at, from - at + value, named[i].what};
		return true;
	}
	return false;
}

/* -----BEGIN ... PRIVATE KEY----- to its end line, or as far as it goes on. */
static bool find_block(const struct text *t, size_t at, struct hit *h)
{
	static const char begin[] = "-----BEGIN ", end[] = "-----END ";
	if (!has(t, at, begin))
		return false;
	size_t head = at + sizeof begin - 1, name = head;
	while (head < t->n && head - name < 40 && (in_set(UPPER, (unsigned char)t->p[head]) || t->p[head] == ' '))
		head++;
	size_t limit = head + BLOCK_MAX < t->n ? head + BLOCK_MAX : t->n;
	if (!has(t, head, "-----") || !memmem(t->p + name, head - name, "PRIVATE KEY", 11))
		return false;
	const char *close = memmem(t->p + head + 5, limit - head - 5, end, sizeof end - 1);
	size_t stop = limit;
	if (close) {
		const char *dash =
			memmem(close + sizeof end - 1, (size_t)(t->p + t->n - close) - (sizeof end - 1), "-----", 5);
		stop = dash && dash - close < 60 ? (size_t)(dash + 5 - t->p) : (size_t)(close - t->p);
	} else {
		for (size_t i = head + 5; i + 1 < limit; i++)
			if (t->p[i] == '\n' && t->p[i + 1] == '\n' && !memmem(t->p + head, i - head, "Proc-Type", 9)) {
				stop = i; /* a blank line ends a block without headers */
				break;
			}
	}
	*h = (struct hit){0, stop - at, "private key"};
	return true;
}

/* ESC [ 3 1 m: a terminal's colour stands before, which is no part of a word. */
static bool after_colour(const struct text *t, size_t at)
{
	size_t i = at - 1;
	while (i && at - i < 16 && (in_set(HEX, (unsigned char)t->p[i - 1]) || t->p[i - 1] == ';'))
		i--;
	return i >= 2 && t->p[i - 1] == '[' && t->p[i - 2] == '\033';
}

static bool find(struct text *t, size_t at, struct hit *h)
{
	unsigned char c = (unsigned char)t->p[at];
	if (c == '-')
		return (!at || t->p[at - 1] != '-') && find_block(t, at, h);
	if (!in_set(ALNUM, c) || (at && in_set(ALNUM, (unsigned char)t->p[at - 1]) && !after_colour(t, at)))
		return false;
	return find_jwt(t, at, h) || find_shape(t, at, h) || find_named(t, at, h);
}

/* ---- the environment's own secrets ---- */

static bool secret_name(const char *name, size_t n)
{
	static const char *const parts[] = {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"};
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (memmem(name, n, parts[i], strlen(parts[i])))
			return true;
	return false;
}

struct own {
	const char *value;
	size_t n, next; /* next: where it stands next, SIZE_MAX if nowhere */
};

static size_t next_place(const struct text *t, const struct own *o, size_t from)
{
	const char *p = from < t->n ? memmem(t->p + from, t->n - from, o->value, o->n) : NULL;
	return p ? (size_t)(p - t->p) : SIZE_MAX;
}

static size_t find_own(const struct text *t, struct own own[], size_t max)
{
	size_t n = 0;
	for (char **e = environ; e && *e && n < max; e++) {
		const char *eq = strchr(*e, '=');
		if (!eq || strlen(eq + 1) < VALUE_MIN || eq[1] == '/' || !secret_name(*e, (size_t)(eq - *e)))
			continue; /* with a slash in front it is the path of a file */
		own[n] = (struct own){eq + 1, strlen(eq + 1), 0};
		own[n].next = next_place(t, &own[n], 0);
		n += own[n].next != SIZE_MAX;
	}
	return n;
}

static bool take_own(const struct text *t, struct own own[], size_t n, size_t at, struct hit *h)
{
	bool found = false;
	for (size_t i = 0; i < n; i++) {
		if (own[i].next < at)
			own[i].next = next_place(t, &own[i], at);
		if (own[i].next != at)
			continue;
		if (!found || own[i].n > h->length)
			*h = (struct hit){0, own[i].n, "a key of this machine"};
		found = true;
	}
	return found;
}

/* ---- all of it ---- */

static void copy(struct buf *out, const struct text *t, size_t a, size_t b, size_t from, size_t to)
{
	a = a < from ? from : a;
	b = b > to ? to : b;
	if (a < b)
		buf_add(out, t->p + a, b - a);
}

size_t redact(struct buf *out, const char *p, size_t n, size_t from, size_t to)
{
	struct text t = {.p = p ? p : "", .n = n};
	struct own own[32];
	size_t n_own = find_own(&t, own, ARRAY_LEN(own)), count = 0, plain = 0;
	for (size_t at = 0; at < n;) {
		struct hit h = {0};
		if (!find(&t, at, &h) && !(n_own && take_own(&t, own, n_own, at, &h))) {
			at++;
			continue;
		}
		copy(out, &t, plain, at + h.keep, from, to);
		if (at + h.length > from && at + h.keep < to) {
			buf_addf(out, "[redacted: %s]", h.what);
			count++;
		}
		at = plain = at + h.length;
	}
	copy(out, &t, plain, n, from, to);
	return count;
}
