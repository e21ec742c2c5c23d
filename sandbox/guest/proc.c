/* Process trees. Any thread. Must never kill its own process, nor trust that one look at /proc saw everything: what is
 * looked for may be forking meanwhile, so it looks again until nothing is found. */
#include "proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/buf.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"

#define ROUNDS	    50
#define ENVIRON_MAX (4 << 20) /* the kernel's own limit for arguments and environment together is 6 MiB */

struct proc {
	pid_t pid, parent, group, session;
	bool hit;
};

struct procs {
	struct proc *p;
	size_t n, cap;
};

static bool read_proc(const char *name, struct proc *out)
{
	char path[64], text[512], state;
	snprintf(path, sizeof path, "/proc/%.20s/stat", name);
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n <= 0)
		return false;
	text[n] = 0;
	/* the program's name may hold spaces and parentheses: the last one ends it */
	const char *p = strrchr(text, ')');
	*out = (struct proc){.pid = (pid_t)atol(name)};
	return p && sscanf(p, ") %c %d %d %d", &state, &out->parent, &out->group, &out->session) == 4 && state != 'Z' &&
	       state != 'X';
}

static void list_procs(struct procs *all)
{
	all->n = 0;
	DIR *d = opendir("/proc");
	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));) {
		struct proc p;
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || !read_proc(e->d_name, &p))
			continue;
		if (all->n == all->cap) {
			all->cap = all->cap ? all->cap * 2 : 64;
			all->p = xrealloc(all->p, all->cap * sizeof *all->p);
		}
		all->p[all->n++] = p;
	}
	closedir(d);
}

static bool marked(pid_t pid, const char *mark)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	CLEAN_BUF struct buf env = BUF_INIT;
	if (fd < 0 || fd_read_all(fd, &env, ENVIRON_MAX))
		return false;
	size_t n = strlen(mark);
	bool prefix = n && mark[n - 1] == '/';
	for (const char *p = buf_str(&env), *end = p + env.n; p < end; p += strlen(p) + 1)
		if (!strncmp(p, mark, n) && (prefix || !p[n]))
			return true;
	return false;
}

/* Marks all below root; repeated until nothing is added, since the list is in no order of descent. */
static void mark_below(struct procs *all, pid_t root)
{
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < all->n; i++) {
			struct proc *p = &all->p[i];
			bool below = p->parent == root;
			for (size_t j = 0; !below && !p->hit && j < all->n; j++)
				below = all->p[j].hit && all->p[j].pid == p->parent;
			more |= below && !p->hit;
			p->hit |= below;
		}
	}
}

static int kill_round(struct procs *all, pid_t root, bool whole, const char *mark)
{
	int n = 0;
	list_procs(all);
	for (size_t i = 0; i < all->n; i++) {
		struct proc *p = &all->p[i];
		p->hit = (whole && (p->pid == root || p->group == root || p->session == root)) ||
			 (mark && marked(p->pid, mark));
	}
	if (root)
		mark_below(all, root);
	for (size_t i = 0; i < all->n; i++)
		if (all->p[i].hit && all->p[i].pid != getpid() && all->p[i].pid != 1 && !kill(all->p[i].pid, SIGKILL))
			n++;
	return n;
}

static int kill_all(pid_t root, bool whole, const char *mark)
{
	struct procs all = {0};
	int left = 0;
	for (int i = 0; i < ROUNDS && (left = kill_round(&all, root, whole, mark)); i++)
		clock_sleep_ms(i < 5 ? 1 : 10); /* a killed process needs a moment until it no longer shows */
	free(all.p);
	return left;
}

int proc_kill_tree(pid_t root, const char *mark)
{
	return kill_all(root, root != 0, mark);
}

int proc_kill_below_self(const char *mark)
{
	return kill_all(getpid(), false, mark);
}

int proc_count_below_self(void)
{
	struct procs all = {0};
	int n = 0;
	list_procs(&all);
	mark_below(&all, getpid());
	for (size_t i = 0; i < all.n; i++)
		n += all.p[i].hit;
	free(all.p);
	return n;
}
