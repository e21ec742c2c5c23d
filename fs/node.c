/* Inodes of `input` and of drop files: a hash table by number. Loop thread only. */
#include "node.h"

#include <stdlib.h>
#include <sys/random.h>

#include "backend/base/mem.h"
#include "drop.h"
#include "face.h"
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

struct node *node_for(struct face *f, struct list *nodes, int64_t session, struct draft *draft, pid_t tid)
{
	list_each (pos, nodes) {
		struct node *node = list_entry(pos, struct node, link);
		if (node->tid == tid && !node->opens)
			return node;
	}
	if (f->n_nodes * 4 >= f->cap_nodes * 3)
		grow(f);
	struct node *node = xcalloc(1, sizeof *node);
	node->ino = draw(f);
	node->session = session;
	node->draft = draft ? draft_get(draft) : NULL;
	node->tid = tid;
	list_append(nodes, &node->link);
	f->nodes[slot_of(f, node->ino)] = node;
	f->n_nodes++;
	return node;
}

static void free_unused(struct face *f, struct node *node)
{
	if (node->lookups || node->opens)
		return;
	remove_at(f, slot_of(f, node->ino));
	list_remove(&node->link);
	if (node->draft)
		draft_put(node->draft);
	free(node);
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
		struct node *node = f->nodes[i];
		if (!node)
			continue;
		list_remove(&node->link);
		if (node->draft)
			draft_put(node->draft);
		free(node);
	}
	free(f->nodes);
	f->nodes = NULL;
	f->n_nodes = f->cap_nodes = 0;
}
