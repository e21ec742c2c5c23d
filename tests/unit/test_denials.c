/* Denials in the ledger: a flood of them fills no disk, and each is told of, by itself or in a number. */
#include <stdlib.h>

#include "backend/base/json.h"
#include "gateway/gw.h"
#include "ledger_box.h"

static struct gw g;
static struct listener l;
static struct conn c;
static struct box box;
static char *dir;

static int64_t told, records, bytes, numbers,
	whole; /* of what came out: denials, records, bytes; those with a number */

static void set_up(const char *request)
{
	size_t used;
	dir = fresh();
	CHECK_INT(open_box(&box, dir, 0, false), 0);
	g = (struct gw){.ledger = box.l};
	list_init(&g.listeners);
	l = (struct listener){.gw = &g};
	list_append(&g.listeners, &l.link);
	c = (struct conn){.gw = &g, .from = &l};
	http_init(&c.in, 1000, 0);
	CHECK_INT(http_feed(&c.in, request, strlen(request), &used), 0);
	told = records = bytes = numbers = whole = 0;
}

static void look(struct ledger_record *r)
{
	CLEAN_FREE char *line = xasprintf("{%s}", buf_str(&r->fields));
	CLEAN_JSON cJSON *o = json_parse(line, strlen(line), NULL);
	int64_t n = 1;
	bool number = json_int(o, "count", &n);
	CHECK(o && r->keep && !strcmp(json_str(o, "kind"), "decision") && !strcmp(json_str(o, "verdict"), "denied"));
	CHECK(n > 0 && json_str(o, "rule") && json_str(o, "token"));
	if (number)
		CHECK(json_str(o, "first") && json_str(o, "last") &&
		      strcmp(json_str(o, "first"), json_str(o, "last")) <= 0);
	told += n;
	records++;
	numbers += number;
	whole += !number;
	bytes += (int64_t)strlen(line) + 100 + LEDGER_HEX; /* as a row has them */
}

/* What would go to the ledger. */
static void come_out(void)
{
	for (struct ledger_record *r = g.later, *next; r; r = next) {
		next = (struct ledger_record *)r->node.next;
		look(r);
		ledger_record_free(r);
	}
	g.later = NULL;
	g.n_now = 0;
}

static void note(struct token *t, const char *rule, int64_t now)
{
	struct denial d;
	deny(&d, 403, rule, "because of %s", rule);
	g.n_now = 0; /* nothing goes to the ledger by itself */
	denials_note(&c, t, &d, now);
}

static void tear_down(void)
{
	denials_end(&l);
	come_out();
	http_release(&c.in);
	close_box(&box);
	gone(dir);
}

static struct token *token(int n)
{
	struct token *t = xcalloc(1, sizeof *t);
	snprintf(t->hash, sizeof t->hash, "%08d", n);
	t->session = xasprintf("s%d", n);
	t->project = xstrdup("p");
	t->refs = 1;
	return t;
}

TEST(few_denials_have_a_record_each)
{
	set_up("POST /v1/files HTTP/1.1\r\nHost: h\r\n\r\n");
	struct token *t = token(1);
	for (int i = 0; i < 20; i++)
		note(t, "route", 1000);
	for (int i = 0; i < 20; i++)
		note(NULL, "token", 1000);
	come_out();
	CHECK(told == 40 && whole == 40);
	/* and so it goes on with one that comes now and then */
	for (int i = 1; i <= 1000; i++) {
		note(t, "route", 1000 + i * 20000);
		denials_sweep(&g, 1000 + i * 20000);
	}
	come_out();
	CHECK(told == 1040 && whole == 1040);
	token_put(t);
	tear_down();
	CHECK_INT(told, 1040);
}

TEST(a_flood_is_counted)
{
	set_up("POST /v1/files HTTP/1.1\r\nHost: h\r\n\r\n");
	struct token *t = token(1);
	for (int i = 0; i < 50000; i++)
		note(t, "route", 5000 + i / 100);
	note(t, "model", 5500); /* another rule is told at once */
	come_out();
	CHECK(told == 21 && whole == 21);
	denials_sweep(&g, 5000 + 59000);
	come_out();
	CHECK_INT(numbers, 0);
	denials_sweep(&g, 5000 + 61000);
	come_out();
	CHECK(told == 50001 && numbers == 1);
	note(t, "route", 70000); /* after that each counts for itself again */
	come_out();
	CHECK(told == 50002 && numbers == 1);
	for (int i = 0; i < 77; i++)
		note(t, "route", 70000);
	token_put(t);
	tear_down(); /* what was not told yet is told at the end */
	CHECK(told == 50079 && numbers == 2);
}

/* A day of a client that does all it can: by every rule, as often as it likes. */
TEST(a_day_of_denials_is_small)
{
	static const char *const rules[] = {"token",
					    "token.channel",
					    "route",
					    "query",
					    "model",
					    "field",
					    "json",
					    "type",
					    "beta",
					    "header",
					    "encoding",
					    "http",
					    "egress.none",
					    "body",
					    "egress.literal",
					    "key",
					    "price",
					    "limit.session.money",
					    "limit.session.requests-per-minute",
					    "feature.server-tools"};
	set_up("POST /v1/files HTTP/1.1\r\nHost: h\r\n\r\n");
	struct token *t = token(1);
	int64_t n = 0;
	for (int64_t second = 1; second <= 86400; second++) {
		for (size_t i = 0; i < ARRAY_LEN(rules); i++, n++)
			note(i % 2 ? t : NULL, rules[i], second * 1000);
		denials_sweep(&g, second * 1000);
		come_out();
	}
	token_put(t);
	tear_down();
	CHECK_INT(told, n);
	printf("# %lld denials: %lld records, %.1f MB\n", (long long)n, (long long)records, (double)bytes / 1e6);
	CHECK(bytes < 60000000);
}

/* More series than are kept: none gets lost, they are counted together. */
TEST(many_series)
{
	set_up("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
	struct token *t[300];
	int64_t n = 0;
	for (int i = 0; i < 300; i++)
		t[i] = token(i);
	for (int64_t round = 1; round < 200; round++) {
		for (int i = 0; i < 300; i++, n++)
			note(t[i], "model", round * 2000);
		denials_sweep(&g, round * 2000);
		come_out();
	}
	CHECK(records < 5000);
	/* and when those have been silent for a while others have their place */
	for (int i = 0; i < 30; i++, n++)
		note(t[200 + i], "route", 4000000);
	come_out();
	for (int i = 0; i < 300; i++)
		token_put(t[i]);
	tear_down();
	CHECK_INT(told, n);
}

CHECK_MAIN()
