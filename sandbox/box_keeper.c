/* The keeper of one container: a process that outlives the daemon, parent of bubblewrap. It makes what bubblewrap
 * cannot (the overlay, in a user and mount namespace that only bubblewrap is started in; groups with limits), hands in
 * who connects (box_door.c), and relays what connects to the gateway's address inside. It ends when the container
 * has ended, and the container ends with it. Threads only after the fork, for the relay. Must never mount anything in
 * the machine's own namespace. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "box.h"
#include "box_door.h"
#include "guest/relay.h"
#include "guest_image.h"
#include "process.h"
#include "sandbox.h"

#define LOCK_WAIT_MS 5000  /* a container whose keeper was killed is gone within moments */
#define METER_MS     1000  /* one that is killed is followed by another, but not more often than that */
#define READY_MS     30000 /* from bubblewrap's start to the tool daemon's first word, on a machine that swaps */

struct options {
	const char *folder, *socket, *tree, *base, *host, *probe;
	int cpus, memory_mib, disk_mib;
};

struct box {
	struct options o;
	struct box_limits limits;
	int lock, guest, filter;
	int net, inside; /* the pair that the gateway's listening socket comes through; the meter speaks by it after */
	int door, inner_door; /* and the one that connections go in by */
	int signals;
	struct door clients;
	pid_t pid, meter;
	int64_t meter_ms; /* when it was started */
	bool meter_lacks; /* it was killed */
};

/* "--NAME VALUE" pairs, wherever they begin. */
static int parse(int argc, char **argv, struct options *o)
{
	const char *cpus = "1", *memory = "512", *disk = "0";
	const struct {
		const char *name, **value;
	} known[] = {{"--folder", &o->folder}, {"--socket", &o->socket}, {"--tree", &o->tree},
		     {"--host", &o->host},     {"--cpus", &cpus},	 {"--memory", &memory},
		     {"--probe", &o->probe},   {"--disk", &disk},	 {"--base", &o->base}};
	int i = 0;
	while (i < argc && argv[i][0] != '-')
		i++;
	for (; i + 1 < argc; i += 2)
		for (size_t j = 0; j < ARRAY_LEN(known); j++)
			if (!strcmp(argv[i], known[j].name))
				*known[j].value = argv[i + 1];
	o->cpus = atoi(cpus);
	o->memory_mib = atoi(memory);
	o->disk_mib = atoi(disk) > 0 ? atoi(disk) : BOX_DISK_MIB;
	bool good =
		o->folder && (o->probe ? o->tree != NULL : o->socket && o->host && o->cpus > 0 && o->memory_mib > 0);
	return good ? 0 : -EINVAL;
}

/* ---- the overlay ---- */

static int put(const char *path, const char *text)
{
	CLEAN_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int box_namespaces(void)
{
	char uid[64], gid[64];
	snprintf(uid, sizeof uid, "0 %u 1", geteuid());
	snprintf(gid, sizeof gid, "0 %u 1", getegid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return -errno;
	int rc = put("/proc/self/setgroups", "deny");
	rc = rc ? rc : put("/proc/self/uid_map", uid);
	rc = rc ? rc : put("/proc/self/gid_map", gid);
	if (!rc && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		rc = -errno;
	return rc;
}

/* The tree with root/ on it at mnt/ (all names are short and fixed: the folder is the working directory, the tree a
 * descriptor). */
static int mount_overlay(const char *folder, const char *tree)
{
	char data[160];
	CLEAN_FD int lower = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (lower < 0 || chdir(folder))
		return -errno;
	snprintf(data, sizeof data, "lowerdir=/proc/self/fd/%d,upperdir=root,workdir=work,userxattr", lower);
	return mount("berthfs", "mnt", "overlay", MS_NOSUID | MS_NODEV, data) ? -errno : 0;
}

/* --probe: whether that can be done in this folder. Words on standard error. */
static int probe(const struct options *o)
{
	int rc = box_namespaces();
	rc = rc ? rc : mount_overlay(o->folder, o->tree);
	CLEAN_FREE char *file = xasprintf("%s/mnt/.berthfs-probe", o->folder);
	CLEAN_FD int fd = rc ? -1 : open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (!rc && (fd < 0 || unlink(file)))
		rc = -errno;
	if (rc)
		fprintf(stderr, "%s\n", strerror(-rc));
	return rc ? 1 : 0;
}

/* ---- starting bubblewrap ---- */

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(126);
}

/* In the child: one thread, and only what has to be on this side of bubblewrap. */
static void become(struct box *b)
{
	const struct options *o = &b->o;
	CLEAN_FREE char *mnt = xasprintf("%s/%s", o->folder, o->tree ? "mnt" : "root");
	const struct box_jail jail = {.root = mnt,
				      .host = o->host,
				      .guest = b->guest,
				      .filter = b->filter,
				      .door = b->inner_door,
				      .net = b->inside,
				      .lock = b->lock,
				      .processes = box_processes(o->memory_mib),
				      .memory_mib = o->memory_mib,
				      .disk_mib = o->disk_mib};
	int rc = 0;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (box_limits_join(&b->limits))
		fail("cannot enter the groups of its limits");
	if (o->tree && (rc = box_namespaces()))
		errno = -rc, fail("cannot make namespaces");
	if (o->tree && (rc = mount_overlay(o->folder, o->tree)))
		errno = -rc, fail("cannot mount the overlay");
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* entering a user namespace has taken it back */
	for (size_t i = 0; i < 5; i++)
		fcntl((const int[]){b->guest, b->filter, b->inner_door, b->inside, b->lock}[i], F_SETFD, 0);
	char **argv = box_jail(&jail);
	execvp(argv[0], argv);
	fail("cannot start bubblewrap");
}

/* What the program inside says first: its listening socket, or why there is none. */
static int receive_net(struct box *b, int *fd, struct err *err)
{
	char text[sizeof err->text];
	struct pollfd p[2] = {{.fd = b->net, .events = POLLIN}, {.fd = b->signals, .events = POLLIN}};
	int64_t end = clock_mono_ms() + READY_MS;
	while (!(p[0].revents & (POLLIN | POLLHUP))) {
		int64_t left = end - clock_mono_ms();
		if (left <= 0)
			return err_set(err, ETIMEDOUT, "the container does not start within %d s", READY_MS / 1000);
		poll(p, 2, (int)left);
		struct signalfd_siginfo s;
		if (p[1].revents && read(b->signals, &s, sizeof s) == sizeof s && s.ssi_signo == SIGTERM)
			return err_set(err, ECANCELED, "told to end");
	}
	ssize_t n = unix_receive(b->net, text, sizeof text - 1, fd, 0);
	if (n <= 0)
		return err_set(err, EIO, "bubblewrap does not start it");
	text[n] = 0;
	return *fd >= 0 && !strcmp(text, BOX_READY) ? 0 : err_set(err, EIO, "%s", text);
}

static int memory_file(const void *p, size_t n, struct err *err)
{
	CLEAN_FD int fd = memfd_create("guest", MFD_CLOEXEC);
	int rc = fd < 0 ? -errno : fd_write_full(fd, p, n);
	if (!rc && lseek(fd, 0, SEEK_SET))
		rc = -errno;
	return rc ? err_sys(err, -rc, "cannot lay down the program for inside") : take_fd(&fd);
}

static int take_lock(struct box *b, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/lock", b->o.folder);
	CLEAN_FREE char *pid = xasprintf("%s/keeper.pid", b->o.folder);
	CLEAN_FREE char *self = xasprintf("%d %llu\n", (int)getpid(), process_start(getpid()));
	int64_t end = clock_mono_ms() + LOCK_WAIT_MS;
	b->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (b->lock < 0)
		return err_sys(err, errno, "cannot open %s", path);
	while (flock(b->lock, LOCK_EX | LOCK_NB)) {
		if (clock_mono_ms() > end)
			return err_set(err, EBUSY, "another process runs the container in %s", b->o.folder);
		clock_sleep_ms(20);
	}
	return file_write(pid, self, strlen(self), 0600, err);
}

static int signals_open(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_SETMASK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The name of the groups: the same for the same folder, so that one that was left behind is found again. */
static char *group_name(const char *folder)
{
	struct stat st = {0};
	stat(folder, &st);
	return xasprintf("berthfs-%llx-%llx", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
}

/* Without it a container is as if its disk had no limit. */
static void start_meter(struct box *b)
{
	CLEAN_FREE char *root = xasprintf("%s/root", b->o.folder);
	const struct box_disk d = {
		.root = root, .base = b->o.base, .tell = b->net, .limit = (uint64_t)b->o.disk_mib << 20};
	b->meter_ms = clock_mono_ms();
	b->meter = box_disk_watch(&d);
	if (b->meter < 0) {
		log_warn("its disk is not measured: %s", strerror(errno));
		fd_close(&b->net);
	}
}

static int start(struct box *b, struct buf *missing, struct err *err)
{
	int pair[2], doors[2], listener, net = -1;
	CLEAN_FREE char *group = group_name(b->o.folder);
	CLEAN_FREE char *note = xasprintf("%s/net", b->o.folder);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return err_sys(err, errno, "cannot make a socket");
	b->net = pair[0];
	b->inside = pair[1];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, doors))
		return err_sys(err, errno, "cannot make a socket");
	b->door = doors[0];
	b->inner_door = doors[1];
	if ((b->signals = signals_open()) < 0)
		return err_sys(err, errno, "cannot wait for signals");
	if ((b->guest = memory_file(guest_image, guest_image_size, err)) < 0)
		return b->guest;
	if ((b->filter = box_filter(err)) < 0)
		return b->filter;
	if ((listener = unix_listen(b->o.socket, 0600, err)) < 0)
		return listener;
	box_limits_open(&b->limits, group, b->o.memory_mib, b->o.cpus, missing);
	door_init(&b->clients, listener, take_fd(&b->door), b->limits.freeze);
	b->pid = fork();
	if (b->pid == 0)
		become(b);
	if (b->pid < 0)
		return err_sys(err, errno, "cannot start a process");
	fd_close(&b->inside);
	fd_close(&b->inner_door);
	int rc = receive_net(b, &net, err);
	if (!rc)
		start_meter(b);
	return rc ? rc : relay_serve(net, false, note, err);
}

/* ---- the rest of its life ---- */

/* One that was killed, by whoever runs out of memory above all, is followed by another. By itself it ends with what is
 * inside. *ms: how long may be waited for other things. */
static void look_after_meter(struct box *b, int *ms)
{
	int status;
	if (b->meter > 0 && waitpid(b->meter, &status, WNOHANG) == b->meter) {
		b->meter = 0;
		b->meter_lacks = WIFSIGNALED(status);
		if (b->meter_lacks)
			log_warn("what measures its disk has ended by signal %d", WTERMSIG(status));
	}
	if (!b->meter_lacks)
		return;
	int64_t left = b->meter_ms + METER_MS - clock_mono_ms();
	if (left > 0) {
		*ms = *ms < 0 || *ms > left ? (int)left : *ms;
		return;
	}
	b->meter_lacks = false;
	start_meter(b);
}

static bool has_ended(const struct box *b)
{
	int status;
	if (waitpid(b->pid, &status, WNOHANG) != b->pid)
		return false;
	log_info("the container has ended: %s %d", WIFSIGNALED(status) ? "signal" : "exit code",
		 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return true;
}

static void run(struct box *b)
{
	while (!has_ended(b)) {
		struct signalfd_siginfo s;
		struct pollfd p[DOOR_CLIENTS + 3] = {{.fd = b->signals, .events = POLLIN}};
		int ms = -1, n = door_poll(&b->clients, p + 1, &ms);
		look_after_meter(b, &ms);
		if (poll(p, (nfds_t)n + 1, ms) < 0)
			continue;
		door_work(&b->clients, p + 1, n);
		while (read(b->signals, &s, sizeof s) == sizeof s)
			if (s.ssi_signo == SIGTERM) {
				door_open(&b->clients);
				child_kill_jail(b->pid); /* and with it all that is inside */
			}
	}
}

static void finish(struct box *b)
{
	CLEAN_FREE char *pid = xasprintf("%s/keeper.pid", b->o.folder);
	CLEAN_FREE char *group = group_name(b->o.folder);
	if (b->meter > 0 && !kill(b->meter, SIGKILL))
		waitpid(b->meter, NULL, 0); /* it must not be in a folder that is going to be removed */
	door_release(&b->clients);
	unlink(b->o.socket);
	unlink(pid);
	box_limits_remove(group);
	box_limits_release(&b->limits);
}

int sandbox_box_main(int argc, char **argv)
{
	struct box b = {.lock = -1,
			.guest = -1,
			.filter = -1,
			.net = -1,
			.inside = -1,
			.door = -1,
			.inner_door = -1,
			.signals = -1};
	struct err err = ERR_INIT;
	CLEAN_BUF struct buf missing = BUF_INIT;
	if (parse(argc, argv, &b.o) || (!b.o.probe && fcntl(PROCESS_STATUS_FD, F_SETFD, FD_CLOEXEC))) {
		log_error("%s is started by berthfs itself", BOX_VERB);
		return 64;
	}
	if (b.o.probe)
		return probe(&b.o);
	umask(077);
	setsid();
	door_init(&b.clients, -1, -1, NULL);
	int rc = take_lock(&b, &err);
	rc = rc ? rc : start(&b, &missing, &err);
	if (rc) {
		log_error("%s", err.text);
		if (b.pid > 0) {
			child_kill_jail(b.pid);
			waitpid(b.pid, NULL, 0);
		}
		if (b.lock >= 0 && rc != -EBUSY)
			finish(&b);
		process_report("error ", err.text);
		return 1;
	}
	/* Whoever gave up before could not know of us, and end us: the sandbox may be gone by now. */
	if (!process_report("ok ", buf_str(&missing)))
		child_kill_jail(b.pid);
	run(&b);
	finish(&b);
	return 0;
}
