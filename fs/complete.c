/* When is a message complete?
 *
 * A message is what is written between an open and the last close of that open file. The kernel tells of each close()
 * (FLUSH), not which one is the last; and it tells of the end of the open file (RELEASE) only after close() has
 * returned, too late for the writer to be told of an error or to read the result. Shells close descriptors all the
 * time: bash once before it writes at all, children when they end, `>&2` in a group at each use. So at a FLUSH with
 * something written, a worker looks whether any process that can have the file still holds it (holder.h). Nobody: it is
 * complete, and close() returns when the backend has committed it. Somebody, or it cannot be told: this close is
 * answered at once, and the last one decides. What is left at RELEASE is committed then, and no later request is read
 * until it is answered; so the next command that goes through the mount sees it in any case.
 *
 * fsync and a read on the same descriptor complete a message too. Loop thread only; nothing here waits. */
#include <errno.h>

#include "backend/base/clock.h"
#include "handle.h"
#include "watchers.h"

/* A close is held up no longer by a scan. One takes 1 ms, but its thread may have to wait for a CPU: with 15 processes
 * to each, 150 ms are not enough. A close that is answered before the scan has ended acknowledges what is not committed
 * yet, and a daemon that is killed before the RELEASE loses it; so this is only here against a scan that never ends. */
#define SCAN_MS 2000

static bool is_open_text(const struct handle *h)
{
	return handle_kind_of(h)->commit && (h->dirty || h->committing);
}

/* ---- the commit ---- */

static void committed(struct request *r);

static void commit(struct handle *h)
{
	h->dirty = false;
	h->last_rc = 0;
	struct request *r = handle_kind_of(h)->commit(h);
	if (!r)
		return;
	h->committing = true;
	handle_get(h);
	r->done = committed;
	r->arg = h;
	backend_submit(h->f->backend, r);
}

static void committed(struct request *r)
{
	struct handle *h = r->arg;
	const struct handle_kind *kind = handle_kind_of(h);
	h->committing = false;
	h->last_rc = kind->committed(h, r);
	if (h->again && h->dirty)
		commit(h);
	h->again = false;
	if (!h->committing) {
		if (r->kind == REQ_CREATE && !r->rc && r->name)
			watchers_wake(h->f, r->name, &h->waiters);
		else
			ops_wake(&h->waiters);
		if (h->released)
			h->f->barrier--;
	}
	handle_put(h);
}

/* Commits what has been written so far, now or after the commit under way. */
static void commit_next(struct handle *h)
{
	if (h->committing)
		h->again = h->dirty;
	else if (h->dirty)
		commit(h);
}

static void settled(struct op *op)
{
	const struct handle *h = op->h;
	op_error(op, h->last_rc ? h->last_rc : h->msg.failed); /* what came after the commit was refused */
}

/* Answers op with the result of the commit, at once if there is none to wait for. */
static void settle(struct op *op)
{
	struct handle *h = op->h;
	if (!h->committing) {
		settled(op);
		return;
	}
	op->wake = settled;
	list_append(&h->waiters, &op->wait);
}

/* ---- FLUSH ---- */

/* Not the last close, or it cannot be told. What was refused already is said again: micro and neovim look at close(),
 * not at write(). */
static void answer_early(struct op *op)
{
	op_error(op, op->h->msg.failed);
}

static void answer_interrupted(struct op *op)
{
	op_error(op, -EINTR);
}

void complete_wrote(struct handle *h, fuse_req_t req)
{
	writers_note(&h->writers, fuse_req_ctx(req)->pid);
}

void complete_flush(struct handle *h, fuse_req_t req)
{
	struct face *f = h->f;
	pid_t tid = fuse_req_ctx(req)->pid;
	if (!is_open_text(h) || (h->dirty && (h->writers.foreign || tid <= 0))) {
		/* Emacs takes an EINVAL of fsync for one that the file system does not know: close says it again. */
		fuse_reply_err(req, -(is_open_text(h) || h->msg.failed ? h->msg.failed : h->last_rc));
		return;
	}
	struct op *op = op_park(f, req, h, OP_CHANGE, h->dirty ? SCAN_MS : 0);
	if (!h->dirty) {
		op->late = answer_interrupted;
		settle(op);
		return;
	}
	op->late = answer_early;
	struct scan *scan = scan_new(&h->writers, tid, h->ino);
	scan->op = op_get(op);
	holder_submit(f->holder, scan);
}

void complete_scanned(struct scan *scan)
{
	struct op *op = scan->op;
	if (scan->held == HELD_UNKNOWN)
		op->h->writers.hasty = true;
	if (op->req) {
		timer_clear(&op->timer);
		op->late = answer_interrupted;
		if (scan->held != HELD_NO) {
			answer_early(op);
		} else {
			commit_next(op->h);
			settle(op);
		}
	}
	op_put(op);
	scan_free(scan);
}

/* ---- the other ends of a message ---- */

void complete_fsync(struct handle *h, fuse_req_t req)
{
	if (!is_open_text(h)) {
		fuse_reply_err(req, -h->msg.failed);
		return;
	}
	struct op *op = op_park(h->f, req, h, OP_CHANGE, 0);
	op->late = answer_interrupted;
	commit_next(h);
	settle(op);
}

static void read_again(struct op *op)
{
	struct handle *h = op->h;
	if (h->last_rc) {
		op_error(op, h->last_rc);
		return;
	}
	size_t size = op->size;
	off_t off = op->off;
	handle_get(h); /* op's own reference goes with it */
	handle_kind_of(h)->read(h, op_take(op), size, off);
	handle_put(h);
}

bool complete_before_read(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	if (!is_open_text(h))
		return false;
	struct op *op = op_park(h->f, req, h, OP_CHANGE, 0);
	op->late = answer_interrupted;
	op->size = size;
	op->off = off;
	h->asked = true;
	commit_next(h);
	if (h->committing) {
		op->wake = read_again;
		list_append(&h->waiters, &op->wait);
	} else {
		read_again(op);
	}
	return true;
}

void complete_release(struct handle *h, fuse_req_t req)
{
	struct face *f = h->f;
	if (is_open_text(h))
		commit_next(h);
	if (h->committing) {
		h->released = true;
		f->barrier++;
		f->barrier_until_ms = clock_mono_ms() + PARK_MS;
	}
	fuse_reply_err(req, 0); /* the kernel does not wait for it */
	handle_put(h);
}

void complete_all(struct face *f)
{
	list_each_safe (pos, &f->handles) {
		struct handle *h = list_entry(pos, struct handle, link);
		if (is_open_text(h))
			commit_next(h);
	}
}
