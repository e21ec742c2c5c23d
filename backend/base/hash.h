/* FNV-1a with 64 bits: tells things apart where no enemy chooses them, or from a start that no enemy knows. Any thread.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define HASH_BEGIN 14695981039346656037u /* the offset basis of FNV-1a */

/* Takes in n more bytes; h is HASH_BEGIN or what the bytes before gave. */
static inline uint64_t hash_add(uint64_t h, const void *data, size_t n)
{
	const unsigned char *p = data;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 1099511628211u;
	return h;
}
