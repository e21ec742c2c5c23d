/* Looks at the sandboxes that are said to run, and has those rest that nobody needs. One thread of its own; it only
 * reads, and commits what has changed. */
#include "watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "gate_link.h"
#include "rest.h"
#include "sandbox/sandbox.h"
#include "session.h"

struct watch {
	struct backend *b;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool stop;
};

struct found {
	int64_t id;
	char *was, line[64];
};

static int found_fn(struct tx *tx, void *arg, struct err *err)
{
	struct found *f = arg;
	struct session *s = tx_session(tx, f->id);
	if (!s || strcmp(s->sandbox_state, f->was) || s->state == STATE_PREPARING)
		return 0; /* its worker knows better */
	bool woken = !strstr(f->was, " running") && strstr(f->line, " running");
	int rc = woken ? rest_woken(tx, s, err) : 0;
	if (rc)
		return rc;
	session_set(&s->sandbox_state, f->line);
	s->changed_ms = tx->now_ms;
	return tx_event(tx, s, "sandbox", f->line, err);
}

static bool stopping(struct watch *w)
{
	pthread_mutex_lock(&w->lock);
	bool stop = w->stop;
	pthread_mutex_unlock(&w->lock);
	return stop;
}

/* A worker may have brought it up again between the look and the commit, and have seen no reason to say so. */
static void correct(struct watch *w, const char *kind, struct found *f)
{
	CLEAN_FREE char *was = xstrdup(f->line);
	f->was = was;
	sandbox_describe(w->b->paths, kind, f->id, sandbox_state(w->b->paths, kind, f->id), f->line);
	if (strcmp(f->line, was))
		store_try(w->b->store, found_fn, f, NULL);
}

#define SANDBOXES "SELECT id, sandbox, sandbox_state FROM sessions WHERE destroyed_ms IS NULL AND clone <> '' AND "
#define UP	  "(sandbox_state LIKE '% running%' OR sandbox_state LIKE '% paused%')"

static void look_at(struct watch *w, struct rows *r)
{
	while (rows_next(r) && !stopping(w)) {
		CLEAN_FREE char *was = xstrdup(row_text(r, 2));
		struct found f = {.id = row_int(r, 0), .was = was};
		const char *kind = row_text(r, 1);
		sandbox_describe(w->b->paths, kind, f.id, sandbox_state(w->b->paths, kind, f.id), f.line);
		if (!strcmp(f.line, was) || store_try(w->b->store, found_fn, &f, NULL))
			continue;
		correct(w, kind, &f);
		gate_kick(w->b); /* its token ends with it */
	}
}

struct listening {
	struct watch *w;
	struct db *db;
};

static void look_at_listening(void *arg, const char *path, int64_t id)
{
	struct listening *l = arg;
	struct rows r;
	if (!db_query(l->db, &r, NULL, SANDBOXES "NOT " UP " AND id=?", "i", id))
		look_at(l->w, &r);
	rows_end(&r);
}

/* One that rests is looked at only if something listens for it: `berthfs ssh` wakes it by itself. So thousands that
 * rest cost nothing. */
static void look(struct watch *w, struct db *db)
{
	struct rows r;
	struct listening l = {w, db};
	if (!db_query(db, &r, NULL, SANDBOXES UP, ""))
		look_at(w, &r);
	rows_end(&r);
	watch_each(w->b->paths->runtime, ".sock", look_at_listening, &l);
}

static void *watch_main(void *arg)
{
	struct watch *w = arg;
	struct db *db = NULL;
	if (db_open(w->b->db_path, false, &db, NULL))
		return NULL;
	leftovers_remove(w->b, db);
	while (!stopping(w)) {
		look(w, db);
		rest_look(w->b, db);
		int64_t until = clock_real_ms() + rest_look_ms(w->b);
		struct timespec t = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
		pthread_mutex_lock(&w->lock);
		if (!w->stop)
			pthread_cond_timedwait(&w->cond, &w->lock, &t);
		pthread_mutex_unlock(&w->lock);
	}
	db_close(db);
	return NULL;
}

int watch_start(struct backend *b, struct watch **out, struct err *err)
{
	struct watch *w = xcalloc(1, sizeof *w);
	w->b = b;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	int rc = pthread_create(&w->thread, NULL, watch_main, w);
	if (rc) {
		free(w);
		return err_sys(err, rc, "cannot start the watch thread");
	}
	*out = w;
	return 0;
}

void watch_stop(struct watch *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->cond);
	free(w);
}
