/* Session tokens: 256 random bits, kept as their hash alone. A session has two: the engine's, taken on the daemon's
 * socket only, and the sandbox's, taken on that sandbox's socket only. One thread. */
#pragma once
#include <sqlite3.h>

#include "backend/base/list.h"
#include "backend/base/map.h"
#include "policy.h"
#include "sha.h"

#define TOKEN_TEXT 72 /* "berth-" and 64 hex digits, with its NUL */

enum token_kind { TOKEN_ENGINE, TOKEN_SANDBOX };

struct token {
	struct list link;
	char hash[65]; /* hex; the first 8 digits name it in the ledger */
	enum token_kind kind;
	char *session, *project;
	enum egress network;
	int64_t created_ms;
	char *socket; /* the sandbox's path, or NULL */
	char *life;   /* a unix socket that can be connected to as long as the sandbox runs, or NULL: not known */
	bool revoked;
	int refs; /* 1 while it is valid, and one for each request that uses it */
};

struct tokens {
	struct sha sha;
	struct list all;
	struct map by_hash;
};

extern const char token_schema[];
int tokens_init(struct tokens *t, struct err *err); /* -ENOSYS */
void tokens_release(struct tokens *t);
int tokens_load(struct tokens *t, sqlite3 *db, struct err *err);
/* Makes one; its text, which is kept nowhere, goes to out (TOKEN_TEXT bytes). NULL: no random numbers. */
struct token *token_mint(struct tokens *t, enum token_kind kind, const char *session, const char *project,
			 enum egress network, const char *socket, char *out);
/* The valid token that was presented, or NULL. The time it takes says nothing about how much of it was right. */
struct token *token_find(struct tokens *t, const char *presented, size_t n);
struct token *token_named(struct tokens *t, const char *first8); /* by the hash's first 8 digits */
void token_revoke(struct tokens *t, struct token *token);	 /* still readable by those that hold it */
struct token *token_get(struct token *token);
void token_put(struct token *token);
/* Rows for the ledger's transaction. */
int token_save(sqlite3 *db, const struct token *token, struct err *err);
int token_drop(sqlite3 *db, const char *hash, struct err *err);
