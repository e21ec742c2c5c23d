/* Limits: never above one, whatever happens at the same time; what is settled is what was used; counters survive. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/base/mem.h"
#include "check.h"
#include "gateway/spend.h"
#include "gateway/token.h"

static int64_t now_ms = 1764450000000;

static int64_t fake_clock(void)
{
	return now_ms;
}

static struct meter fresh(sqlite3 *db)
{
	struct meter m;
	meter_init(&m, db);
	m.real_ms = m.mono_ms = fake_clock;
	return m;
}

static struct policy *limits(const char *text)
{
	struct policy *p = NULL;
	struct err err = ERR_INIT;
	if (policy_parse(text, strlen(text), &p, &err))
		printf("# %s\n", err.text);
	return p;
}

static const struct price three = {.input = 3000000, .output = 15000000, .cache_read = 300000, .cache_write = 3750000};

static struct ask request(int64_t input, int64_t answer)
{
	return (struct ask){.api = API_MESSAGES, .price = &three, .input = input, .answer = answer};
}

/* 100 clients, each over and over, at the last units: what is reserved and used is never above the limit. */
TEST(meter_race_at_the_last_unit)
{
	struct policy *p = limits("limit session money 0.1\nlimit project tokens 9000\n");
	struct meter m = fresh(NULL);
	struct hold holds[100] = {0};
	unsigned seed = 7;
	int allowed = 0, refused = 0;
	int64_t tokens, nano;
	for (int i = 0; i < 20000; i++) {
		struct hold *h = &holds[rand_r(&seed) % 100];
		struct meter_change c;
		struct denial d;
		if (h->open) {
			struct usage u = {.input = rand_r(&seed) % 50};
			u.output = rand_r(&seed) % 20;
			meter_settle(&m, h, &three, rand_r(&seed) % 20 ? &u : NULL, &c);
		} else {
			struct ask q = request(50, rand_r(&seed) % 3 ? 200 : INT64_MAX);
			if (meter_reserve(&m, p, "s", "p", &q, h, &c, &d))
				refused++;
			else
				allowed++;
			CHECK(!h->open || h->tokens > 50);
		}
		meter_spend(&m, "s", &tokens, &nano);
		CHECK(tokens <= 9000 && nano <= 100000000);
	}
	CHECK(allowed > 100 && refused > 100);
	meter_release(&m);
	policy_put(p);
}

TEST(meter_clamps_and_settles)
{
	struct policy *p = limits("limit day money 0.018\n"); /* 1000 tokens in, 1000 out */
	struct meter m = fresh(NULL);
	struct hold h;
	struct meter_change c;
	struct denial d;
	struct ask q = request(1000, 100000);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), 0);
	CHECK_INT(h.answer, 950); /* a cached input could cost more */
	CHECK_INT(h.nano, 1000 * 3750 + 950 * 15000);
	CHECK_INT(c.nano, h.nano);
	struct hold other;
	CHECK_INT(meter_reserve(&m, p, "t", "q", &q, &other, &c, &d), -EPERM);
	CHECK_STR(d.rule, "limit.day.money");
	CHECK_INT(d.status, 429);
	CHECK(d.retry_after > 0 && d.retry_after <= 86400);
	struct usage u = {.input = 100, .output = 10, .cache_read = 900};
	meter_settle(&m, &h, &three, &u, &c);
	int64_t tokens, nano;
	meter_spend(&m, "s", &tokens, &nano);
	CHECK_INT(tokens, 1010);
	CHECK_INT(nano, 100 * 3000 + 10 * 15000 + 900 * 300);
	CHECK_INT(c.nano, nano - (1000 * 3750 + 950 * 15000));
	meter_settle(&m, &h, &three, &u, &c); /* once only */
	meter_spend(&m, "s", &tokens, &nano);
	CHECK_INT(tokens, 1010);
	q = request(10, 5); /* small enough: not touched */
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), 0);
	CHECK(h.answer == INT64_MAX);
	meter_cancel(&m, &h);
	meter_spend(&m, "s", &tokens, &nano);
	CHECK_INT(tokens, 1010);
	now_ms += 86400000; /* another day */
	q = request(1000, 100000);
	CHECK_INT(meter_reserve(&m, p, "t", "q", &q, &other, &c, &d), 0);
	meter_release(&m);
	policy_put(p);
}

/* One that does not fit beside what runs may fit after it: that is told from one that never will. */
TEST(meter_says_when_to_try_again)
{
	struct policy *p = limits("limit session tokens 10000\n");
	struct meter m = fresh(NULL);
	struct hold h, other;
	struct meter_change c;
	struct denial d;
	struct ask q = request(6000, 1000);
	struct usage u = {.input = 1500, .output = 100};
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), 0);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &other, &c, &d), -EPERM);
	CHECK_INT(d.retry_after, 2);
	CHECK(strstr(d.text, "6000 tokens before its answer, and 3000 are left"));
	meter_settle(&m, &h, &three, &u, &c);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), 0);
	meter_settle(&m, &h, &three, NULL, &c);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), -EPERM);
	CHECK_INT(d.retry_after, 0);
	q = request(1400, 1000);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), -EPERM);
	CHECK_INT(d.retry_after, 0);
	meter_release(&m);
	policy_put(p);
}

TEST(meter_rate_and_concurrency)
{
	struct policy *p = limits("limit session requests-per-minute 5\nlimit project concurrency 3\n");
	struct meter m = fresh(NULL);
	struct hold h[4];
	struct meter_change c;
	struct denial d;
	struct ask q = request(10, 10);
	for (int i = 0; i < 3; i++)
		CHECK_INT(meter_reserve(&m, p, "a", "p", &q, &h[i], &c, &d), 0);
	CHECK_INT(meter_reserve(&m, p, "b", "p", &q, &h[3], &c, &d), -EPERM);
	CHECK_STR(d.rule, "limit.project.concurrency");
	CHECK_INT(d.retry_after, 1);
	for (int i = 0; i < 3; i++)
		meter_settle(&m, &h[i], &three, NULL, &c);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(meter_reserve(&m, p, "a", "p", &q, &h[0], &c, &d), 0);
		meter_settle(&m, &h[0], &three, NULL, &c);
	}
	CHECK_INT(meter_reserve(&m, p, "a", "p", &q, &h[0], &c, &d), -EPERM);
	CHECK_STR(d.rule, "limit.session.requests-per-minute");
	CHECK(d.retry_after >= 60 && d.retry_after <= 61);
	/* over many minutes: never more than 5 in any 60 seconds */
	int64_t times[600];
	int n = 0;
	for (int i = 0; i < 3000; i++) {
		now_ms += 137;
		if (!meter_reserve(&m, p, "z", "p", &q, &h[0], &c, &d)) {
			meter_settle(&m, &h[0], &three, NULL, &c);
			times[n++] = now_ms;
		}
		CHECK(n < 6 || times[n - 1] - times[n - 6] >= 60000);
	}
	CHECK(n >= 25);
	meter_release(&m);
	policy_put(p);
}

static int64_t wall_ms = 1764450000000;

static int64_t wall_clock(void)
{
	return wall_ms;
}

/* The machine's clock is set: a minute stays a minute, and a day that comes again has what it had spent. */
TEST(meter_clock_jumps)
{
	struct policy *p = limits("limit session requests-per-minute 3\nlimit day money 0.018\n");
	struct meter m = fresh(NULL);
	struct hold h;
	struct meter_change c;
	struct denial d;
	struct ask q = request(10, 10), large = request(1000, 1000);
	m.real_ms = wall_clock;
	for (int i = 0; i < 3; i++) {
		CHECK_INT(meter_reserve(&m, p, "a", "p", &q, &h, &c, &d), 0);
		meter_settle(&m, &h, &three, NULL, &c);
	}
	static const int64_t jumps[] = {3600000, -7200000, 86400000, -2 * 86400000LL};
	for (size_t i = 0; i < ARRAY_LEN(jumps); i++) {
		wall_ms += jumps[i];
		CHECK_INT(meter_reserve(&m, p, "a", "p", &q, &h, &c, &d), -EPERM);
		CHECK_STR(d.rule, "limit.session.requests-per-minute");
	}
	wall_ms = 1764450000000;
	CHECK_INT(meter_reserve(&m, p, "b", "p", &large, &h, &c, &d), 0); /* all that is left of the day */
	meter_settle(&m, &h, &three, NULL, &c);
	CHECK_INT(meter_reserve(&m, p, "c", "p", &large, &h, &c, &d), -EPERM);
	CHECK_STR(d.rule, "limit.day.money");
	wall_ms += 86400000;
	CHECK_INT(meter_reserve(&m, p, "d", "p", &q, &h, &c, &d), 0); /* another day */
	meter_settle(&m, &h, &three, NULL, &c);
	wall_ms -= 86400000;
	CHECK_INT(meter_reserve(&m, p, "e", "p", &large, &h, &c, &d), -EPERM);
	CHECK_STR(d.rule, "limit.day.money");
	meter_release(&m);
	policy_put(p);
}

TEST(meter_bytes_limit)
{
	struct policy *p = limits("limit session bytes 1000\n");
	struct meter m = fresh(NULL);
	struct hold h;
	struct meter_change c;
	struct denial d;
	CHECK_INT(meter_reserve(&m, p, "s", "p", NULL, &h, &c, &d), 0);
	CHECK_INT(meter_bytes_left(p, &h), 1000);
	meter_bytes(&h, 900);
	CHECK_INT(meter_bytes_left(p, &h), 100);
	meter_bytes_change(&h, 77, &c); /* what the ledger has of them is its own affair */
	CHECK(c.bytes == 77 && !c.tokens && !c.nano && !c.second && !strcmp(c.keys[SCOPE_SESSION], "s:s"));
	CHECK_INT(meter_bytes_left(p, &h), 100);
	meter_bytes(&h, 100);
	meter_settle(&m, &h, NULL, NULL, &c);
	CHECK_INT(meter_reserve(&m, p, "s", "p", NULL, &h, &c, &d), -EPERM);
	CHECK_STR(d.rule, "limit.session.bytes");
	meter_release(&m);
	policy_put(p);
}

static void write_change(sqlite3 *db, const struct meter_change *c)
{
	struct spend s = {0};
	CLEAN_BUF struct buf text = BUF_INIT;
	spend_text(c, &text);
	CHECK_INT(spend_gather(&s, text.p, text.n), 0);
	CHECK_INT(spend_write(db, &s, NULL), 0);
	spend_release(&s);
}

/* Whatever a provider says and however often: what is spent never becomes less, nor is a limit open again. */
TEST(meter_never_wraps)
{
	struct policy *none = limits(""), *p = limits("limit session money 1000\nlimit project tokens 1000000000\n");
	static const struct price dear = {.input = 1000000000000,
					  .output = 1000000000000,
					  .cache_read = 1000000000000,
					  .cache_write = 1000000000000};
	struct meter m = fresh(NULL);
	struct meter_change c;
	struct denial d;
	struct hold h[40];
	int64_t tokens, nano, before = 0;
	sqlite3 *db;
	sqlite3_open(":memory:", &db);
	sqlite3_exec(db, spend_schema, NULL, NULL, NULL);
	for (int round = 0; round < 20; round++) {
		struct usage u = {1000000000, 1000000000, 1000000000, 1000000000};
		struct ask q = request(10, 1000000000);
		q.price = &dear;
		for (size_t i = 0; i < ARRAY_LEN(h); i++) {
			CHECK_INT(meter_reserve(&m, none, "s", "p", &q, &h[i], &c, &d), 0);
			write_change(db, &c);
		}
		for (size_t i = 0; i < ARRAY_LEN(h); i++) {
			meter_settle(&m, &h[i], &dear, i % 2 ? &u : NULL, &c);
			write_change(db, &c);
		}
		meter_spend(&m, "s", &tokens, &nano);
		CHECK(nano > 0 && tokens > before);
		before = tokens;
	}
	struct ask small = request(10, 10);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &small, &h[0], &c, &d), -EPERM);
	CHECK_INT(meter_reserve(&m, p, "t", "p", &small, &h[0], &c, &d), -EPERM);
	meter_release(&m);
	m = fresh(db); /* as it is read again */
	CHECK_INT(meter_reserve(&m, p, "s", "q", &small, &h[0], &c, &d), -EPERM);
	CHECK_INT(meter_reserve(&m, p, "t", "p", &small, &h[0], &c, &d), -EPERM);
	meter_release(&m);
	policy_put(none);
	policy_put(p);
	CHECK_INT(sqlite3_close(db), 0);
}

TEST(meter_survives)
{
	sqlite3 *db;
	sqlite3_open(":memory:", &db);
	sqlite3_exec(db, spend_schema, NULL, NULL, NULL);
	struct policy *p = limits("limit session requests-per-minute 2\nlimit session tokens 10000\n");
	struct meter m = fresh(db);
	struct hold h;
	struct meter_change c;
	struct denial d;
	struct ask q = request(100, 200);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), 0);
	write_change(db, &c);
	struct usage u = {.input = 70, .output = 30};
	meter_settle(&m, &h, &three, &u, &c);
	write_change(db, &c);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), 0); /* and killed before it is settled */
	write_change(db, &c);
	meter_release(&m);
	m = fresh(db);
	int64_t tokens, nano;
	meter_spend(&m, "s", &tokens, &nano);
	CHECK_INT(tokens, 100 + 300);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), -EPERM);
	CHECK_STR(d.rule, "limit.session.requests-per-minute");
	now_ms += 62000;
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), 0);
	meter_release(&m);
	policy_put(p);
	CHECK_INT(sqlite3_close(db), 0);
}

/* What was used before cannot be read: nothing is let through until it can. */
TEST(meter_that_cannot_read)
{
	sqlite3 *db;
	sqlite3_open(":memory:", &db);
	struct policy *p = limits("limit session tokens 1000\nlimit session requests-per-minute 5\n");
	struct meter m = fresh(db);
	struct hold h;
	struct meter_change c;
	struct denial d;
	struct ask q = request(100, 500);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), -EPERM);
		CHECK_INT(d.status, 503);
		CHECK_STR(d.rule, "meter");
		CHECK(!h.open && !*c.keys[0]);
	}
	sqlite3_exec(db, "CREATE TABLE spend(key, tokens, nano, bytes); INSERT INTO spend VALUES('s:s', 650, 0, 0)",
		     NULL, NULL, NULL);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), -EPERM); /* half of it is not enough */
	CHECK_INT(d.status, 503);
	meter_charge(&m, "s", "p", 60, &c);
	sqlite3_exec(db, "CREATE TABLE recent(key, second, n)", NULL, NULL, NULL);
	CHECK_INT(meter_reserve(&m, p, "s", "p", &q, &h, &c, &d), 0);
	CHECK_INT(h.answer, 1000 - 650 - 60 - 100);
	meter_release(&m);
	policy_put(p);
	CHECK_INT(sqlite3_close(db), 0);
}

TEST(tokens_survive)
{
	sqlite3 *db;
	sqlite3_open(":memory:", &db);
	sqlite3_exec(db, token_schema, NULL, NULL, NULL);
	struct tokens t, again;
	char text[TOKEN_TEXT], second[TOKEN_TEXT];
	CHECK_INT(tokens_init(&t, NULL), 0);
	struct token *a = token_mint(&t, TOKEN_ENGINE, "7", "app", EGRESS_NONE, NULL, text);
	struct token *b = token_mint(&t, TOKEN_SANDBOX, "7", "app", EGRESS_REGISTRIES, "/x.sock", second);
	CHECK(a && b && strcmp(text, second) && strlen(text) == 70);
	CHECK_INT(token_save(db, a, NULL) | token_save(db, b, NULL), 0);
	CHECK(token_find(&t, text, strlen(text)) == a);
	CHECK(!token_find(&t, text, strlen(text) - 1));
	text[40] ^= 1;
	CHECK(!token_find(&t, text, strlen(text)));
	text[40] ^= 1;
	CHECK(token_named(&t, "zzzzzzzz") == NULL);
	CHECK_INT(tokens_init(&again, NULL), 0);
	CHECK_INT(tokens_load(&again, db, NULL), 0);
	struct token *back = token_find(&again, second, strlen(second));
	CHECK(back && back->network == EGRESS_REGISTRIES && !strcmp(back->socket, "/x.sock") &&
	      back->kind == TOKEN_SANDBOX);
	token_get(back);
	CHECK_INT(token_drop(db, back->hash, NULL), 0);
	token_revoke(&again, back);
	CHECK(!token_find(&again, second, strlen(second)));
	CHECK(back->revoked);
	token_put(back);
	tokens_release(&again);
	CHECK_INT(tokens_init(&again, NULL), 0);
	tokens_load(&again, db, NULL);
	CHECK(!token_find(&again, second, strlen(second)) && token_find(&again, text, strlen(text)));
	tokens_release(&again);
	tokens_release(&t);
	sqlite3_close(db);
}

CHECK_MAIN()
