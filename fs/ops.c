/* The requests of the kernel on files, one short function each. Loop thread only; none waits: what has to is parked.
 *
 * ENOSYS is answered for extended attributes alone (no function is given), because the kernel remembers it for the
 * whole connection; that is wanted there, since it saves a request before each write. */
#include "ops.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "backend/base/mem.h"
#include "dir.h"
#include "drop.h"
#include "face.h"
#include "files.h"
#include "handle.h"
#include "ino.h"
#include "node.h"
#include "polls.h"
#include "refuse.h"
#include "seen.h"
#include "show.h"
#include "watchers.h"

static struct face *face_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct face *f = userdata;
	conn->want &= ~(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE); /* texts are short */
	conn->want &= ~(FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_AUTO_INVAL_DATA);
	conn->want |= conn->capable & (FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
	conn->want |= conn->capable & FUSE_CAP_ATOMIC_O_TRUNC; /* else a truncation comes without its open file */
	f->connected = true;
}

/* ---- names and attributes ---- */

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct face *f = face_of(req);
	struct spot dir;
	struct fuse_entry_param e;
	if (watchers_lookup(f, req, parent, name))
		return;
	int rc = strlen(name) > NAME_MAX ? -ENAMETOOLONG : spot_of(f, parent, &dir);
	if (!rc)
		rc = spot_allowed(f, req, 0555, X_OK);
	if (!rc && dir.file->inside == PLACE_FILES) {
		files_lookup(&dir, req, name);
		return;
	}
	uint64_t ino = rc ? 0 : dir_lookup(&dir, name, fuse_req_ctx(req)->pid);
	if (!ino) {
		fuse_reply_err(req, rc ? -rc : ENOENT);
		return;
	}
	dir_entry(f, ino, &e);
	dir_reply(f, req, &e);
}

static void forget(struct face *f, fuse_ino_t ino, uint64_t lookups)
{
	struct node *node = ino_is_random(ino) ? node_find(f, ino) : NULL;
	if (node)
		node_forget(f, node, lookups);
	else if (!ino_is_random(ino))
		seen_forget(f, ino, lookups);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	forget(face_of(req), ino, lookups);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget(face_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct spot at;
	struct stat st;
	int rc = spot_of(face_of(req), ino, &at);
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	spot_stat(&at, &st);
	fuse_reply_attr(req, &st, spot_keep_attr(&at));
}

static int truncate_spot(const struct spot *at, struct handle *h, off_t size)
{
	if (h && handle_kind_of(h)->truncate)
		return handle_kind_of(h)->truncate(h, size);
	if (at->file->kind == KIND_DRAFT)
		return drop_truncate(at, size);
	if (at->file->kind == KIND_CONFIG)
		return refuse_at(at, NULL, EINVAL, "nothing was changed: open this file to cut it, or write it anew");
	if (at->file->kind == KIND_ERRORS && !size)
		errors_clear(at);
	return 0;
}

/* The poker sets the modification time alone, so that watchers hear of a change; nothing is changed by that. */
static bool is_poke(const struct face *f, fuse_req_t req, int set)
{
	return set == (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW) && watchers_is_poker(f, req);
}

/* Editors and copiers set times and modes again after they have written: that is accepted where it changes nothing. In
 * the drop box everything is, for its files do not live long enough to have modes. */
static int check_setattr(const struct spot *at, fuse_req_t req, const struct stat *attr, int set)
{
	bool draft = at->file->kind == KIND_DRAFT;
	if (set & FUSE_SET_ATTR_SIZE && !file_writable(at->file))
		return refuse_at(at, NULL, EACCES, "this file can only be read");
	if (set & FUSE_SET_ATTR_MODE && !draft && (attr->st_mode & 0777) != show_mode(at))
		return refuse_at(at, NULL, EPERM, "modes in the tree are fixed");
	if (set & FUSE_SET_ATTR_UID && !draft && attr->st_uid != at->f->uid)
		return refuse_at(at, NULL, EPERM, "all files of the tree belong to the user who mounted it");
	if (set & FUSE_SET_ATTR_GID && !draft && attr->st_gid != at->f->gid)
		return refuse_at(at, NULL, EPERM,
				 "all files of the tree belong to the group of the user who mounted it");
	int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW;
	if (set & times && !draft && !file_writable(at->file))
		return is_poke(at->f, req, set) ? 0 : -EPERM;
	return spot_allowed(at->f, req, show_mode(at), set & FUSE_SET_ATTR_SIZE ? W_OK : 0);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set, struct fuse_file_info *fi)
{
	struct spot at;
	struct stat st;
	int rc = spot_of(face_of(req), ino, &at);
	if (!rc)
		rc = check_setattr(&at, req, attr, set);
	if (!rc && set & FUSE_SET_ATTR_SIZE)
		rc = truncate_spot(&at, fi ? handle_of(fi) : NULL, attr->st_size);
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	at.rough = is_poke(at.f, req, set);
	spot_stat(&at, &st);
	fuse_reply_attr(req, &st, 0);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct spot at;
	const struct project_info *project = NULL;
	int rc = spot_of(face_of(req), ino, &at);
	if (!rc && at.node && at.file->kind == KIND_LINK) {
		files_readlink(&at, req);
		return;
	}
	if (!rc && at.file->kind == KIND_LINK)
		project = project_by_number(at.f, at.number);
	if (project)
		fuse_reply_readlink(req, project->path);
	else
		fuse_reply_err(req, EINVAL);
}

static void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct spot at;
	int rc = spot_of(face_of(req), ino, &at);
	if (!rc)
		rc = spot_allowed(at.f, req, show_mode(&at), mask);
	fuse_reply_err(req, -rc);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	/* Nothing is stored here; but some programs refuse to write where nothing is free. */
	struct statvfs st = {
		.f_bsize = 4096,
		.f_frsize = 4096,
		.f_blocks = 1 << 18,
		.f_bfree = 1 << 18,
		.f_bavail = 1 << 18,
		.f_files = 1 << 20,
		.f_ffree = 1 << 20,
		.f_favail = 1 << 20,
		.f_namemax = NAME_MAX,
	};
	fuse_reply_statfs(req, &st);
}

/* ---- open files ---- */

static int check_open(const struct spot *at, fuse_req_t req, int flags)
{
	static const int wants[] = {[O_RDONLY] = R_OK, [O_WRONLY] = W_OK, [O_RDWR] = R_OK | W_OK};
	int want = wants[(flags & O_ACCMODE) % 3];
	if (flags & O_TRUNC)
		want |= W_OK;
	if (at->file->kind == KIND_DIR)
		return -EISDIR;
	if (want & W_OK && !file_writable(at->file))
		return refuse_at(at, NULL, EACCES, "this file can only be read");
	/* A draft that has become a session says so itself. */
	return spot_allowed(at->f, req, at->file->mode, want);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct spot at;
	int rc = spot_of(face_of(req), ino, &at);
	if (!rc && watchers_open(at.f, req, fi))
		return;
	if (!rc)
		rc = check_open(&at, req, fi->flags);
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	struct handle *h = handle_new(&at, at.node ? at.node->draft : NULL, fi->flags);
	const struct handle_kind *kind = handle_kind_of(h);
	rc = kind->open ? kind->open(h, req) : 0;
	if (rc < 0) {
		fuse_reply_err(req, -rc);
		handle_put(h);
		return;
	}
	if (fi->flags & O_TRUNC && kind->truncate)
		kind->truncate(h, 0);
	if (rc != OPEN_PARKED)
		handle_opened(h, req, NULL);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);
	if (!complete_before_read(h, req, size, off))
		handle_kind_of(h)->read(h, req, size, off);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *p, size_t n, off_t off, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);
	if (h->f->quit && handle_kind_of(h)->commit) {
		/* What was written before has been committed as it was; the rest must not become a message of its own.
		 */
		h->msg.failed = -ESHUTDOWN;
		fuse_reply_err(req, ESHUTDOWN);
		return;
	}
	handle_kind_of(h)->write(h, req, p, n, off);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (handle_of(fi))
		complete_flush(handle_of(fi), req);
	else
		fuse_reply_err(req, 0); /* of the poker, by an older kernel that does not know `noflush` */
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	complete_fsync(handle_of(fi), req);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (handle_of(fi))
		complete_release(handle_of(fi), req);
	else
		fuse_reply_err(req, 0); /* of the poker */
}

static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph)
{
	poll_ask(handle_of(fi), req, ph);
}

/* ---- directories ---- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct spot at;
	int rc = spot_of(face_of(req), ino, &at);
	if (!rc)
		rc = spot_allowed(at.f, req, at.file->mode, R_OK);
	if (rc)
		fuse_reply_err(req, -rc);
	else if (at.file->inside == PLACE_FILES)
		files_opendir(&at, req, fi);
	else
		fuse_reply_open(req, fi);
}

static struct files_listing *listing_of(const struct fuse_file_info *fi)
{
	return (struct files_listing *)(uintptr_t)fi->fh;
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, const struct fuse_file_info *fi, bool plus)
{
	struct spot at;
	if (listing_of(fi))
		files_readdir(listing_of(fi), req, size, off, plus);
	else if (spot_of(face_of(req), ino, &at))
		fuse_reply_buf(req, NULL, 0); /* a session that has ended lists nothing */
	else
		dir_read(&at, req, size, off, plus);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list(req, ino, size, off, fi, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list(req, ino, size, off, fi, true);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	files_closedir(listing_of(fi));
	fuse_reply_err(req, 0);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	fuse_reply_err(req, 0);
}

const struct fuse_lowlevel_ops face_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.fsyncdir = op_fsyncdir,
	.statfs = op_statfs,
	.access = op_access,
	.create = op_create,
	.poll = op_poll,
};
