/* How much of the machine's disk a container takes, and that it is not too much. No file system lets an ordinary user
 * set a limit for a folder, so what lies in it is added up, as often as it could have become too much: a process of its
 * own, child of the keeper and gone with it, tells the program inside. One thread. Must never follow a link, leave the
 * container's folder or write anything. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "box.h"

#define MS_BYTES   (2ULL << 20) /* written in a millisecond by a very fast disk */
#define LOOK_MIN   250
#define LOOK_MAX   30000
#define WALK_SHARE 20		/* walking through takes at most one part of so many of the time */
#define GROWTH	   (4ULL << 20) /* on a full disk: output of commands that remove files, and little else */
#define WALK_MS	   120000	/* the longest that a change of the free space goes unexplained */

/* A folder on the way down, with the folders in it that are still to be seen. */
struct level {
	char **names;
	size_t n, at;
	ino_t ino;
};

struct walk {
	struct level *levels;
	size_t n;
	dev_t dev;
	uint64_t bytes;
};

static void pop(struct walk *w)
{
	struct level *l = &w->levels[--w->n];
	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
}

/* Adds up the working directory's files, and goes on with its folders. A file of several names is counted in parts. */
static void push(struct walk *w, const struct stat *self)
{
	w->levels = xrealloc(w->levels, (w->n + 1) * sizeof *w->levels);
	struct level *l = &w->levels[w->n++];
	*l = (struct level){.ino = self->st_ino};
	DIR *d = opendir(".");
	struct stat st;
	for (struct dirent *e; d && (e = readdir(d));) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || st.st_dev != w->dev)
			continue;
		bool folder = S_ISDIR(st.st_mode);
		w->bytes += (uint64_t)st.st_blocks * 512 / (folder || !st.st_nlink ? 1 : st.st_nlink);
		if (!folder)
			continue;
		l->names = xrealloc(l->names, (l->n + 1) * sizeof *l->names);
		l->names[l->n++] = xstrdup(e->d_name);
	}
	if (d)
		closedir(d);
}

/* Folders may be moved and removed meanwhile: the one that we stand in then is the one that was meant, or none. */
static bool enter(struct walk *w, const char *name)
{
	struct stat st;
	CLEAN_FD int fd = open(name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || st.st_dev != w->dev || fchdir(fd))
		return false;
	push(w, &st);
	return true;
}

static bool leave(struct walk *w)
{
	struct stat st;
	pop(w);
	return !w->n ||
	       (!chdir("..") && !stat(".", &st) && st.st_dev == w->dev && st.st_ino == w->levels[w->n - 1].ino);
}

/* Bytes below a folder; paths may be longer than the kernel takes at once. -EAGAIN: it was changed too much meanwhile.
 */
static int add_up(const char *root, uint64_t *bytes)
{
	struct walk w = {0};
	struct stat st;
	bool whole = !chdir(root) && !stat(".", &st);
	w.dev = whole ? st.st_dev : 0;
	if (whole)
		push(&w, &st);
	while (w.n && whole) {
		struct level *l = &w.levels[w.n - 1];
		if (l->at < l->n)
			enter(&w, l->names[l->at++]);
		else
			whole = leave(&w);
	}
	while (w.n)
		pop(&w);
	free(w.levels);
	*bytes = w.bytes;
	return whole && !chdir("/") ? 0 : -EAGAIN;
}

struct meter {
	const struct box_disk *d;
	uint64_t base;	    /* of the image, where root/ is a copy of it */
	uint64_t used;	    /* when it was last walked through */
	uint64_t told;	    /* what it was when the program inside was last told that it is too much */
	uint64_t available; /* of the file system, then */
	int64_t walked_ms, took_ms;
	bool full;
};

static uint64_t available(const char *folder)
{
	struct statvfs v;
	return statvfs(folder, &v) ? 0 : (uint64_t)v.f_bavail * v.f_frsize;
}

static uint64_t left(const struct meter *m)
{
	return m->used < m->d->limit ? m->d->limit - m->used : 0;
}

/* Whether it could be too much by now, or no longer. */
static bool is_due(const struct meter *m, int64_t now, uint64_t free_now)
{
	uint64_t gone = m->available > free_now ? m->available - free_now : 0;
	return m->full || !m->walked_ms || gone >= left(m) / 4 + 1 ||
	       (free_now != m->available && now - m->walked_ms >= WALK_MS);
}

static void tell(const struct meter *m, const char *word)
{
	send(m->d->tell, word, strlen(word), MSG_NOSIGNAL);
}

/* asked: an answer is waited for. */
static void look(struct meter *m, bool asked)
{
	int64_t now = clock_mono_ms();
	uint64_t free_now = available(m->d->root), used;
	if (!asked && !is_due(m, now, free_now))
		return;
	int rc = add_up(m->d->root, &used);
	int64_t end = clock_mono_ms();
	m->took_ms = end - now;
	if (!rc) {
		m->walked_ms = end;
		m->available = free_now;
		m->used = used > m->base ? used - m->base : 0;
	}
	bool full = rc ? m->full : m->used > m->d->limit;
	bool more = full && (!m->full || m->used > m->told + GROWTH);
	if (more)
		m->told = m->used;
	if (more || asked || m->full != full)
		tell(m, more ? BOX_FULL : full ? BOX_STILL : BOX_ROOM);
	m->full = full;
}

static int64_t next_ms(const struct meter *m)
{
	int64_t ms = m->full ? LOOK_MIN : (int64_t)(left(m) / MS_BYTES);
	ms = ms < m->took_ms * WALK_SHARE ? m->took_ms * WALK_SHARE : ms;
	return ms < LOOK_MIN ? LOOK_MIN : ms > LOOK_MAX ? LOOK_MAX : ms;
}

/* Root over the user's own files: what is inside may have closed folders to everybody. */
static void open_folders(void)
{
	if (geteuid())
		box_namespaces();
}

static void watch(const struct box_disk *d, pid_t keeper)
{
	struct meter m = {.d = d};
	int tell_fd = d->tell;
	close_range(3, (unsigned)tell_fd - 1, 0);
	close_range((unsigned)tell_fd + 1, ~0U, 0);
	open_folders();
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* entering a user namespace takes it back */
	if (getppid() != keeper)
		return;
	if (d->base && add_up(d->base, &m.base))
		m.base = 0;
	/* another one before may have told the program inside something else */
	for (bool asked = true;;) {
		char word[16];
		look(&m, asked);
		struct pollfd p = {.fd = tell_fd, .events = POLLIN};
		asked = poll(&p, 1, (int)next_ms(&m)) > 0;
		if (asked && recv(tell_fd, word, sizeof word, MSG_DONTWAIT) <= 0)
			return; /* what was inside has ended */
	}
}

/* The caller may have threads: this process has one, and of what a fork may leave in disorder it needs memory alone,
 * which the C library sees to. */
pid_t box_disk_watch(const struct box_disk *d)
{
	pid_t keeper = getpid(), pid = fork();
	if (pid)
		return pid;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	watch(d, keeper);
	_exit(0);
}
