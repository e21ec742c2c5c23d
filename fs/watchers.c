/* Telling the kernel what has changed. Loop thread only; it never waits for the poker, since that waits for the loop.
 *
 * Each changed file is an order for the poker, which carries out one after the other and answers each. At most a few
 * are under way; what changes meanwhile is only marked, so that a poker which hangs costs nothing but late events. A
 * mark is cleared before its order is given: a change that comes later leaves a mark again, and none goes without an
 * event.
 *
 * A session is made and ends before the poker acts. For the poker alone a new one is not there until its mkdir, and one
 * that has ended is there as a ghost until its rmdir. */
#include "watchers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "dir.h"
#include "face.h"
#include "ino.h"
#include "seen.h"

#define REST_MS	   100	/* between two pokes of one file */
#define FLYING_MAX 32	/* orders under way */
#define HANG_MS	   5000 /* an order that takes longer: twice PARK_MS is the longest that a directory can be locked */
#define LOST_MS	   1000 /* before another poker is asked for */
#define TRIES	   5

struct ghost {
	struct list link; /* of watchers.ghosts, oldest first */
	int64_t id;
	char *name;
};

struct order {
	struct list link; /* of watchers.orders or watchers.flying */
	uint64_t tag;
	enum poke_what what;
	uint64_t ino;	     /* POKE_MODIFY: of the file */
	int64_t session;     /* POKE_MKDIR */
	struct ghost *ghost; /* the last order of a ghost: it goes with it */
	unsigned tries;
	int64_t given_ms;
	char path[POKE_PATH];
};

struct watchers {
	struct face *f;
	struct poke *poke;   /* NULL: no events */
	struct list ready;   /* seen: changed, and may be poked at once */
	struct list resting; /* seen: poked less than REST_MS ago, oldest first */
	struct list orders;  /* to be given before anything of `ready` */
	struct list flying;  /* given and not answered, oldest first */
	unsigned n_flying;
	struct list ghosts;
	uint64_t next_tag;
	struct timer rest, hang;
	pid_t hung; /* that was told of in the log */
};

/* ---- orders ---- */

static struct order *order_new(enum poke_what what, const char *dir, const char *name)
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

static void ghost_free(struct ghost *g)
{
	list_remove(&g->link);
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

static void take_answers(struct watchers *w)
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
	take_answers(w);
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

void watchers_run(struct face *f)
{
	struct watchers *w = f->watchers;
	if (!w || !w->poke)
		return;
	take_news(w);
	if (!w->poke)
		return;
	take_answers(w);
	give_orders(w);
}

/* ---- what changes ---- */

static uint64_t ino_in(enum place place, const char *name, int64_t session)
{
	return ino_pack(session, tree_row(tree_find(place, name)));
}

static uint64_t ino_of_session(int64_t id)
{
	return ino_pack(id, tree_row(tree_unnamed(PLACE_SESSIONS, KIND_DIR)));
}

static uint64_t parent_of(uint64_t ino)
{
	const struct file *parent = tree_dir(tree[ino_row(ino)].place);
	return ino_pack(parent->place == PLACE_NONE || parent->place == PLACE_ROOT ? 0 : ino_number(ino),
			tree_row(parent));
}

void watchers_changed(struct face *f, uint64_t ino, bool event)
{
	struct watchers *w = f->watchers;
	if (!w || !f->connected)
		return;
	struct seen *s = seen_find(f, ino);
	bool known = ino == FUSE_ROOT_ID || (s && s->lookups);
	if (known) /* attributes alone, which takes no lock of the kernel that a request could hold */
		fuse_lowlevel_notify_inval_inode(f->se, ino, -1, 0);
	if (!event || !w->poke || (!known && !seen_known(f, parent_of(ino))))
		return;
	if (!s)
		s = seen_get(f, ino);
	s->dirty = true;
	if (list_empty(&s->due))
		list_append(&w->ready, &s->due);
}

void watchers_born(struct face *f, struct session *s)
{
	struct watchers *w = f->watchers;
	if (!w || !w->poke || !f->connected || !seen_known(f, ino_in(PLACE_ROOT, "sessions", 0)))
		return;
	struct order *o = order_new(POKE_MKDIR, "sessions", s->view->name);
	o->session = s->id;
	s->hidden = true;
	list_append(&w->orders, &o->link);
}

/* Orders to remove what of a place the kernel knows. */
static void remove_known(struct watchers *w, enum place place, const char *dir, int64_t id)
{
	for (unsigned row = 1; row < tree_rows; row++) {
		const struct file *file = &tree[row];
		if (file->place != place || !file->name || !seen_known(w->f, ino_pack(id, row)))
			continue;
		struct order *o = order_new(file->kind == KIND_DIR ? POKE_RMDIR : POKE_UNLINK, dir, file->name);
		if (file->kind == KIND_DIR)
			remove_known(w, file->inside, o->path, id);
		list_append(&w->orders, &o->link);
	}
}

static void invalidate_all(struct face *f, int64_t id)
{
	watchers_changed(f, ino_of_session(id), false);
	for (unsigned row = 1; row < tree_rows; row++)
		if (file_of_session(&tree[row]))
			watchers_changed(f, ino_pack(id, row), false);
}

void watchers_died(struct face *f, const struct session *s, bool removed)
{
	struct watchers *w = f->watchers;
	if (!w || !f->connected)
		return;
	invalidate_all(f, s->id);
	if (!w->poke || removed || s->hidden || !seen_known(f, ino_in(PLACE_ROOT, "sessions", 0)))
		return;
	struct ghost *g = xcalloc(1, sizeof *g);
	g->id = s->id;
	g->name = xstrdup(s->view->name);
	list_append(&w->ghosts, &g->link);
	struct order *o = order_new(POKE_RMDIR, "sessions", g->name);
	o->ghost = g;
	if (seen_known(f, ino_of_session(g->id)))
		remove_known(w, PLACE_SESSION, o->path, g->id);
	list_append(&w->orders, &o->link);
}

/* ---- requests of the poker ---- */

bool watchers_is_poker(const struct face *f, fuse_req_t req)
{
	const struct watchers *w = f->watchers;
	return w && w->poke && w->poke->worker && fuse_req_ctx(req)->pid == w->poke->worker;
}

static struct ghost *ghost_named(const struct watchers *w, const char *name)
{
	list_each (pos, &w->ghosts)
		if (!strcmp(list_entry(pos, struct ghost, link)->name, name))
			return list_entry(pos, struct ghost, link);
	return NULL;
}

/* The ghost in whose directory this one is. */
static struct ghost *ghost_at(const struct watchers *w, fuse_ino_t dir)
{
	if (ino_is_random(dir) || !ino_row(dir) || ino_row(dir) >= tree_rows)
		return NULL;
	const struct file *file = &tree[ino_row(dir)];
	if (!file_of_session(file) && (file->place != PLACE_SESSIONS || file->name))
		return NULL;
	list_each (pos, &w->ghosts)
		if (list_entry(pos, struct ghost, link)->id == ino_number(dir))
			return list_entry(pos, struct ghost, link);
	return NULL;
}

static void show_ghost(struct face *f, fuse_req_t req, const struct ghost *g, const struct file *file)
{
	struct fuse_entry_param e = {.ino = ino_pack(g->id, tree_row(file))};
	e.attr.st_ino = e.ino;
	e.attr.st_mode = (file->kind == KIND_DIR ? S_IFDIR : S_IFREG) | file->mode;
	e.attr.st_nlink = file->kind == KIND_DIR ? 2 : 1;
	e.attr.st_uid = f->uid;
	e.attr.st_gid = f->gid;
	dir_reply(f, req, &e);
}

static bool is_sessions(fuse_ino_t dir)
{
	return dir == ino_in(PLACE_ROOT, "sessions", 0);
}

bool watchers_lookup(struct face *f, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!watchers_is_poker(f, req))
		return false;
	const struct ghost *g = is_sessions(parent) ? ghost_named(f->watchers, name) : ghost_at(f->watchers, parent);
	if (g) {
		const struct file *file = is_sessions(parent) ? tree_unnamed(PLACE_SESSIONS, KIND_DIR)
							      : tree_find(tree[ino_row(parent)].inside, name);
		if (file)
			show_ghost(f, req, g, file);
		else
			fuse_reply_err(req, ENOENT);
		return true;
	}
	const struct session *s = is_sessions(parent) ? session_by_name(f, name) : NULL;
	if (!s || !s->hidden)
		return false;
	fuse_reply_err(req, ENOENT);
	return true;
}

bool watchers_open(struct face *f, fuse_req_t req, struct fuse_file_info *fi)
{
	if (!watchers_is_poker(f, req))
		return false;
	fi->fh = 0;
	fi->direct_io = 1;
	fi->noflush = 1;
	fuse_reply_open(req, fi);
	return true;
}

bool watchers_mkdir(struct face *f, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!watchers_is_poker(f, req))
		return false;
	struct session *s = is_sessions(parent) ? session_by_name(f, name) : NULL;
	if (!s || !s->hidden) {
		fuse_reply_err(req, EPERM);
		return true;
	}
	struct fuse_entry_param e;
	s->hidden = false;
	dir_entry(f, ino_of_session(s->id), &e);
	dir_reply(f, req, &e);
	return true;
}

bool watchers_remove(struct face *f, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!watchers_is_poker(f, req))
		return false;
	bool ghost =
		is_sessions(parent) ? ghost_named(f->watchers, name) != NULL : ghost_at(f->watchers, parent) != NULL;
	fuse_reply_err(req, ghost ? 0 : EPERM);
	return true;
}

/* ---- life ---- */

void watchers_start(struct face *f, struct poke *p)
{
	struct watchers *w = f->watchers = xcalloc(1, sizeof *w);
	w->f = f;
	w->poke = p->work_fd >= 0 ? p : NULL;
	list_init(&w->ready);
	list_init(&w->resting);
	list_init(&w->orders);
	list_init(&w->flying);
	list_init(&w->ghosts);
	timer_init(&w->rest);
	timer_init(&w->hang);
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
