/* Inodes that are remembered: a hash table by number. Loop thread only. */
#include "node.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "backend/base/hash.h"
#include "backend/base/mem.h"
#include "drop.h"
#include "face.h"
#include "files.h"
#include "ino.h"

static size_t slot_of(const struct face *f, uint64_t ino)
{
	size_t i = ino & (f->cap_nodes - 1); /* random already */
	while (f->nodes[i] && f->nodes[i]->ino != ino)
		i = (i + 1) & (f->cap_nodes - 1);
	return i;
}

static void grow(struct face *f)
{
	struct node **old = f->nodes;
	size_t cap = f->cap_nodes;
	f->cap_nodes = cap ? cap * 2 : 64;
	f->nodes = xcalloc(f->cap_nodes, sizeof *f->nodes);
	for (size_t i = 0; i < cap; i++)
		if (old[i])
			f->nodes[slot_of(f, old[i]->ino)] = old[i];
	free(old);
}

static void remove_at(struct face *f, size_t i)
{
	size_t mask = f->cap_nodes - 1;
	f->n_nodes--;
	for (size_t j = i;;) {
		f->nodes[i] = NULL;
		for (;;) {
			j = (j + 1) & mask;
			if (!f->nodes[j])
				return;
			size_t home = f->nodes[j]->ino & mask; /* j may move to i unless its home lies in (i, j] */
			if (i <= j ? (home <= i || home > j) : (home <= i && home > j))
				break;
		}
		f->nodes[i] = f->nodes[j];
		i = j;
	}
}

struct node *node_find(const struct face *f, uint64_t ino)
{
	return f->cap_nodes ? f->nodes[slot_of(f, ino)] : NULL;
}

static uint64_t draw(const struct face *f)
{
	for (;;) {
		uint64_t r;
		if (getrandom(&r, sizeof r, 0) != sizeof r)
			continue;
		r = (r & (INO_RANDOM - 1)) | INO_RANDOM;
		if (!node_find(f, r))
			return r;
	}
}

static struct node *add(struct face *f, uint64_t ino)
{
	if (f->n_nodes * 4 >= f->cap_nodes * 3)
		grow(f);
	struct node *node = xcalloc(1, sizeof *node);
	node->ino = ino;
	list_init(&node->link);
	f->nodes[slot_of(f, ino)] = node;
	f->n_nodes++;
	return node;
}

static void node_free(struct node *node)
{
	list_remove(&node->link);
	if (node->draft)
		draft_put(node->draft);
	work_free(node->work);
	free(node);
}

struct node *node_for(struct face *f, struct list *nodes, int64_t session, struct draft *draft, pid_t tid)
{
	list_each (pos, nodes) {
		struct node *node = list_entry(pos, struct node, link);
		if (node->tid == tid && !node->opens)
			return node;
	}
	struct node *node = add(f, draw(f));
	node->session = session;
	node->draft = draft ? draft_get(draft) : NULL;
	node->tid = tid;
	list_append(nodes, &node->link);
	return node;
}

/* ---- files/ ---- */

static bool is_folder(const struct work_file *file)
{
	return work_type(file) == S_IFDIR;
}

/* Where numbers begin: nobody outside can know it. */
static uint64_t seed(struct face *f)
{
	while (!f->node_seed)
		if (getrandom(&f->node_seed, sizeof f->node_seed, 0) < 0)
			f->node_seed = 0;
	return f->node_seed;
}

uint64_t node_attach_ino(struct face *f, int64_t session, int64_t n)
{
	uint64_t h = hash_add(hash_add(~seed(f), &session, sizeof session), &n, sizeof n);
	h ^= h >> 32;
	return (h & (INO_RANDOM - 1)) | INO_RANDOM;
}

struct node *node_of_attach(struct face *f, int64_t session, int64_t n)
{
	uint64_t ino = node_attach_ino(f, session, n);
	struct node *node;
	while ((node = node_find(f, ino)) && (node->session != session || node->attach != n))
		ino = ((ino + 1) & (INO_RANDOM - 1)) | INO_RANDOM;
	if (!node) {
		node = add(f, ino);
		node->session = session;
		node->attach = n;
	}
	return node;
}

uint64_t node_work_ino(struct face *f, int64_t session, const char *path, const struct work_file *file)
{
	uint64_t h = hash_add(seed(f), &session, sizeof session);
	h = hash_add(h, path, strlen(path) + 1);
	h = hash_add(h, &file->mode, sizeof file->mode);
	if (!is_folder(file))
		h = hash_add(h, file->object, strlen(file->object));
	h ^= h >> 32; /* the low bits choose the slot */
	return (h & (INO_RANDOM - 1)) | INO_RANDOM;
}

static bool is_it(const struct node *node, int64_t session, const char *path, const struct work_file *file)
{
	const struct work *w = node->work;
	return w && node->session == session && w->file.mode == file->mode && !strcmp(w->path, path) &&
	       (is_folder(file) || !strcmp(w->file.object, file->object));
}

struct node *node_of_work(struct face *f, int64_t session, const char *path, const struct work_file *file)
{
	uint64_t ino = node_work_ino(f, session, path, file);
	struct node *node;
	while ((node = node_find(f, ino)) && !is_it(node, session, path, file))
		ino = ((ino + 1) & (INO_RANDOM - 1)) | INO_RANDOM;
	if (!node) {
		node = add(f, ino);
		node->session = session;
		node->work = xcalloc(1, sizeof *node->work);
		node->work->path = xstrdup(path);
		node->work->file = *file;
	} else if (is_folder(file)) {
		node->work->file.changed_ms = file->changed_ms;
	}
	return node;
}

static void free_unused(struct face *f, struct node *node)
{
	if (node->lookups || node->opens)
		return;
	remove_at(f, slot_of(f, node->ino));
	node_free(node);
}

void node_forget(struct face *f, struct node *node, uint64_t lookups)
{
	node->lookups -= lookups < node->lookups ? lookups : node->lookups;
	free_unused(f, node);
}

void node_put_open(struct face *f, struct node *node)
{
	node->opens--;
	free_unused(f, node);
}

void nodes_release(struct face *f)
{
	for (size_t i = 0; i < f->cap_nodes; i++) {
		if (f->nodes[i])
			node_free(f->nodes[i]);
	}
	free(f->nodes);
	f->nodes = NULL;
	f->n_nodes = f->cap_nodes = 0;
}
