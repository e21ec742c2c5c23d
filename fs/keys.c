/* gateway/keys/PROVIDER. A key is written with one write, and handed to the gateway within it; what is read is its
 * fingerprint. Must never keep the bytes of a key, nor put them into words: the buffer that the kernel's request came
 * in is wiped before anything else can go wrong, and the backend wipes the request. Loop thread only. */
#include "keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "dir.h"
#include "face.h"
#include "handle.h"
#include "ino.h"
#include "names.h"
#include "refuse.h"
#include "show.h"

#define KEY_MAX 1026 /* bytes of a key and a line's end; the gateway takes 1024 */

struct key_slot {
	char *name;
	unsigned opens;
};

/* ---- names and numbers ---- */

const struct gateway_view *gateway_of(const struct face *f)
{
	static const struct gateway_view none;
	return f->root && f->root->gateway ? f->root->gateway : &none;
}

static const struct gateway_key *key_of(const struct face *f, const char *name)
{
	const struct gateway_view *g = gateway_of(f);
	for (size_t i = 0; i < g->n_keys; i++)
		if (!strcmp(g->keys[i].name, name))
			return &g->keys[i];
	return NULL;
}

static int64_t slot_for(struct face *f, const char *name)
{
	size_t i = 0;
	while (i < f->n_keys && strcmp(f->keys[i].name, name))
		i++;
	if (i == f->n_keys) {
		f->keys = xrealloc(f->keys, (i + 1) * sizeof *f->keys);
		f->keys[f->n_keys++] = (struct key_slot){.name = xstrdup(name)};
	}
	return (int64_t)i + 1;
}

const char *key_name(const struct face *f, int64_t number)
{
	if (number < 1 || (size_t)number > f->n_keys)
		return NULL;
	const struct key_slot *s = &f->keys[number - 1];
	return s->opens || key_of(f, s->name) ? s->name : NULL;
}

int64_t key_number(const struct face *f, const char *name)
{
	for (size_t i = 0; i < f->n_keys; i++)
		if (!strcmp(f->keys[i].name, name))
			return key_name(f, (int64_t)i + 1) ? (int64_t)i + 1 : 0;
	return 0;
}

int64_t key_after(const struct face *f, int64_t number)
{
	for (int64_t i = number + 1; (size_t)i <= f->n_keys; i++)
		if (key_name(f, i))
			return i;
	return 0;
}

void keys_take(struct face *f, const struct gateway_view *v)
{
	for (size_t i = 0; v && i < v->n_keys; i++)
		slot_for(f, v->keys[i].name);
}

void keys_forget(struct face *f)
{
	for (size_t i = 0; i < f->n_keys; i++)
		free(f->keys[i].name);
	free(f->keys);
	f->keys = NULL;
	f->n_keys = 0;
}

void key_opened(struct face *f, int64_t number, int by)
{
	if (number >= 1 && (size_t)number <= f->n_keys)
		f->keys[number - 1].opens += (unsigned)by;
}

/* ---- reading ---- */

void show_key(const struct spot *at, struct buf *out)
{
	const char *name = key_name(at->f, at->number);
	const struct gateway_key *k = name ? key_of(at->f, name) : NULL;
	buf_adds(out, k ? k->fingerprint : "");
}

int64_t changed_key(const struct spot *at)
{
	const char *name = key_name(at->f, at->number);
	const struct gateway_key *k = name ? key_of(at->f, name) : NULL;
	return k ? k->changed_ms : gateway_of(at->f)->keys_ms;
}

/* ---- writing ---- */

static void key_done(struct op *op, struct request *r)
{
	int rc = op_refused(op, r);
	op->h->keyed = op->h->keyed || !rc;
	if (rc)
		op_error(op, rc);
	else
		op_wrote(op);
}

static int check_key(const struct handle *h, const struct spot *at, size_t n)
{
	if (h->keyed)
		return refuse_at(at, NULL, EINVAL,
				 "a key is written with one write, and this open file has had its one; open it anew "
				 "to change the key");
	if (n > KEY_MAX)
		return refuse_at(at, NULL, EFBIG, "a key has at most 1024 bytes");
	return 0;
}

static void write_key(struct handle *h, fuse_req_t req, const char *p, size_t n, off_t off)
{
	struct spot at;
	int rc = handle_spot(h, &at) ? -ESTALE : check_key(h, &at, n);
	struct request *r = rc ? NULL : request_new(REQ_KEY, NULL, NULL);
	if (r) {
		r->name = xstrdup(key_name(h->f, h->number));
		buf_reserve(&r->text, n); /* once, so that no piece of it is left behind by a second one */
		buf_add(&r->text, p, n);
	}
	explicit_bzero((void *)(uintptr_t)p, n); /* the buffer is the loop's own, and of nobody's use after this */
	if (!r) {
		fuse_reply_err(req, -rc);
		return;
	}
	h->snapped = false;
	struct op *op = op_park(h->f, req, h, OP_CHANGE, PARK_MS);
	op->path = spot_path(&at, NULL);
	op->size = n;
	op_ask(op, r, key_done);
}

const struct handle_kind key_kind = {.read = handle_read_made, .write = write_key};

/* ---- the directory ---- */

void key_create(const struct spot *dir, fuse_req_t req, const char *name, int flags)
{
	struct face *f = dir->f;
	struct err err = ERR_INIT;
	if (name_is_scratch(name)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	if (key_name_check(name, &err)) {
		CLEAN_FREE char *path = spot_path(dir, name);
		fuse_reply_err(req, -refuse(f, 0, path, &err));
		return;
	}
	struct spot at = {.f = f, .file = tree_unnamed(PLACE_KEYS, KIND_KEY), .number = slot_for(f, name)};
	at.ino = ino_pack(at.number, tree_row(at.file));
	struct handle *h = handle_new(&at, NULL, flags);
	struct fuse_entry_param e;
	dir_entry(f, at.ino, &e);
	handle_opened(h, req, &e);
}

static void removed(struct op *op, struct request *r)
{
	op_error(op, op_refused(op, r));
}

void key_unlink(const struct spot *dir, fuse_req_t req, const char *name)
{
	if (!key_of(dir->f, name)) { /* one that is only open goes by itself */
		fuse_reply_err(req, key_number(dir->f, name) ? 0 : ENOENT);
		return;
	}
	struct request *r = request_new(REQ_KEY_REMOVE, NULL, NULL);
	r->name = xstrdup(name);
	struct op *op = op_park(dir->f, req, NULL, OP_CHANGE, PARK_MS);
	op->path = spot_path(dir, name);
	op_ask(op, r, removed);
}
