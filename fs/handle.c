/* Open files, and how each kind of file is read and written. Loop thread only; what needs the backend is parked. */
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "drop.h"
#include "keys.h"
#include "node.h"
#include "refuse.h"
#include "seen.h"
#include "show.h"

#define SNAPSHOT_MAX (4 << 20) /* bytes; larger texts are read in place, for nobody keeps them all in memory */

struct handle *handle_new(const struct spot *at, struct draft *draft, int flags)
{
	struct handle *h = xcalloc(1, sizeof *h);
	h->refs = 1;
	h->f = at->f;
	h->ino = at->ino;
	h->file = at->file;
	h->number = at->number;
	h->flags = flags;
	h->node = at->node;
	if (h->node)
		h->node->opens++;
	h->draft = draft ? draft_get(draft) : NULL;
	if (h->file->kind == KIND_KEY)
		key_opened(h->f, h->number, 1);
	list_init(&h->poll);
	list_init(&h->waiters);
	list_append(&at->f->handles, &h->link);
	return h;
}

struct handle *handle_get(struct handle *h)
{
	h->refs++;
	return h;
}

void handle_put(struct handle *h)
{
	if (--h->refs)
		return;
	if (h->ph)
		fuse_pollhandle_destroy(h->ph);
	if (h->node)
		node_put_open(h->f, h->node);
	if (h->file->kind == KIND_KEY)
		key_opened(h->f, h->number, -1);
	if (h->draft)
		draft_put(h->draft);
	if (h->seen)
		view_put(h->seen);
	list_remove(&h->poll);
	list_remove(&h->link);
	writers_release(&h->writers);
	message_release(&h->msg);
	buf_release(&h->snap);
	free(h);
}

int handle_spot(struct handle *h, struct spot *at)
{
	return spot_of(h->f, h->ino, at);
}

char *handle_path(struct handle *h)
{
	struct spot at;
	return handle_spot(h, &at) ? NULL : spot_path(&at, NULL);
}

void handle_opened(struct handle *h, fuse_req_t req, const struct fuse_entry_param *e)
{
	struct fuse_file_info fi = {
		.flags = h->flags,
		.fh = (uint64_t)(uintptr_t)h,
		.direct_io = h->file->kind != KIND_WORK, /* else sizes would be those of some time ago */
		.keep_cache = h->file->kind == KIND_WORK,
		.noflush = !handle_may_write(h),
	};
	if (e && h->node)
		h->node->lookups++;
	else if (e)
		seen_get(h->f, h->ino)->lookups++;
	int rc = e ? fuse_reply_create(req, e, &fi) : fuse_reply_open(req, &fi);
	if (!rc)
		return;
	if (e && h->node)
		node_forget(h->f, h->node, 1);
	else if (e)
		seen_forget(h->f, h->ino, 1);
	handle_put(h);
}

/* ---- reading ---- */

void handle_read_text(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	size_t at = h->by_cursor ? h->cursor : (size_t)off;
	size_t n = at >= h->snap.n ? 0 : h->snap.n - at < size ? h->snap.n - at : size;
	if (h->by_cursor)
		h->cursor += n;
	fuse_reply_buf(req, n ? h->snap.p + at : NULL, n);
}

static bool at_begin(const struct handle *h, off_t off)
{
	return h->by_cursor ? !h->cursor : !off;
}

void handle_read_made(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	struct spot at;
	if (!h->snapped || at_begin(h, off)) {
		int rc = handle_spot(h, &at);
		if (rc) {
			fuse_reply_err(req, -rc);
			return;
		}
		buf_reset(&h->snap);
		h->file->show(&at, &h->snap);
		h->snapped = true;
		h->consumed = (uint64_t)show_changed(&at);
	}
	handle_read_text(h, req, size, off);
}

static void read_whole_done(struct op *op, struct request *r)
{
	struct handle *h = op->h;
	if (r->rc || !op->req) {
		op_error(op, op_refused(op, r));
		return;
	}
	buf_reset(&h->snap);
	buf_add(&h->snap, r->out.p, r->out.n);
	h->snapped = true;
	h->snap_version = op->version;
	size_t size = op->size;
	off_t off = op->off;
	handle_get(h);
	handle_read_text(h, op_take(op), size, off);
	handle_put(h);
}

static void read_part_done(struct op *op, struct request *r)
{
	if (!r->rc && r->offset + r->out.n > op->h->consumed)
		op->h->consumed = r->offset + r->out.n;
	op_answer(op, r);
}

static void ask_text(struct handle *h, fuse_req_t req, const struct spot *at, size_t size, off_t off, bool whole)
{
	struct request *r = request_new(REQ_READ, NULL, NULL);
	r->session = h->number;
	r->text_kind = h->file->text;
	r->offset = whole ? 0 : (uint64_t)off;
	r->size = whole ? SNAPSHOT_MAX : size;
	struct op *op = op_park(h->f, req, h, OP_LOOK, 0);
	op->path = spot_path(at, NULL);
	op->session = at->session ? h->number : 0;
	op->version = at->session ? at->session->view->version : 0;
	op->size = size;
	op->off = off;
	op_ask(op, r, whole ? read_whole_done : read_part_done);
}

static void read_growing(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	struct spot at;
	int rc = handle_spot(h, &at);
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	uint64_t end = show_text_info(&at)->size;
	if ((uint64_t)off >= end) /* tail -f and less +F ask this all the time */
		fuse_reply_buf(req, NULL, 0);
	else
		ask_text(h, req, &at, end - (uint64_t)off < size ? (size_t)(end - (uint64_t)off) : size, off, false);
}

static void read_snapshot(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	struct spot at;
	int rc = handle_spot(h, &at);
	if (rc && h->snapped && off) {
		handle_read_text(h, req, size, off);
	} else if (rc) {
		fuse_reply_err(req, -rc);
	} else if (show_text_info(&at)->size > SNAPSHOT_MAX) {
		read_growing(h, req, size, off);
	} else if (h->snapped && (off || h->snap_version == at.session->view->version)) {
		handle_read_text(h, req, size, off);
	} else {
		ask_text(h, req, &at, size, off, true);
	}
}

static void read_nothing(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	fuse_reply_buf(req, NULL, 0);
}

/* ---- writing ---- */

static bool is_same_again(const struct handle *h, const struct buf *text, const char *p, size_t n, size_t off)
{
	return h->wrote.lag && off == h->wrote.off && n == h->wrote.n && h->wrote.pos + n <= text->n &&
	       !memcmp(text->p + h->wrote.pos, p, n);
}

size_t handle_write_at(struct handle *h, const struct buf *text, const char *p, size_t n, off_t off)
{
	size_t pos = (size_t)off;
	if (h->flags & O_APPEND)
		pos = text->n;
	else if (is_same_again(h, text, p, n, (size_t)off))
		pos = h->wrote.pos;
	else if (h->wrote.lag && (size_t)off >= h->wrote.stuck)
		pos += h->wrote.lag;
	h->wrote.off = (size_t)off;
	h->wrote.pos = pos;
	h->wrote.n = n;
	return pos;
}

void handle_write_refused(struct handle *h)
{
	if (h->flags & O_APPEND)
		return;
	h->wrote.stuck = h->wrote.off;
	h->wrote.lag = h->wrote.pos + h->wrote.n - h->wrote.off;
}

void handle_cut(struct handle *h)
{
	memset(&h->wrote, 0, sizeof h->wrote);
}

/* ---- input ---- */

static int open_message(struct handle *h, fuse_req_t req)
{
	if (handle_may_write(h))
		writers_init(&h->writers, fuse_req_ctx(req)->pid);
	return 0;
}

static void write_message(struct handle *h, fuse_req_t req, const char *p, size_t n, off_t off)
{
	struct err err = ERR_INIT;
	struct spot at;
	if (handle_spot(h, &at)) {
		fuse_reply_err(req, ESHUTDOWN);
		return;
	}
	int rc = message_add(&h->msg, p, n, &err);
	if (err.code) {
		CLEAN_FREE char *path = spot_path(&at, NULL);
		refuse(h->f, h->number, path, &err);
	}
	h->dirty = h->msg.text.n;
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	complete_wrote(h, req);
	fuse_reply_write(req, n);
}

static int truncate_message(struct handle *h, off_t size)
{
	if (size) /* offsets mean nothing here */
		return 0;
	message_drop(&h->msg);
	h->dirty = false;
	return 0;
}

/* At the end of the daemon a message is taken as far as it was written; that may be in the middle of a character. */
static void cut_character(struct buf *text)
{
	bool cut = false;
	size_t good = utf8_prefix(text->p, text->n, &cut);
	if (cut)
		buf_cut(text, good);
}

static struct request *commit_message(struct handle *h)
{
	struct err err = ERR_INIT;
	if (h->f->quit)
		cut_character(&h->msg.text);
	h->last_rc = message_end(&h->msg.text, &err);
	if (!h->last_rc && !session_by_id(h->f, h->number))
		h->last_rc = err_set(&err, ESHUTDOWN, "session %lld has ended; the message was not sent",
				     (long long)h->number);
	if (h->last_rc) {
		CLEAN_FREE char *path = handle_path(h);
		refuse(h->f, h->number, path, &err);
		message_drop(&h->msg);
		return NULL;
	}
	struct request *r = request_new(REQ_MESSAGE, NULL, NULL);
	r->session = h->number;
	r->text = h->msg.text;
	h->msg.text = BUF_INIT;
	h->msg.checked = 0;
	return r;
}

static int committed_message(struct handle *h, struct request *r)
{
	CLEAN_FREE char *path = r->rc ? handle_path(h) : NULL;
	return r->rc ? refuse_rc(h->f, h->number, path, r->rc, &r->err) : 0;
}

/* ---- the table ---- */

static const struct handle_kind kinds[] = {
	[KIND_MADE] = {.read = handle_read_made},
	[KIND_SNAPSHOT] = {.read = read_snapshot},
	[KIND_GROWING] = {.read = read_growing},
	[KIND_MESSAGE] = {open_message, read_nothing, write_message, truncate_message, commit_message,
			  committed_message},
};

const struct handle_kind *handle_kind_of(const struct handle *h)
{
	switch (h->file->kind) {
	case KIND_LINE: return &line_kind;
	case KIND_CONFIG: return &config_kind;
	case KIND_ERRORS: return &errors_kind;
	case KIND_WAIT: return &wait_kind;
	case KIND_KEY: return &key_kind;
	case KIND_DRAFT: return &draft_kind;
	case KIND_ATTACHED: return &attached_kind;
	case KIND_WORK: return &work_kind;
	default: return &kinds[h->file->kind];
	}
}
