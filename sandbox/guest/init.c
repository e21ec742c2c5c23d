/* The guest program: PID 1 of a VM (and on a machine behind ssh what remote.h says), its tool daemon, its end of the
 * port to the keeper, and what listens on 127.0.0.1 for the gateway's clients, whose connections become streams of that
 * port. The main thread runs the mux; connections and jobs have threads of their own (tools.c, job_run.c). Must never
 * exit, since that is a kernel panic. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "boot.h"
#include "box.h"
#include "busy.h"
#include "remote.h"
#include "sandbox/mux.h"
#include "sandbox/net.h"
#include "ssh.h"
#include "tools.h"

#define PORT_NAME "berthfs.mux"
#define PORT_RETRY                                                                                                     \
	250 /* ms; a port whose host side is closed only ever says POLLHUP, so it is looked at, not waited on */
#define LAST_WORDS  300 /* ms that the answer to a shutdown has to get out */
#define JOBS	    "/var/lib/berthfs/jobs"
#define CGROUP	    "/sys/fs/cgroup"
#define CGROUP_JOBS CGROUP "/jobs"

struct init {
	struct tools *tools;
	struct mux *mux;
	int net;  /* listens on NET_PORT; what cannot be relayed now waits there */
	int stop; /* eventfd */
	bool said_ready;
};

/* ---- the port ---- */

/* /dev/vportNpM of the port with our name, or -ENOENT. */
static int find_port(char *path, size_t n)
{
	static const char folder[] = "/sys/class/virtio-ports";
	DIR *d = opendir(folder);
	int rc = -ENOENT;
	for (struct dirent *e; d && rc && (e = readdir(d));) {
		CLEAN_FREE char *file = xasprintf("%s/%s/name", folder, e->d_name);
		CLEAN_BUF struct buf name = BUF_INIT;
		if (file_read(file, &name, 256, NULL) || strcmp(buf_str(&name), PORT_NAME "\n") != 0)
			continue;
		snprintf(path, n, "/dev/%s", e->d_name);
		rc = 0;
	}
	if (d)
		closedir(d);
	return rc;
}

static void try_port(struct init *init)
{
	char path[300];
	if (find_port(path, sizeof path))
		return;
	CLEAN_FD int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	if (fd < 0 || poll(&p, 1, 0) < 0 || p.revents & POLLHUP)
		return;
	if (!init->said_ready)
		boot_say("ready");
	init->said_ready = true;
	mux_port(init->mux, take_fd(&fd));
}

static int on_accept(void *arg, const char *kind)
{
	struct init *init = arg;
	int s[2];
	if (!strcmp(kind, "ssh"))
		return ssh_serve(tools_jobs(init->tools));
	if (strcmp(kind, "tool") != 0)
		return -EPROTONOSUPPORT;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s))
		return -errno;
	int rc = tools_serve(init->tools, s[1], TOOLS_FRAMES);
	if (rc)
		close(s[0]);
	return rc ? rc : s[0];
}

/* ---- the way to the gateway ---- */

static int net_listen(void)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons(NET_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int on = 1;
	CLEAN_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
	    bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 128)) {
		boot_say("cannot listen on port %d: %s", NET_PORT, strerror(errno));
		return -1;
	}
	return take_fd(&fd);
}

static bool net_room(const struct init *init)
{
	return mux_state(init->mux) == MUX_LIVE && mux_guest_streams(init->mux) < MUX_GUEST_STREAMS;
}

static void net_accept(struct init *init)
{
	while (net_room(init)) {
		int on = 1, fd = accept4(init->net, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		mux_open(init->mux, "net", fd, NULL);
	}
}

/* ---- what the tool daemon asks of the machine ---- */

static void on_hello(void *arg, int64_t time_ms, const void *entropy, size_t n)
{
	boot_set_clock(time_ms, CLOCK_OFF_MS);
	boot_add_entropy(entropy, n);
}

/* Before anybody else is served: what two machines with the same memory would do alike must not be done yet. */
static void on_renew(void *arg, int64_t time_ms, const void *entropy, size_t n, const char *host)
{
	boot_add_entropy(entropy, n);
	boot_set_clock(time_ms, 0);
	if (host)
		boot_identity(host, true);
}

static void on_shutdown(void *arg)
{
	struct init *init = arg;
	uint64_t one = 1;
	(void)!write(init->stop, &one, sizeof one);
}

/* ---- */

static const char *make_cgroup(void)
{
	struct stat st;
	if (stat(CGROUP "/cgroup.procs", &st) || (mkdir(CGROUP_JOBS, 0755) && errno != EEXIST))
		return NULL;
	return CGROUP_JOBS;
}

static void start(struct init *init)
{
	struct err err = ERR_INIT;
	struct rlimit files = {.rlim_cur = 65536, .rlim_max = 65536}; /* package managers open thousands */
	setrlimit(RLIMIT_NOFILE, &files);
	signal(SIGPIPE, SIG_IGN);
	setenv("PATH", GUEST_PATH, 1);
	if (mkdir(GUEST_HOME, 0755) == 0)
		(void)!chown(GUEST_HOME, GUEST_UID, GUEST_GID);
	struct tools_config config = {.jobs = {.folder = JOBS,
					       .home = GUEST_HOME,
					       .path = GUEST_PATH,
					       .drop = true,
					       .uid = GUEST_UID,
					       .gid = GUEST_GID,
					       .user = "agent",
					       .cgroup = make_cgroup()},
				      .busy = BUSY_FOLDER,
				      .cpu_ms = boot_cpu_ms,
				      .hello = on_hello,
				      .renew = on_renew,
				      .shutdown = on_shutdown,
				      .arg = init};
	char url[40];
	snprintf(url, sizeof url, "http://127.0.0.1:%d", NET_PORT);
	init->net = net_listen();
	config.url = init->net < 0 ? NULL : url;
	static const struct mux_ops ops = {.accept = on_accept};
	init->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (init->stop < 0 || tools_new(&config, &init->tools, &err) ||
	    mux_new(MUX_GUEST, &ops, init, &init->mux, &err))
		boot_fail("%s", err.code ? err.text : strerror(errno));
}

/* One round of the main loop, at most ms long. True: power off was asked for. */
static bool turn(struct init *init, int ms)
{
	bool down = mux_state(init->mux) == MUX_DOWN;
	if (down)
		try_port(init);
	struct pollfd p[3] = {{.fd = mux_fd(init->mux), .events = POLLIN},
			      {.fd = init->stop, .events = POLLIN},
			      {.fd = net_room(init) ? init->net : -1, .events = POLLIN}};
	poll(p, 3, down && (ms < 0 || ms > PORT_RETRY) ? PORT_RETRY : ms);
	mux_work(init->mux);
	if (p[2].revents)
		net_accept(init);
	return p[1].revents != 0;
}

int main(int argc, char **argv)
{
	static struct init init;
	if (argc > 1 && !strcmp(argv[1], "box"))
		return box_main(argc, argv);
	if (getpid() != 1)
		return remote_main(argc, argv);
	boot_up();
	start(&init);
	while (!turn(&init, -1))
		;
	for (int64_t end = clock_mono_ms() + LAST_WORDS; mux_streams(init.mux) && clock_mono_ms() < end;)
		turn(&init, 20);
	tools_close(init.tools);
	boot_terminate_all();
	tools_stop(init.tools);
	boot_power_off();
}
