/* Limits: reserve, settle, survive a restart. Must never let the sum of what is reserved and used pass a limit. */
#include "meter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"

#define WINDOW METER_WINDOW
#define SOON   2 /* seconds after which a request may fit that does not now */

struct account {
	char *key;
	int64_t tokens, nano, bytes;	/* used and reserved */
	int64_t held_tokens, held_nano; /* of them, what is reserved by requests that run */
	int64_t running;
	int rate[WINDOW];
	int64_t last;	   /* second that rate was last moved to */
	bool unread;	   /* what it had is not known yet: nothing is let through on it */
	int64_t active_ms; /* monotonic, of the last begin or end; -1: none */
	int64_t day_end;   /* a day's: its last second + 1; else 0 */
};

void meter_init(struct meter *m, sqlite3 *db)
{
	*m = (struct meter){.db = db, .real_ms = clock_real_ms, .mono_ms = clock_mono_ms};
}

void meter_release(struct meter *m)
{
	for (size_t i = 0; i < m->accounts.cap; i++) {
		struct account *a = m->accounts.slots[i].key ? m->accounts.slots[i].value : NULL;
		if (a)
			free(a->key);
		free(a);
	}
	map_release(&m->accounts);
}

/* ---- accounts ---- */

void meter_sum(int64_t *to, int64_t n)
{
	const int64_t most = INT64_MAX / 4;
	int64_t s;
	if (__builtin_add_overflow(*to, n, &s) || s > most || s < -most)
		s = n < 0 ? -most : most;
	*to = s;
}

static int read_rows(struct meter *m, const char *text, struct account *a,
		     void (*row)(struct meter *m, struct account *a, sqlite3_stmt *st))
{
	sqlite3_stmt *st;
	int rc = SQLITE_ERROR;
	if (!sqlite3_prepare_v2(m->db, text, -1, &st, NULL)) {
		sqlite3_bind_text(st, 1, a->key, -1, SQLITE_STATIC);
		sqlite3_bind_int64(st, 2, m->real_ms() / 1000 - WINDOW);
		while ((rc = sqlite3_step(st)) == SQLITE_ROW)
			row(m, a, st);
	}
	sqlite3_finalize(st);
	return rc == SQLITE_DONE ? 0 : -EIO;
}

static void on_spend(struct meter *m, struct account *a, sqlite3_stmt *st)
{
	a->tokens = sqlite3_column_int64(st, 0);
	a->nano = sqlite3_column_int64(st, 1);
	a->bytes = sqlite3_column_int64(st, 2);
}

/* Requests of the last minute, from wall time to the clock that cannot jump; from the future count as now. */
static void on_recent(struct meter *m, struct account *a, sqlite3_stmt *st)
{
	int64_t ago = m->real_ms() / 1000 - sqlite3_column_int64(st, 0), at = a->last - (ago > 0 ? ago : 0);
	a->rate[(at % WINDOW + WINDOW) % WINDOW] += sqlite3_column_int(st, 1);
}

/* All of it or nothing; what was counted meanwhile stays. */
static int load(struct meter *m, struct account *a)
{
	struct account was = {.key = a->key, .last = m->mono_ms() / 1000};
	a->unread =
		m->db && (read_rows(m, "SELECT tokens, nano, bytes FROM spend WHERE key=?1 AND ?2", &was, on_spend) ||
			  read_rows(m, "SELECT second, n FROM recent WHERE key=?1 AND second > ?2", &was, on_recent));
	if (a->unread)
		return -EIO;
	meter_sum(&a->tokens, was.tokens);
	meter_sum(&a->nano, was.nano);
	meter_sum(&a->bytes, was.bytes);
	a->last = was.last;
	memcpy(a->rate, was.rate, sizeof a->rate);
	return 0;
}

static struct account *account(struct meter *m, const char *key, int64_t day_end)
{
	struct account *a = map_get(&m->accounts, key);
	if (a)
		return a;
	a = xcalloc(1, sizeof *a);
	a->key = xstrdup(key);
	a->day_end = day_end;
	a->active_ms = -1;
	load(m, a);
	map_put(&m->accounts, key, a);
	return a;
}

static struct account *account_of(struct meter *m, char scope, const char *name)
{
	char key[160] = {scope, ':'};
	size_t n = strnlen(name, 150);
	memcpy(key + 2, name, n);
	key[n + 2] = 0;
	return account(m, key, 0);
}

static void accounts_of(struct meter *m, const char *session, const char *project, struct hold *h)
{
	int64_t day = m->real_ms() / 86400000;
	if (day != m->day_n || !*m->day) {
		char text[CLOCK_TEXT];
		snprintf(m->day, sizeof m->day, "d:%.10s", clock_rfc3339(day * 86400000, text));
		m->day_n = day;
	}
	h->accounts[SCOPE_SESSION] = account_of(m, 's', session);
	h->accounts[SCOPE_PROJECT] = account_of(m, 'p', project);
	h->accounts[SCOPE_DAY] = account(m, m->day, (day + 1) * 86400);
}

/* Forgets the requests that are older than a minute. */
static void move_rate(struct account *a, int64_t now)
{
	for (int64_t s = now - a->last >= WINDOW ? now - WINDOW + 1 : a->last + 1; s <= now; s++)
		a->rate[s % WINDOW] = 0;
	a->last = now > a->last ? now : a->last;
}

/* Requests of the last minute. */
static int64_t rate_of(struct meter *m, struct account *a, int *oldest)
{
	int64_t sum = 0;
	move_rate(a, m->mono_ms() / 1000);
	*oldest = 1;
	for (int i = 0; i < WINDOW; i++) {
		int n = a->rate[(a->last - i + WINDOW) % WINDOW];
		sum += n;
		if (n)
			*oldest = WINDOW - i;
	}
	return sum;
}

/* ---- reserving ---- */

static int over(struct denial *d, const struct meter *m, int scope, int limit, const struct account *a, int retry)
{
	static const char *const rules[SCOPES][LIMITS] = {
		{"limit.session.requests-per-minute", "limit.session.concurrency", "limit.session.tokens",
		 "limit.session.money", "limit.session.bytes"},
		{"limit.project.requests-per-minute", "limit.project.concurrency", "limit.project.tokens",
		 "limit.project.money", "limit.project.bytes"},
		{"limit.day.requests-per-minute", "limit.day.concurrency", "limit.day.tokens", "limit.day.money",
		 "limit.day.bytes"}};
	static const char *const words[] = {"requests a minute", "requests at a time", "tokens", "money", "bytes"};
	deny(d, 429, rules[scope][limit], "the limit of %s for %s is reached", words[limit],
	     scope == SCOPE_DAY	      ? "this day"
	     : scope == SCOPE_SESSION ? "this session"
				      : "this project");
	int64_t left = a->day_end ? a->day_end - m->real_ms() / 1000 : 0;
	d->retry_after = retry ? retry : left > 0 ? (int)left : 0;
	return -EPERM;
}

static int64_t nano_of(int64_t tokens, int64_t pico)
{
	__int128 n = (__int128)tokens * pico;
	n = (n + 999) / 1000;
	return n > INT64_MAX / 8 ? INT64_MAX / 8 : (int64_t)n;
}

int64_t meter_cost(const struct price *c, const struct usage *u)
{
	int64_t all = nano_of(u->input, c->input);
	meter_sum(&all, nano_of(u->output, c->output));
	meter_sum(&all, nano_of(u->cache_read, c->cache_read));
	meter_sum(&all, nano_of(u->cache_write, c->cache_write));
	return all;
}

/* The most that an input can cost, whatever part of it is cached. */
static int64_t input_price(const struct price *c)
{
	int64_t most = c->input > c->cache_write ? c->input : c->cache_write;
	return most > c->cache_read ? most : c->cache_read;
}

/* How long the answer may be under the limits of one account; -1: not even the input fits. */
static int64_t room(const struct ask *q, const struct account *a, const int64_t *limits, int *which)
{
	int64_t most = INT64_MAX;
	if (limits[LIMIT_TOKENS] != LIMIT_OFF) {
		most = limits[LIMIT_TOKENS] - a->tokens - q->input;
		*which = LIMIT_TOKENS;
	}
	if (limits[LIMIT_MONEY] != LIMIT_OFF && (q->price->output || q->price->input)) {
		int64_t left = limits[LIMIT_MONEY] - a->nano - nano_of(q->input, input_price(q->price));
		int64_t n = left < 0	       ? -1
			    : q->price->output ? (int64_t)((__int128)left * 1000 / q->price->output)
					       : INT64_MAX;
		if (n < most) {
			most = n;
			*which = LIMIT_MONEY;
		}
	}
	return most;
}

/* Without what was used before no limit can be held. */
static int check_read(struct meter *m, struct hold *h, struct denial *d)
{
	for (int s = 0; s < SCOPES; s++) {
		struct account *a = h->accounts[s];
		if (a->unread && load(m, a))
			return deny(d, 503, "meter", "what was used before cannot be read from the ledger's database");
	}
	return 0;
}

static int check_counts(struct meter *m, const struct policy *p, struct hold *h, struct denial *d)
{
	for (int s = 0; s < SCOPES; s++) {
		struct account *a = h->accounts[s];
		const int64_t *l = p->limits[s];
		int oldest;
		if (l[LIMIT_RATE] != LIMIT_OFF && rate_of(m, a, &oldest) >= l[LIMIT_RATE])
			return over(d, m, s, LIMIT_RATE, a, oldest);
		if (a->running >= l[LIMIT_CONCURRENCY])
			return over(d, m, s, LIMIT_CONCURRENCY, a, 1);
		if (a->bytes >= l[LIMIT_BYTES])
			return over(d, m, s, LIMIT_BYTES, a, 0);
	}
	return 0;
}

/* Not enough is left for the least of it. What others have reserved comes free when they are over, most of it: then it
 * is worth another try soon. */
static int too_little(struct meter *m, const struct policy *p, const struct ask *q, struct hold *h, int scope,
		      int which, struct denial *d)
{
	struct account *a = h->accounts[scope], alone = *a;
	int none;
	alone.tokens -= a->held_tokens;
	alone.nano -= a->held_nano;
	over(d, m, scope, which, a, room(q, &alone, p->limits[scope], &none) > 0 ? SOON : 0);
	size_t n = strlen(d->text);
	if (which == LIMIT_TOKENS)
		snprintf(d->text + n, sizeof d->text - n,
			 ": the request may have %lld tokens before its answer, and %lld are left", (long long)q->input,
			 (long long)(p->limits[scope][which] - a->tokens));
	else
		snprintf(d->text + n, sizeof d->text - n,
			 ": the request may cost %.4f dollars before its answer, and %.4f are left",
			 (double)nano_of(q->input, input_price(q->price)) / 1e9,
			 (double)(p->limits[scope][which] - a->nano) / 1e9);
	return -EPERM;
}

/* Finds what the answer may have at most, and reserves that. */
static int size_up(struct meter *m, const struct policy *p, const struct ask *q, struct hold *h, struct denial *d)
{
	bool counts = false;
	int64_t want = q->answer == INT64_MAX ? p->answer_tokens : q->answer, answer = want;
	for (int s = 0; s < SCOPES; s++) {
		int which = LIMIT_TOKENS;
		int64_t most = room(q, h->accounts[s], p->limits[s], &which);
		if (most == INT64_MAX)
			continue;
		counts = true;
		if (most < 0 || (most == 0 && want))
			return too_little(m, p, q, h, s, which, d);
		answer = most < answer ? most : answer;
	}
	h->answer = counts && (answer != q->answer) ? answer : INT64_MAX;
	h->tokens = q->input + answer;
	h->nano = nano_of(q->input, input_price(q->price)) + nano_of(answer, q->price->output);
	return 0;
}

/* Without the room for keys, most of which stays unused. */
static void clear_change(struct meter_change *c)
{
	for (int s = 0; s < SCOPES; s++)
		*c->keys[s] = 0;
	c->tokens = c->nano = c->bytes = c->second = 0;
	memset(c->rate, 0, sizeof c->rate);
}

static void keys_of(const struct hold *h, struct meter_change *c)
{
	for (int s = 0; s < SCOPES; s++)
		memcpy(c->keys[s], h->accounts[s]->key, strlen(h->accounts[s]->key) + 1); /* made by accounts_of() */
}

int meter_reserve(struct meter *m, const struct policy *p, const char *session, const char *project,
		  const struct ask *ask, struct hold *h, struct meter_change *change, struct denial *d)
{
	*h = (struct hold){.answer = INT64_MAX};
	clear_change(change);
	accounts_of(m, session, project, h);
	int64_t now = m->mono_ms();
	int rc = check_read(m, h, d);
	if (!rc)
		rc = check_counts(m, p, h, d);
	if (!rc && ask)
		rc = size_up(m, p, ask, h, d);
	if (rc)
		return rc;
	for (int s = 0; s < SCOPES; s++) {
		struct account *a = h->accounts[s];
		change->rate[s] = p->limits[s][LIMIT_RATE] != LIMIT_OFF;
		move_rate(a, now / 1000);
		a->rate[a->last % WINDOW]++;
		a->running++;
		a->active_ms = now;
		meter_sum(&a->tokens, h->tokens);
		meter_sum(&a->nano, h->nano);
		meter_sum(&a->held_tokens, h->tokens);
		meter_sum(&a->held_nano, h->nano);
	}
	h->open = true;
	keys_of(h, change);
	change->tokens = h->tokens;
	change->nano = h->nano;
	change->second = m->real_ms() / 1000;
	return 0;
}

static void add(struct meter *m, struct hold *h, int64_t tokens, int64_t nano)
{
	for (int s = 0; s < SCOPES; s++) {
		meter_sum(&h->accounts[s]->tokens, tokens);
		meter_sum(&h->accounts[s]->nano, nano);
		meter_sum(&h->accounts[s]->held_tokens, -h->tokens);
		meter_sum(&h->accounts[s]->held_nano, -h->nano);
		h->accounts[s]->running--;
		h->accounts[s]->active_ms = m->mono_ms();
	}
	h->open = false;
}

void meter_settle(struct meter *m, struct hold *h, const struct price *price, const struct usage *u,
		  struct meter_change *change)
{
	clear_change(change);
	if (!h->open)
		return;
	int64_t tokens = u ? u->input + u->output + u->cache_read + u->cache_write : h->tokens;
	int64_t nano = u ? meter_cost(price, u) : h->nano;
	keys_of(h, change);
	change->tokens = tokens - h->tokens;
	change->nano = nano - h->nano;
	add(m, h, change->tokens, change->nano);
	h->tokens = tokens;
	h->nano = nano;
}

void meter_charge(struct meter *m, const char *session, const char *project, int64_t tokens,
		  struct meter_change *change)
{
	struct hold h = {0};
	*change = (struct meter_change){.tokens = tokens};
	accounts_of(m, session, project, &h);
	for (int s = 0; s < SCOPES; s++)
		meter_sum(&h.accounts[s]->tokens, tokens);
	keys_of(&h, change);
}

void meter_cancel(struct meter *m, struct hold *h)
{
	if (h->open)
		add(m, h, -h->tokens, -h->nano);
}

int64_t meter_bytes_left(const struct policy *p, const struct hold *h)
{
	int64_t most = INT64_MAX;
	for (int s = 0; s < SCOPES; s++) {
		int64_t limit = p->limits[s][LIMIT_BYTES];
		if (limit != LIMIT_OFF && limit - h->accounts[s]->bytes < most)
			most = limit - h->accounts[s]->bytes;
	}
	return most;
}

void meter_bytes(struct hold *h, int64_t n)
{
	for (int s = 0; s < SCOPES; s++)
		meter_sum(&h->accounts[s]->bytes, n);
}

void meter_bytes_change(const struct hold *h, int64_t n, struct meter_change *change)
{
	clear_change(change);
	keys_of(h, change);
	change->bytes = n;
}

void meter_spend(struct meter *m, const char *session, int64_t *tokens, int64_t *nano)
{
	char key[160];
	snprintf(key, sizeof key, "s:%.150s", session);
	struct account *a = account(m, key, 0);
	*tokens = a->tokens;
	*nano = a->nano;
}

int64_t meter_last(struct meter *m, const char *session)
{
	char key[160];
	snprintf(key, sizeof key, "s:%.150s", session);
	const struct account *a = map_get(&m->accounts, key);
	return a ? a->active_ms : -1;
}
