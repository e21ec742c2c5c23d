/* Beside the ledger's writer: a thread for what takes longer than a sync may wait. It copies the log into the database,
 * moves the oldest records to a segment file when the database has grown, and writes the newest checkpoint to a file.
 * It must never hold up the writer, nor keep a processor from it for long. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "ledger_private.h"

#define COPY_PAGES 2048			  /* of the log that are copied together: many are there more than once */
#define REST_PAGES 512			  /* that the writer may copy at last; about a millisecond */
#define LATE_PAGES (2 * LEDGER_WAL_PAGES) /* from which on it copies whatever there is */
#define AT_ONCE	   16			  /* pages, some 50 us: */
#define NAP_NS	   100000		  /* then others get the processor */
#define PAUSE_MS   100	/* when not all that was due could be done: somebody reads, or the disk is full */
#define FAILED_MS  5000 /* when a segment could not be written */

/* ---- segments ---- */

/* Records from..to as exported lines, whole or not at all. */
static int write_segment(sqlite3 *db, FILE *f, uint64_t from, uint64_t to)
{
	sqlite3_stmt *st;
	CLEAN_BUF struct buf line = BUF_INIT;
	int rc;
	uint64_t want = from;
	if (sqlite3_prepare_v2(db, "SELECT seq, line, hash FROM records WHERE seq BETWEEN ? AND ? ORDER BY seq", -1,
			       &st, NULL))
		return -EIO;
	sqlite3_bind_int64(st, 1, (sqlite3_int64)from);
	sqlite3_bind_int64(st, 2, (sqlite3_int64)to);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW && (uint64_t)sqlite3_column_int64(st, 0) == want) {
		buf_reset(&line);
		chain_export(&line, (const char *)sqlite3_column_text(st, 1), (size_t)sqlite3_column_bytes(st, 1),
			     (const char *)sqlite3_column_text(st, 2));
		if (fwrite(line.p, 1, line.n, f) != line.n)
			break;
		want++;
	}
	sqlite3_finalize(st);
	return rc == SQLITE_DONE && want == to + 1 && !fflush(f) && !fsync(fileno(f)) ? 0 : -EIO;
}

/* The segment ends with a record that stays in the database, so that both can be seen to belong together. */
static int rotate(struct ledger_sync *s, sqlite3 *db, uint64_t from, uint64_t to)
{
	uint64_t keep = s->segment / 2, last = to - keep;
	CLEAN_FREE char *tmp = xasprintf("%s/segment.tmp", s->dir);
	CLEAN_FREE char *path = xasprintf("%s/ledger-%012llu-%012llu.jsonl", s->dir, (unsigned long long)from,
					  (unsigned long long)last);
	FILE *f = fopen(tmp, "we");
	int rc = f ? write_segment(db, f, from, last) : -errno;
	if (f && fclose(f) && !rc)
		rc = -errno;
	if (!rc && rename(tmp, path))
		rc = -errno;
	CLEAN_FD int dir = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!rc && (dir < 0 || fsync(dir)))
		rc = -errno;
	if (rc) {
		unlink(tmp);
		log_warn("the ledger's records %llu to %llu cannot be moved to a file: %s", (unsigned long long)from,
			 (unsigned long long)last, strerror(-rc));
		return rc;
	}
	atomic_store(&s->drop_to, last);
	return 0;
}

/* ---- the log ---- */

/* A kernel that does not take the processor from a thread before its slice of milliseconds is over would let the loop
 * wait for all of a copy. */
static const sqlite3_io_methods *real;
static sqlite3_io_methods gentle;
static _Thread_local struct ledger_sync *mine; /* in the copier's thread alone */

static int gentle_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
	static _Thread_local int written;
	if (mine && !mine->stop && ++written % AT_ONCE == 0)
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	return real->xWrite(f, p, n, at);
}

bool ledger_log_ripe(const struct ledger_sync *s)
{
	int pages = atomic_load(&s->pages);
	return pages >= LEDGER_WAL_PAGES && (pages - atomic_load(&s->copied) <= REST_PAGES || pages >= LATE_PAGES);
}

/* A log that is to begin anew is copied up to a small rest. */
static bool log_due(const struct ledger_sync *s)
{
	int pages = atomic_load(&s->pages), copied = atomic_load(&s->copied);
	return pages - copied >= (pages >= LEDGER_WAL_PAGES ? REST_PAGES / 2 : COPY_PAGES);
}

/* What is copied is on the disk then, so that the writer's rest is not all that has to go there. */
static void copy_log(struct ledger_sync *s, sqlite3 *db, sqlite3_file *f)
{
	int copied;
	atomic_fetch_add(&s->busy, 1);
	if (!sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, &copied)) {
		atomic_store(&s->copied, copied);
		if (atomic_load(&s->pages) < copied) /* it has begun anew meanwhile */
			atomic_store(&s->copied, 0);
		if (f)
			f->pMethods->xSync(f, SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
	}
	atomic_fetch_sub(&s->busy, 1);
}

/* ---- the thread ---- */

static void write_note(struct ledger_sync *s, char *note)
{
	CLEAN_FREE char *path = xasprintf("%s/checkpoint", s->dir);
	struct err err = ERR_INIT;
	if (note && file_write(path, note, strlen(note), 0644, &err))
		log_warn("%s", err.text);
	free(note);
}

static bool segment_due(const struct ledger_sync *s)
{
	return s->from >= atomic_load(&s->drop_to) && s->to - s->from > s->segment;
}

bool ledger_copy_due(const struct ledger_sync *s)
{
	return s->checkpoint || log_due(s) || segment_due(s);
}

static void work(struct ledger_sync *s, sqlite3 *db, sqlite3_file *f)
{
	char *note = s->checkpoint;
	uint64_t from = s->from, to = s->to;
	bool segment = segment_due(s);
	int rc = 0;
	s->checkpoint = NULL;
	pthread_mutex_unlock(&s->lock);
	write_note(s, note);
	if (!s->stop && log_due(s))
		copy_log(s, db, f);
	if (!s->stop && segment)
		rc = rotate(s, db, from, to);
	pthread_mutex_lock(&s->lock);
	if (!s->stop && (rc || ledger_copy_due(s)))
		ledger_sync_wait(s, &s->more, rc ? FAILED_MS : PAUSE_MS);
}

void *ledger_copier(void *arg)
{
	struct ledger_sync *s = arg;
	CLEAN_FREE char *path = xasprintf("%s/ledger.db", s->dir);
	sqlite3 *db = NULL;
	sqlite3_file *f = NULL;
	sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	sqlite3_exec(db, "PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
	mine = s;
	if (!sqlite3_file_control(db, NULL, SQLITE_FCNTL_FILE_POINTER, &f) && f && f->pMethods) {
		real = f->pMethods;
		gentle = *real;
		gentle.xWrite = gentle_write;
		f->pMethods = &gentle;
	}
	pthread_mutex_lock(&s->lock);
	while (!s->stop || s->checkpoint) {
		if (ledger_copy_due(s))
			work(s, db, f);
		else
			pthread_cond_wait(&s->more, &s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	sqlite3_close(db);
	return NULL;
}
