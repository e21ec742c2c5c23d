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

/* ---- removing a tree ----
 *
 * Whoever made it may have meant harm: it can be deeper than there are descriptors, or bytes of a stack. So the way
 * down is a list, of which the last few folders alone are open; the others are opened again from below, and have to be
 * the same ones. */

#define OPEN_LEVELS 32

struct level {
	DIR *dir;   /* NULL: closed meanwhile */
	char *name; /* in the level above */
	ino_t ino;
};

struct removal {
	struct level *level;
	size_t n, cap;
	dev_t dev;
};

/* Goes down into a folder that lies in dirfd. */
static int level_push(struct removal *r, int dirfd, const char *name)
{
	struct stat st;
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == EACCES && !fchmodat(dirfd, name, 0700, 0))
		fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int rc = fstat(fd, &st) ? -errno : r->n && st.st_dev != r->dev ? -EXDEV : 0;
	if (!rc && (st.st_mode & 0700) != 0700)
		fchmod(fd, 0700);
	DIR *dir = rc ? NULL : fdopendir(fd);
	if (!dir) {
		rc = rc ? rc : -errno;
		close(fd);
		return rc;
	}
	if (r->n == r->cap)
		r->level = xrealloc(r->level, (r->cap = r->cap * 2 + 16) * sizeof *r->level);
	r->dev = st.st_dev;
	r->level[r->n++] = (struct level){dir, xstrdup(name), st.st_ino};
	if (r->n > OPEN_LEVELS && r->level[r->n - 1 - OPEN_LEVELS].dir) {
		closedir(r->level[r->n - 1 - OPEN_LEVELS].dir);
		r->level[r->n - 1 - OPEN_LEVELS].dir = NULL;
	}
	return 0;
}

static void level_free(struct removal *r)
{
	struct level *l = &r->level[--r->n];
	if (l->dir)
		closedir(l->dir);
	free(l->name);
}

/* Opens the level above the last one again. */
static int level_reopen(struct removal *r)
{
	struct level *above = &r->level[r->n - 2];
	struct stat st;
	int fd = openat(dirfd(r->level[r->n - 1].dir), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int rc = fstat(fd, &st) ? -errno : st.st_dev != r->dev || st.st_ino != above->ino ? -ESTALE : 0;
	above->dir = rc ? NULL : fdopendir(fd);
	if (above->dir)
		return 0;
	rc = rc ? rc : -errno;
	close(fd);
	return rc;
}

/* The last level is empty: removes it from the one above, which is `top` for the first. */
static int level_pop(struct removal *r, int top)
{
	int rc = r->n > 1 && !r->level[r->n - 2].dir ? level_reopen(r) : 0;
	if (rc)
		return rc;
	int above = r->n > 1 ? dirfd(r->level[r->n - 2].dir) : top;
	rc = unlinkat(above, r->level[r->n - 1].name, AT_REMOVEDIR) && errno != ENOENT ? -errno : 0;
	level_free(r);
	return rc;
}

/* Removes one entry, or goes down into it. */
static int remove_entry(struct removal *r, int dirfd, const char *name)
{
	struct stat st;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(dirfd, name, 0) && errno != ENOENT ? -errno : 0;
	int rc = level_push(r, dirfd, name);
	return rc == -ENOENT ? 0 : rc;
}

static int remove_tree(const char *path)
{
	struct removal r = {0};
	int rc = remove_entry(&r, AT_FDCWD, path);
	while (!rc && r.n) {
		DIR *dir = r.level[r.n - 1].dir;
		struct dirent *e = readdir(dir);
		if (!e)
			rc = level_pop(&r, AT_FDCWD);
		else if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			rc = remove_entry(&r, dirfd(dir), e->d_name);
	}
	while (r.n)
		level_free(&r);
	free(r.level);
	return rc;
}

int dir_remove(const char *path, struct err *err)
{
	int rc = remove_tree(path);
	return rc ? err_sys(err, -rc, "cannot remove %s", path) : 0;
}

/* ---- adding up a tree, which can be as deep ---- */

/* A folder on the way down, with the folders in it that are still to be seen. */
struct seen {
	char **name;
	size_t n, at;
	ino_t ino;
};

struct sum {
	struct seen *seen;
	size_t n;
	dev_t dev;
	uint64_t bytes;
	int fd; /* of the last folder */
};

static void sum_leave(struct sum *s)
{
	struct seen *l = &s->seen[--s->n];
	for (size_t i = 0; i < l->n; i++)
		free(l->name[i]);
	free(l->name);
}

static int sum_enter(struct sum *s, int dirfd_or_cwd, const char *name)
{
	struct stat st;
	int fd = openat(dirfd_or_cwd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int copy = fd < 0 || fstat(fd, &st) || (s->n && st.st_dev != s->dev) ? -1 : dup(fd);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	if (!d) {
		int rc = -errno;
		fd_close(&copy);
		fd_close(&fd);
		return rc;
	}
	fd_close(&s->fd);
	s->fd = fd;
	s->dev = st.st_dev;
	s->seen = xrealloc(s->seen, (s->n + 1) * sizeof *s->seen);
	struct seen *l = &s->seen[s->n++];
	*l = (struct seen){.ino = st.st_ino};
	for (struct dirent *e; (e = readdir(d));) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) || st.st_dev != s->dev)
			continue;
		s->bytes += (uint64_t)st.st_blocks * 512;
		if (!S_ISDIR(st.st_mode))
			continue;
		l->name = xrealloc(l->name, (l->n + 1) * sizeof *l->name);
		l->name[l->n++] = xstrdup(e->d_name);
	}
	closedir(d);
	return 0;
}

/* Back to the folder above, unless this one has been moved. */
static int sum_return(struct sum *s)
{
	struct stat st;
	sum_leave(s);
	if (!s->n)
		return 0;
	int fd = openat(s->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd_close(&s->fd);
	s->fd = fd;
	return fd < 0 || fstat(fd, &st) || st.st_dev != s->dev || st.st_ino != s->seen[s->n - 1].ino ? -EAGAIN : 0;
}

int dir_bytes(const char *path, uint64_t *bytes)
{
	struct sum s = {.fd = -1};
	int rc = sum_enter(&s, AT_FDCWD, path);
	while (!rc && s.n) {
		struct seen *l = &s.seen[s.n - 1];
		if (l->at < l->n)
			sum_enter(&s, s.fd, l->name[l->at++]); /* one that is gone, or closed to us, has none */
		else
			rc = sum_return(&s);
	}
	while (s.n)
		sum_leave(&s);
	free(s.seen);
	fd_close(&s.fd);
	*bytes = s.bytes;
	return rc;
}
