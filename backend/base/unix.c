/* Unix stream sockets by path. Any thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"

#define BACKLOG 1024 /* a sandbox's connections all at once, while the listener is busy */

/* sun_path holds 108 bytes. A longer path is reached as /proc/self/fd/N/NAME through its folder's descriptor. */
static int address(const char *path, struct sockaddr_un *sa, int *dirfd)
{
	*sa = (struct sockaddr_un){.sun_family = AF_UNIX};
	*dirfd = -1;
	if (strlen(path) < sizeof sa->sun_path) {
		memcpy(sa->sun_path, path, strlen(path) + 1);
		return 0;
	}
	CLEAN_FREE char *dir = xstrdup(path);
	char *slash = strrchr(dir, '/');
	if (!slash || slash == dir)
		return -ENAMETOOLONG;
	*slash = 0;
	*dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*dirfd < 0)
		return -errno;
	int n = snprintf(sa->sun_path, sizeof sa->sun_path, "/proc/self/fd/%d/%s", *dirfd, slash + 1);
	return n < (int)sizeof sa->sun_path ? 0 : -ENAMETOOLONG;
}

int unix_listen(const char *path, mode_t mode, struct err *err)
{
	struct sockaddr_un sa;
	CLEAN_FD int dir = -1;
	CLEAN_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int rc = fd < 0 ? -errno : address(path, &sa, &dir);
	if (rc)
		return err_sys(err, -rc, "cannot listen on %s", path);
	struct stat st;
	if (!lstat(path, &st) && S_ISSOCK(st.st_mode))
		unlink(path);
	mode_t old = umask(0177); /* the socket must never be open to others, not even for a moment */
	rc = bind(fd, (struct sockaddr *)&sa, sizeof sa) ? -errno : 0;
	umask(old);
	if (!rc && (chmod(path, mode) || listen(fd, BACKLOG)))
		rc = -errno;
	if (rc)
		return err_sys(err, -rc, "cannot listen on %s", path);
	return take_fd(&fd);
}

static int unix_dial(const char *path, int flags, struct err *err)
{
	struct sockaddr_un sa;
	CLEAN_FD int dir = -1;
	CLEAN_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	int rc = fd < 0 ? -errno : address(path, &sa, &dir);
	if (!rc)
		while ((rc = connect(fd, (struct sockaddr *)&sa, sizeof sa) ? -errno : 0) == -EINTR)
			;
	if (rc)
		return err_sys(err, -rc, "cannot connect to %s", path);
	return take_fd(&fd);
}

int unix_connect(const char *path, struct err *err)
{
	return unix_dial(path, 0, err);
}

int unix_connect_now(const char *path, struct err *err)
{
	return unix_dial(path, SOCK_NONBLOCK, err);
}

int unix_peer(int fd, uid_t *uid, pid_t *pid)
{
	struct ucred c;
	socklen_t n = sizeof c;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n))
		return -errno;
	*uid = c.uid;
	*pid = c.pid;
	return 0;
}

bool unix_peer_ours(int fd)
{
	uid_t uid;
	pid_t pid;
	return !unix_peer(fd, &uid, &pid) && (uid == geteuid() || uid == 0);
}

int unix_line(int fd, char *line, size_t max, size_t *n)
{
	for (;;) {
		char byte;
		ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (got == 0 || *n == max)
			return got == 0 ? -EPIPE : -EMSGSIZE;
		if (byte == '\n') {
			line[*n] = 0;
			return 1;
		}
		line[(*n)++] = byte;
	}
}

/* Room for one descriptor: a message with more is cut there. */
union passing {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

ssize_t unix_send(int fd, const void *p, size_t n, int pass, int flags)
{
	union passing u = {
		.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof pass)}};
	struct iovec bytes = {(void *)(uintptr_t)p, n};
	struct msghdr m = {.msg_iov = &bytes, .msg_iovlen = 1};
	if (pass >= 0) {
		m.msg_control = &u;
		m.msg_controllen = CMSG_LEN(sizeof pass);
		memcpy(CMSG_DATA(&u.head), &pass, sizeof pass);
	}
	ssize_t sent = sendmsg(fd, &m, flags | MSG_NOSIGNAL);
	return sent < 0 ? -errno : sent;
}

ssize_t unix_receive(int fd, void *p, size_t n, int *pass, int flags)
{
	union passing u = {0};
	struct iovec bytes = {p, n};
	struct msghdr m = {
		.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = CMSG_LEN(sizeof *pass)};
	ssize_t got = recvmsg(fd, &m, flags | MSG_CMSG_CLOEXEC);
	*pass = -1;
	if (got < 0)
		return -errno;
	const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof *pass))
		memcpy(pass, CMSG_DATA(c), sizeof *pass);
	return got;
}
