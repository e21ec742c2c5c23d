/* What the face asks of the gateway: keys, the policy, pieces of the ledger. One thread, so that a gateway which does
 * not answer holds up nothing else. A key's bytes are wiped here, whatever became of them, and are never in a word. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "gate_private.h"

#define SETTLE_MS 1500 /* for the tree to show what was changed, before whoever changed it is answered */
#define PIECE_MAX (1 << 20)

int key_name_check(const char *name, struct err *err)
{
	return gateway_key_name(name)
		       ? 0
		       : err_set(err, EINVAL,
				 "a key's name is that of its provider: letters, digits, - _ and points, "
				 "less than 64, no point first");
}

/* ---- requests ---- */

static int set_key(struct gate_link *l, struct request *r)
{
	int rc = key_name_check(r->name, &r->err);
	if (!rc && !r->text.n)
		rc = err_set(&r->err, EINVAL, "no key was written; rm takes one away");
	return rc ? rc : gateway_key_set(l->b->paths, r->name, r->text.p, r->text.n, &r->err);
}

static int remove_key(struct gate_link *l, struct request *r)
{
	int rc = key_name_check(r->name, &r->err);
	return rc ? rc : gateway_key_set(l->b->paths, r->name, NULL, 0, &r->err);
}

static void set_draft(struct gate_link *l, const char *text)
{
	pthread_mutex_lock(&l->lock);
	free(l->draft);
	l->draft = xstrdup(text);
	pthread_mutex_unlock(&l->lock);
	gate_show(l);
}

/* A whole that was not taken stays as a draft, whatever the reason: its text is somebody's work. */
static int set_policy(struct gate_link *l, struct request *r)
{
	int rc = gateway_policy_set(l->b->paths, buf_str(&r->text), r->text.n, &r->err);
	set_draft(l, rc ? buf_str(&r->text) : NULL);
	return rc;
}

static int read_ledger(struct gate_link *l, struct request *r)
{
	return gateway_ledger_read(l->b->paths, r->offset, r->size < PIECE_MAX ? r->size : PIECE_MAX, &r->out, NULL,
				   &r->err);
}

/* settle: the tree has to show it before the answer */
static const struct ask {
	int (*run)(struct gate_link *l, struct request *r);
	bool settle;
} asks[] = {
	[REQ_KEY] = {set_key, true},
	[REQ_KEY_REMOVE] = {remove_key, true},
	[REQ_POLICY] = {set_policy, true},
	[REQ_READ] = {read_ledger, false},
};

bool gate_takes(const struct request *r)
{
	return r->kind == REQ_READ ? r->text_kind == TEXT_LEDGER : r->kind < ARRAY_LEN(asks) && asks[r->kind].run;
}

/* ---- the thread ---- */

static void wipe(struct request *r)
{
	if (r->kind == REQ_KEY && r->text.p)
		explicit_bzero(r->text.p, r->text.cap);
}

static void answer(struct gate_link *l, struct request *r)
{
	if (gate_stopping(l))
		r->rc = err_set(&r->err, ESHUTDOWN, "the daemon ends");
	else
		r->rc = gate_wait_up(l, NULL, &r->err);
	if (!r->rc)
		r->rc = asks[r->kind].run(l, r);
	else if (r->kind == REQ_POLICY)
		set_draft(l, buf_str(&r->text));
	wipe(r);
	if (!r->rc && asks[r->kind].settle)
		gate_settle(l->b, SETTLE_MS, NULL);
	notes_done(l->b->notes, r);
}

void *gate_asker(void *arg)
{
	struct gate_link *l = arg;
	for (struct queue_node *n; (n = queue_wait(&l->asks));)
		answer(l, queue_entry(n, struct request, node));
	return NULL;
}

void gate_push(struct backend *b, struct request *r)
{
	if (b->link) {
		queue_push(&b->link->asks, &r->node);
		return;
	}
	wipe(r);
	r->rc = err_set(&r->err, EAGAIN, "there is no gateway in this process");
	notes_done(b->notes, r);
}
