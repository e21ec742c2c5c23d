/* Kinds dir and host: a folder of the state directory and a tool daemon process, without any isolation. dir is for
 * tests; host is the user's own machine, in whose environment the tools run, with the project's own directory linked
 * into the folder by the engine. Any worker thread. Must never end a process that it cannot tell to be this sandbox's.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "driver.h"
#include "env_call.h"
#include "guest/job.h"
#include "guest/proc.h"
#include "guest/tools_main.h"
#include "net.h"

#define HELLO_MS 10000 /* a running daemon answers at once; this is for a machine that swaps */
#define END_MS	 10000 /* from the shutdown request to the end, then SIGKILL */

/* Where things of one sandbox are. */
struct place {
	char *folder, *home, *jobs, *lock, *turn, *log, *net, *socket;
};

static void place_release(struct place *p)
{
	free(p->folder);
	free(p->home);
	free(p->jobs);
	free(p->lock);
	free(p->turn);
	free(p->log);
	free(p->net);
	free(p->socket);
}
#define CLEAN_PLACE __attribute__((cleanup(place_release)))

static struct place place(const struct paths *paths, int64_t id)
{
	struct place p = {.folder = xasprintf("%s/sandboxes/%" PRId64, paths->state, id)};
	p.home = xasprintf("%s/home", p.folder);
	p.jobs = xasprintf("%s/jobs", p.folder);
	p.lock = xasprintf("%s/tools.pid", p.folder);
	p.turn = xasprintf("%s/lock", p.folder);
	p.log = xasprintf("%s/tools.log", p.folder);
	p.net = xasprintf("%s/net", p.folder);
	p.socket = sandbox_socket(paths, id);
	return p;
}

/* up, down and destroy of one sandbox take turns, also between two daemons. */
static int take_turn(const struct place *p, struct err *err)
{
	int fd = open(p->turn, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX)) {
		int rc = err_sys(err, errno, "cannot lock %s", p->turn);
		fd_close(&fd);
		return rc;
	}
	return fd;
}

static int possible(struct err *err)
{
	return 0;
}

static enum sandbox_state state(const struct paths *paths, int64_t id)
{
	CLEAN_PLACE struct place p = place(paths, id);
	if (!file_exists(p.home))
		return SANDBOX_NONE;
	return tools_lock_holder(p.lock) && file_exists(p.socket) ? SANDBOX_RUNNING : SANDBOX_DOWN;
}

static int spawn(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	CLEAN_BUF struct buf words = BUF_INIT;
	const char *self = paths_program(spec->paths);
	CLEAN_FREE char *busy = xasprintf("%s/busy", p->folder);
	const char *argv[] = {self,    "tool-daemon", "--busy", busy,	    "--socket", p->socket, "--home",
			      p->home, "--jobs",      p->jobs,	"--lock",   p->lock,	"--log",   p->log,
			      "--net", p->net,	      "--as",	spec->kind, NULL};
	struct child c = {.argv = argv,
			  .errout = &words,
			  .max = 4096,
			  .timeout_ms = spec->boot_timeout_ms,
			  .cancel = spec->cancel};
	int rc = child_run(&c, err);
	if (rc > 0)
		return err_set(err, EIO, "the tool daemon does not start: %s", buf_str(&words));
	return rc;
}

/* The home folder, empty or as a template has it. */
static int make_home(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	if (!spec->template || file_exists(p->home))
		return dir_make(p->home, 0755, err);
	CLEAN_BUF struct buf words = BUF_INIT;
	CLEAN_FREE char *from = xasprintf("%s/home", spec->template);
	CLEAN_FREE char *new = xasprintf("%s.new", p->home);
	const char *argv[] = {"cp", "-a", "--reflink=auto", "--", from, new, NULL};
	if (!file_exists(from))
		return err_set(err, ENOENT, "the template %s is gone", spec->template);
	int rc = dir_remove(new, err);
	rc = rc ? rc : child_run(&(struct child){.argv = argv, .errout = &words, .cancel = spec->cancel}, err);
	if (rc > 0)
		rc = err_set(err, EIO, "the template %s cannot be copied: %s", from, buf_str(&words));
	if (!rc && rename(new, p->home))
		rc = err_sys(err, errno, "cannot make %s", p->home);
	return rc;
}

/* True once nobody holds the daemon's lock. */
static bool wait_gone(const struct place *p, int ms)
{
	for (int64_t end = clock_mono_ms() + ms; tools_lock_holder(p->lock); clock_sleep_ms(5))
		if (clock_mono_ms() > end)
			return false;
	return true;
}

/* The daemon that there is, or a new one. One that was killed holds its lock until the last of its threads has ended.
 */
static int run_daemon(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	bool found = tools_lock_holder(p->lock);
	struct env *env = NULL;
	struct err why = ERR_INIT;
	int rc = found ? env_open_within(spec->paths, spec->id, HELLO_MS, spec->cancel, &env, &why) : -ENOTCONN;
	if (rc == -ENOTCONN && (!found || wait_gone(p, END_MS))) {
		sandbox_say(spec, "starting the tool daemon");
		rc = spawn(spec, p, err);
		rc = rc ? rc : env_open_within(spec->paths, spec->id, HELLO_MS, spec->cancel, &env, err);
		env_close(env);
		return rc;
	}
	env_close(env);
	return rc ? err_set(err, -rc, "%s", why.text) : 0;
}

static int up(const struct sandbox_spec *spec, struct err *err)
{
	CLEAN_PLACE struct place p = place(spec->paths, spec->id);
	CLEAN_FREE char *parent = xasprintf("%s/sandboxes", spec->paths->state);
	int rc = dir_make(parent, 0700, err);
	rc = rc ? rc : dir_make(p.folder, 0700, err);
	if (rc)
		return rc;
	CLEAN_FD int turn = take_turn(&p, err);
	if (turn < 0)
		return turn;
	rc = make_home(spec, &p, err);
	rc = rc ? rc : net_note(p.net, spec->net, err);
	return rc ? rc : run_daemon(spec, &p, err);
}

static int end_processes(const struct paths *paths, int64_t id, const struct place *p, struct err *err)
{
	struct env *env = NULL;
	if (tools_lock_holder(p->lock) && !env_open_within(paths, id, HELLO_MS, NULL, &env, NULL)) {
		env_hurry(env, END_MS);
		env_shutdown(env, NULL);
	}
	bool gone = wait_gone(p, env ? END_MS : 0);
	env_close(env);
	if (!gone) {
		/* the pid is right as long as its lock is held */
		pid_t pid = tools_lock_holder(p->lock);
		if (pid > 1)
			kill(pid, SIGKILL);
		gone = wait_gone(p, END_MS);
	}
	if (!gone)
		return err_set(err, EBUSY, "the tool daemon of sandbox %" PRId64 " does not end", id);
	CLEAN_FREE char *mark = xasprintf(JOB_MARK "%s/", p->jobs);
	int left = proc_kill_tree(0, mark); /* what a killed daemon left behind */
	unlink(p->socket);
	return left ? err_set(err, EBUSY, "%d processes of sandbox %" PRId64 " do not end", left, id) : 0;
}

static int down(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_PLACE struct place p = place(paths, id);
	if (!file_exists(p.folder))
		return 0;
	CLEAN_FD int turn = take_turn(&p, err);
	return turn < 0 ? turn : end_processes(paths, id, &p, err);
}

static int destroy(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_PLACE struct place p = place(paths, id);
	if (!file_exists(p.folder))
		return 0;
	CLEAN_FD int turn = take_turn(&p, err);
	int rc = turn < 0 ? turn : end_processes(paths, id, &p, err);
	return rc ? rc : dir_remove(p.folder, err);
}

static int copy(const struct sandbox_copy *c, struct err *err)
{
	CLEAN_PLACE struct place from = place(c->paths, c->from);
	CLEAN_PLACE struct place to = place(c->paths, c->to);
	CLEAN_FREE char *source =
		c->from_save ? xasprintf("%s/saves/%s", from.folder, c->from_save) : xstrdup(from.home);
	CLEAN_FREE char *saves = xasprintf("%s/saves", to.folder);
	CLEAN_FREE char *target = c->to_save ? xasprintf("%s/%s", saves, c->to_save) : xstrdup(to.home);
	int rc = dir_make(c->to_save ? saves : to.folder, 0700, err);
	return rc ? rc : sandbox_copy_tree(source, target, c->cancel, err);
}

static int save(const struct paths *paths, int64_t id, const char *folder, bool *alone, struct err *err)
{
	CLEAN_PLACE struct place p = place(paths, id);
	CLEAN_FREE char *to = xasprintf("%s/home", folder);
	*alone = true;
	if (!file_exists(p.home))
		return file_exists(to) ? 0 : err_set(err, ENOENT, "sandbox %" PRId64 " has no home folder", id);
	CLEAN_FD int turn = take_turn(&p, err);
	if (turn < 0)
		return turn;
	if (tools_lock_holder(p.lock))
		return err_set(err, EBUSY, "sandbox %" PRId64 " runs: it has to be down to be saved", id);
	int rc = dir_make(folder, 0700, err);
	return rc ? rc : sandbox_move(p.home, to, err);
}

static void describe(const struct paths *paths, int64_t id, enum sandbox_state s, char out[64])
{
	snprintf(out, 64, "dir %s", s == SANDBOX_NONE ? "none" : s == SANDBOX_DOWN ? "down" : "running");
}

static void describe_host(const struct paths *paths, int64_t id, enum sandbox_state s, char out[64])
{
	snprintf(out, 64, "host %s", s == SANDBOX_NONE ? "none" : s == SANDBOX_DOWN ? "down" : "running");
}

const struct driver driver_dir = {.kind = "dir",
				  .possible = possible,
				  .up = up,
				  .state = state,
				  .down = down,
				  .destroy = destroy,
				  .copy = copy,
				  .describe = describe,
				  .save = save};

/* Nothing of it can be copied or saved: the project's directory is one. */
const struct driver driver_host = {.kind = "host",
				   .possible = possible,
				   .up = up,
				   .state = state,
				   .down = down,
				   .destroy = destroy,
				   .describe = describe_host};
