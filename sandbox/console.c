/* Keeps what a VM prints. A guest may print without end: memory and file are bounded; must never block or fail the
 * keeper (a full disk only costs the file). */
#include "console.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "keeper.h"

#define FILE_MAX (256 * 1024)

void console_init(struct console *c, int fd, const char *path)
{
	*c = (struct console){.fd = fd, .file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600)};
	fd_nonblock(fd);
}

void console_release(struct console *c)
{
	fd_close(&c->fd);
	fd_close(&c->file);
	buf_release(&c->tail);
}

static void keep(struct console *c, const char *p, size_t n)
{
	buf_add(&c->tail, p, n);
	if (c->tail.n > 2 * KEEPER_CONSOLE_TAIL)
		buf_drop(&c->tail, c->tail.n - KEEPER_CONSOLE_TAIL);
	if (c->file < 0)
		return;
	if (c->written + n > FILE_MAX) { /* starts again with the tail, which has p already */
		if (ftruncate(c->file, 0))
			return;
		c->written = 0;
		p = c->tail.p;
		n = c->tail.n;
	}
	if (!fd_write_full(c->file, p, n))
		c->written += n;
}

void console_read(struct console *c)
{
	char room[16384];
	for (int turns = 0; c->fd >= 0 && turns < 8; turns++) {
		ssize_t n = read(c->fd, room, sizeof room);
		if (n > 0)
			keep(c, room, (size_t)n);
		else if (n < 0 && errno == EINTR)
			continue;
		else if (n < 0 && errno == EAGAIN)
			return;
		else
			fd_close(&c->fd);
	}
}
