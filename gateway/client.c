/* Speaks to the gateway's control socket: starts the process, hands over keys, asks for what the tree shows. Each call
 * is one connection with a deadline. Any thread. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "gateway.h"
#include "key.h"
#include "net.h"
#include "policy.h"

#define DEADLINE_MS 10000
#define ANSWER_MAX  (4 << 20)

extern char **environ;

/* ---- one request ---- */

static int wait_for(int fd, short events, int64_t until)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		int64_t left = until - clock_mono_ms();
		int n = poll(&p, 1, left > 0 ? (int)left : 0);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (left <= 0)
			return -ETIMEDOUT;
	}
}

static int send_all(int fd, const void *p, size_t n, int64_t until)
{
	for (const char *at = p; n;) {
		ssize_t r = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (r < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
		int rc = r < 0 ? wait_for(fd, POLLOUT, until) : 0;
		if (rc)
			return rc;
		at += r > 0 ? r : 0;
		n -= r > 0 ? (size_t)r : 0;
	}
	return 0;
}

static int recv_all(int fd, char *p, size_t n, int64_t until)
{
	while (n) {
		int rc = wait_for(fd, POLLIN, until);
		if (rc)
			return rc;
		ssize_t r = recv(fd, p, n, MSG_DONTWAIT);
		if (r < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (r <= 0)
			return r ? -errno : -ECONNRESET;
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

static int read_answer(int fd, struct buf *out, int64_t until, struct err *err)
{
	char line[64];
	size_t at = 0, n;
	int rc, code;
	do
		rc = recv_all(fd, line + at, 1, until);
	while (!rc && line[at++] != '\n' && at < sizeof line - 1);
	if (rc)
		return err_sys(err, -rc, "the gateway does not answer");
	line[at] = 0;
	if (sscanf(line, "%d %zu", &code, &n) != 2 || n > ANSWER_MAX)
		return err_set(err, EPROTO, "the gateway's answer makes no sense: it is of another version");
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_reserve(&b, n);
	rc = recv_all(fd, b.p, n, until);
	if (rc)
		return err_sys(err, -rc, "the gateway does not answer");
	b.n = n;
	b.p[n] = 0;
	if (code)
		return err_set(err, code < 0 ? -code : EIO, "%s", b.p);
	if (out)
		buf_add(out, b.p, b.n);
	explicit_bzero(b.p, b.cap);
	return 0;
}

/* The control socket of our own gateway, or of one of root's: another user who listens there would get keys. */
static int dial(const struct paths *p, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/gateway-control.sock", p->runtime);
	CLEAN_FD int fd = unix_connect(path, NULL);
	if (fd < 0)
		return err_set(err, -fd, "the gateway does not run");
	if (!unix_peer_ours(fd))
		return err_set(err, EPERM, "what listens at %s is not this user's", path);
	return take_fd(&fd);
}

static int ask(const struct paths *p, const char *words, const void *body, size_t n, struct buf *out, struct err *err)
{
	int64_t until = clock_mono_ms() + DEADLINE_MS;
	if (strchr(words, '\n'))
		return err_set(err, EINVAL, "a name with a line feed");
	CLEAN_FD int fd = dial(p, err);
	if (fd < 0)
		return fd;
	CLEAN_FREE char *line = xasprintf("%s\t%zu\n", words, n);
	int rc = send_all(fd, line, strlen(line), until);
	if (!rc)
		rc = send_all(fd, body, n, until);
	return rc ? err_sys(err, -rc, "cannot speak to the gateway") : read_answer(fd, out, until, err);
}

/* ---- the process ---- */

char *gateway_socket(const struct paths *p)
{
	return xasprintf("%s/gateway.sock", p->runtime);
}

bool gateway_running(const struct paths *p)
{
	return !ask(p, "hello", NULL, 0, NULL, NULL);
}

/* Its log goes where ours goes, its standard input and output nowhere. It leads a session of its own, and is no child
 * of the daemon: the process between them ends at once. */
static int spawn(const struct paths *p, const struct gateway_options *o, int ready, struct err *err)
{
	char number[16];
	snprintf(number, sizeof number, "%d", ready);
	const char *argv[16] = {paths_program(p), "gateway",  "--state", p->state,
				"--runtime",	  p->runtime, "--ready", number};
	int n = 8;
	if (o && o->listen) {
		argv[n++] = "--listen";
		argv[n++] = o->listen;
	}
	if (o && o->sync_each) {
		argv[n++] = "--sync";
		argv[n++] = "each";
	}
	pid_t pid = fork();
	if (pid < 0)
		return err_sys(err, errno, "cannot start the gateway");
	if (!pid) {
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (setsid() < 0 || fork())
			_exit(0);
		int null = open("/dev/null", O_RDWR);
		dup2(null, 0);
		dup2(null, 1);
		if (o && o->log_fd > 2)
			dup2(o->log_fd, 2);
		if (null > 2)
			close(null);
		fcntl(ready, F_SETFD, 0);
		if (chdir("/"))
			_exit(127);
		execv(argv[0], (char *const *)argv);
		_exit(127);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

static int wait_ready(int fd, struct err *err)
{
	char text[700];
	size_t n = 0;
	int64_t until = clock_mono_ms() + DEADLINE_MS;
	for (;;) {
		int rc = wait_for(fd, POLLIN, until);
		if (rc)
			return err_sys(err, -rc, "the gateway does not come up");
		ssize_t r = read(fd, text + n, sizeof text - 1 - n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			break;
		n += (size_t)r;
	}
	text[n] = 0;
	int code = 0, at = 0;
	if (sscanf(text, "%d %n", &code, &at) < 1)
		return err_set(err, ECHILD, "the gateway ended while it started; the log says why");
	return code ? err_set(err, -code, "%s", text + at) : 0;
}

int gateway_start(const struct paths *p, const struct gateway_options *o, struct err *err)
{
	CLEAN_BUF struct buf hello = BUF_INIT;
	int pipes[2];
	if (!ask(p, "hello", NULL, 0, &hello, NULL)) {
		size_t n = strlen(BERTHFS_VERSION);
		if (!strncmp(buf_str(&hello), BERTHFS_VERSION, n) && hello.p[n] == ' ')
			return 0;
		int rc = gateway_stop(p, err);
		if (rc)
			return rc;
	}
	if (pipe2(pipes, O_CLOEXEC))
		return err_sys(err, errno, "cannot start the gateway");
	CLEAN_FD int in = pipes[0];
	int rc = spawn(p, o, pipes[1], err);
	close(pipes[1]);
	if (!rc)
		rc = wait_ready(in, err);
	/* Two daemons' threads may start it at once: one of the processes finds the other's lock */
	return rc == -EBUSY && gateway_running(p) ? 0 : rc;
}

int gateway_stop(const struct paths *p, struct err *err)
{
	int64_t until = clock_mono_ms() + DEADLINE_MS;
	char c;
	CLEAN_FD int fd = dial(p, NULL);
	if (fd < 0 || send_all(fd, "stop\t0\n", 7, until))
		return 0;
	int rc = recv_all(fd, &c, 1, until); /* the connection ends with the process */
	return rc == -ETIMEDOUT ? err_set(err, ETIMEDOUT, "the gateway does not end") : 0;
}

int gateway_options_set(const struct paths *p, const struct gateway_options *o, struct err *err)
{
	CLEAN_FREE char *words =
		xasprintf("options\t%s\t%s", o->listen ? o->listen : "-", o->sync_each ? "each" : "batch");
	return ask(p, words, NULL, 0, NULL, err);
}

int gateway_attach(const struct paths *p, struct err *err)
{
	int64_t until = clock_mono_ms() + DEADLINE_MS;
	CLEAN_FD int fd = dial(p, err);
	if (fd < 0)
		return fd;
	int rc = send_all(fd, "attach\t0\n", 9, until);
	rc = rc ? err_sys(err, -rc, "cannot speak to the gateway") : read_answer(fd, NULL, until, err);
	return rc ? rc : take_fd(&fd);
}

/* ---- tokens ---- */

int gateway_token_mint(const struct paths *p, const char *kind, const char *session, const char *project,
		       const char *network, const char *socket, char *token, size_t cap, struct err *err)
{
	CLEAN_FREE char *words =
		xasprintf("token-mint\t%s\t%s\t%s\t%s\t%s", kind, session, project, network, socket ? socket : "");
	CLEAN_BUF struct buf out = BUF_INIT;
	int rc = ask(p, words, NULL, 0, &out, err);
	if (!rc && out.n >= cap)
		rc = err_set(err, ENOBUFS, "no room for a token");
	if (!rc)
		snprintf(token, cap, "%s", buf_str(&out));
	if (out.p)
		explicit_bzero(out.p, out.cap);
	return rc;
}

int gateway_token_revoke(const struct paths *p, const char *kind, const char *session, struct err *err)
{
	CLEAN_FREE char *words = xasprintf("token-revoke\t%s\t%s", kind, session);
	return ask(p, words, NULL, 0, NULL, err);
}

int gateway_life_set(const struct paths *p, const char *session, const char *path, struct err *err)
{
	CLEAN_FREE char *words = xasprintf("life\t%s\t%s", session, path);
	return ask(p, words, NULL, 0, NULL, err);
}

int gateway_network_set(const struct paths *p, const char *session, const char *network, struct err *err)
{
	CLEAN_FREE char *words = xasprintf("network\t%s\t%s", session, network);
	return ask(p, words, NULL, 0, NULL, err);
}

/* ---- the rest ---- */

int gateway_key_set(const struct paths *p, const char *provider, const void *bytes, size_t n, struct err *err)
{
	CLEAN_FREE char *words = xasprintf("key-set\t%s", provider);
	return ask(p, words, bytes, n, NULL, err);
}

bool gateway_key_name(const char *name)
{
	return key_name_ok(name);
}

int gateway_key_list(const struct paths *p, struct buf *out, struct err *err)
{
	return ask(p, "key-list", NULL, 0, out, err);
}

int gateway_policy_get(const struct paths *p, struct buf *out, struct err *err)
{
	return ask(p, "policy-get", NULL, 0, out, err);
}

int gateway_policy_set(const struct paths *p, const char *text, size_t n, struct err *err)
{
	return ask(p, "policy-set", text, n, NULL, err);
}

int gateway_policy_check_line(const char *line, size_t n, struct err *err)
{
	return policy_line(line, n, err);
}

int gateway_status(const struct paths *p, struct buf *out, struct err *err)
{
	return ask(p, "status", NULL, 0, out, err);
}

int gateway_head(const struct paths *p, struct buf *out, struct err *err)
{
	return ask(p, "head", NULL, 0, out, err);
}

int gateway_tokens(const struct paths *p, struct buf *out, struct err *err)
{
	return ask(p, "tokens", NULL, 0, out, err);
}

int gateway_ledger_read(const struct paths *p, uint64_t offset, size_t max, struct buf *out, uint64_t *size,
			struct err *err)
{
	CLEAN_FREE char *words = xasprintf("ledger\t%llu\t%zu", (unsigned long long)offset, max);
	CLEAN_BUF struct buf b = BUF_INIT;
	int rc = ask(p, words, NULL, 0, &b, err);
	if (rc)
		return rc;
	char *end;
	unsigned long long all = strtoull(buf_str(&b), &end, 10);
	if (*end != '\n')
		return err_set(err, EPROTO, "the gateway's answer makes no sense: it is of another version");
	if (size)
		*size = all;
	buf_add(out, end + 1, (size_t)(b.p + b.n - end - 1));
	return 0;
}

int gateway_usage_report(const struct paths *p, const char *session, const char *model, int64_t in, int64_t out,
			 int64_t cached, struct err *err)
{
	CLEAN_FREE char *words = xasprintf("usage\t%s\t%s\t%lld\t%lld\t%lld", session, model, (long long)in,
					   (long long)out, (long long)cached);
	return ask(p, words, NULL, 0, NULL, err);
}

int gateway_activity(const struct paths *p, const char *session, int *running, int64_t *idle_ms, struct err *err)
{
	CLEAN_FREE char *words = xasprintf("activity\t%s", session);
	CLEAN_BUF struct buf b = BUF_INIT;
	long long idle;
	int rc = ask(p, words, NULL, 0, &b, err);
	if (!rc && sscanf(buf_str(&b), "%d %lld", running, &idle) != 2)
		rc = err_set(err, EPROTO, "the gateway's answer makes no sense: it is of another version");
	if (!rc)
		*idle_ms = idle;
	return rc;
}

bool gateway_near(const char *url)
{
	char host[256];
	int port;
	const char *at = strstr(url, "://");
	CLEAN_FREE char *authority = at ? xstrndup(at + 3, strcspn(at + 3, "/")) : NULL;
	return authority && !net_host_port(authority, 80, host, sizeof host, &port) && net_near(host);
}
