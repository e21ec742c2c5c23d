/* The drop box: names of drafts; creating, removing and renaming them. Loop thread only. A change of a directory holds
 * its lock, so what the backend has to say is waited for at most PARK_MS. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "dir.h"
#include "drop_box.h"
#include "names.h"
#include "node.h"
#include "refuse.h"
#include "watchers.h"

/* ---- drafts ---- */

/* Which directory: what a draft has as its project. */
static int64_t place_of(const struct spot *dir)
{
	return dir->file->inside == PLACE_ATTACH ? attach_key(dir->number) : dir->number;
}

static struct draft *make(struct face *f, const char *name, struct list *list)
{
	struct draft *d = xcalloc(1, sizeof *d);
	d->refs = 1; /* of the directory */
	d->f = f;
	d->name = xstrdup(name);
	d->listed = true;
	d->scratch = name_is_scratch(name);
	d->changed_ms = clock_real_ms();
	list_init(&d->nodes);
	timer_init(&d->grace);
	list_append(list, &d->link);
	f->n_drafts++;
	return d;
}

struct draft *draft_new(const struct spot *dir, const char *name)
{
	struct face *f = dir->f;
	struct draft *d = make(f, name, &f->drafts);
	d->number = ++f->next_draft;
	d->project = place_of(dir);
	if (draft_is_attach(d))
		d->scratch = attach_is_scratch(name);
	f->drop_ms = d->changed_ms;
	return d;
}

struct draft *draft_beside(const struct spot *dir, const char *name)
{
	struct draft *d = make(dir->f, name, &dir->f->asides);
	d->beside = dir->ino;
	return d;
}

struct draft *draft_get(struct draft *d)
{
	d->refs++;
	return d;
}

void draft_put(struct draft *d)
{
	if (--d->refs)
		return;
	d->f->draft_bytes -= d->text.n;
	while (!list_empty(&d->nodes))
		list_remove(d->nodes.next);
	timer_clear(&d->grace);
	buf_release(&d->text);
	free(d->name);
	free(d->was);
	free(d->cwd);
	free(d);
}

void draft_unlist(struct draft *d)
{
	if (!d->listed)
		return;
	d->listed = false;
	if (!d->beside)
		d->f->drop_ms = clock_real_ms();
	d->f->n_drafts--;
	list_remove(&d->link);
	timer_clear(&d->grace);
	draft_put(d);
}

void drafts_release(struct face *f)
{
	while (!list_empty(&f->drafts))
		draft_unlist(list_entry(f->drafts.next, struct draft, link));
}

bool draft_is_open(const struct draft *d)
{
	list_each (pos, &d->f->handles)
		if (list_entry(pos, struct handle, link)->draft == d)
			return true;
	return false;
}

/* Is name one that an editor makes for its swap, lock, backup or rescue file beside `of`? */
static bool is_beside(const char *name, const char *of)
{
	static const char *const ends[] = {"", "~", "#", ".swp", ".swo", ".swx", ".save", ".bak", ".orig"};
	size_t n = strlen(of);
	name += strspn(name, ".#");
	if (strncmp(name, of, n))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (!strcmp(name + n, ends[i]))
			return true;
	return false;
}

/* Is x what an editor has put aside of d, which is a session now? By its name, or d under its former name, or a copy.
 */
static bool is_left_of(const struct draft *x, const struct draft *d)
{
	size_t len = strlen(x->name);
	if (x == d || !x->scratch || x->project != d->project)
		return false;
	if ((x->was && !strcmp(x->was, d->name)) || is_beside(x->name, d->name))
		return true;
	return x->name[len - 1] == '~' && x->text.n && x->text.n == d->text.n &&
	       !memcmp(x->text.p, d->text.p, d->text.n);
}

/* What is left of a draft that was refused once or twice: nobody comes back for it. */
static void tidy(const struct draft *d)
{
	list_each_safe (pos, &d->f->drafts) {
		struct draft *x = list_entry(pos, struct draft, link);
		if (is_left_of(x, d) && !draft_is_open(x))
			draft_unlist(x);
	}
}

static void grace_over(struct timer *t)
{
	struct draft *d = list_entry(t, struct draft, grace);
	tidy(d);
	draft_unlist(d);
}

void draft_done(struct draft *d, int64_t session)
{
	const struct session *s = session_by_id(d->f, session);
	d->session = session;
	if (d->listed && (!s || strcmp(s->view->name, d->name)))
		draft_unlist(d); /* it has ended already */
	else if (d->listed)
		timer_set(d->f, &d->grace, GRACE_MS, grace_over);
}

void drop_session_left(struct face *f, int64_t id)
{
	list_each_safe (pos, &f->drafts) {
		struct draft *d = list_entry(pos, struct draft, link);
		if (d->session == id)
			draft_unlist(d);
	}
}

const struct file *draft_row(const struct draft *d)
{
	return tree_unnamed(draft_is_attach(d) ? PLACE_ATTACH
			    : d->project       ? PLACE_DROP_PROJECT
					       : PLACE_DROP,
			    KIND_DRAFT);
}

void draft_path(const struct draft *d, struct buf *out)
{
	struct spot dir;
	if (d->beside) {
		CLEAN_FREE char *path = spot_of(d->f, d->beside, &dir) ? NULL : spot_path(&dir, d->name);
		buf_adds(out, path ? path : d->name);
		return;
	}
	const char *project = project_name(d->f, d->project);
	const struct session *s = session_by_id(d->f, draft_attach_session(d));
	if (draft_is_attach(d)) {
		buf_addf(out, "sessions/%s/attach/%s", s ? s->view->name : "", d->name);
		return;
	}
	buf_addf(out, "sessions/new/%s%s%s", project ? project : "", project ? "/" : "", d->name);
}

uint64_t draft_size(const struct draft *d)
{
	return d->text.n;
}

int64_t draft_changed(const struct draft *d)
{
	return d->changed_ms;
}

int64_t draft_session(const struct draft *d)
{
	return d->session;
}

struct list *draft_nodes(struct draft *d)
{
	return &d->nodes;
}

const char *draft_name(const struct draft *d)
{
	return d->name;
}

struct draft *draft_find(const struct face *f, int64_t project, const char *name)
{
	list_each (pos, &f->drafts) {
		struct draft *d = list_entry(pos, struct draft, link);
		if (d->project == project && !strcmp(d->name, name))
			return d;
	}
	return NULL;
}

struct draft *draft_next(const struct face *f, int64_t project, int64_t *number)
{
	list_each (pos, &f->drafts) {
		struct draft *d = list_entry(pos, struct draft, link);
		if (d->project == project && d->number > *number) {
			*number = d->number;
			return d;
		}
	}
	return NULL;
}

/* ---- create ---- */

/* May a session get this name? 0, or -errno after the refusal. */
static int check_name(const struct spot *dir, const char *name)
{
	struct err err = ERR_INIT;
	int rc = name_check(name, &err);
	if (rc) {
		CLEAN_FREE char *path = spot_path(dir, name);
		return refuse_rc(dir->f, 0, path, rc, &err);
	}
	if (session_by_name(dir->f, name))
		return refuse_at(dir, name, EEXIST,
				 "session %s exists; write to sessions/%s/input, or choose another name", name, name);
	return 0;
}

static int check_create(const struct spot *dir, fuse_req_t req, const char *name)
{
	struct face *f = dir->f;
	int rc = spot_allowed(f, req, dir->file->mode, W_OK | X_OK);
	if (!rc && dir->file->inside == PLACE_ATTACH)
		rc = attach_check_name(dir, name);
	else if (!rc && !name_is_scratch(name))
		rc = check_name(dir, name);
	if (!rc && strlen(name) > 255)
		rc = -ENAMETOOLONG;
	if (!rc && f->n_drafts >= DRAFTS_MAX)
		rc = refuse_at(dir, name, ENOSPC, "%d drafts are in the drop box; remove some from sessions/new",
			       DRAFTS_MAX);
	return rc;
}

static void created(struct op *op)
{
	struct fuse_entry_param e;
	struct handle *h = op->h;
	dir_entry(h->f, h->ino, &e);
	handle_opened(h, op_take(op), &e);
}

static void created_with_cwd(struct op *op, struct request *r)
{
	draft_stands(op->h->draft, r);
	if (op->req)
		created(op);
}

/* The name was free when the kernel looked, but another has made it since; without O_EXCL that is an open. */
static int check_existing(const struct spot *dir, fuse_req_t req, struct draft *d, int flags)
{
	if (flags & O_EXCL)
		return -EEXIST;
	if (d->session || d->creating)
		return refuse_at(dir, d->name, EEXIST, "session %s exists; write to sessions/%s/input", d->name,
				 d->name);
	return spot_allowed(dir->f, req, dir->file->mode, W_OK | X_OK);
}

void drop_create(const struct spot *dir, fuse_req_t req, const char *name, int flags)
{
	struct face *f = dir->f;
	struct draft *d = draft_find(f, place_of(dir), name);
	int rc = d ? check_existing(dir, req, d, flags) : check_create(dir, req, name);
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	if (!d) {
		d = draft_new(dir, name);
		d->by_rename = !draft_is_attach(d) && flags & O_EXCL &&
			       (flags & O_ACCMODE) == O_RDWR; /* mkstemp(3), QSaveFile */
	}
	draft_open_new(d, req, flags);
}

void draft_open_new(struct draft *d, fuse_req_t req, int flags)
{
	struct face *f = d->f;
	pid_t pid = fuse_req_ctx(req)->pid;
	struct spot at = {.f = f, .file = draft_row(d)};
	at.node = node_for(f, &d->nodes, 0, d, pid);
	at.ino = at.node->ino;
	struct handle *h = handle_new(&at, d, flags);
	writers_init(&h->writers, pid);
	struct op *op = op_park(f, req, h, OP_CHANGE, PARK_MS);
	op->late = created;
	if (d->project || d->beside || pid <= 0) {
		created(op);
		return;
	}
	struct request *r = request_new(REQ_CWD, NULL, NULL);
	r->pid = pid;
	op_ask(op, r, created_with_cwd);
}

/* ---- unlink and rename ---- */

void drop_unlink(const struct spot *dir, fuse_req_t req, const char *name)
{
	const struct attach_info *a = dir->file->inside == PLACE_ATTACH ? attach_find(dir, name) : NULL;
	if (a) {
		attach_unlink(dir, req, a);
		return;
	}
	struct draft *d = draft_find(dir->f, place_of(dir), name);
	int rc = !d ? -ENOENT : spot_allowed(dir->f, req, dir->file->mode, W_OK | X_OK);
	if (!rc && d->creating)
		rc = refuse_at(dir, name, EBUSY, "%s is just being made", name);
	if (!rc)
		draft_unlist(d);
	fuse_reply_err(req, -rc);
}

/* Gives d another name, whose former owner loses it. */
static void move(struct draft *d, int64_t project, const char *name)
{
	struct draft *old = draft_find(d->f, project, name);
	if (old && old != d)
		draft_unlist(old);
	if (name_is_scratch(name) && !d->scratch) {
		free(d->was);
		d->was = take(d->name);
	}
	free(d->name);
	d->name = xstrdup(name);
	d->by_rename = false;
	d->f->drop_ms = clock_real_ms();
	d->project = project;
	d->scratch = name_is_scratch(name);
	d->judged = false;
	d->judged_n = d->checked = 0;
}

struct renaming {
	struct draft *d; /* a reference */
	int64_t project;
	char name[];
};

static void succeeded(struct op *op)
{
	op_error(op, 0);
}

/* Answers when the session can be found by its name. */
static void answer_made(struct op *op, const char *name)
{
	struct list waiting;
	list_init(&waiting);
	list_append(&waiting, &op->wait);
	op->wake = succeeded;
	watchers_wake(op->f, name, &waiting);
}

static void renamed(struct op *op, struct request *r)
{
	struct renaming *to = op->data;
	struct draft *d = to->d;
	int rc = op_refused(op, r);
	d->creating = false;
	if (!rc && d->listed)
		move(d, to->project, to->name);
	if (!rc)
		draft_done(d, r->session);
	draft_put(d);
	if (rc)
		op_error(op, rc);
	else if (op->req)
		answer_made(op, to->name);
}

static void rename_create(struct op *op)
{
	struct renaming *to = op->data;
	int rc;
	struct request *r = draft_request(to->d, to->name, to->project, op->path, &rc);
	if (r) {
		op_ask(op, r, renamed);
		return;
	}
	draft_put(to->d);
	op_error(op, rc);
}

static void renamed_with_cwd(struct op *op, struct request *r)
{
	struct renaming *to = op->data;
	draft_stands(to->d, r);
	rename_create(op);
}

/* 0, or -errno after the refusal. */
static int check_rename(const struct spot *dir, const char *name, const struct spot *to, const char *new_name,
			bool replace, fuse_req_t req)
{
	struct draft *d = draft_find(dir->f, place_of(dir), name);
	struct draft *old = draft_find(dir->f, to->number, new_name);
	int rc = !d ? -ENOENT : spot_allowed(dir->f, req, dir->file->mode, W_OK | X_OK);
	if (!rc && (d->session || d->creating))
		rc = refuse_at(dir, name, EPERM, "session %s exists; rename it in sessions/", name);
	if (!rc && old && (!replace || old->session || old->creating))
		rc = refuse_at(to, new_name, EEXIST, "%s exists", new_name);
	if (!rc && !name_is_scratch(new_name))
		rc = check_name(to, new_name);
	return rc;
}

void drop_rename(const struct spot *dir, const char *name, const struct spot *to, const char *new_name, bool replace,
		 fuse_req_t req)
{
	struct face *f = dir->f;
	int rc = check_rename(dir, name, to, new_name, replace, req);
	struct draft *d = draft_find(f, place_of(dir), name);
	/* One that is still being written becomes a session when it is complete, under its new name. */
	if (!rc && (name_is_scratch(new_name) || !d->text.n || draft_is_written(d, NULL))) {
		move(d, to->number, new_name);
		fuse_reply_err(req, 0);
		return;
	}
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	struct renaming *data = xmalloc(sizeof *data + strlen(new_name) + 1);
	*data = (struct renaming){.d = draft_get(d), .project = to->number};
	memcpy(data->name, new_name, strlen(new_name) + 1);
	struct op *op = op_park(f, req, NULL, OP_CHANGE, PARK_MS);
	op->path = spot_path(to, new_name);
	op->data = data;
	pid_t pid = fuse_req_ctx(req)->pid;
	if (to->number || d->cwd || pid <= 0) {
		rename_create(op);
		return;
	}
	struct request *r = request_new(REQ_CWD, NULL, NULL);
	r->pid = pid;
	op_ask(op, r, renamed_with_cwd);
}
