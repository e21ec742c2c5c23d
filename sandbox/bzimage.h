/* Takes the ELF kernel out of a bzImage, since QEMU's microvm boots an ELF kernel (PVH) without real-mode code and
 * without decompressing it in the guest at each boot. Pure; any thread. */
#pragma once
#include <stddef.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

struct bzimage_payload {
	size_t offset, length;	 /* of the compressed kernel in the image, without the size that follows it */
	size_t size;		 /* what it unpacks to; 0: unknown (gzip carries it inside) */
	const char *unpacker[4]; /* program that unpacks it from stdin to stdout; all NULL: lz4, which is done here */
};

/* Finds the payload by the setup header (Linux Documentation/arch/x86/boot.rst, protocol 2.08 and later).
 * -EINVAL: no bzImage, or packed in a way that is not known. */
int bzimage_payload(const void *image, size_t n, struct bzimage_payload *out, struct err *err);
/* Unpacks the "legacy" lz4 frame that the kernel's build makes: magic, then blocks of u32 length and data, each at
 * most 8 MiB unpacked. Appends to out; -EFBIG over max bytes, -EINVAL for damaged data. */
int lz4_unpack(const void *packed, size_t n, size_t max, struct buf *out, struct err *err);
/* All together; runs the unpacker where one is needed. out gets the ELF file. */
int bzimage_extract(const void *image, size_t n, struct buf *out, struct err *err);
