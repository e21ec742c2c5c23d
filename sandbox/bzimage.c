/* bzImage to ELF kernel. Works on bytes in memory; starts at most one unpacker program; must never trust a length
 * that it read. */
#include "bzimage.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "backend/base/child.h"

#define SETUP_MAGIC    0x202 /* "HdrS" */
#define SETUP_VERSION  0x206 /* u16; 2.08 brought payload_offset */
#define SETUP_SECTORS  0x1f1 /* u8; 0 means 4 */
#define PAYLOAD_OFFSET 0x248 /* u32, from the start of the protected-mode code */
#define PAYLOAD_LENGTH 0x24c /* u32 */
#define KERNEL_MAX     (256u << 20)
#define LZ4_BLOCK_MAX  (8u << 20)
#define LZ4_MAGIC      0x184c2102u

static uint32_t le32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Every packing but gzip is followed by four bytes: the unpacked size. */
static const struct packing {
	const char *magic;
	size_t magic_n;
	bool sized;
	const char *unpacker[4];
} packings[] = {
	{"\x02\x21\x4c\x18", 4, true, {NULL}},
	{"\xfd"
	 "7zXZ",
	 5,
	 true,
	 {"xz", "-dc", NULL}},
	{"\x28\xb5\x2f\xfd", 4, true, {"zstd", "-dcq", NULL}},
	{"\x1f\x8b", 2, false, {"gzip", "-dc", NULL}},
};

int bzimage_payload(const void *image, size_t n, struct bzimage_payload *out, struct err *err)
{
	const uint8_t *p = image;
	if (n < 0x260 || memcmp(p + SETUP_MAGIC, "HdrS", 4))
		return err_set(err, EINVAL, "the kernel is no bzImage");
	unsigned version = p[SETUP_VERSION] | p[SETUP_VERSION + 1] << 8;
	if (version < 0x208)
		return err_set(err, EINVAL, "the kernel's boot protocol %u.%02u is too old", version >> 8,
			       version & 0xff);
	uint64_t setup = ((uint64_t)(p[SETUP_SECTORS] ? p[SETUP_SECTORS] : 4) + 1) * 512;
	uint64_t start = setup + le32(p + PAYLOAD_OFFSET), length = le32(p + PAYLOAD_LENGTH);
	if (length < 16 || start + length > n)
		return err_set(err, EINVAL, "the kernel file is cut short");
	for (size_t i = 0; i < sizeof packings / sizeof packings[0]; i++) {
		const struct packing *k = &packings[i];
		if (memcmp(p + start, k->magic, k->magic_n))
			continue;
		*out = (struct bzimage_payload){.offset = start, .length = length - (k->sized ? 4 : 0)};
		if (k->sized)
			out->size = le32(p + start + length - 4);
		memcpy(out->unpacker, k->unpacker, sizeof out->unpacker);
		return 0;
	}
	return err_set(err, EINVAL, "the kernel is packed in a way that is not known (%02x %02x %02x %02x)", p[start],
		       p[start + 1], p[start + 2], p[start + 3]);
}

/* A length of 15 in a token goes on in the bytes that follow, until one is not 255. */
static int lz4_length(const uint8_t **at, const uint8_t *end, size_t *n)
{
	if (*n < 15)
		return 0;
	for (;;) {
		if (*at == end)
			return -EINVAL;
		uint8_t more = *(*at)++;
		*n += more;
		if (more < 255)
			return 0;
	}
}

/* One block: sequences of literals and a match in what the block has unpacked so far; the last has no match. */
static int lz4_block(const uint8_t *at, const uint8_t *end, struct buf *out)
{
	size_t base = out->n;
	while (at < end) {
		uint8_t token = *at++;
		size_t literals = token >> 4, match = token & 15;
		if (lz4_length(&at, end, &literals) || literals > (size_t)(end - at) ||
		    out->n - base + literals > LZ4_BLOCK_MAX)
			return -EINVAL;
		buf_add(out, at, literals);
		at += literals;
		if (at == end)
			return 0;
		if (end - at < 2)
			return -EINVAL;
		size_t distance = at[0] | (size_t)at[1] << 8;
		at += 2;
		if (lz4_length(&at, end, &match))
			return -EINVAL;
		match += 4; /* the shortest match */
		if (!distance || distance > out->n - base || out->n - base + match > LZ4_BLOCK_MAX)
			return -EINVAL;
		buf_reserve(out, match);
		char *to = out->p + out->n;
		for (size_t i = 0; i < match; i++) /* may overlap itself: that repeats */
			to[i] = to[(ptrdiff_t)i - (ptrdiff_t)distance];
		out->n += match;
		out->p[out->n] = 0;
	}
	return 0;
}

int lz4_unpack(const void *packed, size_t n, size_t max, struct buf *out, struct err *err)
{
	const uint8_t *at = packed, *end = at + n;
	size_t base = out->n;
	if (n < 8 || le32(at) != LZ4_MAGIC)
		return err_set(err, EINVAL, "no lz4 data");
	at += 4;
	while (at < end) {
		if (end - at < 4)
			return err_set(err, EINVAL, "the lz4 data is cut short");
		uint32_t block = le32(at);
		at += 4;
		if (block == LZ4_MAGIC) /* frames may follow each other */
			continue;
		if (block > (size_t)(end - at) || lz4_block(at, at + block, out))
			return err_set(err, EINVAL, "the lz4 data is damaged");
		at += block;
		if (out->n - base > max)
			return err_set(err, EFBIG, "the lz4 data unpacks to more than %zu MiB", max >> 20);
	}
	return 0;
}

int bzimage_extract(const void *image, size_t n, struct buf *out, struct err *err)
{
	struct bzimage_payload load;
	int rc = bzimage_payload(image, n, &load, err);
	if (rc)
		return rc;
	const char *packed = (const char *)image + load.offset;
	if (!load.unpacker[0]) {
		rc = lz4_unpack(packed, load.length, KERNEL_MAX, out, err);
	} else {
		struct child c = {.argv = load.unpacker,
				  .in = packed,
				  .in_n = load.length,
				  .out = out,
				  .max = KERNEL_MAX,
				  .timeout_ms = 120000};
		rc = child_run(&c, err);
		if (rc == -ENOENT)
			return err_set(err, ENOENT, "the kernel is packed with %s: install the package %s",
				       load.unpacker[0],
				       !strcmp(load.unpacker[0], "xz") ? "xz-utils" : load.unpacker[0]);
		if (rc > 0)
			rc = err_set(err, EINVAL, "%s cannot unpack the kernel", load.unpacker[0]);
	}
	if (rc)
		return rc;
	if (out->n < 4 ||
	    memcmp(out->p,
		   "\x7f"
		   "ELF",
		   4) ||
	    (load.size && out->n != load.size))
		return err_set(err, EINVAL, "what the kernel file unpacks to is no ELF kernel (%zu bytes)", out->n);
	return 0;
}
