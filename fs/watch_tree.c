/* Which inodes are told of, what watchers are told of them, and the requests by which the poker does it. Loop thread
 * only.
 *
 * A session is made and ends before the poker acts. For the poker alone a new one is not there until its mkdir, and one
 * that has ended is there as a ghost until its rmdir. While there is a ghost of its name, the kernel may not keep the
 * name of a session: the poker would remove the new one instead. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "attach.h"
#include "backend/base/mem.h"
#include "dir.h"
#include "face.h"
#include "ino.h"
#include "seen.h"
#include "templates.h"
#include "watch_box.h"
#include "watchers.h"

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
	bool numbered = file_of_session(parent) || file_of_template(parent);
	return ino_pack(numbered ? ino_number(ino) : 0, tree_row(parent));
}

/* ---- sessions in listings ----
 *
 * `ls -l` gets sessions with attributes that may be kept. Between our reply and the moment when the reader makes inodes
 * of it lies a gap of microseconds, or more if it does not get the CPU; a word that falls into it finds no inode. It is
 * said again until it is heard. Files, whose sizes matter, are never given attributes in this way. */

#define AGAIN_MS  1
#define AGAIN_MAX 250

static bool is_session(uint64_t ino)
{
	const struct file *file = &tree[ino_row(ino)];
	return file->place == PLACE_SESSIONS && !file->name;
}

static void say_again(struct timer *t)
{
	struct watchers *w = list_entry(t, struct watchers, unsure_timer);
	list_each_safe (pos, &w->unsure) {
		struct seen *s = list_entry(pos, struct seen, due);
		bool over = !s->lookups || ++s->again >= AGAIN_MAX;
		if (!over && fuse_lowlevel_notify_inval_inode(w->f->se, s->ino, -1, 0) == -ENOENT)
			continue;
		s->again = 0;
		list_remove(&s->due);
		seen_put(w->f, s);
	}
	if (!list_empty(&w->unsure))
		timer_set(w->f, &w->unsure_timer, AGAIN_MS, say_again);
}

/* Attributes alone, which takes no lock of the kernel that a request could hold. */
static void drop_attributes(struct watchers *w, struct seen *s, uint64_t ino)
{
	int rc = fuse_lowlevel_notify_inval_inode(w->f->se, ino, -1, 0);
	if (rc != -ENOENT || !s || !is_session(ino))
		return;
	s->again = 0;
	if (!list_empty(&s->due))
		return;
	if (list_empty(&w->unsure))
		timer_set(w->f, &w->unsure_timer, AGAIN_MS, say_again);
	list_append(&w->unsure, &s->due);
}

void watchers_changed(struct face *f, uint64_t ino, bool event)
{
	struct watchers *w = f->watchers;
	if (!w || !f->connected)
		return;
	struct seen *s = seen_find(f, ino);
	bool known = ino == FUSE_ROOT_ID || (s && s->lookups);
	if (known)
		drop_attributes(w, s, ino);
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

static void order_approval(struct watchers *w, enum poke_what what, const char *dir, uint64_t k)
{
	char name[24];
	snprintf(name, sizeof name, "%llu", (unsigned long long)k);
	struct order *o = order_new(what, dir, name);
	list_append(&w->orders, &o->link);
}

void watchers_approval(struct face *f, const struct view *view, uint64_t before)
{
	struct watchers *w = f->watchers;
	if (!w || !w->poke || !f->connected || !seen_known(f, ino_in(PLACE_SESSION, "approvals", view->id)))
		return;
	CLEAN_FREE char *dir = xasprintf("sessions/%s/approvals", view->name);
	if (before)
		order_approval(w, POKE_UNLINK, dir, before);
	if (view->approval)
		order_approval(w, POKE_MKNOD, dir, view->approval);
}

void watchers_template(struct face *f, const struct template_info *t, bool come)
{
	struct watchers *w = f->watchers;
	if (!w || !w->poke || !f->connected || !seen_known(f, ino_in(PLACE_ROOT, "templates", 0)) ||
	    strlen("templates/") + strlen(t->name) + 1 > POKE_PATH)
		return;
	struct order *o = order_new(come ? POKE_MKDIR : POKE_RMDIR, "templates", t->name);
	list_append(&w->orders, &o->link);
}

static bool is_templates(fuse_ino_t dir)
{
	return dir == ino_in(PLACE_ROOT, "templates", 0);
}

/* The order that the poker carries out in templates/; NULL: it does something else there. */
static const struct order *template_order(const struct face *f, const char *name)
{
	list_each (pos, &f->watchers->flying) {
		const struct order *o = list_entry(pos, struct order, link);
		if ((o->what == POKE_MKDIR || o->what == POKE_RMDIR) && !strncmp(o->path, "templates/", 10) &&
		    !strcmp(o->path + 10, name))
			return o;
	}
	return NULL;
}

/* One that comes or goes, whatever is there of it by now; its number is none. */
static void show_template_dir(struct face *f, fuse_req_t req, const char *name)
{
	const struct template_info *t = template_by_name(f, name);
	const struct file *file = tree_unnamed(PLACE_TEMPLATES, KIND_DIR);
	struct fuse_entry_param e = {.ino = ino_pack(t ? t->id : 0, tree_row(file))};
	e.attr.st_ino = e.ino;
	e.attr.st_mode = S_IFDIR | file->mode;
	e.attr.st_nlink = 2;
	e.attr.st_uid = f->uid;
	e.attr.st_gid = f->gid;
	dir_reply(f, req, &e);
}

static bool lookup_template(struct face *f, fuse_req_t req, const char *name)
{
	const struct order *o = template_order(f, name);
	if (!o)
		return false;
	if (o->what == POKE_MKDIR)
		fuse_reply_err(req, ENOENT);
	else
		show_template_dir(f, req, name);
	return true;
}

static bool waits_still(const struct view *v, uint64_t n)
{
	for (size_t i = 0; i < v->n_attach; i++)
		if (v->attach[i].n == n)
			return true;
	return false;
}

void watchers_attach(struct face *f, const struct view *old, const struct view *view)
{
	struct watchers *w = f->watchers;
	if (!old->n_attach || !w || !w->poke || !f->connected ||
	    !seen_known(f, ino_in(PLACE_SESSION, "attach", view->id)))
		return;
	CLEAN_FREE char *dir = xasprintf("sessions/%s/attach", view->name);
	for (size_t i = 0; i < old->n_attach; i++)
		if (!waits_still(view, old->attach[i].n) && !attach_unlinks(f, view->id, old->attach[i].n) &&
		    strlen(dir) + strlen(old->attach[i].name) + 2 <= POKE_PATH)
			list_append(&w->orders, &order_new(POKE_UNLINK, dir, old->attach[i].name)->link);
}

bool watchers_is_poker(const struct face *f, fuse_req_t req)
{
	const struct watchers *w = f->watchers;
	return w && w->poke && w->poke->worker && fuse_req_ctx(req)->pid == w->poke->worker;
}

/* For requests about names, where it matters which of its orders it is at. */
static bool is_poker_at_name(const struct face *f, fuse_req_t req)
{
	if (!watchers_is_poker(f, req))
		return false;
	watchers_take_answers(f->watchers);
	return true;
}

static bool is_poked_dir(fuse_ino_t dir)
{
	return !ino_is_random(dir) && ino_row(dir) && ino_row(dir) < tree_rows &&
	       (tree[ino_row(dir)].inside == PLACE_APPROVALS || tree[ino_row(dir)].inside == PLACE_ATTACH) &&
	       tree[ino_row(dir)].kind == KIND_DIR;
}

static void show_poked(struct face *f, fuse_req_t req, fuse_ino_t dir)
{
	bool attach = tree[ino_row(dir)].inside == PLACE_ATTACH;
	const struct file *file =
		attach ? tree_unnamed(PLACE_ATTACH, KIND_ATTACHED) : tree_unnamed(PLACE_APPROVALS, KIND_LINE);
	struct fuse_entry_param e = {.ino = ino_pack(ino_number(dir), tree_row(file))};
	e.attr.st_ino = e.ino;
	e.attr.st_mode = S_IFREG | file->mode;
	e.attr.st_nlink = 1;
	e.attr.st_uid = f->uid;
	e.attr.st_gid = f->gid;
	dir_reply(f, req, &e);
}

/* The poker looks for what it is to make or to remove: the one is not there yet, the other is there still. */
static void lookup_poked(struct face *f, fuse_req_t req, fuse_ino_t dir, const char *name)
{
	bool make = false;
	list_each (pos, &f->watchers->flying) {
		const struct order *o = list_entry(pos, struct order, link);
		const char *last = strrchr(o->path, '/');
		if ((o->what != POKE_MKNOD && o->what != POKE_UNLINK) || !last || strcmp(last + 1, name))
			continue;
		make = o->what == POKE_MKNOD;
		break;
	}
	if (make)
		fuse_reply_err(req, ENOENT);
	else
		show_poked(f, req, dir);
}

bool watchers_mknod(struct face *f, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!is_poker_at_name(f, req))
		return false;
	if (is_poked_dir(parent))
		show_poked(f, req, parent);
	else
		fuse_reply_err(req, EPERM);
	return true;
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
	list_init(&g->waiting);
	list_append(&w->ghosts, &g->link);
	struct order *o = order_new(POKE_RMDIR, "sessions", g->name);
	o->ghost = g;
	if (seen_known(f, ino_of_session(g->id)))
		remove_known(w, PLACE_SESSION, o->path, g->id);
	list_append(&w->orders, &o->link);
}

/* ---- requests of the poker ---- */

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

bool watchers_has_ghost(const struct face *f, const char *name)
{
	return f->watchers && ghost_named(f->watchers, name);
}

#define DEFER_MS 1000 /* at most: the poker may hang */

void watchers_wake(struct face *f, const char *name, struct list *waiting)
{
	struct ghost *g = f->watchers && f->watchers->poke ? ghost_named(f->watchers, name) : NULL;
	if (!g) {
		ops_wake(waiting);
		return;
	}
	list_each_safe (pos, waiting) {
		struct op *op = list_entry(pos, struct op, wait);
		list_remove(&op->wait);
		list_append(&g->waiting, &op->wait);
		op_limit(op, DEFER_MS, op->wake);
	}
}

void watchers_renamed(struct face *f, const char *name)
{
	struct ghost *g = f->watchers ? ghost_named(f->watchers, name) : NULL;
	if (g)
		g->taken = true;
}

static bool is_sessions(fuse_ino_t dir)
{
	return dir == ino_in(PLACE_ROOT, "sessions", 0);
}

bool watchers_lookup(struct face *f, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!is_poker_at_name(f, req))
		return false;
	if (is_poked_dir(parent)) {
		lookup_poked(f, req, parent, name);
		return true;
	}
	if (is_templates(parent))
		return lookup_template(f, req, name);
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
	if (!is_poker_at_name(f, req))
		return false;
	if (is_templates(parent)) {
		show_template_dir(f, req, name);
		return true;
	}
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
	if (!is_poker_at_name(f, req))
		return false;
	bool ghost =
		is_poked_dir(parent) || is_templates(parent) ||
		(is_sessions(parent) ? ghost_named(f->watchers, name) != NULL : ghost_at(f->watchers, parent) != NULL);
	fuse_reply_err(req, ghost ? 0 : EPERM);
	return true;
}
