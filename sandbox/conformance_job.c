/* Cases of the conformance suite: jobs. The suite's only thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "conformance.h"

/* Until a file is there; costs no process a round, which an emulated machine would feel. */
#define WAIT(file) "[ -p p ] || mkfifo p; until [ -e " file " ]; do read -t 0.01 x <>p; done; :; "

static bool output_is(struct conf *c, const char *text)
{
	return !strcmp(buf_str(&c->out), text);
}

/* Runs a program without a shell; output in c->out. */
static int run_argv(struct conf *c, const char *const *argv, const char *cwd, const char *const *environ)
{
	CLEAN_FREE char *job = conf_job(c);
	struct env_exec exec = {.job = job, .argv = argv, .cwd = cwd, .environ = environ, .timeout_ms = CASE_MS};
	buf_reset(&c->out);
	return env_run(c->env, &exec, NULL, 1 << 20, &c->out, &c->err);
}

static bool arguments_verbatim(struct conf *c)
{
	const char *argv[] = {"/usr/bin/printf",
			      "[%s]\\n",
			      "it's",
			      "\"x\"",
			      "$(touch made)",
			      "`touch made`",
			      "*",
			      "; touch made",
			      "",
			      "two words",
			      "-n",
			      "\xff\n",
			      NULL};
	REQUIRE(c, run_argv(c, argv, c->dir, NULL) == 0);
	REQUIRE(c, output_is(c, "[it's]\n[\"x\"]\n[$(touch made)]\n[`touch made`]\n[*]\n[; touch made]\n[]\n"
				"[two words]\n[-n]\n[\xff\n]\n"));
	REQUIRE(c, conf_sh(c, "[ ! -e made ]") == 0);
	return true;
}

static bool both_streams_in_order(struct conf *c)
{
	REQUIRE(c, conf_sh(c, "for i in 1 2 3; do echo o$i; echo e$i >&2; done; echo again >/dev/stderr; exit 3") == 3);
	REQUIRE(c, output_is(c, "o1\ne1\no2\ne2\no3\ne3\nagain\n"));
	REQUIRE(c, conf_sh(c, "cat; echo end") == 0 && output_is(c, "end\n")); /* standard input is empty */
	return true;
}

static bool folder_and_exit_code(struct conf *c)
{
	CLEAN_FREE char *want = xasprintf("%s/sub\n", c->dir);
	CLEAN_FREE char *sub = conf_path(c, "sub");
	REQUIRE(c, conf_sh(c, "mkdir sub") == 0);
	REQUIRE(c, run_argv(c, (const char *const[]){"/bin/sh", "-c", "pwd; exit 77", NULL}, sub, NULL) == 77);
	REQUIRE(c, output_is(c, want));
	const char *const at_home[] = {"sh", "-c", "[ . -ef \"$0\" ]", env_home(c->env), NULL};
	REQUIRE(c, run_argv(c, at_home, NULL, NULL) == 0);
	REQUIRE(c, run_argv(c, at_home, ".", NULL) == 0);
	return true;
}

static bool what_cannot_start(struct conf *c)
{
	REQUIRE(c, conf_put(c, "file", "x"));
	CLEAN_FREE char *none = conf_path(c, "none"), *file = conf_path(c, "file");
	const char *const ok[] = {"true", NULL};
	REQUIRE(c, run_argv(c, (const char *const[]){"no-such-program", NULL}, NULL, NULL) == -ENOENT);
	REQUIRE(c, run_argv(c, (const char *const[]){none, NULL}, NULL, NULL) == -ENOENT);
	REQUIRE(c, run_argv(c, (const char *const[]){file, NULL}, NULL, NULL) == -EACCES);
	REQUIRE(c, run_argv(c, (const char *const[]){"", NULL}, NULL, NULL) < 0);
	REQUIRE(c, run_argv(c, ok, none, NULL) == -ENOENT);
	REQUIRE(c, run_argv(c, ok, file, NULL) == -ENOTDIR);
	const char *nothing[] = {NULL};
	struct env_exec exec = {.job = "conf.nothing", .argv = nothing};
	REQUIRE(c, env_start(c->env, &exec, &c->err) < 0);
	exec.argv = ok;
	exec.job = "../x";
	REQUIRE(c, env_start(c->env, &exec, &c->err) < 0);
	REQUIRE(c, !env_lost(c->env));
	return true;
}

/* Fetched in windows of any size, output is all there, and its last lines are the last. */
static bool output_in_windows(struct conf *c)
{
	CLEAN_FREE char *job = conf_job(c);
	struct env_job j;
	REQUIRE(c, !conf_start(c, job, "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done", CASE_MS));
	REQUIRE(c, !conf_wait(c, job, &j) && j.exit_code == 0 && j.output == 10 * 7 + 90 * 8 + 900 * 9 + 2000 * 10);
	CLEAN_BUF struct buf all = BUF_INIT;
	static const size_t windows[] = {1, 100, 7000, 262145, 1 << 20};
	for (size_t i = 0; all.n < j.output; i += i < ARRAY_LEN(windows) - 1) {
		size_t before = all.n;
		REQUIRE(c, !env_output(c->env, job, all.n, windows[i], &all, &c->err));
		REQUIRE(c, all.n > before && all.n - before <= windows[i]);
	}
	size_t at = 0;
	for (int i = 0; i < 3000; i++) {
		char line[32];
		size_t n = (size_t)snprintf(line, sizeof line, "line %d\n", i);
		REQUIRE(c, at + n <= all.n && !memcmp(all.p + at, line, n));
		at += n;
	}
	size_t end = all.n;
	REQUIRE(c, !env_output(c->env, job, j.output, 10, &all, &c->err) && all.n == end);
	return !env_ack(c->env, job, false, NULL, &c->err);
}

/* A time limit, a kill and an end by oneself can be told apart; what was printed until then is kept whole. */
static bool ends_and_spill(struct conf *c)
{
	CLEAN_FREE char *late = conf_job(c), *killed = conf_job(c), *path = NULL, *told = NULL;
	CLEAN_BUF struct buf b = BUF_INIT;
	struct env_job j = {0};
	REQUIRE(c, !conf_start(c, killed, "echo spilt; exec sleep 600", 0));
	/* on a busy machine a short limit may be over before anything is printed */
	for (int limit = 300; j.output != 7; limit *= 4) {
		free(late);
		late = conf_job(c);
		REQUIRE(c, limit < CASE_MS);
		REQUIRE(c, !conf_start(c, late, "echo before; exec sleep 600", limit));
		REQUIRE(c, !conf_wait(c, late, &j) && j.timed_out && !j.killed);
	}
	REQUIRE(c, !env_poll(c->env, killed, 0, CASE_MS, &j, &c->err) && j.state == ENV_JOB_RUNNING && j.output == 6);
	REQUIRE(c, !env_kept(c->env, killed, &told, &c->err) && told);
	REQUIRE(c, env_ack(c->env, killed, true, &path, &c->err) == -EBUSY);
	free(take(path));
	REQUIRE(c, !env_kill(c->env, killed, &c->err) && !conf_wait(c, killed, &j));
	REQUIRE(c, j.killed && !j.timed_out && j.exit_code == 137);
	REQUIRE(c, !env_ack(c->env, killed, true, &path, &c->err) && path && !strcmp(path, told));
	REQUIRE(c, !env_read(c->env, path, 0, 100, &b, &c->err) && !strcmp(buf_str(&b), "spilt\n"));
	free(take(path));
	buf_reset(&b);
	REQUIRE(c, !env_ack(c->env, late, true, &path, &c->err) && path);
	REQUIRE(c, !env_read(c->env, path, 0, 100, &b, &c->err) && !strcmp(buf_str(&b), "before\n"));
	REQUIRE(c, !env_poll(c->env, late, 0, 0, &j, &c->err) && j.state == ENV_JOB_UNKNOWN);
	return true;
}

static bool ends_by_signal(struct conf *c)
{
	REQUIRE(c, conf_sh(c, "kill -TERM $$") == 143);
	REQUIRE(c, conf_sh(c, "kill -9 $$") == 137);
	REQUIRE(c, conf_sh(c, "exit 255") == 255);
	return true;
}

static bool environment(struct conf *c)
{
	const char *const base[] = {"CONF_BASE=base", "CONF_BOTH=base", NULL};
	const char *const own[] = {"CONF_BOTH=own=with=signs", "CONF_TEXT=two\nlines $HOME", NULL};
	const char *const bad[] = {"=nameless", NULL};
	const char *const show[] = {"/bin/sh", "-c", "printf '%s|' \"$CONF_BASE\" \"$CONF_BOTH\" \"$CONF_TEXT\"", NULL};
	bool has = true;
	REQUIRE(c, !env_has_environ(c->env, &has, &c->err));
	REQUIRE(c, !env_set_environ(c->env, base, &c->err));
	REQUIRE(c, !env_has_environ(c->env, &has, &c->err) && has);
	REQUIRE(c, run_argv(c, show, NULL, own) == 0 && output_is(c, "base|own=with=signs|two\nlines $HOME|"));
	REQUIRE(c, env_set_environ(c->env, bad, &c->err) == -EINVAL);
	REQUIRE(c, run_argv(c, show, NULL, NULL) == 0 && output_is(c, "base|base||"));
	REQUIRE(c, !env_set_environ(c->env, NULL, &c->err));
	REQUIRE(c, run_argv(c, show, NULL, NULL) == 0 && output_is(c, "|||"));
	return true;
}

/* What looks like a secret in the environment of this program is in no job's. */
static bool no_secrets(struct conf *c)
{
	REQUIRE(c, conf_sh(c, "env") == 0);
	extern char **environ;
	for (char **e = environ; *e; e++) {
		static const char *const parts[] = {"KEY", "TOKEN", "SECRET", "PASSWORD"};
		CLEAN_FREE char *name = xstrndup(*e, strcspn(*e, "="));
		for (size_t i = 0; i < ARRAY_LEN(parts); i++)
			if (strcasestr(name, parts[i])) {
				CLEAN_FREE char *line = xasprintf("\n%s=", name);
				REQUIRE(c, !strstr(buf_str(&c->out), line));
			}
	}
	return true;
}

/* The shell's end is the job's, though a child still holds its output; that child goes on. */
static bool background_children(struct conf *c)
{
	int64_t start = clock_mono_ms();
	REQUIRE(c, conf_sh(c, "sleep 600 & echo $! >pid; echo done") == 0 && output_is(c, "done\n"));
	REQUIRE(c, clock_mono_ms() - start < CASE_MS);
	REQUIRE(c, conf_sh(c, "kill -0 $(cat pid) && kill -9 $(cat pid)") == 0);
	return true;
}

static bool kill_takes_the_tree(struct conf *c)
{
	CLEAN_FREE char *job = conf_job(c);
	struct env_job j = {0};
	const char *script = "sleep 601 & echo $! >>pids\n"
			     "setsid sh -c 'trap \"\" TERM; echo $$ >>pids; : >up; sleep 602; sleep 603' &\n" WAIT(
				     "up") "echo up; wait";
	REQUIRE(c, !conf_start(c, job, script, CASE_MS));
	REQUIRE(c, !env_poll(c->env, job, 0, CASE_MS, &j, &c->err) && j.output == 3);
	REQUIRE(c, !env_kill(c->env, job, &c->err) && !conf_wait(c, job, &j) && j.killed);
	REQUIRE(c, !env_kill(c->env, job, &c->err)); /* again */
	REQUIRE(c, conf_sh(c, "for p in $(cat pids); do [ ! -e /proc/$p ] || grep -q '^State:.Z' /proc/$p/status || "
			      "exit 1; done") == 0);
	return !env_ack(c->env, job, false, NULL, &c->err);
}

static bool same_id_runs_once(struct conf *c)
{
	CLEAN_FREE char *job = conf_job(c);
	struct env_job j;
	REQUIRE(c, !conf_start(c, job, "echo x >>runs", CASE_MS));
	REQUIRE(c, !conf_start(c, job, "echo x >>runs", CASE_MS));
	REQUIRE(c, !conf_wait(c, job, &j));
	REQUIRE(c, !conf_start(c, job, "echo x >>runs", CASE_MS));
	REQUIRE(c, conf_holds(c, "runs", "x\n", 2));
	REQUIRE(c, !env_ack(c->env, job, false, NULL, &c->err));
	REQUIRE(c, !env_ack(c->env, job, false, NULL, &c->err)); /* unknown: nothing to do */
	REQUIRE(c, !env_kill(c->env, job, &c->err));
	REQUIRE(c, !env_poll(c->env, job, 0, 0, &j, &c->err) && j.state == ENV_JOB_UNKNOWN);
	return true;
}

static bool outlives_its_connection(struct conf *c)
{
	CLEAN_FREE char *job = conf_job(c);
	struct env_job j;
	REQUIRE(c, !conf_start(c, job, WAIT("go") "echo collected; exit 5", CASE_MS));
	env_close(c->env);
	c->env = NULL;
	REQUIRE(c, !env_open(c->paths, c->kind, c->id, NULL, &c->env, &c->err));
	REQUIRE(c, !env_poll(c->env, job, UINT64_MAX, 0, &j, &c->err) && j.state == ENV_JOB_RUNNING);
	REQUIRE(c, conf_put(c, "go", ""));
	REQUIRE(c, !conf_wait(c, job, &j) && j.exit_code == 5);
	buf_reset(&c->out);
	REQUIRE(c, !env_output(c->env, job, 0, 100, &c->out, &c->err) && output_is(c, "collected\n"));
	return !env_ack(c->env, job, false, NULL, &c->err);
}

/* A wait ends with output, with the job, and when its time is over. */
static bool waiting(struct conf *c)
{
	CLEAN_FREE char *job = conf_job(c);
	struct env_job j;
	REQUIRE(c, !conf_start(c, job, WAIT("go") "echo out; " WAIT("end"), CASE_MS));
	int64_t start = clock_mono_ms();
	REQUIRE(c, !env_poll(c->env, job, 0, 50, &j, &c->err) && j.state == ENV_JOB_RUNNING && j.output == 0);
	REQUIRE(c, clock_mono_ms() - start >= 50);
	REQUIRE(c, conf_put(c, "go", ""));
	REQUIRE(c, !env_poll(c->env, job, 0, CASE_MS, &j, &c->err) && j.state == ENV_JOB_RUNNING && j.output == 4);
	REQUIRE(c, conf_put(c, "end", ""));
	REQUIRE(c, !env_poll(c->env, job, 4, CASE_MS, &j, &c->err) && j.state == ENV_JOB_EXITED && j.exit_code == 0);
	return !env_ack(c->env, job, false, NULL, &c->err);
}

static bool stopping(struct conf *c)
{
	CLEAN_FREE char *job = conf_job(c);
	atomic_bool cancel = true;
	struct env_job j;
	REQUIRE(c, !conf_start(c, job, "exec sleep 600", 0));
	REQUIRE(c, env_wait(c->env, job, 0, &cancel, &j, &c->err) == -ECANCELED);
	REQUIRE(c, !env_lost(c->env));
	REQUIRE(c, !env_poll(c->env, job, 0, 0, &j, &c->err) && j.state == ENV_JOB_RUNNING);
	REQUIRE(c, !env_end_job(c->paths, c->kind, c->id, job, CASE_MS, &c->err));
	for (int64_t end = clock_mono_ms() + CASE_MS;; clock_sleep_ms(5)) {
		REQUIRE(c, !env_poll(c->env, job, UINT64_MAX, 0, &j, &c->err) && clock_mono_ms() < end);
		if (j.state != ENV_JOB_RUNNING)
			break;
	}
	env_ack(c->env, job, false, NULL, NULL);
	return true;
}

static bool many_at_once(struct conf *c)
{
	enum { JOBS = 6 };
	char *jobs[JOBS];
	bool ok = true;
	for (int i = 0; i < JOBS; i++) {
		CLEAN_FREE char *script =
			xasprintf("mkfifo p%d; until [ -e go ]; do read -t 0.05 x <>p%d; done; exit %d", i, i, i);
		jobs[i] = conf_job(c);
		ok = ok && !conf_start(c, jobs[i], script, CASE_MS);
	}
	ok = ok && conf_put(c, "go", "");
	for (int i = 0; i < JOBS; i++) {
		struct env_job j = {0};
		ok = ok && !conf_wait(c, jobs[i], &j) && j.exit_code == i &&
		     !env_ack(c->env, jobs[i], false, NULL, &c->err);
		free(jobs[i]);
	}
	REQUIRE(c, ok);
	return true;
}

static bool two_connections(struct conf *c)
{
	CLEAN_FREE char *job = conf_job(c), *path = conf_path(c, "f");
	CLEAN_BUF struct buf b = BUF_INIT;
	struct env *other = NULL;
	struct env_job j = {0};
	REQUIRE(c, !env_open(c->paths, c->kind, c->id, NULL, &other, &c->err));
	bool ok = conf_put(c, "f", "one") && !env_read(other, path, 0, 10, &b, &c->err) &&
		  !strcmp(buf_str(&b), "one") && !conf_start(c, job, "echo x; exit 4", CASE_MS) &&
		  !env_wait(other, job, CASE_MS, NULL, &j, &c->err) && j.exit_code == 4 &&
		  !env_ack(other, job, false, NULL, &c->err);
	env_close(other);
	REQUIRE(c, ok);
	return true;
}

/* Nobody stands behind the gateway's address here: a connection is made and ends, or is refused, but does not hang. */
static bool gateway_address(struct conf *c)
{
	const char *url = env_gateway_url(c->env);
	if (!url) {
		c->skipped = true;
		snprintf(c->why, sizeof c->why, "this kind has no address for the gateway");
		return false;
	}
	CLEAN_FREE char *script =
		xasprintf("(exec 3<>/dev/tcp/127.0.0.1/%s; (printf 'GET / HTTP/1.1\\r\\n\\r\\n' >&3); cat <&3) "
			  "2>/dev/null; exit 0",
			  strrchr(url, ':') + 1);
	REQUIRE(c, run_argv(c, (const char *const[]){"/bin/bash", "-c", script, NULL}, NULL, NULL) == 0);
	REQUIRE(c, !strstr(buf_str(&c->out), "HTTP/1.1 200"));
	return true;
}

const struct conf_case conf_jobs[] = {
	{"exec: arguments arrive as they are, nothing is run of them", arguments_verbatim},
	{"exec: both streams in order, no input", both_streams_in_order},
	{"exec: working directory, and the exit code is a result", folder_and_exit_code},
	{"exec: missing programs, folders and arguments are errors", what_cannot_start},
	{"exec: output in windows adds up", output_in_windows},
	{"exec: time limit and kill are told apart, output is kept whole", ends_and_spill},
	{"exec: signals are 128 and their number", ends_by_signal},
	{"exec: base environment and a command's own", environment},
	{"exec: no secret of this program's environment", no_secrets},
	{"jobs: children in the background hold nothing up", background_children},
	{"jobs: a kill takes the whole tree", kill_takes_the_tree},
	{"jobs: an id runs once, and is forgotten when acknowledged", same_id_runs_once},
	{"jobs: outlive their connection", outlives_its_connection},
	{"jobs: waits end with output, at the end, and in time", waiting},
	{"jobs: a wait is cancelled, the job is ended from elsewhere", stopping},
	{"jobs: six at once", many_at_once},
	{"connections: two see the same", two_connections},
	{"gateway: its address answers or refuses, and never hangs", gateway_address},
	{0},
};
