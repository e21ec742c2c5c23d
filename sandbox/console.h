/* The serial console of one VM: its last bytes in memory, and a bounded file. Keeper's thread only. */
#pragma once
#include <stddef.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

struct console {
	int fd;	  /* pipe from QEMU, non-blocking; -1 at its end */
	int file; /* console.log; -1: could not be made, or the disk is full */
	size_t written;
	struct buf tail;
};

/* Takes fd; starts the file anew. */
void console_init(struct console *c, int fd, const char *path);
void console_release(struct console *c);
void console_read(struct console *c); /* all there is at the moment */
