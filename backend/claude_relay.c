/* The process between the daemon and one Claude Code: it starts the program in its jail and carries its connections to
 * the gateway, which is all of the network that the program has. Into each connection it puts the session's token,
 * which the program never sees; what is no CONNECT is not carried. It ends with the daemon, with the program, or when
 * it has been idle for too long. A process of one thread. Must never look into what passes. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "backend.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "claude.h"

#define PAIRS	  32	     /* connections at once; the program makes four */
#define HEAD_MAX  4096	     /* bytes of a CONNECT */
#define FLOW	  (64 << 10) /* bytes that wait in a direction */
#define LINE_FD	  3	     /* from the daemon: the token's line, then b (busy) or i (idle) */
#define PASS_FD	  4	     /* in the jail: where the listening socket is handed out */
#define PASS_MS	  20000	     /* until the jail has to stand */
#define TOKEN_MAX 128

struct flow {
	int from, to;
	struct buf b;
	size_t at;
	bool end, done;
};

struct pair {
	int client, gateway; /* gateway -1: the head is still read */
	struct flow up, down;
	bool answered;
};

struct relay {
	const char *socket;
	char token[TOKEN_MAX];
	int listener, line, ended; /* ended: readable once the child has */
	pid_t child;
	int64_t idle_ms, until_ms; /* until_ms 0: busy */
	struct pair pairs[PAIRS];
	int n;
};

/* ---- inside the jail ---- */

/* Makes the one address that there is, hands it out, and becomes the program. argv: "inner" PROGRAM ARGS... */
static int inner(char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)strtol(CLAUDE_PROXY, NULL, 10)),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CLEAN_FD int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, PAIRS) ||
	    unix_send(PASS_FD, "s", 1, s, 0) != 1) {
		perror("claude-jail: no network in the jail");
		return EX_OSERR;
	}
	close(s);
	close_range(3, ~0U, 0);
	execv(argv[1], argv + 1);
	fprintf(stderr, "claude-jail: cannot run %s: %s\n", argv[1], strerror(errno));
	return EX_OSERR;
}

/* ---- the start ---- */

/* Becomes bubblewrap. */
static void become(struct claude_args *a, int pass)
{
	close_range(LINE_FD, LINE_FD, 0);
	if (pass == PASS_FD)
		fcntl(pass, F_SETFD, 0);
	else if (pass >= 0 && dup2(pass, PASS_FD) < 0)
		_exit(EX_OSERR);
	close_range(PASS_FD + (pass >= 0), ~0U, 0);
	signal(SIGPIPE, SIG_DFL);
	execvp(a->v[0], (char *const *)(uintptr_t)a->v);
	fprintf(stderr, "claude-jail: %s: %s\n", a->v[0],
		errno == ENOENT ? "not found: install the package bubblewrap" : strerror(errno));
	_exit(EX_UNAVAILABLE);
}

static int take_listener(int fd)
{
	char byte;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int sock = -1;
	return poll(&p, 1, PASS_MS) > 0 && unix_receive(fd, &byte, 1, &sock, 0) == 1 ? sock : -1;
}

/* The first line of the daemon's. */
static int read_token(struct relay *r)
{
	for (size_t n = 0; n < sizeof r->token; n++) {
		if (read(r->line, &r->token[n], 1) != 1)
			return -1;
		if (r->token[n] == '\n') {
			r->token[n] = 0;
			return 0;
		}
	}
	return -1;
}

static int begin(struct relay *r, struct claude_args *a)
{
	int pass[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pass))
		return -1;
	CLEAN_FD int ours = pass[0];
	r->child = fork();
	if (!r->child)
		become(a, pass[1]);
	close(pass[1]);
	if (r->child < 0)
		return -1;
	/* The program's descriptors are its own: ours would keep its output open when it has ended. */
	r->ended = (int)syscall(SYS_pidfd_open, r->child, 0);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, 0);
	dup2(null, 1);
	close(null);
	r->listener = take_listener(ours);
	return r->listener < 0 ? -1 : 0;
}

/* ---- connections ---- */

static void pair_close(struct relay *r, int i)
{
	struct pair *p = &r->pairs[i];
	fd_close(&p->client);
	fd_close(&p->gateway);
	buf_release(&p->up.b);
	buf_release(&p->down.b);
	r->pairs[i] = r->pairs[--r->n];
}

static void take_connection(struct relay *r)
{
	int fd = accept4(r->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		r->pairs[r->n++] = (struct pair){.client = fd, .gateway = -1};
}

/* HOST:PORT of a CONNECT that is no more than that; false: something else. */
static bool target(const char *head, char *out, size_t cap)
{
	if (strncmp(head, "CONNECT ", 8))
		return false;
	size_t n = strcspn(head + 8, " \r\n");
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)head[8 + i]) && !strchr(".-:", head[8 + i]))
			return false;
	if (!n || n >= cap || strncmp(head + 8 + n, " HTTP/1.", 8))
		return false;
	snprintf(out, cap, "%.*s", (int)n, head + 8);
	return true;
}

/* The head is whole: to the gateway with it. */
static int join(struct relay *r, struct pair *p)
{
	char host[300];
	const char *end = strstr(buf_str(&p->up.b), "\r\n\r\n");
	if (!end)
		return p->up.b.n > HEAD_MAX ? -1 : 0;
	if (!target(p->up.b.p, host, sizeof host)) {
		fprintf(stderr, "claude-jail: only CONNECT is carried\n");
		return -1;
	}
	p->gateway = unix_connect(r->socket, NULL);
	if (p->gateway < 0 || fd_nonblock(p->gateway)) {
		fprintf(stderr, "claude-jail: the gateway cannot be reached\n");
		return -1;
	}
	CLEAN_BUF struct buf rest = BUF_INIT;
	buf_adds(&rest, end + 4);
	buf_reset(&p->up.b);
	buf_addf(&p->up.b, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Bearer %s\r\n\r\n", host, host,
		 r->token);
	buf_add(&p->up.b, buf_str(&rest), rest.n);
	p->up.from = p->client;
	p->up.to = p->gateway;
	p->down.from = p->gateway;
	p->down.to = p->client;
	return 0;
}

/* -1: the connection has broken. */
static int drain(struct flow *f)
{
	while (f->at < f->b.n) {
		ssize_t n = send(f->to, f->b.p + f->at, f->b.n - f->at, MSG_NOSIGNAL);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		f->at += (size_t)n;
	}
	buf_reset(&f->b);
	f->at = 0;
	if (f->end && !f->done) {
		shutdown(f->to, SHUT_WR);
		f->done = true;
	}
	return 0;
}

static int fill(struct flow *f)
{
	if (f->end || f->b.n >= FLOW)
		return 0;
	buf_reserve(&f->b, FLOW - f->b.n);
	ssize_t n = recv(f->from, f->b.p + f->b.n, FLOW - f->b.n, 0);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	f->b.n += (size_t)n;
	f->b.p[f->b.n] = 0;
	f->end = !n;
	return 0;
}

/* What the gateway refuses is told to the daemon, in the gateway's words. */
static void look_at_answer(struct pair *p)
{
	const char *head = buf_str(&p->down.b);
	if (p->answered || p->down.b.n < 12)
		return;
	p->answered = true;
	if (strncmp(head + 8, " 200", 4))
		fprintf(stderr, "gateway: %.*s\n", 400, head + 9);
}

/* -1: it is over. */
static int serve(struct relay *r, struct pair *p, short client, short gateway)
{
	if (p->gateway < 0) {
		struct flow head = {.from = p->client, .b = p->up.b};
		int rc = client ? fill(&head) : 0;
		p->up.b = head.b;
		return rc || head.end ? -1 : join(r, p);
	}
	if ((client & (POLLIN | POLLHUP | POLLERR) && fill(&p->up)) ||
	    (gateway & (POLLIN | POLLHUP | POLLERR) && fill(&p->down)))
		return -1;
	look_at_answer(p);
	if (drain(&p->up) || drain(&p->down))
		return -1;
	return p->up.done && p->down.done ? -1 : p->down.done && !p->down.b.n ? -1 : 0;
}

/* ---- the loop ---- */

/* False: the daemon is gone. */
static bool hear(struct relay *r)
{
	char c[64];
	ssize_t n = read(r->line, c, sizeof c);
	if (n <= 0)
		return n < 0 && errno == EINTR;
	r->until_ms = c[n - 1] == 'i' ? clock_mono_ms() + r->idle_ms : 0;
	return true;
}

static int wanted(const struct pair *p, struct pollfd *out)
{
	bool joined = p->gateway >= 0;
	out[0] = (struct pollfd){.fd = p->client};
	out[1] = (struct pollfd){.fd = p->gateway};
	out[0].events =
		(short)((!joined || (!p->up.end && p->up.b.n < FLOW) ? POLLIN : 0) | (p->down.b.n ? POLLOUT : 0));
	out[1].events = (short)((!p->down.end && p->down.b.n < FLOW ? POLLIN : 0) | (p->up.b.n ? POLLOUT : 0));
	if (!out[0].events)
		out[0].fd = -1; /* a half that is over says so again and again */
	if (!out[1].events)
		out[1].fd = -1;
	return 2;
}

static int child_code(const struct relay *r)
{
	int status = 0;
	waitpid(r->child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int loop(struct relay *r)
{
	struct pollfd p[3 + 2 * PAIRS];
	for (;;) {
		int64_t left = r->until_ms ? r->until_ms - clock_mono_ms() : -1;
		if (r->until_ms && left <= 0)
			return 0;
		int k = 3;
		p[0] = (struct pollfd){.fd = r->line, .events = POLLIN};
		p[1] = (struct pollfd){.fd = r->ended, .events = POLLIN};
		p[2] = (struct pollfd){.fd = r->n < PAIRS ? r->listener : -1, .events = POLLIN};
		for (int i = 0; i < r->n; i++)
			k += wanted(&r->pairs[i], p + k);
		if (poll(p, (nfds_t)k, (int)left) <= 0)
			continue;
		if (p[1].revents)
			return child_code(r);
		for (int i = r->n; i-- > 0;) { /* the last takes the place of one that ends */
			short client = p[3 + 2 * i].revents, gateway = p[4 + 2 * i].revents;
			if ((client || gateway) && serve(r, &r->pairs[i], client, gateway))
				pair_close(r, i);
		}
		if (p[2].revents)
			take_connection(r);
		if (p[0].revents && !hear(r))
			return 0;
	}
}

/* SOCKET IDLE CWD PROGRAM SELF -- ARGS...: as claude_proc.c writes it. */
static int outer(char **argv)
{
	struct err err = ERR_INIT;
	struct claude_place place;
	struct claude_args a;
	struct relay r = {
		.socket = argv[0], .listener = -1, .line = LINE_FD, .idle_ms = strtoll(argv[1], NULL, 10) * 1000};
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (read_token(&r))
		return EX_USAGE;
	if (claude_place(argv[3], &place, &err)) {
		fprintf(stderr, "claude-jail: %s\n", err.text);
		return EX_UNAVAILABLE;
	}
	claude_environment();
	claude_jail(&a, &place, argv[2], argv[4]);
	const char *const run[] = {argv[4], "claude-jail", "inner", place.node ? place.node : place.program,
				   place.node ? place.program : NULL};
	for (size_t i = 0; i < ARRAY_LEN(run) && run[i]; i++)
		claude_args_add(&a, run[i]);
	for (char **more = argv + 6; *more; more++)
		claude_args_add(&a, *more);
	int code = begin(&r, &a) ? EX_UNAVAILABLE : loop(&r);
	explicit_bzero(r.token, sizeof r.token);
	if (r.child > 0)
		kill(r.child, SIGKILL);
	return code;
}

static int status(const char *program)
{
	struct err err = ERR_INIT;
	struct claude_place place;
	struct claude_args a;
	if (claude_place(program, &place, &err))
		return EX_UNAVAILABLE;
	claude_environment();
	claude_jail(&a, &place, NULL, NULL);
	if (place.node)
		claude_args_add(&a, place.node);
	const char *const run[] = {place.program, "auth", "status", "--json"};
	for (size_t i = 0; i < ARRAY_LEN(run); i++)
		claude_args_add(&a, run[i]);
	become(&a, -1);
	return EX_UNAVAILABLE;
}

int backend_claude_main(int argc, char **argv)
{
	if (argc >= 3 && !strcmp(argv[1], "inner"))
		return inner(argv + 1);
	if (argc == 3 && !strcmp(argv[1], "status"))
		return status(argv[2]);
	if (argc >= 7 && !strcmp(argv[1], "run"))
		return outer(argv + 2);
	return EX_USAGE;
}
