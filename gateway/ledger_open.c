/* Opens the ledger's database, holds the end of the chain against itself before anything is added to it, and closes
 * all. Begins a chain where there is none. One thread, before the writer runs and after it has ended. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "ledger_private.h"

static const char schema[] = "CREATE TABLE IF NOT EXISTS records(seq INTEGER PRIMARY KEY, off INTEGER NOT NULL,"
			     " line TEXT NOT NULL, hash TEXT NOT NULL, aside BLOB);"
			     "CREATE TABLE IF NOT EXISTS open(seq INTEGER PRIMARY KEY);"
			     "CREATE TABLE IF NOT EXISTS upto(one INTEGER PRIMARY KEY, seq INTEGER);";

static const char *const sql[STATEMENTS] = {
	[BEGIN] = "BEGIN IMMEDIATE",
	[COMMIT] = "COMMIT",
	[INSERT] = "INSERT INTO records VALUES(?,?,?,?,?)",
	[OPEN] = "INSERT OR IGNORE INTO open VALUES(?)",
	[CLOSE] = "DELETE FROM open WHERE seq=?",
	[UPTO] = "UPDATE upto SET seq=?",
	[LAST] = "SELECT max(seq) FROM records",
	[DROP] = "DELETE FROM records WHERE seq < ? AND seq < (SELECT min(seq) FROM records) + ?",
};

/* A commit has made the log so many pages long. The second thread copies it into the database, but all of it only when
 * no commit comes meanwhile: so the last few pages are copied here, and the log begins anew. */
static int on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct ledger *l = arg;
	int copied;
	if (pages < atomic_exchange(&l->sync.pages, pages))
		atomic_store(&l->sync.copied, 0);
	if (!l->caller && ledger_log_ripe(&l->sync) &&
	    !sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, &copied))
		atomic_store(&l->sync.copied, copied);
	return SQLITE_OK;
}

/* Earlier versions had no such column, and wrote their tables with each record. */
static int add_aside(struct ledger *l, struct err *err)
{
	if (!sqlite3_table_column_metadata(l->db, NULL, "records", "aside", NULL, NULL, NULL, NULL, NULL))
		return 0;
	return ledger_exec(l, "ALTER TABLE records ADD COLUMN aside BLOB", err);
}

static int open_db(struct ledger *l, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/ledger.db", l->config.dir);
	if (sqlite3_open_v2(path, &l->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL))
		return err_set(err, EIO, "cannot open %s: %s", path, sqlite3_errmsg(l->db));
	chmod(path, 0600);
	sqlite3_busy_timeout(l->db, LEDGER_BUSY_MS);
	int rc = ledger_exec(l, "PRAGMA journal_mode=WAL", err);
	sqlite3_wal_hook(l->db, on_commit, l);
	if (!rc)
		rc = ledger_set_sync(l, err);
	if (!rc)
		rc = ledger_exec(l, schema, err);
	if (!rc)
		rc = add_aside(l, err);
	if (!rc && l->config.schema)
		rc = ledger_exec(l, l->config.schema, err);
	for (int i = 0; !rc && i < STATEMENTS; i++)
		if (sqlite3_prepare_v3(l->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &l->st[i], NULL))
			rc = ledger_fail(l, err);
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
	int rc = ledger_exec(l, "BEGIN IMMEDIATE", err);
	if (!rc)
		rc = ledger_add(l, &f, NULL, err);
	l->now.from = 1;
	return rc ? rc : ledger_exec(l, "COMMIT", err);
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
	int rc = ledger_exec(l, "CREATE TABLE IF NOT EXISTS first(line TEXT)", err);
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
		  : ledger_exec(l,
				"INSERT INTO first SELECT line FROM records WHERE seq=1 AND NOT EXISTS(SELECT 1 FROM "
				"first)",
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
		return ledger_fail(l, err);
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
			chain_next(&l->sha, l->now.hash, line, bytes);
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

/* Decisions that the last run never closed: what became of them is not known, and the chain says so. The tables get
 * what they lack. */
static int close_unknown(struct ledger *l, int *unknown, struct err *err)
{
	struct ledger_record *list = NULL, **tail = &list;
	int rc = ledger_pending_load(l, err);
	*unknown = rc ? 0 : (int)l->pending.found.n;
	for (size_t i = 0; !rc && i < l->pending.found.n; i++) {
		struct ledger_record *r = ledger_record_new("outcome");
		r->of = l->pending.found.p[i];
		ledger_int(r, "of", (int64_t)r->of);
		ledger_text(r, "result", "unknown");
		ledger_text(r, "why", "the gateway ended before the answer did; charged as reserved");
		*tail = r;
		tail = (struct ledger_record **)&r->node.next;
	}
	rc = !rc && (list || l->pending.replayed) ? ledger_commit(l, list, true, err) : rc;
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
	if ((rc = sha_init(&l->sha, err)) || (rc = sign_load(key, pub, &l->key, err)) || (rc = open_db(l, err)) ||
	    (rc = load_end(l, err)))
		return rc;
	if (!l->now.seq && (rc = begin_chain(l, err)))
		return rc;
	if ((rc = load_id(l, err)) || (rc = ledger_sync_start(&l->sync, l->config.dir, l->config.segment, err)) ||
	    (rc = close_unknown(l, unknown, err)))
		return rc;
	l->checkpoint_ms = clock_mono_ms();
	ledger_show(l, false);
	rc = pthread_create(&l->thread, NULL, ledger_writer, l);
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
	pthread_mutex_init(&l->writing, NULL);
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
	sha_release(&l->sha);
	fd_close(&l->lock_fd);
	queue_release(&l->in);
	pthread_mutex_destroy(&l->mutex);
	pthread_mutex_destroy(&l->writing);
	buf_release(&l->line);
	ledger_pending_release(&l->pending);
	for (struct ledger_record *r = l->late, *next; r; r = next) {
		next = (struct ledger_record *)r->node.next;
		ledger_record_free(r);
	}
	free((char *)l->config.dir);
	free(l);
}
