/* Protected files. An opened descriptor knows its real path, so links, `..` and /proc/self/root lead nowhere; only a
 * hard link has an honest other name. A file with more than one is compared with the protected ones. Those are
 * found by a walk through the home, which is kept: to make or move a link changes an inode's ctime,
 * so the walk holds for each file that has not changed since. Any thread; acts with the calling thread's rights. */
#include "protect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/buf.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/guard.h"
#include "backend/base/mem.h"

#define DEPTH_MAX 64   /* folders below each other; a descriptor each */
#define WALK_MS	  5000 /* a longer walk is given up, and the file refused */
#define COARSE_MS 50   /* inode times are as coarse as the kernel's tick */
#define DELETED	  " (deleted)"

struct found {
	dev_t dev;
	ino_t ino;
	char *path;
};

struct protect {
	pthread_mutex_t lock; /* guards all below; held over a walk: a second one would find the same */
	char *home, *list;    /* list: of the walk */
	int64_t walked_ms;    /* CLOCK_REALTIME when the walk began, 0 = none */
	struct found *found;
	size_t n;
};

struct protect *protect_new(const char *home)
{
	struct protect *p = xcalloc(1, sizeof *p);
	pthread_mutex_init(&p->lock, NULL);
	p->home = xstrdup(home);
	return p;
}

static int refuse(const char *path, const char *pattern, struct err *err)
{
	return err_set(err, EACCES, "%s is protected (it matches %s); nothing of it is read or written by this tool",
		       path, pattern);
}

/* ---- the walk ---- */

struct walk {
	struct protect *p;
	const char *list;
	struct buf path;
	dev_t dev;
	int64_t end_ms;
};

static void note_file(struct walk *w, const struct stat *st)
{
	struct protect *p = w->p;
	if (!S_ISREG(st->st_mode) || !guard_match(w->list, buf_str(&w->path), NULL, 0))
		return;
	p->found = xrealloc(p->found, (p->n + 1) * sizeof *p->found);
	p->found[p->n++] = (struct found){st->st_dev, st->st_ino, xstrdup(buf_str(&w->path))};
}

/* Takes fd. False: it lasts too long. */
static bool walk_folder(struct walk *w, int fd, int depth)
{
	DIR *d = fdopendir(fd);
	bool ok = true;
	if (!d) {
		close(fd);
		return true;
	}
	size_t base = w->path.n;
	for (struct dirent *e; ok && (e = readdir(d));) {
		struct stat st;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		buf_addf(&w->path, "/%s", e->d_name);
		if (S_ISDIR(st.st_mode) && st.st_dev == w->dev && depth < DEPTH_MAX) {
			int sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			ok = sub < 0 || walk_folder(w, sub, depth + 1);
		} else {
			note_file(w, &st);
		}
		buf_cut(&w->path, base);
		ok = ok && clock_mono_ms() < w->end_ms;
	}
	closedir(d);
	return ok;
}

static void forget(struct protect *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->found[i].path);
	free(p->found);
	free(p->list);
	p->found = NULL;
	p->list = NULL;
	p->n = 0;
	p->walked_ms = 0;
}

static int walk(struct protect *p, const char *list, struct err *err)
{
	struct stat st;
	struct walk w = {.p = p, .list = list, .end_ms = clock_mono_ms() + WALK_MS};
	int64_t from = clock_real_ms();
	forget(p);
	int fd = open(p->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st)) {
		int code = errno;
		fd_close(&fd);
		return err_sys(err, code, "%s", p->home);
	}
	w.dev = st.st_dev;
	CLEAN_FREE char *real = realpath(p->home, NULL);
	buf_adds(&w.path, real ? real : p->home);
	bool whole = walk_folder(&w, fd, 0);
	buf_release(&w.path);
	if (!whole)
		return err_set(
			err, EACCES,
			"this file has several names, and there are too many files to tell in time whether one of "
			"them is protected: look at it with bash");
	p->list = xstrdup(list);
	p->walked_ms = from;
	return 0;
}

/* ---- judging ---- */

static int64_t ctime_ms(const struct stat *st)
{
	return (int64_t)st->st_ctim.tv_sec * 1000 + st->st_ctim.tv_nsec / 1000000;
}

static int other_name(struct protect *p, const char *list, const struct stat *st, struct err *err)
{
	int rc = 0;
	pthread_mutex_lock(&p->lock);
	bool fresh = p->walked_ms && !strcmp(p->list, list) && p->walked_ms <= clock_real_ms() &&
		     ctime_ms(st) < p->walked_ms - COARSE_MS;
	if (!fresh)
		rc = walk(p, list, err);
	for (size_t i = 0; i < p->n && !rc; i++) {
		char pattern[GUARD_WORD_MAX + 1] = "";
		if (p->found[i].dev != st->st_dev || p->found[i].ino != st->st_ino)
			continue;
		guard_match(list, p->found[i].path, pattern, sizeof pattern);
		rc = refuse(p->found[i].path, pattern, err);
	}
	pthread_mutex_unlock(&p->lock);
	return rc;
}

static int path_of(int fd, char path[PATH_MAX], struct err *err)
{
	char link[40];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, PATH_MAX - 1);
	if (n <= 0)
		return err_sys(err, n ? errno : ENOENT, "cannot tell the path of an opened file");
	path[n] = 0;
	return 0;
}

int protect_fd(struct protect *p, const char *list, int fd, struct err *err)
{
	char path[PATH_MAX], pattern[GUARD_WORD_MAX + 1] = "";
	struct stat st;
	if (!list || !*list)
		return 0;
	int rc = path_of(fd, path, err);
	if (!rc && fstat(fd, &st))
		rc = err_sys(err, errno, "%s", path);
	if (rc)
		return rc;
	size_t n = strlen(path), k = strlen(DELETED);
	bool gone =
		n > k && !strcmp(path + n - k, DELETED); /* its name was taken away since; another one may be left */
	if (guard_match(list, path, pattern, sizeof pattern))
		return refuse(path, pattern, err);
	return st.st_nlink > 1 || gone ? other_name(p, list, &st, err) : 0;
}

int protect_name(const char *list, int dir, const char *name, struct err *err)
{
	char path[PATH_MAX], pattern[GUARD_WORD_MAX + 1] = "";
	if (!list || !*list)
		return 0;
	int rc = path_of(dir, path, err);
	if (rc)
		return rc;
	CLEAN_FREE char *full = xasprintf("%s/%s", strcmp(path, "/") ? path : "", name);
	return guard_match(list, full, pattern, sizeof pattern) ? refuse(full, pattern, err) : 0;
}
