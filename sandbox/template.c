/* Makes a template's folder out of the disk of a VM that was shut down. Worker threads. Must never leave a disk in that
 * folder that is not whole, and never change one that is there. */
#include "template.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "driver.h"
#include "image.h"

#define CHECK_MS  600000
#define SQUASH_MS 3600000
#define LIST_MAX  65536

static char *in(const char *dir, const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

/* The first line of a file; malloc'd, or NULL. */
static char *note_of(const char *dir, const char *name)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *path = in(dir, name);
	return file_read(path, &b, LIST_MAX, NULL) ? NULL : xstrndup(buf_str(&b), strcspn(buf_str(&b), "\n"));
}

int template_bases(const char *dir, char **image, struct buf *bases, struct err *err)
{
	CLEAN_FREE char *disk = in(dir, "disk.qcow2");
	CLEAN_FREE char *list = in(dir, "bases");
	CLEAN_FREE char *from = note_of(dir, "image");
	if (!from || !file_exists(disk))
		return err_set(err, ENOENT, "the template %s is gone", dir);
	if (!file_exists(from))
		return err_set(err, ENOENT, "the base image %s of the template %s is gone", from, dir);
	buf_addf(bases, "%s\n", dir);
	int rc = file_read(list, bases, LIST_MAX, err);
	if (!rc)
		*image = take(from);
	return rc;
}

/* Runs qemu-img; its exit code, or -errno. */
static int img(const char *const *argv, int ms, struct buf *said, struct err *err)
{
	return child_run(&(struct child){.argv = argv, .out = said, .errout = said, .max = 4096, .timeout_ms = ms},
			 err);
}

static int img_failed(const char *what, const struct buf *said, struct err *err)
{
	int code = strstr(buf_str(said), "No space left") ? ENOSPC : EIO;
	return err_set(err, code, "%s: %.*s", what, (int)strcspn(buf_str(said), "\n"), buf_str(said));
}

static int sync_path(const char *path, struct err *err)
{
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 || fsync(fd) ? err_sys(err, errno, "cannot write %s", path) : 0;
}

/* The blocks of all templates below it come into the disk, which then lies on the image alone. Not by `convert -B`,
 * which takes only those of the disk itself. What it lies on is changed last: a repeat after a cut does what is left.
 */
static int squash(const char *folder, const char *image, const char *disk, struct err *err)
{
	CLEAN_BUF struct buf said = BUF_INIT;
	CLEAN_FREE char *list = in(folder, "bases");
	CLEAN_FREE char *base = in(image, "disk.qcow2");
	const char *argv[] = {"qemu-img", "rebase", "-b", base, "-F", "qcow2", "-f", "qcow2", disk, NULL};
	int rc = img(argv, SQUASH_MS, &said, err);
	if (rc > 0)
		rc = img_failed("the template's disk cannot be made one", &said, err);
	return rc ? rc : file_write(list, "", 0, 0600, err);
}

static size_t lines(const char *text)
{
	size_t n = 0;
	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* It was powered off by request, and its file is sound. */
static int is_clean(const char *folder, const char *disk, struct err *err)
{
	CLEAN_BUF struct buf said = BUF_INIT;
	CLEAN_FREE char *ended = note_of(folder, "ended");
	if (!ended || strncmp(ended, "powered off", strlen("powered off")))
		return err_set(err, EAGAIN, "the VM was not shut down cleanly: %s", ended ? ended : "it was cut off");
	int rc = img((const char *const[]){"qemu-img", "check", "-q", disk, NULL}, CHECK_MS, &said, err);
	/* 3: blocks that nothing refers to; they cost room only */
	return rc < 0 ? rc : rc && rc != 3 ? img_failed("the VM's disk is damaged", &said, err) : 0;
}

/* What belongs to the disk stands beside its place before it comes there. */
static int publish(const char *folder, const char *image, const char *disk, const char *to, struct err *err)
{
	CLEAN_BUF struct buf bases = BUF_INIT;
	CLEAN_FREE char *list = in(folder, "bases");
	CLEAN_FREE char *its_list = in(to, "bases");
	CLEAN_FREE char *its_image = in(to, "image");
	CLEAN_FREE char *its_disk = in(to, "disk.qcow2");
	CLEAN_FREE char *line = xasprintf("%s\n", image);
	int rc = dir_make(to, 0700, err);
	rc = rc ? rc : file_read(list, &bases, LIST_MAX, err);
	rc = rc ? rc : file_write(its_list, buf_str(&bases), bases.n, 0600, err);
	rc = rc ? rc : file_write(its_image, line, strlen(line), 0600, err);
	rc = rc ? rc : image_use(image, to, err);
	if (!rc && chmod(disk, 0444))
		rc = err_sys(err, errno, "cannot write %s", disk);
	rc = rc ? rc : sync_path(disk, err);
	rc = rc ? rc : sandbox_move(disk, its_disk, err);
	return rc ? rc : sync_path(to, err);
}

int template_save(const struct paths *paths, const char *folder, const char *to, bool *alone, struct err *err)
{
	CLEAN_BUF struct buf bases = BUF_INIT;
	CLEAN_FREE char *disk = in(folder, "disk.qcow2");
	CLEAN_FREE char *there = in(to, "disk.qcow2");
	CLEAN_FREE char *list = in(file_exists(disk) ? folder : to, "bases");
	CLEAN_FREE char *image = note_of(folder, "image");
	int rc = file_read(list, &bases, LIST_MAX, err);
	if (rc)
		return rc;
	size_t n = lines(buf_str(&bases));
	*alone = !n;
	if (!file_exists(disk))
		return file_exists(there) ? 0 : err_set(err, ENOENT, "there is no disk in %s", folder);
	if (!image)
		return err_set(err, ENOENT, "the image of the disk in %s is not known", folder);
	CLEAN_FD int hold = image_hold(paths, err);
	rc = hold < 0 ? hold : is_clean(folder, disk, err);
	if (!rc && n + 1 > TEMPLATE_DEPTH) {
		rc = squash(folder, image, disk, err);
		*alone = true;
	}
	return rc ? rc : publish(folder, image, disk, to, err);
}
