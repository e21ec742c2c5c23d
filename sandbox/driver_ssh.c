/* Kind ssh:HOST: tools run on another machine, as the user that ssh logs in there. A bridge (bridge.h) keeps the
 * connection; the tool daemon there outlives it. Blocks; worker threads only. Must never take a host for reached that
 * the bridge has not verified, nor forget what it has left there. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "bridge.h"
#include "driver.h"
#include "env_call.h"
#include "guest/tools_main.h"
#include "net.h"
#include "process.h"
#include "remote_conf.h"

#define CANCEL_MS 50
#define REACH_MS  1000
#define HELLO_MS  10000 /* a bridge that is connected answers as fast as the host is */
#define END_MS	  5000	/* a bridge ends at once */
#define TIDY_MS	  60000 /* connecting and ending what runs there */

struct place {
	char *folder, *host, *there, *made, *turn, *socket_note, *net, *pid, *log, *trouble, *socket;
};

static void place_release(struct place *p)
{
	free(p->folder);
	free(p->host);
	free(p->there);
	free(p->made);
	free(p->turn);
	free(p->socket_note);
	free(p->net);
	free(p->pid);
	free(p->log);
	free(p->trouble);
	free(p->socket);
}
#define CLEAN_PLACE __attribute__((cleanup(place_release)))

static struct place place(const struct paths *paths, int64_t id)
{
	struct place p = {.folder = xasprintf("%s/sandboxes/%" PRId64, paths->state, id)};
	p.host = xasprintf("%s/host", p.folder);
	p.there = xasprintf("%s/there", p.folder);
	p.made = xasprintf("%s/made", p.folder);
	p.turn = xasprintf("%s/turn", p.folder);
	p.socket_note = xasprintf("%s/socket", p.folder);
	p.net = xasprintf("%s/net", p.folder);
	p.pid = xasprintf("%s/bridge.pid", p.folder);
	p.log = xasprintf("%s/bridge.log", p.folder);
	p.trouble = xasprintf("%s/trouble", p.folder);
	p.socket = sandbox_socket(paths, id);
	return p;
}

static int possible(struct err *err)
{
	static const char *const programs[] = {"ssh", "ssh-keygen"};
	for (size_t i = 0; i < ARRAY_LEN(programs); i++)
		if (!child_found(programs[i]))
			return err_set(err, ENOENT, "sandboxes of kind ssh need %s: install the package openssh-client",
				       programs[i]);
	return 0;
}

static enum sandbox_state state(const struct paths *paths, int64_t id)
{
	CLEAN_PLACE struct place p = place(paths, id);
	if (!file_exists(p.made))
		return SANDBOX_NONE;
	/* while the connection is being made again, too: what runs there goes on */
	return tools_lock_holder(p.pid) ? SANDBOX_RUNNING : SANDBOX_DOWN;
}

/* up, down and destroy of one sandbox take turns, also between processes. */
static int take_turn(const struct place *p, const atomic_bool *cancel, struct err *err)
{
	CLEAN_FD int fd = open(p->turn, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, errno, "cannot open %s", p->turn);
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (cancel && atomic_load(cancel))
			return err_set(err, ECANCELED, "stopped");
		clock_sleep_ms(CANCEL_MS);
	}
	return take_fd(&fd);
}

/* The host of a sandbox, malloc'd; NULL: never begun. */
static char *host_of(const struct place *p)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	return file_read(p->host, &b, 4096, NULL) ? NULL : xstrdup(text_trim(b.p));
}

/* ---- the bridge ---- */

static bool end_bridge(const struct place *p)
{
	int64_t end = clock_mono_ms() + END_MS;
	pid_t pid;
	for (int sig = SIGTERM; (pid = tools_lock_holder(p->pid)); clock_sleep_ms(10)) {
		kill(pid, sig);
		if (clock_mono_ms() > end) {
			if (sig == SIGKILL)
				return false;
			sig = SIGKILL;
			end += END_MS;
		}
	}
	unlink(p->socket);
	return true;
}

static size_t bridge_argv(const struct paths *paths, const struct place *p, const char *host, const char *id,
			  const char **argv)
{
	const char *agent = getenv("SSH_AUTH_SOCK");
	const char *all[] = {paths_program(paths),
			     BRIDGE_VERB,
			     "--folder",
			     p->folder,
			     "--host",
			     host,
			     "--id",
			     id,
			     "--state",
			     paths->state,
			     "--config",
			     paths->config,
			     "--agent",
			     agent ? agent : ""};
	memcpy(argv, all, sizeof all);
	return ARRAY_LEN(all);
}

/* A line of the bridge. 1: it is connected, 0: words, -errno. */
static int status_line(const struct sandbox_spec *spec, char *line, struct err *err)
{
	char *rest;
	if (!strcmp(line, "ok"))
		return 1;
	if (!strncmp(line, "say ", 4))
		sandbox_say(spec, "%s: %s", spec->kind, line + 4);
	if (strncmp(line, "error ", 6) != 0)
		return 0;
	long code = strtol(line + 6, &rest, 10);
	return err_set(err, code > 0 && code < 4096 ? (int)code : EIO, "%s", text_trim(rest));
}

static int await(const struct sandbox_spec *spec, int fd, struct err *err)
{
	CLEAN_BUF struct buf line = BUF_INIT;
	int64_t end = clock_mono_ms() + spec->boot_timeout_ms;
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		char c;
		if (spec->cancel && atomic_load(spec->cancel))
			return err_set(err, ECANCELED, "connecting to %s was stopped", spec->kind + 4);
		if (clock_mono_ms() > end)
			return err_set(err, ETIMEDOUT, "%s is not connected within %d s", spec->kind + 4,
				       spec->boot_timeout_ms / 1000);
		if (poll(&p, 1, CANCEL_MS) <= 0)
			continue;
		ssize_t n = read(fd, &c, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set(err, EIO,
				       "the connection to %s ended at once: its log is bridge.log in the sandbox's "
				       "folder",
				       spec->kind + 4);
		if (c != '\n') {
			buf_addc(&line, c);
			continue;
		}
		int rc = status_line(spec, line.p ? line.p : (char[]){""}, err);
		if (rc)
			return rc < 0 ? rc : 0;
		buf_reset(&line);
	}
}

static int start_bridge(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	const char *argv[20] = {0};
	CLEAN_FREE char *id = xasprintf("%" PRId64, spec->id);
	CLEAN_FREE char *note = xasprintf("%s\n", p->socket);
	int rc = file_write(p->socket_note, note, strlen(note), 0600, err);
	if (rc)
		return rc;
	bridge_argv(spec->paths, p, spec->kind + 4, id, argv);
	sandbox_say(spec, "connecting to %s", spec->kind + 4);
	CLEAN_FD int status = process_detach(argv, p->log, err);
	rc = status < 0 ? status : await(spec, status, err);
	if (rc)
		end_bridge(p);
	return rc;
}

/* A bridge whose socket is gone or elsewhere is told to listen where we look. */
static void call_bridge(const struct place *p)
{
	CLEAN_FREE char *note = xasprintf("%s\n", p->socket);
	int fd = unix_connect(p->socket, NULL);
	pid_t pid = fd < 0 ? tools_lock_holder(p->pid) : 0;
	fd_close(&fd);
	if (!pid || file_write(p->socket_note, note, strlen(note), 0600, NULL) || kill(pid, SIGHUP))
		return;
	for (int64_t end = clock_mono_ms() + REACH_MS; !file_exists(p->socket) && clock_mono_ms() < end;)
		clock_sleep_ms(10);
}

/* ---- up ---- */

static int say_hello(const struct sandbox_spec *spec, const struct place *p, int ms, struct err *err)
{
	CLEAN_BUF struct buf why = BUF_INIT;
	struct env *env = NULL;
	int rc = env_open_within(spec->paths, spec->id, ms, spec->cancel, &env, err);
	env_close(env);
	if (rc && rc != -ECANCELED && !file_read(p->trouble, &why, 4096, NULL))
		return err_set(err, -rc, "%s", text_trim(why.p)); /* the bridge knows better */
	return rc;
}

static int prepare(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	CLEAN_FREE char *parent = xasprintf("%s/sandboxes", spec->paths->state);
	CLEAN_FREE char *line = xasprintf("%s\n", spec->kind + 4);
	int rc = dir_make(parent, 0700, err);
	rc = rc ? rc : dir_make(p->folder, 0700, err);
	/* before anything is made there, so that it is found again */
	return rc ? rc : file_exists(p->host) ? 0 : file_write(p->host, line, strlen(line), 0600, err);
}

static int up(const struct sandbox_spec *spec, struct err *err)
{
	CLEAN_PLACE struct place p = place(spec->paths, spec->id);
	int rc = prepare(spec, &p, err);
	if (rc)
		return rc;
	CLEAN_FD int turn = take_turn(&p, spec->cancel, err);
	if (turn < 0)
		return turn;
	rc = net_note(p.net, spec->net, err);
	if (rc)
		return rc;
	if (tools_lock_holder(p.pid)) {
		call_bridge(&p);
		rc = say_hello(spec, &p, spec->boot_timeout_ms, err);
		if (!rc || rc == -ECANCELED || rc == -ETIMEDOUT)
			return rc;
		end_bridge(&p);
	}
	rc = start_bridge(spec, &p, err);
	rc = rc ? rc : say_hello(spec, &p, HELLO_MS, err);
	return rc ? rc : file_exists(p.made) ? 0 : file_write(p.made, "", 0, 0600, err);
}

/* ---- down and destroy ---- */

static int down(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_PLACE struct place p = place(paths, id);
	struct err why = ERR_INIT;
	struct env *env = NULL;
	if (!file_exists(p.folder))
		return 0;
	CLEAN_FD int turn = take_turn(&p, NULL, err);
	if (turn < 0)
		return turn;
	bool was = tools_lock_holder(p.pid) != 0;
	int rc = was ? env_open_within(paths, id, HELLO_MS, NULL, &env, &why) : 0;
	if (!rc && env) {
		env_hurry(env, HELLO_MS);
		rc = env_shutdown(env, &why);
	}
	env_close(env);
	if (!end_bridge(&p))
		return err_set(err, EBUSY, "the bridge of sandbox %" PRId64 " does not end", id);
	return rc ? err_set(err, -rc, "the connection is closed, but what runs there goes on: %s", why.text) : 0;
}

/* Ends and removes what is on the host. */
static int tidy(const struct paths *paths, int64_t id, const struct place *p, const char *host, struct err *err)
{
	CLEAN_FREE char *text = xasprintf("%" PRId64, id);
	CLEAN_BUF struct buf words = BUF_INIT;
	const char *argv[20] = {0};
	size_t n = bridge_argv(paths, p, host, text, argv);
	argv[n++] = "--end";
	argv[n++] = "yes";
	int rc = child_run(&(struct child){.argv = argv, .errout = &words, .max = 8192, .timeout_ms = TIDY_MS}, err);
	return rc > 0 ? err_set(err, EHOSTUNREACH, "%s", words.n ? text_trim(words.p) : "it does not say why") : rc;
}

/* The next sandbox on that host takes it away. */
static int leave_behind(const struct paths *paths, int64_t id, const char *host, const struct err *why, struct err *err)
{
	CLEAN_FREE char *dir = xasprintf("%s/" BRIDGE_LEFT, paths->state);
	CLEAN_FREE char *path = xasprintf("%s/%" PRId64, dir, id);
	CLEAN_FREE char *line = xasprintf("%s\n", host);
	log_warn("sandbox %" PRId64 " cannot be removed from %s now; the next one there does it: %s", id, host,
		 why->text);
	int rc = dir_make(dir, 0700, err);
	return rc ? rc : file_write(path, line, strlen(line), 0600, err);
}

static int destroy(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_PLACE struct place p = place(paths, id);
	struct err why = ERR_INIT;
	if (!file_exists(p.folder))
		return 0;
	CLEAN_FD int turn = take_turn(&p, NULL, err);
	if (turn < 0)
		return turn;
	if (!end_bridge(&p))
		return err_set(err, EBUSY, "the bridge of sandbox %" PRId64 " does not end", id);
	CLEAN_FREE char *host = host_of(&p);
	int rc = 0;
	if (host && file_exists(p.there) && tidy(paths, id, &p, host, &why))
		rc = leave_behind(paths, id, host, &why, err);
	return rc ? rc : dir_remove(p.folder, err);
}

static void describe(const struct paths *paths, int64_t id, enum sandbox_state s, char out[64])
{
	snprintf(out, 64, "ssh %s", s == SANDBOX_RUNNING ? "running" : s == SANDBOX_NONE ? "none" : "down");
}

const struct driver driver_ssh = {.kind = "ssh",
				  .argument = remote_host_check,
				  .possible = possible,
				  .up = up,
				  .state = state,
				  .down = down,
				  .destroy = destroy,
				  .describe = describe};
