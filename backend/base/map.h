/* Hash map from a string to a pointer. One thread. Keys are copied. */
#pragma once
#include <stddef.h>

struct map_slot {
	char *key;
	void *value;
};
struct map {
	struct map_slot *slots; /* cap slots, cap a power of two, open addressing */
	size_t n, cap;
};

void map_release(struct map *m); /* keys only; values are the caller's */
void *map_get(const struct map *m, const char *key);
void *map_put(struct map *m, const char *key, void *value); /* returns the old value or NULL; value NULL removes */
