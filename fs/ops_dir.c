/* The requests of the kernel that change directories. Loop thread only. The tree is closed but for these places: the
 * drop box, projects/ (symlinks), gateway/keys, and sessions/ (rmdir and rename). Editors' attempts at swap files are
 * refused in silence; they save in place then, which is what is wanted. Some of their files are kept aside (aside.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aside.h"
#include "backend/base/mem.h"
#include "dir.h"
#include "drop.h"
#include "face.h"
#include "ino.h"
#include "keys.h"
#include "names.h"
#include "ops.h"
#include "refuse.h"
#include "templates.h"
#include "watchers.h"

static struct face *face_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* The directory of a request that changes it; false after an error was answered. */
static bool dir_of(fuse_req_t req, fuse_ino_t ino, struct spot *dir)
{
	int rc = spot_of(face_of(req), ino, dir);
	if (!rc)
		rc = spot_allowed(dir->f, req, 0755, W_OK | X_OK);
	if (rc)
		fuse_reply_err(req, -rc);
	return !rc;
}

/* Answers EPERM and says what to do instead. */
static void closed(const struct spot *dir, fuse_req_t req, const char *name)
{
	int rc = -EPERM;
	if (name_is_scratch(name))
		; /* an editor looking for a place for its swap file */
	else if (dir->file->inside == PLACE_FILES)
		rc = refuse_at(dir, name, EPERM,
			       "files/ shows the work as of the last sync and cannot be written: ask for the change "
			       "with a message to sessions/%s/input",
			       dir->session->view->name);
	else if (dir->session)
		rc = refuse_at(dir, name, EPERM,
			       "a session's directory is closed: append to input to talk to it; `rmdir "
			       "sessions/%s` ends it",
			       dir->session->view->name);
	else if (dir->file->inside == PLACE_SESSIONS)
		rc = refuse_at(dir, name, EPERM, "write a file to sessions/new/%s to start a session of that name",
			       name);
	else if (dir->file->inside == PLACE_PROJECTS)
		rc = refuse_at(dir, name, EPERM,
			       "projects are symlinks: `ln -s CHECKOUT projects/NAME` adds one, `rm "
			       "projects/NAME` takes it away");
	else if (dir->file->inside == PLACE_TEMPLATES || dir->file->inside == PLACE_TEMPLATE)
		rc = refuse_at(dir, name, EPERM,
			       "templates are made by sessions that need them: nothing is made here; `rmdir "
			       "templates/NAME` drops one");
	else if (dir->file->inside == PLACE_KEYS)
		rc = refuse_at(
			dir, name, EPERM,
			"a key is written to gateway/keys/NAME, and rm takes it away; nothing else can be done here");
	else
		rc = refuse_at(dir, name, EPERM, "only files of the drop box sessions/new can be made or moved here");
	fuse_reply_err(req, -rc);
}

static bool is_drop(const struct spot *dir)
{
	return dir->file->inside == PLACE_DROP || dir->file->inside == PLACE_DROP_PROJECT ||
	       dir->file->inside == PLACE_ATTACH;
}

/* Parks a request that the backend has to decide; its answer is the errno. */
static void decided(struct op *op, struct request *r)
{
	op_error(op, op_refused(op, r));
}

static struct op *park_change(const struct spot *dir, fuse_req_t req, const char *name, int64_t session)
{
	struct op *op = op_park(dir->f, req, NULL, OP_CHANGE, PARK_MS);
	op->path = spot_path(dir, name);
	op->session = session;
	return op;
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct spot dir;
	if (!dir_of(req, parent, &dir))
		return;
	if (is_drop(&dir))
		drop_create(&dir, req, name, fi->flags);
	else if (dir.file->inside == PLACE_KEYS)
		key_create(&dir, req, name, fi->flags);
	else if (aside_allowed(&dir, name))
		aside_create(&dir, req, name, fi->flags);
	else
		closed(&dir, req, name);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct spot dir;
	if (watchers_mknod(face_of(req), req, parent, name))
		return;
	if (dir_of(req, parent, &dir))
		closed(&dir, req, name);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct spot dir;
	if (watchers_mkdir(face_of(req), req, parent, name))
		return;
	if (dir_of(req, parent, &dir))
		closed(&dir, req, name);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct spot dir;
	if (dir_of(req, parent, &dir))
		closed(&dir, req, name);
}

/* ---- projects ---- */

static void project_added(struct op *op, struct request *r)
{
	int rc = op_refused(op, r);
	int64_t number = rc ? 0 : project_number(op->f, r->name);
	if (!number) {
		op_error(op, rc ? rc : -EIO);
		return;
	}
	struct fuse_entry_param e;
	struct face *f = op->f;
	fuse_req_t req = op_take(op);
	dir_entry(f, ino_pack(number, tree_row(tree_unnamed(PLACE_PROJECTS, KIND_LINK))), &e);
	if (req)
		dir_reply(f, req, &e);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct spot dir;
	if (!dir_of(req, parent, &dir))
		return;
	if (dir.file->inside != PLACE_PROJECTS) {
		closed(&dir, req, name);
		return;
	}
	struct request *r = request_new(REQ_PROJECT_ADD, NULL, NULL);
	r->name = xstrdup(name);
	buf_adds(&r->text, target);
	op_ask(park_change(&dir, req, name, 0), r, project_added);
}

/* ---- unlink, rmdir ---- */

/* What stands in a session: the same words for files and folders, so that `rm -r` leaves one line in `error`. */
static void one_by_one(const struct spot *dir, fuse_req_t req, const char *name)
{
	const char *whose = dir->session->view->name;
	fuse_reply_err(req, -refuse_at(dir, name, EPERM,
				       "files of a session are not removed one by one: `rmdir sessions/%s` ends the "
				       "session; with work that is not synced, `echo destroy force > sessions/%s/ctl`",
				       whose, whose));
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct spot dir;
	if (watchers_remove(face_of(req), req, parent, name))
		return;
	if (!dir_of(req, parent, &dir))
		return;
	if (aside_unlink(&dir, req, name))
		return;
	if (is_drop(&dir)) {
		drop_unlink(&dir, req, name);
	} else if (dir.file->inside == PLACE_PROJECTS) {
		struct request *r = request_new(REQ_PROJECT_REMOVE, NULL, NULL);
		r->name = xstrdup(name);
		op_ask(park_change(&dir, req, name, 0), r, decided);
	} else if (dir.file->inside == PLACE_KEYS) {
		key_unlink(&dir, req, name);
	} else if (dir.session) {
		one_by_one(&dir, req, name);
	} else {
		fuse_reply_err(req, -refuse_at(&dir, name, EPERM, "this file is a part of the tree and stays"));
	}
}

/* A name that the kernel has kept of a session that has ended. */
static bool is_gone(const struct spot *dir, const char *name)
{
	return dir->file->inside == PLACE_SESSIONS && !session_by_name(dir->f, name) &&
	       !tree_find(PLACE_SESSIONS, name);
}

static void remove_template(const struct spot *dir, fuse_req_t req, const char *name)
{
	const struct template_info *t = template_by_name(dir->f, name);
	if (!t) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	struct request *r = request_new(REQ_TEMPLATE_DROP, NULL, NULL);
	r->number = (uint64_t)t->id;
	op_ask(park_change(dir, req, name, 0), r, decided);
}

static void removed(struct op *op, struct request *r)
{
	decided(op, r);
}

bool rmdir_waits(const struct face *f, int64_t session)
{
	list_each (pos, &f->ops) {
		const struct op *op = list_entry(pos, struct op, link);
		if (op->then == removed && op->session == session)
			return true;
	}
	return false;
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct spot dir;
	if (watchers_remove(face_of(req), req, parent, name))
		return;
	if (!dir_of(req, parent, &dir))
		return;
	if (dir.file->inside == PLACE_TEMPLATES) {
		remove_template(&dir, req, name);
		return;
	}
	const struct session *s = dir.file->inside == PLACE_SESSIONS ? session_by_name(dir.f, name) : NULL;
	if (!s && dir.session) {
		one_by_one(&dir, req, name);
		return;
	}
	if (!s) {
		fuse_reply_err(req, is_gone(&dir, name) ? ENOENT
							: -refuse_at(&dir, name, EPERM,
								     "this directory is a part of the tree and stays"));
		return;
	}
	struct request *r = request_new(REQ_DESTROY, NULL, NULL);
	r->session = s->id;
	op_ask(park_change(&dir, req, name, s->id), r, removed);
}

/* ---- rename ---- */

static void rename_session(const struct spot *dir, fuse_req_t req, const char *name, const char *new_name)
{
	struct err err = ERR_INIT;
	const struct session *s = session_by_name(dir->f, name);
	int rc = s ? 0 : is_gone(dir, name) ? -ENOENT : refuse_at(dir, name, EPERM, "%s cannot be renamed", name);
	if (!rc && session_by_name(dir->f, new_name))
		rc = refuse_at(dir, new_name, EEXIST, "session %s exists", new_name);
	if (!rc && name_check(new_name, &err)) {
		CLEAN_FREE char *path = spot_path(dir, new_name);
		rc = refuse_rc(dir->f, s->id, path, -err.code, &err);
	}
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	struct request *r = request_new(REQ_RENAME, NULL, NULL);
	r->session = s->id;
	r->name = xstrdup(new_name);
	op_ask(park_change(dir, req, name, s->id), r, decided);
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
	       unsigned flags)
{
	struct spot dir, to;
	if (!dir_of(req, parent, &dir) || !dir_of(req, new_parent, &to))
		return;
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		fuse_reply_err(req, EINVAL);
	else if (dir.file->inside == PLACE_ATTACH || to.file->inside == PLACE_ATTACH)
		fuse_reply_err(req, -refuse_at(&dir, name, EPERM,
					       "files of attach/ are not renamed: copy it there under its last name "
					       "(rsync --inplace, cp)"));
	else if (is_drop(&dir) && is_drop(&to))
		drop_rename(&dir, name, &to, new_name, !(flags & RENAME_NOREPLACE), req);
	else if (dir.file->inside == PLACE_SESSIONS && parent == new_parent)
		rename_session(&dir, req, name, new_name);
	else
		closed(is_drop(&dir) || dir.file->inside == PLACE_SESSIONS ? &to : &dir, req, new_name);
}
