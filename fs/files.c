/* The folders, files and links below files/. Everything comes from the backend, so every request is parked; nothing
 * here changes anything or wakes a sandbox. Loop thread only. */
#include "files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/base/mem.h"
#include "dir.h"
#include "face.h"
#include "handle.h"
#include "ino.h"
#include "node.h"

#define LINK_MAX_BYTES 4095 /* PATH_MAX without its end: the kernel takes no longer target */

/* ---- what is where ---- */

mode_t work_type(const struct work_file *file)
{
	unsigned type = file->mode & 0170000;
	return type == 0040000 || type == 0160000 ? S_IFDIR : type == 0120000 ? S_IFLNK : S_IFREG;
}

void work_free(struct work *w)
{
	if (!w)
		return;
	free(w->path);
	free(w);
}

const struct file *work_row(const struct work *w)
{
	mode_t type = work_type(&w->file);
	return tree_unnamed(PLACE_FILES, type == S_IFDIR ? KIND_DIR : type == S_IFLNK ? KIND_LINK : KIND_WORK);
}

char *work_path(const struct spot *at, const char *name)
{
	const char *path = at->node ? at->node->work->path : "";
	return name ? xasprintf("%s%s%s", path, *path ? "/" : "", name) : xstrdup(path);
}

static struct op *ask(const struct spot *at, fuse_req_t req, struct handle *h, struct request *r,
		      void (*then)(struct op *, struct request *))
{
	r->session = at->number;
	struct op *op = op_park(at->f, req, h, OP_LOOK, 0);
	op->path = spot_path(at, NULL);
	op->session = at->number;
	op_ask(op, r, then);
	return op;
}

/* Missing names are asked for all the time and are no refusal. */
static int refused(struct op *op, struct request *r)
{
	return r->rc == -ENOENT || r->rc == -ENOTDIR ? r->rc : op_refused(op, r);
}

/* ---- lookup ---- */

static void found(struct op *op, struct request *r)
{
	struct face *f = op->f;
	struct fuse_entry_param e;
	int rc = refused(op, r);
	if (rc || !session_by_id(f, op->session)) {
		op_error(op, rc ? rc : -ESTALE);
		return;
	}
	fuse_req_t req = op_take(op);
	if (!req)
		return;
	dir_entry(f, node_of_work(f, op->session, r->name, &r->file)->ino, &e);
	dir_reply(f, req, &e);
}

void files_lookup(const struct spot *dir, fuse_req_t req, const char *name)
{
	struct request *r = request_new(REQ_FILE_FIND, NULL, NULL);
	r->name = work_path(dir, name);
	ask(dir, req, NULL, r, found);
}

/* ---- reading ---- */

static void link_read(struct op *op, struct request *r)
{
	int rc = refused(op, r);
	if (!rc && (!r->out.n || memchr(r->out.p, '\0', r->out.n)))
		rc = -EIO; /* no target that a file system could have */
	fuse_req_t req = rc ? NULL : op_take(op);
	if (req)
		fuse_reply_readlink(req, buf_str(&r->out));
	else
		op_error(op, rc);
}

static struct request *read_request(const struct work *w, size_t size, off_t off)
{
	struct request *r = request_new(REQ_FILE_READ, NULL, NULL);
	r->name = xstrdup(w->file.object);
	r->offset = (uint64_t)off;
	r->size = size;
	return r;
}

void files_readlink(const struct spot *at, fuse_req_t req)
{
	ask(at, req, NULL, read_request(at->node->work, LINK_MAX_BYTES, 0), link_read);
}

static void part_read(struct op *op, struct request *r)
{
	int rc = refused(op, r);
	if (rc)
		op_error(op, rc);
	else
		op_data(op, r->out.p, r->out.n);
}

static void read_work(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	struct spot at;
	int rc = handle_spot(h, &at);
	if (rc)
		fuse_reply_err(req, -rc);
	else
		ask(&at, req, h, read_request(h->node->work, size, off), part_read);
}

const struct handle_kind work_kind = {.read = read_work};

/* ---- listings ---- */

struct files_listing {
	struct list link; /* of face.listings */
	struct face *f;
	uint64_t ino;
	int64_t session;
	char *path;
	struct buf entries; /* as REQ_FILE_LIST gives them */
};

static void listed(struct op *op, struct request *r)
{
	struct fuse_file_info fi = {0};
	int rc = refused(op, r);
	fuse_req_t req = rc ? NULL : op_take(op);
	if (!req) {
		op_error(op, rc);
		return;
	}
	struct files_listing *l = xcalloc(1, sizeof *l);
	l->f = op->f;
	list_append(&l->f->listings, &l->link);
	l->ino = r->number;
	l->session = r->session;
	l->path = take(r->name);
	l->entries = r->out;
	r->out = BUF_INIT;
	fi.fh = (uint64_t)(uintptr_t)l;
	if (fuse_reply_open(req, &fi))
		files_closedir(l);
}

void files_opendir(const struct spot *dir, fuse_req_t req, struct fuse_file_info *fi)
{
	struct request *r = request_new(REQ_FILE_LIST, NULL, NULL);
	r->name = work_path(dir, NULL);
	r->number = dir->ino;
	ask(dir, req, NULL, r, listed);
}

void files_closedir(struct files_listing *l)
{
	if (!l)
		return;
	list_remove(&l->link);
	buf_release(&l->entries);
	free(l->path);
	free(l);
}

void files_release(struct face *f)
{
	while (!list_empty(&f->listings))
		files_closedir(list_entry(f->listings.next, struct files_listing, link));
}

struct reply {
	fuse_req_t req;
	char *p;
	size_t n, size;
	bool plus;
};

/* Adds an entry; false when the reply is full. Attributes are never given: nothing becomes known by a listing. */
static bool add(struct reply *to, const char *name, mode_t type, uint64_t ino, off_t next)
{
	struct fuse_entry_param e = {.attr = {.st_ino = ino, .st_mode = type}};
	char *p = to->p + to->n;
	size_t left = to->size - to->n;
	size_t n = to->plus ? fuse_add_direntry_plus(to->req, p, left, name, &e, next)
			    : fuse_add_direntry(to->req, p, left, name, &e.attr, next);
	if (n > left)
		return false;
	to->n += n;
	return true;
}

/* Takes the record at `at` apart; returns the place of the next one. A name may hold spaces, so it is counted off. */
static size_t record(const struct files_listing *l, size_t at, struct work_file *file, const char **name)
{
	char *end;
	file->mode = (unsigned)strtoul(l->entries.p + at, &end, 8);
	memcpy(file->object, end + 1, OBJECT_TEXT - 1);
	file->object[OBJECT_TEXT - 1] = '\0';
	*name = end + 1 + OBJECT_TEXT;
	return (size_t)(*name - l->entries.p) + strlen(*name) + 1;
}

/* Offsets: the place of the next record in the listing, behind those of `.` and `..`. */
void files_readdir(struct files_listing *l, fuse_req_t req, size_t size, off_t off, bool plus)
{
	struct reply to = {.req = req, .p = xmalloc(size), .size = size, .plus = plus};
	bool more = off >= DIR_DOT || add(&to, ".", S_IFDIR, l->ino, DIR_DOT);
	more = more && (off >= DIR_DOTDOT || add(&to, "..", S_IFDIR, l->ino, DIR_DOTDOT));
	size_t at = off > DIR_DOTDOT ? (size_t)(off - DIR_DOTDOT) : 0;
	while (more && at < l->entries.n) {
		const char *name;
		struct work_file file;
		at = record(l, at, &file, &name);
		CLEAN_FREE char *path = xasprintf("%s%s%s", l->path, *l->path ? "/" : "", name);
		uint64_t ino = node_work_ino(l->f, l->session, path, &file);
		more = add(&to, name, work_type(&file), ino, (off_t)at + DIR_DOTDOT);
	}
	fuse_reply_buf(req, to.p, to.n);
	free(to.p);
}
