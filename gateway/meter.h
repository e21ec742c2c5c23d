/* Limits: requests a minute, concurrency, tokens, money and bytes, for a session, its project and the day. What a
 * request may use at most is reserved before it goes out and settled after. Counters live here; each change is in the
 * row of the record that it belongs to (spend.h), so that both tell the same after a crash, and what was reserved then
 * stays charged. One thread. */
#pragma once
#include <sqlite3.h>

#include "backend/base/map.h"
#include "body.h"
#include "policy.h"

#define METER_WINDOW 61 /* seconds: a minute, and the part of the second that it began in */

struct account;

struct meter {
	struct map accounts; /* "s:NAME", "p:NAME", "d:2026-11-29" */
	char day[20];	     /* "d:2026-11-29", and its number */
	int64_t day_n;
	sqlite3 *db; /* where counters are read from when an account is first used; or NULL */
	int64_t (*real_ms)(void);
	int64_t (*mono_ms)(void);
};

struct usage {
	int64_t input, output, cache_read, cache_write; /* tokens */
};

struct hold { /* a reservation */
	struct account *accounts[SCOPES];
	int64_t tokens, nano; /* charged so far: reserved, then what it was */
	int64_t answer;	      /* what the request may ask for; INT64_MAX: as it was */
	bool open;
};

/* A change of counters, for the ledger. */
struct meter_change {
	char keys[SCOPES][160];
	int64_t tokens, nano, bytes;
	int64_t second;	   /* of a request that counts for the rate; 0: none */
	bool rate[SCOPES]; /* which have a limit of it */
};

void meter_init(struct meter *m, sqlite3 *db);
void meter_release(struct meter *m);
/* Reserves for a model request (price != NULL) or a connection through the proxy (ask NULL). 0 with h filled, or -EPERM
 * with d filled; nothing is reserved then. change gets what has to be written. */
int meter_reserve(struct meter *m, const struct policy *p, const char *session, const char *project,
		  const struct ask *ask, struct hold *h, struct meter_change *change, struct denial *d);
/* Charges what it was in place of what was reserved. usage NULL: the reservation stays. */
void meter_settle(struct meter *m, struct hold *h, const struct price *price, const struct usage *usage,
		  struct meter_change *change);
/* What was used without a reservation: its tokens are counted. */
void meter_charge(struct meter *m, const char *session, const char *project, int64_t tokens,
		  struct meter_change *change);
void meter_cancel(struct meter *m, struct hold *h); /* it never went out: as if it had not been */
/* Bytes through the proxy: how many the limits leave, INT64_MAX: there is none; counted as they pass; and for the
 * ledger, which has them before. */
int64_t meter_bytes_left(const struct policy *p, const struct hold *h);
void meter_bytes(struct hold *h, int64_t n);
void meter_bytes_change(const struct hold *h, int64_t n, struct meter_change *change);
/* Sums stop at a bound instead of becoming negative, which would open every limit. */
void meter_sum(int64_t *to, int64_t n);
int64_t meter_cost(const struct price *price, const struct usage *u); /* nanodollars, rounded up */
void meter_spend(struct meter *m, const char *session, int64_t *tokens, int64_t *nano);
int64_t meter_last(struct meter *m, const char *session); /* monotonic ms of its last begin or end; -1: none */
