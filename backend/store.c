/* The store thread: batches what waits into one commit, publishes views, then answers. It must never block on anything
 * but the database. */
#include "store.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "idset.h"
#include "killpoint.h"
#include "notes.h"
#include "reserve.h"
#include "session.h"
#include "view.h"

#define BATCH_MAX    256 /* jobs in one commit; bounds the latency of the first */
#define FULL_WAIT_MS 500 /* between tries while the disk is full */
#define ERRORS_KEPT  8	 /* failures kept for each session, as many as `error` shows */

struct job {
	struct queue_node node;
	tx_fn *fn;
	void *arg;
	void (*done)(void *arg, int rc, const struct err *err);
	struct request *request; /* or NULL */
	struct waiter *waiter;	 /* or NULL */
	bool urgent;		 /* also in the reserve of a full disk */
	int rc;
	struct err err;
};

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool ready;
	int rc;
	struct err err;
};

struct store {
	struct store_options opt;
	struct db *db;
	struct queue jobs;
	pthread_t thread;
	struct session **by_id; /* live sessions, index = id */
	size_t by_id_n;
	struct idset batch, job; /* touched in this commit, in this job */
	struct note **pending;	 /* error notes of this commit, in order */
	size_t pending_n, pending_job, pending_cap;
	struct text_info events;
	int64_t event_seq;
	bool root_changed;
	struct reserve reserve;
	atomic_bool stopping;
};

/* ---- small parts ---- */

static struct session *by_id(const struct store *st, int64_t id)
{
	return id > 0 && (size_t)id < st->by_id_n ? st->by_id[id] : NULL;
}

static void put_by_id(struct store *st, int64_t id, struct session *s)
{
	if ((size_t)id >= st->by_id_n) {
		size_t n = ((size_t)id + 1) * 2;
		st->by_id = xrealloc(st->by_id, n * sizeof *st->by_id);
		memset(st->by_id + st->by_id_n, 0, (n - st->by_id_n) * sizeof *st->by_id);
		st->by_id_n = n;
	}
	st->by_id[id] = s;
}

struct session *tx_session(struct tx *tx, int64_t id)
{
	struct session *s = by_id(tx->store, id);
	if (!s || s->destroyed_ms)
		return NULL;
	idset_add(&tx->store->job, id);
	return s;
}

void tx_adopt(struct tx *tx, struct session *s)
{
	put_by_id(tx->store, s->id, s);
	idset_add(&tx->store->job, s->id);
}

int tx_event(struct tx *tx, const struct session *s, const char *kind, const char *detail, struct err *err)
{
	struct store *st = tx->store;
	char when[CLOCK_TEXT];
	CLEAN_BUF struct buf line = BUF_INIT;
	CLEAN_FREE char *last = xstrdup(detail);
	text_one_line(last, SIZE_MAX);
	buf_addf(&line, "%" PRId64 "\t%s\t%s\t%s\t%s\n", st->event_seq + 1, clock_rfc3339(tx->now_ms, when),
		 s ? s->name : "-", kind, last);
	int rc = db_run(tx->db, err, "INSERT INTO events(seq,off,line) VALUES(?,?,?)", "iit", st->event_seq + 1,
			(int64_t)st->events.size, buf_str(&line));
	if (rc)
		return rc;
	st->event_seq++;
	st->events.size += line.n;
	st->events.changed_ms = tx->now_ms;
	tx->root_changed = true;
	return 0;
}

int tx_error(struct tx *tx, int64_t session, const char *path, const struct err *what, struct err *err)
{
	struct store *st = tx->store;
	int64_t code = what->code, keep = ERRORS_KEPT;
	int rc = db_run(tx->db, err, "INSERT INTO errors(session,at_ms,path,code,text) VALUES(?,?,?,?,?)", "iitit",
			session, tx->now_ms, path, code, what->text);
	rc = rc ? rc
		: db_run(tx->db, err,
			 "DELETE FROM errors WHERE session=? AND id NOT IN (SELECT id FROM errors WHERE session=? "
			 "ORDER BY id DESC LIMIT ?)",
			 "iii", session, session, keep);
	if (rc)
		return rc;
	if (st->pending_n == st->pending_cap)
		st->pending = xrealloc(st->pending, (st->pending_cap = st->pending_cap * 2 + 8) * sizeof *st->pending);
	st->pending[st->pending_n++] = note_error(session, path, what, tx->now_ms);
	return 0;
}

/* ---- one commit ---- */

static void refresh(struct store *st, int64_t id)
{
	struct session *old = by_id(st, id), *s = NULL;
	if (session_load(st->db, id, &s, NULL) || !s) {
		put_by_id(st, id, NULL);
		session_free(old);
		return;
	}
	if (old) {
		s->version = old->version;
		s->live = old->live;
		old->live = NULL;
	}
	put_by_id(st, id, s);
	session_free(old);
}

static void drop_pending(struct store *st, size_t from)
{
	while (st->pending_n > from)
		note_free(st->pending[--st->pending_n]);
}

/* Counters that live in memory, put back when a transaction is undone. */
struct mark {
	struct text_info events;
	int64_t event_seq;
};

static void undo(struct store *st, const struct mark *m)
{
	st->events = m->events;
	st->event_seq = m->event_seq;
}

static int save_touched(struct tx *tx, struct err *err)
{
	struct store *st = tx->store;
	int rc = 0;
	for (size_t i = 0; i < st->job.n && !rc; i++) {
		struct session *s = by_id(st, st->job.id[i]);
		if (s)
			rc = session_save(tx, s, err);
	}
	return rc;
}

static void run_job(struct store *st, struct job *j, int64_t now)
{
	struct mark mark = {st->events, st->event_seq};
	struct tx tx = {.store = st, .db = st->db, .now_ms = now};
	size_t pending = st->pending_n;
	st->job.n = 0;
	j->rc = db_run(st->db, &j->err, "SAVEPOINT job", "");
	if (!j->rc)
		j->rc = j->fn(&tx, j->arg, &j->err);
	if (!j->rc)
		j->rc = save_touched(&tx, &j->err);
	if (j->rc) {
		db_run(st->db, NULL, "ROLLBACK TO job", "");
		undo(st, &mark);
		drop_pending(st, pending);
		for (size_t i = 0; i < st->job.n; i++)
			refresh(st, st->job.id[i]);
	} else {
		st->root_changed |= tx.root_changed;
		for (size_t i = 0; i < st->job.n; i++)
			idset_add(&st->batch, st->job.id[i]);
	}
	db_run(st->db, NULL, "RELEASE job", "");
}

static void publish_session(struct store *st, int64_t id)
{
	struct session *s = by_id(st, id);
	if (!s)
		return;
	s->version++;
	struct note *n = xcalloc(1, sizeof *n);
	n->kind = NOTE_VIEW;
	n->view = view_make(s);
	queue_push(st->opt.notes, &n->node);
}

static void publish_root(struct store *st)
{
	struct tx tx = {.store = st, .db = st->db, .now_ms = clock_real_ms()};
	struct note *n = xcalloc(1, sizeof *n);
	n->kind = NOTE_ROOT;
	n->root = st->opt.root(st->opt.arg, &tx);
	n->root->events = st->events;
	queue_push(st->opt.notes, &n->node);
}

static void answer(struct store *st, struct job *j)
{
	if (j->request && j->request->kind == REQ_MESSAGE && !j->rc)
		killpoint("message.commit"); /* committed, and its writer does not know it yet */
	if (j->request && j->request->kind == REQ_APPROVE && !j->rc)
		killpoint("approval.answered");
	if (j->waiter) {
		struct waiter *w = j->waiter;
		pthread_mutex_lock(&w->lock);
		w->rc = j->rc;
		w->err = j->err;
		w->ready = true;
		pthread_cond_signal(&w->cond);
		pthread_mutex_unlock(&w->lock);
	} else if (j->request) {
		j->request->rc = j->rc;
		j->request->err = j->err;
		notes_done(st->opt.notes, j->request);
	} else if (j->done) {
		j->done(j->arg, j->rc, &j->err);
	}
	free(j);
}

static void publish(struct store *st)
{
	for (size_t i = 0; i < st->pending_n; i++)
		queue_push(st->opt.notes, &st->pending[i]->node);
	st->pending_n = 0;
	for (size_t i = 0; i < st->batch.n; i++)
		publish_session(st, st->batch.id[i]);
	if (st->root_changed)
		publish_root(st);
	st->root_changed = false;
}

/* Everything or nothing of it, but a job that fails alone. */
static int transact(struct store *st, struct job **jobs, size_t n, struct err *err)
{
	int64_t now = clock_real_ms();
	int rc = db_run(st->db, err, "BEGIN IMMEDIATE", "");
	for (size_t i = 0; i < n && !rc; i++) {
		run_job(st, jobs[i], now);
		if (!db_in_transaction(st->db)) { /* a full disk may undo the whole, not only the job */
			*err = jobs[i]->err;
			rc = jobs[i]->rc;
		}
	}
	killpoint("store.begin");
	rc = rc ? rc : db_run(st->db, err, "COMMIT", "");
	if (!rc)
		killpoint("store.commit");
	return rc;
}

static void roll_back(struct store *st, struct job **jobs, size_t n, int rc, const struct err *err)
{
	db_run(st->db, NULL, "ROLLBACK", "");
	drop_pending(st, 0);
	for (size_t i = 0; i < st->batch.n; i++)
		refresh(st, st->batch.id[i]);
	st->batch.n = 0;
	st->root_changed = false;
	for (size_t i = 0; i < n; i++)
		if (!jobs[i]->rc) {
			jobs[i]->rc = rc;
			jobs[i]->err = *err;
		}
}

static void touch(struct store *st)
{
	for (size_t i = 0; i < st->batch.n; i++) {
		struct session *s = by_id(st, st->batch.id[i]);
		bool work = !s || session_has_work(s);
		if (s && s->destroyed_ms) {
			put_by_id(st, s->id, NULL);
			session_free(s);
		}
		if (work)
			st->opt.touched(st->opt.arg, st->batch.id[i]);
	}
}

static bool any_full(struct job **jobs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (jobs[i]->rc == -ENOSPC)
			return true;
	return false;
}

/* Commits, publishes, answers. Urgent jobs for which the disk was full stay unanswered: they are moved to the front of
 * jobs, and their number is returned. */
static size_t commit_once(struct store *st, struct job **jobs, size_t n, bool again)
{
	struct mark mark = {st->events, st->event_seq};
	struct err err = ERR_INIT;
	size_t left = 0;
	st->batch.n = 0;
	int rc = transact(st, jobs, n, &err);
	if (rc) {
		roll_back(st, jobs, n, rc, &err);
		undo(st, &mark);
	}
	if (any_full(jobs, n))
		reserve_spend(&st->reserve);
	publish(st);
	for (size_t i = 0; i < n; i++) {
		if (jobs[i]->rc == -ENOSPC && jobs[i]->urgent && !again)
			jobs[left++] = jobs[i];
		else
			answer(st, jobs[i]);
	}
	touch(st);
	return left;
}

/* Answers what has to wait for room; gives the number of those that are left. */
static size_t turn_away(struct store *st, struct job **jobs, size_t n)
{
	size_t left = 0;
	for (size_t i = 0; i < n; i++) {
		if (jobs[i]->urgent) {
			jobs[left++] = jobs[i];
			continue;
		}
		jobs[i]->rc = db_full(&jobs[i]->err);
		answer(st, jobs[i]);
	}
	return left;
}

static void commit(struct store *st, struct job **jobs, size_t n)
{
	if (!reserve_room(&st->reserve))
		n = turn_away(st, jobs, n);
	if (!n)
		return;
	size_t left = commit_once(st, jobs, n, st->reserve.full);
	if (!left)
		return;
	for (size_t i = 0; i < left; i++) {
		jobs[i]->rc = 0;
		jobs[i]->err = ERR_INIT;
	}
	commit_once(st, jobs, left, true);
}

static void *store_main(void *arg)
{
	struct store *st = arg;
	struct queue_node *chain;
	while ((chain = queue_wait_all(&st->jobs))) {
		while (chain) {
			struct job *jobs[BATCH_MAX];
			size_t n = 0;
			while (chain && n < BATCH_MAX) {
				jobs[n++] = queue_entry(chain, struct job, node);
				chain = chain->next;
			}
			commit(st, jobs, n);
		}
	}
	return NULL;
}

/* ---- callers ---- */

static struct job *job_new(tx_fn *fn, void *arg)
{
	struct job *j = xcalloc(1, sizeof *j);
	j->fn = fn;
	j->arg = arg;
	return j;
}

static int run_waiting(struct store *st, tx_fn *fn, void *arg, bool urgent, struct err *err)
{
	struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
	struct job *j = job_new(fn, arg);
	j->waiter = &w;
	j->urgent = urgent;
	queue_push(&st->jobs, &j->node);
	pthread_mutex_lock(&w.lock);
	while (!w.ready)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_mutex_destroy(&w.lock);
	pthread_cond_destroy(&w.cond);
	if (w.rc && err)
		*err = w.err;
	return w.rc;
}

int store_try(struct store *st, tx_fn *fn, void *arg, struct err *err)
{
	return run_waiting(st, fn, arg, false, err);
}

/* A step of a session that cannot be committed because the disk is full is not lost: the worker waits until there is
 * room, and `error` says so once. */
static int run_until_room(struct store *st, tx_fn *fn, void *arg, bool urgent, struct err *err)
{
	struct err mine = ERR_INIT;
	for (bool told = false;; told = true) {
		int rc = run_waiting(st, fn, arg, urgent, &mine);
		if (rc != -ENOSPC || atomic_load(&st->stopping)) {
			if (rc && err)
				*err = mine;
			return rc;
		}
		if (!told) {
			log_warn("%s; work goes on when there is room", mine.text);
			notes_error(st->opt.notes, 0, "status", &mine, clock_real_ms());
		}
		clock_sleep_ms(FULL_WAIT_MS);
	}
}

int store_do(struct store *st, tx_fn *fn, void *arg, struct err *err)
{
	return run_until_room(st, fn, arg, false, err);
}

int store_do_urgent(struct store *st, tx_fn *fn, void *arg, struct err *err)
{
	return run_until_room(st, fn, arg, true, err);
}

static void post(struct store *st, tx_fn *fn, void (*done)(void *arg, int rc, const struct err *err), void *arg,
		 bool urgent)
{
	struct job *j = job_new(fn, arg);
	j->done = done;
	j->urgent = urgent;
	queue_push(&st->jobs, &j->node);
}

void store_post(struct store *st, tx_fn *fn, void (*done)(void *arg, int rc, const struct err *err), void *arg)
{
	post(st, fn, done, arg, false);
}

void store_post_urgent(struct store *st, tx_fn *fn, void (*done)(void *arg, int rc, const struct err *err), void *arg)
{
	post(st, fn, done, arg, true);
}

void store_request(struct store *st, tx_fn *fn, struct request *r)
{
	struct job *j = job_new(fn, r);
	j->request = r;
	j->urgent = r->kind == REQ_CTL || r->kind == REQ_DESTROY;
	queue_push(&st->jobs, &j->node);
}

/* ---- start and stop ---- */

static int load_sessions(struct store *st, struct err *err)
{
	struct rows r;
	struct idset ids = {0};
	int rc = db_query(st->db, &r, err, "SELECT id FROM sessions WHERE destroyed_ms IS NULL ORDER BY id", "");
	while (!rc && rows_next(&r)) {
		if (ids.n == ids.cap)
			ids.id = xrealloc(ids.id, (ids.cap = ids.cap * 2 + 64) * sizeof *ids.id);
		ids.id[ids.n++] = row_int(&r, 0);
	}
	int end = rows_end(&r);
	rc = rc ? rc : end;
	for (size_t i = 0; i < ids.n && !rc; i++) {
		struct session *s = NULL;
		rc = session_load(st->db, ids.id[i], &s, err);
		if (!rc && s) {
			put_by_id(st, s->id, s);
			publish_session(st, s->id);
		}
	}
	free(ids.id);
	return rc;
}

static int load_errors(struct store *st, struct err *err)
{
	struct rows r;
	int rc = db_query(st->db, &r, err,
			  "SELECT session, at_ms, path, code, text FROM errors WHERE session=0 OR session IN "
			  "(SELECT id FROM sessions WHERE destroyed_ms IS NULL) ORDER BY id",
			  "");
	while (!rc && rows_next(&r)) {
		struct err e = {.code = (int)row_int(&r, 3)};
		snprintf(e.text, sizeof e.text, "%s", row_text(&r, 4));
		notes_error(st->opt.notes, row_int(&r, 0), row_text(&r, 2), &e, row_int(&r, 1));
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

static int load_events(struct store *st, struct err *err)
{
	struct rows r;
	int rc = db_query(st->db, &r, err,
			  "SELECT seq, off + length(CAST(line AS BLOB)) FROM events ORDER BY seq DESC LIMIT 1", "");
	if (!rc && rows_next(&r)) {
		st->event_seq = row_int(&r, 0);
		st->events.size = (uint64_t)row_int(&r, 1);
	}
	st->events.changed_ms = clock_real_ms();
	int end = rows_end(&r);
	return rc ? rc : end;
}

static void store_free(struct store *st)
{
	for (size_t i = 0; i < st->by_id_n; i++)
		session_free(st->by_id[i]);
	free(st->by_id);
	free(st->batch.id);
	free(st->job.id);
	drop_pending(st, 0);
	free(st->pending);
	reserve_release(&st->reserve);
	db_close(st->db);
	queue_release(&st->jobs);
	free(st);
}

int store_start(const struct store_options *opt, struct store **out, struct err *err)
{
	struct store *st = xcalloc(1, sizeof *st);
	st->opt = *opt;
	int rc = queue_init(&st->jobs);
	CLEAN_FREE char *folder = xstrndup(opt->path, (size_t)(strrchr(opt->path, '/') - opt->path));
	reserve_init(&st->reserve, folder);
	rc = rc ? err_sys(err, -rc, "cannot make a queue") : db_open(opt->path, true, &st->db, err);
	if (rc == -ENOSPC) { /* SQLite needs a little to open its log */
		reserve_spend(&st->reserve);
		rc = db_open(opt->path, true, &st->db, err);
	}
	rc = rc ? rc : load_events(st, err);
	rc = rc ? rc : load_sessions(st, err);
	rc = rc ? rc : load_errors(st, err);
	if (!rc) {
		publish_root(st);
		rc = pthread_create(&st->thread, NULL, store_main, st);
		rc = rc ? err_sys(err, rc, "cannot start the store thread") : 0;
	}
	if (rc) {
		store_free(st);
		return rc;
	}
	*out = st;
	return 0;
}

void store_stop(struct store *st)
{
	if (!st)
		return;
	atomic_store(&st->stopping, true);
	queue_close(&st->jobs);
	pthread_join(st->thread, NULL);
	store_free(st);
}
