/* The tool daemon inside of a container: PID 1 of its namespace, which bubblewrap has made. Its connections come from
 * the keeper, which listens outside; the socket that listens for the gateway's clients is made here and handed out to
 * the keeper. Main thread: what the keeper says. Must never leave a descriptor to a job. */
#include "box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "boot.h"
#include "busy.h"
#include "sandbox/box.h"
#include "sandbox/net.h"
#include "ssh.h"
#include "still.h"
#include "tools.h"

#define JOBS "/var/lib/berthfs/jobs"

struct box {
	int door, keeper, lock;
	int stop;   /* eventfd */
	bool alone; /* nobody measures the disk any more */
	struct tools *tools;
	struct still still;
};

static void on_shutdown(void *arg)
{
	struct box *b = arg;
	uint64_t one = 1;
	(void)!write(b->stop, &one, sizeof one);
}

/* What bubblewrap was given for itself, and whatever else came along. */
static void close_others(const struct box *b)
{
	for (int fd = 3; fd < 1024; fd++)
		if (fd != b->door && fd != b->keeper && fd != b->lock)
			close(fd);
		else
			fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void lower(int resource, rlim_t to)
{
	struct rlimit r;
	if (getrlimit(resource, &r))
		return;
	r.rlim_max = r.rlim_max < to ? r.rlim_max : to;
	r.rlim_cur = r.rlim_max;
	setrlimit(resource, &r);
}

/* Limits of each process, and one of them all together: processes are counted by user and namespace, so that those
 * outside do not count. Those of the cgroups, where there are some, are the keeper's. */
static void limits(int processes, int mib, int disk_mib)
{
	lower(RLIMIT_FSIZE, (rlim_t)disk_mib << 20);
	lower(RLIMIT_NPROC, (rlim_t)processes);
	lower(RLIMIT_DATA, (rlim_t)mib << 20);
	lower(RLIMIT_CORE, 0); /* the machine's own handler of them would run outside */
	lower(RLIMIT_NOFILE, 65536);
	lower(RLIMIT_MEMLOCK, 8 << 20);
	lower(RLIMIT_MSGQUEUE, 1 << 20);
	lower(RLIMIT_SIGPENDING, 16384);
}

static void ask_keeper(void *arg)
{
	const struct box *b = arg;
	send(b->keeper, BOX_LOOK, strlen(BOX_LOOK), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int net_listen(struct err *err)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons(NET_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int on = 1;
	CLEAN_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
	    bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 128))
		return err_sys(err, errno, "cannot listen on port %d", NET_PORT);
	return take_fd(&fd);
}

/* Words, and a descriptor that goes along (or -1). */
static bool tell_keeper(struct box *b, const char *words, int fd)
{
	size_t n = strlen(words);
	return unix_send(b->keeper, words, n, fd, 0) == (ssize_t)n;
}

static int begin(struct box *b, struct err *err)
{
	char url[40];
	snprintf(url, sizeof url, "http://127.0.0.1:%d", NET_PORT);
	struct tools_config config = {.url = url,
				      .busy = BUSY_FOLDER,
				      .jobs = {.folder = JOBS,
					       .home = GUEST_HOME,
					       .path = GUEST_PATH,
					       .user = "agent",
					       .ask_disk = ask_keeper,
					       .arg = b},
				      .shutdown = on_shutdown,
				      .ssh = ssh_serve,
				      .arg = b};
	CLEAN_FD int net = net_listen(err);
	if (net < 0)
		return net;
	b->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int rc = b->stop < 0 ? err_sys(err, errno, "cannot make a descriptor") : tools_new(&config, &b->tools, err);
	if (!rc && !tell_keeper(b, BOX_READY, net))
		rc = err_set(err, EPIPE, "the keeper has ended");
	return rc;
}

/* What there is to be said of the disk. */
static void hear_keeper(struct box *b)
{
	char word[16] = "";
	ssize_t n = recv(b->keeper, word, sizeof word - 1, MSG_DONTWAIT);
	b->alone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
	if (b->alone)
		jobs_disk(tools_jobs(b->tools), false, false);
	else if (n > 0)
		jobs_disk(tools_jobs(b->tools), strcmp(word, BOX_ROOM) != 0, !strcmp(word, BOX_FULL));
}

static void count(struct box *b, const char *number, bool stop)
{
	char words[48];
	int n = tools_connections(b->tools);
	if (stop && !n)
		still_stop(&b->still);
	snprintf(words, sizeof words, "%.20s %d", number, n);
	send(b->door, words, strlen(words), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Who comes, and whether all has to stand still. False: the keeper has ended. */
static bool hear_door(struct box *b)
{
	char text[32];
	CLEAN_FD int fd = -1;
	ssize_t n = unix_receive(b->door, text, sizeof text - 1, &fd, MSG_DONTWAIT);
	if (n < 0)
		return n == -EAGAIN || n == -EINTR;
	text[n] = 0;
	if (!strncmp(text, BOX_COUNT " ", sizeof BOX_COUNT))
		count(b, text + sizeof BOX_COUNT, false);
	else if (!strncmp(text, BOX_STOP " ", sizeof BOX_STOP))
		count(b, text + sizeof BOX_STOP, true);
	else if (!strcmp(text, BOX_GO))
		still_go(&b->still);
	else if (fd >= 0)
		tools_serve(b->tools, take_fd(&fd), strcmp(text, BOX_SSH) ? TOOLS_GREET : TOOLS_SSH);
	return n > 0;
}

static void serve(struct box *b)
{
	for (;;) {
		struct pollfd p[3] = {{.fd = b->door, .events = POLLIN},
				      {.fd = b->stop, .events = POLLIN},
				      {.fd = b->alone ? -1 : b->keeper, .events = POLLIN}};
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			return;
		if (p[1].revents)
			return;
		if (p[2].revents)
			hear_keeper(b);
		if (p[0].revents && !hear_door(b))
			return;
	}
}

int box_main(int argc, char **argv)
{
	struct err err = ERR_INIT;
	if (argc != 8)
		return 64;
	struct box b = {.door = atoi(argv[2]), .keeper = atoi(argv[3]), .lock = atoi(argv[4]), .stop = -1};
	umask(022);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	/* nobody inside looks into this process: its log and lock are files of the outside */
	prctl(PR_SET_DUMPABLE, 0);
	close_others(&b);
	limits(atoi(argv[5]), atoi(argv[6]), atoi(argv[7]));
	setenv("PATH", GUEST_PATH, 1);
	mkdir(BUSY_FOLDER, 01777);
	if (begin(&b, &err)) {
		tell_keeper(&b, err.text, -1);
		return 1;
	}
	serve(&b);
	tools_close(b.tools);
	boot_terminate_all();
	tools_stop(b.tools);
	return 0;
}
