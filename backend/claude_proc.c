/* One running Claude Code: started, spoken to line by line with bounds and times, ended. One thread at a time. Must
 * never wait without looking at `cancel`, nor keep more of what it prints than a line may have. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "claude.h"

#define LOOK_MS	  50	     /* how often cancel and the times are looked at */
#define LINE_MAX  (48 << 20) /* bytes of one line: an answer has at most a tenth, its echo of an image more */
#define READ_SIZE (64 << 10)
#define WORDS_MAX 2000	/* bytes of its errors that are kept */
#define SEND_MS	  60000 /* until it has to take a line */
#define IDLE_ARG  16

/* ---- start and end ---- */

static int high(int fd)
{
	int up = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);
	fd_close(&fd);
	return up;
}

/* In the child: only async-signal-safe calls. */
static void become(const char *const *argv, const int fds[4])
{
	sigset_t none;
	sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	for (int i = 0; i < 4; i++)
		dup2(fds[i], i);
	close_range(4, ~0U, 0);
	if (!chdir("/"))
		execv(argv[0], (char *const *)(uintptr_t)argv);
	_exit(127);
}

struct pipes {
	int in[2], out[2], errs[2], line[2];
};

static void close_pipes(struct pipes *p)
{
	for (int *fd = p->in; fd < (int *)(p + 1); fd++)
		fd_close(fd);
}

static int make_pipes(struct pipes *p)
{
	*p = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
	int *const all[] = {p->in, p->out, p->errs, p->line};
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (pipe2(all[i], O_CLOEXEC))
			return -errno;
		for (int k = 0; k < 2; k++)
			if ((all[i][k] = high(all[i][k])) < 0)
				return -errno;
	}
	return 0;
}

/* What the program is told at its start: no tool of its own, no settings of the user's, nothing kept. */
static const char *const options[] = {"-p",
				      "--input-format",
				      "stream-json",
				      "--output-format",
				      "stream-json",
				      "--verbose",
				      "--include-partial-messages",
				      "--permission-prompt-tool",
				      "stdio",
				      "--tools",
				      "",
				      "--setting-sources",
				      "",
				      "--strict-mcp-config",
				      "--no-session-persistence"};

static void arguments(struct claude_args *a, const struct claude_start *s, const char *idle)
{
	const char *const head[] = {paths_program(s->paths), "claude-jail", "run", s->socket, idle, s->cwd, s->program,
				    s->paths->self,	     "--"};
	a->n = a->owned = 0;
	for (size_t i = 0; i < ARRAY_LEN(head); i++)
		claude_args_add(a, head[i]);
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		claude_args_add(a, options[i]);
	if (s->model) {
		claude_args_add(a, "--model");
		claude_args_add(a, s->model);
	}
	if (s->effort) {
		claude_args_add(a, "--effort");
		claude_args_add(a, s->effort);
	}
}

int claude_start(const struct claude_start *s, struct claude **out, struct err *err)
{
	struct pipes p;
	struct claude_args a;
	char idle[IDLE_ARG];
	snprintf(idle, sizeof idle, "%d", s->idle_s);
	arguments(&a, s, idle);
	int rc = make_pipes(&p);
	pid_t pid = rc ? -1 : fork();
	if (!pid)
		become(a.v, (int[4]){p.in[0], p.out[1], p.errs[1], p.line[0]});
	if (pid < 0) {
		rc = rc ? rc : -errno;
		close_pipes(&p);
		return err_sys(err, -rc, "Claude Code cannot be started");
	}
	struct claude *c = xcalloc(1, sizeof *c);
	c->pid = pid;
	c->in = take_fd(&p.in[1]);
	c->out = take_fd(&p.out[0]);
	c->errs = take_fd(&p.errs[0]);
	c->line = take_fd(&p.line[1]);
	c->token = xstrdup(s->token);
	c->heard_ms = clock_mono_ms();
	close_pipes(&p);
	fd_nonblock(c->in);
	fd_nonblock(c->out);
	fd_nonblock(c->errs);
	CLEAN_FREE char *first = xasprintf("%s\n", s->token);
	rc = fd_write_full(c->line, first, strlen(first));
	explicit_bzero(first, strlen(first));
	if (rc) { /* it has ended already: what it said comes with the first line that is read */
		c->ended = true;
	}
	*out = c;
	return 0;
}

void claude_free(struct claude *c)
{
	if (!c)
		return;
	fd_close(&c->in);
	fd_close(&c->out);
	fd_close(&c->errs);
	fd_close(&c->line);
	child_kill_jail(c->pid); /* the jail and all in it die with it */
	while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
		;
	explicit_bzero(c->token, strlen(c->token));
	free(c->token);
	free(c->key);
	buf_release(&c->got);
	buf_release(&c->said);
	free(c);
}

void claude_busy(struct claude *c, bool busy)
{
	ssize_t n = write(c->line, busy ? "b" : "i", 1);
	c->ended |= n != 1;
}

bool claude_alive(struct claude *c)
{
	struct pollfd p = {.fd = c->out, .events = POLLIN};
	return !c->ended && (poll(&p, 1, 0) <= 0 || !(p.revents & (POLLHUP | POLLERR)));
}

/* ---- bytes ---- */

static void hear_errors(struct claude *c)
{
	char room[4096];
	ssize_t n = read(c->errs, room, sizeof room);
	if (n > 0) {
		buf_add(&c->said, room, (size_t)n);
		if (c->said.n > WORDS_MAX)
			buf_drop(&c->said, c->said.n - WORDS_MAX);
	} else if (!n) {
		fd_close(&c->errs);
	}
}

/* Reads what there is. */
static int hear(struct claude *c)
{
	buf_reserve(&c->got, READ_SIZE);
	ssize_t n = read(c->out, c->got.p + c->got.n, READ_SIZE);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (!n) {
		c->ended = true;
		return 0;
	}
	c->got.n += (size_t)n;
	c->got.p[c->got.n] = 0;
	c->heard_ms = clock_mono_ms();
	return c->got.n - c->at > LINE_MAX ? -EFBIG : 0;
}

static int ended(struct claude *c, struct err *err)
{
	const char *words = claude_last_words(c);
	return err_set(err, EPIPE, "Claude Code has ended%s%.300s", *words ? ": " : "", words);
}

/* Waits for its output, or room for more input if sending; LOOK_MS at most. */
static int turn(struct claude *c, bool sending, const atomic_bool *cancel, struct err *err)
{
	struct pollfd p[3] = {{.fd = c->ended ? -1 : c->out, .events = POLLIN},
			      {.fd = c->errs, .events = POLLIN},
			      {.fd = sending ? c->in : -1, .events = POLLOUT}};
	if (cancel && atomic_load(cancel))
		return -ECANCELED;
	if (poll(p, 3, LOOK_MS) < 0 && errno != EINTR)
		return err_sys(err, errno, "cannot wait for Claude Code");
	if (p[1].revents)
		hear_errors(c);
	int rc = p[0].revents ? hear(c) : 0;
	if (rc == -EFBIG)
		return err_set(err, EFBIG, "Claude Code printed a line of more than %d bytes", LINE_MAX);
	return rc ? err_sys(err, -rc, "cannot read from Claude Code") : 0;
}

int claude_send(struct claude *c, const struct buf *line, const atomic_bool *cancel, struct err *err)
{
	int64_t until = clock_mono_ms() + SEND_MS;
	for (size_t at = 0; at < line->n;) {
		ssize_t n = write(c->in, line->p + at, line->n - at);
		if (n > 0) {
			at += (size_t)n;
			continue;
		}
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			turn(c, false, NULL, NULL); /* its last words */
			c->ended = true;
			return ended(c, err);
		}
		if (clock_mono_ms() > until)
			return err_set(err, ETIMEDOUT, "Claude Code does not read what it is told");
		int rc = turn(c, true, cancel, err);
		if (rc)
			return rc;
	}
	return 0;
}

int claude_line(struct claude *c, int64_t idle_ms, const atomic_bool *cancel, const char **p, size_t *n,
		struct err *err)
{
	int64_t since = clock_mono_ms();
	if (c->at > READ_SIZE) {
		buf_drop(&c->got, c->at);
		c->looked -= c->at;
		c->at = 0;
	}
	for (;;) {
		char *nl = c->got.n > c->looked ? memchr(c->got.p + c->looked, '\n', c->got.n - c->looked) : NULL;
		if (nl) {
			*p = c->got.p + c->at;
			*n = (size_t)(nl - *p);
			*nl = 0;
			c->at = c->looked = (size_t)(nl + 1 - c->got.p);
			return cancel && atomic_load(cancel) ? -ECANCELED : 0;
		}
		c->looked = c->got.n;
		if (c->ended)
			return ended(c, err);
		if (c->heard_ms > since)
			since = c->heard_ms;
		if (clock_mono_ms() - since > idle_ms)
			return err_set(err, ETIMEDOUT, "Claude Code has been silent for %lld s",
				       (long long)idle_ms / 1000);
		int rc = turn(c, false, cancel, err);
		if (rc)
			return rc;
	}
}

const char *claude_last_words(struct claude *c)
{
	while (c->errs >= 0) { /* what is left of it */
		struct pollfd p = {.fd = c->errs, .events = POLLIN};
		if (poll(&p, 1, c->ended ? LOOK_MS : 0) <= 0)
			break;
		hear_errors(c);
	}
	if (!c->said.n)
		return "";
	CLEAN_BUF struct buf clean = BUF_INIT;
	utf8_clean(&clean, c->said.p, c->said.n);
	buf_reset(&c->said);
	buf_add(&c->said, buf_str(&clean), clean.n);
	text_one_line(c->said.p, c->said.n + 1);
	c->said.n = strlen(c->said.p);
	return text_trim(c->said.p);
}
