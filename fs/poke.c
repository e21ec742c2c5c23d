/* The helper process. A daemon that is killed leaves a mount on which every access fails, and nobody else knows of it;
 * this process lives for nothing but that moment. It is forked before the mount and holds no descriptor of /dev/fuse
 * or of the mount: either would keep the dead file system alive. It runs no thread and touches no path of the mount. */
#include "poke.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "mountinfo.h"

struct duty {
	char dev[32]; /* "" until something is mounted */
	char dir[8192];
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

/* Closes every descriptor but the two given and standard error. */
static void keep_only(int a, int b)
{
	int lo = a < b ? a : b, hi = a < b ? b : a;
	int null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	close_range(3, (unsigned)lo - 1, 0);
	if (hi > lo + 1)
		close_range((unsigned)lo + 1, (unsigned)hi - 1, 0);
	close_range((unsigned)hi + 1, ~0U, 0);
}

static void serve(int fd)
{
	struct duty duty = {0}, got;
	for (;;) {
		ssize_t n = recv(fd, &got, sizeof got, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 1) /* a clean end */
			return;
		if (n <= 0) {
			clear_away(&duty);
			return;
		}
		duty = got;
	}
}

int poke_start(int lock_fd, int log_fd, struct poke *out, struct err *err)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return err_sys(err, errno, "cannot start the helper");
	pid_t pid = fork();
	if (pid < 0) {
		int code = errno;
		close(pair[0]);
		close(pair[1]);
		return err_sys(err, code, "cannot start the helper");
	}
	if (!pid) {
		sigset_t all;
		sigfillset(&all); /* who ends a whole group of processes must not end the one that tidies up */
		sigprocmask(SIG_SETMASK, &all, NULL);
		setsid();
		prctl(PR_SET_NAME, "berthfs-helper");
		if (chdir("/"))
			_exit(1);
		dup2(log_fd, 2);
		keep_only(pair[1], lock_fd);
		serve(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	*out = (struct poke){.pid = pid, .fd = pair[0]};
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

void poke_stop(struct poke *p)
{
	if (p->pid <= 0)
		return;
	send(p->fd, "q", 1, MSG_NOSIGNAL);
	fd_close(&p->fd);
	waitpid(p->pid, NULL, 0);
	p->pid = 0;
}
