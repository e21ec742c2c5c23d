/* Runs a program to its end with limits. Blocks the calling thread. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "mem.h"

#define CANCEL_MS    50	 /* how often the cancel flag is looked at */
#define DRAIN_MS     200 /* output still read after the program has ended while others hold its pipe */
#define JAIL_STOP_MS 100
#define DEFAULT_MAX  (16 << 20) /* bytes kept of each stream */

struct stream {
	int fd;
	struct buf *out;
	struct buf line; /* text since the last newline, only with a line callback */
	size_t kept;
};

struct running {
	const struct child *c;
	pid_t pid;
	int in, status_fd;
	size_t in_done;
	struct stream s[2];
};

/* The child's environment: ours, with the changes of c->env. The array and nothing in it is malloc'd. */
static char **environment(const struct child *c)
{
	extern char **environ;
	size_t n = 0, extra = 0;
	while (environ[n])
		n++;
	while (c->env && c->env[extra])
		extra++;
	char **env = xcalloc(n + extra + 1, sizeof *env);
	size_t m = 0;
	for (size_t i = 0; i < n; i++) {
		size_t key = strcspn(environ[i], "=");
		bool changed = false;
		for (size_t j = 0; j < extra; j++)
			changed |= strcspn(c->env[j], "=") == key && !strncmp(c->env[j], environ[i], key);
		if (!changed)
			env[m++] = environ[i];
	}
	for (size_t j = 0; j < extra; j++)
		if (strchr(c->env[j], '='))
			env[m++] = (char *)(uintptr_t)c->env[j];
	return env;
}

/* In the child, after fork: only async-signal-safe calls. Reports errno on status_fd if exec fails. */
static void become(const struct child *c, char **env, const int fds[3], int status_fd)
{
	sigset_t none;
	sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	for (int i = 0; i < 3; i++)
		dup2(fds[i], i);
	dup2(status_fd, 3);
	fcntl(3, F_SETFD, FD_CLOEXEC);
	close_range(4, ~0U, 0);
	if (c->memory)
		setrlimit(RLIMIT_DATA, &(struct rlimit){c->memory, c->memory});
	if (!c->cwd || !chdir(c->cwd))
		execvpe(c->argv[0], (char *const *)(uintptr_t)c->argv, env);
	int e = errno;
	ssize_t r = write(3, &e, sizeof e);
	(void)r;
	_exit(127);
}

/* Moves a descriptor above the ones that become() overwrites. */
static int high(int fd)
{
	if (fd < 0 || fd > 9)
		return fd;
	int up = fcntl(fd, F_DUPFD_CLOEXEC, 10);
	close(fd);
	return up;
}

static int make_pipe(int p[2], bool used)
{
	if (!used) {
		p[0] = -1;
		p[1] = high(open("/dev/null", O_RDWR | O_CLOEXEC));
		return p[1] < 0 ? -errno : 0;
	}
	if (pipe2(p, O_CLOEXEC))
		return -errno;
	p[0] = high(p[0]);
	p[1] = high(p[1]);
	return 0;
}

/* The child's end of a descriptor that the caller gave; p[0] is ours: none. */
static int make_given(int fd, int p[2])
{
	p[0] = -1;
	p[1] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
	return p[1] < 0 ? -errno : 0;
}

static int make_input(const struct child *c, int p[2])
{
	int rc = c->in_fd > 0 ? make_given(c->in_fd, p) : make_pipe(p, c->in != NULL);
	if (!rc && c->in_fd <= 0 && c->in) { /* the child's end is the reading one */
		int t = p[0];
		p[0] = p[1];
		p[1] = t;
	}
	return rc;
}

static int make_output(const struct child *c, int p[2])
{
	return c->out_fd > 0 ? make_given(c->out_fd, p) : make_pipe(p, c->out || c->line);
}

static int spawn(struct running *r)
{
	const struct child *c = r->c;
	int in[2], out[2], errp[2], status[2];
	bool same = c->errout && c->errout == c->out;
	int rc = make_input(c, in);
	rc = rc ? rc : make_output(c, out);
	rc = rc ? rc : make_pipe(errp, !same && (c->errout || c->line));
	rc = rc ? rc : make_pipe(status, true);
	if (rc)
		return rc;
	CLEAN_FREE char **env = environment(c);
	int fds[3] = {in[1], out[1], same ? out[1] : errp[1]};
	r->pid = fork();
	if (r->pid == 0)
		become(c, env, fds, status[1]);
	rc = r->pid < 0 ? -errno : 0;
	fd_close(&in[1]);
	fd_close(&out[1]);
	fd_close(&errp[1]);
	fd_close(&status[1]);
	r->in = in[0];
	r->s[0].fd = out[0];
	r->s[1].fd = errp[0];
	r->status_fd = status[0];
	return rc;
}

static void lines(struct running *r, struct stream *s, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != '\n' && p[i] != '\r') {
			if (s->line.n < 4096)
				buf_addc(&s->line, p[i]);
		} else if (s->line.n) {
			r->c->line(r->c->arg, buf_str(&s->line));
			buf_reset(&s->line);
		}
	}
}

static void read_stream(struct running *r, struct stream *s)
{
	char room[65536];
	ssize_t n = read(s->fd, room, sizeof room);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		fd_close(&s->fd);
		return;
	}
	size_t max = r->c->max ? r->c->max : DEFAULT_MAX;
	if (s->out && s->kept < max) {
		size_t keep = (size_t)n < max - s->kept ? (size_t)n : max - s->kept;
		buf_add(s->out, room, keep);
		s->kept += keep;
	}
	if (r->c->line)
		lines(r, s, room, (size_t)n);
}

static void feed(struct running *r)
{
	ssize_t n = write(r->in, (const char *)r->c->in + r->in_done, r->c->in_n - r->in_done);
	if (n > 0)
		r->in_done += (size_t)n;
	if ((n < 0 && errno != EINTR && errno != EAGAIN) || r->in_done == r->c->in_n)
		fd_close(&r->in);
}

/* One poll round over the pipes, at most ms long. */
static void round_of_io(struct running *r, int ms)
{
	struct pollfd p[3] = {{.fd = r->s[0].fd, .events = POLLIN},
			      {.fd = r->s[1].fd, .events = POLLIN},
			      {.fd = r->in, .events = POLLOUT}};
	if (poll(p, 3, ms) <= 0)
		return;
	for (int i = 0; i < 2; i++)
		if (p[i].revents)
			read_stream(r, &r->s[i]);
	if (p[2].revents)
		feed(r);
}

static int watch(struct running *r)
{
	const struct child *c = r->c;
	int64_t end = c->timeout_ms ? clock_mono_ms() + c->timeout_ms : INT64_MAX, ended = 0;
	int status = 0, rc = 0;
	for (;;) {
		bool open = r->s[0].fd >= 0 || r->s[1].fd >= 0;
		int64_t now = clock_mono_ms();
		if (ended ? (!open || now - ended > DRAIN_MS) : false)
			break;
		if (!ended && (now >= end || (c->cancel && atomic_load(c->cancel)))) {
			rc = now >= end ? -ETIMEDOUT : -ECANCELED;
			kill(-r->pid, SIGKILL);
			end = INT64_MAX;
		}
		round_of_io(r, open || r->in >= 0 ? (ended ? 20 : CANCEL_MS) : 5);
		if (!ended && waitpid(r->pid, &status, WNOHANG) == r->pid)
			ended = clock_mono_ms();
	}
	if (rc)
		return rc;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int child_run(const struct child *c, struct err *err)
{
	struct running r = {
		.c = c, .in = -1, .status_fd = -1, .s = {{.fd = -1, .out = c->out}, {.fd = -1, .out = c->errout}}};
	int rc = spawn(&r);
	if (rc)
		return err_sys(err, -rc, "cannot start %s", c->argv[0]);
	if (r.in >= 0)
		fd_nonblock(r.in);
	int failed = 0;
	if (fd_read_full(r.status_fd, &failed, sizeof failed))
		failed = 0;
	fd_close(&r.status_fd);
	rc = watch(&r);
	for (int i = 0; i < 2; i++) {
		if (r.s[i].line.n)
			c->line(c->arg, buf_str(&r.s[i].line));
		buf_release(&r.s[i].line);
		fd_close(&r.s[i].fd);
	}
	fd_close(&r.in);
	if (failed)
		return err_sys(err, failed, "cannot run %s", c->argv[0]);
	if (rc == -ETIMEDOUT)
		return err_set(err, ETIMEDOUT, "%s did not end within %d s", c->argv[0], c->timeout_ms / 1000);
	if (rc == -ECANCELED)
		return err_set(err, ECANCELED, "%s was stopped", c->argv[0]);
	return rc;
}

bool child_found(const char *name)
{
	const char *path = getenv("PATH");
	CLEAN_FREE char *copy = xstrdup(path ? path : "/usr/local/bin:/usr/bin:/bin");
	char *save = NULL;
	for (char *dir = strtok_r(copy, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		CLEAN_FREE char *full = xasprintf("%s/%s", dir, name);
		if (!access(full, X_OK))
			return true;
	}
	return false;
}

static bool stopped(pid_t pid)
{
	siginfo_t info = {0};
	return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT) || info.si_pid == pid;
}

void child_kill_jail(pid_t pid)
{
	CLEAN_FREE char *path = xasprintf("/proc/%d/task/%d/children", (int)pid, (int)pid);
	CLEAN_BUF struct buf b = BUF_INIT;
	kill(pid, SIGSTOP);
	for (int i = 0; i < JAIL_STOP_MS && !stopped(pid); i++)
		clock_sleep_ms(1);
	file_read(path, &b, 65536, NULL);
	const char *at = buf_str(&b);
	char *end;
	for (long child; (child = strtol(at, &end, 10)) > 0 && end != at; at = end)
		kill((pid_t)child, SIGKILL);
	kill(pid, SIGKILL);
}
