/* Shared by the ledger's files: the chain's hash, the key that signs it, the thread that syncs. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "backend/base/clock.h"
#include "ledger.h"
#include "sha.h"

/* ---- chain.c: hashing and exported form ---- */

/* hash := SHA-256(hash || line), in hex; hash has LEDGER_HEX + 1 bytes. */
void chain_next(struct sha *sha, char *hash, const char *line, size_t n);
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

/* ---- beside the writer: ledger_sync.c has the thread that syncs, ledger_copy.c the one for what takes longer ---- */

struct ledger_sync {
	pthread_t syncer, copier;
	pthread_mutex_t lock; /* guards what follows, up to checkpoint */
	pthread_cond_t wake, more;
	bool syncs, copies; /* the threads run */
	bool dirty;
	const char *dir;
	uint64_t segment;
	uint64_t from, to; /* records in the database */
	char *checkpoint;  /* text to be written to a file, or NULL */
	atomic_bool stop;
	atomic_int busy;	      /* threads that the disk is at work for: a write may have to wait */
	atomic_int pages;	      /* of the log, as of the last commit */
	atomic_int copied;	      /* of them, those that are in the database */
	atomic_uint_fast64_t synced;  /* the last record that is known to be on the disk */
	atomic_uint_fast64_t drop_to; /* the writer may delete records below it: they are in a segment */
};
int ledger_sync_start(struct ledger_sync *s, const char *dir, uint64_t segment, struct err *err);
void ledger_sync_stop(struct ledger_sync *s);
/* Records from..to are committed; checkpoint (or NULL) is the newest text. */
void ledger_sync_note(struct ledger_sync *s, uint64_t from, uint64_t to, char *checkpoint);
void ledger_sync_wait(struct ledger_sync *s, pthread_cond_t *cond,
		      int ms);			   /* with the lock: so long, or until the end */
bool ledger_copy_due(const struct ledger_sync *s); /* with the lock: there is something for the second thread */
void *ledger_copier(void *arg);			   /* the second thread */
/* Little of a long log is left to be copied: who writes does that, so that it begins anew. */
bool ledger_log_ripe(const struct ledger_sync *s);

/* ---- ledger.c, ledger_open.c: the chain in its database ---- */

#define LEDGER_WAL_PAGES 8192 /* of the log, from which on it shall begin anew */
#define LEDGER_BUSY_MS                                                                                                 \
	2000 /* that another program may have the database locked, for the thread; callers do not wait                 \
	      */

enum { BEGIN, COMMIT, INSERT, OPEN, CLOSE, UPTO, LAST, DROP, STATEMENTS };

/* ledger_pending.c: decisions without an outcome, and what else the tables do not say yet */
struct ledger_numbers {
	uint64_t *p;
	size_t n, cap;
};
struct ledger_pending {
	uint64_t upto; /* the record that the tables are of */
	bool replayed; /* at the start: records after it had something for them */
	struct ledger_numbers opened, closed;
	struct ledger_numbers found; /* at the start: those that the last run left */
};

struct ledger_state { /* of the chain's end; restored when a commit fails */
	uint64_t seq, off, from, checkpoint;
	char hash[LEDGER_HEX + 1];
};

struct ledger {
	struct ledger_config config;
	struct queue in, *done;
	pthread_t thread;
	bool started;
	pthread_mutex_t writing; /* guards what a commit uses, from here to slow_until; held while one is made */
	sqlite3 *db;
	sqlite3_stmt *st[STATEMENTS];
	struct sha sha;
	struct sign_key *key;
	int lock_fd;
	char id[20];
	struct ledger_state now;
	struct ledger_pending pending;
	struct ledger_record *late, **late_tail; /* what a commit failed to write and must not get lost */
	int64_t checkpoint_ms;
	bool each, set;	 /* synced with each commit: as it is */
	struct buf line; /* that is being added */
	char stamp[CLOCK_TEXT];
	int64_t stamp_second;
	int64_t slow_until; /* monotonic ms: until then only the thread writes */
	int64_t shy_until;  /* and until then, while the disk is at it */
	bool caller;	    /* the commit is a caller's */
	sqlite3 *reader;
	struct ledger_sync sync;
	pthread_mutex_t mutex; /* guards shown */
	struct ledger_head shown;
	atomic_bool sync_each; /* as it shall be */
};

int ledger_commit(struct ledger *l, struct ledger_record *list, bool asked,
		  struct err *err); /* all of it, or nothing */
int ledger_add(struct ledger *l, const struct buf *fields, const struct buf *aside,
	       struct err *err); /* within a transaction; aside: or NULL */
int ledger_step_seq(struct ledger *l, int which, uint64_t seq, struct err *err);
int ledger_exec(struct ledger *l, const char *text, struct err *err);
int ledger_fail(struct ledger *l, struct err *err); /* words for the database's last error */
int ledger_set_sync(struct ledger *l, struct err *err);
void ledger_show(struct ledger *l, bool failing);
void *ledger_writer(void *arg);						      /* the thread */
void ledger_pending_note(struct ledger *l, const struct ledger_record *list); /* they are committed */
bool ledger_pending_due(const struct ledger *l);
int ledger_pending_write(struct ledger *l, struct err *err);  /* within a transaction, before its records */
void ledger_pending_written(struct ledger *l, uint64_t upto); /* it is committed */
int ledger_pending_load(struct ledger *l, struct err *err);
void ledger_pending_release(struct ledger_pending *p);
