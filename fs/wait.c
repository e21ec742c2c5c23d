/* The files of wait/: a read is parked until something is so, and costs no thread. What counts is what was so when the
 * file was opened: a message sent before the open is waited for, a later one is not. Loop thread only. */
#include "wait.h"

#include <errno.h>

#include "handle.h"
#include "refuse.h"

enum verdict { WAITS, READY, FAILED };

static void follow(struct handle *h, struct view *v);

static int open_wait(struct handle *h, fuse_req_t req)
{
	struct spot at;
	int rc = handle_spot(h, &at);
	if (rc)
		return rc;
	struct view *v = at.session->view;
	switch (h->file->wait) {
	case WAIT_REPLY: h->mark = v->accepted; break;
	case WAIT_CHANGE: h->mark = v->version; break;
	case WAIT_SHIPPED:
		h->mark = v->ships;
		h->marked = v->shipping;
		break;
	case WAIT_LIVE: /* a run that has ended is the one to show, unless another is about to begin */
		h->mark = v->live && !v->live->running && v->unanswered ? (uint64_t)v->live->run : 0;
		follow(h, v);
		break;
	case WAIT_APPROVAL:
	case WAIT_IDLE: break;
	}
	return 0;
}

/* ---- reply, idle, shipped, change: one text at the end ---- */

static enum verdict judge(const struct handle *h, const struct view *v)
{
	bool done = false;
	switch (h->file->wait) {
	case WAIT_REPLY: done = !v->unanswered || v->unanswered > h->mark; break;
	case WAIT_IDLE: done = v->idle; break;
	case WAIT_APPROVAL: return v->approval ? READY : v->failed ? FAILED : WAITS;
	case WAIT_SHIPPED: done = !h->marked || !v->shipping || v->ships > h->mark; break;
	case WAIT_CHANGE: return v->version > h->mark ? READY : WAITS;
	case WAIT_LIVE: break;
	}
	return done ? READY : v->failed ? FAILED : WAITS;
}

static void got_answer(struct op *op, struct request *r)
{
	struct handle *h = op->h;
	if (r->rc || !op->req) {
		op_error(op, op_refused(op, r));
		return;
	}
	buf_add(&h->snap, r->out.p, r->out.n);
	h->snapped = true;
	size_t size = op->size;
	off_t off = op->off;
	handle_get(h);
	handle_read_text(h, op_take(op), size, off);
	handle_put(h);
}

static void ask_answer(struct handle *h, fuse_req_t req, const struct spot *at, size_t size, off_t off)
{
	struct request *r = request_new(REQ_READ, NULL, NULL);
	r->session = h->number;
	r->text_kind = TEXT_ANSWER;
	r->size = (size_t)at->session->view->text[TEXT_ANSWER].size;
	struct op *op = op_park(h->f, req, h, OP_LOOK, 0);
	op->path = spot_path(at, NULL);
	op->session = h->number;
	op->size = size;
	op->off = off;
	op_ask(op, r, got_answer);
}

/* ---- live: text as it comes ---- */

/* Chooses the run to show, and keeps its newest text. h->run: 0 none yet, -1 there is none to show. */
static void follow(struct handle *h, struct view *v)
{
	const struct live *live = v->live;
	if (!h->run && live && live->run > 0 && (uint64_t)live->run > h->mark && (live->running || !v->unanswered))
		h->run = live->run;
	else if (!h->run && !v->unanswered && !(live && live->running))
		h->run = -1;
	if (h->run > 0 && live && live->run == h->run && h->seen != v) {
		if (h->seen)
			view_put(h->seen);
		h->seen = view_get(v);
	}
}

static bool live_ended(const struct handle *h, const struct view *v)
{
	return h->run && (!v->live || v->live->run != h->run || !v->live->running);
}

static size_t live_size(const struct handle *h)
{
	return h->seen ? h->seen->live->text.n : 0;
}

static enum verdict judge_live(struct handle *h, struct view *v, uint64_t off)
{
	follow(h, v);
	if (live_size(h) > off || live_ended(h, v))
		return READY;
	return v->failed && !h->run ? FAILED : WAITS;
}

static void answer_live(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	size_t end = live_size(h), at = (size_t)off;
	size_t n = at >= end ? 0 : end - at < size ? end - at : size;
	if (at + n > h->consumed)
		h->consumed = at + n;
	fuse_reply_buf(req, n ? h->seen->live->text.p + at : NULL, n);
}

/* ---- both ---- */

static void read_wait(struct handle *h, fuse_req_t req, size_t size, off_t off);

static void read_again(struct op *op)
{
	struct handle *h = op->h;
	struct session *s = session_by_id(h->f, h->number);
	bool live = h->file->wait == WAIT_LIVE;
	enum verdict verdict = live ? judge_live(h, s->view, (uint64_t)op->off) : judge(h, s->view);
	if (verdict == WAITS) {
		list_append(&s->waits, &op->wait);
		return;
	}
	size_t size = op->size;
	off_t off = op->off;
	handle_get(h);
	read_wait(h, op_take(op), size, off);
	handle_put(h);
}

static void park(struct handle *h, fuse_req_t req, struct session *s, size_t size, off_t off)
{
	if (h->flags & O_NONBLOCK || h->f->quit) {
		fuse_reply_err(req, h->f->quit ? ESHUTDOWN : EAGAIN);
		return;
	}
	struct op *op = op_park(h->f, req, h, OP_LOOK, 0);
	op->size = size;
	op->off = off;
	op->wake = read_again;
	list_append(&s->waits, &op->wait);
}

static void answer(struct handle *h, fuse_req_t req, const struct spot *at, size_t size, off_t off)
{
	const struct view *v = at->session->view;
	if (h->file->wait == WAIT_LIVE) {
		answer_live(h, req, size, off);
		return;
	}
	if (h->file->wait == WAIT_REPLY && v->text[TEXT_ANSWER].size) {
		ask_answer(h, req, at, size, off);
		return;
	}
	const char *line = v->value[h->file->wait == WAIT_SHIPPED ? VALUE_SHIP : VALUE_STATUS];
	if (h->file->wait == WAIT_APPROVAL)
		buf_addf(&h->snap, "%llu\n", (unsigned long long)v->approval);
	else if (h->file->wait != WAIT_REPLY)
		buf_addf(&h->snap, "%s\n", line ? line : "");
	h->snapped = true;
	handle_read_text(h, req, size, off);
}

static void read_wait(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	struct spot at;
	if (h->snapped) { /* once it has ended it stays ended */
		handle_read_text(h, req, size, off);
		return;
	}
	if (handle_spot(h, &at)) {
		fuse_reply_err(req, ESHUTDOWN);
		return;
	}
	struct view *v = at.session->view;
	bool live = h->file->wait == WAIT_LIVE;
	switch (live ? judge_live(h, v, (uint64_t)off) : judge(h, v)) {
	case WAITS: park(h, req, at.session, size, off); break;
	case READY: answer(h, req, &at, size, off); break;
	case FAILED:
		refuse_at(&at, NULL, EIO, "the session has failed: see its status; `echo retry > ctl` tries again");
		fuse_reply_err(req, EIO);
		break;
	}
}

bool wait_ready(struct handle *h, const struct spot *at)
{
	struct view *v = at->session->view;
	return h->snapped || (h->file->wait == WAIT_LIVE ? judge_live(h, v, h->consumed) : judge(h, v)) != WAITS;
}

const struct handle_kind wait_kind = {.open = open_wait, .read = read_wait};
