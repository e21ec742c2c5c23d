/* The ledger's writer: one connection, one chain. What waits is committed together; a record is told of only after its
 * commit. By a thread of its own, or by the caller's where that cannot hold it up; one at a time. It must never go on
 * after a record that is not its own, nor tell of one that was not written. */
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
#define LATE_MS	      200	  /* what could not be written and must not get lost is tried again so often */
#define CALLERS	      16	  /* about so many records come from a caller at once */
#define SLOW_US	      5000	  /* a commit of so long shows a disk that is busy */
#define SLOW_MS	      250	  /* then callers leave it to the thread for so long */
#define SHY_US	      1000	  /* a commit of so long beside a sync shows a file system that lets it wait */
#define SHY_MS	      5000	  /* then callers leave those to the thread for so long */

/* ---- one commit ---- */

int ledger_fail(struct ledger *l, struct err *err)
{
	int x = sqlite3_extended_errcode(l->db), code = (x & 0xff) == SQLITE_FULL ? ENOSPC : EIO;
	return err_set(err, code, "the ledger cannot be written (%s): %s", sqlite3_errmsg(l->db),
		       code == ENOSPC ? "free some space on its disk" : "look at its disk");
}

int ledger_exec(struct ledger *l, const char *text, struct err *err)
{
	return sqlite3_exec(l->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : ledger_fail(l, err);
}

static int step(struct ledger *l, int which, struct err *err)
{
	int rc = sqlite3_step(l->st[which]);
	rc = rc == SQLITE_DONE ? 0 : ledger_fail(l, err);
	sqlite3_reset(l->st[which]);
	return rc;
}

int ledger_step_seq(struct ledger *l, int which, uint64_t seq, struct err *err)
{
	sqlite3_bind_int64(l->st[which], 1, (sqlite3_int64)seq);
	return step(l, which, err);
}

/* "2026-11-29T19:02:10.123Z"; what is the same for a second is made once. */
static void add_stamp(struct ledger *l, struct buf *line)
{
	int64_t ms = clock_real_ms();
	if (ms / 1000 != l->stamp_second || !*l->stamp) {
		clock_rfc3339(ms, l->stamp);
		l->stamp_second = ms / 1000;
	}
	int part = (int)(ms % 1000);
	char end[] = {'.', (char)('0' + part / 100), (char)('0' + part / 10 % 10), (char)('0' + part % 10), 'Z'};
	buf_add(line, l->stamp, 19);
	buf_add(line, end, sizeof end);
}

int ledger_add(struct ledger *l, const struct buf *fields, const struct buf *aside, struct err *err)
{
	struct buf *line = &l->line;
	struct ledger_state *s = &l->now;
	buf_reset(line);
	buf_reserve(line, fields->n + 80);
	buf_adds(line, "{\"seq\":");
	buf_addi(line, (int64_t)s->seq + 1);
	buf_adds(line, ",\"time\":\"");
	add_stamp(l, line);
	buf_adds(line, "\",");
	buf_add(line, fields->p, fields->n);
	buf_addc(line, '}');
	chain_next(&l->sha, s->hash, line->p, line->n);
	s->seq++;
	sqlite3_stmt *st = l->st[INSERT];
	sqlite3_bind_int64(st, 1, (sqlite3_int64)s->seq);
	sqlite3_bind_int64(st, 2, (sqlite3_int64)s->off);
	sqlite3_bind_text(st, 3, line->p, (int)line->n, SQLITE_STATIC);
	sqlite3_bind_text(st, 4, s->hash, LEDGER_HEX, SQLITE_STATIC);
	if (aside && aside->n)
		sqlite3_bind_blob(st, 5, aside->p, (int)aside->n, SQLITE_STATIC);
	else
		sqlite3_bind_null(st, 5);
	s->off += line->n + LEDGER_TAIL;
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
	return ledger_add(l, &fields, NULL, err);
}

static int add_record(struct ledger *l, struct ledger_record *r, struct err *err)
{
	int rc = ledger_add(l, &r->fields, &r->aside, err);
	r->seq = l->now.seq;
	if (!rc && r->also)
		rc = r->also(l->db, r, err);
	return rc;
}

/* Nobody else may have written: two writers would fork the chain. */
static int still_ours(struct ledger *l, struct err *err)
{
	sqlite3_stmt *st = l->st[LAST];
	int rc = sqlite3_step(st) == SQLITE_ROW ? 0 : ledger_fail(l, err);
	if (!rc && (uint64_t)sqlite3_column_int64(st, 0) != l->now.seq)
		rc = err_set(err, EBADMSG,
			     "the ledger was changed by another program: its last record is %lld, not %llu",
			     sqlite3_column_int64(st, 0), (unsigned long long)l->now.seq);
	sqlite3_reset(st);
	return rc;
}

/* Old records are in a segment, and can go. */
static bool dropping(const struct ledger *l)
{
	return l->now.from < atomic_load(&l->sync.drop_to);
}

static int drop_old(struct ledger *l, struct err *err)
{
	uint64_t below = atomic_load(&l->sync.drop_to);
	if (!dropping(l))
		return 0;
	sqlite3_bind_int64(l->st[DROP], 1, (sqlite3_int64)below);
	sqlite3_bind_int64(l->st[DROP], 2, DROP_AT_ONCE);
	int rc = step(l, DROP, err);
	if (!rc)
		l->now.from += below - l->now.from < DROP_AT_ONCE ? below - l->now.from : DROP_AT_ONCE;
	return rc;
}

/* ahead: records that are about to be added */
static bool checkpoint_due(const struct ledger *l, bool asked, unsigned ahead)
{
	unsigned every = l->config.checkpoint ? l->config.checkpoint : 4096;
	uint64_t behind = l->now.seq + ahead - l->now.checkpoint;
	return (asked && behind > 1) || behind > every ||
	       (behind > 1 && clock_mono_ms() - l->checkpoint_ms > CHECKPOINT_MS);
}

/* All of the chain, or nothing. */
int ledger_commit(struct ledger *l, struct ledger_record *list, bool asked, struct err *err)
{
	struct ledger_state before = l->now;
	CLEAN_BUF struct buf note = BUF_INIT;
	int rc = step(l, BEGIN, err);
	if (rc)
		return rc;
	rc = still_ours(l, err);
	bool table = asked || ledger_pending_due(l) || dropping(l);
	if (!rc && table)
		rc = ledger_pending_write(l, err);
	for (struct ledger_record *r = list; !rc && r; r = (struct ledger_record *)r->node.next) {
		rc = add_record(l, r, err);
		asked |= r->checkpoint;
	}
	if (!rc && checkpoint_due(l, asked, 0))
		rc = add_checkpoint(l, &note, err);
	if (!rc)
		rc = drop_old(l, err);
	if (!rc)
		rc = step(l, COMMIT, err);
	if (rc) {
		sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
		l->now = before;
		return rc;
	}
	if (table)
		ledger_pending_written(l, before.seq);
	ledger_pending_note(l, list);
	if (note.n)
		l->checkpoint_ms = clock_mono_ms();
	ledger_sync_note(&l->sync, l->now.from, l->now.seq, note.n ? buf_take(&note) : NULL);
	return 0;
}

/* ---- the thread ---- */

int ledger_set_sync(struct ledger *l, struct err *err)
{
	bool each = atomic_load(&l->sync_each);
	if (l->set && each == l->each)
		return 0;
	int rc = ledger_exec(l, each ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", err);
	l->set = !rc;
	l->each = each;
	return rc;
}

void ledger_show(struct ledger *l, bool failing)
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
	struct queue_node *told = NULL, **tail = &told;
	for (struct ledger_record *r = list, *next; r; r = next) {
		next = (struct ledger_record *)r->node.next;
		r->node.next = NULL;
		r->rc = rc;
		if (rc && err)
			r->err = *err;
		if (rc && (r->of || r->keep)) { /* the request is over: its outcome must not get lost */
			*l->late_tail = r;
			l->late_tail = (struct ledger_record **)&r->node.next;
		} else {
			*tail = &r->node;
			tail = &r->node.next;
		}
	}
	if (told)
		queue_push_all(l->done, told);
}

void ledger_sync_each(struct ledger *l, bool on)
{
	atomic_store(&l->sync_each, on);
}

static void round_of(struct ledger *l, struct ledger_record *list)
{
	struct err err = ERR_INIT;
	ledger_set_sync(l, NULL);
	if (l->late) { /* first, so that the order of a session's records stays */
		*l->late_tail = list;
		list = l->late;
		l->late = NULL;
		l->late_tail = &l->late;
	}
	bool before = l->shown.failing;
	int rc = list || checkpoint_due(l, false, 0) || dropping(l) ? ledger_commit(l, list, false, &err) : 0;
	if (rc && !before)
		log_error("%s; requests are denied until it can", err.text);
	ledger_show(l, rc != 0);
	finish(l, list, rc, &err);
}

static bool at_end(struct ledger *l)
{
	pthread_mutex_lock(&l->in.lock);
	bool end = l->in.closed && !l->in.head;
	pthread_mutex_unlock(&l->in.lock);
	return end;
}

void *ledger_writer(void *arg)
{
	struct ledger *l = arg;
	struct pollfd p = {.fd = queue_fd(&l->in), .events = POLLIN};
	struct err err = ERR_INIT;
	pthread_mutex_lock(&l->writing);
	for (;;) {
		struct queue_node *n = queue_pop_all(&l->in);
		if (n) {
			round_of(l, (struct ledger_record *)n);
			continue;
		}
		if (at_end(l))
			break;
		int ms = dropping(l) ? 5 : l->late ? LATE_MS : 5000;
		pthread_mutex_unlock(&l->writing);
		int ready = poll(&p, 1, ms);
		pthread_mutex_lock(&l->writing);
		if (!ready)
			round_of(l, NULL);
	}
	if (ledger_commit(l, l->late, true, &err))
		log_error("the last records were not written: %s", err.text);
	pthread_mutex_unlock(&l->writing);
	return NULL;
}

/* With the lock: nothing waits that has to be written before, or that takes long. */
static bool free_for_caller(struct ledger *l)
{
	int64_t now = clock_mono_ms();
	pthread_mutex_lock(&l->in.lock);
	bool empty = !l->in.head;
	pthread_mutex_unlock(&l->in.lock);
	return empty && !l->late && !l->shown.failing && !atomic_load(&l->sync_each) && !l->each &&
	       !ledger_log_ripe(&l->sync) && !checkpoint_due(l, false, CALLERS) && !ledger_pending_due(l) &&
	       !dropping(l) && now >= l->slow_until && (now >= l->shy_until || !atomic_load(&l->sync.busy));
}

bool ledger_write(struct ledger *l, struct ledger_record *list)
{
	bool written = false;
	if (pthread_mutex_trylock(&l->writing))
		return false;
	if (free_for_caller(l)) {
		int64_t from = clock_mono_us();
		bool busy = atomic_load(&l->sync.busy);
		sqlite3_busy_timeout(l->db, 0);
		l->caller = true;
		written = !ledger_commit(l, list, false, NULL);
		if (written)
			ledger_show(l, false);
		int64_t took = clock_mono_us() - from;
		if (took > SLOW_US)
			l->slow_until = from / 1000 + SLOW_MS;
		if (took > SHY_US && (busy || atomic_load(&l->sync.busy)))
			l->shy_until = from / 1000 + SHY_MS;
		sqlite3_busy_timeout(l->db, LEDGER_BUSY_MS);
		l->caller = false;
	}
	pthread_mutex_unlock(&l->writing);
	return written;
}

void ledger_append(struct ledger *l, struct ledger_record *list)
{
	queue_push_all(&l->in, &list->node);
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

sqlite3 *ledger_reader(struct ledger *l)
{
	return l->reader;
}

const char *ledger_dir(struct ledger *l)
{
	return l->config.dir;
}
