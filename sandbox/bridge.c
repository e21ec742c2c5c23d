/* The bridge of one sandbox behind ssh (bridge.h). The main thread runs the mux, the clients and the link and never
 * blocks; connecting, which does, is done by a second thread that hands its connection over and ends. Must never leave
 * the sandbox's socket to somebody else, and ends by itself only when trying again is of no use. */
#include "bridge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "bridge_link.h"
#include "guest/tools_main.h"
#include "listen.h"
#include "mux.h"
#include "remote.h"
#include "sandbox.h"

#define SETUP_MS  90000 /* a connection that is not there by then is cut */
#define HELLO_MS  30000 /* from starting the link to its first words */
#define RETRY_MIN 500
#define RETRY_MAX 30000
#define MEMORY	  (512UL << 20) /* whatever a host sends, this process does not grow beyond */

struct bridge {
	const char *folder, *host;
	int64_t id;
	struct paths paths; /* state and config alone */
	bool end;	    /* tidy there, and no more */
	int listener, signals, ready;
	char *socket, *net;
	struct mux *mux;
	struct bridge_link link; /* link.remote NULL: none */
	bool live, ever;
	bool net_failed;
	int64_t hello_by, retry_at;
	int retry_ms;
	int status; /* BRIDGE_STATUS_FD until it has been said how the start went, else -1 */
	/* setup */
	bool working;
	pthread_t thread;
	int64_t setup_by;
	atomic_int socket_of_setup;
	struct remote *result; /* the thread's, until it has ended */
	struct err why;
};

static bool is_final(int rc)
{
	return rc == -EACCES || rc == -ENOEXEC || rc == -EBADMSG || rc == -EINVAL || rc == -ENOTDIR ||
	       rc == -EOPNOTSUPP;
}

/* ---- words ---- */

static void tell(struct bridge *b, const char *word, const char *more)
{
	CLEAN_FREE char *line = xasprintf("%s%s%s\n", word, *more ? " " : "", more);
	ssize_t n = b->status < 0 ? 0 : write(b->status, line, strlen(line));
	(void)n;
}

static void progress(void *arg, const char *line)
{
	tell(arg, "say", line);
}

static void note_trouble(struct bridge *b, const char *words)
{
	CLEAN_FREE char *path = xasprintf("%s/trouble", b->folder);
	CLEAN_FREE char *line = xasprintf("%s\n", words);
	if (*words)
		file_write(path, line, strlen(line), 0600, NULL);
	else
		unlink(path);
}

/* ---- setup: its own thread ---- */

static struct remote_spec spec_of(struct bridge *b)
{
	return (struct remote_spec){.paths = &b->paths,
				    .host = b->host,
				    .id = b->id,
				    .socket = &b->socket_of_setup,
				    .progress = progress,
				    .arg = b};
}

/* What sandboxes left behind on this host when it could not be reached. */
static void sweep(struct bridge *b, struct remote *r)
{
	CLEAN_FREE char *dir = xasprintf("%s/" BRIDGE_LEFT, b->paths.state);
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));) {
		CLEAN_FREE char *path = xasprintf("%s/%s", dir, e->d_name);
		CLEAN_BUF struct buf host = BUF_INIT;
		int64_t id = strtoll(e->d_name, NULL, 10);
		if (id <= 0 || id == b->id || file_read(path, &host, 4096, NULL) ||
		    strcmp(text_trim(host.p), b->host) != 0)
			continue;
		CLEAN_FREE char *mine = take(r->folder);
		r->folder = xasprintf("%.*s-%" PRId64, (int)(strrchr(mine, '-') - mine), mine, id);
		struct err err = ERR_INIT;
		if (!remote_end(r, &err))
			unlink(path);
		else
			log_warn("%s", err.text);
		free(r->folder);
		r->folder = take(mine);
	}
	if (d)
		closedir(d);
}

static void *setup(void *arg)
{
	struct bridge *b = arg;
	const struct remote_spec spec = spec_of(b);
	struct remote *r = NULL;
	uint64_t one = 1;
	CLEAN_FREE char *there = xasprintf("%s/there", b->folder);
	int rc = remote_open(&spec, &r, &b->why);
	rc = rc ? rc : remote_fits(r, &b->why);
	/* from here on there is something to take away */
	rc = rc || file_exists(there) ? rc : file_write(there, "", 0, 0600, &b->why);
	rc = rc ? rc : remote_ready(r, &spec, &b->why);
	if (!rc && !b->ever)
		sweep(b, r);
	rc = rc ? rc : remote_link(r, &b->why);
	atomic_store(&b->socket_of_setup, -1);
	if (rc)
		remote_free(r);
	b->result = rc ? NULL : r;
	ssize_t n = write(b->ready, &one, sizeof one);
	(void)n;
	return NULL;
}

static void begin_setup(struct bridge *b)
{
	b->why = ERR_INIT;
	atomic_store(&b->socket_of_setup, -1);
	b->setup_by = clock_mono_ms() + SETUP_MS;
	b->retry_at = 0;
	b->working = !pthread_create(&b->thread, NULL, setup, b);
	if (!b->working)
		b->retry_at = clock_mono_ms() + RETRY_MAX;
}

/* ---- the connection ---- */

/* There is none (any more). False: nor will there be. */
static bool lost(struct bridge *b, int rc, const char *words)
{
	char error[32];
	bool final = !b->ever || is_final(rc);
	b->live = false;
	mux_port(b->mux, -1);
	bridge_link_close(&b->link);
	log_warn("%s", words);
	note_trouble(b, words);
	if (final) {
		snprintf(error, sizeof error, "error %d", -rc);
		tell(b, error, words);
		return false;
	}
	b->retry_at = clock_mono_ms() + b->retry_ms;
	b->retry_ms = b->retry_ms * 2 < RETRY_MAX ? b->retry_ms * 2 : RETRY_MAX;
	return true;
}

static bool setup_ended(struct bridge *b)
{
	uint64_t n;
	if (read(b->ready, &n, sizeof n) != sizeof n)
		return true;
	pthread_join(b->thread, NULL);
	b->working = false;
	if (!b->result)
		return lost(b, -b->why.code, b->why.text);
	int port = bridge_link_open(&b->link, b->result);
	b->result = NULL;
	if (port < 0)
		return lost(b, port, strerror(-port));
	mux_port(b->mux, port);
	b->hello_by = clock_mono_ms() + HELLO_MS;
	return true;
}

/* The connection ends: in our words, and the last ones of the other side. */
static bool link_ended(struct bridge *b, int rc, const char *ours)
{
	CLEAN_BUF struct buf clean = BUF_INIT;
	utf8_clean(&clean, buf_str(&b->link.words), b->link.words.n);
	text_one_line(clean.p, 400);
	const char *theirs = clean.n ? text_trim(clean.p) : "";
	CLEAN_FREE char *words = xasprintf("%s%s%s", ours, *theirs ? ": " : "", theirs);
	return lost(b, rc, words);
}

static void mux_changed(void *arg, enum mux_state state, const char *why)
{
	struct bridge *b = arg;
	b->live = state == MUX_LIVE;
	if (!b->live) {
		b->hello_by = state == MUX_SYNC ? clock_mono_ms() + HELLO_MS : 0;
		return;
	}
	b->ever = true;
	b->retry_ms = RETRY_MIN;
	b->hello_by = 0;
	log_info("connected to %s", b->host);
	note_trouble(b, "");
	tell(b, "ok", "");
	fd_close(&b->status);
}

/* A program there wants the gateway. */
static int there_wants(void *arg, const char *kind)
{
	struct bridge *b = arg;
	return listen_net(kind, b->net, "sandbox", &b->net_failed);
}

/* ---- clients ---- */

static void accept_client(struct bridge *b)
{
	CLEAN_FD int fd = accept4(b->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	uid_t uid;
	pid_t pid;
	if (fd >= 0 && !unix_peer(fd, &uid, &pid) && (uid == geteuid() || !uid))
		mux_open(b->mux, "tool", take_fd(&fd), NULL);
}

/* ---- the loop ---- */

/* False: the bridge has to end. */
static bool signalled(struct bridge *b)
{
	struct signalfd_siginfo s;
	struct err err = ERR_INIT;
	while (read(b->signals, &s, sizeof s) == sizeof s)
		if (s.ssi_signo == SIGTERM)
			return false;
		else if (s.ssi_signo == SIGHUP && listen_noted(b->folder, &b->socket, &b->listener, &err))
			log_warn("%s", err.text);
	return true;
}

static int earlier(int64_t a, int64_t now, int wait)
{
	if (!a)
		return wait;
	int ms = a > now ? (int)(a - now) : 0;
	return wait < 0 || ms < wait ? ms : wait;
}

/* What is due; false: the bridge has to end. *wait: ms until the next thing is. */
static bool timers(struct bridge *b, int *wait)
{
	int64_t now = clock_mono_ms();
	if (b->retry_at && now >= b->retry_at)
		begin_setup(b);
	if (b->working && now >= b->setup_by) {
		int fd = atomic_load(&b->socket_of_setup);
		if (fd >= 0)
			shutdown(fd, SHUT_RDWR); /* the thread's next read fails */
		b->setup_by = now + SETUP_MS;
	}
	if (b->hello_by && now >= b->hello_by) {
		b->hello_by = 0;
		CLEAN_FREE char *words = xasprintf("the tool daemon on %s does not answer", b->host);
		if (!link_ended(b, -ETIMEDOUT, words))
			return false;
	}
	*wait = earlier(b->retry_at, now, -1);
	*wait = earlier(b->working ? b->setup_by : 0, now, *wait);
	*wait = earlier(b->hello_by, now, *wait);
	if (b->link.remote)
		*wait = earlier(b->link.again ? now : b->link.keep_ms + 15000, now, *wait);
	return true;
}

static bool turn(struct bridge *b, int wait)
{
	enum { SIGNALS, MUX, READY, LISTENER, SOCKET, END, ALL };
	struct bridge_link *l = &b->link;
	bool room = b->live && mux_streams(b->mux) < MUX_STREAMS - MUX_GUEST_STREAMS;
	struct pollfd p[ALL] = {
		[SIGNALS] = {b->signals, POLLIN, 0},
		[MUX] = {mux_fd(b->mux), POLLIN, 0},
		[READY] = {b->ready, POLLIN, 0},
		[LISTENER] = {room ? b->listener : -1, POLLIN, 0},
		[SOCKET] = {l->remote ? l->remote->fd : -1, l->remote ? bridge_link_socket_events(l) : (short)0, 0},
		[END] = {l->remote ? l->end : -1, l->remote ? bridge_link_end_events(l) : (short)0, 0},
	};
	/* of a descriptor that nothing is wanted of, a hang-up would be told again and again */
	for (int i = SOCKET; i < ALL; i++)
		if (!p[i].events)
			p[i].fd = -1;
	if (poll(p, ALL, wait) < 0 && errno != EINTR)
		return false;
	mux_work(b->mux);
	if (l->remote && !bridge_link_work(l)) {
		CLEAN_FREE char *words = xasprintf("the connection to %s has ended", b->host);
		if (!link_ended(b, -EHOSTUNREACH, words))
			return false;
	}
	if (p[LISTENER].revents && b->live)
		accept_client(b);
	if (p[READY].revents && !setup_ended(b))
		return false;
	return !p[SIGNALS].revents || signalled(b);
}

static int signals_open(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_SETMASK, &set, NULL);
	signal(SIGINT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int start(struct bridge *b, struct err *err)
{
	static const struct mux_ops ops = {there_wants, mux_changed};
	CLEAN_FREE char *lock_path = xasprintf("%s/bridge.pid", b->folder);
	b->net = xasprintf("%s/net", b->folder);
	b->signals = signals_open();
	b->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (b->signals < 0 || b->ready < 0)
		return err_sys(err, errno, "cannot make a descriptor");
	int rc = tools_lock_take(lock_path, err);
	rc = rc ? rc : mux_new(MUX_HOST, &ops, b, &b->mux, err);
	return rc ? rc : listen_noted(b->folder, &b->socket, &b->listener, err);
}

static int serve(struct bridge *b)
{
	struct err err = ERR_INIT;
	int wait;
	setsid();
	if (fcntl(b->status, F_SETFD, FD_CLOEXEC))
		return 64;
	int rc = start(b, &err);
	if (rc) {
		log_error("%s", err.text);
		tell(b, "error 5", err.text);
		return 1;
	}
	begin_setup(b);
	while (timers(b, &wait) && turn(b, wait))
		;
	unlink(b->socket);
	return 0; /* a thread that may still be connecting ends with the process */
}

/* `end`: one try, in the foreground; words on standard error. */
static int tidy_there(struct bridge *b)
{
	struct err err = ERR_INIT;
	struct remote *r = NULL;
	b->status = -1;
	const struct remote_spec spec = spec_of(b);
	int rc = remote_open(&spec, &r, &err);
	rc = rc ? rc : remote_ready(r, &spec, &err);
	rc = rc ? rc : remote_end(r, &err);
	remote_free(r);
	if (rc)
		fprintf(stderr, "%s\n", err.text);
	return rc ? 1 : 0;
}

int sandbox_bridge_main(int argc, char **argv)
{
	struct bridge b = {.listener = -1, .link = {.end = -1}, .status = BRIDGE_STATUS_FD, .retry_ms = RETRY_MIN};
	const struct rlimit memory = {MEMORY, MEMORY};
	const char *id = "", *state = NULL, *config = NULL, *agent = "", *end = "";
	const struct {
		const char *name, **value;
	} known[] = {{"--folder", &b.folder}, {"--host", &b.host}, {"--id", &id},  {"--state", &state},
		     {"--config", &config},   {"--agent", &agent}, {"--end", &end}};
	for (int i = 1; i + 1 < argc; i += 2)
		for (size_t j = 0; j < ARRAY_LEN(known); j++)
			if (!strcmp(argv[i], known[j].name))
				*known[j].value = argv[i + 1];
	b.id = strtoll(id, NULL, 10);
	b.end = !strcmp(end, "yes");
	if (!b.folder || !b.host || b.id <= 0 || !state || !config) {
		log_error("%s is started by berthfs itself", BRIDGE_VERB);
		return 64;
	}
	b.paths = (struct paths){.state = xstrdup(state), .config = xstrdup(config)};
	umask(077);
	setrlimit(RLIMIT_DATA, &memory);
	if (*agent)
		setenv("SSH_AUTH_SOCK", agent, 1);
	signal(SIGPIPE, SIG_IGN);
	return b.end ? tidy_there(&b) : serve(&b);
}
