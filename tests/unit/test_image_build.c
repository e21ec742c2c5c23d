/* Building, finding and removing base images, with scripted programs in place of apt, mmdebstrap and mke2fs: everything
 * that may go wrong in a build, in seconds. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/image.h"
#include "sandbox/sandbox.h"

/* The kernel package: a bzImage made by hand (gzip payload) and the modules, of which one is packed and one built in.
 */
static const char fake_dpkg_deb[] =
	"#!/bin/sh\nset -e\nt=$3\nm=$t/lib/modules/9.9/kernel\nmkdir -p $t/boot $m\n"
	"for i in virtio_ring virtio_mmio virtio_blk virtio_console virtio-rng; do echo $i >$m/$i.ko; done\n"
	"echo virtio | xz >$m/virtio.ko.xz\necho kernel/drivers/virtio/virtio_balloon.ko "
	">$t/lib/modules/9.9/modules.builtin\n"
	"printf '\\177ELF kernel' | gzip >$t/payload\nk=$t/boot/vmlinuz-9.9\nn=$(stat -c %s $t/payload)\n"
	"head -c 1636 /dev/zero >$k\nput() { printf \"$2\" | dd of=$k bs=1 seek=$1 conv=notrunc status=none; }\n"
	"put 497 '\\002'\nput 514 HdrS\nput 518 '\\017\\002'\nput 584 '\\144\\000\\000\\000'\n"
	"put 588 \"\\\\$(printf %03o $n)\\\\000\\\\000\\\\000\"\ncat $t/payload >>$k\nrm $t/payload\n";

static const struct {
	const char *name, *text;
} fakes[] = {
	{"apt-get", "#!/bin/sh\nfor a; do case $a in\n"
		    "indextargets) printf "
		    "'Other|x|x|/etc/apt/other.list:1\\nDebian|testing|testing|%s/debian.sources:1\\n' $FAKES; exit;;\n"
		    "update) exit;;\ndownload) : >linux-image-9.9-cloud_1.deb; exit;;\nesac; done\n"},
	{"apt-cache", "#!/bin/sh\necho linux-image-cloud-amd64\necho '  Depends: linux-image-9.9-cloud'\n"},
	{"dpkg-deb", fake_dpkg_deb},
	{"mke2fs", "#!/bin/sh\nfor a; do case $a in */disk.raw) truncate -s 1M $a;; esac; done\n"},
	{"mmdebstrap",
	 "#!/bin/sh\necho run >>$FAKES/runs\necho '0 upgraded, 40 newly installed, 0 to remove and 0 not upgraded.' "
	 ">&2\n"
	 "for i in $(seq 40); do echo \"Unpacking p$i (1)\" >&2; echo \"Setting up p$i (1)\" >&2; done\n"
	 ". $FAKES/script\nfor a; do case $a in */root.tar) cd $FAKES && tar -cf $a script; exit;; esac; done\n"},
};

static struct paths paths;
static char root[] = "/tmp/test-image-XXXXXX";
static char *bin;
static struct buf progress;

static void on_progress(void *arg, const char *line)
{
	buf_addf(&progress, "%s\n", line);
}

/* What the scripted mmdebstrap does between its lines and its archive. */
static void script(const char *text)
{
	CLEAN_FREE char *path = xasprintf("%s/script", bin);
	CHECK_INT(file_write(path, text, strlen(text), 0644, NULL), 0);
}

static int runs(void)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *path = xasprintf("%s/runs", bin);
	file_read(path, &b, 1 << 20, NULL);
	return (int)b.n / 4;
}

static int build(bool force, struct err *err)
{
	buf_reset(&progress);
	return image_build(&paths, force, NULL, on_progress, NULL, err);
}

/* Entries of the image folder that start so. */
static int entries(const char *start)
{
	CLEAN_FREE char *dir = xasprintf("%s/images", paths.cache);
	DIR *d = opendir(dir);
	int n = 0;
	for (struct dirent *e; d && (e = readdir(d));)
		n += !strncmp(e->d_name, start, strlen(start));
	if (d)
		closedir(d);
	return n;
}

TEST(prepare)
{
	static const char *const vars[] = {"XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"};
	struct err err = ERR_INIT;
	CHECK(mkdtemp(root) != NULL);
	for (size_t i = 0; i < ARRAY_LEN(vars); i++)
		setenv(vars[i], root, 1);
	bin = xasprintf("%s/bin", root);
	CLEAN_FREE char *path = xasprintf("%s:%s", bin, getenv("PATH"));
	CLEAN_FREE char *sources = xasprintf("%s/debian.sources", bin);
	CHECK_INT(dir_make(bin, 0755, &err), 0);
	CHECK_INT(file_write(sources, "Types: deb\n", 11, 0644, &err), 0);
	for (size_t i = 0; i < ARRAY_LEN(fakes); i++) {
		CLEAN_FREE char *file = xasprintf("%s/%s", bin, fakes[i].name);
		CHECK_INT(file_write(file, fakes[i].text, strlen(fakes[i].text), 0755, &err), 0);
	}
	setenv("PATH", path, 1);
	setenv("FAKES", bin, 1);
	CHECK_INT(paths_init(&paths, &err), 0);
	script("");
}

TEST(builds_once)
{
	struct err err = ERR_INIT;
	struct image im = {0};
	CLEAN_BUF struct buf b = BUF_INIT;
	CHECK_INT(image_current(&paths, &im, &err), -ENOENT);
	int rc = build(false, &err);
	CHECK_INT(rc, 0);
	if (rc)
		printf("# %s\n", err.text);
	CHECK(strstr(buf_str(&progress), "base image 1 of 6: downloading linux-image-9.9-cloud\n") != NULL);
	CHECK(strstr(buf_str(&progress), "base image 3 of 6: installing packages (") != NULL);
	CHECK(buf_ends(&progress, "base image 6 of 6: saving\n"));
	CHECK_INT(image_current(&paths, &im, &err), 0);
	CHECK_STR(im.kernel, "linux-image-9.9-cloud");
	CLEAN_FREE char *kernel = xasprintf("%s/vmlinux", im.dir);
	CHECK_INT(file_read(kernel, &b, 100, &err), 0);
	CHECK_STR(buf_str(&b), "\177ELF kernel");
	CLEAN_FREE char *initrd = NULL;
	CHECK_INT(image_initrd(im.dir, &initrd, &err), 0);
	buf_reset(&b);
	CHECK_INT(file_read(initrd, &b, 16 << 20, &err), 0);
	/* the list names what is loaded, in order, without what is built in */
	CHECK(b.n &&
	      memmem(b.p, b.n,
		     "virtio_ring.ko\nvirtio.ko\nvirtio_mmio.ko\nvirtio_blk.ko\nvirtio_console.ko\nvirtio_rng.ko\n",
		     81));
	CHECK(b.n && memmem(b.p, b.n, "init\0", 5) && !memmem(b.p, b.n, "virtio_balloon.ko", 17));
	image_release(&im);
	CHECK_INT(runs(), 1);
	CHECK_INT(build(false, &err), 0);
	CHECK_INT(runs(), 1);
	CHECK_INT(entries(".build-"), 0);
}

TEST(force_makes_another)
{
	struct err err = ERR_INIT;
	struct image im = {0};
	CHECK_INT(build(true, &err), 0);
	CHECK_INT(runs(), 2);
	CHECK_INT(entries("base-"), 2);
	CHECK_INT(image_current(&paths, &im, &err), 0);
	CHECK(im.name && !strcmp(im.name + strlen(im.name) - 2, "-2"));
	CLEAN_BUF struct buf list = BUF_INIT;
	CHECK_INT(image_list(&paths, &list, &err), 0);
	CHECK(strstr(buf_str(&list), im.name) != NULL);
	image_release(&im);
}

TEST(failures_have_words_and_leave_nothing)
{
	static const struct {
		const char *script;
		int rc;
		const char *words;
	} cases[] = {
		{"echo 'E: Unable to locate package git' >&2; echo 'I: removing tempdir' >&2; exit 25", -EIO,
		 "mmdebstrap: E: Unable to locate package git"},
		{"echo 'tar: root.tar: Wrote only 512 bytes: No space left on device'; exit 1", -ENOSPC,
		 "the disk is full"},
		{"exit 7", -EIO, "mmdebstrap"},
		{"kill -9 $$", -EIO, "mmdebstrap"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err err = ERR_INIT;
		script(cases[i].script);
		CHECK_INT(build(true, &err), cases[i].rc);
		CHECK(strstr(err.text, cases[i].words) != NULL);
		CHECK_INT(entries(".build-"), 0);
		CHECK_INT(entries("base-"), 2);
	}
	script("");
}

static void *cancel_soon(void *flag)
{
	clock_sleep_ms(700);
	atomic_store((atomic_bool *)flag, true);
	return NULL;
}

TEST(is_cancelled)
{
	struct err err = ERR_INIT;
	atomic_bool flag = false;
	pthread_t thread;
	script("sleep 60");
	CHECK_INT(pthread_create(&thread, NULL, cancel_soon, &flag), 0);
	int64_t start = clock_mono_ms();
	CHECK_INT(image_build(&paths, true, &flag, NULL, NULL, &err), -ECANCELED);
	CHECK(clock_mono_ms() - start < 40000);
	pthread_join(thread, NULL);
	CHECK_INT(entries(".build-"), 0);
}

/* Waits until path is there. */
static bool appears(const char *path)
{
	for (int64_t end = clock_mono_ms() + 120000; clock_mono_ms() < end; clock_sleep_ms(10))
		if (file_exists(path))
			return true;
	return false;
}

TEST(survives_kill)
{
	struct err err = ERR_INIT;
	CLEAN_FREE char *mark = xasprintf("%s/started", bin);
	CLEAN_BUF struct buf b = BUF_INIT;
	script("echo $$ >$FAKES/started.new; mv $FAKES/started.new $FAKES/started; sleep 60");
	pid_t pid = fork();
	if (pid == 0)
		_exit(image_build(&paths, true, NULL, NULL, NULL, NULL) != 0);
	CHECK(appears(mark));
	CHECK_INT(kill(pid, SIGKILL), 0);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
	CHECK_INT(entries(".build-"), 1);
	CHECK_INT(entries("base-"), 2);
	CHECK_INT(file_read(mark, &b, 100, &err), 0);
	script("");
	CHECK_INT(build(true, &err), 0);
	CHECK_INT(entries(".build-"), 0);
	CHECK_INT(entries("base-"), 3);
	/* the killed builder's program was ended too; a zombie of it does not count */
	CLEAN_FREE char *cmdline = xasprintf("/proc/%d/cmdline", atoi(buf_str(&b)));
	buf_reset(&b);
	CHECK(file_read(cmdline, &b, 65536, NULL) || !b.n);
}

static void *build_thread(void *rc)
{
	*(int *)rc = image_build(&paths, false, NULL, on_progress, NULL, NULL);
	return NULL;
}

TEST(two_builders_make_one)
{
	struct err err = ERR_INIT;
	CLEAN_FREE char *images = xasprintf("%s/images", paths.cache);
	pthread_t thread;
	int rc = -1, before = runs();
	CHECK_INT(dir_remove(images, &err), 0);
	script("sleep 1");
	CHECK_INT(pthread_create(&thread, NULL, build_thread, &rc), 0);
	clock_sleep_ms(300);
	CHECK_INT(image_build(&paths, false, NULL, NULL, NULL, &err), 0);
	pthread_join(thread, NULL);
	CHECK_INT(rc, 0);
	CHECK_INT(runs() - before, 1);
	CHECK_INT(entries("base-"), 1);
}

TEST(removal_spares_what_is_used)
{
	struct err err = ERR_INIT;
	struct image im = {0};
	CHECK_INT(image_current(&paths, &im, &err), 0);
	CLEAN_FREE char *folder = xasprintf("%s/sandboxes/5", paths.state);
	CLEAN_FREE char *note = xasprintf("%s/image", folder);
	CLEAN_FREE char *line = xasprintf("%s\n", im.dir);
	CHECK_INT(dir_make(folder, 0700, &err), 0);
	CHECK_INT(file_write(note, line, strlen(line), 0600, &err), 0);
	int hold = image_hold(&paths, &err);
	CHECK(hold >= 0);
	CHECK_INT(image_use(im.dir, folder, &err), 0);
	CHECK_INT(image_use(im.dir, folder, &err), 0);
	fd_close(&hold);
	CHECK_INT(image_users(im.dir), 1);
	CHECK_INT(image_remove(&paths, im.name, &err), -EBUSY);
	CHECK(strstr(err.text, "1 sandbox is made from") != NULL);
	CHECK_INT(image_remove(&paths, "../images", &err), -ENOENT);
	CHECK_INT(image_remove(&paths, "base-none", &err), -ENOENT);
	CHECK_INT(dir_remove(folder, &err), 0);
	CHECK_INT(image_users(im.dir), 0);
	CHECK_INT(image_remove(&paths, im.name, &err), 0);
	CHECK(!file_exists(im.dir));
	CHECK_INT(entries("base-") + entries(".build-"), 0);
	image_release(&im);
}

TEST(missing_program_is_named)
{
	struct err err = ERR_INIT;
	setenv("PATH", "/nonexistent", 1);
	CHECK_INT(image_build(&paths, false, NULL, NULL, NULL, &err), -ENOENT);
	CHECK_STR(err.text, "mmdebstrap is missing: install the package mmdebstrap");
}

TEST(clean_up)
{
	CHECK_INT(dir_remove(root, NULL), 0);
	paths_release(&paths);
	buf_release(&progress);
	free(bin);
}

CHECK_MAIN()
