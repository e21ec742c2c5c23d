/* The tool daemon's life on a machine that is reached by ssh. `link` is one process a connection; the daemon that it
 * starts outlives it. Main thread: the mux; two more copy standard input and output. Must never touch a folder that is
 * not below REMOTE_FOLDER. */
#include "remote.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "job.h"
#include "proc.h"
#include "sandbox/mux.h"
#include "sandbox/net.h"
#include "sandbox/sandbox.h"
#include "tools_main.h"

#define LEAVE_MS 3000  /* from SIGTERM to SIGKILL of an older link */
#define END_MS	 10000 /* the same of a daemon */
#define GREET_MS 5000  /* one that runs answers at once; this is for a machine that swaps */

struct link {
	const char *folder;
	struct mux *mux;
	char *tools; /* the daemon's socket */
	int net;     /* listens for the daemon's relay */
	int watch;   /* a connection to the daemon that says nothing: its end is the daemon's */
};

static int fail(const struct err *err)
{
	fprintf(stderr, "%s\n", err->text);
	return 1;
}

static char *in(const char *folder, const char *name)
{
	return xasprintf("%s/%s", folder, name);
}

/* True once nobody holds the lock. */
static bool wait_free(const char *lock, int ms)
{
	for (int64_t end = clock_mono_ms() + ms; tools_lock_holder(lock); clock_sleep_ms(5))
		if (clock_mono_ms() > end)
			return false;
	return true;
}

/* Ends the holder of a lock; its pid is right as long as it has it. */
static bool end_holder(const char *lock, int ms)
{
	pid_t pid = tools_lock_holder(lock);
	if (pid > 1)
		kill(pid, SIGTERM);
	if (wait_free(lock, ms))
		return true;
	pid = tools_lock_holder(lock);
	if (pid > 1)
		kill(pid, SIGKILL);
	return wait_free(lock, ms);
}

/* ---- the daemon ---- */

/* False: whoever listens there, if anybody does, hangs up. One that is only slow counts as serving. */
static bool serves(const char *socket)
{
	char word[8];
	CLEAN_FD int fd = unix_connect(socket, NULL);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	if (fd < 0 || fd_write_full(fd, "tool\n", 5))
		return false;
	return poll(&p, 1, GREET_MS) <= 0 || read(fd, word, sizeof word) > 0;
}

/* 1: there is a daemon. 0: there is none. One that was killed holds its lock until the last of its threads has ended,
 * and one that is being started has it before it serves. */
static int find_daemon(const char *folder, struct err *err)
{
	CLEAN_FREE char *lock = in(folder, "tools.pid"), *socket = in(folder, "sock");
	for (int64_t end = clock_mono_ms() + END_MS; tools_lock_holder(lock); clock_sleep_ms(5)) {
		if (serves(socket))
			return 1;
		if (clock_mono_ms() > end)
			return err_set(err, EBUSY, "the tool daemon of %s neither answers nor ends", folder);
	}
	return 0;
}

static int start_daemon(const char *folder, struct err *err)
{
	static const char *const options[][2] = {{"--socket", "sock"},	  {"--home", "home"}, {"--jobs", "jobs"},
						 {"--lock", "tools.pid"}, {"--log", "log"},   {"--net", "net"},
						 {"--busy", "busy"}};
	CLEAN_FREE char *home = in(folder, "home");
	char *argv[3 + 2 * ARRAY_LEN(options)];
	int argc = 0;
	int rc = dir_make(home, 0755, err);
	rc = rc ? rc : find_daemon(folder, err);
	if (rc)
		return rc < 0 ? rc : 0;
	argv[argc++] = xstrdup("tool-daemon");
	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		argv[argc++] = xstrdup(options[i][0]);
		argv[argc++] = in(folder, options[i][1]);
	}
	argv[argc++] = xstrdup("--as");
	argv[argc++] = xstrdup("ssh");
	/* two that start it at once: one finds it running */
	if (sandbox_tools_main(argc, argv) && !(rc = find_daemon(folder, err)))
		rc = err_set(err, EIO, "the tool daemon does not start in %s", folder);
	while (argc > 0)
		free(argv[--argc]);
	return rc < 0 ? rc : 0;
}

/* ---- link ---- */

static int on_accept(void *arg, const char *kind)
{
	const struct link *l = arg;
	int fd = strcmp(kind, "tool") ? -EPROTONOSUPPORT : unix_connect_now(l->tools, NULL);
	if (fd == -ECONNREFUSED || fd == -ENOENT)
		_exit(0); /* the daemon is dead: the next link starts another */
	return fd;
}

struct way {
	int from, to;
};

/* Whichever side ends, the connection has: the process goes with it. */
static void *copy(void *arg)
{
	const struct way *w = arg;
	char room[65536];
	ssize_t n;
	while ((n = read(w->from, room, sizeof room)) > 0 || (n < 0 && errno == EINTR))
		if (n > 0 && fd_write_full(w->to, room, (size_t)n))
			break;
	_exit(0);
}

static int start_copying(struct way *ways, int fd, struct err *err)
{
	ways[0] = (struct way){STDIN_FILENO, fd};
	ways[1] = (struct way){fd, STDOUT_FILENO};
	for (int i = 0; i < 2; i++) {
		pthread_t thread;
		int rc = pthread_create(&thread, NULL, copy, &ways[i]);
		if (rc)
			return err_sys(err, rc, "cannot start a thread");
		pthread_detach(thread);
	}
	return 0;
}

static void relay_net(struct link *l)
{
	int fd = accept4(l->net, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		mux_open(l->mux, "net", fd, NULL);
}

static void run(struct link *l)
{
	while (mux_state(l->mux) != MUX_DOWN) {
		bool room = mux_state(l->mux) == MUX_LIVE && mux_guest_streams(l->mux) < MUX_GUEST_STREAMS;
		struct pollfd p[3] = {{.fd = mux_fd(l->mux), .events = POLLIN},
				      {.fd = room ? l->net : -1, .events = POLLIN},
				      {.fd = l->watch, .events = POLLIN}};
		if ((poll(p, 3, -1) < 0 && errno != EINTR) || p[2].revents)
			return;
		mux_work(l->mux);
		if (p[1].revents)
			relay_net(l);
	}
}

static int link_main(const char *folder)
{
	static const struct mux_ops ops = {.accept = on_accept};
	CLEAN_FREE char *lock = in(folder, "link.pid");
	CLEAN_FREE char *net = in(folder, "net.sock");
	CLEAN_FREE char *note = in(folder, "net");
	struct link l = {.folder = folder, .tools = in(folder, "sock")};
	struct err err = ERR_INIT;
	struct way ways[2];
	int s[2];
	/* the daemon before our own lock: it would inherit that */
	int rc = start_daemon(folder, &err);
	if (!rc && !end_holder(lock, LEAVE_MS))
		rc = err_set(&err, EBUSY, "another link of %s does not end", folder);
	rc = rc ? rc : tools_lock_take(lock, &err);
	rc = rc ? rc : (l.net = unix_listen(net, 0600, &err)) < 0 ? l.net : 0;
	rc = rc ? rc : net_note(note, net, &err);
	rc = rc ? rc : (l.watch = unix_connect(l.tools, &err)) < 0 ? l.watch : 0;
	rc = rc ? rc : mux_new(MUX_GUEST, &ops, &l, &l.mux, &err);
	if (!rc && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s))
		rc = err_sys(&err, errno, "cannot make a socket");
	rc = rc ? rc : start_copying(ways, s[1], &err);
	if (rc)
		return fail(&err);
	mux_port(l.mux, s[0]);
	run(&l);
	return 0;
}

/* ---- end ---- */

/* What an upload for this sandbox has left half done: PROGRAM.SANDBOX. */
static void remove_halves(const char *bin, const char *name)
{
	DIR *d = opendir(bin);
	for (struct dirent *e; d && (e = readdir(d));) {
		const char *dot = strrchr(e->d_name, '.');
		if (dot && dot != e->d_name && !strcmp(dot + 1, name))
			unlinkat(dirfd(d), e->d_name, 0);
	}
	if (d)
		closedir(d);
}

/* With the last sandbox the programs go, and the folder that holds it all. */
static void tidy(const char *folder)
{
	CLEAN_FREE char *top = xstrndup(folder, (size_t)(strrchr(folder, '/') - folder));
	CLEAN_FREE char *bin = in(top, "bin");
	remove_halves(bin, strrchr(folder, '/') + 1);
	DIR *d = opendir(top);
	int others = 0;
	for (struct dirent *e; d && (e = readdir(d));)
		others += e->d_name[0] != '.' && strcmp(e->d_name, "bin") != 0;
	if (d)
		closedir(d);
	if (d && !others && !dir_remove(bin, NULL))
		rmdir(top);
}

static int end_main(const char *folder)
{
	CLEAN_FREE char *lock = in(folder, "tools.pid");
	CLEAN_FREE char *link_lock = in(folder, "link.pid");
	CLEAN_FREE char *mark = xasprintf(JOB_MARK "%s/jobs/", folder);
	struct err err = ERR_INIT;
	int rc = 0;
	end_holder(link_lock, LEAVE_MS);
	if (!end_holder(lock, END_MS))
		rc = err_set(&err, EBUSY, "the tool daemon of %s does not end", folder);
	int left = rc ? 0 : proc_kill_tree(0, mark);
	if (left)
		rc = err_set(&err, EBUSY, "%d processes of %s do not end", left, folder);
	rc = rc ? rc : dir_remove(folder, &err);
	if (rc)
		return fail(&err);
	tidy(folder);
	return 0;
}

int remote_main(int argc, char **argv)
{
	const char *folder = argc == 3 ? argv[2] : "";
	const char *ours = strstr(folder, "/" REMOTE_FOLDER "/");
	signal(SIGPIPE, SIG_IGN);
	umask(077);
	if (*folder == '/' && ours && !strstr(folder, "..") && strlen(ours) > sizeof REMOTE_FOLDER + 1) {
		if (!strcmp(argv[1], "link"))
			return link_main(folder);
		if (!strcmp(argv[1], "end"))
			return end_main(folder);
	}
	fprintf(stderr, "this program is PID 1 of a virtual machine, or is started over ssh by berthfs\n");
	return 64;
}
