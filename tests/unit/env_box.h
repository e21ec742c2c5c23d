/* A sandbox for the tests of env, of kind dir: its tool daemon is the test program itself, started again as
 * `tool-daemon`. BERTHFS_TEST_KIND=vm or container runs the same tests there, from the image of the default cache
 * folder. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/sandbox.h"

#define BOX_ID 7

static struct {
	char *root;
	const char *kind;
	bool dir; /* kind is dir */
	struct paths paths;
	struct env *env;
	struct buf out; /* of run() */
} box;

static inline char *self(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
	return xstrndup(path, n > 0 ? (size_t)n : 0);
}

static inline char *cache(void)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	return xdg ? xasprintf("%s/berthfs", xdg) : xasprintf("%s/.cache/berthfs", home ? home : "/root");
}

static inline void setup(void)
{
	char name[] = "/tmp/berthfs-env-XXXXXX";
	box.root = xstrdup(mkdtemp(name));
	box.paths = (struct paths){.state = xasprintf("%s/state", box.root),
				   .runtime = xasprintf("%s/run", box.root),
				   .cache = cache(),
				   .self = self()};
	CHECK_INT(dir_make(box.paths.state, 0700, NULL), 0);
	CHECK_INT(dir_make(box.paths.runtime, 0700, NULL), 0);
}

static inline int up(void)
{
	struct err err = ERR_INIT;
	struct sandbox_spec spec = {.paths = &box.paths,
				    .kind = box.kind,
				    .id = BOX_ID,
				    .name = "t",
				    .size = "mini",
				    .boot_timeout_ms = 120000};
	int rc = sandbox_up(&spec, &err);
	if (rc)
		printf("# %s\n", err.text);
	return rc;
}

/* Never NULL: without it no test can go on. */
static inline struct env *open_env(void)
{
	struct env *env = NULL;
	struct err err = ERR_INIT;
	if (!env_open(&box.paths, box.kind, BOX_ID, NULL, &env, &err))
		return env;
	printf("not ok connect to the sandbox\n# %s\n", err.text);
	exit(1);
}

static inline void teardown(void)
{
	struct err err = ERR_INIT;
	if (sandbox_destroy(&box.paths, box.kind, BOX_ID, &err))
		printf("# %s\n", err.text);
	dir_remove(box.root, NULL);
}

/* The process whose end takes the sandbox down: tool daemon or VM keeper. */
static inline pid_t daemon_pid(void)
{
	CLEAN_FREE char *path =
		xasprintf("%s/sandboxes/%d/%s.pid", box.paths.state, BOX_ID, box.dir ? "tools" : "keeper");
	CLEAN_BUF struct buf text = BUF_INIT;
	return file_read(path, &text, 100, NULL) ? 0 : (pid_t)atol(buf_str(&text));
}

static inline int start(struct env *env, const char *job, const char *script, int timeout_ms, struct err *err)
{
	const char *argv[] = {"/bin/sh", "-c", script, NULL};
	struct env_exec exec = {.job = job, .argv = argv, .timeout_ms = timeout_ms};
	return env_start(env, &exec, err);
}

static inline struct env_job wait_job(struct env *env, const char *job)
{
	struct env_job j = {0};
	int64_t end = clock_mono_ms() + 90000; /* an emulated machine on a busy host */
	do
		CHECK_INT(env_poll(env, job, UINT64_MAX, 5000, &j, NULL), 0);
	while (j.state == ENV_JOB_RUNNING && clock_mono_ms() < end);
	return j;
}

/* Exit code of a script; its output in box.out. */
static inline int run(const char *job, const char *script)
{
	const char *argv[] = {"/bin/sh", "-c", script, NULL};
	struct env_exec exec = {.job = job, .argv = argv, .timeout_ms = 120000};
	struct err err = ERR_INIT;
	buf_reset(&box.out);
	int rc = env_run(box.env, &exec, NULL, 1 << 20, &box.out, &err);
	if (rc < 0)
		printf("# %s\n", err.text);
	return rc;
}

/* Waits until a file of the home has text in it, and gives it as a number (a pid). */
static inline pid_t pid_in(const char *name)
{
	for (int64_t end = clock_mono_ms() + 200000; clock_mono_ms() < end; clock_sleep_ms(5)) {
		CLEAN_BUF struct buf b = BUF_INIT;
		if (!env_read(box.env, name, 0, 100, &b, NULL) && buf_ends(&b, "\n"))
			return (pid_t)atol(buf_str(&b));
	}
	return 0;
}

/* Whether a process in the sandbox lives. */
static inline bool lives(pid_t pid)
{
	CLEAN_FREE char *path = xasprintf("/proc/%d/stat", (int)pid);
	CLEAN_BUF struct buf b = BUF_INIT;
	return pid > 0 && !env_read(box.env, path, 0, 4096, &b, NULL) && !strstr(buf_str(&b), ") Z ");
}

static inline bool ends(pid_t pid)
{
	for (int64_t end = clock_mono_ms() + 60000; clock_mono_ms() < end; clock_sleep_ms(5))
		if (!lives(pid))
			return true;
	return false;
}

/* The same for a process of the host. */
static inline bool alive(pid_t pid)
{
	CLEAN_FREE char *path = xasprintf("/proc/%d/stat", (int)pid);
	CLEAN_BUF struct buf b = BUF_INIT;
	return pid > 0 && !file_read(path, &b, 4096, NULL) && !strstr(buf_str(&b), ") Z ");
}

static inline bool dies(pid_t pid)
{
	for (int64_t end = clock_mono_ms() + 60000; clock_mono_ms() < end; clock_sleep_ms(5))
		if (!alive(pid))
			return true;
	return false;
}

/* Checks that a file is exactly these bytes. */
static inline void has(const char *name, const void *p, size_t n)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CHECK_INT(env_read(box.env, name, 0, n + 10, &b, NULL), 0);
	CHECK_INT(b.n, n);
	CHECK(b.n == n && !memcmp(buf_str(&b), p, n));
}

int check_main(void);
#define main check_main /* this program has a main of its own: below */
CHECK_MAIN()
#undef main

static pid_t tests_pid;

static inline void end_tests(int sig)
{
	kill(tests_pid, SIGKILL);
}

static inline int run_tests(void)
{
	int rc = up();
	if (!rc) {
		box.env = open_env();
		rc = check_main();
	}
	env_close(box.env);
	buf_release(&box.out);
	return rc;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "tool-daemon"))
		return sandbox_tools_main(argc, argv);
	if (argc > 1 && !strcmp(argv[1], "box-keeper"))
		return sandbox_box_main(argc, argv);
	if (argc > 1 && !strcmp(argv[1], "vm-keeper"))
		return sandbox_keeper_main(argc, argv);
	const char *kind = getenv("BERTHFS_TEST_KIND");
	box.kind = kind ? kind : "dir";
	box.dir = !strcmp(box.kind, "dir");
	setenv("DAEMON_SECRET", "hunter2", 1);
	setup();
	/* the tests run in a process of their own, so that the sandbox is taken down also when they crash */
	signal(SIGTERM, end_tests);
	signal(SIGINT, end_tests);
	tests_pid = fork();
	if (tests_pid == 0) {
		signal(SIGTERM, SIG_DFL);
		signal(SIGINT, SIG_DFL);
		return run_tests();
	}
	int status = 0;
	while (waitpid(tests_pid, &status, 0) < 0 && errno == EINTR)
		;
	teardown();
	return status ? 1 : 0;
}
