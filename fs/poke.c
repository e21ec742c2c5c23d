/* The janitor and the daemon's end of it. A daemon that is killed leaves a mount on which every access fails, and
 * nobody else knows of it; the janitor lives for that moment. It is forked before the mount and holds no descriptor of
 * /dev/fuse or of the mount: either would keep the dead file system alive. It runs no thread and touches no path of the
 * mount. What has to be done there its children do, the pokers: one at a time, but one that hangs is replaced. */
#include "poke.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "mountinfo.h"
#include "poker.h"

#define POKERS_MAX 4	/* that hang and cannot be killed; no more are started then */
#define END_MS	   2000 /* at the end pokers are waited for no longer: one may hang in a mount that is not ours */

struct duty {
	char dev[32]; /* "" until something is mounted */
	char dir[8192];
};

/* One byte each from the daemon, besides the duty. */
#define CMD_QUIT  'q'
#define CMD_START 'w'
#define CMD_GO	  'g'

struct janitor {
	int fd, work_fd, lock_fd, child_fd;
	int gate; /* the newest poker waits at its other end, -1: it has gone through */
	struct duty duty;
	pid_t poker[POKERS_MAX]; /* 0: none; the newest first */
};

static void clear_away(const struct duty *duty)
{
	struct mounted m;
	if (!duty->dev[0] || mountinfo_at(duty->dir, &m))
		return;
	if (!strcmp(m.dev, duty->dev)) { /* and not what somebody has mounted there since */
		int rc = mount_detach(duty->dir);
		if (rc)
			log_error("the daemon has died, and its mount %s could not be cleared away: %s", duty->dir,
				  strerror(-rc));
		else
			log_warn("the daemon has died; its mount %s was cleared away", duty->dir);
	}
	mounted_release(&m);
}

/* Moves the descriptors given to 3 and up, in their order, and closes all others but standard error. */
static void keep_only(int *fds[], int n)
{
	int null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	for (int i = 0; i < n; i++)
		*fds[i] = fcntl(*fds[i], F_DUPFD_CLOEXEC, 64);
	for (int i = 0; i < n; i++)
		*fds[i] = dup3(*fds[i], 3 + i, O_CLOEXEC);
	close_range(3 + (unsigned)n, ~0U, 0);
}

/* ---- pokers ---- */

static void tell(const struct janitor *j)
{
	send(j->fd, &j->poker[0], sizeof j->poker[0], MSG_NOSIGNAL | MSG_DONTWAIT);
}

static _Noreturn void be_poker(struct janitor *j, int gate, pid_t parent)
{
	char c;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "berthfs-poke");
	if (getppid() != parent)
		_exit(1);
	close(j->fd);
	close(j->lock_fd); /* one that hangs must not keep a new daemon from starting */
	close(j->child_fd);
	if (read(gate, &c, 1) == 1) {
		close(gate);
		poker_run(j->work_fd, j->duty.dir, j->duty.dev);
	}
	_exit(0);
}

static void start_poker(struct janitor *j)
{
	int gate[2];
	fd_close(&j->gate);
	if (j->poker[0])
		kill(j->poker[0], SIGKILL);
	if (j->poker[POKERS_MAX - 1] || pipe2(gate, O_CLOEXEC))
		return;
	pid_t parent = getpid(), pid = fork();
	if (!pid) {
		close(gate[1]);
		be_poker(j, gate[0], parent);
	}
	close(gate[0]);
	j->gate = gate[1];
	if (pid < 0) {
		fd_close(&j->gate);
		return;
	}
	memmove(j->poker + 1, j->poker, (POKERS_MAX - 1) * sizeof j->poker[0]);
	j->poker[0] = pid;
	tell(j);
}

static void reap(struct janitor *j)
{
	struct signalfd_siginfo info;
	while (read(j->child_fd, &info, sizeof info) == sizeof info)
		;
	for (int i = 0; i < POKERS_MAX; i++) {
		if (!j->poker[i] || waitpid(j->poker[i], NULL, WNOHANG) != j->poker[i])
			continue;
		if (!i) { /* nobody takes over its pid unnoticed: the daemon is told */
			j->poker[0] = 0;
			tell(j);
			continue;
		}
		memmove(j->poker + i, j->poker + i + 1, (size_t)(POKERS_MAX - 1 - i) * sizeof j->poker[0]);
		j->poker[POKERS_MAX - 1] = 0;
		i--;
	}
}

static bool has_pokers(const struct janitor *j)
{
	for (int i = 0; i < POKERS_MAX; i++)
		if (j->poker[i])
			return true;
	return false;
}

static void end_pokers(struct janitor *j)
{
	int64_t until = clock_mono_ms() + END_MS;
	for (int i = 0; i < POKERS_MAX; i++)
		if (j->poker[i])
			kill(j->poker[i], SIGKILL);
	while (has_pokers(j) && clock_mono_ms() < until) {
		struct pollfd p = {.fd = j->child_fd, .events = POLLIN};
		poll(&p, 1, 50);
		reap(j);
	}
}

/* ---- the janitor ---- */

/* False at the end. */
static bool take_command(struct janitor *j)
{
	struct duty got;
	ssize_t n = recv(j->fd, &got, sizeof got, 0);
	if (n < 0 && errno == EINTR)
		return true;
	if (n <= 0) {
		clear_away(&j->duty); /* first: it frees those who hang in the mount */
		end_pokers(j);
		return false;
	}
	if (n == sizeof got) {
		j->duty = got;
		return true;
	}
	switch (got.dev[0]) {
	case CMD_START: start_poker(j); break;
	case CMD_GO:
		if (j->gate >= 0 && write(j->gate, "g", 1) < 0)
			log_warn("the poker does not start: %s", strerror(errno));
		fd_close(&j->gate);
		break;
	default: end_pokers(j); return false;
	}
	return true;
}

static void serve(struct janitor *j)
{
	sigset_t child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	j->child_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	for (;;) {
		struct pollfd p[] = {{.fd = j->fd, .events = POLLIN}, {.fd = j->child_fd, .events = POLLIN}};
		if (poll(p, ARRAY_LEN(p), -1) < 0)
			continue;
		if (p[1].revents)
			reap(j);
		if (p[0].revents && !take_command(j))
			return;
	}
}

static _Noreturn void be_janitor(struct janitor *j, int log_fd)
{
	sigset_t all;
	sigfillset(&all); /* who ends a whole group of processes must not end the one that tidies up */
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would take the pokers' ends away */
	setsid();
	prctl(PR_SET_NAME, "berthfs-helper");
	if (chdir("/"))
		_exit(1);
	dup2(log_fd, 2);
	int *fds[] = {&j->fd, &j->lock_fd, &j->work_fd};
	keep_only(fds, j->work_fd < 0 ? 2 : 3);
	serve(j);
	_exit(0);
}

/* ---- the daemon's end ---- */

int poke_start(int lock_fd, int log_fd, bool watch, struct poke *out, struct err *err)
{
	int pair[2], work[2] = {-1, -1};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return err_sys(err, errno, "cannot start the helper");
	pid_t pid = -1;
	if (!watch || !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, work))
		pid = fork();
	if (pid < 0) {
		int code = errno;
		close(pair[0]);
		close(pair[1]);
		fd_close(&work[0]);
		fd_close(&work[1]);
		return err_sys(err, code, "cannot start the helper");
	}
	if (!pid) {
		struct janitor *j = xcalloc(1, sizeof *j);
		*j = (struct janitor){.fd = pair[1], .work_fd = work[1], .lock_fd = lock_fd, .gate = -1};
		be_janitor(j, log_fd);
	}
	close(pair[1]);
	fd_close(&work[1]);
	*out = (struct poke){.pid = pid, .fd = pair[0], .work_fd = work[0]};
	return 0;
}

int poke_mounted(const struct poke *p, const char *dir, const char *dev)
{
	struct duty duty = {0};
	if (strlen(dir) >= sizeof duty.dir)
		return -ENAMETOOLONG;
	memcpy(duty.dir, dir, strlen(dir) + 1);
	snprintf(duty.dev, sizeof duty.dev, "%s", dev);
	return send(p->fd, &duty, sizeof duty, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void command(const struct poke *p, char c)
{
	send(p->fd, &c, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void poke_stop(struct poke *p)
{
	if (p->pid <= 0)
		return;
	command(p, CMD_QUIT);
	fd_close(&p->fd);
	fd_close(&p->work_fd);
	waitpid(p->pid, NULL, 0);
	p->pid = 0;
}

void poke_start_worker(struct poke *p)
{
	command(p, CMD_START);
}

int poke_news(struct poke *p)
{
	pid_t pid;
	int changed = 0;
	for (;;) {
		ssize_t n = recv(p->fd, &pid, sizeof pid, MSG_DONTWAIT);
		if (n == sizeof pid) {
			p->worker = pid;
			changed = 1;
		} else if (n < 0 && errno == EINTR) {
			continue;
		} else {
			return n < 0 && errno == EAGAIN ? changed : -EPIPE;
		}
	}
}

void poke_go(struct poke *p)
{
	command(p, CMD_GO);
}

int poke_send(const struct poke *p, const struct poke_order *order)
{
	size_t n = offsetof(struct poke_order, path) + strlen(order->path) + 1;
	return send(p->work_fd, order, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int poke_receive(const struct poke *p, struct poke_answer *answer)
{
	return recv(p->work_fd, answer, sizeof *answer, MSG_DONTWAIT) == sizeof *answer;
}
