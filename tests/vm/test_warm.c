/* Warm starts of real VMs: the first one boots, others are copies of it, and no two are alike. With images of its own,
 * which are links to the machine's. time limit: 900 s */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/image.h"
#include "sandbox/keeper.h"
#include "sandbox/keeper_thin.h"
#include "sandbox/kvm.h"
#include "sandbox/ram.h"
#include "sandbox/warm.h"
#include "tests/unit/check.h"
#include "vm.h"

#define BOOT_MS 300000 /* on a machine that does much else */
#define MAKE_MS 300000
#define CLONES	8
#define LONG	50 /* with LONG=1 in the environment */

static char *image_folder, *warm_folder; /* IMAGE, IMAGE/warm */

static bool said(const char *words)
{
	return strstr(buf_str(&here.progress), words) != NULL;
}

static void must_destroy(int64_t id)
{
	struct err err = ERR_INIT;
	CHECK_INT(sandbox_destroy(&here.paths, "vm", id, &err), 0);
}

#define OTHER "-ffffffffffffffff-" /* in the name of one that another build has made */

/* The memory of the one that copies start from, or NULL; malloc'd. */
static char *saved(void)
{
	DIR *d = opendir(warm_folder);
	char *found = NULL;
	for (struct dirent *e; d && (e = readdir(d));)
		if (!found && e->d_name[0] >= '1' && e->d_name[0] <= '9' && !strstr(e->d_name, OTHER))
			found = xasprintf("%s/%s/" KEEPER_MEMORY, warm_folder, e->d_name);
	if (d)
		closedir(d);
	return found;
}

static bool made(void)
{
	for (int64_t end = clock_mono_ms() + MAKE_MS; clock_mono_ms() < end; clock_sleep_ms(50)) {
		CLEAN_FREE char *memory = saved();
		CLEAN_FREE char *work = xasprintf("%s/work", warm_folder);
		if (memory && !file_exists(work))
			return true;
	}
	return false;
}

/* There is one to copy; a VM that had to boot for that is gone again. */
static bool must_be_made(void)
{
	CLEAN_FREE char *memory = saved();
	if (memory)
		return true;
	must_up(100);
	CHECK(made());
	must_destroy(100);
	return !check_failed;
}

TEST(the_first_boots_and_the_next_is_a_copy)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *note = xasprintf("%s/sandboxes/2/" WARM_SAVED, here.paths.state);
	must_up(1);
	if (check_failed)
		return;
	CHECK(!said("a copy"));
	CHECK(made());
	int64_t start = clock_mono_ms();
	must_up(2);
	if (check_failed)
		return;
	CHECK_INT(shell(2, "echo first >f; id -un; hostname; pwd", &out), 0);
	printf("# a copy, up and used after %lld ms\n", (long long)(clock_mono_ms() - start));
	CHECK_STR(buf_str(&out), "agent\ntest-box\n/home/agent\n");
	CHECK(said("a copy of one that has booted before"));
	CHECK(!file_exists(note));
	int64_t before = clock_real_ms() / 1000;
	CHECK_INT(shell(2, "date +%s", &out), 0);
	CHECK(atoll(buf_str(&out)) >= before - 2 && atoll(buf_str(&out)) <= clock_real_ms() / 1000 + 2);
	CHECK_INT(shell(2,
			"cat /etc/hostname; grep -c test-box /etc/hosts; sudo -n id -u; ls /var/lib/berthfs/jobs/run | "
			"grep -c .",
			&out),
		  0);
	CHECK_STR(buf_str(&out), "test-box\n1\n0\n1\n");
	/* from now on it is a VM like any other: it boots from its own disk */
	struct err err = ERR_INIT;
	CHECK_INT(sandbox_down(&here.paths, "vm", 2, &err), 0);
	must_up(2);
	CHECK(!said("a copy"));
	CHECK_INT(shell(2, "cat f", &out), 0);
	CHECK_STR(buf_str(&out), "first\n");
	CHECK_INT(put_to_rest(sandbox_hibernate, 2, &err), 0);
	must_up(2);
	CHECK(said("waking"));
	must_destroy(1);
	must_destroy(2);
}

/* ---- no two are alike ---- */

static const char *const secrets[] = {
	"head -c 16 /dev/urandom | od -An -tx1",
	"cat /proc/sys/kernel/random/uuid",
	"cat /proc/sys/kernel/random/boot_id",
	"cat /etc/machine-id",
	"python3 -c 'import os, random; print(os.urandom(8).hex(), random.getrandbits(64))'",
	"mktemp -u XXXXXXXXXXXX",
	/* a host key as `berthfs ssh` has one made */
	"rm -f key; /usr/bin/dropbearkey -t ed25519 -f key >/dev/null 2>&1; /usr/bin/dropbearkey -y -f key | grep "
	"^ssh- | cut -d' ' -f2",
	"od -An -tx1 /proc/self/auxv >/dev/null; python3 -c 'import secrets; print(secrets.token_hex())'",
};

static void *clone_one(void *arg)
{
	struct sandbox_spec spec = {.paths = &here.paths,
				    .kind = "vm",
				    .id = (int64_t)(intptr_t)arg,
				    .name = "clone",
				    .size = "mini",
				    .boot_timeout_ms = BOOT_MS};
	struct err err = ERR_INIT;
	int rc = sandbox_up(&spec, &err);
	if (rc)
		printf("# clone: %s\n", err.text);
	return (void *)(intptr_t)rc;
}

static void compare(char **all, int n)
{
	for (int i = 0; i < n; i++)
		for (int j = i + 1; j < n; j++)
			if (!*all[i] || !strcmp(all[i], all[j])) {
				check_failed = 1;
				printf("# %d and %d have both: %s", i, j, all[i]);
			}
}

TEST(no_two_are_alike)
{
	int n = getenv("LONG") ? LONG : CLONES, at_once = 4;
	pthread_t threads[LONG];
	if (!must_be_made())
		return;
	for (int i = 0; i < n; i += at_once) {
		for (int j = i; j < i + at_once && j < n; j++)
			pthread_create(&threads[j], NULL, clone_one, (void *)(intptr_t)(200 + j));
		for (int j = i; j < i + at_once && j < n; j++) {
			void *rc;
			pthread_join(threads[j], &rc);
			CHECK(rc == NULL);
		}
	}
	for (size_t s = 0; s < ARRAY_LEN(secrets) && !check_failed; s++) {
		char *all[LONG];
		CLEAN_BUF struct buf out = BUF_INIT;
		for (int i = 0; i < n; i++) {
			CHECK_INT(shell(200 + i, secrets[s], &out), 0);
			all[i] = xstrdup(buf_str(&out));
		}
		compare(all, n);
		for (int i = 0; i < n; i++)
			free(all[i]);
	}
	for (int i = 0; i < n; i++)
		must_destroy(200 + i);
}

/* ---- other builds ---- */

/* What another build of this program has made, is neither used nor taken away, until nobody has used it for days. */
TEST(those_of_another_build)
{
	struct timespec old[2] = {{.tv_sec = time(NULL) - 6 * 86400}, {.tv_sec = time(NULL) - 6 * 86400}};
	if (!must_be_made())
		return;
	CLEAN_FREE char *memory = saved();
	CLEAN_FREE char *from = xstrndup(memory, (size_t)(strrchr(memory, '/') - memory));
	char *size_end = strchr(strrchr(from, '/'), '-');
	CHECK(size_end && strlen(size_end) > strlen(OTHER));
	CLEAN_FREE char *to = xasprintf("%.*s" OTHER "%s", (int)(size_end - from), from, strrchr(from, '-') + 1);
	CHECK_INT(rename(from, to), 0);
	must_up(7);
	CHECK(!said("a copy"));
	CHECK(made());
	must_destroy(7);
	must_up(7);
	CHECK(said("a copy of one that has booted before"));
	CHECK(file_exists(to));
	must_destroy(7);
	CHECK_INT(utimensat(AT_FDCWD, to, old, 0), 0);
	warm_collect(image_folder);
	CHECK(!file_exists(to));
	CLEAN_FREE char *left = saved();
	CHECK(left != NULL);
}

/* ---- a paused one has only what is its own ---- */

#define MIB (1L << 20)

/* What there is of the guest's memory. */
static long held(int64_t id)
{
	struct stat st = {0};
	int qemu = 0;
	CHECK_INT(count(true, id, &qemu), 1);
	CLEAN_FD int ram = ram_find(qemu, NULL, NULL);
	CHECK(ram >= 0 && !fstat(ram, &st));
	return (long)st.st_blocks * 512;
}

/* Another byte where pages are, or the one that was there before. */
static bool change_byte(const char *path)
{
	char byte = 0;
	CLEAN_FD int fd = open(path, O_RDWR | O_CLOEXEC);
	return fd >= 0 && pread(fd, &byte, 1, 1 << 20) == 1 && (byte ^= 0x10, pwrite(fd, &byte, 1, 1 << 20) == 1);
}

static void must_pause(int64_t id)
{
	struct err err = ERR_INIT;
	CHECK_INT(put_to_rest(sandbox_pause, id, &err), 0);
}

static void must_rest(int64_t id, long most)
{
	must_pause(id);
	for (int64_t end = clock_mono_ms() + MAKE_MS; held(id) > most && clock_mono_ms() < end;)
		clock_sleep_ms(20);
	CHECK(held(id) <= most);
}

static void same_as(int64_t id, const char *what, const char *before)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CHECK_INT(shell(id, what, &out), 0);
	CHECK_STR(buf_str(&out), before);
}

TEST(a_paused_copy_has_only_what_is_its_own)
{
	static const char sum[] = "cksum /dev/shm/x /usr/bin/git; cat /proc/$(cat pid)/cmdline | tr '\\0' ' '";
	CLEAN_BUF struct buf before = BUF_INIT;
	struct err err = ERR_INIT;
	if (!must_be_made())
		return;
	CLEAN_FREE char *memory = saved();
	must_up(8);
	CHECK(said("a copy"));
	CHECK_INT(shell(8,
			"head -c 4M /dev/urandom >/dev/shm/x; (setsid sleep 9999 >/dev/null 2>&1 & echo $! >pid); "
			"until grep -qx sleep /proc/$(cat pid)/comm; do sleep 0.05; done",
			&before),
		  0);
	CHECK_INT(shell(8, sum, &before), 0);
	long all = held(8), most = all / 2;
	printf("# while it runs: %ld MiB\n", all / MIB);
	must_rest(8, most);
	printf("# paused: %ld MiB\n", held(8) / MIB);
	same_as(8, sum, buf_str(&before));
	CHECK(held(8) > most);
	/* over and over, and sooner than it has come to rest */
	for (int i = 0; i < 20 && !check_failed; i++) {
		must_pause(8);
		clock_sleep_ms(i * 4);
		CHECK_INT(sandbox_resume(&here.paths, "vm", 8, &err), 0);
	}
	same_as(8, sum, buf_str(&before));
	/* what it began from is gone, and is another */
	must_rest(8, most);
	CLEAN_FREE char *aside = xasprintf("%s.aside", memory);
	CHECK_INT(rename(memory, aside), 0);
	same_as(8, sum, buf_str(&before));
	CHECK_INT(rename(aside, memory), 0);
	must_rest(8, most);
	CHECK(change_byte(memory));
	CHECK(sandbox_resume(&here.paths, "vm", 8, &err) != 0);
	CHECK(strstr(err.text, "is another than it was") != NULL);
	CHECK_INT(sandbox_state(&here.paths, "vm", 8), SANDBOX_PAUSED);
	CHECK(change_byte(memory));
	same_as(8, sum, buf_str(&before));
	/* on to disk and back, and it still knows what it began from */
	must_rest(8, most);
	CHECK_INT(put_to_rest(sandbox_hibernate, 8, &err), 0);
	must_up(8);
	same_as(8, sum, buf_str(&before));
	must_rest(8, most);
	same_as(8, sum, buf_str(&before));
	must_rest(8, most);
	CHECK_INT(sandbox_down(&here.paths, "vm", 8, &err), 0);
	CLEAN_FREE char *ended = xasprintf("%s/sandboxes/8/ended", here.paths.state);
	CLEAN_BUF struct buf how = BUF_INIT;
	CHECK_INT(file_read(ended, &how, 4096, NULL), 0);
	CHECK(strstr(buf_str(&how), "powered off") == buf_str(&how));
	must_destroy(8);
}

/* ---- what is damaged or cut off ---- */

TEST(damage_boots_cold_and_another_is_made)
{
	if (!must_be_made())
		return;
	CLEAN_FREE char *memory = saved();
	CLEAN_FD int fd = open(memory, O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0 && pwrite(fd, "damage", 6, 1 << 20) == 6);
	must_up(3);
	CHECK(said("the copied memory cannot be used: ") && !said("cannot be used: :"));
	CHECK(said("is damaged"));
	CHECK(!file_exists(memory));
	CLEAN_BUF struct buf out = BUF_INIT;
	CHECK_INT(shell(3, "hostname", &out), 0);
	CHECK_STR(buf_str(&out), "test-box\n");
	CHECK(made());
	must_destroy(3);
}

struct killer {
	bool qemu;
	int ms;
};

static void *kill_one(void *arg)
{
	struct killer *k = arg;
	int pid = 0;
	clock_sleep_ms(k->ms);
	if (count(k->qemu, 4, &pid))
		kill(pid, SIGKILL);
	return NULL;
}

TEST(killed_at_any_moment)
{
	static const int moments[] = {10, 60, 120, 200, 300, 450};
	CLEAN_BUF struct buf out = BUF_INIT;
	if (!must_be_made())
		return;
	for (size_t i = 0; i < ARRAY_LEN(moments); i++) {
		struct killer k = {i % 2, moments[i]};
		struct err err = ERR_INIT;
		pthread_t killer;
		pthread_create(&killer, NULL, kill_one, &k);
		int rc = up(4, BOOT_MS, &err);
		pthread_join(killer, NULL);
		printf("# after %d ms: %s\n", k.ms, rc ? err.text : "up");
		CHECK(!rc || err.text[0]);
		must_up(4);
		if (check_failed)
			return;
		CHECK_INT(shell(4, "sudo touch /x && hostname", &out), 0);
		CHECK_STR(buf_str(&out), "test-box\n");
		must_destroy(4);
	}
}

static pid_t lock_orphan(const char *path)
{
	pid_t pid = fork();
	if (!pid) {
		int fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0 || flock(fd, LOCK_EX))
			_exit(1);
		for (;;)
			pause();
	}
	return pid;
}

/* A QEMU that outlives its keeper has the disk's lock; whoever starts the VM the next time ends it. */
TEST(an_orphan_does_not_keep_the_disk)
{
	int status = 0;
	must_up(6);
	CHECK_INT(sandbox_down(&here.paths, "vm", 6, NULL), 0);
	CLEAN_FREE char *lock = xasprintf("%s/sandboxes/6/lock", here.paths.state);
	pid_t orphan = lock_orphan(lock);
	clock_sleep_ms(
		100); /* it need not have the lock yet: then it gets it while the VM runs, and dies of the next end */
	must_up(6);
	must_destroy(6);
	kill(orphan, SIGKILL);
	CHECK(waitpid(orphan, &status, 0) == orphan && WIFSIGNALED(status));
}

/* The one that makes it ends with the VM that it was begun for, and leaves nothing that could be taken for whole. */
TEST(making_ends_with_its_vm)
{
	CLEAN_FREE char *work = xasprintf("%s/work", warm_folder);
	CLEAN_FREE char *memory = saved();
	struct sandbox_size size;
	CHECK_INT(sandbox_size("mini", &size), 0);
	if (memory)
		warm_drop(image_folder, &size, false, memory);
	CHECK(!memory || !file_exists(memory));
	for (int i = 0; i < 2; i++) {
		must_up(5);
		for (int64_t end = clock_mono_ms() + BOOT_MS; !file_exists(work) && clock_mono_ms() < end;)
			clock_sleep_ms(10);
		CHECK(file_exists(work));
		clock_sleep_ms(i * 700);
		must_destroy(5);
		for (int64_t end = clock_mono_ms() + BOOT_MS; file_exists(work) && clock_mono_ms() < end;)
			clock_sleep_ms(10);
		CHECK(!file_exists(work));
		CLEAN_FREE char *none = saved();
		CHECK(none == NULL || i == 1);
	}
}

/* The probe believes a guest that runs to its end, and nothing else. */
TEST(probe)
{
	struct image im = {0};
	CLEAN_FREE char *initrd = NULL;
	CLEAN_BUF struct buf why = BUF_INIT;
	CLEAN_BUF struct buf again = BUF_INIT;
	if (image_current(&here.paths, &im, NULL) || image_initrd(im.dir, &initrd, NULL)) {
		CHECK(false);
		return;
	}
	CHECK(kvm_probe("tcg", im.dir, initrd, BOOT_MS, &why));
	CHECK(strstr(buf_str(&why), "a guest booted in") != NULL);
	buf_reset(&why);
	CHECK(!kvm_probe("tcg", im.dir, initrd, 100, &why)); /* not that fast */
	CHECK(strstr(buf_str(&why), "did not come up within") != NULL);
	buf_reset(&why);
	CHECK(!kvm_probe("tcg", im.dir, "/no/such/file", BOOT_MS, &why));
	CHECK(strstr(buf_str(&why), "QEMU ended with code") != NULL);
	buf_reset(&why);
	/* what it found is kept, and found again */
	bool works = kvm_works(&here.paths, im.dir, &why);
	int64_t start = clock_mono_ms();
	CHECK_INT(kvm_works(&here.paths, im.dir, &again), works);
	printf("# kvm: %s; again in %lld ms\n", buf_str(&why), (long long)(clock_mono_ms() - start));
	CHECK_STR(buf_str(&again), buf_str(&why));
	image_release(&im);
}

/* Images of this test alone. */
static int own_images(void)
{
	struct image im = {0};
	if (image_current(&here.paths, &im, NULL))
		return 1;
	CLEAN_FREE char *cache = xasprintf("%s/cache", here.root);
	CLEAN_FREE char *images = xasprintf("%s/images", cache);
	const char *argv[] = {"sh",
			      "-c",
			      "mkdir -p \"$2\" && { cp -al \"$1\" \"$2\" 2>/dev/null || cp -a \"$1\" \"$2\"; } && rm "
			      "-rf \"$2/$3/warm\" "
			      "\"$2/$3/users\" && mkdir \"$2/$3/users\"",
			      "sh",
			      im.dir,
			      images,
			      im.name,
			      NULL};
	int rc = child_run(&(struct child){.argv = argv, .timeout_ms = 300000}, NULL);
	image_folder = xasprintf("%s/%s", images, im.name);
	warm_folder = xasprintf("%s/warm", image_folder);
	image_release(&im);
	free(here.paths.cache);
	here.paths.cache = take(cache);
	return rc;
}

CHECK_RUN(run_tests)

/* Whether a process still names a folder of this test. */
static bool is_ours(const char *pid)
{
	CLEAN_FREE char *path = xasprintf("/proc/%s/cmdline", pid);
	CLEAN_BUF struct buf b = BUF_INIT;
	return atoi(pid) != getpid() && !file_read(path, &b, 65536, NULL) &&
	       memmem(b.p, b.n, here.root, strlen(here.root));
}

static char *one_of_ours(void)
{
	DIR *d = opendir("/proc");
	char *found = NULL;
	for (struct dirent *e; d && !found && (e = readdir(d));)
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && is_ours(e->d_name))
			found = xstrdup(e->d_name);
	if (d)
		closedir(d);
	return found;
}

/* What makes a warm start in the background ends with the VM that it was begun for, but not at once: it has only the
 * time that nobody else wants. */
static bool settled(void)
{
	CLEAN_FREE char *left = NULL;
	for (int64_t end = clock_mono_ms() + MAKE_MS; (left = one_of_ours()) && clock_mono_ms() < end;
	     clock_sleep_ms(50))
		free(take(left));
	if (left)
		printf("not ok nothing is left\n# process %s\n", left);
	return !left;
}

static int with_own_images(void)
{
	int rc = own_images();
	rc = rc ? rc : run_tests();
	rc = settled() ? rc : 1;
	free(image_folder);
	free(warm_folder);
	return rc;
}

int main(int argc, char **argv)
{
	thin_after_ms = 20; /* in its keepers */
	return vm_main(argc, argv, with_own_images);
}
