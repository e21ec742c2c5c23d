/* A small set of session ids. Belongs to the store thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/base/mem.h"

/* Sessions that were changed, by id; small, so a linear look is the quickest. */
struct idset {
	int64_t *id;
	size_t n, cap;
};

static inline bool idset_has(const struct idset *s, int64_t id)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->id[i] == id)
			return true;
	return false;
}

static inline void idset_add(struct idset *s, int64_t id)
{
	if (idset_has(s, id))
		return;
	if (s->n == s->cap)
		s->id = xrealloc(s->id, (s->cap = s->cap ? s->cap * 2 : 16) * sizeof *s->id);
	s->id[s->n++] = id;
}
