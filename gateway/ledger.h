/* The hash-chained record of every request, allowed or blocked. A record is one line of JSON; its hash is
 * SHA-256(hash of the record before, 64 hex digits || the line's exact bytes). Nothing is ever re-serialised to check
 * it.
 *
 * A line is {"seq":N,"time":"2026-11-29T19:02:10.123Z","kind":"...", ...}; outside the database a hash is added as its
 * last member: ...,"hash":"64 hex digits"}. Kinds: start (number 1: the chain's name and public key), decision (before
 * the request goes out), outcome ("of": the decision's number), bytes (that the
 * connection of a decision may pass from then on), checkpoint (signed), event. */
#pragma once
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/base/queue.h"

#define LEDGER_HEX     64 /* SHA-256 in hex digits */
#define LEDGER_NAME    "berthfs-ledger"
#define LEDGER_TAIL    (LEDGER_HEX + 11) /* `,"hash":"` HEX `"}` */
#define LEDGER_KIND_AT 26		 /* from the comma after seq's number to the word of "kind" */

struct ledger_record {
	struct queue_node node;
	struct buf fields; /* members after the time: `"kind":"decision",...`; ledger_record_free() frees it */
	uint64_t of;	   /* an outcome: the decision that it closes; else 0 */
	bool open;	   /* a decision that an outcome has to follow */
	bool checkpoint;   /* a signed checkpoint follows at once */
	bool keep;	   /* it is tried again until it is written, as an outcome is */
	struct buf aside;  /* what it changes in the tables that are written for many records at once; empty: nothing */
	/* Runs on the thread that writes, in the same transaction, or NULL: what the record changes beside the chain
	 * that is read at any time. 0 or -errno; may run again after a failure. */
	int (*also)(sqlite3 *db, struct ledger_record *rec, struct err *err);
	void (*done)(struct ledger_record *rec); /* for the receiver of the done queue; not called here */
	void *arg;
	/* the result */
	int rc; /* 0, or -errno: nothing was written */
	uint64_t seq;
	struct err err;
};

/* Tables that follow from the chain. What a record changes in them (`aside`) is committed with it, in its row; after
 * that it is gathered here, in the chain's order, and the tables are written for thousands of records at once. A start
 * gathers what they lack: so after a crash they say the same as the chain. On the thread that writes, with arg. */
struct ledger_tables {
	int (*gather)(void *arg, const char *aside, size_t n); /* -EBADMSG: it says nothing; for a start alone */
	bool (*full)(void *arg);			       /* enough is gathered */
	int (*write)(sqlite3 *db, void *arg, struct err *err); /* all of it, within a transaction */
	void (*written)(void *arg);			       /* that is committed: it is forgotten */
};

struct ledger_config {
	const char *dir;		    /* ledger.db, ledger.key, ledger.pub, segments; made 0700 */
	const char *schema;		    /* more tables for `also` (CREATE TABLE IF NOT EXISTS ...), or NULL */
	bool sync_each;			    /* each commit waits for the disk; else it is synced within 50 ms */
	uint64_t segment;		    /* records that stay in the database; 0: 1,000,000 */
	unsigned checkpoint;		    /* a checkpoint every so many records; 0: 4096 */
	const struct ledger_tables *tables; /* or NULL */
	void *arg;
};

struct ledger_head {
	uint64_t seq; /* number of the last record */
	char hash[LEDGER_HEX + 1];
	uint64_t bytes;	     /* of the records that ledger_read() gives */
	uint64_t checkpoint; /* size that the last checkpoint speaks of, 0: none */
	bool failing;	     /* the last write did not work: requests are denied */
};

struct ledger;

/* Opens or begins the chain and starts its threads. Finished records go to done, in order. unknown gets the number of
 * decisions whose outcome the last run never wrote; each has an outcome record now that says so. -EBUSY: another
 * process writes it; -EBADMSG: its end does not hold together. */
int ledger_open(const struct ledger_config *config, struct queue *done, struct ledger **out, int *unknown,
		struct err *err);
/* One record, or a chain of them by node.next, to the ledger's thread; any thread. They come back by the done queue. */
void ledger_append(struct ledger *l, struct ledger_record *list);
/* The same at once and on the caller's thread, if that will not hold it up: nothing waits, and the disk is quick. true:
 * all are written, their seq is set, and done() is left to the caller. false: nothing was; append them. */
bool ledger_write(struct ledger *l, struct ledger_record *list);
int ledger_append_wait(struct ledger *l, struct ledger_record *rec, struct err *err); /* not while others use done */
void ledger_sync_each(struct ledger *l, bool on);	     /* any thread; from the next commit on */
void ledger_close(struct ledger *l);			     /* writes what waits, a last checkpoint, syncs */
void ledger_head(struct ledger *l, struct ledger_head *out); /* any thread */
/* The exported lines from byte offset on, at most max bytes. One thread. */
int ledger_read(struct ledger *l, uint64_t offset, size_t max, struct buf *out, struct err *err);
/* A text with length and hash of the chain, and the last checkpoint with its signature. */
int ledger_head_text(struct ledger *l, struct buf *out, struct err *err);
sqlite3 *ledger_reader(struct ledger *l); /* read-only connection, the same thread as ledger_read() */

const char *ledger_dir(struct ledger *l);

struct ledger_record *ledger_record_new(const char *kind);
void ledger_record_free(struct ledger_record *rec);
/* Adds `,"key":value`; text is cut at 200 bytes and written in ASCII. */
void ledger_text(struct ledger_record *rec, const char *key, const char *text);
void ledger_int(struct ledger_record *rec, const char *key, int64_t n);

/* Bytes as lower-case hex digits; out has 2 n + 1 bytes. */
void ledger_hex(const unsigned char *p, size_t n, char *out);

/* Checks a chain. The words of the result go to out, a finding a line. */
struct ledger_check {
	const char *dir;	 /* of the database and segments; or NULL */
	const char *file;	 /* a file of exported lines instead; or NULL */
	const char *expect_head; /* 64 hex digits that were noted earlier: they must be found in the chain; or NULL */
	const char *key;	 /* path of a public key to hold it against (default: dir/ledger.pub) */
	uint64_t records, checkpoints;
	double seconds;
	char head[LEDGER_HEX + 1];
};
/* 0: it holds; -EBADMSG: it does not (out says where and why); other -errno: it could not be read. */
int ledger_check(struct ledger_check *c, struct buf *out, struct err *err);
