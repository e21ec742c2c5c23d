/* Descriptors and files. Any thread. */
#include "fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"

void fd_close(int *fd)
{
	int keep = errno;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = keep;
}

int fd_read_full(int fd, void *p, size_t n)
{
	for (char *at = p; n;) {
		ssize_t r = read(fd, at, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r ? -errno : -EPIPE;
		at += r;
		n -= (size_t)r;
	}
	return 0;
}

int fd_write_full(int fd, const void *p, size_t n)
{
	bool socket = true;
	for (const char *at = p; n;) {
		ssize_t r = socket ? send(fd, at, n, MSG_NOSIGNAL) : write(fd, at, n);
		if (r < 0 && errno == ENOTSOCK && socket) {
			socket = false;
			continue;
		}
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		at += r;
		n -= (size_t)r;
	}
	return 0;
}

int fd_read_all(int fd, struct buf *out, size_t max)
{
	for (size_t got = 0;;) {
		buf_reserve(out, 16384);
		ssize_t r = read(fd, out->p + out->n, 16384);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		got += (size_t)r;
		if (got > max)
			return -EFBIG;
		out->n += (size_t)r;
		out->p[out->n] = 0;
		if (!r)
			return 0;
	}
}

int fd_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

int file_read(const char *path, struct buf *out, size_t max, struct err *err)
{
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "cannot open %s", path);
	int rc = fd_read_all(fd, out, max);
	return rc ? err_sys(err, -rc, "cannot read %s", path) : 0;
}

/* Makes a rename durable: the folder itself has to be synced. */
static int sync_parent(const char *path)
{
	CLEAN_FREE char *dir = xstrdup(path);
	char *slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = 0;
	CLEAN_FD int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 || fsync(fd) ? -errno : 0;
}

int file_write(const char *path, const void *data, size_t n, mode_t mode, struct err *err)
{
	CLEAN_FREE char *tmp = xasprintf("%s.tmp-%d", path, (int)gettid());
	CLEAN_FD int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0)
		return err_sys(err, errno, "cannot write %s", tmp);
	int rc = fd_write_full(fd, data, n);
	if (!rc && (fchmod(fd, mode) || fsync(fd) || rename(tmp, path)))
		rc = -errno;
	if (!rc)
		rc = sync_parent(path);
	if (rc) {
		unlink(tmp);
		return err_sys(err, -rc, "cannot write %s", path);
	}
	return 0;
}

int file_rename(const char *from, const char *to, struct err *err)
{
	int rc = rename(from, to) ? -errno : sync_parent(to);
	return rc ? err_sys(err, -rc, "cannot rename %s to %s", from, to) : 0;
}

int file_remove(const char *path, struct err *err)
{
	if (unlink(path) && errno == ENOENT)
		return 0;
	int rc = file_exists(path) ? -errno : sync_parent(path);
	return rc ? err_sys(err, -rc, "cannot remove %s", path) : 0;
}

bool file_exists(const char *path)
{
	struct stat st;
	return !stat(path, &st);
}

int dir_make(const char *path, mode_t mode, struct err *err)
{
	CLEAN_FREE char *p = xstrdup(path);
	for (char *s = p + 1; (s = strchr(s, '/')); s++) {
		*s = 0;
		if (mkdir(p, 0755) && errno != EEXIST)
			return err_sys(err, errno, "cannot make the folder %s", p);
		*s = '/';
	}
	if (mkdir(p, mode) && errno != EEXIST)
		return err_sys(err, errno, "cannot make the folder %s", p);
	return 0;
}

static int remove_at(int dirfd, const char *name, dev_t dev)
{
	struct stat st;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(dirfd, name, 0) && errno != ENOENT ? -errno : 0;
	if (dev && st.st_dev != dev)
		return -EXDEV;
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == EACCES && !fchmodat(dirfd, name, 0700, 0))
		fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if ((st.st_mode & 0700) != 0700)
		fchmod(fd, 0700);
	DIR *d = fdopendir(fd);
	if (!d) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	int rc = 0;
	for (struct dirent *e; !rc && (e = readdir(d));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			rc = remove_at(fd, e->d_name, st.st_dev);
	closedir(d);
	if (!rc && unlinkat(dirfd, name, AT_REMOVEDIR) && errno != ENOENT)
		rc = -errno;
	return rc;
}

int dir_remove(const char *path, struct err *err)
{
	int rc = remove_at(AT_FDCWD, path, 0);
	return rc ? err_sys(err, -rc, "cannot remove %s", path) : 0;
}
