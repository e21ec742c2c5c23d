/* Who still holds an open file? A file of the mount is known by its inode number, which /proc/PID/fdinfo/N tells since
 * Linux 5.14 without following any link. Not every process is looked at: only the flusher, the opener, those that
 * wrote, and every pid born since the open, since a descriptor reaches others by inheritance. (Those that got it over a
 * socket are missed unless they write.)
 *
 * The worker threads run holder_look() and nothing else; writers_*() run on the loop, where the calling thread is stuck
 * in its own system call and so cannot vanish. */
#include "holder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"

#define ROUNDS_MAX  8	 /* looks at newly born pids before giving up */
#define RANGE_MAX   4096 /* pids probed one by one; above that /proc is listed */
#define WRITERS_MAX 64	 /* processes remembered of one open file; more make it untellable */
#define DEPTH_MAX   64	 /* ancestors that are looked at */
#define THREADS	    2
#define STEP_MS	    5

/* ---- what the loop keeps ---- */

/* Reads a small file of /proc into out; bytes read, or -errno. */
static ssize_t slurp(const char *path, char *out, size_t size)
{
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, out, size - 1);
	if (n < 0)
		return -errno;
	out[n] = 0;
	return n;
}

static pid_t newest_pid(void)
{
	char text[128];
	if (slurp("/proc/loadavg", text, sizeof text) <= 0)
		return 0;
	const char *last = strrchr(text, ' ');
	return last ? (pid_t)atoi(last + 1) : 0;
}

static pid_t process_of(pid_t tid)
{
	char path[64], text[1024];
	snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
	if (slurp(path, text, sizeof text) <= 0)
		return tid;
	const char *at = strstr(text, "\nTgid:");
	return at ? (pid_t)atoi(at + 6) : tid;
}

static int64_t ticks_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * sysconf(_SC_CLK_TCK) + t.tv_nsec / (1000000000 / sysconf(_SC_CLK_TCK));
}

void writers_init(struct writers *w, pid_t tid)
{
	*w = (struct writers){.last_pid = newest_pid(), .opened_ticks = ticks_now()};
	writers_note(w, tid);
}

void writers_note(struct writers *w, pid_t tid)
{
	if (tid == w->last_tid && w->n)
		return;
	if (tid <= 0 || w->n == WRITERS_MAX) {
		w->foreign = true;
		return;
	}
	w->last_tid = tid;
	pid_t pid = process_of(tid);
	for (size_t i = 0; i < w->n; i++)
		if (w->pid[i] == pid)
			return;
	w->pid = xrealloc(w->pid, (w->n + 1) * sizeof *w->pid);
	w->pid[w->n++] = pid;
}

void writers_release(struct writers *w)
{
	free(w->pid);
	*w = (struct writers){0};
}

/* ---- the look itself ---- */

struct look {
	const struct writers *w;
	pid_t flusher;
	char wanted[48];  /* the line of fdinfo */
	int64_t until_ms; /* who may not be looked at is waited for till then */
};

struct born {
	pid_t parent;
	int64_t ticks; /* since boot */
};

/* False if the process is gone. */
static bool born(pid_t pid, struct born *out)
{
	char path[64], text[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (slurp(path, text, sizeof text) <= 0)
		return false;
	const char *at = strrchr(text, ')'); /* the name before it may hold anything */
	for (int field = 2; at && field < 22; field++) {
		at = strchr(at + 1, ' ');
		if (at && field == 3)
			out->parent = (pid_t)atoi(at + 1);
	}
	out->ticks = at ? strtoll(at + 1, NULL, 10) : 0;
	return at;
}

static bool is_ancestor(pid_t wanted, pid_t pid)
{
	struct born b;
	for (int depth = 0; pid > 0 && depth < DEPTH_MAX; depth++) {
		if (pid == wanted)
			return true;
		if (!born(pid, &b))
			return false;
		pid = b.parent;
	}
	return false;
}

static bool is_writer(const struct look *l, pid_t pid)
{
	bool yes = pid == l->flusher;
	for (size_t i = 0; i < l->w->n; i++)
		yes |= pid == l->w->pid[i];
	return yes;
}

/* A process that we may not look at: can it have inherited the file? Not if it was born before the open, or if the
 * first of its ancestors that was is a stranger to the writers. (An orphan goes to init or to an ancestor of its
 * parent, so those are no strangers.) Kernel threads, cron jobs and the like are ruled out so. One that has ended since
 * holds nothing; what it has left behind was born later and is looked at by itself. */
static bool is_stranger(const struct look *l, pid_t pid)
{
	struct born b;
	pid_t old = pid;
	for (int depth = 0; depth < DEPTH_MAX; depth++) {
		if (!born(old, &b)) {
			if (old == pid)
				return true;
			old = pid; /* that parent is gone by now, and pid has another one */
			continue;
		}
		if (b.ticks < l->w->opened_ticks)
			break;
		old = b.parent;
	}
	if (old == pid || is_writer(l, old))
		return !is_writer(l, old);
	return old > 1 && !is_ancestor(old, l->flusher);
}

static bool fdinfo_names(int dir, const char *name, const char *wanted)
{
	char text[512];
	CLEAN_FD int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false; /* closed meanwhile */
	ssize_t n = read(fd, text, sizeof text - 1);
	if (n <= 0)
		return false;
	text[n] = 0;
	return strstr(text, wanted);
}

static enum held look_at(const struct look *l, pid_t pid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fdinfo", (int)pid);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		if (errno == ENOENT || errno == ESRCH)
			return HELD_NO;
		return is_stranger(l, pid) ? HELD_NO : HELD_UNKNOWN;
	}
	DIR *dir = fdopendir(fd);
	if (!dir) { /* it has ended since */
		close(fd);
		return HELD_NO;
	}
	enum held held = HELD_NO;
	for (struct dirent *e; held == HELD_NO && (e = readdir(dir));)
		if (e->d_name[0] != '.' && fdinfo_names(dirfd(dir), e->d_name, l->wanted))
			held = HELD_YES;
	closedir(dir);
	return held;
}

/* Most of those that we may not look at and that were born since the open have nothing to do with it and have gone in a
 * moment: what init or an ancestor of the writer started just then, a job of cron, say. */
static enum held look_patiently(const struct look *l, pid_t pid)
{
	enum held held;
	while ((held = look_at(l, pid)) == HELD_UNKNOWN && clock_mono_ms() < l->until_ms)
		clock_sleep_ms(STEP_MS);
	return held;
}

/* Is pid in (from, to], where the counter may have wrapped? */
static bool born_between(pid_t pid, pid_t from, pid_t to)
{
	return from <= to ? pid > from && pid <= to : pid > from || pid <= to;
}

static enum held look_listed(const struct look *l, pid_t from, pid_t to)
{
	DIR *proc = opendir("/proc");
	if (!proc)
		return HELD_UNKNOWN;
	enum held held = HELD_NO;
	for (struct dirent *e; held == HELD_NO && (e = readdir(proc));) {
		pid_t pid = (pid_t)atoi(e->d_name);
		if (pid > 0 && born_between(pid, from, to))
			held = look_patiently(l, pid);
	}
	closedir(proc);
	return held;
}

static enum held look_born(const struct look *l, pid_t from, pid_t to)
{
	if (from > to || to - from > RANGE_MAX)
		return look_listed(l, from, to);
	for (pid_t pid = from + 1; pid <= to; pid++) {
		enum held held = look_patiently(l, pid);
		if (held != HELD_NO)
			return held;
	}
	return HELD_NO;
}

enum held holder_look(const struct writers *w, pid_t flusher, uint64_t ino)
{
	struct look l = {.w = w, .flusher = flusher, .until_ms = w->hasty ? 0 : clock_mono_ms() + STRANGER_MS};
	snprintf(l.wanted, sizeof l.wanted, "\nino:\t%" PRIu64 "\n", ino);
	if (w->foreign || !w->last_pid || flusher <= 0)
		return HELD_UNKNOWN;
	enum held held = look_at(&l, flusher);
	for (size_t i = 0; held == HELD_NO && i < w->n; i++)
		held = look_at(&l, w->pid[i]);
	pid_t from = w->last_pid;
	for (int round = 0; held == HELD_NO; round++) {
		pid_t now = newest_pid();
		if (now == from)
			return HELD_NO;
		if (!now || round == ROUNDS_MAX)
			return HELD_UNKNOWN;
		held = look_born(&l, from, now);
		from = now;
	}
	return held;
}

/* ---- workers ---- */

struct holder {
	struct queue jobs, *results;
	pthread_t thread[THREADS];
};

static void *work(void *arg)
{
	struct holder *h = arg;
	for (struct queue_node *node; (node = queue_wait(&h->jobs));) {
		struct scan *scan = queue_entry(node, struct scan, job);
		scan->held = holder_look(&scan->writers, scan->flusher, scan->ino);
		queue_push(h->results, &scan->note.node);
	}
	return NULL;
}

int holder_start(struct queue *results, struct holder **out)
{
	struct holder *h = xcalloc(1, sizeof *h);
	h->results = results;
	int rc = queue_init(&h->jobs);
	size_t n = 0;
	while (!rc && n < THREADS) {
		rc = -pthread_create(&h->thread[n], NULL, work, h);
		n += !rc;
	}
	if (!rc) {
		*out = h;
		return 0;
	}
	queue_close(&h->jobs);
	while (n--)
		pthread_join(h->thread[n], NULL);
	queue_release(&h->jobs);
	free(h);
	return rc;
}

void holder_stop(struct holder *h)
{
	if (!h)
		return;
	queue_close(&h->jobs);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(h->thread[i], NULL);
	queue_release(&h->jobs);
	free(h);
}

void holder_submit(struct holder *h, struct scan *scan)
{
	queue_push(&h->jobs, &scan->job);
}

struct scan *scan_new(const struct writers *w, pid_t flusher, uint64_t ino)
{
	struct scan *scan = xcalloc(1, sizeof *scan);
	scan->note.kind = NOTE_OTHER;
	scan->writers = *w;
	scan->writers.pid = w->n ? xmemdup(w->pid, w->n * sizeof *w->pid) : NULL;
	scan->flusher = flusher;
	scan->ino = ino;
	return scan;
}

void scan_free(struct scan *scan)
{
	writers_release(&scan->writers);
	free(scan);
}
