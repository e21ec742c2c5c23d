/* Hibernation of real VMs: what ran goes on, what must be new is new, and whatever is cut off in the middle ends up
 * running or down. time limit: 600 s */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/keeper.h"
#include "tests/unit/check.h"
#include "vm.h"

#define BOOT_MS 120000

static bool must_hibernate(int64_t id)
{
	struct err err = ERR_INIT;
	int rc = put_to_rest(sandbox_hibernate, id, &err);
	CHECK_INT(rc, 0);
	if (rc)
		printf("# %s\n", err.text);
	return !rc;
}

static char *file_of(int64_t id, const char *name)
{
	return xasprintf("%s/sandboxes/%lld/%s", here.paths.state, (long long)id, name);
}

static void on_line(void *arg, const char *line)
{
	buf_addf(&here.progress, "%s\n", line);
}

static enum sandbox_state state(int64_t id)
{
	return sandbox_state(&here.paths, "vm", id);
}

/* Starts a process of its own session that counts, and gives its pid. */
static void start_counter(int64_t id, struct buf *pid)
{
	CHECK_INT(shell(id,
			"setsid sh -c 'echo $$ >pid; n=0; while :; do n=$((n+1)); echo $n >count; sleep 0.1; done' "
			">/dev/null 2>&1 </dev/null & while [ ! -s count ]; do sleep 0.05; done; cat pid",
			pid),
		  0);
}

static bool counts(int64_t id, const char *pid)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *line = xasprintf("kill -0 %d && a=$(cat count) && for i in $(seq 600); do b=$(cat count); "
					  "[ \"$a\" != \"$b\" ] && echo yes && break; sleep 0.1; done",
					  atoi(pid));
	return !shell(id, line, &out) && !strcmp(buf_str(&out), "yes\n");
}

static int64_t clock_off_ms(int64_t id)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	int64_t before = clock_real_ms();
	if (shell(id, "date +%s%3N", &out))
		return INT64_MAX;
	int64_t guest = atoll(buf_str(&out)), after = clock_real_ms();
	return guest < before ? before - guest : guest > after ? guest - after : 0;
}

TEST(what_ran_goes_on)
{
	CLEAN_BUF struct buf pid = BUF_INIT;
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *memory = file_of(1, KEEPER_MEMORY);
	char words[64];
	must_up(1);
	if (check_failed)
		return;
	start_counter(1, &pid);
	CHECK_INT(shell(1, "echo kept >file; echo $$ >/dev/shm/x", &out), 0);
	for (int round = 0; round < 2; round++) {
		int64_t begin = clock_mono_ms();
		if (!must_hibernate(1))
			return;
		int64_t saved = clock_mono_ms();
		struct stat st = {0};
		stat(memory, &st);
		CHECK_INT(state(1), SANDBOX_HIBERNATED);
		CHECK_INT(count(true, 1, NULL) + count(false, 1, NULL), 0);
		CHECK_INT(sandbox_hibernate(&here.paths, "vm", 1, NULL), 0);
		int64_t wake = clock_mono_ms();
		must_up(1);
		CHECK_INT(shell(1, "cat file", &out), 0);
		printf("# hibernated in %lld ms, %lld MiB; back in %lld ms\n", (long long)(saved - begin),
		       (long long)st.st_size >> 20, (long long)(clock_mono_ms() - wake));
		CHECK_STR(buf_str(&out), "kept\n");
		CHECK_INT(state(1), SANDBOX_RUNNING);
		CHECK(!file_exists(memory));
		CHECK(counts(1, buf_str(&pid)));
		CHECK(clock_off_ms(1) <= 1000);
	}
	sandbox_describe(&here.paths, "vm", 1, SANDBOX_HIBERNATED, words);
	CHECK_STR(words, "vm hibernated");
}

/* A job that goes on over it is collected afterwards, by another connection. */
TEST(a_job_in_flight_is_collected)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	struct env *env = NULL;
	struct err err = ERR_INIT;
	struct env_job job = {0};
	struct env_exec exec = {.job = "long",
				.argv = (const char *const[]){"/bin/sh", "-c", "cat go; echo end; exit 7", NULL}};
	must_up(1);
	if (check_failed || env_open(&here.paths, "vm", 1, NULL, &env, &err))
		return;
	CHECK_INT(shell(1, "rm -f go; mkfifo go", &out), 0);
	CHECK_INT(env_start(env, &exec, &err), 0);
	CHECK_INT(env_set_environ(env, (const char *const[]){"KEPT=yes", NULL}, &err), 0);
	CHECK_INT(sandbox_hibernate(&here.paths, "vm", 1, &err), -EBUSY);
	CHECK_INT(env_poll(env, "long", UINT64_MAX, 0, &job, &err), 0);
	CHECK_INT(job.state, ENV_JOB_RUNNING);
	env_close(env);
	CHECK_INT(put_to_rest(sandbox_pause, 1, &err), 0); /* from there, too */
	must_hibernate(1);
	must_up(1);
	CHECK_INT(shell(1, "echo $KEPT >go", &out), 0);
	if (env_open(&here.paths, "vm", 1, NULL, &env, &err))
		return;
	CHECK_INT(env_wait(env, "long", 0, NULL, &job, &err), 0);
	CHECK_INT(job.state, ENV_JOB_EXITED);
	CHECK_INT(job.exit_code, 7);
	CHECK_INT(env_output(env, "long", 0, 100, &out, &err), 0);
	CHECK(buf_ends(&out, "yes\nend\n"));
	CHECK_INT(env_ack(env, "long", false, NULL, &err), 0);
	env_close(env);
}

/* A file that cannot be used: the VM boots, and progress says why. */
static void boots_instead(const char *why)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *memory = file_of(1, KEEPER_MEMORY);
	must_up(1);
	CHECK(strstr(buf_str(&here.progress), "the VM boots, what ran in it is lost") != NULL);
	CHECK(strstr(buf_str(&here.progress), why) != NULL);
	if (check_failed)
		printf("# %s", buf_str(&here.progress));
	CHECK_INT(shell(1, "cat written; ls /dev/shm", &out), 0);
	CHECK_STR(buf_str(&out), "unsynced\n"); /* the disk has all, the memory is another */
	CHECK(!file_exists(memory));
}

static void hibernate_with_a_mark(void)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	must_up(1);
	CHECK_INT(shell(1, "echo unsynced >written; touch /dev/shm/mark", &out), 0);
	must_hibernate(1);
}

static void change(const char *path, off_t at, const char *with, size_t n)
{
	CLEAN_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0 && pwrite(fd, with, n, at) == (ssize_t)n);
}

TEST(damage_boots_cold)
{
	CLEAN_FREE char *memory = file_of(1, KEEPER_MEMORY);
	hibernate_with_a_mark();
	change(memory, 1 << 20, "damage", 6);
	boots_instead("is damaged");
	hibernate_with_a_mark();
	CHECK_INT(truncate(memory, 100), 0);
	boots_instead("is damaged");
}

/* Its head says another thing than is so here. */
TEST(mismatch_boots_cold)
{
	CLEAN_FREE char *memory = file_of(1, KEEPER_MEMORY);
	struct sandbox_spec other = {.paths = &here.paths,
				     .kind = "vm",
				     .id = 1,
				     .name = "test_box",
				     .size = "small",
				     .boot_timeout_ms = BOOT_MS,
				     .progress = on_line};
	struct err err = ERR_INIT;
	hibernate_with_a_mark();
	buf_reset(&here.progress);
	CHECK_INT(sandbox_up(&other, &err), 0);
	CHECK(strstr(buf_str(&here.progress), "the memory is another than when it was saved") != NULL);
	CHECK(!file_exists(memory));
}

TEST(down_drops_the_memory)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	CHECK_INT(sandbox_down(&here.paths, "vm", 1, &err), 0);
	hibernate_with_a_mark();
	CHECK_INT(sandbox_down(&here.paths, "vm", 1, &err), 0);
	CHECK_INT(state(1), SANDBOX_DOWN);
	CHECK_INT(sandbox_hibernate(&here.paths, "vm", 1, &err), -ENOTCONN);
	must_up(1);
	CHECK_INT(shell(1, "cat written; ls /dev/shm", &out), 0);
	CHECK_STR(buf_str(&out), "unsynced\n");
}

/* Kills: of the keeper or of QEMU, at any moment of saving and of waking. */
struct killer {
	bool qemu;
	int ms;
};

static void *kill_one(void *arg)
{
	struct killer *k = arg;
	int pid = 0;
	clock_sleep_ms(k->ms);
	if (count(k->qemu, 1, &pid))
		kill(pid, SIGKILL);
	return NULL;
}

static void *do_hibernate(void *arg)
{
	struct err err = ERR_INIT;
	sandbox_hibernate(&here.paths, "vm", (int64_t)(intptr_t)arg, &err);
	return NULL;
}

TEST(killed_at_any_moment)
{
	static const int moments[] = {0, 15, 40, 80, 150, 300};
	CLEAN_BUF struct buf out = BUF_INIT;
	for (size_t i = 0; i < ARRAY_LEN(moments); i++) {
		struct killer k = {i % 2, moments[i]};
		pthread_t killer, hibernator;
		must_up(1);
		CHECK_INT(shell(1, "echo unsynced >written", &out), 0);
		pthread_create(&hibernator, NULL, do_hibernate, (void *)1);
		pthread_create(&killer, NULL, kill_one, &k);
		pthread_join(hibernator, NULL);
		pthread_join(killer, NULL);
		enum sandbox_state s = state(1);
		CHECK(s == SANDBOX_DOWN || s == SANDBOX_HIBERNATED || s == SANDBOX_RUNNING);
		/* and while it comes back, whatever it comes back from */
		struct err err = ERR_INIT;
		k.qemu = !k.qemu;
		pthread_create(&killer, NULL, kill_one, &k);
		int rc = up(1, BOOT_MS, &err);
		pthread_join(killer, NULL);
		printf("# after %d ms: state %d, then %s\n", k.ms, s, rc ? err.text : "up");
		CHECK(!rc || err.text[0]);
	}
	must_up(1);
	CHECK_INT(shell(1, "sudo touch /x && echo fine", &out), 0);
	CHECK_STR(buf_str(&out), "fine\n");
}

/* Its folder is taken away while it is on its way to disk: nothing of it goes on, and no half of it comes back. */
TEST(its_folder_is_removed_meanwhile)
{
	static const int moments[] = {0, 60, 200};
	CLEAN_FREE char *folder = xasprintf("%s/sandboxes/2", here.paths.state);
	for (size_t i = 0; i < ARRAY_LEN(moments); i++) {
		pthread_t hibernator;
		must_up(2);
		pthread_create(&hibernator, NULL, do_hibernate, (void *)2);
		clock_sleep_ms(moments[i]);
		/* its keeper may put a file there in the same moment */
		for (int64_t end = clock_mono_ms() + BOOT_MS; dir_remove(folder, NULL) && clock_mono_ms() < end;)
			clock_sleep_ms(1);
		pthread_join(hibernator, NULL);
		CHECK(gone(2));
		CHECK_INT(sandbox_destroy(&here.paths, "vm", 2, NULL), 0);
		CHECK(!file_exists(folder));
	}
}

CHECK_RUN(run_tests)
VM_MAIN(run_tests)
