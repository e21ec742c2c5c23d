/* Which decisions have no outcome yet, and the tables that are not the ledger's own. They are written as of one record
 * of the chain; what came after that record is in memory, and is read from the chain itself when the ledger is opened
 * again. So the tables are written once for thousands of requests, most of which are over before that. The thread that
 * writes; must never forget a record that the chain has, nor take one twice.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "ledger_private.h"

#define RECORDS_MAX 4096 /* that are read at a start */
#define NUMBERS_MAX 256	 /* that are kept for the table */
#define WORD	    64	 /* no word that is looked for is longer */

static void add(struct ledger_numbers *s, uint64_t n)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 64;
		s->p = xrealloc(s->p, s->cap * sizeof *s->p);
	}
	s->p[s->n++] = n;
}

/* The newest first: most requests are short. */
static bool take_out(struct ledger_numbers *s, uint64_t n)
{
	for (size_t i = s->n; i-- > 0;)
		if (s->p[i] == n) {
			memmove(s->p + i, s->p + i + 1, (s->n - i - 1) * sizeof *s->p);
			s->n--;
			return true;
		}
	return false;
}

static void opened(struct ledger_pending *p, uint64_t seq)
{
	add(&p->opened, seq);
}

static void closed(struct ledger_pending *p, uint64_t seq)
{
	if (!take_out(&p->opened, seq)) /* then the table has it */
		add(&p->closed, seq);
}

void ledger_pending_note(struct ledger *l, const struct ledger_record *list)
{
	const struct ledger_tables *t = l->config.tables;
	for (const struct ledger_record *r = list; r; r = (const struct ledger_record *)r->node.next) {
		if (r->open)
			opened(&l->pending, r->seq);
		if (r->of)
			closed(&l->pending, r->of);
		if (r->aside.n && t)
			t->gather(l->config.arg, r->aside.p, r->aside.n);
	}
}

bool ledger_pending_due(const struct ledger *l)
{
	const struct ledger_pending *p = &l->pending;
	return l->now.seq - p->upto >= RECORDS_MAX || p->opened.n + p->closed.n >= NUMBERS_MAX ||
	       (l->config.tables && l->config.tables->full(l->config.arg));
}

int ledger_pending_write(struct ledger *l, struct err *err)
{
	struct ledger_pending *p = &l->pending;
	int rc = 0;
	for (size_t i = 0; !rc && i < p->opened.n; i++)
		rc = ledger_step_seq(l, OPEN, p->opened.p[i], err);
	for (size_t i = 0; !rc && i < p->closed.n; i++)
		rc = ledger_step_seq(l, CLOSE, p->closed.p[i], err);
	if (!rc && l->config.tables)
		rc = l->config.tables->write(l->db, l->config.arg, err);
	return rc ? rc : ledger_step_seq(l, UPTO, l->now.seq, err);
}

void ledger_pending_written(struct ledger *l, uint64_t upto)
{
	l->pending.opened.n = l->pending.closed.n = 0;
	l->pending.upto = upto;
	if (l->config.tables)
		l->config.tables->written(l->config.arg);
}

/* A line of the chain: a decision that let something through, or an outcome. */
static void read_line(struct ledger_pending *p, uint64_t seq, const char *line, size_t n)
{
	CLEAN_JSON cJSON *o = json_parse_cut(line, n, WORD, NULL);
	const char *kind = json_str(o, "kind"), *verdict = json_str(o, "verdict");
	int64_t of;
	if (kind && !strcmp(kind, "decision") && verdict && !strcmp(verdict, "allowed"))
		opened(p, seq);
	else if (kind && !strcmp(kind, "outcome") && json_int(o, "of", &of) && of > 0)
		closed(p, (uint64_t)of);
}

static int each_row(struct ledger *l, const char *text, uint64_t after,
		    int (*row)(struct ledger *l, sqlite3_stmt *st, struct err *err), struct err *err)
{
	sqlite3_stmt *st;
	int rc = 0, got = SQLITE_DONE;
	if (sqlite3_prepare_v2(l->db, text, -1, &st, NULL))
		return ledger_fail(l, err);
	if (sqlite3_bind_parameter_count(st))
		sqlite3_bind_int64(st, 1, (sqlite3_int64)after);
	while (!rc && (got = sqlite3_step(st)) == SQLITE_ROW)
		rc = row(l, st, err);
	sqlite3_finalize(st);
	return rc || got == SQLITE_DONE ? rc : ledger_fail(l, err);
}

static int on_upto(struct ledger *l, sqlite3_stmt *st, struct err *err)
{
	l->pending.upto = (uint64_t)sqlite3_column_int64(st, 0);
	return 0;
}

static int on_record(struct ledger *l, sqlite3_stmt *st, struct err *err)
{
	uint64_t seq = (uint64_t)sqlite3_column_int64(st, 0);
	const struct ledger_tables *t = l->config.tables;
	const char *aside = sqlite3_column_blob(st, 2);
	size_t n = (size_t)sqlite3_column_bytes(st, 2);
	read_line(&l->pending, seq, (const char *)sqlite3_column_text(st, 1), (size_t)sqlite3_column_bytes(st, 1));
	if (!n || !t)
		return 0;
	l->pending.replayed = true;
	return t->gather(l->config.arg, aside, n)
		       ? err_set(err, EBADMSG, "the ledger does not say what its record %llu has used",
				 (unsigned long long)seq)
		       : 0;
}

static int on_open(struct ledger *l, sqlite3_stmt *st, struct err *err)
{
	struct ledger_pending *p = &l->pending;
	uint64_t seq = (uint64_t)sqlite3_column_int64(st, 0);
	bool over = false;
	for (size_t i = 0; i < p->closed.n; i++)
		over |= p->closed.p[i] == seq;
	if (!over)
		add(&p->found, seq);
	return 0;
}

/* In a database of an earlier version the table is of its end. */
int ledger_pending_load(struct ledger *l, struct err *err)
{
	struct ledger_pending *p = &l->pending;
	int rc = ledger_exec(l, "INSERT OR IGNORE INTO upto SELECT 1, max(seq) FROM records", err);
	rc = rc ? rc : each_row(l, "SELECT seq FROM upto", 0, on_upto, err);
	rc = rc ? rc
		: each_row(l, "SELECT seq, line, aside FROM records WHERE seq > ? ORDER BY seq", p->upto, on_record,
			   err);
	rc = rc ? rc : each_row(l, "SELECT seq FROM open ORDER BY seq", 0, on_open, err);
	for (size_t i = 0; !rc && i < p->opened.n; i++)
		add(&p->found, p->opened.p[i]);
	return rc;
}

void ledger_pending_release(struct ledger_pending *p)
{
	free(p->opened.p);
	free(p->closed.p);
	free(p->found.p);
}
