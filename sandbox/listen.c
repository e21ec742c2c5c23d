/* Where the processes between a sandbox and the daemon listen, and their way to the gateway. Must never wait for it. */
#include "listen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "net.h"

int listen_noted(const char *folder, char **socket, int *listener, struct err *err)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *note = xasprintf("%s/socket", folder);
	int rc = file_read(note, &b, 4096, err);
	if (rc)
		return rc;
	CLEAN_FREE char *path = xstrndup(buf_str(&b), strcspn(buf_str(&b), "\n"));
	CLEAN_FD int fd = unix_listen(path, 0600, err);
	rc = fd < 0 ? fd : fd_nonblock(fd);
	if (rc)
		return rc;
	if (*socket && strcmp(*socket, path) != 0)
		unlink(*socket);
	free(*socket);
	*socket = take(path);
	fd_close(listener);
	*listener = take_fd(&fd);
	return 0;
}

int listen_net(const char *kind, const char *note, const char *what, bool *failed)
{
	if (strcmp(kind, "net") != 0)
		return -EPROTONOSUPPORT;
	int fd = net_dial(note);
	if (fd < 0 && !*failed)
		log_warn("a connection of the %s to the gateway is refused: %s", what,
			 file_exists(note) ? strerror(-fd) : "it has none");
	*failed = fd < 0;
	return fd;
}
