/* One daemon an instance. Locks are flock()s, which vanish with their holder however it ends. Not on the loop. */
#include "instance.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"

#define STEP_MS	    10
#define DYING_MS    300	  /* a killed daemon is given so long to be seen dying before it counts as alive */
#define LEAVE_MS    30000 /* one that is finishing its commits, or that the kernel is not done with */
#define EXITING	    4	  /* in the flags of /proc/PID/stat: it is at its end, or a zombie */
#define OWNER_LOOKS 20
#define HELPER_MS   15000 /* the helper of a dead one, until the mount is cleared away */

/* ---- the record ---- */

static void boot_id(char out[40])
{
	CLEAN_BUF struct buf text = BUF_INIT;
	file_read("/proc/sys/kernel/random/boot_id", &text, 100, NULL);
	snprintf(out, 40, "%.*s", (int)strcspn(buf_str(&text), "\n"), buf_str(&text));
}

static char *record_path(const struct paths *paths)
{
	return xasprintf("%s/mount", paths->state);
}

void record_release(struct record *r)
{
	free(r->dir);
	*r = (struct record){0};
}

int record_read(const struct paths *paths, struct record *out)
{
	CLEAN_FREE char *path = record_path(paths);
	CLEAN_BUF struct buf text = BUF_INIT;
	char now[40];
	*out = (struct record){0};
	int rc = file_read(path, &text, 65536, NULL);
	if (rc)
		return rc;
	char *at = text.p;
	for (char *line; (line = strsep(&at, "\n"));) {
		char *value = strchr(line, ' ');
		if (!value)
			continue;
		*value++ = 0;
		if (!strcmp(line, "pid"))
			out->pid = (pid_t)atoi(value);
		else if (!strcmp(line, "boot"))
			snprintf(out->boot, sizeof out->boot, "%s", value);
		else if (!strcmp(line, "dev"))
			snprintf(out->dev, sizeof out->dev, "%s", value);
		else if (!strcmp(line, "dir") && !out->dir)
			out->dir = xstrdup(value);
	}
	boot_id(now);
	if (out->dir && out->pid > 0 && !strcmp(out->boot, now))
		return 0;
	record_release(out);
	return -ENOENT;
}

int record_write(const struct paths *paths, const char *dir, const char *dev, struct err *err)
{
	CLEAN_FREE char *path = record_path(paths);
	CLEAN_BUF struct buf text = BUF_INIT;
	char boot[40];
	boot_id(boot);
	buf_addf(&text, "pid %d\nboot %s\ndev %s\ndir %s\n", (int)getpid(), boot, dev, dir);
	return file_write(path, text.p, text.n, 0600, err);
}

void record_remove(const struct paths *paths)
{
	CLEAN_FREE char *path = record_path(paths);
	unlink(path);
}

/* ---- the locks ---- */

static int lock_open(const struct paths *paths, const char *name)
{
	CLEAN_FREE char *path = xasprintf("%s/%s", paths->state, name);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

static int lock_try(int fd)
{
	while (flock(fd, LOCK_EX | LOCK_NB))
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int lock_wait(int fd, int ms)
{
	int64_t until = clock_mono_ms() + ms;
	int rc;
	while ((rc = lock_try(fd)) == -EWOULDBLOCK && clock_mono_ms() < until)
		clock_sleep_ms(STEP_MS);
	return rc;
}

/* Words about the daemon that has the lock. */
static int is_alive(const struct paths *paths, struct err *err)
{
	struct record r;
	if (record_read(paths, &r))
		return err_set(err, EBUSY, "another berthfs of this instance is starting or finishing; try again");
	err_set(err, EBUSY,
		"berthfs is mounted at %s (pid %d); `berthfs umount` ends it. Another instance needs its own "
		"XDG_STATE_HOME, XDG_CACHE_HOME, XDG_RUNTIME_DIR and XDG_CONFIG_HOME",
		r.dir, (int)r.pid);
	record_release(&r);
	return -EBUSY;
}

/* Of a process as /proc shows it. */
enum life { LIFE_LIVES, LIFE_DYING, LIFE_NONE };

/* Killed, or at its end, though it may hold its files still: on a busy machine that takes its time. */
static enum life life_of(pid_t pid)
{
	CLEAN_FREE char *stat = xasprintf("/proc/%d/stat", (int)pid), *status = xasprintf("/proc/%d/status", (int)pid);
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_BUF struct buf more = BUF_INIT;
	unsigned flags;
	unsigned long long pending;
	if (file_read(stat, &text, 4096, NULL) || file_read(status, &more, 65536, NULL))
		return LIFE_NONE;
	const char *at = strrchr(buf_str(&text), ')');
	if (at && sscanf(at, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && flags & EXITING)
		return LIFE_DYING;
	for (const char *name = "SigPnd:\0ShdPnd:\0"; *name; name += strlen(name) + 1) {
		at = strstr(buf_str(&more), name);
		if (at && sscanf(at + strlen(name), "%llx", &pending) == 1 && pending & 1ULL << (SIGKILL - 1))
			return LIFE_DYING;
	}
	return LIFE_LIVES;
}

static int claim_live(const struct paths *paths, int fd, struct err *err)
{
	int64_t began = clock_mono_ms();
	bool was_gone = false;
	for (;;) {
		int rc = lock_try(fd);
		if (rc != -EWOULDBLOCK)
			return rc ? err_sys(err, -rc, "cannot lock the state folder %s", paths->state) : 0;
		struct record r;
		bool leaving = record_read(paths, &r) != 0; /* it takes its record away before it finishes */
		enum life life = leaving ? LIFE_DYING : life_of(r.pid);
		record_release(&r);
		bool just_gone =
			life == LIFE_NONE && !was_gone; /* since the look at the lock; or it is of another namespace */
		if (!just_gone && clock_mono_ms() - began >= (life == LIFE_DYING ? LEAVE_MS : DYING_MS))
			return is_alive(paths, err);
		was_gone = life == LIFE_NONE;
		clock_sleep_ms(STEP_MS);
	}
}

int instance_claim(const struct paths *paths, struct instance *out, struct err *err)
{
	*out = (struct instance){-1, -1};
	out->live_fd = lock_open(paths, "daemon.lock");
	out->helper_fd = lock_open(paths, "mount.lock");
	int rc = out->live_fd < 0 ? out->live_fd : out->helper_fd < 0 ? out->helper_fd : 0;
	if (rc)
		err_sys(err, -rc, "cannot open the locks in %s", paths->state);
	else
		rc = claim_live(paths, out->live_fd, err);
	if (!rc) {
		rc = lock_wait(out->helper_fd, HELPER_MS);
		if (rc)
			err_sys(err, -rc, "the mount of the last daemon is still being cleared away");
	}
	if (rc)
		instance_release(out);
	return rc;
}

void instance_release(struct instance *i)
{
	fd_close(&i->live_fd);
	fd_close(&i->helper_fd);
}

/* Who holds the lock on this file? The kernel tells pids of our own namespace, which a file cannot. Lines are like
 * "1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF". Some file systems have another device here than in stat: then the
 * inode has to do. */
static pid_t lock_owner(const struct stat *st, bool same_device)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	if (file_read("/proc/locks", &text, 16 << 20, NULL))
		return -1;
	char *at = text.p;
	for (char *line; (line = strsep(&at, "\n"));) {
		int pid;
		unsigned dev[2];
		unsigned long long inode;
		if (sscanf(line, "%*d: FLOCK %*s WRITE %d %x:%x:%llu", &pid, &dev[0], &dev[1], &inode) == 4 &&
		    inode == st->st_ino && pid > 0 &&
		    (!same_device || (dev[0] == major(st->st_dev) && dev[1] == minor(st->st_dev))))
			return pid;
	}
	return -1;
}

/* The kernel gives that list out in parts, and leaves lines out when others lock and unlock in between. */
pid_t instance_pid(const struct paths *paths)
{
	CLEAN_FD int fd = lock_open(paths, "daemon.lock");
	struct stat st;
	if (fd < 0 || fstat(fd, &st))
		return 0;
	for (int i = 0; i < OWNER_LOOKS; i++) {
		if (lock_try(fd) != -EWOULDBLOCK)
			return 0;
		pid_t pid = lock_owner(&st, true);
		if (pid > 0)
			return pid;
		clock_sleep_ms(STEP_MS);
	}
	return lock_owner(&st, false);
}

int instance_wait_gone(const struct paths *paths, int ms)
{
	CLEAN_FD int live = lock_open(paths, "daemon.lock");
	CLEAN_FD int helper = lock_open(paths, "mount.lock");
	int64_t until = clock_mono_ms() + ms;
	int rc = lock_wait(live, ms);
	int left = (int)(until - clock_mono_ms());
	return rc ? rc : lock_wait(helper, left > 0 ? left : 0);
}
