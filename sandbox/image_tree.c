/* The base image as a folder, for containers: IMAGE/tree, unpacked once from the image's disk. All of it belongs to the
 * user, since a container knows one user only, and nothing in it is started on this side. Blocks; worker threads only.
 * Must never leave half a tree under its name. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "image.h"
#include "image_store.h"

#define UNPACK_MS 1800000

/* $1 disk, $2 a folder to work in. debugfs reads the file system without a mount; it wants plain bytes. A tree that
 * lacks what every tree has is none. */
#define UNPACK                                                                                                         \
	"set -e\n"                                                                                                     \
	"qemu-img convert -O raw \"$1\" \"$2/raw\"\n"                                                                  \
	"mkdir \"$2/tree\"\n"                                                                                          \
	"cd \"$2\"\n"                                                                                                  \
	"debugfs -R 'rdump / tree' raw >log 2>&1\n"                                                                    \
	"rm raw\n"                                                                                                     \
	"rm -rf tree/dev tree/lost+found\n"                                                                            \
	"mkdir -p tree/dev tree/proc tree/sys tree/run tree/tmp\n"                                                     \
	"[ \"$(id -u)\" != 0 ] || chown -hR 0:0 tree\n"                                                                \
	"chmod -R u+rwX tree\n"                                                                                        \
	"chmod 1777 tree/tmp tree/var/tmp\n"                                                                           \
	"[ -x tree/bin/sh ] && [ -x tree/usr/bin/git ] && [ -d tree/home/agent ] && [ -d tree/var/lib/berthfs/jobs "   \
	"]\n"

static int unpack(const char *dir, const char *work, const atomic_bool *cancel, struct err *err)
{
	CLEAN_BUF struct buf words = BUF_INIT;
	CLEAN_FREE char *disk = xasprintf("%s/disk.qcow2", dir);
	const char *path = getenv("PATH");
	CLEAN_FREE char *wider = xasprintf("PATH=%s:/usr/sbin:/sbin", path ? path : "/usr/local/bin:/usr/bin:/bin");
	int rc = child_run(&(struct child){.argv = (const char *const[]){"sh", "-c", UNPACK, "sh", disk, work, NULL},
					   .env = (const char *const[]){wider, "LC_ALL=C.UTF-8", NULL},
					   .out = &words,
					   .errout = &words,
					   .max = 4096,
					   .timeout_ms = UNPACK_MS,
					   .cancel = cancel},
			   err);
	if (rc > 0)
		return err_set(
			err, strstr(buf_str(&words), "No space left") ? ENOSPC : EIO,
			"the base image cannot be unpacked into a folder: %s (qemu-img and debugfs of the package "
			"e2fsprogs do that)",
			words.n ? buf_str(&words) : "a file of it is missing");
	return rc;
}

/* One unpacks, others wait for it. */
static int take_turn(const char *dir, const atomic_bool *cancel, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/tree.lock", dir);
	CLEAN_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, errno, "cannot open %s", path);
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (cancel && atomic_load(cancel))
			return err_set(err, ECANCELED, "waiting for the base image was stopped");
		clock_sleep_ms(50);
	}
	return take_fd(&fd);
}

int image_tree(const char *dir, const atomic_bool *cancel, void (*say)(void *arg, const char *line), void *arg,
	       char **tree, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/tree", dir);
	CLEAN_FREE char *work = xasprintf("%s/tree.new", dir);
	CLEAN_FREE char *made = xasprintf("%s/tree", work);
	CLEAN_FD int turn = take_turn(dir, cancel, err);
	int rc = turn < 0 ? turn : 0;
	if (!rc && !file_exists(path)) {
		if (say)
			say(arg, "base image: unpacking it for containers");
		rc = dir_remove(work, err); /* of one that was killed */
		rc = rc ? rc : dir_make(work, 0700, err);
		rc = rc ? rc : unpack(dir, work, cancel, err);
		if (!rc && rename(made, path))
			rc = err_sys(err, errno, "cannot make %s", path);
		dir_remove(work, NULL);
	}
	*tree = rc ? NULL : take(path);
	return rc;
}
