/* Stopping all processes by signals. A parent has to be stopped before its children are, and goes on after them: a
 * shell with jobs would take its job for stopped otherwise. PID 1's main thread; must never wait for a process that
 * does not stop. */
#include "still.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"

#define ROUNDS	10
#define STOP_MS 20   /* that a process is waited for; what sleeps in the kernel stops when it comes out of that */
#define ALL_MS	1000 /* that all of them are waited for */

struct one {
	struct still_one id;
	char state;
};

struct all {
	struct one *p;
	size_t n, cap;
};

static bool look(pid_t pid, struct one *out)
{
	char path[40], text[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n <= 0)
		return false;
	text[n] = 0;
	/* the name may hold anything, but ends at the last parenthesis; the state is field 3, the birth field 22 */
	const char *at = strrchr(text, ')');
	*out = (struct one){.id.pid = pid, .state = at && at[1] ? at[2] : 0};
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	out->id.born = at ? strtoull(at, NULL, 10) : 0;
	return at != NULL;
}

static int by_birth(const void *a, const void *b)
{
	const struct one *x = a, *y = b;
	if (x->id.born != y->id.born)
		return x->id.born < y->id.born ? -1 : 1;
	return x->id.pid < y->id.pid ? -1 : x->id.pid > y->id.pid;
}

/* All but this process, the oldest first. */
static void list_all(struct all *all)
{
	DIR *d = opendir("/proc");
	all->n = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		struct one one;
		pid_t pid = (pid_t)atol(e->d_name);
		if (pid <= 1 || !look(pid, &one))
			continue;
		if (all->n == all->cap) {
			all->cap = all->cap ? all->cap * 2 : 64;
			all->p = xrealloc(all->p, all->cap * sizeof *all->p);
		}
		all->p[all->n++] = one;
	}
	if (d)
		closedir(d);
	if (all->n)
		qsort(all->p, all->n, sizeof *all->p, by_birth);
}

static bool stands(const struct one *one)
{
	return strchr("TtZX", one->state) != NULL;
}

static void stop(struct one *one, int64_t all_end)
{
	int64_t end = clock_mono_ms() + STOP_MS;
	end = end < all_end ? end : all_end;
	if (kill(one->id.pid, SIGSTOP))
		return;
	while (look(one->id.pid, one) && !stands(one) && clock_mono_ms() < end)
		clock_sleep_ms(1);
}

void still_stop(struct still *s)
{
	struct all all = {0};
	bool more = true;
	int64_t end = clock_mono_ms() + ALL_MS;
	if (s->stands)
		return;
	list_all(&all);
	s->stands = true;
	s->n = 0;
	s->before = xrealloc(s->before, (all.n + 1) * sizeof *s->before);
	for (size_t i = 0; i < all.n; i++)
		if (all.p[i].state == 'T' || all.p[i].state == 't')
			s->before[s->n++] = all.p[i].id;
	for (int round = 0; more && round < ROUNDS && clock_mono_ms() < end; round++) {
		more = false;
		for (size_t i = 0; i < all.n; i++)
			if (!stands(&all.p[i])) {
				stop(&all.p[i], end);
				more = true;
			}
		list_all(&all); /* what was born meanwhile */
	}
	kill(-1, SIGSTOP); /* of those that fork faster than that, all at once */
	free(all.p);
}

void still_go(struct still *s)
{
	struct all all = {0};
	if (!s->stands)
		return;
	list_all(&all);
	for (size_t i = all.n; i-- > 0;) {
		bool before = false;
		for (size_t j = 0; j < s->n && !before; j++)
			before = s->before[j].pid == all.p[i].id.pid && s->before[j].born == all.p[i].id.born;
		if (!before)
			kill(all.p[i].id.pid, SIGCONT);
	}
	s->stands = false;
	free(all.p);
}
