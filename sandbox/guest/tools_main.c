/* The tool daemon of kinds dir and host as a process: berthfs tool-daemon --socket S --home H --jobs J --lock L --log F
 * --net N, the file that names the gateway's socket; --as dir|host. Host: jobs get the environment that the daemon was
 * started in, without what looks like a secret, and its HOME.
.
 * Puts itself into the background, so that it outlives who started it, and the first process ends only when requests
 * can be served (0), or with the reason on standard error (1). Main thread: accept loop. */
#include "tools_main.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "relay.h"
#include "tools.h"

struct daemon {
	const char *socket, *home, *jobs, *lock, *log, *net, *busy, *as;
	int listen, signals, stop, ready;
	struct tools *tools;
};

pid_t tools_lock_holder(const char *path)
{
	CLEAN_FD int fd = open(path, O_RDWR | O_CLOEXEC);
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char text[32] = {0};
	if (fd < 0 || fcntl(fd, F_OFD_GETLK, &l) || l.l_type == F_UNLCK || read(fd, text, sizeof text - 1) <= 0)
		return 0;
	return (pid_t)atol(text);
}

/* The descriptor stays open, and with it the lock, until the process ends. */
int tools_lock_take(const char *path, struct err *err)
{
	CLEAN_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (fd < 0)
		return err_sys(err, errno, "cannot open %s", path);
	if (fcntl(fd, F_OFD_SETLK, &l))
		return err_set(err, EBUSY, "another one runs here already (%s)", path);
	char text[32];
	int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
	if (ftruncate(fd, 0) || write(fd, text, (size_t)n) != n)
		return err_sys(err, errno, "cannot write %s", path);
	take_fd(&fd);
	return 0;
}

static int parse(int argc, char **argv, struct daemon *d)
{
	const struct {
		const char *name;
		const char **value;
	} options[] = {{"--socket", &d->socket}, {"--home", &d->home}, {"--jobs", &d->jobs}, {"--lock", &d->lock},
		       {"--log", &d->log},	 {"--net", &d->net},   {"--busy", &d->busy}, {"--as", &d->as}};
	d->busy = ""; /* may be left out */
	for (int i = 0; i < argc; i++)
		for (size_t o = 0; o < ARRAY_LEN(options); o++)
			if (!strcmp(argv[i], options[o].name) && i + 1 < argc)
				*options[o].value = argv[++i];
	for (size_t o = 0; o < ARRAY_LEN(options); o++)
		if (!*options[o].value) {
			fprintf(stderr, "tool-daemon needs %s\n", options[o].name);
			return -EINVAL;
		}
	return 0;
}

static void on_shutdown(void *arg)
{
	struct daemon *d = arg;
	uint64_t one = 1;
	(void)!write(d->stop, &one, sizeof one);
}

/* SIGTERM and SIGINT come by a descriptor; blocked before any thread is made, so that all inherit it. */
static int signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Names of variables that hold secrets. Not SSH_AUTH_SOCK, which is a path: an agent of ssh gives no key away, and
 * what it is used for is asked for. */
static bool is_secret(const char *entry)
{
	static const char *const parts[] = {"KEY",    "TOKEN",	 "SECRET", "PASS", "CREDENTIAL",   "COOKIE",
					    "BEARER", "PRIVATE", "_AUTH",  "DSN",  "DATABASE_URL", "BERTHFS"};
	CLEAN_FREE char *name = xstrndup(entry, strcspn(entry, "="));
	if (!strcmp(name, "SSH_AUTH_SOCK"))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (strcasestr(name, parts[i]))
			return true;
	/* user:password in a URL */
	const char *url = strstr(entry, "://"), *at = url ? strchr(url, '@') : NULL;
	return at && memchr(url + 3, ':', (size_t)(at - url - 3));
}

static const char *const *clean_environ(void)
{
	extern char **environ;
	size_t n = 0, m = 0;
	while (environ[n])
		n++;
	const char **env = xcalloc(n + 1, sizeof *env);
	for (size_t i = 0; i < n; i++)
		if (!is_secret(environ[i]))
			env[m++] = environ[i];
	return env;
}

static int begin(struct daemon *d, struct err *err)
{
	const char *path = getenv("PATH");
	struct tools_config config = {
		.jobs = {.folder = d->jobs, .home = d->home, .path = path ? path : "/usr/local/bin:/usr/bin:/bin"},
		.shutdown = on_shutdown,
		.arg = d};
	if (!strcmp(d->as, "host")) {
		config.jobs.user_home = getenv("HOME");
		config.jobs.environ = clean_environ();
	} else {
		umask(022);
	}
	/* orphans of a job come to us: they can be found and are reaped */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1))
		return err_sys(err, errno, "cannot become a subreaper");
	d->signals = signals();
	d->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->signals < 0 || d->stop < 0)
		return err_sys(err, errno, "cannot make a descriptor");
	int rc = tools_lock_take(d->lock, err);
	int port = rc ? rc : relay_start(d->net, err);
	CLEAN_FREE char *url = xasprintf("http://127.0.0.1:%d", port);
	config.url = url;
	config.busy = *d->busy ? d->busy : NULL;
	rc = port < 0 ? port : 0;
	rc = rc ? rc : tools_new(&config, &d->tools, err);
	if (rc)
		return rc;
	d->listen = unix_listen(d->socket, 0600, err);
	return d->listen < 0 ? d->listen : 0;
}

static void serve(struct daemon *d)
{
	for (;;) {
		struct pollfd p[3] = {{.fd = d->listen, .events = POLLIN},
				      {.fd = d->signals, .events = POLLIN},
				      {.fd = d->stop, .events = POLLIN}};
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents || p[2].revents)
			break;
		int fd = p[0].revents ? accept4(d->listen, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (fd >= 0 && tools_serve(d->tools, fd, TOOLS_LINE))
			log_warn("a connection was refused: too many are open");
	}
	unlink(d->socket);
	fd_close(&d->listen);
	tools_stop(d->tools);
}

/* Standard streams to the log; nothing of the starter's terminal or pipes is held any longer. */
static void let_go(const struct daemon *d)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	dup2(null, 0);
	dup2(log >= 0 ? log : null, 1);
	dup2(log >= 0 ? log : null, 2);
	fd_close(&null);
	fd_close(&log);
}

static int background(struct daemon *d)
{
	struct err err = ERR_INIT;
	setsid();
	if (begin(d, &err)) {
		(void)!write(d->ready, err.text, strlen(err.text));
		return 1;
	}
	let_go(d);
	/* a starter that has given up waiting is gone: then nobody wants us */
	signal(SIGPIPE, SIG_IGN);
	if (write(d->ready, "ok", 2) == 2) {
		fd_close(&d->ready);
		serve(d);
	}
	return 0;
}

int sandbox_tools_main(int argc, char **argv)
{
	struct daemon d = {.listen = -1, .signals = -1, .stop = -1, .ready = -1};
	int ready[2];
	if (parse(argc, argv, &d))
		return 64;
	if (pipe2(ready, O_CLOEXEC)) {
		perror("tool-daemon");
		return 71;
	}
	pid_t pid = fork();
	if (pid == 0) {
		close(ready[0]);
		d.ready = ready[1];
		_exit(background(&d));
	}
	close(ready[1]);
	CLEAN_FD int in = ready[0];
	CLEAN_BUF struct buf words = BUF_INIT;
	if (pid < 0 || fd_read_all(in, &words, 4096) || strcmp(buf_str(&words), "ok") != 0) {
		fprintf(stderr, "%s\n", words.n ? buf_str(&words) : "the tool daemon died while starting");
		return 1;
	}
	return 0;
}
