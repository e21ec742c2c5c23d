/* bubblewrap's command line for one container. Any thread; keeps no state. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/base/mem.h"
#include "box.h"
#include "jail.h"

/* Namespaces of its own for everything, no capability, no way to more rights, and the end of its parent is its own. */
static const char *const fixed[] = {
	JAIL_PROGRAM,
	"--unshare-user",
	"--unshare-pid",
	"--unshare-ipc",
	"--unshare-uts",
	"--unshare-net",
	"--uid",
	"1000",
	"--gid",
	"1000",
	"--new-session",
	"--as-pid-1",
	"--die-with-parent",
	"--unshare-cgroup-try",
	"--cap-drop",
	"ALL",
	"--clearenv",
};

/* What of /proc tells of the machine or can change it is covered or made read-only. Where we are root, the files of
 * /proc/sys belong to us also in there, and bubblewrap leaves them writable. */
static const char *const read_only[] = {"/proc/sys",	"/proc/irq",  "/proc/bus",	"/proc/fs",
					"/proc/acpi",	"/proc/scsi", "/proc/tty",	"/proc/driver",
					"/proc/asound", "/proc/mtrr", "/proc/pressure", "/proc/sysrq-trigger"};
static const char *const covered[] = {"/proc/kcore",	  "/proc/keys",	      "/proc/key-users",   "/proc/timer_list",
				      "/proc/kmsg",	  "/proc/kallsyms",   "/proc/slabinfo",	   "/proc/vmallocinfo",
				      "/proc/iomem",	  "/proc/ioports",    "/proc/modules",	   "/proc/sched_debug",
				      "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/config.gz",
				      "/proc/cmdline",	  "/proc/locks",      "/proc/interrupts"};

struct words {
	char **v;
	size_t n;
};

static void add(struct words *w, const char *word)
{
	w->v = xrealloc(w->v, (w->n + 2) * sizeof *w->v);
	w->v[w->n++] = xstrdup(word);
	w->v[w->n] = NULL;
}

static void add3(struct words *w, const char *a, const char *b, const char *c)
{
	add(w, a);
	add(w, b);
	if (c)
		add(w, c);
}

static void add_number(struct words *w, int n)
{
	CLEAN_FREE char *text = xasprintf("%d", n);
	add(w, text);
}

static bool is_there(const char *path)
{
	struct stat st;
	return !lstat(path, &st);
}

static void add_proc(struct words *w)
{
	add3(w, "--proc", "/proc", NULL);
	for (size_t i = 0; i < ARRAY_LEN(read_only); i++)
		if (is_there(read_only[i]))
			add3(w, "--ro-bind", read_only[i], read_only[i]);
	for (size_t i = 0; i < ARRAY_LEN(covered); i++)
		if (is_there(covered[i]))
			add3(w, "--ro-bind", "/dev/null", covered[i]);
}

char **box_jail(const struct box_jail *j)
{
	struct words w = {0};
	CLEAN_FREE char *shm = xasprintf("%lld", (long long)j->memory_mib << 19); /* half of the memory */
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		add(&w, fixed[i]);
	add3(&w, "--hostname", j->host, NULL);
	add3(&w, "--bind", j->root, "/");
	add3(&w, "--dev", "/dev", NULL);
	add3(&w, "--size", shm, NULL);
	add3(&w, "--tmpfs", "/dev/shm", NULL);
	add_proc(&w);
	add3(&w, "--size", "67108864", NULL);
	add3(&w, "--tmpfs", "/run", NULL);
	add3(&w, "--perms", "0555", "--ro-bind-data");
	add_number(&w, j->guest);
	add(&w, BOX_GUEST);
	add(&w, "--seccomp");
	add_number(&w, j->filter);
	add3(&w, "--chdir", "/", "--");
	add3(&w, BOX_GUEST, "box", NULL);
	const int numbers[] = {j->door, j->net, j->lock, j->processes, j->memory_mib, j->disk_mib};
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		add_number(&w, numbers[i]);
	return w.v;
}

void box_jail_free(char **argv)
{
	for (char **p = argv; p && *p; p++)
		free(*p);
	free(argv);
}
