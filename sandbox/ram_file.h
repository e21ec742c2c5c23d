/* How a file of memory looks inside (ram.h): for what reads and writes one. Any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

#define RAM_PAGE  4096UL
#define RAM_BLOCK (256UL * 1024) /* copied at once: fits into a processor's cache */

/* The file's first page, with the key behind it. Then data bytes of pages, extents bytes of struct ram_extent, state
 * bytes of the devices. */
struct ram_head {
	char magic[16];
	uint64_t ram, data, extents, state, data_sum, rest_sum, key;
};
#define RAM_KEY_MAX (RAM_PAGE - sizeof(struct ram_head))

/* In the order in which their pages are in the file. */
struct ram_extent {
	uint64_t at, n; /* bytes, multiples of RAM_PAGE */
};

/* Opens it and reads all but the pages. rest: extents and state, padded. The descriptor, or -errno. */
int ram_read_head(const char *path, struct ram_head *h, char key[RAM_KEY_MAX + 1], struct buf *rest, struct err *err);

/* Against damage, not against an enemy, and as fast as memory. */
struct ram_sum {
	uint64_t lane[4];
};
#define RAM_SUM ((struct ram_sum){{1, 2, 3, 4}})
void ram_sum_add(struct ram_sum *s, const void *data, size_t n); /* n: a multiple of 32 */
uint64_t ram_sum_end(const struct ram_sum *s);

bool ram_is_zero(const char *page);
