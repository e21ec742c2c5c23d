/* The poker. The kernel tells watchers nothing of what a FUSE daemon changes by itself; it does tell them of what a
 * process does through the mount. This process does such things, and the daemon, which knows it by its pid, changes
 * nothing for it: setting the modification time to now gives MODIFY, and so on.
 *
 * It runs alone in a process, because the daemon must never wait for its own mount: a thread of the daemon that is in
 * a request when the daemon is killed cannot die, and the mount with it. For the same reason it has no descriptor of
 * /dev/fuse, and it holds none of the mount while it has nothing to do, for that would make the mount busy. */
#include "poker.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "poke.h"

/* The root of the mount, or -errno; -EXDEV if something else is there now: what lies below a mount that is detached
 * belongs to somebody else. No request goes to the daemon. */
static int open_root(const char *dir, const char *dev)
{
	struct statx st;
	char is[32];
	int fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int rc = statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) ? -errno : 0;
	if (!rc) {
		snprintf(is, sizeof is, "%u:%u", st.stx_dev_major, st.stx_dev_minor);
		rc = strcmp(is, dev) ? -EXDEV : 0;
	}
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

/* As a writer of the file would: OPEN, MODIFY, CLOSE_WRITE, for some watchers wait for the last alone. */
static int modify(int root, const char *path)
{
	/* The access time is left alone, or the kernel would call it a change of attributes. */
	static const struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
	int fd = openat(root, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	int rc = futimens(fd, now), code = errno;
	close(fd);
	errno = code;
	return rc;
}

static int act(int root, const struct poke_order *order)
{
	switch ((enum poke_what)order->what) {
	case POKE_NOTHING: return 0;
	case POKE_MODIFY: return modify(root, order->path);
	case POKE_MKNOD: return mknodat(root, order->path, S_IFREG | 0644, 0);
	case POKE_MKDIR: return mkdirat(root, order->path, 0755);
	case POKE_UNLINK: return unlinkat(root, order->path, 0);
	case POKE_RMDIR: return unlinkat(root, order->path, AT_REMOVEDIR);
	}
	errno = EINVAL;
	return -1;
}

void poker_run(int fd, const char *dir, const char *dev)
{
	struct poke_order order;
	int root = -ENOENT;
	for (;;) {
		ssize_t n = recv(fd, &order, sizeof order, root >= 0 ? MSG_DONTWAIT : 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && root >= 0) {
			close(root);
			root = -ENOENT;
			continue;
		}
		if (n < (ssize_t)offsetof(struct poke_order, path))
			return;
		order.path[sizeof order.path - 1] = 0;
		if (root < 0)
			root = open_root(dir, dev);
		struct poke_answer answer = {.tag = order.tag, .rc = root < 0 ? root : 0};
		if (root >= 0 && act(root, &order))
			answer.rc = -errno;
		if (send(fd, &answer, sizeof answer, MSG_NOSIGNAL) < 0)
			return;
	}
}
