/* Files inside the sandbox. Any thread. Must never block on a FIFO or a device, so only regular files are opened, and
 * must never leave half a file where a whole one was. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "protect.h"

#define LINKS 40 /* followed at most, as the kernel does */

static int regular(int fd, const char *path, struct stat *st, struct err *err)
{
	if (fstat(fd, st))
		return err_sys(err, errno, "cannot look at %s", path);
	if (S_ISDIR(st->st_mode))
		return err_sys(err, EISDIR, "%s", path);
	return S_ISREG(st->st_mode) ? 0 : err_set(err, EINVAL, "%s is no regular file", path);
}

int files_stat(const char *path, struct env_stat *out, struct err *err)
{
	char *real = realpath(path, NULL);
	struct stat st;
	if (!real || stat(real, &st)) {
		int code = errno;
		free(real);
		return err_sys(err, code, "%s", path);
	}
	*out = (struct env_stat){.size = (uint64_t)st.st_size,
				 .mode = st.st_mode,
				 .mtime_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000,
				 .real = real};
	return 0;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

static uint64_t generation_of(const struct stat *st)
{
	uint64_t h = mix(mix(mix(1, st->st_dev), st->st_ino), (uint64_t)st->st_size);
	h = mix(mix(h, (uint64_t)st->st_mtim.tv_sec), (uint64_t)st->st_mtim.tv_nsec);
	return mix(mix(h, (uint64_t)st->st_ctim.tv_sec), (uint64_t)st->st_ctim.tv_nsec);
}

int files_read(const struct protection *no, const char *path, uint64_t offset, size_t max, struct buf *out,
	       uint64_t *size, uint64_t *generation, struct err *err)
{
	struct stat st;
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int rc = fd < 0 ? err_sys(err, errno, "%s", path) : regular(fd, path, &st, err);
	rc = rc ? rc : protect_fd(no->protect, no->list, fd, err);
	if (rc)
		return rc;
	buf_reserve(out, max);
	size_t done = 0;
	for (ssize_t n = 1; n && done < max; done += (size_t)n) {
		n = pread(fd, out->p + out->n + done, max - done, (off_t)(offset + done));
		if (n < 0)
			return err_sys(err, errno, "%s", path);
	}
	out->n += done;
	out->p[out->n] = 0;
	*size = (uint64_t)st.st_size;
	*generation = generation_of(&st);
	return 0;
}

static int make_parents(const char *path, struct err *err)
{
	CLEAN_FREE char *dir = xstrdup(path);
	char *slash = strrchr(dir, '/');
	if (!slash || slash == dir)
		return 0;
	*slash = 0;
	return dir_make(dir, 0755, err);
}

int files_remove(const char *path, struct err *err)
{
	return unlink(path) && errno != ENOENT ? err_sys(err, errno, "%s", path) : 0;
}

/* Where a write to path ends up: links are followed also when the last one points to nothing yet. */
static int follow_links(const char *path, char **out, struct err *err)
{
	CLEAN_FREE char *at = xstrdup(path);
	for (int i = 0; i < LINKS; i++) {
		char to[PATH_MAX];
		ssize_t n = readlink(at, to, sizeof to - 1);
		if (n < 0) {
			*out = take(at);
			return 0;
		}
		to[n] = 0;
		char *slash = strrchr(at, '/');
		if (slash)
			slash[1] = 0;
		char *next = *to == '/' ? xstrdup(to) : xasprintf("%s%s", at, to);
		free(at);
		at = next;
	}
	return err_sys(err, ELOOP, "%s", path);
}

/* Opens the folder of the target and finds its name there. */
static int open_dir(struct put *put, struct err *err)
{
	char *slash = strrchr(put->target, '/');
	CLEAN_FREE char *dir = xstrndup(put->target, slash == put->target ? 1 : (size_t)(slash - put->target));
	put->name = slash + 1;
	put->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (put->dir < 0)
		return err_sys(err, errno, "%s", put->target);
	return *put->name ? 0 : err_sys(err, EISDIR, "%s", put->target);
}

static int make_tmp(struct put *put)
{
	for (;;) {
		uint64_t random;
		if (getrandom(&random, sizeof random, 0) != sizeof random)
			return -errno;
		put->tmp = xasprintf(".berthfs-%016" PRIx64, random);
		put->fd = openat(put->dir, put->tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		int code = errno;
		if (put->fd >= 0)
			return 0;
		free(take(put->tmp));
		if (code != EEXIST)
			return -code;
	}
}

/* The temporary file, looking like the old one. -EACCES and its kin: the caller writes in place. */
static int open_tmp(struct put *put, const struct stat *old)
{
	struct stat st;
	int rc = make_tmp(put);
	if (rc)
		return rc;
	if (fstat(put->fd, &st) ||
	    (old && (st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
	     fchown(put->fd, old->st_uid, old->st_gid)) ||
	    fchmod(put->fd, old ? old->st_mode & 07777 : 0644))
		return -errno;
	return 0;
}

static bool wants_in_place(int rc)
{
	return rc == -EACCES || rc == -EPERM || rc == -EROFS || rc == -EBUSY;
}

/* Finds where the write goes to, and whether it may. */
static int find_target(struct put *put, const struct protection *no, const char *path, bool parents, struct err *err)
{
	int rc = parents ? make_parents(path, err) : 0;
	rc = rc ? rc : follow_links(path, &put->target, err);
	if (!rc && parents)
		rc = make_parents(put->target, err); /* a link may point to where nothing is yet */
	rc = rc ? rc : open_dir(put, err);
	return rc ? rc : protect_name(no->list, put->dir, put->name, err);
}

int files_append(const struct protection *no, const char *path, bool parents, const void *p, size_t n, struct err *err)
{
	struct put at = PUT_INIT;
	struct stat st;
	int rc = find_target(&at, no, path, parents, err);
	if (!rc) {
		at.fd = openat(at.dir, at.name,
			       O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
		rc = at.fd < 0 ? err_sys(err, errno, "%s", path) : regular(at.fd, path, &st, err);
	}
	rc = rc ? rc : protect_fd(no->protect, no->list, at.fd, err);
	if (!rc && ((rc = fd_write_full(at.fd, p, n)) || (rc = fsync(at.fd) ? -errno : 0)))
		err_sys(err, -rc, "%s", path);
	put_abort(&at);
	return rc;
}

/* The temporary file, or, where there can be none, the old file itself. Takes *old then. */
static int open_new(struct put *put, int *old, const struct stat *st, const char *path, struct err *err)
{
	int rc = open_tmp(put, st);
	if (!rc)
		return 0;
	if (!wants_in_place(rc) || *old < 0)
		return err_sys(err, -rc, "%s", path);
	if (put->tmp)
		unlinkat(put->dir, put->tmp, 0);
	free(take(put->tmp));
	fd_close(&put->fd);
	put->fd = take_fd(old);
	return ftruncate(put->fd, 0) ? err_sys(err, errno, "%s", path) : 0;
}

int put_begin(struct put *put, const struct protection *no, const char *path, bool parents, struct err *err)
{
	struct stat st;
	put_abort(put);
	int rc = find_target(put, no, path, parents, err);
	if (rc) {
		put_abort(put);
		return rc;
	}
	/* opened for writing as a question: the rename would replace even a file that may not be written */
	CLEAN_FD int old = openat(put->dir, put->name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	bool running = old < 0 && errno == ETXTBSY && /* can be replaced all the same */
		       !fstatat(put->dir, put->name, &st, AT_SYMLINK_NOFOLLOW);
	if (old < 0 && errno != ENOENT && !running)
		rc = err_sys(err, errno, "%s", path);
	else if (old >= 0)
		rc = regular(old, path, &st, err);
	if (!rc && old >= 0)
		rc = protect_fd(no->protect, no->list, old, err);
	rc = rc ? rc : open_new(put, &old, old >= 0 || running ? &st : NULL, path, err);
	if (rc)
		put_abort(put);
	return rc;
}

int put_data(struct put *put, const void *p, size_t n, struct err *err)
{
	if (put->fd < 0)
		return err_set(err, EBADF, "no file was begun");
	int rc = fd_write_full(put->fd, p, n);
	if (rc) {
		err_sys(err, -rc, "%s", put->target);
		put_abort(put);
	}
	return rc;
}

int put_end(struct put *put, struct err *err)
{
	if (put->fd < 0)
		return err_set(err, EBADF, "no file was begun");
	int rc = fsync(put->fd) || (put->tmp && renameat(put->dir, put->tmp, put->dir, put->name)) ? -errno : 0;
	if (rc)
		err_sys(err, -rc, "%s", put->target);
	else
		free(take(put->tmp));
	put_abort(put);
	return rc;
}

void put_abort(struct put *put)
{
	fd_close(&put->fd);
	if (put->tmp)
		unlinkat(put->dir, put->tmp, 0);
	fd_close(&put->dir);
	free(put->tmp);
	free(put->target);
	*put = PUT_INIT;
}
