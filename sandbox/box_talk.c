/* One request to a container. Blocks, at most for the time that it is given. Holds nothing between calls. */
#include "box_talk.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/buf.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"

#define LINE_MAX_BYTES 600

/* Byte by byte, since what follows is not ours. */
static int read_line(int fd, int64_t end, struct buf *line, struct err *err)
{
	for (;;) {
		char c;
		int64_t left = end - clock_mono_ms();
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (left <= 0)
			return err_set(err, ETIMEDOUT, "the container does not answer");
		if (poll(&p, 1, (int)left) <= 0)
			continue;
		ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0 || line->n == LINE_MAX_BYTES)
			return err_set(err, ENOTCONN, "the container has ended");
		if (c == '\n')
			return 0;
		buf_addc(line, c);
	}
}

int box_request(const char *socket, const char *line, int ms, struct buf *more, struct err *err)
{
	CLEAN_BUF struct buf answer = BUF_INIT;
	int64_t end = clock_mono_ms() + ms;
	CLEAN_FD int fd = unix_connect(socket, NULL);
	if (fd < 0)
		return err_set(err, ENOTCONN, "the container is not running");
	if (fd_write_full(fd, line, strlen(line)))
		return err_set(err, ENOTCONN, "the container has ended");
	int rc = read_line(fd, end, &answer, err);
	const char *words = buf_str(&answer);
	if (!rc && strncmp(words, "ok", 2) != 0)
		rc = err_set(err, EIO, "%s", !strncmp(words, "error ", 6) ? words + 6 : words);
	if (!rc && more)
		buf_adds(more, words + 2);
	return rc ? rc : take_fd(&fd);
}
