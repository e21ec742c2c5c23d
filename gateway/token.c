/* Session tokens. Must never keep a token's text: a copy of the database gives none away. */
#include "token.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"

#define PREFIX "berth-"

const char token_schema[] =
	"CREATE TABLE IF NOT EXISTS tokens(hash TEXT PRIMARY KEY, kind INTEGER, session TEXT, project TEXT,"
	" network INTEGER, created INTEGER, socket TEXT);";

int tokens_init(struct tokens *t, struct err *err)
{
	*t = (struct tokens){0};
	list_init(&t->all);
	return sha_init(&t->sha, err);
}

struct token *token_get(struct token *token)
{
	token->refs++;
	return token;
}

void token_put(struct token *t)
{
	if (!t || --t->refs)
		return;
	free(t->session);
	free(t->project);
	free(t->socket);
	free(t->life);
	free(t);
}

void tokens_release(struct tokens *t)
{
	list_each_safe (i, &t->all)
		token_put(list_entry(i, struct token, link));
	map_release(&t->by_hash);
	sha_release(&t->sha);
}

static void hex(const unsigned char *p, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * n] = 0;
}

static struct token *add(struct tokens *t, struct token *n)
{
	n->refs = 1;
	list_append(&t->all, &n->link);
	map_put(&t->by_hash, n->hash, n);
	return n;
}

struct token *token_mint(struct tokens *t, enum token_kind kind, const char *session, const char *project,
			 enum egress network, const char *socket, char *out)
{
	unsigned char raw[32];
	if (getrandom(raw, sizeof raw, 0) != sizeof raw)
		return NULL;
	memcpy(out, PREFIX, sizeof PREFIX);
	hex(raw, sizeof raw, out + strlen(PREFIX));
	OPENSSL_cleanse(raw, sizeof raw);
	struct token *n = xcalloc(1, sizeof *n);
	*n = (struct token){.kind = kind,
			    .network = network,
			    .created_ms = clock_real_ms(),
			    .session = xstrdup(session),
			    .project = xstrdup(project),
			    .socket = xstrdup(socket)};
	sha_hex(&t->sha, out, strlen(out), n->hash);
	return add(t, n);
}

struct token *token_find(struct tokens *t, const char *presented, size_t n)
{
	char h[65];
	if (n != strlen(PREFIX) + 64)
		return NULL;
	sha_hex(&t->sha, presented, n, h);
	/* The map compares hashes, which the caller cannot steer; the last comparison is of fixed time all the same. */
	struct token *token = map_get(&t->by_hash, h);
	return token && !token->revoked && !CRYPTO_memcmp(token->hash, h, 64) ? token : NULL;
}

struct token *token_named(struct tokens *t, const char *first8)
{
	list_each (i, &t->all) {
		struct token *token = list_entry(i, struct token, link);
		if (strlen(first8) == 8 && !strncmp(token->hash, first8, 8))
			return token;
	}
	return NULL;
}

void token_revoke(struct tokens *t, struct token *token)
{
	token->revoked = true;
	map_put(&t->by_hash, token->hash, NULL);
	list_remove(&token->link);
	token_put(token);
}

/* ---- rows ---- */

static int fail(sqlite3 *db, struct err *err)
{
	return err_set(err, EIO, "tokens cannot be kept: %s", sqlite3_errmsg(db));
}

int tokens_load(struct tokens *t, sqlite3 *db, struct err *err)
{
	sqlite3_stmt *st;
	if (sqlite3_prepare_v2(db, "SELECT hash, kind, session, project, network, created, socket FROM tokens", -1, &st,
			       NULL))
		return fail(db, err);
	while (sqlite3_step(st) == SQLITE_ROW) {
		struct token *n = xcalloc(1, sizeof *n);
		snprintf(n->hash, sizeof n->hash, "%s", (const char *)sqlite3_column_text(st, 0));
		n->kind = (enum token_kind)sqlite3_column_int(st, 1);
		n->session = xstrdup((const char *)sqlite3_column_text(st, 2));
		n->project = xstrdup((const char *)sqlite3_column_text(st, 3));
		n->network = (enum egress)sqlite3_column_int(st, 4);
		n->created_ms = sqlite3_column_int64(st, 5);
		n->socket = xstrdup((const char *)sqlite3_column_text(st, 6));
		add(t, n);
	}
	sqlite3_finalize(st);
	return 0;
}

int token_save(sqlite3 *db, const struct token *t, struct err *err)
{
	sqlite3_stmt *st;
	if (sqlite3_prepare_v2(db, "INSERT OR REPLACE INTO tokens VALUES(?,?,?,?,?,?,?)", -1, &st, NULL))
		return fail(db, err);
	sqlite3_bind_text(st, 1, t->hash, -1, SQLITE_STATIC);
	sqlite3_bind_int(st, 2, t->kind);
	sqlite3_bind_text(st, 3, t->session, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 4, t->project, -1, SQLITE_STATIC);
	sqlite3_bind_int(st, 5, (int)t->network);
	sqlite3_bind_int64(st, 6, t->created_ms);
	sqlite3_bind_text(st, 7, t->socket, -1, SQLITE_STATIC);
	int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : fail(db, err);
	sqlite3_finalize(st);
	return rc;
}

int token_drop(sqlite3 *db, const char *hash, struct err *err)
{
	sqlite3_stmt *st;
	if (sqlite3_prepare_v2(db, "DELETE FROM tokens WHERE hash=?", -1, &st, NULL))
		return fail(db, err);
	sqlite3_bind_text(st, 1, hash, -1, SQLITE_STATIC);
	int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : fail(db, err);
	sqlite3_finalize(st);
	return rc;
}
