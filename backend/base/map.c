/* Hash map from a string to a pointer: open addressing, linear probing, backward-shift removal. */
#include "map.h"

#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "mem.h"

static size_t hash(const char *s)
{
	uint64_t h = hash_add(HASH_BEGIN, s, strlen(s));
	return (size_t)(h ^ h >> 32);
}

static size_t slot_of(const struct map *m, const char *key)
{
	size_t i = hash(key) & (m->cap - 1);
	while (m->slots[i].key && strcmp(m->slots[i].key, key))
		i = (i + 1) & (m->cap - 1);
	return i;
}

static void grow(struct map *m)
{
	struct map old = *m;
	m->cap = old.cap ? old.cap * 2 : 16;
	m->slots = xcalloc(m->cap, sizeof *m->slots);
	for (size_t i = 0; i < old.cap; i++)
		if (old.slots[i].key)
			m->slots[slot_of(m, old.slots[i].key)] = old.slots[i];
	free(old.slots);
}

void map_release(struct map *m)
{
	for (size_t i = 0; i < m->cap; i++)
		free(m->slots[i].key);
	free(m->slots);
	*m = (struct map){0};
}

void *map_get(const struct map *m, const char *key)
{
	return m->cap ? m->slots[slot_of(m, key)].value : NULL;
}

static void *remove_at(struct map *m, size_t i)
{
	void *old = m->slots[i].value;
	free(m->slots[i].key);
	m->n--;
	for (size_t j = i;;) {
		m->slots[i] = (struct map_slot){0};
		for (;;) {
			j = (j + 1) & (m->cap - 1);
			if (!m->slots[j].key)
				return old;
			size_t home = hash(m->slots[j].key) & (m->cap - 1);
			/* j may move to i unless its home lies cyclically in (i, j] */
			if (i <= j ? (home <= i || home > j) : (home <= i && home > j))
				break;
		}
		m->slots[i] = m->slots[j];
		i = j;
	}
}

void *map_put(struct map *m, const char *key, void *value)
{
	if (m->n * 4 >= m->cap * 3) {
		if (!value && !map_get(m, key))
			return NULL;
		grow(m);
	}
	size_t i = slot_of(m, key);
	if (!value)
		return m->slots[i].key ? remove_at(m, i) : NULL;
	void *old = m->slots[i].value;
	if (!m->slots[i].key) {
		m->slots[i].key = xstrdup(key);
		m->n++;
	}
	m->slots[i].value = value;
	return old;
}
