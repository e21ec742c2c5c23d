/* Beside the ledger's writer: a thread that syncs the log within 50 ms, moves the oldest records to a segment file when
 * the database has grown, and writes the newest checkpoint to a file. It must never hold up the writer. */
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

#define GROUP_MS     20 /* commits of so long are synced together */
#define SEGMENT_SIZE 1000000

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
static void rotate(struct ledger_sync *s, sqlite3 *db, uint64_t from, uint64_t to)
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
		return;
	}
	atomic_store(&s->drop_to, last);
}

/* ---- the thread ---- */

static void wait_ms(struct ledger_sync *s, int ms)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += ms * 1000000L;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	while (!s->stop && !pthread_cond_timedwait(&s->wake, &s->lock, &t))
		;
}

/* The log begins anew when all of it is in the database; its file keeps its size, which says nothing. */
static void copy(struct ledger_sync *s, sqlite3 *db)
{
	int pages = atomic_load(&s->pages), all, copied;
	if (pages < s->copied)
		s->copied = 0;
	if (pages - s->copied < LEDGER_COPY_PAGES)
		return;
	if (!sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, &all, &copied))
		s->copied = copied;
}

static void sync_once(struct ledger_sync *s, sqlite3 *db, int wal_fd)
{
	atomic_store(&s->syncing, true);
	if (fdatasync(wal_fd))
		log_error("the ledger cannot be synced: %s", strerror(errno));
	copy(s, db);
	atomic_store(&s->syncing, false);
}

static void write_note(struct ledger_sync *s, char *note)
{
	CLEAN_FREE char *path = xasprintf("%s/checkpoint", s->dir);
	struct err err = ERR_INIT;
	if (note && file_write(path, note, strlen(note), 0644, &err))
		log_warn("%s", err.text);
	free(note);
}

static void *syncer(void *arg)
{
	struct ledger_sync *s = arg;
	CLEAN_FREE char *path = xasprintf("%s/ledger.db", s->dir);
	CLEAN_FREE char *wal = xasprintf("%s-wal", path);
	sqlite3 *db = NULL;
	int wal_fd = open(wal, O_RDONLY | O_CLOEXEC);
	sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	sqlite3_exec(db, "PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
	pthread_mutex_lock(&s->lock);
	while (!s->stop || s->dirty || s->checkpoint) {
		if (!s->dirty && !s->checkpoint) {
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		wait_ms(s, GROUP_MS);
		char *note = s->checkpoint;
		uint64_t from = s->from, to = s->to, dropped = atomic_load(&s->drop_to);
		s->checkpoint = NULL;
		s->dirty = false;
		bool stop = s->stop;
		pthread_mutex_unlock(&s->lock);
		if (wal_fd < 0)
			wal_fd = open(wal, O_RDONLY | O_CLOEXEC);
		sync_once(s, db, wal_fd);
		write_note(s, note);
		if (!stop && from >= dropped && to - from > s->segment)
			rotate(s, db, from, to);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	sqlite3_close(db);
	fd_close(&wal_fd);
	return NULL;
}

int ledger_sync_start(struct ledger_sync *s, const char *dir, uint64_t segment, struct err *err)
{
	s->dir = dir;
	s->segment = segment ? segment : SEGMENT_SIZE;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_t a;
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&s->wake, &a);
	pthread_condattr_destroy(&a);
	int rc = pthread_create(&s->thread, NULL, syncer, s);
	s->started = !rc;
	return rc ? err_sys(err, rc, "cannot start the ledger's second thread") : 0;
}

void ledger_sync_stop(struct ledger_sync *s)
{
	if (!s->started)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->wake);
	free(s->checkpoint);
}

void ledger_sync_note(struct ledger_sync *s, uint64_t from, uint64_t to, char *checkpoint)
{
	pthread_mutex_lock(&s->lock);
	s->from = from;
	s->to = to;
	if (checkpoint) {
		free(s->checkpoint);
		s->checkpoint = checkpoint;
	}
	if (!s->dirty || checkpoint)
		pthread_cond_signal(&s->wake);
	s->dirty = true;
	pthread_mutex_unlock(&s->lock);
}
