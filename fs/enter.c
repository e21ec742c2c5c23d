/* berthfs ssh, connect and ssh-config: people's way into a sandbox. `connect` is a byte stream for ssh's ProxyCommand;
 * `ssh` is the user's own ssh with that and with the session's keys. In a process of their own, never in the daemon,
 * which is only told of what it should know by its own files. */
#include "enter.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "instance.h"

static int say(int code, const struct err *err)
{
	fprintf(stderr, "berthfs: %s\n", err->text);
	return code;
}

static int code_of(int rc)
{
	switch (rc) {
	case -ENOENT: return EX_NOINPUT;
	case -EOPNOTSUPP: return EX_USAGE;
	default: return EX_UNAVAILABLE;
	}
}

/* ---- words for ssh ---- */

/* For a shell, in single quotes. */
static void add_quoted(struct buf *out, const char *s)
{
	buf_addc(out, '\'');
	for (; *s; s++)
		if (*s == '\'')
			buf_adds(out, "'\\''");
		else
			buf_addc(out, *s);
	buf_addc(out, '\'');
}

/* A % of ours means itself in ssh's options. */
static char *doubled(const char *s)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	for (; *s; s++)
		buf_addf(&b, *s == '%' ? "%%%%" : "%c", *s);
	return xstrdup(buf_str(&b));
}

/* The options of both: the user's keys, agent and display stay out of the sandbox. base: where `id` and `known_hosts`
 * are. put is called for each "Name value". */
static void options(const char *base, const char *proxy, void (*put)(void *arg, const char *name, const char *value),
		    void *arg)
{
	static const char *const fixed[][2] = {
		{"User", "agent"},
		{"IdentitiesOnly", "yes"},
		{"IdentityAgent", "none"},
		{"PreferredAuthentications", "publickey"},
		{"GlobalKnownHostsFile", "/dev/null"},
		{"StrictHostKeyChecking", "yes"},
		{"CheckHostIP", "no"},
		{"UpdateHostKeys", "no"},
		{"HostKeyAlgorithms", "ssh-ed25519"},
		{"ForwardAgent", "no"},
		{"ForwardX11", "no"},
		{"PermitLocalCommand", "no"},
	};
	CLEAN_FREE char *key = xasprintf("\"%s/id\"", base);
	CLEAN_FREE char *known = xasprintf("\"%s/known_hosts\"", base);
	put(arg, "ProxyCommand", proxy);
	put(arg, "IdentityFile", key);
	put(arg, "UserKnownHostsFile", known);
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		put(arg, fixed[i][0], fixed[i][1]);
}

/* What ssh starts: `exec env XDG...=... berthfs connect NAME`. */
static char *proxy_command(const struct paths *paths, const char *name, bool environment)
{
	static const char *const names[] = {"XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"};
	CLEAN_BUF struct buf b = BUF_INIT;
	for (size_t i = 0; environment && i < ARRAY_LEN(names); i++) {
		const char *value = getenv(names[i]);
		if (!value || !*value)
			continue;
		CLEAN_FREE char *pair = xasprintf("%s=%s", names[i], value);
		buf_adds(&b, b.n ? " " : "env ");
		add_quoted(&b, pair);
	}
	buf_adds(&b, b.n ? " " : "");
	add_quoted(&b, paths->self);
	CLEAN_FREE char *safe = doubled(buf_str(&b));
	return xasprintf("%s connect %s", safe, name);
}

/* ---- ssh-config ---- */

static void print_option(void *arg, const char *name, const char *value)
{
	printf("\t%s %s\n", name, value);
}

int ssh_config_main(void)
{
	struct err err = ERR_INIT;
	struct paths paths;
	if (paths_init(&paths, &err))
		return say(EX_OSERR, &err);
	CLEAN_FREE char *state = doubled(paths.state);
	CLEAN_FREE char *base = xasprintf("%s/ssh/%%n", state);
	CLEAN_FREE char *proxy = proxy_command(&paths, "%n", true);
	printf("# Sessions of berthfs, as NAME.berth. Stands before any `Host *`, since ssh takes the first value that "
	       "it "
	       "finds.\nHost *.berth\n");
	options(base, proxy, print_option, NULL);
	paths_release(&paths);
	return fflush(stdout) ? EX_IOERR : EX_OK;
}

/* ---- connect ---- */

struct way {
	int from, to;
	bool socket; /* to is one: its end is a half-close */
};

static void *copy(void *arg)
{
	const struct way *w = arg;
	char room[65536];
	ssize_t n;
	while ((n = read(w->from, room, sizeof room)) > 0 || (n < 0 && errno == EINTR))
		if (n > 0 && fd_write_full(w->to, room, (size_t)n))
			break;
	if (w->socket)
		shutdown(w->to, SHUT_WR);
	return NULL;
}

/* Until the far side has ended. */
static int relay(int fd)
{
	struct way in = {STDIN_FILENO, fd, true}, out = {fd, STDOUT_FILENO, false};
	pthread_t thread;
	if (pthread_create(&thread, NULL, copy, &in))
		return EX_OSERR;
	copy(&out);
	return EX_OK; /* the thread ends with the process: it may wait for input that never comes */
}

static void progress(void *arg, const char *line)
{
	fprintf(stderr, "berthfs: %s\n", line);
}

/* A daemon that runs is asked to bring the sandbox up itself, so that what it shows is so and the way to the models is
 * open; whatever it says, the sandbox is then brought up from here or found running. */
static void ask_daemon(const struct paths *paths, const struct entrance *e)
{
	struct record r;
	if (instance_pid(paths) <= 0 || record_read(paths, &r))
		return;
	CLEAN_FREE char *ctl = xasprintf("%s/sessions/%" PRId64 "/ctl", r.dir, e->id);
	CLEAN_FD int fd = open(ctl, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : write(fd, "resume\n", 7);
	(void)n;
	record_release(&r);
}

static int enter(const struct paths *paths, const char *name, struct err *err)
{
	struct entrance e;
	CLEAN_FREE char *folder = NULL;
	int rc = backend_entrance(paths, name, &e, err);
	if (rc)
		return rc;
	rc = backend_enter_keys(paths, &e, name, &folder, err);
	if (!rc && !e.up)
		ask_daemon(paths, &e);
	rc = rc ? rc : backend_enter(paths, &e, progress, NULL, err);
	entrance_release(&e);
	return rc;
}

int connect_main(const char *name)
{
	struct err err = ERR_INIT;
	struct paths paths;
	if (paths_init(&paths, &err))
		return say(EX_OSERR, &err);
	signal(SIGPIPE, SIG_IGN);
	CLEAN_FD int fd = enter(&paths, name, &err);
	paths_release(&paths);
	return fd < 0 ? say(code_of(fd), &err) : relay(fd);
}

/* ---- ssh ---- */

struct line {
	const char *argv[64];
	char *own[64];
	size_t n;
};

static void add(struct line *l, const char *word)
{
	l->argv[l->n] = l->own[l->n] = xstrdup(word);
	l->n++;
}

static void add_option(void *arg, const char *name, const char *value)
{
	CLEAN_FREE char *word = xasprintf("%s=%s", name, value);
	add(arg, "-o");
	add(arg, word);
}

/* Where the tools begin as well; a command as ssh itself joins it. */
static char *remote_command(const struct entrance *e, char **command)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	if (*e->clone) {
		buf_adds(&b, "cd ");
		add_quoted(&b, e->clone);
		buf_adds(&b, *command ? " && " : " 2>/dev/null; ");
	}
	if (!*command)
		buf_adds(&b, "exec \"$SHELL\" -l");
	for (char **w = command; *w; w++)
		buf_addf(&b, "%s%s", w == command ? "" : " ", *w);
	return xstrdup(buf_str(&b));
}

static int run_ssh(const struct paths *paths, const struct entrance *e, const char *folder, char **command)
{
	struct line l = {0};
	CLEAN_FREE char *id = xasprintf("%" PRId64, e->id);
	CLEAN_FREE char *base = doubled(folder);
	CLEAN_FREE char *proxy = proxy_command(paths, id, false);
	CLEAN_FREE char *what = remote_command(e, command);
	add(&l, "ssh");
	add(&l, "-F");
	add(&l, "/dev/null");
	options(base, proxy, add_option, &l);
	add_option(&l, "LogLevel", "ERROR");
	if (!*command && isatty(STDIN_FILENO))
		add(&l, "-t");
	add(&l, "--");
	add(&l, e->name);
	add(&l, what);
	execvp("ssh", (char **)(uintptr_t)l.argv);
	fprintf(stderr, "berthfs: cannot run ssh: %s\n",
		errno == ENOENT ? "install the package openssh-client" : strerror(errno));
	for (size_t i = 0; i < l.n; i++)
		free(l.own[i]);
	return EX_UNAVAILABLE;
}

int ssh_main(const char *name, char **command)
{
	struct err err = ERR_INIT;
	struct paths paths;
	struct entrance e = {0};
	CLEAN_FREE char *folder = NULL;
	if (paths_init(&paths, &err))
		return say(EX_OSERR, &err);
	int rc = backend_entrance(&paths, name, &e, &err);
	rc = rc ? rc : backend_enter_keys(&paths, &e, e.name, &folder, &err);
	int code = rc ? say(code_of(rc), &err) : run_ssh(&paths, &e, folder, command);
	entrance_release(&e);
	paths_release(&paths);
	return code;
}
