/* Real VMs: booting, what is in them, and what happens when something dies. Needs QEMU and (made if missing) a base
 * image; takes about a minute and a half. time limit: 900 s */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/image.h"
#include "sandbox/keeper.h"
#include "tests/unit/check.h"
#include "vm.h"

#define BOOT_MS 300000 /* on a machine that does much else */

static void in_state(int64_t id, enum sandbox_state want)
{
	CHECK_INT(sandbox_state(&here.paths, "vm", id), want);
}

/* An answer of the keeper to a line, whole. */
static void ask(int64_t id, const char *line, struct buf *out)
{
	CLEAN_FREE char *path = xasprintf("%s/%lld.sock", here.paths.runtime, (long long)id);
	CLEAN_FD int fd = unix_connect(path, NULL);
	buf_reset(out);
	if (fd >= 0 && !fd_write_full(fd, line, strlen(line)))
		fd_read_all(fd, out, 1 << 20);
}

static void read_note(int64_t id, const char *name, struct buf *out)
{
	CLEAN_FREE char *path = xasprintf("%s/sandboxes/%lld/%s", here.paths.state, (long long)id, name);
	buf_reset(out);
	file_read(path, out, 1 << 20, NULL);
}

TEST(boots_and_is_what_it_should_be)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	char words[64];
	in_state(1, SANDBOX_NONE);
	int64_t start = clock_mono_ms();
	must_up(1);
	printf("# up in %lld ms\n", (long long)(clock_mono_ms() - start));
	in_state(1, SANDBOX_RUNNING);
	sandbox_describe(&here.paths, "vm", 1, SANDBOX_RUNNING, words);
	CHECK_STR(words, "vm running tcg");
	CHECK_INT(shell(1,
			"id -un; pwd; hostname; ls /sys/class/net; sudo -n id -u; ls -ld /home/agent | cut -d' ' -f3",
			&out),
		  0);
	CHECK_STR(buf_str(&out), "agent\n/home/agent\ntest-box\nlo\n0\nagent\n");
	CHECK_INT(shell(1, "git --version && python3 -V && curl --version && git config --system init.defaultBranch",
			&out),
		  0);
	CHECK(buf_ends(&out, "main\n"));
	/* what projects are set up with; no ssh server runs, and no image carries a host key */
	CHECK_INT(shell(1,
			"node --version && npm --version && make --version && python3 -m venv --without-pip /tmp/venv",
			&out),
		  0);
	CHECK_INT(shell(1, "echo 'int main(void) { return 7; }' >/tmp/a.c && gcc -o /tmp/a /tmp/a.c && /tmp/a", &out),
		  7);
	CHECK_INT(shell(1,
			"command -v dropbear dropbearkey && ! pgrep dropbear && ! ls /etc/dropbear/*key* 2>/dev/null",
			&out),
		  0);
	CHECK_INT(shell(1, "env; sudo cat /proc/1/environ /proc/cmdline | tr '\\0' '\\n'", &out), 0);
	CHECK(strstr(buf_str(&out), "sk-secret") == NULL);
	CHECK_INT(shell(1, "tail -n +2 /proc/net/route; curl -sS -m 5 http://192.0.2.1/ 2>&1", &out), 7);
	CHECK(strstr(buf_str(&out), "curl: (7)") == buf_str(&out));
	CHECK_INT(shell(1, "df --output=size -BG / | tail -1; touch /etc/x", &out), 1);
	ask(1, "status\n", &out);
	CHECK_STR(buf_str(&out), "ok\nrunning tcg ssh 0\n");
	ask(1, "console\n", &out);
	/* one that began as a copy has not booted, and its console has nothing of it */
	CHECK(strstr(buf_str(&out), "berthfs-guest: ready") ||
	      strstr(buf_str(&here.progress), "a copy of one that has booted"));
	ask(1, "no such thing\n", &out);
	CHECK_STR(buf_str(&out), "error unknown request\n");
}

/* The clock and the processes around the VM. */
TEST(host_side_is_clean)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	int keeper = 0, qemu = 0;
	CHECK_INT(count(false, 1, &keeper), 1);
	CHECK_INT(count(true, 1, &qemu), 1);
	int pids[] = {keeper, qemu};
	for (int i = 0; i < 2; i++) {
		CLEAN_FREE char *path = xasprintf("/proc/%d/environ", pids[i]);
		buf_reset(&out);
		CHECK_INT(file_read(path, &out, 1 << 20, NULL), 0);
		CHECK(out.n > 0 && memmem(out.p, out.n, "sk-secret", 9) == NULL);
		CLEAN_FREE char *fds = xasprintf("ls -l /proc/%d/fd", pids[i]);
		buf_reset(&out);
		const char *argv[] = {"sh", "-c", fds, NULL};
		child_run(&(struct child){.argv = argv, .out = &out, .timeout_ms = 60000}, NULL);
		CHECK(strstr(buf_str(&out), "/dev/kvm") == NULL && strstr(buf_str(&out), "/dev/fuse") == NULL);
	}
	int64_t before = clock_real_ms() / 1000;
	CHECK_INT(shell(1, "date +%s", &out), 0);
	CHECK(atoll(buf_str(&out)) >= before - 2 && atoll(buf_str(&out)) <= clock_real_ms() / 1000 + 2);
	/* the image cannot go while a disk is made from it */
	struct image im = {0};
	struct err err = ERR_INIT;
	CHECK_INT(image_current(&here.paths, &im, &err), 0);
	CHECK(image_users(im.dir) >= 1);
	CHECK_INT(image_remove(&here.paths, im.name, &err), -EBUSY);
	CHECK(strstr(err.text, "destroy") != NULL);
	image_release(&im);
}

TEST(up_takes_over)
{
	CLEAN_BUF struct buf before = BUF_INIT;
	CLEAN_BUF struct buf after = BUF_INIT;
	CHECK_INT(shell(1, "cat /proc/sys/kernel/random/boot_id", &before), 0);
	must_up(1);
	CHECK_INT(shell(1, "cat /proc/sys/kernel/random/boot_id", &after), 0);
	CHECK_STR(buf_str(&after), buf_str(&before));
	CHECK_INT(count(true, 1, NULL), 1);
}

/* A login's runtime folder goes at its end, and another login may have another: the VM stays reachable. */
TEST(socket_is_lost_or_moves)
{
	CLEAN_BUF struct buf before = BUF_INIT;
	CLEAN_BUF struct buf after = BUF_INIT;
	CLEAN_FREE char *socket = xasprintf("%s/1.sock", here.paths.runtime);
	CLEAN_FREE char *other = xasprintf("%s/elsewhere", here.root);
	CHECK_INT(shell(1, "cat /proc/sys/kernel/random/boot_id", &before), 0);
	CHECK_INT(unlink(socket), 0);
	in_state(1, SANDBOX_RUNNING);
	CHECK_INT(shell(1, "cat /proc/sys/kernel/random/boot_id", &after), 0);
	CHECK_STR(buf_str(&after), buf_str(&before));
	char *runtime = here.paths.runtime;
	here.paths.runtime = other;
	CHECK_INT(dir_make(other, 0700, NULL), 0);
	must_up(1);
	CHECK_INT(shell(1, "cat /proc/sys/kernel/random/boot_id", &after), 0);
	CHECK_STR(buf_str(&after), buf_str(&before));
	CHECK(!file_exists(socket));
	here.paths.runtime = runtime;
	must_up(1);
	CHECK_INT(count(true, 1, NULL), 1);
}

/* Two streams at once, one of them with much data, both ways. */
TEST(streams_share_the_port)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	struct env *env = NULL;
	struct err err = ERR_INIT;
	size_t n = 8 << 20;
	CLEAN_FREE char *data = xmalloc(n);
	for (size_t i = 0; i < n; i++)
		data[i] = (char)(i * 31 + (i >> 12));
	CHECK_INT(env_open(&here.paths, "vm", 1, NULL, &env, &err), 0);
	if (!env)
		return;
	CHECK_INT(env_write(env, "big", data, n, 0, &err), 0);
	CHECK_INT(shell(1, "sha256sum < big | cut -c1-8; stat -c %s big", &out), 0);
	CHECK(strstr(buf_str(&out), "\n8388608\n") != NULL);
	buf_reset(&out);
	while (out.n < n && !env_read(env, "big", out.n, 1 << 20, &out, &err) && out.n)
		;
	CHECK_INT(out.n, n);
	CHECK(out.n == n && !memcmp(out.p, data, n));
	env_close(env);
}

static int fsck(int64_t id)
{
	CLEAN_FREE char *disk = xasprintf("%s/sandboxes/%lld/disk.qcow2", here.paths.state, (long long)id);
	CLEAN_FREE char *raw = xasprintf("%s/raw", here.root);
	CLEAN_BUF struct buf out = BUF_INIT;
	const char *convert[] = {"qemu-img", "convert", "-O", "raw", disk, raw, NULL};
	const char *check[] = {"/sbin/e2fsck", "-fn", raw, NULL};
	int rc = child_run(&(struct child){.argv = convert, .timeout_ms = 300000}, NULL);
	if (!rc)
		rc = child_run(&(struct child){.argv = check, .out = &out, .errout = &out, .timeout_ms = 300000}, NULL);
	if (rc || strstr(buf_str(&out), "recover"))
		printf("# %s\n", buf_str(&out));
	unlink(raw);
	return rc ? rc : strstr(buf_str(&out), "recover") != NULL;
}

TEST(down_and_up_keep_the_disk)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	/* one that ignores SIGTERM, with a file open for writing */
	CHECK_INT(shell(1,
			"echo kept > kept; setsid bash -c 'trap \"\" TERM; exec 3>busy; while :; do sleep 1; done' "
			">/dev/null 2>&1 & sleep 0.2",
			&out),
		  0);
	int64_t start = clock_mono_ms();
	CHECK_INT(sandbox_down(&here.paths, "vm", 1, &err), 0);
	printf("# down in %lld ms\n", (long long)(clock_mono_ms() - start));
	in_state(1, SANDBOX_DOWN);
	CHECK_INT(count(true, 1, NULL), 0);
	read_note(1, "ended", &out);
	CHECK(strstr(buf_str(&out), "powered off at ") == buf_str(&out));
	CHECK_INT(fsck(1), 0);
	CHECK_INT(sandbox_down(&here.paths, "vm", 1, &err), 0); /* again: nothing to do */
	struct env *env = NULL;
	CHECK_INT(env_open(&here.paths, "vm", 1, NULL, &env, &err), -ENOTCONN);
	must_up(1);
	CHECK_INT(shell(1, "cat kept", &out), 0);
	CHECK_STR(buf_str(&out), "kept\n");
}

TEST(keeper_killed)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	int keeper = 0;
	CHECK_INT(shell(1, "echo synced > synced; sync", &out), 0);
	CHECK_INT(count(false, 1, &keeper), 1);
	CHECK_INT(kill(keeper, SIGKILL), 0);
	must_up(1); /* at once, with the old QEMU perhaps still dying */
	CHECK_INT(count(true, 1, NULL), 1);
	CHECK_INT(count(false, 1, NULL), 1);
	CHECK_INT(shell(1, "cat synced", &out), 0);
	CHECK_STR(buf_str(&out), "synced\n");
	CHECK_INT(count(false, 1, &keeper), 1);
	CHECK_INT(kill(keeper, SIGKILL), 0);
	CHECK(gone(1)); /* QEMU does not outlive it */
	in_state(1, SANDBOX_DOWN);
}

TEST(qemu_killed)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	int qemu = 0;
	must_up(1);
	CHECK_INT(count(true, 1, &qemu), 1);
	CHECK_INT(kill(qemu, SIGKILL), 0);
	CHECK(gone(1));
	in_state(1, SANDBOX_DOWN);
	read_note(1, "ended", &out);
	CHECK(strstr(buf_str(&out), "killed by signal 9 at ") == buf_str(&out));
}

/* A QEMU that does not react is killed at the end of the deadline. */
TEST(down_of_a_stuck_vm)
{
	struct err err = ERR_INIT;
	int qemu = 0;
	must_up(1);
	CHECK_INT(count(true, 1, &qemu), 1);
	CHECK_INT(kill(qemu, SIGSTOP), 0);
	int64_t start = clock_mono_ms();
	CHECK_INT(sandbox_down(&here.paths, "vm", 1, &err), 0);
	int64_t took = clock_mono_ms() - start;
	CHECK(took >= KEEPER_POWEROFF_MS && took < KEEPER_POWEROFF_MS + 60000);
	CHECK(gone(1));
	in_state(1, SANDBOX_DOWN);
}

struct racer {
	pthread_t thread;
	int64_t id;
	int rc;
};

static void *race(void *arg)
{
	struct racer *r = arg;
	struct sandbox_spec spec = {.paths = &here.paths,
				    .kind = "vm",
				    .id = r->id,
				    .name = "",
				    .size = "mini",
				    .boot_timeout_ms = BOOT_MS};
	r->rc = sandbox_up(&spec, NULL);
	return NULL;
}

TEST(two_vms_and_two_callers)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	struct racer r[3] = {{.id = 2}, {.id = 2}, {.id = 3}};
	for (int i = 0; i < 3; i++)
		CHECK_INT(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
	for (int i = 0; i < 3; i++) {
		pthread_join(r[i].thread, NULL);
		CHECK_INT(r[i].rc, 0);
	}
	CHECK_INT(count(true, 2, NULL), 1);
	CHECK_INT(count(true, 3, NULL), 1);
	CHECK_INT(shell(2, "echo two > mark; hostname", &out), 0);
	CHECK_STR(buf_str(&out), "sandbox\n");
	CHECK_INT(shell(3, "cat mark", &out), 1);
	CHECK_INT(shell(2, "cat mark", &out), 0);
}

TEST(second_keeper_is_refused)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *folder = xasprintf("%s/sandboxes/2", here.paths.state);
	const char *argv[] = {here.paths.self, KEEPER_VERB, "--folder", folder, "--vmlinux", "/x",  "--initrd", "/x",
			      "--host",	       "x",	    "--cpus",	"1",	"--memory",  "512", NULL};
	const char *shell_argv[] = {"sh", "-c", "exec 3>&2; exec \"$@\"", "sh", NULL};
	const char *all[32];
	int n = 0;
	for (const char *const *w = shell_argv; *w; w++)
		all[n++] = *w;
	for (const char *const *w = argv; *w; w++)
		all[n++] = *w;
	all[n] = NULL;
	CHECK_INT(child_run(&(struct child){.argv = all, .errout = &out, .timeout_ms = 120000}, NULL), 1);
	CHECK(strstr(buf_str(&out), "another process runs the disk") != NULL);
	CHECK_INT(count(true, 2, NULL), 1);
	in_state(2, SANDBOX_RUNNING);
}

TEST(destroy_leaves_nothing)
{
	struct err err = ERR_INIT;
	CLEAN_FREE char *folder = xasprintf("%s/sandboxes/3", here.paths.state);
	CLEAN_FREE char *socket = xasprintf("%s/3.sock", here.paths.runtime);
	CHECK_INT(sandbox_destroy(&here.paths, "vm", 3, &err), 0);
	CHECK_INT(sandbox_destroy(&here.paths, "vm", 2, &err), 0);
	CHECK(!file_exists(folder));
	CHECK(!file_exists(socket));
	in_state(3, SANDBOX_NONE);
	CHECK_INT(count(true, 0, NULL) + count(false, 0, NULL), 0);
	CHECK_INT(sandbox_destroy(&here.paths, "vm", 3, &err), 0);
}

/* Whoever takes the folder away leaves nothing that runs, also where nobody else knows of it. */
TEST(its_folder_is_removed)
{
	must_up(3);
	CLEAN_FREE char *folder = xasprintf("%s/sandboxes/3", here.paths.state);
	CLEAN_FREE char *other = xasprintf("%s/other", folder);
	CHECK_INT(file_write(other, "x", 1, 0600, NULL), 0);
	CHECK_INT(unlink(other), 0);
	in_state(3, SANDBOX_RUNNING); /* which took a round trip after that */
	CHECK_INT(count(true, 3, NULL), 1);
	CHECK_INT(dir_remove(folder, NULL), 0);
	CHECK(gone(3));
	CHECK_INT(sandbox_destroy(&here.paths, "vm", 3, NULL), 0);
}

/* From here on the kernel tells this process, and all that it starts, of no change of a folder. */
static bool refuse_notices(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fcntl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_NOTIFY, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {ARRAY_LEN(f), f};
	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
}

TEST(its_folder_is_removed_and_nobody_tells)
{
	CLEAN_BUF struct buf log = BUF_INIT;
	CLEAN_FREE char *folder = xasprintf("%s/sandboxes/3", here.paths.state);
	int status = -1;
	pid_t pid = fork();
	if (pid == 0)
		_exit(!refuse_notices() || up(3, BOOT_MS, NULL));
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	in_state(3, SANDBOX_RUNNING);
	read_note(3, "keeper.log", &log);
	CHECK(strstr(buf_str(&log), "is looked for every") != NULL);
	CHECK_INT(dir_remove(folder, NULL), 0);
	CHECK(gone(3));
	CHECK_INT(sandbox_destroy(&here.paths, "vm", 3, NULL), 0);
}

/* ---- boots that fail ---- */

TEST(boot_deadline)
{
	struct err err = ERR_INIT;
	CHECK(broken_image(4, false));
	static const char words[] = "console: berthfs-guest: cannot load the module not-there.ko";
	CHECK_INT(up(4, 15000, &err), -ETIMEDOUT);
	CHECK(strstr(err.text, "did not boot within 15 s") != NULL);
	if (!strstr(buf_str(&here.progress), words)) /* so busy a machine that the guest has not come to them */
		CHECK_INT(up(4, 120000, &err), -ETIMEDOUT);
	CHECK(strstr(buf_str(&here.progress), words) != NULL);
	CHECK(gone(4));
	in_state(4, SANDBOX_DOWN);
}

TEST(broken_kernel)
{
	struct err err = ERR_INIT;
	CHECK(broken_image(5, true));
	CHECK_INT(up(5, BOOT_MS, &err), -EIO);
	CHECK(strstr(err.text, "the VM did not boot") != NULL);
	CHECK(strstr(buf_str(&here.progress), "console: ") != NULL);
	printf("# %s\n", err.text);
	CHECK(gone(5));
}

static void *cancel_soon(void *flag)
{
	clock_sleep_ms(1500);
	atomic_store((atomic_bool *)flag, true);
	return NULL;
}

TEST(boot_is_cancelled)
{
	struct err err = ERR_INIT;
	pthread_t thread;
	atomic_bool flag = false;
	CHECK(broken_image(6, false));
	struct sandbox_spec spec = {.paths = &here.paths,
				    .kind = "vm",
				    .id = 6,
				    .name = "x",
				    .size = "mini",
				    .boot_timeout_ms = BOOT_MS,
				    .cancel = &flag};
	CHECK_INT(pthread_create(&thread, NULL, cancel_soon, &flag), 0);
	int64_t start = clock_mono_ms();
	CHECK_INT(sandbox_up(&spec, &err), -ECANCELED);
	CHECK(clock_mono_ms() - start < BOOT_MS / 2);
	pthread_join(thread, NULL);
	CHECK(gone(6));
}

struct soon {
	atomic_bool flag;
	int ms;
};

static void *cancel_later(void *arg)
{
	struct soon *s = arg;
	clock_sleep_ms(s->ms);
	atomic_store(&s->flag, true);
	return NULL;
}

/* However far its start has come, nothing of it goes on in a sandbox that is gone. */
TEST(cancelled_and_destroyed_at_any_moment)
{
	for (int i = 0; i < 24; i++) {
		struct err err = ERR_INIT;
		struct soon soon = {.ms = i * 10};
		pthread_t thread;
		struct sandbox_spec spec = {.paths = &here.paths,
					    .kind = "vm",
					    .id = 9,
					    .name = "x",
					    .size = "mini",
					    .boot_timeout_ms = BOOT_MS,
					    .cancel = &soon.flag};
		CHECK_INT(pthread_create(&thread, NULL, cancel_later, &soon), 0);
		int rc = sandbox_up(&spec, &err);
		CHECK(rc == -ECANCELED || !rc); /* a copy may be faster than who cancels it */
		CHECK_INT(sandbox_destroy(&here.paths, "vm", 9, &err), 0);
		pthread_join(thread, NULL);
	}
	CHECK(gone(9));
}

/* The host's disk is full: the VM waits, nothing is lost, and it goes on by itself. */
TEST(full_disk)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	CLEAN_FREE char *folder = xasprintf("%s/sandboxes/7", here.paths.state);
	if (geteuid() != 0) {
		printf("# skipped: only root can mount a small file system\n");
		return;
	}
	CHECK_INT(dir_make(folder, 0700, &err), 0);
	CHECK_INT(mount("small", folder, "tmpfs", 0, "size=64m"), 0);
	must_up(7);
	struct env *env = NULL;
	CHECK_INT(env_open(&here.paths, "vm", 7, NULL, &env, &err), 0);
	struct env_exec exec = {
		.job = "fill",
		.argv = (const char *const[]){"/bin/sh", "-c",
					      "head -c 150000000 /dev/urandom > big && sync && sha256sum < big", NULL}};
	CHECK_INT(env ? env_start(env, &exec, &err) : -1, 0);
	for (int64_t end = clock_mono_ms() + 300000; clock_mono_ms() < end; clock_sleep_ms(100)) {
		ask(7, "status\n", &out);
		if (!strncmp(buf_str(&out), "ok\nstalled tcg ", 15))
			break;
	}
	CHECK_STR(buf_str(&out), "ok\nstalled tcg ssh 0\n");
	in_state(7, SANDBOX_RUNNING);
	CHECK_INT(mount(NULL, folder, NULL, MS_REMOUNT, "size=1g"), 0);
	struct env_job job = {0};
	CHECK_INT(env ? env_wait(env, "fill", 0, NULL, &job, &err) : -1, 0);
	CHECK_INT(job.state, ENV_JOB_EXITED);
	CHECK_INT(job.exit_code, 0);
	env_close(env);
	CHECK_INT(sandbox_down(&here.paths, "vm", 7, &err), 0);
	CHECK_INT(fsck(7), 0);
	sandbox_destroy(&here.paths, "vm", 7, NULL); /* the folder itself is a mount and stays */
	CHECK_INT(umount2(folder, MNT_DETACH), 0);
}

TEST(nothing_is_left)
{
	struct err err = ERR_INIT;
	for (int64_t id = 1; id <= 7; id++)
		CHECK_INT(sandbox_destroy(&here.paths, "vm", id, &err), 0);
	CHECK_INT(count(true, 0, NULL) + count(false, 0, NULL), 0);
}

CHECK_RUN(run_tests)
VM_MAIN(run_tests)
