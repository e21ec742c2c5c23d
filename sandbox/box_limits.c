/* Limits of a container by cgroups, both versions, where this user may make groups: as root, or below a group that was
 * handed over (a user's systemd does that with its services). What cannot be had is told, never silently left out.
 * Blocks shortly; any thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "box.h"

#define ROOT	 "/sys/fs/cgroup"
#define PERIOD	 100000 /* us */
#define EMPTY_MS 5000

static const char *const controllers[BOX_LIMITS] = {"memory", "pids", "cpu"};
static const char *const words[BOX_LIMITS] = {"memory", "processes", "processors"};

static bool has_word(const char *list, size_t n, const char *word)
{
	size_t len = strlen(word);
	for (const char *end = list + n, *p = list; p < end;) {
		size_t k = 0;
		while (p + k < end && !strchr(", \n", p[k]))
			k++;
		if (k == len && !strncmp(p, word, len))
			return true;
		p += k + 1;
	}
	return false;
}

/* Our group of a controller, from /proc/self/cgroup: lines NUMBER:CONTROLLERS:PATH; version 2 has no controllers. */
static char *own_group(const char *self, const char *controller)
{
	for (const char *line = self; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
		if (!path)
			break;
		size_t n = (size_t)(path - list - 1);
		if (*controller ? has_word(list + 1, n, controller) : n == 0)
			return xstrndup(path + 1, strcspn(path + 1, "\n"));
	}
	return NULL;
}

static int set(const char *group, const char *file, const char *text)
{
	CLEAN_FREE char *path = xasprintf("%s/%s", group, file);
	CLEAN_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static bool writable(const char *parent)
{
	CLEAN_FREE char *procs = xasprintf("%s/cgroup.procs", parent);
	return !access(parent, W_OK) && !access(procs, W_OK);
}

/* Where groups with this controller can be made; malloc'd, or NULL. */
static char *parent_of(const char *self, enum box_limit i)
{
	CLEAN_FREE char *one = own_group(self, controllers[i]);
	if (one) {
		char *parent = xasprintf(ROOT "/%s%s", controllers[i], strcmp(one, "/") ? one : "");
		if (writable(parent))
			return parent;
		free(parent);
		return NULL;
	}
	/* version 2: groups with processes cannot have groups with limits below, so a sibling of ours is made */
	CLEAN_FREE char *two = own_group(self, "");
	char *slash = two ? strrchr(two, '/') : NULL;
	if (!slash)
		return NULL;
	*slash = 0;
	char *parent = xasprintf(ROOT "%s", two);
	CLEAN_FREE char *path = xasprintf("%s/cgroup.subtree_control", parent);
	CLEAN_BUF struct buf b = BUF_INIT;
	if (!file_read(path, &b, 4096, NULL) && has_word(buf_str(&b), b.n, controllers[i]) && writable(parent))
		return parent;
	free(parent);
	return NULL;
}

/* The folder of version 2 beside our own group there; it may be mounted beside the older ones. malloc'd, or NULL. */
static char *parent_two(const char *self)
{
	CLEAN_FREE char *two = own_group(self, "");
	char *slash = two ? strrchr(two, '/') : NULL;
	if (!slash)
		return NULL;
	*slash = 0;
	char *parent = xasprintf("%s%s", access(ROOT "/cgroup.procs", F_OK) ? ROOT "/unified" : ROOT, two);
	if (writable(parent))
		return parent;
	free(parent);
	return NULL;
}

/* A process is in one group of version 2 at a time: where that is limited, it is the one. */
static char *freezable(const struct box_limits *l, const char *self, const char *name)
{
	CLEAN_FREE char *parent = parent_two(self);
	CLEAN_FREE char *group = parent ? xasprintf("%s/%s", parent, name) : NULL;
	for (int i = 0; i < BOX_LIMITS; i++) {
		CLEAN_FREE char *file = l->group[i] ? xasprintf("%s/cgroup.freeze", l->group[i]) : NULL;
		if (!file || access(file, W_OK))
			continue;
		free(group);
		group = xstrdup(l->group[i]);
		break;
	}
	/* one that was left behind may be frozen */
	return group && (!mkdir(group, 0755) || errno == EEXIST) && !set(group, "cgroup.freeze", "0") ? take(group)
												      : NULL;
}

static int limit(const char *group, bool two, enum box_limit i, int memory_mib, int cpus)
{
	CLEAN_FREE char *bytes = xasprintf("%lld", (long long)memory_mib << 20);
	CLEAN_FREE char *processes = xasprintf("%d", box_processes(memory_mib));
	CLEAN_FREE char *quota = xasprintf("%d", cpus * PERIOD);
	CLEAN_FREE char *max = xasprintf("%d %d", cpus * PERIOD, PERIOD);
	switch (i) {
	case BOX_MEMORY: return set(group, two ? "memory.max" : "memory.limit_in_bytes", bytes);
	case BOX_PIDS: return set(group, "pids.max", processes);
	default: return two ? set(group, "cpu.max", max) : set(group, "cpu.cfs_quota_us", quota);
	}
}

static char *self_groups(void)
{
	struct buf b = BUF_INIT;
	file_read("/proc/self/cgroup", &b, 65536, NULL);
	return b.n ? buf_take(&b) : xstrdup("");
}

void box_limits_open(struct box_limits *l, const char *name, int memory_mib, int cpus, struct buf *missing)
{
	CLEAN_FREE char *self = self_groups();
	for (int i = 0; i < BOX_LIMITS; i++) {
		CLEAN_FREE char *parent = parent_of(self, i);
		CLEAN_FREE char *group = parent ? xasprintf("%s/%s", parent, name) : NULL;
		CLEAN_FREE char *one = own_group(self, controllers[i]);
		l->group[i] = NULL;
		if (group && (!mkdir(group, 0755) || errno == EEXIST) && !limit(group, !one, i, memory_mib, cpus))
			l->group[i] = take(group);
		else if (i != BOX_PIDS || !geteuid()) /* else the container's own limit of them holds (RLIMIT_NPROC) */
			buf_addf(missing, "%s%s", missing->n ? ", " : "", words[i]);
	}
	l->freeze = freezable(l, self, name);
}

/* Only system calls. */
static int join(const char *group)
{
	char path[4200];
	snprintf(path, sizeof path, "%s/cgroup.procs", group);
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc = fd < 0 || write(fd, "0", 1) != 1 ? -errno : 0;
	fd_close(&fd);
	return rc;
}

int box_limits_join(const struct box_limits *l)
{
	int rc = 0;
	for (int i = 0; i < BOX_LIMITS && !rc; i++)
		rc = l->group[i] ? join(l->group[i]) : 0;
	return rc || !l->freeze ? rc : join(l->freeze);
}

/* What was killed may be there for a moment longer. */
static void remove_group(const char *parent, const char *name)
{
	CLEAN_FREE char *group = parent ? xasprintf("%s/%s", parent, name) : NULL;
	for (int64_t end = clock_mono_ms() + EMPTY_MS; group && rmdir(group) && errno == EBUSY; clock_sleep_ms(2))
		if (clock_mono_ms() > end)
			break;
}

void box_limits_remove(const char *name)
{
	CLEAN_FREE char *self = self_groups();
	for (int i = 0; i < BOX_LIMITS; i++) {
		CLEAN_FREE char *parent = parent_of(self, i);
		remove_group(parent, name);
	}
	CLEAN_FREE char *parent = parent_two(self);
	remove_group(parent, name);
}

void box_limits_release(struct box_limits *l)
{
	for (int i = 0; i < BOX_LIMITS; i++)
		free(take(l->group[i]));
	free(take(l->freeze));
}
