/* The ledger's writer: one thread, one connection, one chain. What waits is committed together; a record is told of
 * only after its commit. It must never go on after a record that is not its own, nor tell of one that was not written.
 */
#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/json.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "ledger_private.h"

#define DROP_AT_ONCE  2000	  /* old records deleted in one commit */
#define CHECKPOINT_MS (60 * 1000) /* after so long a checkpoint follows new records */
#define LATE_MS	      200	  /* outcomes that could not be written are tried again so often */

static const char schema[] = "CREATE TABLE IF NOT EXISTS records(seq INTEGER PRIMARY KEY, off INTEGER NOT NULL,"
			     " line TEXT NOT NULL, hash TEXT NOT NULL);"
			     "CREATE TABLE IF NOT EXISTS open(seq INTEGER PRIMARY KEY);";

enum { INSERT, OPEN, CLOSE, LAST, DROP, STATEMENTS };
static const char *const sql[STATEMENTS] = {
	[INSERT] = "INSERT INTO records VALUES(?,?,?,?)",
	[OPEN] = "INSERT INTO open VALUES(?)",
	[CLOSE] = "DELETE FROM open WHERE seq=?",
	[LAST] = "SELECT max(seq) FROM records",
	[DROP] = "DELETE FROM records WHERE seq < ? AND seq < (SELECT min(seq) FROM records) + ?",
};

struct state { /* of the chain's end; restored when a commit fails */
	uint64_t seq, off, from, checkpoint;
	char hash[LEDGER_HEX + 1];
};

struct ledger {
	struct ledger_config config;
	struct queue in, *done;
	pthread_t thread;
	bool started;
	sqlite3 *db, *reader;
	sqlite3_stmt *st[STATEMENTS];
	struct chain chain;
	struct sign_key *key;
	int lock_fd;
	char id[20];
	struct state now;
	struct ledger_record *late, **late_tail; /* outcomes that a commit failed to write */
	int64_t checkpoint_ms;
	struct ledger_sync sync;
	pthread_mutex_t mutex; /* guards shown */
	struct ledger_head shown;
	atomic_bool sync_each; /* as it shall be */
	bool each, set;	       /* as it is */
};

/* ---- one commit ---- */

static int fail(struct ledger *l, struct err *err)
{
	int x = sqlite3_extended_errcode(l->db), code = (x & 0xff) == SQLITE_FULL ? ENOSPC : EIO;
	return err_set(err, code, "the ledger cannot be written (%s): %s", sqlite3_errmsg(l->db),
		       code == ENOSPC ? "free some space on its disk" : "look at its disk");
}

static int exec(struct ledger *l, const char *text, struct err *err)
{
	return sqlite3_exec(l->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(l, err);
}

static int step(struct ledger *l, int which, struct err *err)
{
	int rc = sqlite3_step(l->st[which]);
	rc = rc == SQLITE_DONE ? 0 : fail(l, err);
	sqlite3_reset(l->st[which]);
	return rc;
}

static int step_seq(struct ledger *l, int which, uint64_t seq, struct err *err)
{
	sqlite3_bind_int64(l->st[which], 1, (sqlite3_int64)seq);
	return step(l, which, err);
}

static void stamp(char out[32])
{
	int64_t ms = clock_real_ms();
	char text[CLOCK_TEXT];
	clock_rfc3339(ms, text);
	snprintf(out, 32, "%.19s.%03dZ", text, (int)(ms % 1000));
}

static int add(struct ledger *l, const struct buf *fields, struct err *err)
{
	CLEAN_BUF struct buf line = BUF_INIT;
	struct state *s = &l->now;
	char time[32];
	stamp(time);
	buf_reserve(&line, fields->n + 80);
	buf_addf(&line, "{\"seq\":%llu,\"time\":\"%s\",", (unsigned long long)s->seq + 1, time);
	buf_add(&line, fields->p, fields->n);
	buf_addc(&line, '}');
	chain_next(&l->chain, s->hash, line.p, line.n);
	s->seq++;
	sqlite3_stmt *st = l->st[INSERT];
	sqlite3_bind_int64(st, 1, (sqlite3_int64)s->seq);
	sqlite3_bind_int64(st, 2, (sqlite3_int64)s->off);
	sqlite3_bind_text(st, 3, line.p, (int)line.n, SQLITE_STATIC);
	sqlite3_bind_text(st, 4, s->hash, LEDGER_HEX, SQLITE_STATIC);
	s->off += line.n + LEDGER_TAIL;
	return step(l, INSERT, err);
}

/* A signed statement about all records so far; note gets the text for the file beside the database. */
static int add_checkpoint(struct ledger *l, struct buf *note, struct err *err)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_BUF struct buf sig = BUF_INIT;
	CLEAN_BUF struct buf fields = BUF_INIT;
	char root[48];
	checkpoint_text(&text, l->id, l->now.seq, l->now.hash, root);
	if (sign_text(l->key, text.p, text.n, &sig))
		return err_set(err, EIO, "the ledger's checkpoint cannot be signed");
	buf_addf(&fields, "\"kind\":\"checkpoint\",\"size\":%llu,\"root\":\"%s\",\"signature\":\"%s\"",
		 (unsigned long long)l->now.seq, root, buf_str(&sig));
	l->now.checkpoint = l->now.seq;
	buf_reset(note);
	buf_addf(note, "%s%s\n", buf_str(&text), buf_str(&sig));
	return add(l, &fields, err);
}

static int add_record(struct ledger *l, struct ledger_record *r, struct err *err)
{
	int rc = add(l, &r->fields, err);
	r->seq = l->now.seq;
	if (!rc && r->open)
		rc = step_seq(l, OPEN, r->seq, err);
	if (!rc && r->of)
		rc = step_seq(l, CLOSE, r->of, err);
	if (!rc && r->also)
		rc = r->also(l->db, r, err);
	return rc;
}

/* Nobody else may have written: two writers would fork the chain. */
static int still_ours(struct ledger *l, struct err *err)
{
	sqlite3_stmt *st = l->st[LAST];
	int rc = sqlite3_step(st) == SQLITE_ROW ? 0 : fail(l, err);
	if (!rc && (uint64_t)sqlite3_column_int64(st, 0) != l->now.seq)
		rc = err_set(err, EBADMSG,
			     "the ledger was changed by another program: its last record is %lld, not %llu",
			     sqlite3_column_int64(st, 0), (unsigned long long)l->now.seq);
	sqlite3_reset(st);
	return rc;
}

static int drop_old(struct ledger *l, struct err *err)
{
	uint64_t below = atomic_load(&l->sync.drop_to);
	if (l->now.from >= below)
		return 0;
	sqlite3_bind_int64(l->st[DROP], 1, (sqlite3_int64)below);
	sqlite3_bind_int64(l->st[DROP], 2, DROP_AT_ONCE);
	int rc = step(l, DROP, err);
	if (!rc)
		l->now.from += below - l->now.from < DROP_AT_ONCE ? below - l->now.from : DROP_AT_ONCE;
	return rc;
}

static bool checkpoint_due(const struct ledger *l, bool asked)
{
	unsigned every = l->config.checkpoint ? l->config.checkpoint : 4096;
	uint64_t behind = l->now.seq - l->now.checkpoint;
	return (asked && behind > 1) || behind > every ||
	       (behind > 1 && clock_mono_ms() - l->checkpoint_ms > CHECKPOINT_MS);
}

/* All of the chain, or nothing. */
static int commit(struct ledger *l, struct ledger_record *list, bool asked, struct err *err)
{
	struct state before = l->now;
	CLEAN_BUF struct buf note = BUF_INIT;
	int rc = exec(l, "BEGIN IMMEDIATE", err);
	if (rc)
		return rc;
	rc = still_ours(l, err);
	for (struct ledger_record *r = list; !rc && r; r = (struct ledger_record *)r->node.next) {
		rc = add_record(l, r, err);
		asked |= r->checkpoint;
	}
	if (l->config.gathered && (rc || list)) {
		int written = l->config.gathered(l->db, l->config.arg, rc != 0, err);
		rc = rc ? rc : written;
	}
	if (!rc && checkpoint_due(l, asked))
		rc = add_checkpoint(l, &note, err);
	if (!rc)
		rc = drop_old(l, err);
	if (!rc)
		rc = exec(l, "COMMIT", err);
	if (rc) {
		sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
		l->now = before;
		return rc;
	}
	if (note.n)
		l->checkpoint_ms = clock_mono_ms();
	ledger_sync_note(&l->sync, l->now.from, l->now.seq, note.n ? buf_take(&note) : NULL);
	return 0;
}

/* ---- the thread ---- */

static int set_sync(struct ledger *l, struct err *err)
{
	bool each = atomic_load(&l->sync_each);
	if (l->set && each == l->each)
		return 0;
	int rc = exec(l, each ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", err);
	l->set = !rc;
	l->each = each;
	return rc;
}

static void show(struct ledger *l, bool failing)
{
	pthread_mutex_lock(&l->mutex);
	l->shown.seq = l->now.seq;
	l->shown.bytes = l->now.off;
	l->shown.checkpoint = l->now.checkpoint;
	l->shown.failing = failing;
	memcpy(l->shown.hash, l->now.hash, sizeof l->shown.hash);
	pthread_mutex_unlock(&l->mutex);
}

static void finish(struct ledger *l, struct ledger_record *list, int rc, const struct err *err)
{
	for (struct ledger_record *r = list, *next; r; r = next) {
		next = (struct ledger_record *)r->node.next;
		r->rc = rc;
		if (rc && err)
			r->err = *err;
		if (rc && r->of) { /* the request is over: its outcome must not get lost */
			r->node.next = NULL;
			*l->late_tail = r;
			l->late_tail = (struct ledger_record **)&r->node.next;
		} else {
			queue_push(l->done, &r->node);
		}
	}
}

void ledger_sync_each(struct ledger *l, bool on)
{
	atomic_store(&l->sync_each, on);
}

static void round_of(struct ledger *l, struct ledger_record *list)
{
	struct err err = ERR_INIT;
	set_sync(l, NULL);
	if (l->late) { /* first, so that the order of a session's records stays */
		*l->late_tail = list;
		list = l->late;
		l->late = NULL;
		l->late_tail = &l->late;
	}
	bool before = l->shown.failing;
	int rc = list || checkpoint_due(l, false) || l->now.from < atomic_load(&l->sync.drop_to)
			 ? commit(l, list, false, &err)
			 : 0;
	if (rc && !before)
		log_error("%s; requests are denied until it can", err.text);
	show(l, rc != 0);
	finish(l, list, rc, &err);
}

static void *writer(void *arg)
{
	struct ledger *l = arg;
	struct pollfd p = {.fd = queue_fd(&l->in), .events = POLLIN};
	for (;;) {
		struct queue_node *n = queue_pop_all(&l->in);
		if (n) {
			round_of(l, (struct ledger_record *)n);
			continue;
		}
		pthread_mutex_lock(&l->in.lock);
		bool end = l->in.closed && !l->in.head;
		pthread_mutex_unlock(&l->in.lock);
		if (end)
			break;
		bool dropping = l->now.from < atomic_load(&l->sync.drop_to);
		if (!poll(&p, 1, dropping ? 5 : l->late ? LATE_MS : 5000))
			round_of(l, NULL);
	}
	struct err err = ERR_INIT;
	if (commit(l, l->late, true, &err))
		log_error("the last records were not written: %s", err.text);
	return NULL;
}

void ledger_append(struct ledger *l, struct ledger_record *rec)
{
	queue_push(&l->in, &rec->node);
}

int ledger_append_wait(struct ledger *l, struct ledger_record *rec, struct err *err)
{
	ledger_append(l, rec);
	struct queue_node *n = queue_wait(l->done);
	if (n != &rec->node)
		return err_set(err, EDEADLK, "another record came first");
	return rec->rc ? err_set(err, -rec->rc, "%s", rec->err.text) : 0;
}

void ledger_head(struct ledger *l, struct ledger_head *out)
{
	pthread_mutex_lock(&l->mutex);
	*out = l->shown;
	pthread_mutex_unlock(&l->mutex);
}

/* ---- start ---- */

static int open_db(struct ledger *l, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/ledger.db", l->config.dir);
	if (sqlite3_open_v2(path, &l->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL))
		return err_set(err, EIO, "cannot open %s: %s", path, sqlite3_errmsg(l->db));
	chmod(path, 0600);
	sqlite3_busy_timeout(l->db, 2000);
	int rc = exec(l, "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=20000", err);
	if (!rc)
		rc = set_sync(l, err);
	if (!rc)
		rc = exec(l, schema, err);
	if (!rc && l->config.schema)
		rc = exec(l, l->config.schema, err);
	for (int i = 0; !rc && i < STATEMENTS; i++)
		if (sqlite3_prepare_v3(l->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &l->st[i], NULL))
			rc = fail(l, err);
	if (!rc && sqlite3_open_v2(path, &l->reader, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL))
		rc = err_set(err, EIO, "cannot open %s: %s", path, sqlite3_errmsg(l->reader));
	return rc;
}

/* The first record names the chain and the key that signs it. */
static int begin_chain(struct ledger *l, struct err *err)
{
	CLEAN_BUF struct buf f = BUF_INIT;
	unsigned char d[8];
	FILE *r = fopen("/dev/urandom", "re");
	size_t got = r ? fread(d, 1, sizeof d, r) : 0;
	if (r)
		fclose(r);
	if (got != sizeof d)
		return err_set(err, EIO, "no random numbers");
	for (int i = 0; i < 8; i++)
		snprintf(l->id + 2 * i, 3, "%02x", d[i]);
	chain_zero(l->now.hash);
	buf_addf(&f, "\"kind\":\"start\",\"version\":1,\"ledger\":\"%s\",\"key\":\"%s\"", l->id, sign_words(l->key));
	int rc = exec(l, "BEGIN IMMEDIATE", err);
	if (!rc)
		rc = add(l, &f, err);
	l->now.from = 1;
	return rc ? rc : exec(l, "COMMIT", err);
}

static int start_fields(struct ledger *l, const char *line, struct err *err)
{
	CLEAN_JSON cJSON *o = json_parse(line, strlen(line), err);
	const char *id = o ? json_str(o, "ledger") : NULL;
	if (!id || strlen(id) >= sizeof l->id)
		return err_set(err, EBADMSG, "the ledger's first record is broken: `berthfs ledger verify` tells more");
	snprintf(l->id, sizeof l->id, "%s", id);
	return 0;
}

/* The chain's name: from record 1, or after a rotation from the table that keeps it. */
static int load_id(struct ledger *l, struct err *err)
{
	sqlite3_stmt *st;
	int rc = exec(l, "CREATE TABLE IF NOT EXISTS first(line TEXT)", err);
	if (rc)
		return rc;
	if (!sqlite3_prepare_v2(l->db, "SELECT line FROM records WHERE seq=1 UNION ALL SELECT line FROM first", -1, &st,
				NULL) &&
	    sqlite3_step(st) == SQLITE_ROW)
		rc = start_fields(l, (const char *)sqlite3_column_text(st, 0), err);
	else
		rc = err_set(err, EBADMSG, "the ledger has no first record: `berthfs ledger verify` tells more");
	sqlite3_finalize(st);
	return rc ? rc
		  : exec(l,
			 "INSERT INTO first SELECT line FROM records WHERE seq=1 AND NOT EXISTS(SELECT 1 FROM first)",
			 err);
}

/* The end of the chain has to hold before anything is added to it. */
static int load_end(struct ledger *l, struct err *err)
{
	sqlite3_stmt *st;
	int rc = 0, n = 0;
	if (sqlite3_prepare_v2(l->db,
			       "SELECT seq, off, line, hash, (SELECT min(seq) FROM records) FROM (SELECT * FROM records"
			       " ORDER BY seq DESC LIMIT 200) ORDER BY seq",
			       -1, &st, NULL))
		return fail(l, err);
	while (!rc && sqlite3_step(st) == SQLITE_ROW) {
		uint64_t seq = (uint64_t)sqlite3_column_int64(st, 0);
		const char *line = (const char *)sqlite3_column_text(st, 2),
			   *hash = (const char *)sqlite3_column_text(st, 3);
		size_t bytes = (size_t)sqlite3_column_bytes(st, 2);
		char head[40];
		snprintf(head, sizeof head, "{\"seq\":%llu,", (unsigned long long)seq);
		if (n++ || seq == 1) {
			if (seq == 1)
				chain_zero(l->now.hash);
			chain_next(&l->chain, l->now.hash, line, bytes);
		} else {
			snprintf(l->now.hash, sizeof l->now.hash, "%s", hash);
		}
		if (strcmp(l->now.hash, hash) || strncmp(line, head, strlen(head)) || (n > 1 && seq != l->now.seq + 1))
			rc = err_set(err, EBADMSG,
				     "the ledger does not hold together at record %llu; `berthfs ledger verify` "
				     "tells more. Move its folder away to begin a new one",
				     (unsigned long long)seq);
		l->now.seq = seq;
		l->now.off = (uint64_t)sqlite3_column_int64(st, 1) + bytes + LEDGER_TAIL;
		l->now.from = (uint64_t)sqlite3_column_int64(st, 4);
		if (strstr(line, "\"kind\":\"checkpoint\""))
			l->now.checkpoint = seq - 1;
	}
	sqlite3_finalize(st);
	return rc;
}

/* Decisions that the last run never closed: what became of them is not known, and the chain says so. */
static int close_unknown(struct ledger *l, int *unknown, struct err *err)
{
	struct ledger_record *list = NULL, **tail = &list;
	sqlite3_stmt *st;
	*unknown = 0;
	if (sqlite3_prepare_v2(l->db, "SELECT seq FROM open ORDER BY seq", -1, &st, NULL))
		return fail(l, err);
	while (sqlite3_step(st) == SQLITE_ROW) {
		struct ledger_record *r = ledger_record_new("outcome");
		r->of = (uint64_t)sqlite3_column_int64(st, 0);
		ledger_int(r, "of", (int64_t)r->of);
		ledger_text(r, "result", "unknown");
		ledger_text(r, "why", "the gateway ended before the answer did; charged as reserved");
		*tail = r;
		tail = (struct ledger_record **)&r->node.next;
		++*unknown;
	}
	sqlite3_finalize(st);
	int rc = list ? commit(l, list, true, err) : 0;
	for (struct ledger_record *next; list; list = next) {
		next = (struct ledger_record *)list->node.next;
		ledger_record_free(list);
	}
	return rc;
}

static int start(struct ledger *l, int *unknown, struct err *err)
{
	CLEAN_FREE char *lock = xasprintf("%s/ledger.lock", l->config.dir);
	CLEAN_FREE char *key = xasprintf("%s/ledger.key", l->config.dir);
	CLEAN_FREE char *pub = xasprintf("%s/ledger.pub", l->config.dir);
	int rc = dir_make(l->config.dir, 0700, err);
	if (rc)
		return rc;
	l->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (l->lock_fd < 0 || flock(l->lock_fd, LOCK_EX | LOCK_NB))
		return err_set(err, EBUSY, "another gateway writes the ledger in %s", l->config.dir);
	if ((rc = chain_init(&l->chain, err)) || (rc = sign_load(key, pub, &l->key, err)) || (rc = open_db(l, err)) ||
	    (rc = load_end(l, err)))
		return rc;
	if (!l->now.seq && (rc = begin_chain(l, err)))
		return rc;
	if ((rc = load_id(l, err)) || (rc = ledger_sync_start(&l->sync, l->config.dir, l->config.segment, err)) ||
	    (rc = close_unknown(l, unknown, err)))
		return rc;
	l->checkpoint_ms = clock_mono_ms();
	show(l, false);
	rc = pthread_create(&l->thread, NULL, writer, l);
	l->started = !rc;
	return rc ? err_sys(err, rc, "cannot start the ledger's thread") : 0;
}

int ledger_open(const struct ledger_config *config, struct queue *done, struct ledger **out, int *unknown,
		struct err *err)
{
	struct ledger *l = xcalloc(1, sizeof *l);
	l->config = *config;
	atomic_init(&l->sync_each, config->sync_each);
	l->config.dir = xstrdup(config->dir);
	l->done = done;
	l->lock_fd = -1;
	l->late_tail = &l->late;
	pthread_mutex_init(&l->mutex, NULL);
	int rc = queue_init(&l->in);
	rc = rc ? err_sys(err, -rc, "no queue") : start(l, unknown, err);
	if (rc) {
		ledger_close(l);
		return rc;
	}
	*out = l;
	return 0;
}

void ledger_close(struct ledger *l)
{
	if (!l)
		return;
	queue_close(&l->in);
	if (l->started)
		pthread_join(l->thread, NULL);
	ledger_sync_stop(&l->sync);
	for (int i = 0; i < STATEMENTS; i++)
		sqlite3_finalize(l->st[i]);
	for (sqlite3_stmt *st; l->db && (st = sqlite3_next_stmt(l->db, NULL));) /* those of `also` */
		sqlite3_finalize(st);
	sqlite3_close(l->reader);
	sqlite3_close(l->db);
	sign_free(l->key);
	chain_release(&l->chain);
	fd_close(&l->lock_fd);
	queue_release(&l->in);
	pthread_mutex_destroy(&l->mutex);
	for (struct ledger_record *r = l->late, *next; r; r = next) {
		next = (struct ledger_record *)r->node.next;
		ledger_record_free(r);
	}
	free((char *)l->config.dir);
	free(l);
}

sqlite3 *ledger_reader(struct ledger *l)
{
	return l->reader;
}

const char *ledger_dir(struct ledger *l)
{
	return l->config.dir;
}
