/* Shared by the ledger's files: the chain's hash, the key that signs it, the thread that syncs. */
#pragma once
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "ledger.h"

/* ---- chain.c: hashing and exported form ---- */

struct chain {
	EVP_MD *md;
	EVP_MD_CTX *ctx;
};
int chain_init(struct chain *c, struct err *err);
void chain_release(struct chain *c);
/* hash := SHA-256(hash || line), in hex; hash has LEDGER_HEX + 1 bytes. */
void chain_next(struct chain *c, char *hash, const char *line, size_t n);
void chain_zero(char *hash);
void chain_export(struct buf *out, const char *line, size_t n, const char *hash);
/* The opposite, in place of a copy: the line and its hash within exported text; false if it has no such tail. The line
 * is p[0..n-LEDGER_TAIL) and a closing brace. */
bool chain_import(const char *p, size_t n, struct buf *line, char *hash);

/* ---- sign.c: an Ed25519 key whose signatures `ssh-keygen -Y verify` reads ---- */

struct sign_key;
int sign_load(const char *key_path, const char *pub_path, struct sign_key **out,
	      struct err *err);				       /* makes it if missing */
int sign_public(const char *ssh_words, struct sign_key **out); /* "ssh-ed25519 AAAA...", for checking alone */
void sign_free(struct sign_key *k);
const char *sign_words(const struct sign_key *k);					 /* "ssh-ed25519 AAAA..." */
int sign_text(const struct sign_key *k, const char *text, size_t n, struct buf *base64); /* an SSHSIG blob */
bool sign_check(const struct sign_key *k, const char *text, size_t n, const char *base64);
/* The checkpoint's text: chain's name, number of records, hash in base64; a line each. */
void checkpoint_text(struct buf *out, const char *id, uint64_t size, const char *hash, char *root); /* root: 45 bytes */
void hex_to_bytes(const char *hex, unsigned char *out, size_t n);

/* ---- ledger_sync.c: a thread that syncs, moves old records to segments, and keeps the last checkpoint in a file ----
 */

struct ledger_sync {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool started, dirty, stop;
	const char *dir;
	uint64_t segment;
	uint64_t from, to;	      /* records in the database */
	char *checkpoint;	      /* text to be written to a file, or NULL */
	atomic_uint_fast64_t drop_to; /* the writer may delete records below it: they are in a segment */
};
int ledger_sync_start(struct ledger_sync *s, const char *dir, uint64_t segment, struct err *err);
void ledger_sync_stop(struct ledger_sync *s);
/* Records from..to are committed; checkpoint (or NULL) is the newest text. */
void ledger_sync_note(struct ledger_sync *s, uint64_t from, uint64_t to, char *checkpoint);
