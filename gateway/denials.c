/* Denials on their way to the ledger. The first ones of a series - one token, one rule, on one socket - are records of
 * their own. A client that goes on is counted, and a record a minute says how often it was refused, from when to when:
 * so none can fill the disk, and no request is left out. The loop's thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "gw.h"

#define SERIES	 64	     /* of a socket; those above share one */
#define WHOLE	 20	     /* records of their own that a series has at once */
#define WHOLE_MS (15 * 1000) /* and one more after so long */
#define ALL	 200	     /* the same for all series of a socket */
#define ALL_MS	 (2 * 1000)
#define TELL_MS	 (60 * 1000) /* after so long what was counted is told */

struct bucket { /* of records that may still be written */
	int left;
	int64_t at_ms;
};

struct series {
	struct token *token; /* or NULL */
	char rule[48];
	struct bucket whole;
	int64_t seen_ms;
	/* what was counted, and the last of it */
	int64_t count, since_ms, first_ms, last_ms; /* since: monotonic; the others are wall time */
	int status;
	char method[24], target[200], why[160];
};

struct denials {
	struct bucket all;
	struct series *p;
	int n;
};

static void fill(struct bucket *b, int most, int64_t every, int64_t now)
{
	int64_t more = b->at_ms ? (now - b->at_ms) / every : most;
	b->left = more > most - b->left ? most : b->left + (int)more;
	b->at_ms = b->at_ms && more < most ? b->at_ms + more * every : now;
}

static bool same(const struct series *s, const struct token *t, const char *rule)
{
	return s->token == t && !strcmp(s->rule, rule);
}

static struct series *series_of(struct denials *a, struct token *t, const char *rule, int64_t now)
{
	struct series *s = NULL;
	for (int i = 0; i < a->n; i++)
		if (same(&a->p[i], t, rule))
			return &a->p[i];
	for (int i = 0; i < a->n && a->n >= SERIES; i++)
		if (!a->p[i].count && now - a->p[i].seen_ms > WHOLE * WHOLE_MS)
			s = &a->p[i]; /* it would begin anew anyway */
	if (!s && a->n >= SERIES) {
		t = NULL;
		rule = "several";
		for (int i = 0; i < a->n; i++)
			if (same(&a->p[i], t, rule))
				return &a->p[i];
	}
	if (!s) {
		a->p = xrealloc(a->p, (size_t)(a->n + 1) * sizeof *a->p);
		s = &a->p[a->n++];
		s->token = NULL;
	}
	token_put(s->token);
	*s = (struct series){.token = t ? token_get(t) : NULL};
	snprintf(s->rule, sizeof s->rule, "%s", rule);
	return s;
}

static void copy_span(char *out, size_t cap, const struct http_reader *r, struct http_span s)
{
	size_t n = s.n < cap ? s.n : cap - 1;
	memcpy(out, http_span(r, s), n);
	out[n] = 0;
}

static struct ledger_record *record(const struct token *t, const char *method, const char *target, int status,
				    const char *rule, const char *why)
{
	struct ledger_record *r = ledger_record_new("decision");
	record_who(r, t);
	ledger_text(r, "method", method);
	ledger_text(r, "target", target);
	ledger_text(r, "verdict", "denied");
	ledger_int(r, "status", status);
	ledger_text(r, "rule", rule);
	ledger_text(r, "why", why);
	r->keep = true;
	r->done = ledger_record_free;
	return r;
}

static bool failing(struct gw *g)
{
	struct ledger_head h;
	ledger_head(g->ledger, &h);
	return h.failing;
}

void denials_note(struct conn *c, struct token *t, const struct denial *d, int64_t now)
{
	struct listener *l = c->from;
	char method[sizeof((struct series *)0)->method], target[sizeof((struct series *)0)->target];
	if (!l)
		return;
	if (!l->denials)
		l->denials = xcalloc(1, sizeof *l->denials);
	struct denials *a = l->denials;
	struct series *s = series_of(a, t, d->rule, now);
	s->seen_ms = now;
	fill(&s->whole, WHOLE, WHOLE_MS, now);
	fill(&a->all, ALL, ALL_MS, now);
	copy_span(method, sizeof method, &c->in, c->in.method);
	copy_span(target, sizeof target, &c->in, c->in.target);
	if (!s->count && s->whole.left && a->all.left && !failing(c->gw)) {
		s->whole.left--;
		a->all.left--;
		struct ledger_record *r = record(t, method, target, d->status, d->rule, d->text);
		if (!s->whole.left || !a->all.left)
			ledger_text(r, "then", "counted"); /* what comes at once is in a later record, if one comes */
		record_now(c->gw, r);
		return;
	}
	int64_t real = clock_real_ms();
	if (!s->count++) {
		s->since_ms = now;
		s->first_ms = real;
	}
	s->last_ms = real;
	s->status = d->status;
	memcpy(s->method, method, sizeof method);
	memcpy(s->target, target, sizeof target);
	snprintf(s->why, sizeof s->why, "%.*s", (int)sizeof s->why - 1, d->text);
}

static void tell(struct gw *g, struct series *s)
{
	char first[CLOCK_TEXT], last[CLOCK_TEXT];
	struct ledger_record *r = record(s->token, s->method, s->target, s->status, s->rule, s->why);
	ledger_int(r, "count", s->count);
	ledger_text(r, "first", clock_rfc3339(s->first_ms, first));
	ledger_text(r, "last", clock_rfc3339(s->last_ms, last));
	s->count = 0;
	record_later(g, r);
}

void denials_sweep(struct gw *g, int64_t now)
{
	bool waits = failing(g);
	list_each (i, &g->listeners) {
		struct denials *a = list_entry(i, struct listener, link)->denials;
		for (int k = 0; a && !waits && k < a->n; k++)
			if (a->p[k].count && now - a->p[k].since_ms >= TELL_MS)
				tell(g, &a->p[k]);
	}
}

void denials_end(struct listener *l)
{
	struct denials *a = l->denials;
	for (int i = 0; a && i < a->n; i++) {
		if (a->p[i].count)
			tell(l->gw, &a->p[i]);
		token_put(a->p[i].token);
	}
	if (a)
		free(a->p);
	free(a);
	l->denials = NULL;
}
