/* An ssh connection to another machine: the socket or the ProxyCommand, the handshake, commands, the link. Blocks with
 * a limit in each step; one thread a connection. Must never wait without a limit, and believes nothing that the host
 * says but what it has proved: its key. */
#include "remote.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "remote_parts.h"

#define CONNECT_MS  15000
#define SILENCE_MS  30000 /* sent bytes that nobody acknowledges for so long end the connection */
#define KEEPALIVE_S 15
#define OUTPUT_MAX  65536
#define HELLO_MAX                                                                                                      \
	(1 << 20) /* bytes of a handshake; a true one has some thousand, behind at most 1024 lines (OpenSSH) */

char *remote_base64(const void *p, size_t n)
{
	char *out = xcalloc(4 * ((n + 2) / 3) + 1, 1);
	EVP_EncodeBlock((unsigned char *)out, p, (int)n);
	return out;
}

int remote_fail(struct remote *r, struct err *err, int code, const char *fmt, ...)
{
	char *words = NULL;
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *ours = xvasprintf(fmt, ap);
	va_end(ap);
	libssh2_session_last_error(r->session, &words, NULL, 0);
	CLEAN_BUF struct buf clean = BUF_INIT;
	if (words)
		utf8_clean(&clean, words, strlen(words));
	text_one_line(clean.p, 200);
	return err_set(err, code, "%s%s%s", ours, clean.n ? ": " : "", buf_str(&clean));
}

/* ---- the way there ---- */

static void tune(int fd)
{
	int on = 1, ms = SILENCE_MS, idle = KEEPALIVE_S, every = 5, count = 3;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

/* A connected socket, or -errno. */
static int dial_one(const struct addrinfo *a)
{
	CLEAN_FD int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int code = 0;
	socklen_t n = sizeof code;
	if (fd < 0)
		return -errno;
	if (connect(fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS)
		return -errno;
	if (poll(&p, 1, CONNECT_MS) <= 0)
		return -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &n) || code)
		return -(code ? code : errno);
	tune(fd);
	return take_fd(&fd);
}

static int dial(const struct remote_conf *c, struct err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	char port[8];
	snprintf(port, sizeof port, "%d", c->port);
	int rc = getaddrinfo(c->hostname, port, &hints, &list);
	if (rc)
		return err_set(err, EHOSTUNREACH, "%s is not found: %s", c->hostname, gai_strerror(rc));
	int fd = -EHOSTUNREACH;
	for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
		fd = dial_one(a);
	freeaddrinfo(list);
	return fd < 0 ? err_sys(err, -fd, "cannot reach %s (%s, port %d)", c->host, c->hostname, c->port) : fd;
}

/* The user's own command, as ssh runs it; it ends when its standard input does. */
static int run_proxy(const struct remote_conf *c, struct err *err)
{
	int s[2];
	CLEAN_FREE char *line = xasprintf("exec %s", c->proxy);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s))
		return err_sys(err, errno, "cannot make a socket");
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGPIPE, SIG_DFL);
		if (fork())
			_exit(0);
		if (dup2(s[1], 0) == 0 && dup2(s[1], 1) == 1)
			execl("/bin/sh", "sh", "-c", strncmp(c->proxy, "exec ", 5) ? line : c->proxy, (char *)NULL);
		_exit(127);
	}
	close(s[1]);
	if (pid < 0) {
		close(s[0]);
		return err_sys(err, errno, "cannot run the ProxyCommand of %s", c->host);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return s[0];
}

/* ---- opening ---- */

/* Reads for libssh2, which would take a welcome without an end line by line: its limit is on silence alone. */
static LIBSSH2_RECV_FUNC(receive)
{
	struct remote *r = *abstract;
	ssize_t n = recv(socket, buffer, length, flags);
	if (n < 0)
		return -errno;
	r->heard += r->shaken ? 0 : (size_t)n;
	return r->heard > HELLO_MAX ? -ECONNABORTED : n;
}

static void receive_by(LIBSSH2_SESSION *session)
{
#if LIBSSH2_VERSION_NUM >= 0x010b01
	libssh2_session_callback_set2(session, LIBSSH2_CALLBACK_RECV, (libssh2_cb_generic *)receive);
#else
	libssh2_session_callback_set(session, LIBSSH2_CALLBACK_RECV, (void *)receive);
#endif
}

static int shake(struct remote *r, const struct buf *known, struct err *err)
{
	CLEAN_FREE char *types = remote_known_types(known);
	r->session = libssh2_session_init_ex(NULL, NULL, NULL, r);
	if (!r->session)
		return err_set(err, ENOMEM, "no memory for a connection to %s", r->conf.host);
	receive_by(r->session);
	libssh2_session_set_timeout(r->session, REMOTE_CALL_MS);
	libssh2_session_set_blocking(r->session, 1);
	/* the type that is known first, else a host with a second key would look changed */
	if (*types)
		libssh2_session_method_pref(r->session, LIBSSH2_METHOD_HOSTKEY, types);
	else if (known->n)
		return err_set(err, EACCES,
			       "of %s only a key is known that libssh2 cannot check, such as RSA: `ssh -o "
			       "HostKeyAlgorithms=ssh-ed25519 %s` once adds another",
			       r->conf.host, r->conf.host);
	int rc = libssh2_session_handshake(r->session, r->fd);
	if (rc == LIBSSH2_ERROR_KEX_FAILURE || rc == LIBSSH2_ERROR_METHOD_NONE)
		return remote_fail(r, err, EACCES,
				   "%s has no method in common with us, or no longer the %s key that is known",
				   r->conf.host, *types ? types : "Ed25519 or ECDSA");
	r->shaken = rc == 0;
	if (r->heard > HELLO_MAX)
		return err_set(err, EHOSTUNREACH, "%s does not speak ssh: it says too much before it says who it is",
			       r->conf.host);
	return rc ? remote_fail(r, err, EHOSTUNREACH, "%s does not speak ssh", r->conf.host) : 0;
}

int remote_open(const struct remote_spec *spec, struct remote **out, struct err *err)
{
	CLEAN_BUF struct buf known = BUF_INIT;
	struct remote *r = xcalloc(1, sizeof *r);
	r->fd = -1;
	int rc = libssh2_init(0) ? err_set(err, EIO, "libssh2 does not start") : 0;
	rc = rc ? rc : remote_conf_read(spec->paths, spec->host, &r->conf, err);
	rc = rc ? rc : remote_known(&r->conf, &known, err);
	if (!rc) {
		r->fd = r->conf.proxy ? run_proxy(&r->conf, err) : dial(&r->conf, err);
		rc = r->fd < 0 ? r->fd : 0;
	}
	if (!rc && spec->socket)
		atomic_store(spec->socket, r->fd);
	rc = rc ? rc : shake(r, &known, err);
	rc = rc ? rc : remote_trust(r, &known, err);
	rc = rc ? rc : remote_login(r, err);
	if (!rc) {
		libssh2_keepalive_config(r->session, 0, KEEPALIVE_S);
		*out = r;
		return 0;
	}
	if (spec->socket)
		atomic_store(spec->socket, -1);
	remote_free(r);
	return rc;
}

void remote_free(struct remote *r)
{
	if (!r)
		return;
	if (r->fd >= 0)
		shutdown(r->fd, SHUT_RDWR); /* so that nothing below waits for the other side */
	if (r->session) {
		libssh2_session_set_blocking(r->session, 0);
		libssh2_session_free(r->session);
	}
	fd_close(&r->fd);
	remote_conf_release(&r->conf);
	free(r->folder);
	free(r->program);
	free(r);
}

/* ---- commands ---- */

static LIBSSH2_CHANNEL *begin(struct remote *r, const char *command, struct err *err)
{
	LIBSSH2_CHANNEL *c = libssh2_channel_open_session(r->session);
	if (c && !libssh2_channel_exec(c, command))
		return c;
	remote_fail(r, err, EIO, "%s does not run commands", r->conf.host);
	if (c)
		libssh2_channel_free(c);
	return NULL;
}

/* 0, -EHOSTUNREACH, -EFBIG */
static int collect(LIBSSH2_CHANNEL *c, int stream, struct buf *out)
{
	char room[4096];
	ssize_t n;
	while ((n = libssh2_channel_read_ex(c, stream, room, sizeof room)) > 0) {
		if (out->n + (size_t)n > OUTPUT_MAX)
			return -EFBIG;
		buf_add(out, room, (size_t)n);
	}
	return n ? -EHOSTUNREACH : 0;
}

/* Exit code or -errno; both streams go to out. */
static int run(struct remote *r, const char *command, struct buf *out, struct err *err)
{
	LIBSSH2_CHANNEL *c = begin(r, command, err);
	if (!c)
		return -EIO;
	int code = collect(c, 0, out);
	code = code ? code : collect(c, SSH_EXTENDED_DATA_STDERR, out);
	if (!code && (libssh2_channel_close(c) || libssh2_channel_wait_closed(c)))
		code = -EHOSTUNREACH;
	if (code == -EFBIG)
		err_set(err, EFBIG, "%s says too much when a command is run", r->conf.host);
	else if (code)
		remote_fail(r, err, EHOSTUNREACH, "%s hung up during a command", r->conf.host);
	else
		code = libssh2_channel_get_exit_status(c);
	libssh2_channel_free(c);
	return code;
}

static bool has_line(const char *text, const char *line)
{
	size_t n = strlen(line);
	for (const char *at = text; (at = strstr(at, line)); at++)
		if ((at == text || at[-1] == '\n') && (!at[n] || at[n] == '\n' || at[n] == '\r'))
			return true;
	return false;
}

int remote_fits(struct remote *r, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	struct utsname us;
	uname(&us);
	CLEAN_FREE char *wanted = xasprintf("%s %s", us.sysname, us.machine);
	int rc = run(r, "uname -sm", &out, err);
	if (rc < 0)
		return rc;
	if (!has_line(buf_str(&out), wanted)) {
		CLEAN_BUF struct buf clean = BUF_INIT;
		utf8_clean(&clean, buf_str(&out), out.n);
		text_one_line(clean.p, 200);
		return err_set(err, ENOEXEC,
			       "%s cannot run our tool daemon, which is for %s: `uname -sm` there says %s",
			       r->conf.host, wanted, clean.n ? text_trim(clean.p) : "nothing");
	}
	return 0;
}

int remote_ready(struct remote *r, const struct remote_spec *spec, struct err *err)
{
	return remote_deploy(r, spec, err);
}

/* For a shell, whichever the user has there. */
static char *command(const struct remote *r, const char *verb)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	const char *words[] = {r->program, r->folder};
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		buf_adds(&b, i ? " '" : "'");
		for (const char *p = words[i]; *p; p++)
			if (*p == '\'')
				buf_adds(&b, "'\\''");
			else
				buf_addc(&b, *p);
		buf_addf(&b, i ? "'" : "' %s", verb);
	}
	return xstrdup(buf_str(&b));
}

int remote_link(struct remote *r, struct err *err)
{
	CLEAN_FREE char *line = command(r, "link");
	r->link = begin(r, line, err);
	if (!r->link)
		return -EIO;
	libssh2_session_set_blocking(r->session, 0);
	return fd_nonblock(r->fd);
}

int remote_end(struct remote *r, struct err *err)
{
	CLEAN_FREE char *line = command(r, "end");
	CLEAN_BUF struct buf out = BUF_INIT;
	int rc = run(r, line, &out, err);
	if (rc <= 0)
		return rc;
	CLEAN_BUF struct buf clean = BUF_INIT;
	utf8_clean(&clean, buf_str(&out), out.n);
	text_one_line(clean.p, 300);
	return err_set(err, EIO, "%s cannot be tidied: %s", r->conf.host, clean.n ? clean.p : "it does not say why");
}
