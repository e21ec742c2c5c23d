/* The engine: one worker thread for each session that has something to do. Workers may block; the engine's own
 * functions never do (but engine_halt). */
#include "engine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/list.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "rest.h"
#include "transcript.h"

struct slot {
	struct list link; /* in running or waiting */
	struct worker w;
	struct engine *e;
	bool again; /* kicked while it ran */
	pthread_cond_t wake;
};

struct engine {
	struct backend *b;
	pthread_mutex_t lock; /* guards all below; never held across a call elsewhere */
	pthread_cond_t empty;
	struct list running, waiting;
	size_t n_running;
	size_t leaving; /* out of `running`, and still tidying up */
	pthread_t last; /* the newest thread that has left; each one joins the one before it */
	bool has_last;
	bool stopping;
};

static step_fn *const steps[STATES] = {
	[STATE_PREPARING] = prepare_step,  [STATE_RUNNING] = turn_step,	  [STATE_SYNCING] = sync_step,
	[STATE_CHECKING] = check_step,	   [STATE_SHIPPING] = ship_step,  [STATE_DESTROYING] = destroy_step,
	[STATE_COMPACTING] = compact_step, [STATE_LOWERING] = lower_step, [STATE_SAVING] = snapshot_step,
	[STATE_RESTORING] = restore_step,
};

/* ---- one worker ---- */

static int load(struct worker *w, struct err *err)
{
	session_free(w->s);
	w->s = NULL;
	/* A stop is committed before the worker is told. So the flag is cleared before the record is read: what is told
	 * in between stays, and what was committed before is found in the record. */
	atomic_store(&w->cancel, false);
	if (atomic_load(&w->halt))
		atomic_store(&w->cancel, true);
	int rc = w->db ? 0 : db_open(w->b->db_path, false, &w->db, err);
	rc = rc ? rc : session_load(w->db, w->id, &w->s, err);
	if (!rc && w->s && w->s->destroyed_ms && w->s->state != STATE_DESTROYING) {
		session_free(w->s);
		w->s = NULL;
	}
	if (!rc && w->s && w->s->stopping)
		atomic_store(&w->cancel, true);
	return rc;
}

static int failed(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct err *why = arg;
	int rc = tx_error(tx, s->id, "status", why, err);
	CLEAN_FREE char *line = xasprintf("failed: %s", why->text);
	rc = rc ? rc : log_add(tx, s, line, err);
	return rc ? rc : session_event(tx, s, EVENT_FAILED, why->text, err);
}

/* Does what the state calls for. False when there is nothing (more) to do. */
static bool step(struct worker *w)
{
	struct err err = ERR_INIT;
	int rc = load(w, &err);
	if (rc) {
		log_error("session %" PRId64 ": %s", w->id, err.text);
		return false;
	}
	if (atomic_load(&w->halt) || !w->s)
		return false;
	if (w->s->state == STATE_IDLE || w->s->state == STATE_FAILED)
		return rest_step(w);
	if (!steps[w->s->state] || session_waits(w->s))
		return false;
	rc = steps[w->s->state](w, &err);
	if (atomic_load(&w->halt))
		return false;
	if (rc == -ECANCELED ||
	    rc == -ESHUTDOWN) /* stopped, or destroyed meanwhile: the committed state says what is next */
		return true;
	if (rc) {
		struct err more = ERR_INIT;
		if (worker_commit_urgent(w, failed, &err, &more)) {
			log_error("session %" PRId64 ": %s (and: %s)", w->id, err.text, more.text);
			return false;
		}
	}
	return true;
}

static void start_waiting(struct engine *e);

/* The last act of a worker thread. Nobody may take the backend or libgit2 down before it has ended, and threads that
 * have ended must not pile up until then: so each joins the one that left before it, and engine_halt() joins the last.
 */
static void leave(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	bool found = e->has_last;
	pthread_t before = e->last;
	e->last = pthread_self();
	e->has_last = true;
	e->leaving--;
	pthread_cond_broadcast(&e->empty);
	pthread_mutex_unlock(&e->lock);
	if (found)
		pthread_join(before, NULL);
}

static void *worker_main(void *arg)
{
	struct slot *slot = arg;
	struct engine *e = slot->e;
	for (;;) {
		while (step(&slot->w))
			;
		pthread_mutex_lock(&e->lock);
		if (slot->again && !atomic_load(&slot->w.halt)) {
			slot->again = false;
			pthread_mutex_unlock(&e->lock);
			continue;
		}
		list_remove(&slot->link);
		e->n_running--;
		e->leaving++;
		start_waiting(e);
		pthread_mutex_unlock(&e->lock);
		break;
	}
	worker_env_drop(&slot->w);
	db_close(slot->w.db);
	session_free(slot->w.s);
	free(slot->w.prompt);
	free(slot->w.offered);
	buf_release(&slot->w.looked);
	pthread_cond_destroy(&slot->wake);
	free(slot);
	leave(e);
	return NULL;
}

/* ---- the set of workers; e->lock is held ---- */

static struct slot *find(struct list *l, int64_t id)
{
	list_each (p, l) {
		struct slot *s = list_entry(p, struct slot, link);
		if (s->w.id == id)
			return s;
	}
	return NULL;
}

static bool launch(struct engine *e, struct slot *slot)
{
	pthread_attr_t attr;
	pthread_t t;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 20); /* deep enough for libgit2 and for JSON at depth 64 */
	list_append(&e->running, &slot->link);
	e->n_running++;
	int rc = pthread_create(&t, &attr, worker_main, slot);
	pthread_attr_destroy(&attr);
	if (!rc)
		return true;
	log_error("cannot start a worker thread: %s; session %" PRId64 " waits", strerror(rc), slot->w.id);
	list_remove(&slot->link);
	e->n_running--;
	list_append(&e->waiting, &slot->link);
	return false;
}

static size_t limit(struct engine *e)
{
	struct config *c = backend_config(e->b);
	int64_t n = config_int(c, CONFIG_WORKERS);
	config_put(c);
	return (size_t)n;
}

static void start_waiting(struct engine *e)
{
	bool good = true;
	while (good && !e->stopping && !list_empty(&e->waiting) && e->n_running < limit(e)) {
		struct slot *slot = list_entry(e->waiting.next, struct slot, link);
		list_remove(&slot->link);
		good = launch(e, slot);
	}
}

/* Waits must not depend on a clock that can be set. */
static void wake_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

void engine_kick(struct engine *e, int64_t session)
{
	pthread_mutex_lock(&e->lock);
	struct slot *slot = find(&e->running, session);
	if (slot) {
		slot->again = true;
		pthread_cond_signal(&slot->wake);
	} else if (!e->stopping && !find(&e->waiting, session)) {
		slot = xcalloc(1, sizeof *slot);
		slot->e = e;
		slot->w.b = e->b;
		slot->w.id = session;
		wake_init(&slot->wake);
		list_append(&e->waiting, &slot->link);
		start_waiting(e);
	}
	pthread_mutex_unlock(&e->lock);
}

void engine_cancel(struct engine *e, int64_t session)
{
	pthread_mutex_lock(&e->lock);
	struct slot *slot = find(&e->running, session);
	if (slot) {
		atomic_store(&slot->w.cancel, true);
		slot->again = true;
		pthread_cond_signal(&slot->wake);
	}
	pthread_mutex_unlock(&e->lock);
}

size_t engine_workers(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	size_t n = e->n_running;
	pthread_mutex_unlock(&e->lock);
	return n;
}

int engine_start(struct backend *b, struct engine **out, struct err *err)
{
	struct engine *e = xcalloc(1, sizeof *e);
	e->b = b;
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->empty, NULL);
	list_init(&e->running);
	list_init(&e->waiting);
	*out = e;
	return 0;
}

void engine_halt(struct engine *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->lock);
	e->stopping = true;
	list_each (p, &e->running) {
		struct slot *s = list_entry(p, struct slot, link);
		atomic_store(&s->w.halt, true);
		atomic_store(&s->w.cancel, true);
		pthread_cond_signal(&s->wake);
	}
	while (!list_empty(&e->running) || e->leaving)
		pthread_cond_wait(&e->empty, &e->lock);
	bool found = e->has_last;
	e->has_last = false;
	pthread_mutex_unlock(&e->lock);
	if (found)
		pthread_join(e->last, NULL);
}

void engine_free(struct engine *e)
{
	if (!e)
		return;
	list_each_safe (p, &e->waiting) {
		struct slot *s = list_entry(p, struct slot, link);
		pthread_cond_destroy(&s->wake);
		free(s);
	}
	pthread_mutex_destroy(&e->lock);
	pthread_cond_destroy(&e->empty);
	free(e);
}

/* ---- for the steps ---- */

bool worker_sleep(struct worker *w, int64_t until_ms)
{
	struct slot *slot = (struct slot *)(void *)((char *)w - offsetof(struct slot, w));
	int64_t left = until_ms - clock_real_ms(), at = clock_mono_ms() + (left > 0 ? left : 0);
	struct timespec t = {.tv_sec = at / 1000, .tv_nsec = at % 1000 * 1000000};
	pthread_mutex_lock(&slot->e->lock);
	if (!slot->again && !atomic_load(&w->cancel))
		pthread_cond_timedwait(&slot->wake, &slot->e->lock, &t);
	slot->again = false;
	pthread_mutex_unlock(&slot->e->lock);
	return atomic_load(&w->cancel);
}

bool worker_pause(struct worker *w, int64_t ms)
{
	int64_t left, end = clock_mono_ms() + ms;
	while ((left = end - clock_mono_ms()) > 0)
		if (worker_sleep(w, clock_real_ms() + left))
			return true;
	return false;
}

struct commit {
	struct worker *w;
	session_fn *fn;
	void *arg;
};

static int commit_tx(struct tx *tx, void *arg, struct err *err)
{
	struct commit *c = arg;
	struct session *s = tx_session(tx, c->w->id);
	if (!s)
		return err_set(err, ESHUTDOWN, "the session has been destroyed");
	return c->fn(tx, s, c->arg, err);
}

int worker_commit(struct worker *w, session_fn *fn, void *arg, struct err *err)
{
	struct commit c = {w, fn, arg};
	return store_do(w->b->store, commit_tx, &c, err);
}

int worker_commit_urgent(struct worker *w, session_fn *fn, void *arg, struct err *err)
{
	struct commit c = {w, fn, arg};
	return store_do_urgent(w->b->store, commit_tx, &c, err);
}

static int log_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	return log_add(tx, s, arg, err);
}

int worker_log(struct worker *w, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *line = xvasprintf(fmt, ap);
	va_end(ap);
	return worker_commit(w, log_fn, line, NULL);
}

static int detail_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	session_detail(tx, s, "%s", (const char *)arg);
	return 0;
}

int worker_detail(struct worker *w, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *text = xvasprintf(fmt, ap);
	va_end(ap);
	return worker_commit(w, detail_fn, text, NULL);
}

struct event_arg {
	enum event ev;
	const char *words;
};

static int event_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct event_arg *a = arg;
	return session_event(tx, s, a->ev, a->words, err);
}

int worker_event(struct worker *w, enum event ev, const char *words, struct err *err)
{
	struct event_arg a = {ev, words};
	bool end = ev == EVENT_STOPPED || ev == EVENT_FAILED; /* a person waits for it, on a full disk too */
	return end ? worker_commit_urgent(w, event_fn, &a, err) : worker_commit(w, event_fn, &a, err);
}
