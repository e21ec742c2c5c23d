/* The file that names a sandbox's gateway socket, and connections to that. Any thread; must never wait for the gateway.
 */
#include "net.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"

int net_note(const char *note, const char *socket, struct err *err)
{
	if (!socket)
		return (unlink(note) && errno != ENOENT) ? err_sys(err, errno, "cannot remove %s", note) : 0;
	if (*socket != '/' || strchr(socket, '\n') || strlen(socket) >= NET_PATH_MAX)
		return err_set(err, EINVAL, "\"%s\" is no absolute path of a socket", socket);
	CLEAN_FREE char *line = xasprintf("%s\n", socket);
	CLEAN_BUF struct buf old = BUF_INIT;
	if (!file_read(note, &old, NET_PATH_MAX, NULL) && !strcmp(buf_str(&old), line))
		return 0;
	return file_write(note, line, strlen(line), 0600, err);
}

int net_dial(const char *note)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	int rc = file_read(note, &b, NET_PATH_MAX, NULL);
	if (rc)
		return rc;
	CLEAN_FREE char *path = xstrndup(buf_str(&b), strcspn(buf_str(&b), "\n"));
	return unix_connect_now(path, NULL);
}
