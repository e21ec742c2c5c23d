/* Files of attach/: limits, names, reading, taking back. Loop thread only; what needs the backend is parked. */
#include "attach.h"

#include <errno.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "drop_box.h"
#include "node.h"
#include "refuse.h"

int64_t attach_key(int64_t session)
{
	return -session;
}

bool draft_is_attach(const struct draft *d)
{
	return d->project < 0;
}

int64_t draft_attach_session(const struct draft *d)
{
	return d->project < 0 ? -d->project : 0;
}

const struct attach_info *attach_find(const struct spot *dir, const char *name)
{
	const struct view *v = dir->session->view;
	for (size_t i = 0; i < v->n_attach; i++)
		if (!strcmp(v->attach[i].name, name))
			return &v->attach[i];
	return NULL;
}

const struct attach_info *attach_of(const struct spot *at)
{
	const struct view *v = at->session ? at->session->view : NULL;
	for (size_t i = 0; v && i < v->n_attach; i++)
		if (v->attach[i].n == (uint64_t)at->node->attach)
			return &v->attach[i];
	return NULL;
}

int attach_room(const struct draft *d, const struct spot *at, size_t n, size_t pos)
{
	size_t end = pos + n > d->text.n ? pos + n : d->text.n;
	if (end > ATTACH_FILE_MAX)
		return refuse_at(
			at, NULL, EFBIG,
			"an attached file has at most %d MiB; put it into the project, or fetch it in the sandbox",
			ATTACH_FILE_MAX >> 20);
	if (end > BOX_MAX - (d->f->draft_bytes - d->text.n))
		return refuse_at(at, NULL, ENOSPC, "too much is being written at a time; try again in a moment");
	return 0;
}

/* An image is no use to the model above a size that providers take. */
int attach_written(const struct draft *d, const struct spot *at)
{
	if (d->text.n <= ATTACH_IMAGE_MAX || !attach_is_image(d->text.p, d->text.n))
		return 0;
	return refuse_at(at, NULL, EFBIG,
			 "an image that is shown to the model has at most %d bytes; make it smaller, or pack it (zip, "
			 "tar) to attach it as a file",
			 ATTACH_IMAGE_MAX);
}

bool attach_is_scratch(const char *name)
{
	size_t n = strlen(name);
	return !strcmp(name, "4913") || name[n - 1] == '~' || (*name == '#' && name[n - 1] == '#') ||
	       !strncmp(name, ".#", 2) || (n > 4 && *name == '.' && !strncmp(name + n - 4, ".sw", 3));
}

int attach_check_name(const struct spot *dir, const char *name)
{
	if (!utf8_valid(name, strlen(name)))
		return refuse_at(dir, NULL, EILSEQ, "the name of an attached file is UTF-8 text");
	for (const char *c = name; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return refuse_at(dir, NULL, EINVAL, "the name of an attached file has no control characters");
	if (dir->session->view->n_attach >= ATTACH_MAX)
		return refuse_at(dir, name, EDQUOT, "%d files wait already; send a message, or rm some", ATTACH_MAX);
	return 0;
}

struct request *attach_request(struct draft *d)
{
	struct request *r = request_new(REQ_ATTACH, NULL, NULL);
	r->session = draft_attach_session(d);
	r->name = xstrdup(d->name);
	buf_add(&r->text, d->text.p, d->text.n);
	d->creating = true;
	return r;
}

static void removed(struct op *op, struct request *r)
{
	op_error(op, op_refused(op, r));
}

void attach_unlink(const struct spot *dir, fuse_req_t req, const struct attach_info *a)
{
	struct request *r = request_new(REQ_ATTACH_REMOVE, NULL, NULL);
	r->session = dir->number;
	r->number = a->n;
	struct op *op = op_park(dir->f, req, NULL, OP_CHANGE, PARK_MS);
	op->path = spot_path(dir, a->name);
	op->session = dir->number;
	op->version = a->n;
	op_ask(op, r, removed);
}

bool attach_unlinks(const struct face *f, int64_t session, uint64_t n)
{
	list_each (pos, &f->ops) {
		const struct op *op = list_entry(pos, struct op, link);
		if (op->then == removed && op->session == session && op->version == n)
			return true;
	}
	return false;
}

void attach_session_ended(struct face *f, int64_t session)
{
	list_each_safe (pos, &f->drafts) {
		struct draft *d = list_entry(pos, struct draft, link);
		if (draft_attach_session(d) == session)
			draft_unlist(d);
	}
}

static void read_attached(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	struct spot at;
	int rc = handle_spot(h, &at);
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	struct request *r = request_new(REQ_ATTACH_READ, NULL, NULL);
	r->session = at.number;
	r->number = (uint64_t)h->node->attach;
	r->offset = (uint64_t)off;
	r->size = size;
	struct op *op = op_park(h->f, req, h, OP_LOOK, 0);
	op->path = spot_path(&at, NULL);
	op->session = at.number;
	op_ask(op, r, op_answer);
}

const struct handle_kind attached_kind = {.read = read_attached};
