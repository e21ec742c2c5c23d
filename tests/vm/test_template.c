/* Real VMs that are saved as templates, and VMs that start from those. Needs QEMU and a base image; takes about half a
 * minute. time limit: 900 s */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/image.h"
#include "sandbox/keeper.h"
#include "tests/unit/check.h"
#include "vm.h"

#define BOOT_MS 120000

static char *template(int n)
{
	return xasprintf("%s/templates/%d", here.paths.state, n);
}

static bool started(int64_t id, int from)
{
	struct err err = ERR_INIT;
	CLEAN_FREE char *dir = template(from);
	int rc = up_from(id, from ? dir : NULL, BOOT_MS, &err);
	if (rc)
		printf("# %s\n%s", err.text, buf_str(&here.progress));
	return !rc;
}

static int save(int64_t id, int n, bool *alone, struct err *err)
{
	CLEAN_FREE char *dir = template(n);
	return sandbox_save(&here.paths, "vm", id, dir, alone, err);
}

static void saved(int64_t id, int n, bool want_alone)
{
	struct err err = ERR_INIT;
	bool alone = !want_alone;
	CHECK_INT(sandbox_down(&here.paths, "vm", id, &err), 0);
	CHECK_INT(save(id, n, &alone, &err), 0);
	if (*err.text)
		printf("# %s\n", err.text);
	CHECK_INT(alone, want_alone);
	CHECK_INT(save(id, n, &alone, &err), 0); /* a repeat of what is done already */
	CHECK_INT(sandbox_destroy(&here.paths, "vm", id, &err), 0);
}

static bool disk_there(int n)
{
	CLEAN_FREE char *path = xasprintf("%s/templates/%d/disk.qcow2", here.paths.state, n);
	return file_exists(path);
}

TEST(a_running_vm_is_not_saved)
{
	struct err err = ERR_INIT;
	bool alone;
	CLEAN_BUF struct buf out = BUF_INIT;
	CHECK(started(1, 0));
	CHECK_INT(shell(1, "echo one >one && sync", &out), 0);
	CHECK_INT(save(1, 1, &alone, &err), -EBUSY);
	CHECK(!disk_there(1));
}

/* QEMU or its keeper is killed: what is on the disk may be half of something. */
TEST(a_vm_that_was_killed_is_not_saved)
{
	struct err err = ERR_INIT;
	bool alone;
	for (int i = 0; i < 2; i++) {
		int pid = 0;
		CHECK_INT(count(i == 0, 1, &pid), 1);
		CHECK_INT(kill(pid, SIGKILL), 0);
		CHECK(gone(1));
		CHECK_INT(save(1, 1, &alone, &err), -EAGAIN);
		CHECK(!disk_there(1));
		CHECK(started(1, 0));
	}
}

TEST(a_vm_starts_as_its_template_was)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	struct stat st = {0};
	CLEAN_FREE char *disk = xasprintf("%s/templates/1/disk.qcow2", here.paths.state);
	saved(1, 1, true);
	CHECK_INT(stat(disk, &st), 0);
	CHECK_INT(st.st_mode & 0777, 0444);
	CHECK(started(2, 1));
	CHECK_INT(shell(2, "cat one && echo two >two && rm one && sync", &out), 0);
	CHECK_STR(buf_str(&out), "one\n");
	CHECK(started(3, 1)); /* at the same time, and it sees nothing of the other */
	CHECK_INT(shell(3, "ls", &out), 0);
	CHECK_STR(buf_str(&out), "one\n");
	CHECK_INT(sandbox_destroy(&here.paths, "vm", 3, NULL), 0);
	struct image im = {0};
	struct err err = ERR_INIT;
	CHECK_INT(image_current(&here.paths, &im, &err), 0);
	CHECK(image_users(im.dir) >= 2); /* the template counts, too */
	image_release(&im);
}

/* Two, three, and the fourth lies on the image alone: the templates below it may go. */
TEST(a_chain_is_cut)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	saved(2, 2, false);
	CHECK(started(4, 2));
	CHECK_INT(shell(4, "echo three >three && sync", &out), 0);
	saved(4, 3, false);
	CHECK(started(5, 3));
	CHECK_INT(shell(5, "cat two three && echo four >four && sync", &out), 0);
	saved(5, 4, true);
	for (int n = 1; n <= 3; n++) {
		CLEAN_FREE char *dir = template(n);
		CHECK_INT(dir_remove(dir, NULL), 0);
	}
	CHECK(started(6, 4));
	CHECK_INT(shell(6, "cat two three four; ls", &out), 0);
	CHECK_STR(buf_str(&out), "two\nthree\nfour\nfour\nthree\ntwo\n");
}

TEST(a_template_that_is_gone_is_said)
{
	struct err err = ERR_INIT;
	CLEAN_FREE char *dir = template(1);
	CHECK_INT(up_from(7, dir, BOOT_MS, &err), -ENOENT);
	CHECK(strstr(err.text, "template"));
}

CHECK_RUN(run_tests)
VM_MAIN(run_tests)
