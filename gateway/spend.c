/* What was used, from the ledger's records to its tables. The thread that writes the ledger, but for spend_text(). Must
 * never lose a change, nor write one twice. */
#include "spend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/hash.h"
#include "backend/base/mem.h"

#define ROWS_MAX 256 /* that are gathered; they are looked for one after another */

const char spend_schema[] = "CREATE TABLE IF NOT EXISTS spend(key TEXT PRIMARY KEY, tokens INTEGER, nano INTEGER, "
			    "bytes INTEGER, requests INTEGER)"
			    " WITHOUT ROWID;"
			    "CREATE TABLE IF NOT EXISTS recent(key TEXT, second INTEGER, n INTEGER, PRIMARY KEY(key, "
			    "second)) WITHOUT ROWID;";

struct spend_row {
	char key[160];
	int64_t tokens, nano, bytes, requests;
	int64_t second; /* of the rate's row; 0: a row of spend */
};

/* ---- a change as text: TOKENS NANO BYTES SECOND RATES, and the keys, each with a NUL behind ---- */

void spend_text(const struct meter_change *c, struct buf *out)
{
	int rates = 0;
	if (!*c->keys[0])
		return;
	for (int s = 0; s < SCOPES; s++)
		rates |= c->rate[s] << s;
	buf_reserve(out, 240);
	const int64_t numbers[] = {c->tokens, c->nano, c->bytes, c->second, rates};
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		buf_addi(out, numbers[i]);
		buf_addc(out, ' ');
	}
	for (int s = 0; s < SCOPES; s++)
		buf_add(out, c->keys[s], strlen(c->keys[s]) + 1);
}

static bool take_number(const char **at, int64_t *out)
{
	char *end;
	if (**at != '-' && (**at < '0' || **at > '9'))
		return false;
	errno = 0;
	*out = strtoll(*at, &end, 10);
	*at = end + 1;
	return *end == ' ' && !errno;
}

/* ---- gathering ---- */

static struct spend_row *row_of(struct spend *s, const char *key, size_t n, int64_t second)
{
	uint64_t hash = hash_add(hash_add(HASH_BEGIN, &second, sizeof second), key, n);
	for (size_t i = 0; i < s->n; i++)
		if (s->hashes[i] == hash && s->rows[i].second == second && !strcmp(s->rows[i].key, key))
			return &s->rows[i];
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 16;
		s->rows = xrealloc(s->rows, s->cap * sizeof *s->rows);
		s->hashes = xrealloc(s->hashes, s->cap * sizeof *s->hashes);
	}
	s->hashes[s->n] = hash;
	struct spend_row *r = &s->rows[s->n++];
	*r = (struct spend_row){.second = second};
	memcpy(r->key, key, n + 1);
	return r;
}

int spend_gather(struct spend *s, const char *text, size_t n)
{
	int64_t tokens, nano, bytes, second, rates;
	const char *at = text, *end = text + n;
	if (!n || end[-1] || !take_number(&at, &tokens) || !take_number(&at, &nano) || !take_number(&at, &bytes) ||
	    !take_number(&at, &second) || !take_number(&at, &rates))
		return -EBADMSG;
	for (int i = 0; i < SCOPES; i++) {
		size_t len = at < end ? strlen(at) : 0;
		if (!len || len >= sizeof s->rows->key)
			return -EBADMSG;
		struct spend_row *r = row_of(s, at, len, 0);
		meter_sum(&r->tokens, tokens);
		meter_sum(&r->nano, nano);
		meter_sum(&r->bytes, bytes);
		r->requests += second != 0;
		if (second && rates >> i & 1)
			row_of(s, at, len, second)->requests++;
		at += len + 1;
	}
	return at == end ? 0 : -EBADMSG;
}

bool spend_full(const struct spend *s)
{
	return s->n >= ROWS_MAX;
}

void spend_forget(struct spend *s)
{
	s->n = 0;
}

void spend_release(struct spend *s)
{
	free(s->rows);
	free(s->hashes);
	*s = (struct spend){0};
}

/* ---- writing ---- */

static int failed(sqlite3 *db, struct err *err)
{
	return err_set(err, EIO, "spend cannot be written: %s", sqlite3_errmsg(db));
}

static int step(sqlite3 *db, sqlite3_stmt *st, struct err *err)
{
	int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : failed(db, err);
	sqlite3_reset(st);
	return rc;
}

static int write_row(sqlite3 *db, sqlite3_stmt *st, const struct spend_row *r, struct err *err)
{
	sqlite3_bind_text(st, 1, r->key, -1, SQLITE_STATIC);
	sqlite3_bind_int64(st, 2, r->second ? r->second : r->tokens);
	sqlite3_bind_int64(st, 3, r->second ? r->requests : r->nano);
	if (!r->second) {
		sqlite3_bind_int64(st, 4, r->bytes);
		sqlite3_bind_int64(st, 5, r->requests);
	}
	return step(db, st, err);
}

/* Seconds that are over say nothing any more. */
static int drop_old(sqlite3 *db, int64_t second, struct err *err)
{
	sqlite3_stmt *st;
	if (sqlite3_prepare_v2(db, "DELETE FROM recent WHERE second < ?", -1, &st, NULL))
		return failed(db, err);
	sqlite3_bind_int64(st, 1, second - 2 * METER_WINDOW);
	int rc = step(db, st, err);
	sqlite3_finalize(st);
	return rc;
}

int spend_write(sqlite3 *db, const struct spend *s, struct err *err)
{
	static const char *const sql[] = {"INSERT INTO spend VALUES(?1,?2,?3,?4,?5) ON CONFLICT(key) DO UPDATE SET "
					  "tokens=tokens+?2, nano=nano+?3, bytes=bytes+?4, requests=requests+?5",
					  "INSERT INTO recent VALUES(?1,?2,?3) ON CONFLICT DO UPDATE SET n=n+?3"};
	sqlite3_stmt *st[2] = {NULL, NULL};
	int rc = 0;
	int64_t newest = 0;
	for (int i = 0; s->n && i < 2; i++)
		if (sqlite3_prepare_v2(db, sql[i], -1, &st[i], NULL))
			rc = failed(db, err);
	for (size_t i = 0; !rc && i < s->n; i++) {
		const struct spend_row *r = &s->rows[i];
		rc = write_row(db, st[r->second != 0], r, err);
		newest = r->second > newest ? r->second : newest;
	}
	sqlite3_finalize(st[0]);
	sqlite3_finalize(st[1]);
	return rc || !newest ? rc : drop_old(db, newest, err);
}
