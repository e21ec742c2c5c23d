/* Requests that wait, and the timers of the loop. Loop thread only.
 *
 * libfuse calls an interrupt function with the lock of the request held, maybe before fuse_req_interrupt_func() has
 * returned: it only marks the op. The loop answers afterwards. */
#include "park.h"

#include <errno.h>
#include <stdlib.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "face.h"
#include "handle.h"
#include "refuse.h"

/* ---- timers: few at a time, so a sorted list will do ---- */

void timer_init(struct timer *t)
{
	list_init(&t->link);
}

void timer_clear(struct timer *t)
{
	list_remove(&t->link);
}

void timer_set(struct face *f, struct timer *t, int ms, void (*fire)(struct timer *))
{
	list_remove(&t->link);
	t->at_ms = clock_mono_ms() + ms;
	t->fire = fire;
	struct list *before = f->timers.prev; /* new ones are mostly the latest */
	while (before != &f->timers && list_entry(before, struct timer, link)->at_ms > t->at_ms)
		before = before->prev;
	list_append(before->next, &t->link);
}

int timers_next(const struct face *f)
{
	if (list_empty(&f->timers))
		return -1;
	int64_t ms = list_entry(f->timers.next, struct timer, link)->at_ms - clock_mono_ms();
	return ms < 0 ? 0 : ms > 60000 ? 60000 : (int)ms;
}

void timers_fire(struct face *f)
{
	int64_t now = clock_mono_ms();
	while (!list_empty(&f->timers)) {
		struct timer *t = list_entry(f->timers.next, struct timer, link);
		if (t->at_ms > now)
			break;
		list_remove(&t->link);
		t->fire(t);
	}
}

/* ---- ops ---- */

struct op *op_get(struct op *op)
{
	op->refs++;
	return op;
}

void op_put(struct op *op)
{
	if (--op->refs)
		return;
	if (op->h)
		handle_put(op->h);
	free(op->path);
	free(op->data);
	free(op);
}

static void on_interrupt(fuse_req_t req, void *data)
{
	struct op *op = data;
	list_remove(&op->interrupted);
	list_append(&op->f->interrupted, &op->interrupted);
}

static void on_late(struct timer *t)
{
	struct op *op = list_entry(t, struct op, timer);
	if (op->late) {
		op->late(op);
		return;
	}
	struct err err = ERR_INIT;
	err_set(&err, ETIMEDOUT, "not answered in time; it may still be done: look again in a moment");
	refuse(op->f, op->session, op->path, &err);
	op_error(op, -ETIMEDOUT);
}

void op_limit(struct op *op, int ms, void (*late)(struct op *))
{
	op->late = late;
	timer_set(op->f, &op->timer, ms, on_late);
}

struct op *op_park(struct face *f, fuse_req_t req, struct handle *h, enum op_kind kind, int ms)
{
	struct op *op = xcalloc(1, sizeof *op);
	op->f = f;
	op->req = req;
	op->kind = kind;
	op->refs = 1;
	op->h = h ? handle_get(h) : NULL;
	list_init(&op->interrupted);
	list_init(&op->wait);
	timer_init(&op->timer);
	list_append(&f->ops, &op->link);
	if (ms)
		timer_set(f, &op->timer, ms, on_late);
	fuse_req_interrupt_func(req, on_interrupt, op);
	return op;
}

static void asked(struct request *r)
{
	struct op *op = r->arg;
	op->then(op, r);
	op_put(op);
}

void op_ask(struct op *op, struct request *r, void (*then)(struct op *, struct request *))
{
	op->then = then;
	op->refs++;
	r->done = asked;
	r->arg = op;
	backend_submit(op->f->backend, r);
}

fuse_req_t op_take(struct op *op)
{
	fuse_req_t req = op->req;
	if (!req)
		return NULL;
	op->req = NULL;
	fuse_req_interrupt_func(req, NULL, NULL);
	list_remove(&op->link);
	list_remove(&op->interrupted);
	list_remove(&op->wait);
	timer_clear(&op->timer);
	op_put(op);
	return req;
}

void op_error(struct op *op, int rc)
{
	fuse_req_t req = op_take(op);
	if (req)
		fuse_reply_err(req, -rc);
}

void op_data(struct op *op, const char *p, size_t n)
{
	fuse_req_t req = op_take(op);
	if (req)
		fuse_reply_buf(req, p, n);
}

void op_wrote(struct op *op)
{
	size_t size = op->size;
	fuse_req_t req = op_take(op);
	if (req)
		fuse_reply_write(req, size);
}

int op_refused(struct op *op, struct request *r)
{
	if (r->rc)
		refuse_rc(op->f, op->session, op->path, r->rc, &r->err);
	return r->rc;
}

void op_answer(struct op *op, struct request *r)
{
	int rc = op_refused(op, r);
	if (rc)
		op_error(op, rc);
	else
		op_data(op, r->out.p, r->out.n);
}

void ops_interrupt(struct face *f)
{
	while (!list_empty(&f->interrupted)) {
		struct op *op = list_entry(f->interrupted.next, struct op, interrupted);
		list_remove(&op->interrupted);
		if (op->kind == OP_LOOK)
			op_error(op, -EINTR);
		else if (list_empty(&op->timer.link) || op->timer.at_ms > clock_mono_ms() + PARK_MS)
			timer_set(f, &op->timer, PARK_MS, on_late);
	}
}

void ops_wake(struct list *waiting)
{
	struct list now;
	list_init(&now);
	while (!list_empty(waiting)) { /* one that waits again goes into the emptied list */
		struct list *item = waiting->next;
		list_remove(item);
		list_append(&now, item);
	}
	while (!list_empty(&now)) {
		struct op *op = list_entry(now.next, struct op, wait);
		list_remove(&op->wait);
		op->wake(op);
	}
}

void ops_end(struct face *f, int rc)
{
	while (!list_empty(&f->ops))
		op_error(list_entry(f->ops.next, struct op, link), rc);
}
