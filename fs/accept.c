/* What is written to line files, to `config` and `policy`, and to `error`. Loop thread only; a write that the backend
 * has to judge is parked, at most for PARK_MS, since it holds the lock of the inode. */
#include "accept.h"

#include <errno.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "handle.h"
#include "refuse.h"

#define LINE_MAX_BYTES 4096 /* of a command */

/* ---- line files ---- */

static struct request *line_request(const struct spot *at, enum request_kind kind, const char *line, size_t n)
{
	struct request *r = request_new(kind, NULL, NULL);
	r->session = at->number;
	buf_add(&r->text, line, n);
	return r;
}

struct request *accept_ctl(const struct spot *at, const char *line, size_t n)
{
	return line_request(at, REQ_CTL, line, n);
}

struct request *accept_ship(const struct spot *at, const char *line, size_t n)
{
	return line_request(at, REQ_SHIP, line, n);
}

struct request *accept_setting(const struct spot *at, const char *line, size_t n)
{
	struct request *r = line_request(at, REQ_SETTING, line, n);
	r->setting = at->file->setting;
	return r;
}

struct request *accept_approval(const struct spot *at, const char *line, size_t n)
{
	return line_request(at, REQ_APPROVE, line, n);
}

static void line_done(struct op *op, struct request *r)
{
	int rc = op_refused(op, r);
	op->h->msg.failed = rc;
	if (rc)
		op_error(op, rc);
	else
		op_wrote(op);
}

/* 0 if the n bytes are one line; else -errno after the refusal. */
static int check_line(const struct spot *at, const char *p, size_t n)
{
	if (n > LINE_MAX_BYTES)
		return refuse_at(at, NULL, EINVAL, "one command is at most %d bytes", LINE_MAX_BYTES);
	if (memchr(p, '\n', n))
		return refuse_at(at, NULL, EINVAL, "each write is one command; write the lines one by one");
	if (!utf8_valid(p, n))
		return refuse_at(at, NULL, EILSEQ, "a command is UTF-8 text without NUL");
	return 0;
}

static void write_line(struct handle *h, fuse_req_t req, const char *p, size_t n, off_t off)
{
	struct spot at;
	if (handle_spot(h, &at)) {
		fuse_reply_err(req, ESHUTDOWN);
		return;
	}
	size_t size = n;
	if (n && p[n - 1] == '\n')
		n -= n > 1 && p[n - 2] == '\r' ? 2 : 1;
	int rc = h->msg.failed = check_line(&at, p, n);
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	h->snapped = false;
	h->by_cursor = (h->flags & O_ACCMODE) == O_RDWR; /* `exec 3<>ship; echo >&3; cat <&3` reads from the start */
	h->cursor = 0;
	struct op *op = op_park(h->f, req, h, OP_CHANGE, PARK_MS);
	op->path = spot_path(&at, NULL);
	op->session = h->number;
	op->size = size;
	struct request *r = h->file->accept(&at, p, n);
	r->number = h->mark;
	op_ask(op, r, line_done);
}

/* An answer is for what stood there when the file was opened, whatever waits by now. */
static int open_line(struct handle *h, fuse_req_t req)
{
	struct spot at;
	if (!handle_spot(h, &at) && at.session)
		h->mark = at.session->view->approval;
	return 0;
}

const struct handle_kind line_kind = {.open = open_line, .read = handle_read_made, .write = write_line};

/* ---- error ---- */

static void clear_errors(struct handle *h)
{
	struct spot at;
	if (!handle_spot(h, &at))
		errors_clear(&at);
}

static int truncate_errors(struct handle *h, off_t size)
{
	if (!size)
		clear_errors(h);
	return 0;
}

static void write_errors(struct handle *h, fuse_req_t req, const char *p, size_t n, off_t off)
{
	struct spot at;
	int rc = handle_spot(h, &at);
	if (!rc && !utf8_blank(p, n))
		rc = refuse_at(&at, NULL, EINVAL, "nothing can be written here; `: > error` clears it");
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	clear_errors(h);
	fuse_reply_write(req, n);
}

const struct handle_kind errors_kind = {.read = handle_read_made, .write = write_errors, .truncate = truncate_errors};

/* ---- config, policy: files like any other, but that each line is judged when it is written ---- */

static const struct {
	enum request_kind line, all;
} wholes[] = {
	[WHOLE_CONFIG] = {REQ_CONFIG_LINE, REQ_CONFIG},
	[WHOLE_POLICY] = {REQ_POLICY_LINE, REQ_POLICY},
};

static int open_config(struct handle *h, fuse_req_t req)
{
	struct spot at;
	if (!handle_may_write(h))
		return 0;
	writers_init(&h->writers, fuse_req_ctx(req)->pid);
	if (!(h->flags & O_TRUNC) && !handle_spot(h, &at))
		h->file->show(&at, &h->msg.text);
	return 0;
}

static int no_holes(const struct spot *at)
{
	return refuse_at(at, NULL, EINVAL, "this file has no holes; write it from its start");
}

static int truncate_config(struct handle *h, off_t size)
{
	struct spot at;
	handle_spot(h, &at); /* of the root: always there */
	if ((size_t)size > h->msg.text.n)
		return no_holes(&at);
	if ((size_t)size < h->msg.text.n) {
		buf_cut(&h->msg.text, (size_t)size);
		h->dirty = true;
	}
	handle_cut(h);
	h->msg.failed = 0;
	if (!h->msg.text.n)
		h->dirty = false; /* nothing written yet: an editor has only begun */
	return 0;
}

/* The lines of one WRITE that are still to be judged. */
struct judging {
	size_t at, n; /* next byte of text, and its end */
	size_t undo;  /* length to cut the config back to; SIZE_MAX: it is kept */
	char text[];
};

static void judge_next(struct op *op);

static void judged(struct op *op, struct request *r)
{
	struct judging *j = op->data;
	struct handle *h = op->h;
	if (!op_refused(op, r)) {
		judge_next(op);
		return;
	}
	if (j->undo != SIZE_MAX && op->req) { /* `echo bad >> config` leaves nothing behind, as with any file */
		buf_cut(&h->msg.text, j->undo);
		h->dirty = op->off;
	} else {
		handle_write_refused(h);
		h->msg.failed = r->rc;
	}
	op_error(op, r->rc);
}

static void judge_next(struct op *op)
{
	struct judging *j = op->data;
	const struct handle *h = op->h;
	while (j->at < j->n) {
		const char *p = j->text + j->at;
		const char *nl = memchr(p, '\n', j->n - j->at);
		if (!nl)
			break;
		size_t n = (size_t)(nl - p);
		j->at += n + 1;
		if (utf8_blank(p, n))
			continue;
		struct request *r = request_new(wholes[h->file->whole].line, NULL, NULL);
		buf_add(&r->text, p, n);
		op_ask(op, r, judged);
		return;
	}
	op_wrote(op);
}

static int check_config(struct handle *h, const struct spot *at, const char *p, size_t n, size_t off)
{
	if (off + n > MESSAGE_MAX)
		return refuse_at(at, NULL, EFBIG, "this file is at most 1 MiB");
	if (off > h->msg.text.n)
		return no_holes(at);
	if (memchr(p, 0, n))
		return refuse_at(at, NULL, EILSEQ, "this file is UTF-8 text without NUL");
	return 0;
}

static void write_config(struct handle *h, fuse_req_t req, const char *p, size_t n, off_t off)
{
	struct spot at;
	struct buf *text = &h->msg.text;
	handle_spot(h, &at); /* of the root: always there */
	size_t pos = handle_write_at(h, text, p, n, off);
	int rc = check_config(h, &at, p, n, pos);
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	size_t undo = h->flags & O_APPEND ? text->n : SIZE_MAX;
	bool was_dirty = h->dirty;
	if (pos + n > text->n) {
		size_t more = pos + n - text->n;
		buf_add(text, p + n - more, more);
	}
	memcpy(text->p + pos, p, n);
	h->dirty = true;
	complete_wrote(h, req);

	size_t from = pos, end = pos + n; /* all lines that this write has touched and that have ended */
	while (from && text->p[from - 1] != '\n')
		from--;
	struct judging *j = xmalloc(sizeof *j + end - from);
	*j = (struct judging){.n = end - from, .undo = undo};
	memcpy(j->text, text->p + from, end - from);
	struct op *op = op_park(h->f, req, h, OP_CHANGE, PARK_MS);
	op->path = spot_path(&at, NULL);
	op->size = n;
	op->off = was_dirty;
	op->data = j;
	judge_next(op);
}

static struct request *commit_config(struct handle *h)
{
	struct request *r = request_new(wholes[h->file->whole].all, NULL, NULL);
	h->msg.failed = 0; /* it is judged as a whole now */
	buf_add(&r->text, h->msg.text.p, h->msg.text.n);
	return r;
}

static int committed_config(struct handle *h, struct request *r)
{
	CLEAN_FREE char *path = r->rc ? handle_path(h) : NULL;
	return r->rc ? refuse_rc(h->f, 0, path, r->rc, &r->err) : 0;
}

const struct handle_kind config_kind = {
	.open = open_config,
	.read = handle_read_made,
	.write = write_config,
	.truncate = truncate_config,
	.commit = commit_config,
	.committed = committed_config,
};
