/* Writes cpio archives in the form that the kernel reads as an initial ramdisk ("newc", cpio(5)). Pure; any thread. */
#pragma once
#include <stddef.h>
#include <sys/types.h>

#include "backend/base/buf.h"

/* Each call appends to out, which holds nothing but the archive. Paths are relative, without "./"; a file's folder
 * comes before it. Everything belongs to root and has no time, so that equal contents give equal bytes. */
void cpio_dir(struct buf *out, const char *path, mode_t mode);
void cpio_file(struct buf *out, const char *path, mode_t mode, const void *data, size_t n);
/* Ends an archive and pads it to 512 bytes; another may follow, the kernel unpacks them one after the other. */
void cpio_end(struct buf *out);
