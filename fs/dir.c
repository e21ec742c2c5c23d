/* Names and listings. Loop thread only; memory only: shells, prompts and indexers ask all the time. */
#include "dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "aside.h"
#include "attach.h"
#include "backend/base/mem.h"
#include "drop.h"
#include "face.h"
#include "ino.h"
#include "keys.h"
#include "node.h"
#include "seen.h"
#include "templates.h"

static uint64_t ino_of(const struct file *file, int64_t number)
{
	return ino_pack(number, tree_row(file));
}

void dir_entry(struct face *f, uint64_t ino, struct fuse_entry_param *e)
{
	struct spot at;
	*e = (struct fuse_entry_param){.ino = ino};
	if (spot_of(f, ino, &at))
		return;
	spot_stat(&at, &e->attr);
	e->entry_timeout = spot_keep_entry(&at);
}

void dir_reply(struct face *f, fuse_req_t req, const struct fuse_entry_param *e)
{
	struct node *node = ino_is_random(e->ino) ? node_find(f, e->ino) : NULL;
	if (node)
		node->lookups++;
	else
		seen_get(f, e->ino)->lookups++;
	if (!fuse_reply_entry(req, e))
		return;
	if (node)
		node_forget(f, node, 1);
	else
		seen_forget(f, e->ino, 1);
}

/* ---- lookup ---- */

static uint64_t lookup_session(const struct spot *dir, const char *name)
{
	const struct session *s = session_by_name(dir->f, name);
	return s ? ino_of(tree_unnamed(PLACE_SESSIONS, KIND_DIR), s->id) : 0;
}

static uint64_t lookup_key(const struct spot *dir, const char *name)
{
	int64_t number = key_number(dir->f, name);
	return number ? ino_of(tree_unnamed(PLACE_KEYS, KIND_KEY), number) : 0;
}

/* Which drafts are in a directory. */
static int64_t draft_place(const struct spot *dir)
{
	return dir->file->inside == PLACE_ATTACH ? attach_key(dir->number) : dir->number;
}

static uint64_t lookup_draft(const struct spot *dir, const char *name, pid_t tid)
{
	struct draft *d = draft_find(dir->f, draft_place(dir), name);
	return d ? node_for(dir->f, draft_nodes(d), 0, d, tid)->ino : 0;
}

static uint64_t lookup_attach(const struct spot *dir, const char *name, pid_t tid)
{
	const struct attach_info *a = attach_find(dir, name);
	return a ? node_of_attach(dir->f, dir->number, (int64_t)a->n)->ino : lookup_draft(dir, name, tid);
}

/* approvals/K: at most one waits, for calls run one after the other. */
static uint64_t lookup_approval(const struct spot *dir, const char *name)
{
	char is[24];
	snprintf(is, sizeof is, "%llu", (unsigned long long)dir->session->view->approval);
	return dir->session->view->approval && !strcmp(is, name)
		       ? ino_of(tree_unnamed(PLACE_APPROVALS, KIND_LINE), dir->number)
		       : 0;
}

static uint64_t lookup_aside(const struct spot *dir, const char *name, pid_t tid)
{
	struct draft *d = aside_find(dir->f, dir->ino, name);
	return d ? node_for(dir->f, draft_nodes(d), 0, d, tid)->ino : 0;
}

static uint64_t lookup_template(const struct spot *dir, const char *name)
{
	const struct template_info *t = template_by_name(dir->f, name);
	return t ? ino_of(tree_unnamed(PLACE_TEMPLATES, KIND_DIR), t->id) : 0;
}

/* Do the files of this directory have its number? */
static int64_t number_in(const struct spot *dir)
{
	return dir->session || dir->file->inside == PLACE_TEMPLATE ? dir->number : 0;
}

/* A name that is not in the table. */
static uint64_t lookup_own(const struct spot *dir, const char *name, pid_t tid)
{
	enum place inside = dir->file->inside;
	int64_t project = inside == PLACE_PROJECTS || inside == PLACE_DROP ? project_number(dir->f, name) : 0;
	if (project)
		return ino_of(tree_unnamed(inside, inside == PLACE_PROJECTS ? KIND_LINK : KIND_DIR), project);
	if (inside == PLACE_ATTACH)
		return lookup_attach(dir, name, tid);
	if (inside == PLACE_APPROVALS)
		return lookup_approval(dir, name);
	if (inside == PLACE_SESSIONS)
		return lookup_session(dir, name);
	if (inside == PLACE_KEYS)
		return lookup_key(dir, name);
	if (inside == PLACE_TEMPLATES)
		return lookup_template(dir, name);
	return inside == PLACE_DROP || inside == PLACE_DROP_PROJECT ? lookup_draft(dir, name, tid) : 0;
}

uint64_t dir_lookup(const struct spot *dir, const char *name, pid_t tid)
{
	const struct file *file = tree_find(dir->file->inside, name);
	if (file && file->kind == KIND_MESSAGE)
		return node_for(dir->f, &dir->session->nodes, dir->session->id, NULL, tid)->ino;
	if (file)
		return ino_of(file, number_in(dir));
	uint64_t ino = lookup_own(dir, name, tid);
	return ino ? ino : lookup_aside(dir, name, tid);
}

/* ---- readdir ---- */

struct listing {
	fuse_req_t req;
	char *p;
	size_t n, size;
	bool plus;
	uint64_t *known; /* sessions that were given with their attributes */
	size_t n_known;
};

#define PLUS_MIN 160 /* bytes of an entry with attributes, at least */

/* With attributes, unless e.ino is 0. False when the reply is full. */
static bool add_entry(struct listing *l, const char *name, const struct fuse_entry_param *e, int64_t off)
{
	char *p = l->p + l->n;
	size_t left = l->size - l->n;
	size_t n = l->plus ? fuse_add_direntry_plus(l->req, p, left, name, e, off)
			   : fuse_add_direntry(l->req, p, left, name, &e->attr, off);
	if (n > left)
		return false;
	l->n += n;
	return true;
}

static bool add(struct listing *l, const char *name, uint64_t ino, mode_t type, int64_t off)
{
	return add_entry(l, name, &(struct fuse_entry_param){.attr = {.st_ino = ino, .st_mode = type}}, off);
}

/* A session's directory, which becomes known to the kernel by that. */
static bool add_session(struct listing *l, struct face *f, const struct session *s, uint64_t ino)
{
	struct fuse_entry_param e = {.attr = {.st_ino = ino, .st_mode = S_IFDIR}};
	if (l->plus) {
		dir_entry(f, ino, &e);
		e.attr_timeout = e.entry_timeout; /* see watchers.c, "sessions in listings" */
	}
	if (!add_entry(l, s->view->name, &e, dir_off_number(s->id)))
		return false;
	if (l->plus) {
		seen_get(f, ino)->lookups++;
		l->known[l->n_known++] = ino;
	}
	return true;
}

static mode_t type_of(const struct file *file)
{
	return file->kind == KIND_DIR ? S_IFDIR : file->kind == KIND_LINK ? S_IFLNK : S_IFREG;
}

static uint64_t parent_of(const struct spot *dir)
{
	const struct file *file = dir->file;
	if (file->place == PLACE_NONE)
		return FUSE_ROOT_ID;
	const struct file *parent = tree_dir(file->place);
	return ino_of(parent, parent->place == PLACE_SESSIONS && !parent->name ? dir->number : 0);
}

static bool add_rows(struct listing *l, const struct spot *dir, off_t off)
{
	for (unsigned row = 1; row < tree_rows; row++) {
		const struct file *file = &tree[row];
		if (file->place != dir->file->inside || !file->name || dir_off_row(row) <= off)
			continue;
		if (!add(l, file->name, ino_of(file, number_in(dir)), type_of(file), dir_off_row(row)))
			return false;
	}
	return true;
}

static bool add_projects(struct listing *l, const struct spot *dir, enum file_kind kind, off_t off)
{
	const struct face *f = dir->f;
	const struct file *file = tree_unnamed(dir->file->inside, kind);
	for (size_t i = 0; i < f->n_project_names; i++) {
		int64_t number = (int64_t)i + 1, here = dir_off_number(number);
		if (here <= off || !project_by_number(f, number))
			continue;
		if (!add(l, f->project_names[i], ino_of(file, number), type_of(file), here))
			return false;
	}
	return true;
}

static bool add_sessions(struct listing *l, const struct spot *dir, off_t off)
{
	struct face *f = dir->f;
	const struct file *file = tree_unnamed(PLACE_SESSIONS, KIND_DIR);
	int64_t after = off >= DIR_NUMBER_FIRST ? off - DIR_NUMBER_FIRST : 0;
	for (size_t i = session_after(f, after); i < f->n_sessions; i++) {
		const struct session *s = f->sessions[i];
		if (!add_session(l, f, s, ino_of(file, s->id)))
			return false;
	}
	return true;
}

static bool add_drafts(struct listing *l, const struct spot *dir, off_t off)
{
	int64_t number = off >= DIR_SECOND_FIRST ? off - DIR_SECOND_FIRST : 0;
	/* Their inode numbers belong to whoever looks them up: none is made for a listing. */
	uint64_t ino = ino_of(tree_unnamed(dir->file->inside, KIND_DRAFT), 0);
	for (struct draft *d; (d = draft_next(dir->f, draft_place(dir), &number));)
		if (!add(l, draft_name(d), ino, S_IFREG, dir_off_second(number)))
			return false;
	return true;
}

static bool add_keys(struct listing *l, const struct spot *dir, off_t off)
{
	const struct file *file = tree_unnamed(PLACE_KEYS, KIND_KEY);
	int64_t number = off >= DIR_NUMBER_FIRST ? off - DIR_NUMBER_FIRST : 0;
	while ((number = key_after(dir->f, number)))
		if (!add(l, key_name(dir->f, number), ino_of(file, number), S_IFREG, dir_off_number(number)))
			return false;
	return true;
}

static bool add_templates(struct listing *l, const struct spot *dir, off_t off)
{
	const struct file *file = tree_unnamed(PLACE_TEMPLATES, KIND_DIR);
	int64_t after = off >= DIR_NUMBER_FIRST ? off - DIR_NUMBER_FIRST : 0;
	for (const struct template_info *t; (t = template_after(dir->f, after)); after = t->id)
		if (!add(l, t->name, ino_of(file, t->id), S_IFDIR, dir_off_number(t->id)))
			return false;
	return true;
}

static bool add_attached(struct listing *l, const struct spot *dir, off_t off)
{
	const struct view *v = dir->session->view;
	for (size_t i = 0; i < v->n_attach; i++) {
		int64_t n = (int64_t)v->attach[i].n, here = dir_off_number(n);
		if (here > off && !add(l, v->attach[i].name, node_attach_ino(dir->f, dir->number, n), S_IFREG, here))
			return false;
	}
	return true;
}

static bool add_approvals(struct listing *l, const struct spot *dir, off_t off)
{
	char name[24];
	int64_t k = (int64_t)dir->session->view->approval;
	snprintf(name, sizeof name, "%lld", (long long)k);
	return !k || dir_off_number(k) <= off ||
	       add(l, name, ino_of(tree_unnamed(PLACE_APPROVALS, KIND_LINE), dir->number), S_IFREG, dir_off_number(k));
}

static bool add_numbered(struct listing *l, const struct spot *dir, off_t off)
{
	switch (dir->file->inside) {
	case PLACE_PROJECTS: return add_projects(l, dir, KIND_LINK, off);
	case PLACE_SESSIONS: return add_sessions(l, dir, off);
	case PLACE_KEYS: return add_keys(l, dir, off);
	case PLACE_TEMPLATES: return add_templates(l, dir, off);
	case PLACE_DROP: return add_projects(l, dir, KIND_DIR, off) && add_drafts(l, dir, off);
	case PLACE_DROP_PROJECT: return add_drafts(l, dir, off);
	case PLACE_APPROVALS: return add_approvals(l, dir, off);
	case PLACE_ATTACH: return add_attached(l, dir, off) && add_drafts(l, dir, off);
	default: return true;
	}
}

void dir_read(const struct spot *dir, fuse_req_t req, size_t size, off_t off, bool plus)
{
	struct listing l = {.req = req, .p = xmalloc(size), .size = size, .plus = plus};
	l.known = plus ? xcalloc(size / PLUS_MIN + 1, sizeof *l.known) : NULL;
	bool more = off >= DIR_DOT || add(&l, ".", dir->ino, S_IFDIR, DIR_DOT);
	more = more && (off >= DIR_DOTDOT || add(&l, "..", parent_of(dir), S_IFDIR, DIR_DOTDOT));
	if (more && dir->file->inside != PLACE_WAIT && add_rows(&l, dir, off))
		add_numbered(&l, dir, off);
	if (fuse_reply_buf(req, l.p, l.n)) /* nobody waits for it any more: none has become known */
		while (l.n_known)
			seen_forget(dir->f, l.known[--l.n_known], 1);
	free(l.known);
	free(l.p);
}
