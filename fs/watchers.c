/* Telling the kernel what has changed. Loop thread only; it never waits for the poker, since that waits for the loop.
 *
 * Each changed file is an order for the poker, which carries out one after the other and answers each. At most a few
 * are under way; what changes meanwhile is only marked, so that a poker which hangs costs nothing but late events. A
 * mark is cleared before its order is given: a change that comes later leaves a mark again, and none goes without an
 * event. */
#include "watchers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "face.h"
#include "seen.h"
#include "watch_box.h"

#define REST_MS	   100	/* between two pokes of one file */
#define FLYING_MAX 32	/* orders under way */
#define HANG_MS	   5000 /* an order that takes longer: twice PARK_MS is the longest that a directory can be locked */
#define LOST_MS	   1000 /* before another poker is asked for */
#define TRIES	   5

/* ---- orders ---- */

struct order *order_new(enum poke_what what, const char *dir, const char *name)
{
	struct order *o = xcalloc(1, sizeof *o);
	o->what = what;
	list_init(&o->link);
	if (dir)
		snprintf(o->path, sizeof o->path, "%s%s%s", dir, name ? "/" : "", name ? name : "");
	return o;
}

static void order_free(struct order *o)
{
	list_remove(&o->link);
	free(o);
}

void ghost_free(struct ghost *g)
{
	list_remove(&g->link);
	ops_wake(&g->waiting);
	free(g->name);
	free(g);
}

static void on_hang(struct timer *t);

/* Takes o; false if the poker is behind, o is the caller's still. */
static bool give(struct watchers *w, struct order *o)
{
	struct poke_order out = {.tag = w->next_tag + 1, .what = o->what};
	memcpy(out.path, o->path, sizeof out.path);
	if (poke_send(w->poke, &out))
		return false;
	o->tag = ++w->next_tag;
	o->given_ms = clock_mono_ms();
	list_remove(&o->link);
	list_append(&w->flying, &o->link);
	w->n_flying++;
	if (list_empty(&w->hang.link))
		timer_set(w->f, &w->hang, HANG_MS, on_hang);
	return true;
}

static void on_rested(struct timer *t)
{
	struct watchers *w = list_entry(t, struct watchers, rest);
	int64_t now = clock_mono_ms();
	while (!list_empty(&w->resting)) {
		struct seen *s = list_entry(w->resting.next, struct seen, due);
		if (s->poked_ms + REST_MS > now) {
			timer_set(w->f, &w->rest, (int)(s->poked_ms + REST_MS - now), on_rested);
			return;
		}
		list_remove(&s->due);
		if (s->flying) { /* not even begun, maybe: a second one would tell nothing more */
			s->poked_ms = now;
			list_append(&w->resting, &s->due);
		} else if (s->dirty) {
			list_append(&w->ready, &s->due);
		} else {
			seen_put(w->f, s);
		}
	}
}

static void rest(struct watchers *w, struct seen *s)
{
	s->poked_ms = clock_mono_ms();
	list_remove(&s->due);
	if (list_empty(&w->resting))
		timer_set(w->f, &w->rest, REST_MS, on_rested);
	list_append(&w->resting, &s->due);
}

/* False if the poker is behind. */
static bool give_modify(struct watchers *w, struct seen *s)
{
	struct spot at;
	CLEAN_FREE char *path = spot_of(w->f, s->ino, &at) ? NULL : spot_path(&at, NULL);
	s->dirty = false;
	if (!path) { /* it has ended */
		list_remove(&s->due);
		seen_put(w->f, s);
		return true;
	}
	struct order *o = order_new(POKE_MODIFY, path, NULL);
	o->ino = s->ino;
	if (!give(w, o)) {
		s->dirty = true;
		order_free(o);
		return false;
	}
	s->flying = true;
	rest(w, s);
	return true;
}

static bool may_give(const struct watchers *w)
{
	return w->poke && w->poke->worker && w->n_flying < FLYING_MAX;
}

static void give_orders(struct watchers *w)
{
	while (may_give(w) && !list_empty(&w->orders))
		if (!give(w, list_entry(w->orders.next, struct order, link)))
			return;
	while (may_give(w) && !list_empty(&w->ready))
		if (!give_modify(w, list_entry(w->ready.next, struct seen, due)))
			return;
}

/* ---- answers ---- */

static void modify_done(struct watchers *w, struct order *o, int rc)
{
	struct seen *s = seen_find(w->f, o->ino);
	if (!s)
		return;
	s->flying = false;
	if (rc && s->again < TRIES) { /* renamed on the way, or the poker was lost */
		s->again++;
		s->dirty = true;
	} else {
		s->again = 0;
	}
	if (list_empty(&s->due) && s->dirty)
		rest(w, s);
	seen_put(w->f, s);
}

static void mkdir_done(struct watchers *w, struct order *o, int rc)
{
	struct session *s = session_by_id(w->f, o->session);
	if (!s || !s->hidden)
		return;
	if (!rc || rc == -EEXIST || ++o->tries >= TRIES) {
		s->hidden = false;
		return;
	}
	struct order *again = order_new(POKE_MKDIR, "sessions", s->view->name);
	again->session = o->session;
	again->tries = o->tries;
	list_append(&w->orders, &again->link);
}

/* Takes o. */
static void order_done(struct watchers *w, struct order *o, int rc)
{
	list_remove(&o->link);
	w->n_flying--;
	if (o->what == POKE_MODIFY)
		modify_done(w, o, rc);
	else if (o->what == POKE_MKDIR)
		mkdir_done(w, o, rc);
	else if (o->ghost)
		ghost_free(o->ghost);
	if (rc && rc != -ENOENT)
		log_debug("no event for %s: %s", o->path, strerror(-rc));
	order_free(o);
}

void watchers_take_answers(struct watchers *w)
{
	struct poke_answer answer;
	while (poke_receive(w->poke, &answer)) {
		while (!list_empty(&w->flying)) {
			struct order *o = list_entry(w->flying.next, struct order, link);
			if (o->tag > answer.tag)
				break;
			/* Older ones went down with the poker that had them. */
			order_done(w, o, o->tag == answer.tag ? answer.rc : -EINTR);
		}
	}
}

/* ---- the poker ---- */

/* The oldest order is not answered, or there is no poker: another is asked for. */
static void on_hang(struct timer *t)
{
	struct watchers *w = list_entry(t, struct watchers, hang);
	if (!w->poke)
		return;
	watchers_take_answers(w);
	struct order *oldest = list_empty(&w->flying) ? NULL : list_entry(w->flying.next, struct order, link);
	int64_t ms = oldest ? clock_mono_ms() - oldest->given_ms : 0;
	if (w->poke->worker && ms < HANG_MS) {
		if (oldest)
			timer_set(w->f, &w->hang, (int)(HANG_MS - ms), on_hang);
		return;
	}
	if (w->poke->worker && w->poke->worker != w->hung)
		log_warn("the helper that makes events for watchers hangs at %s; starting another", oldest->path);
	w->hung = w->poke->worker;
	poke_start_worker(w->poke);
	timer_set(w->f, &w->hang, HANG_MS, on_hang);
}

static void begin_with_poker(struct watchers *w)
{
	poke_go(w->poke);
	list_each (pos, &w->flying)
		list_entry(pos, struct order, link)->given_ms = clock_mono_ms();
	struct order *o = order_new(POKE_NOTHING, NULL, NULL); /* its answer tells which of the others are lost */
	if (!give(w, o))
		order_free(o);
}

static void take_news(struct watchers *w)
{
	int rc = poke_news(w->poke);
	if (rc < 0) {
		log_warn("the helper has died: watchers get no more events, and a crash would leave the mount behind");
		w->poke = NULL;
		timer_clear(&w->hang);
	} else if (rc && w->poke->worker) {
		begin_with_poker(w);
	} else if (rc) {
		timer_set(w->f, &w->hang, LOST_MS, on_hang);
	}
}

void watchers_run(struct face *f, bool janitor, bool poker)
{
	struct watchers *w = f->watchers;
	if (w && w->poke && janitor)
		take_news(w);
	if (!w || !w->poke)
		return;
	if (poker)
		watchers_take_answers(w);
	give_orders(w);
}

/* ---- life ---- */

void watchers_start(struct face *f, struct poke *p)
{
	struct watchers *w = f->watchers = xcalloc(1, sizeof *w);
	w->f = f;
	w->poke = p->work_fd >= 0 ? p : NULL;
	list_init(&w->ready);
	list_init(&w->resting);
	list_init(&w->unsure);
	list_init(&w->orders);
	list_init(&w->flying);
	list_init(&w->ghosts);
	timer_init(&w->rest);
	timer_init(&w->hang);
	timer_init(&w->unsure_timer);
	if (w->poke)
		timer_set(f, &w->hang, 0, on_hang);
}

void watchers_stop(struct face *f)
{
	if (!f->watchers)
		return;
	f->watchers->poke = NULL;
	timer_clear(&f->watchers->rest);
	timer_clear(&f->watchers->hang);
}

void watchers_release(struct face *f)
{
	struct watchers *w = f->watchers;
	if (!w)
		return;
	watchers_stop(f);
	timer_clear(&w->unsure_timer);
	while (!list_empty(&w->orders))
		order_free(list_entry(w->orders.next, struct order, link));
	while (!list_empty(&w->flying))
		order_free(list_entry(w->flying.next, struct order, link));
	while (!list_empty(&w->ghosts))
		ghost_free(list_entry(w->ghosts.next, struct ghost, link));
	f->watchers = NULL;
	free(w);
}

bool watchers_are_told(const struct face *f)
{
	return f->watchers && f->watchers->poke;
}

int watchers_fd_janitor(const struct face *f)
{
	return f->watchers && f->watchers->poke ? f->watchers->poke->fd : -1;
}

int watchers_fd_poker(const struct face *f)
{
	return f->watchers && f->watchers->poke ? f->watchers->poke->work_fd : -1;
}
