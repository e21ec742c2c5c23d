/* QEMU's command line and its start, in a jail. Runs on the keeper's only thread; must never open a network back end, a
 * display, or /dev/kvm unless it is told to, and never pass the keeper's environment on. */
#include "qemu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "jail.h"
#include "kvm.h"

/* Descriptors as QEMU finds them. */
enum { PORT_FD = 3, QMP_FD, LOCK_FD, STATUS_FD, FIRST_FREE_FD };

#define ARGS_MAX 64

struct args {
	const char *v[ARGS_MAX];
	char *own[ARGS_MAX]; /* those that are ours to free */
	int n, owned;
};

static void args_release(struct args *a)
{
	for (int i = 0; i < a->owned; i++)
		free(a->own[i]);
}

static void add(struct args *a, const char *const *words)
{
	for (; *words; words++)
		a->v[a->n++] = *words;
}

static void add_pair(struct args *a, const char *option, char *value)
{
	a->v[a->n++] = option;
	a->v[a->n++] = a->own[a->owned++] = value;
}

/* In QEMU's option lists a comma is written twice. */
static char *escape(const char *path)
{
	char *out = xmalloc(2 * strlen(path) + 1), *to = out;
	for (; *path; path++) {
		*to++ = *path;
		if (*path == ',')
			*to++ = ',';
	}
	*to = 0;
	return out;
}

/* quiet to nowatchdog: fewer things to emulate. reboot=t: the guest ends itself by a triple fault, which with
 * -no-reboot ends QEMU (there is no ACPI power-off here). */
char *qemu_kernel_words(long khz)
{
	CLEAN_FREE char *tsc = khz ? xasprintf(" tsc_early_khz=%ld tsc=reliable", khz) : xstrdup("");
	return xasprintf(
		"console=ttyS0%s reboot=t panic=-1 quiet loglevel=1 random.trust_cpu=on mitigations=off audit=0 "
		"nowatchdog no_timer_check cryptomgr.notests rcupdate.rcu_expedited=1",
		tsc);
}

static char *kernel_line(const struct qemu_spec *s)
{
	CLEAN_FREE char *words = qemu_kernel_words(s->khz);
	return xasprintf("%s berthfs.host=%s berthfs.time=%lld%s", words, s->host, (long long)clock_real_ms(),
			 s->fresh ? " berthfs.fresh=1" : "");
}

/* What the guest sees, but for its size. */
static const char *const devices[] = {
	"-M", "microvm,memory-backend=ram", "-nodefaults", "-no-user-config", "-nic", "none", "-display", "none",
	"-no-reboot",
	/* seccomp: no new programs, no privileges */
	"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
	/* serial console on standard output */
	"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
	/* disk; freed blocks go back to the host */
	"-device", "virtio-blk-device,drive=disk", "-device", "virtio-rng-device",
	/* freed memory goes back to the host by itself */
	"-device", "virtio-balloon-device,id=balloon,free-page-reporting=on",
	/* the one way in */
	"-device", "virtio-serial-device,max_ports=2", "-device", "virtserialport,chardev=port,name=berthfs.mux",
	"-mon", "chardev=qmp,mode=control", NULL};

/* Room for translated code, MiB. A program whose code does not find room there is translated again and again: those of
 * 100 MB that bring a whole language along need some 150, and 64 costs them half as much time again. No more than an
 * eighth of the guest's memory, since what was filled once stays in the host's. */
static int code_mib(const struct qemu_spec *s)
{
	int eighth = s->memory_mib / 8;
	return eighth < 64 ? 64 : eighth > 256 ? 256 : eighth;
}

static char *accelerator(const struct qemu_spec *s)
{
	return s->kvm ? xstrdup("kvm") : xasprintf("tcg,thread=multi,tb-size=%d", code_mib(s));
}

static const char *processor(const struct qemu_spec *s)
{
	return s->kvm ? "host" : "max";
}

/* Memory is a memfd, shared: then it is no part of a migration, and whoever may look at QEMU can copy it. */
static char *memory_object(const struct qemu_spec *s)
{
	return xasprintf("memory-backend-memfd,id=ram,size=%dM,share=on", s->memory_mib);
}

void qemu_devices(const struct qemu_spec *s, struct buf *out)
{
	CLEAN_FREE char *memory = memory_object(s), *accel = accelerator(s);
	buf_addf(out, "-accel %s -cpu %s ", accel, processor(s));
	for (const char *const *w = devices; *w; w++)
		buf_addf(out, "%s ", *w);
	buf_addf(out, "%s %d", memory, s->cpus);
}

static void command_line(const struct qemu_spec *s, struct args *a)
{
	add(a, (const char *const[]){QEMU_PROGRAM, NULL});
	add_pair(a, "-accel", accelerator(s));
	add(a, (const char *const[]){"-cpu", processor(s), NULL});
	add(a, devices);
	add_pair(a, "-object", memory_object(s));
	if (s->incoming)
		add(a, (const char *const[]){"-S", "-incoming", "defer", NULL});
	add_pair(a, "-chardev", xasprintf("socket,id=port,fd=%d", PORT_FD));
	add_pair(a, "-chardev", xasprintf("socket,id=qmp,fd=%d", QMP_FD));
	CLEAN_FREE char *disk = escape(s->disk);
	add_pair(a, "-drive",
		 xasprintf("id=disk,if=none,file=%s,format=qcow2,discard=unmap,detect-zeroes=unmap,werror=enospc",
			   disk));
	add_pair(a, "-smp", xasprintf("%d", s->cpus));
	add_pair(a, "-m", xasprintf("%d", s->memory_mib));
	add_pair(a, "-kernel", xstrdup(s->vmlinux));
	add_pair(a, "-initrd", xstrdup(s->initrd));
	add_pair(a, "-append", kernel_line(s));
}

char *qemu_path(void)
{
	const char *path = getenv("PATH");
	CLEAN_FREE char *copy = xstrdup(path ? path : "");
	char *save = NULL;
	for (char *dir = strtok_r(copy, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		CLEAN_FREE char *name = xasprintf("%s/%s", dir, QEMU_PROGRAM);
		char *real = access(name, X_OK) ? NULL : realpath(name, NULL);
		if (real)
			return real;
	}
	return NULL;
}

char *qemu_elsewhere(void)
{
	CLEAN_FREE char *real = qemu_path();
	for (int up = 0; real && up < 2; up++) { /* FOLDER/bin/PROGRAM */
		char *slash = strrchr(real, '/');
		if (slash > real)
			*slash = 0;
	}
	return real && strncmp(real, "/usr", 4) && real[1] ? take(real) : NULL;
}

/* In the child: only async-signal-safe calls. fds: standard input, output, then those of the enum above. */
static void become(const char *const *argv, char *const *env, const int fds[FIRST_FREE_FD], pid_t keeper)
{
	sigset_t none;
	sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(127);
	/* The guest's memory holds what the user works on: no core file of it. */
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	for (int i = 0; i < FIRST_FREE_FD; i++)
		dup2(fds[i], i); /* dup2 clears close-on-exec */
	fcntl(STATUS_FD, F_SETFD, FD_CLOEXEC);
	close_range(FIRST_FREE_FD, ~0U, 0);
	execvpe(argv[0], (char *const *)(uintptr_t)argv, env);
	int e = errno;
	ssize_t r = write(STATUS_FD, &e, sizeof e);
	(void)r;
	_exit(127);
}

/* Above all numbers that become() overwrites. */
static int high(int fd)
{
	if (fd < 0 || fd >= FIRST_FREE_FD)
		return fd;
	int up = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
	close(fd);
	return up;
}

static bool make_pairs(int port[2], int qmp[2], int console[2], int status[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, qmp) || pipe2(console, O_CLOEXEC) ||
	    pipe2(status, O_CLOEXEC))
		return false;
	int *all[] = {port, qmp, console, status};
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		all[i][0] = high(all[i][0]);
		all[i][1] = high(all[i][1]);
	}
	return true;
}

static pid_t spawn(const struct qemu_spec *spec, int port, int qmp, int console, int status)
{
	CLEAN_FD int null = high(open("/dev/null", O_RDWR | O_CLOEXEC));
	CLEAN_FD int lock = high(fcntl(spec->lock_fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD));
	const char *path = getenv("PATH");
	CLEAN_FREE char *path_env = xasprintf("PATH=%s", path ? path : "/usr/local/bin:/usr/bin:/bin");
	char *env[] = {path_env, (char[]){"HOME=/"}, (char[]){"LC_ALL=C"}, NULL};
	__attribute__((cleanup(args_release))) struct args args = {.n = 0};
	__attribute__((cleanup(jail_release))) struct jail_args jail = {.n = 0};
	CLEAN_FREE char *image = xstrndup(spec->vmlinux, (size_t)(strrchr(spec->vmlinux, '/') - spec->vmlinux));
	CLEAN_FREE char *open = qemu_elsewhere();
	jail_begin(&(struct jail){.image = image,
				  .bases = spec->bases,
				  .disk = spec->disk,
				  .open = open,
				  .device = spec->kvm ? KVM_DEVICE : NULL},
		   &jail);
	command_line(spec, &args);
	const char *argv[ARRAY_LEN(args.v) + ARRAY_LEN(jail.v) + 1] = {NULL};
	memcpy(argv, jail.v, (size_t)jail.n * sizeof *argv);
	memcpy(argv + jail.n, args.v, (size_t)args.n * sizeof *argv);
	const int fds[FIRST_FREE_FD] = {null, console, console, port, qmp, lock, status};
	pid_t keeper = getpid(), pid = fork();
	if (pid == 0)
		become(argv, env, fds, keeper);
	return pid;
}

int qemu_start(const struct qemu_spec *spec, struct qemu *out, struct err *err)
{
	int port[2] = {-1, -1}, qmp[2] = {-1, -1}, console[2] = {-1, -1}, status[2] = {-1, -1};
	int rc = 0, failed = 0;
	*out = (struct qemu){.pid = -1, .port = -1, .qmp = -1, .console = -1};
	if (!make_pairs(port, qmp, console, status) ||
	    (out->pid = spawn(spec, port[1], qmp[1], console[1], status[1])) < 0)
		rc = err_sys(err, errno, "cannot start " JAIL_PROGRAM);
	fd_close(&status[1]);
	if (!rc && !fd_read_full(status[0], &failed, sizeof failed))
		rc = err_sys(err, failed, "cannot run " JAIL_PROGRAM);
	if (!rc) {
		out->port = take_fd(&port[0]);
		out->qmp = take_fd(&qmp[0]);
		out->console = take_fd(&console[0]);
	}
	int *all[] = {port, qmp, console, status};
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		fd_close(&all[i][0]);
		fd_close(&all[i][1]);
	}
	return rc;
}
