/* cpio writer: bytes in memory only. */
#include "cpio.h"

#include <string.h>
#include <sys/stat.h>

static void pad(struct buf *out, size_t to)
{
	while (out->n % to)
		buf_addc(out, 0);
}

/* The kernel merges files with equal inode numbers if their link count is over 1; ours is 1, so 0 is fine for all. */
static void entry(struct buf *out, const char *path, unsigned mode, const void *data, size_t n)
{
	buf_addf(out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", 0, mode, 0, 0,
		 S_ISDIR(mode) ? 2 : 1, 0, (unsigned)n, 0, 0, 0, 0, (unsigned)strlen(path) + 1, 0);
	buf_add(out, path, strlen(path) + 1);
	pad(out, 4);
	buf_add(out, data, n);
	pad(out, 4);
}

void cpio_dir(struct buf *out, const char *path, mode_t mode)
{
	entry(out, path, S_IFDIR | mode, "", 0);
}

void cpio_file(struct buf *out, const char *path, mode_t mode, const void *data, size_t n)
{
	entry(out, path, S_IFREG | mode, data, n);
}

void cpio_end(struct buf *out)
{
	entry(out, "TRAILER!!!", 0, "", 0);
	pad(out, 512);
}
