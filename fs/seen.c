/* Inodes that the kernel knows: a chained hash table by number. Loop thread only. */
#include "seen.h"

#include <fuse_lowlevel.h>
#include <stdlib.h>

#include "backend/base/mem.h"
#include "face.h"

static struct seen **slot_of(const struct seen_table *t, uint64_t ino)
{
	/* Numbers are packed, so that their low bits are rows: spread by the golden ratio. */
	return &t->slots[(ino * 0x9e3779b97f4a7c15u >> 32) & (t->cap - 1)];
}

static void grow(struct seen_table *t)
{
	struct seen_table old = *t;
	t->cap = old.cap ? old.cap * 2 : 64;
	t->slots = xcalloc(t->cap, sizeof *t->slots);
	for (size_t i = 0; i < old.cap; i++)
		for (struct seen *s = old.slots[i], *next; s; s = next) {
			struct seen **slot = slot_of(t, s->ino);
			next = s->next;
			s->next = *slot;
			*slot = s;
		}
	free(old.slots);
}

struct seen *seen_find(const struct face *f, uint64_t ino)
{
	struct seen *s = f->seen.cap ? *slot_of(&f->seen, ino) : NULL;
	while (s && s->ino != ino)
		s = s->next;
	return s;
}

struct seen *seen_get(struct face *f, uint64_t ino)
{
	struct seen *s = seen_find(f, ino);
	if (s)
		return s;
	if (f->seen.n >= f->seen.cap)
		grow(&f->seen);
	struct seen **slot = slot_of(&f->seen, ino);
	s = xcalloc(1, sizeof *s);
	s->ino = ino;
	list_init(&s->due);
	s->next = *slot;
	*slot = s;
	f->seen.n++;
	return s;
}

void seen_put(struct face *f, struct seen *s)
{
	if (s->lookups || s->flying || !list_empty(&s->due))
		return;
	struct seen **slot = slot_of(&f->seen, s->ino);
	while (*slot != s)
		slot = &(*slot)->next;
	*slot = s->next;
	f->seen.n--;
	free(s);
}

bool seen_known(const struct face *f, uint64_t ino)
{
	const struct seen *s = ino == FUSE_ROOT_ID ? NULL : seen_find(f, ino);
	return ino == FUSE_ROOT_ID || (s && s->lookups);
}

void seen_forget(struct face *f, uint64_t ino, uint64_t lookups)
{
	struct seen *s = seen_find(f, ino);
	if (!s)
		return;
	s->lookups -= lookups < s->lookups ? lookups : s->lookups;
	seen_put(f, s);
}

void seen_release(struct face *f)
{
	for (size_t i = 0; i < f->seen.cap; i++)
		for (struct seen *s = f->seen.slots[i], *next; s; s = next) {
			next = s->next;
			list_remove(&s->due);
			free(s);
		}
	free(f->seen.slots);
	f->seen = (struct seen_table){0};
}
