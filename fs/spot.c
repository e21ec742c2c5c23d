/* What an inode number stands for, its attributes, its path in words, and who may use it. Loop thread only; memory
 * only, since every path walk comes here. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach.h"
#include "backend/base/mem.h"
#include "drop.h"
#include "face.h"
#include "files.h"
#include "ino.h"
#include "keys.h"
#include "node.h"
#include "show.h"
#include "templates.h"
#include "watchers.h"

bool file_of_session(const struct file *file)
{
	switch (file->place) {
	case PLACE_SESSION:
	case PLACE_SETTINGS:
	case PLACE_APPROVALS:
	case PLACE_ATTACH:
	case PLACE_FILES:
	case PLACE_WAIT: return true;
	case PLACE_SESSIONS: return !file->name;
	default: return false;
	}
}

static int spot_of_node(struct spot *out)
{
	struct face *f = out->f;
	struct node *node = out->node = node_find(f, out->ino);
	if (!node)
		return -ESTALE;
	if (node->draft) {
		out->file = draft_row(node->draft);
		out->number = draft_attach_session(node->draft);
		out->session = out->number ? session_by_id(f, out->number) : NULL;
		return out->number && !out->session ? -ESTALE : 0;
	}
	out->file = node->work	   ? work_row(node->work)
		    : node->attach ? tree_unnamed(PLACE_ATTACH, KIND_ATTACHED)
				   : tree_find(PLACE_SESSION, "input");
	out->number = node->session;
	out->session = session_by_id(f, node->session);
	return out->session ? 0 : -ESTALE;
}

int spot_of(struct face *f, uint64_t ino, struct spot *out)
{
	*out = (struct spot){.f = f, .ino = ino};
	if (ino_is_random(ino))
		return spot_of_node(out);
	unsigned row = ino_row(ino);
	if (!row || row >= tree_rows)
		return -ESTALE;
	out->file = &tree[row];
	out->number = ino_number(ino);
	if (file_of_session(out->file)) {
		out->session = session_by_id(f, out->number);
		return out->session ? 0 : -ESTALE;
	}
	if (file_of_template(out->file))
		return template_by_id(f, out->number) ? 0 : -ESTALE;
	if (out->file->place == PLACE_KEYS)
		return key_name(f, out->number) ? 0 : -ESTALE;
	return !out->number || project_by_number(f, out->number) ? 0 : -ESTALE;
}

void spot_stat(const struct spot *at, struct stat *st)
{
	static const mode_t types[] = {[KIND_DIR] = S_IFDIR, [KIND_LINK] = S_IFLNK};
	enum file_kind kind = at->file->kind;
	int64_t ms = show_changed(at);
	*st = (struct stat){
		.st_ino = at->ino,
		.st_mode = (kind <= KIND_LINK ? types[kind] : S_IFREG) | show_mode(at),
		.st_nlink = kind == KIND_DIR ? 2 : 1,
		.st_uid = at->f->uid,
		.st_gid = at->f->gid,
		.st_size = (off_t)show_size(at),
		.st_blksize = 4096,
	};
	st->st_blocks = (st->st_size + 511) / 512;
	st->st_mtim = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	st->st_atim = st->st_ctim = st->st_mtim;
}

/* ---- what the kernel keeps ----
 *
 * Attributes are kept until the daemon says that they have changed (changes.c). Only the answer to a GETATTR may be
 * kept: the kernel drops one that was overtaken by such a word. With a LOOKUP the word may come before there is an
 * inode to drop it for, and the answer to a SETATTR is taken whatever has been said.
 *
 * Names are kept, and never dropped by a word, which could wait for a lock that a request to us holds. Most names are
 * fixed. That of a session leads to an inode that answers ESTALE when the session has ended, and the kernel then looks
 * for the name anew. */

#define KEEP_S 60

/* Names that come and go with requests through the mount. */
static bool is_drop_box(const struct file *file)
{
	return file->inside == PLACE_DROP || file->inside == PLACE_ATTACH || file->place == PLACE_DROP ||
	       file->place == PLACE_DROP_PROJECT || file->place == PLACE_PROJECTS || file->place == PLACE_KEYS;
}

double spot_keep_attr(const struct spot *at)
{
	if (at->node && at->node->work)
		return at->file->kind == KIND_DIR ? 0 : KEEP_S; /* such a file never changes */
	if (at->node || is_drop_box(at->file))
		return 0;
	double left = show_stays(at);
	return left < KEEP_S ? left : KEEP_S;
}

double spot_keep_entry(const struct spot *at)
{
	const struct file *file = at->file;
	if (at->node || (is_drop_box(file) && file->place != PLACE_SESSIONS) || file->place == PLACE_APPROVALS ||
	    file->place == PLACE_TEMPLATES)
		return 0;
	/* A watch could still be set on one that has ended, until the poker has removed it. */
	bool session = file->place == PLACE_SESSIONS && !file->name;
	bool told = watchers_are_told(at->f);
	return session && (!told || watchers_has_ghost(at->f, at->session->view->name)) ? 0 : KEEP_S;
}

/* ---- words ---- */

static void add_place(struct buf *out, const struct spot *at)
{
	const struct file *file = at->file;
	const struct project_info *project = project_by_number(at->f, at->number);
	switch (file->place) {
	case PLACE_FILES: buf_addf(out, "sessions/%s/files/%s", at->session->view->name, at->node->work->path); return;
	case PLACE_SESSION: buf_addf(out, "sessions/%s/%s", at->session->view->name, file->name); return;
	case PLACE_ATTACH: {
		const struct attach_info *a = at->node && at->node->attach ? attach_of(at) : NULL;
		if (at->node && at->node->draft)
			draft_path(at->node->draft, out);
		else
			buf_addf(out, "sessions/%s/attach/%s", at->session->view->name, a ? a->name : "");
		return;
	}
	case PLACE_APPROVALS:
		buf_addf(out, "sessions/%s/approvals/%llu", at->session->view->name,
			 (unsigned long long)at->session->view->approval);
		return;
	case PLACE_SETTINGS: buf_addf(out, "sessions/%s/settings/%s", at->session->view->name, file->name); return;
	case PLACE_WAIT: buf_addf(out, "sessions/%s/wait/%s", at->session->view->name, file->name); return;
	case PLACE_SESSIONS: buf_addf(out, "sessions/%s", file->name ? file->name : at->session->view->name); return;
	case PLACE_PROJECTS: buf_addf(out, "projects/%s", project ? project->name : ""); return;
	case PLACE_DROP:
	case PLACE_DROP_PROJECT:
		if (at->node)
			draft_path(at->node->draft, out);
		else
			buf_addf(out, "sessions/new/%s", project ? project->name : "");
		return;
	case PLACE_GATEWAY: buf_addf(out, "gateway/%s", file->name); return;
	case PLACE_KEYS: buf_addf(out, "gateway/keys/%s", at->number ? key_name(at->f, at->number) : ""); return;
	case PLACE_TEMPLATES: buf_addf(out, "templates/%s", template_by_id(at->f, at->number)->name); return;
	case PLACE_TEMPLATE:
		buf_addf(out, "templates/%s/%s", template_by_id(at->f, at->number)->name, file->name);
		return;
	case PLACE_ROOT: buf_adds(out, file->name); return;
	case PLACE_NONE: return;
	}
}

char *spot_path(const struct spot *at, const char *name)
{
	struct buf out = BUF_INIT;
	add_place(&out, at);
	if (name)
		buf_addf(&out, "%s%s", out.n ? "/" : "", name);
	return buf_take(&out);
}

int spot_allowed(const struct face *f, fuse_req_t req, mode_t mode, int want)
{
	uid_t uid = fuse_req_ctx(req)->uid;
	if (uid != f->uid && !f->allow_other)
		return -EACCES;
	if (uid != f->uid && uid)
		mode <<= 6; /* what others may, where the owner's bits are looked for */
	if (want & W_OK && !(mode & 0200))
		return -EACCES;
	if (want & R_OK && !(mode & 0400))
		return -EACCES;
	return want & X_OK && !(mode & 0100) ? -EACCES : 0;
}
