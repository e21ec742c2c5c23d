/* Beside the ledger's writer: a thread that syncs the log within 50 ms, whatever else there is to do, and that keeps
 * the log's file longer than what is in it. It must never hold up the writer. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "ledger_private.h"

#define SEGMENT_SIZE 1000000
#define GROUP_MS     20 /* commits of so long are synced together */
#define PAGE	     4096
#define ROOM_FROM    128 /* pages of the log: before that little is written anyway */
#define ROOM_LEAST   256 /* that the file is longer */
#define ROOM_STEP    768 /* and when it is made longer */
#define ROOM_MAX     (LEDGER_WAL_PAGES + 1024)

/* Where the log's file grew with each commit, the disk would have to note that at each sync, and commits wait for it
 * meanwhile. Appended, and not written at a place: so it never meets a commit that came first. */
static void give_room(struct ledger_sync *s, int fd)
{
	static const char zeros[PAGE * 16];
	struct stat st;
	int pages = atomic_load(&s->pages);
	off_t used = (off_t)pages * (PAGE + 24);
	if (pages < ROOM_FROM || fstat(fd, &st) || st.st_size >= (off_t)ROOM_MAX * PAGE ||
	    st.st_size >= used + (off_t)ROOM_LEAST * PAGE)
		return;
	for (off_t size = st.st_size; size < used + (off_t)ROOM_STEP * PAGE; size += sizeof zeros)
		if (write(fd, zeros, sizeof zeros) != sizeof zeros)
			return; /* it grows as it is written then */
}

void ledger_sync_wait(struct ledger_sync *s, pthread_cond_t *cond, int ms)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += ms * 1000000L;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	while (!s->stop && !pthread_cond_timedwait(cond, &s->lock, &t))
		;
}

static void sync_once(struct ledger_sync *s, int wal_fd, uint64_t to)
{
	atomic_fetch_add(&s->busy, 1);
	give_room(s, wal_fd);
	if (fdatasync(wal_fd))
		log_error("the ledger cannot be synced: %s", strerror(errno));
	else
		atomic_store(&s->synced, to);
	atomic_fetch_sub(&s->busy, 1);
}

static void *syncer(void *arg)
{
	struct ledger_sync *s = arg;
	CLEAN_FREE char *wal = xasprintf("%s/ledger.db-wal", s->dir);
	int wal_fd = -1;
	pthread_mutex_lock(&s->lock);
	while (!s->stop || s->dirty) {
		if (!s->dirty) {
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		ledger_sync_wait(s, &s->wake, GROUP_MS);
		uint64_t to = s->to;
		s->dirty = false;
		pthread_mutex_unlock(&s->lock);
		if (wal_fd < 0)
			wal_fd = open(wal, O_WRONLY | O_APPEND | O_CLOEXEC);
		sync_once(s, wal_fd, to);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
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
	pthread_cond_init(&s->more, &a);
	pthread_condattr_destroy(&a);
	int rc = pthread_create(&s->syncer, NULL, syncer, s);
	s->syncs = !rc;
	if (!rc)
		rc = pthread_create(&s->copier, NULL, ledger_copier, s);
	s->copies = s->syncs && !rc;
	return rc ? err_sys(err, rc, "cannot start the ledger's threads") : 0;
}

void ledger_sync_stop(struct ledger_sync *s)
{
	if (!s->syncs)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->wake);
	pthread_cond_broadcast(&s->more);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->syncer, NULL);
	if (s->copies)
		pthread_join(s->copier, NULL);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->wake);
	pthread_cond_destroy(&s->more);
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
	if (!s->dirty)
		pthread_cond_signal(&s->wake);
	s->dirty = true;
	if (ledger_copy_due(s))
		pthread_cond_signal(&s->more);
	pthread_mutex_unlock(&s->lock);
}
