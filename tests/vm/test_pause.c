/* A real VM that is paused and goes on: what runs in it, its clock, who may connect when, and what dies at which
 * moment. Needs QEMU and (made if missing) a base image; takes about a minute. time limit: 900 s */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/keeper.h"
#include "tests/unit/check.h"
#include "vm.h"

static void in_state(int64_t id, enum sandbox_state want)
{
	CHECK_INT(sandbox_state(&here.paths, "vm", id), want);
}

static void must_pause(int64_t id)
{
	struct err err = ERR_INIT;
	int rc = put_to_rest(sandbox_pause, id, &err);
	CHECK_INT(rc, 0);
	if (rc)
		printf("# %s\n", err.text);
	in_state(id, SANDBOX_PAUSED);
}

static struct env *open_env(int64_t id)
{
	struct env *env = NULL;
	struct err err = ERR_INIT;
	int rc = env_open(&here.paths, "vm", id, NULL, &env, &err);
	CHECK_INT(rc, 0);
	if (rc)
		printf("# %s\n", err.text);
	return env;
}

/* Ticks of processor time that a process has used. */
static long long ticks(int pid)
{
	CLEAN_FREE char *path = xasprintf("/proc/%d/stat", pid);
	CLEAN_BUF struct buf b = BUF_INIT;
	unsigned long long user = 0, system = 0;
	if (file_read(path, &b, 4096, NULL))
		return -1;
	const char *p = strrchr(buf_str(&b), ')');
	return p && sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) == 2
		       ? (long long)(user + system)
		       : -1;
}

/* How far the guest's clock is from ours, in ms. */
static long long clock_off(struct env *env)
{
	const char *argv[] = {"/bin/date", "+%s%3N", NULL};
	static int n;
	char job[32];
	CLEAN_BUF struct buf out = BUF_INIT;
	snprintf(job, sizeof job, "date%d", n++);
	struct env_exec exec = {.job = job, .argv = argv, .timeout_ms = 60000};
	int64_t before = clock_real_ms();
	if (env_run(env, &exec, NULL, 100, &out, NULL))
		return INT64_MAX;
	long long then = atoll(buf_str(&out));
	int64_t after = clock_real_ms();
	return then < before ? before - then : then > after ? then - after : 0;
}

TEST(what_runs_goes_on)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	int qemu = 0, keeper = 0;
	char words[64];
	must_up(1);
	CHECK_INT(shell(1, "setsid sleep 1000 >/dev/null 2>&1 & echo $! > pid; sleep 0.2; cat pid", &out), 0);
	CLEAN_FREE char *pid = xstrdup(buf_str(&out));
	struct env *env = open_env(1);
	struct env_exec exec = {.job = "flight",
				.argv = (const char *const[]){"/bin/sh", "-c", "sleep 2; echo over", NULL}};
	CHECK_INT(env ? env_start(env, &exec, &err) : -1, 0);
	env_close(env);
	CHECK(count(true, 1, &qemu) == 1 && count(false, 1, &keeper) == 1);
	must_pause(1);
	must_pause(1); /* again: nothing to do */
	sandbox_describe(&here.paths, "vm", 1, SANDBOX_PAUSED, words);
	CHECK_STR(words, "vm paused");
	long long used, keeper_used;
	int64_t end = clock_mono_ms() + 60000;
	do { /* the end of what they had to do for the pause */
		used = ticks(qemu);
		keeper_used = ticks(keeper);
		clock_sleep_ms(200);
	} while ((ticks(qemu) != used || ticks(keeper) != keeper_used) && clock_mono_ms() < end);
	clock_sleep_ms(3500); /* longer than the job, and than a clock may be off */
	CHECK_INT(ticks(qemu), used);
	CHECK_INT(ticks(keeper), keeper_used);
	int64_t start = clock_mono_ms();
	env = open_env(1);
	printf("# awake in %lld ms\n", (long long)(clock_mono_ms() - start));
	if (!env)
		return;
	in_state(1, SANDBOX_RUNNING);
	CHECK(clock_off(env) < 1000);
	struct env_job job = {0};
	CHECK_INT(env_poll(env, "flight", UINT64_MAX, 0, &job, &err), 0);
	CHECK(job.state == ENV_JOB_RUNNING || job.state == ENV_JOB_EXITED);
	CHECK_INT(env_wait(env, "flight", 0, NULL, &job, &err), 0);
	CHECK_INT(job.state, ENV_JOB_EXITED);
	CHECK_INT(job.exit_code, 0);
	env_close(env);
	CLEAN_FREE char *line = xasprintf("cat /proc/%d/cmdline | tr '\\0' ' '", atoi(pid));
	CHECK_INT(shell(1, line, &out), 0);
	CHECK_STR(buf_str(&out), "sleep 1000 ");
}

/* The clock is right whoever let it go on, also when no tool asks for anything. */
TEST(resume_sets_the_clock)
{
	struct err err = ERR_INIT;
	for (int i = 0; i < 2; i++) {
		must_pause(1);
		clock_sleep_ms(1500);
		CHECK_INT(sandbox_resume(&here.paths, "vm", 1, &err), 0);
		in_state(1, SANDBOX_RUNNING);
		struct env *env = open_env(1);
		CHECK(env && clock_off(env) < 1000);
		env_close(env);
	}
	CHECK_INT(sandbox_resume(&here.paths, "vm", 1, &err), 0); /* it runs: nothing to do */
}

TEST(refused_while_somebody_is_there)
{
	struct err err = ERR_INIT;
	struct env *env = open_env(1);
	CHECK_INT(sandbox_pause(&here.paths, "vm", 1, &err), -EBUSY);
	CHECK(strstr(err.text, "somebody is connected") != NULL);
	in_state(1, SANDBOX_RUNNING);
	env_close(env);
	must_pause(1); /* the connection that was just closed does not count */
}

struct racer {
	pthread_t thread;
	int bad, got;
};

static void *connect_often(void *arg)
{
	struct racer *r = arg;
	for (int i = 0; i < 40; i++) {
		struct env *env = NULL;
		struct env_stat st;
		struct err err = ERR_INIT;
		int rc = env_open(&here.paths, "vm", 1, NULL, &env, &err);
		rc = rc ? rc : env_stat(env, "/etc/passwd", &st, &err);
		if (rc)
			printf("# %s\n", err.text);
		else
			free(st.real);
		r->bad += rc != 0;
		env_close(env);
	}
	return NULL;
}

/* Whoever comes while it is being paused finds it running, and is never cut off. */
TEST(pause_against_callers)
{
	struct racer r[2] = {{.bad = 0}, {.bad = 0}};
	int paused = 0, refused = 0;
	for (int i = 0; i < 2; i++)
		CHECK_INT(pthread_create(&r[i].thread, NULL, connect_often, &r[i]), 0);
	for (int64_t end = clock_mono_ms() + 2000; clock_mono_ms() < end || !(paused + refused);) {
		CLEAN_FREE char *path = xasprintf("%s/1.sock", here.paths.runtime);
		CLEAN_BUF struct buf out = BUF_INIT;
		CLEAN_FD int fd = unix_connect(path, NULL);
		if (fd < 0 || fd_write_full(fd, "pause\n", 6) || fd_read_all(fd, &out, 1000))
			continue;
		paused += !strcmp(buf_str(&out), "ok\n");
		refused += !strncmp(buf_str(&out), "error " KEEPER_BUSY, strlen("error " KEEPER_BUSY));
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(r[i].thread, NULL);
		CHECK_INT(r[i].bad, 0);
	}
	printf("# paused %d times, refused %d times\n", paused, refused);
}

TEST(down_and_up_of_a_paused_one)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	must_pause(1);
	must_up(1);
	in_state(1, SANDBOX_RUNNING);
	CHECK_INT(shell(1, "echo kept > kept", &out), 0);
	must_pause(1);
	CLEAN_FREE char *ended = xasprintf("%s/sandboxes/1/ended", here.paths.state);
	CHECK_INT(sandbox_down(&here.paths, "vm", 1, &err), 0);
	buf_reset(&out);
	CHECK_INT(file_read(ended, &out, 4096, NULL), 0);
	CHECK(strstr(buf_str(&out), "powered off at ") == buf_str(&out)); /* it ended by itself */
	in_state(1, SANDBOX_DOWN);
	CHECK_INT(sandbox_pause(&here.paths, "vm", 1, &err), -ENOTCONN);
	CHECK_INT(sandbox_resume(&here.paths, "vm", 1, &err), -ENOTCONN);
	must_up(1);
	CHECK_INT(shell(1, "cat kept", &out), 0);
	CHECK_STR(buf_str(&out), "kept\n");
}

static void *pause_it(void *arg)
{
	sandbox_pause(&here.paths, "vm", 1, NULL);
	return NULL;
}

static void *wake_it(void *arg)
{
	sandbox_resume(&here.paths, "vm", 1, NULL);
	return NULL;
}

/* Whatever dies, at whatever moment: the next start finds the disk and nothing in its way. */
TEST(killed_on_the_way)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	for (int i = 0; i < 6; i++) {
		bool qemu = i & 1, paused = i >= 2;
		void *(*meanwhile)(void *) = i < 2 ? pause_it : i < 4 ? NULL : wake_it;
		pthread_t thread;
		int pid = 0;
		must_up(1);
		CHECK_INT(shell(1, "echo synced > synced; sync", &out), 0);
		if (paused)
			must_pause(1);
		CHECK_INT(count(qemu, 1, &pid), 1);
		if (meanwhile)
			CHECK_INT(pthread_create(&thread, NULL, meanwhile, NULL), 0);
		CHECK_INT(kill(pid, SIGKILL), 0);
		if (meanwhile)
			pthread_join(thread, NULL);
		CHECK(gone(1));
		in_state(1, SANDBOX_DOWN);
	}
	must_up(1);
	CHECK_INT(shell(1, "cat synced", &out), 0);
	CHECK_STR(buf_str(&out), "synced\n");
}

/* A QEMU that does not obey: the caller is told, and nobody waits for ever. */
TEST(stuck_qemu)
{
	struct err err = ERR_INIT;
	int qemu = 0;
	CHECK_INT(count(true, 1, &qemu), 1);
	CHECK_INT(kill(qemu, SIGSTOP), 0);
	/* busy: it may not have come to closing the last connection's other end */
	int rc = sandbox_pause(&here.paths, "vm", 1, &err);
	CHECK(rc == -ETIMEDOUT || rc == -EBUSY);
	CHECK_INT(kill(qemu, SIGCONT), 0);
	struct env *env = open_env(1); /* whatever became of the pause */
	CHECK(env && clock_off(env) < 1000);
	env_close(env);
	CHECK_INT(sandbox_destroy(&here.paths, "vm", 1, &err), 0);
	CHECK_INT(count(true, 0, NULL) + count(false, 0, NULL), 0);
}

CHECK_RUN(run_tests)
VM_MAIN(run_tests)
