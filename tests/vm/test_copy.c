/* Copies of a real VM's disk: while somebody works in it, as a snapshot, back from it, and for a second VM, which is a
 * machine of its own. Needs QEMU and (made if missing) a base image. time limit: 900 s */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/keeper.h"
#include "tests/unit/check.h"
#include "vm.h"

static int copy(int64_t from, const char *from_save, int64_t to, const char *to_save, struct err *err)
{
	struct sandbox_copy c = {
		.paths = &here.paths, .kind = "vm", .from = from, .from_save = from_save, .to = to, .to_save = to_save};
	int64_t begin = clock_mono_ms();
	int rc = sandbox_copy(&c, err);
	printf("# the copy took %lld ms%s%s\n", (long long)(clock_mono_ms() - begin), rc ? ": " : "",
	       rc ? err->text : "");
	return rc;
}

static void must_copy(int64_t from, const char *from_save, int64_t to, const char *to_save)
{
	struct err err = ERR_INIT;
	CHECK_INT(copy(from, from_save, to, to_save, &err), 0);
}

static void has(int64_t id, const char *line, const char *want)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CHECK_INT(shell(id, line, &out), 0);
	CHECK_STR(buf_str(&out), want);
}

TEST(a_second_vm_begins_as_the_first)
{
	CLEAN_BUF struct buf first = BUF_INIT, second = BUF_INIT, pid = BUF_INIT;
	must_up(1);
	CHECK_INT(shell(1,
			"echo mine >file; sync; setsid sh -c 'while :; do date >>ticks; sleep 0.05; done' "
			">/dev/null 2>&1 & echo $!; cat /etc/machine-id >id",
			&pid),
		  0);
	struct env *env = NULL;
	CHECK_INT(env_open(&here.paths, "vm", 1, NULL, &env, NULL), 0);
	must_copy(1, NULL, 2, NULL); /* although somebody is connected, and something runs */
	struct env_job job;
	CHECK_INT(env_poll(env, "no-such-job", 0, 0, &job, NULL), 0); /* and that connection goes on */
	env_close(env);
	must_up(2);
	has(2, "cat file", "mine\n");
	has(1,
	    "a=$(wc -l <ticks); for i in $(seq 600); do sleep 0.1; test $(wc -l <ticks) -gt $a && break; done; "
	    "test $(wc -l <ticks) -gt $a && echo goes on",
	    "goes on\n");
	CHECK_INT(shell(1, "cat /etc/machine-id", &first), 0);
	CHECK_INT(shell(2, "cat /etc/machine-id", &second), 0);
	CHECK(first.n >= 33 && second.n >= 33 && strcmp(buf_str(&first), buf_str(&second)));
	CHECK_INT(shell(2, "echo theirs >file; sync", &pid), 0);
	has(1, "cat file", "mine\n");
	/* it stays that machine */
	CHECK_INT(sandbox_down(&here.paths, "vm", 2, NULL), 0);
	must_up(2);
	CHECK_INT(shell(2, "cat /etc/machine-id", &first), 0);
	CHECK_STR(buf_str(&first), buf_str(&second));
	CHECK_INT(sandbox_destroy(&here.paths, "vm", 2, NULL), 0);
}

TEST(a_snapshot_and_back)
{
	CLEAN_BUF struct buf out = BUF_INIT, id = BUF_INIT;
	must_up(1);
	CHECK_INT(shell(1, "echo one >state; sync; cat /etc/machine-id", &id), 0);
	must_copy(1, NULL, 1, "1");
	CHECK_INT(shell(1, "echo two >state; echo more >more; sync", &out), 0);
	CHECK_INT(sandbox_down(&here.paths, "vm", 1, NULL), 0);
	must_copy(1, NULL, 1, "2"); /* of one that is down, too */
	must_copy(1, "1", 1, NULL);
	must_up(1);
	CHECK_INT(shell(1, "cat state; ls more 2>/dev/null; cat /etc/machine-id", &out), 0);
	CLEAN_FREE char *want = xasprintf("one\n%s", buf_str(&id));
	CHECK_STR(buf_str(&out), want);
	CHECK_INT(sandbox_down(&here.paths, "vm", 1, NULL), 0);
	must_copy(1, "2", 1, NULL);
	must_up(1);
	has(1, "cat state more", "two\nmore\n");
}

TEST(what_is_not_there_cannot_be_copied)
{
	struct err err = ERR_INIT;
	CHECK_INT(copy(1, "9", 1, NULL, &err), -ENOENT);
	CHECK_INT(copy(77, NULL, 3, NULL, &err), -ENOENT);
}

TEST(a_full_disk_is_said_and_leaves_nothing)
{
	struct err err = ERR_INIT;
	CLEAN_FREE char *saves = xasprintf("%s/sandboxes/8/saves", here.paths.state);
	CLEAN_FREE char *part = xasprintf("%s/full.qcow2.copy", saves), *whole = xasprintf("%s/full.qcow2", saves);
	if (geteuid() != 0) {
		printf("# skipped: only root can mount a small file system\n");
		return;
	}
	must_up(8);
	CHECK_INT(dir_make(saves, 0700, &err), 0);
	CHECK_INT(mount("small", saves, "tmpfs", 0, "size=64k"), 0);
	CHECK_INT(copy(8, NULL, 8, "full", &err), -ENOSPC);
	CHECK(!file_exists(part) && !file_exists(whole));
	has(8, "echo goes on", "goes on\n");
	CHECK_INT(umount2(saves, MNT_DETACH), 0);
	must_copy(8, NULL, 8, "full");
	CHECK_INT(sandbox_destroy(&here.paths, "vm", 8, &err), 0);
}

/* ---- a paused one; waiting for the end of a copy; death of whoever copies ---- */

TEST(a_paused_vm_stays_paused)
{
	must_up(1);
	struct err err = ERR_INIT;
	CHECK_INT(put_to_rest(sandbox_pause, 1, &err), 0);
	must_copy(1, NULL, 1, "3");
	CHECK_INT(sandbox_state(&here.paths, "vm", 1), SANDBOX_PAUSED);
	has(1, "echo awake", "awake\n");
}

static void *shell_thread(void *arg)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	*(int *)arg = shell(1, "true", &out);
	return NULL;
}

/* A keeper is asked by hand, so that the moment is known: who comes meanwhile waits, and the guest goes on when the
 * one that held it has gone, however it went. */
TEST(who_comes_during_a_copy_waits)
{
	must_up(1);
	CLEAN_FREE char *path = sandbox_life(&here.paths, 1);
	int fd = unix_connect(path, NULL), rc = -1; /* rc: of the thread */
	char answer[3];
	CHECK(fd >= 0);
	CHECK_INT(fd_write_full(fd, "hold\n", 5), 0);
	CHECK_INT(fd_read_full(fd, answer, 3), 0);
	CHECK(!memcmp(answer, "ok\n", 3));
	CHECK_INT(sandbox_state(&here.paths, "vm", 1), SANDBOX_PAUSED);
	struct err err = ERR_INIT;
	CHECK_INT(sandbox_hibernate(&here.paths, "vm", 1, &err), -EBUSY);
	pthread_t t;
	pthread_create(&t, NULL, shell_thread, &rc);
	int64_t end = clock_mono_ms() + 300; /* long enough for it to be answered if anybody did */
	while (clock_mono_ms() < end)
		clock_sleep_ms(20);
	CHECK_INT(rc, -1);
	fd_close(&fd);
	pthread_join(t, NULL);
	CHECK_INT(rc, 0);
}

CHECK_RUN(run_tests)
VM_MAIN(run_tests)
