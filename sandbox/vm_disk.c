/* The disks that VMs run on: overlays over the base image or a template, or copies of one that has booted before.
 * Blocks; worker threads only. Must never change what a disk lies on. */
#include "vm_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "driver.h"
#include "image.h"
#include "kvm.h"
#include "template.h"
#include "vm_talk.h"
#include "warm.h"

int vm_disk_empty(const char *base, const char *disk, struct err *err)
{
	CLEAN_FREE char *tmp = xasprintf("%s.new", disk);
	CLEAN_BUF struct buf out = BUF_INIT;
	const char *argv[] = {"qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", tmp, NULL};
	unlink(tmp);
	int rc = child_run(&(struct child){.argv = argv, .out = &out, .errout = &out, .timeout_ms = 60000}, err);
	if (rc > 0)
		rc = err_set(err, strstr(buf_str(&out), "No space left") ? ENOSPC : EIO,
			     "cannot make the VM's disk: %s", buf_str(&out));
	CLEAN_FD int fd = rc ? -1 : open(tmp, O_RDONLY | O_CLOEXEC);
	if (!rc && (fd < 0 || fsync(fd) || rename(tmp, disk)))
		rc = err_sys(err, errno, "cannot make the VM's disk");
	if (rc)
		unlink(tmp);
	return rc;
}

/* The folder with the disk that an overlay lies on; malloc'd. */
static char *base_folder(const char *image, const char *bases)
{
	return *bases ? xstrndup(bases, strcspn(bases, "\n")) : xstrdup(image);
}

/* The image folder is noted before the disk is there, and counts as used from then on. bases: see keeper.h; the first
 * of them holds the backing file. */
static int make_disk(const struct sandbox_spec *spec, const char *image, const char *bases, struct err *err)
{
	struct sandbox_size size;
	CLEAN_FREE char *warm = vm_file(spec->paths, spec->id, WARM_SAVED);
	CLEAN_FREE char *folder = vm_folder(spec->paths, spec->id);
	CLEAN_FREE char *note = vm_file(spec->paths, spec->id, "image");
	CLEAN_FREE char *disk = vm_file(spec->paths, spec->id, "disk.qcow2");
	CLEAN_FREE char *line = xasprintf("%s\n", image);
	CLEAN_FREE char *list = vm_file(spec->paths, spec->id, "bases");
	CLEAN_FREE char *base = base_folder(image, bases);
	CLEAN_FREE char *base_disk = xasprintf("%s/disk.qcow2", base);
	int rc = file_write(note, line, strlen(line), 0600, err);
	if (!rc)
		rc = image_use(image, folder, err);
	if (!rc)
		rc = file_write(list, bases, strlen(bases), 0600, err);
	if (rc)
		return rc;
	/* whatever keeps it from being a copy, it can be an empty one */
	if (!spec->pristine && !sandbox_size(spec->size, &size) &&
	    !warm_copy(base, &size, vm_disk_kvm(spec), disk, warm, NULL))
		return 0;
	return vm_disk_empty(base_disk, disk, err);
}

static int create_from(const struct sandbox_spec *spec, struct err *err)
{
	CLEAN_FREE char *image = NULL;
	CLEAN_BUF struct buf bases = BUF_INIT;
	CLEAN_FD int hold = image_hold(spec->paths, err);
	if (hold < 0)
		return hold;
	int rc = template_bases(spec->template, &image, &bases, err);
	return rc ? rc : make_disk(spec, image, buf_str(&bases), err);
}

/* The base image is built if there is none, and nobody can remove it while the disk is made. */
int vm_disk_make(const struct sandbox_spec *spec, struct err *err)
{
	if (spec->template)
		return create_from(spec, err);
	for (int tries = 0;; tries++) {
		struct image im = {0};
		CLEAN_FD int hold = image_hold(spec->paths, err);
		if (hold < 0)
			return hold;
		int rc = image_current(spec->paths, &im, err);
		if (!rc) {
			rc = make_disk(spec, im.dir, "", err);
			image_release(&im);
			return rc;
		}
		if (rc != -ENOENT || tries == 2)
			return rc;
		fd_close(&hold);
		sandbox_say(spec, "there is no base image yet: building it");
		rc = image_build(spec->paths, false, spec->cancel, spec->progress, spec->arg, err);
		if (rc)
			return rc;
	}
}

int vm_disk_image(const struct sandbox_spec *spec, char **dir, struct err *err)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *note = vm_file(spec->paths, spec->id, "image");
	int rc = file_read(note, &b, 4096, err);
	if (rc)
		return rc;
	*dir = xstrndup(buf_str(&b), strcspn(buf_str(&b), "\n"));
	if (file_exists(*dir))
		return 0;
	rc = err_set(err, ENOENT, "the base image that this VM's disk was made from is gone: %s", *dir);
	free(take(*dir));
	return rc;
}

int vm_disk_bases(const struct sandbox_spec *spec, struct err *err)
{
	CLEAN_BUF struct buf bases = BUF_INIT;
	CLEAN_FREE char *note = vm_file(spec->paths, spec->id, "bases");
	file_read(note, &bases, 65536, NULL);
	char *rest = bases.n ? bases.p : NULL;
	for (char *line; (line = strsep(&rest, "\n"));)
		if (*line && !file_exists(line))
			return err_set(err, ENOENT, "the template that this VM's disk was made from is gone: %s", line);
	return 0;
}

int vm_disk_base(const struct sandbox_spec *spec, char **dir, struct err *err)
{
	CLEAN_BUF struct buf bases = BUF_INIT;
	CLEAN_FREE char *image = NULL;
	CLEAN_FREE char *note = vm_file(spec->paths, spec->id, "bases");
	int rc = vm_disk_image(spec, &image, err);
	if (rc)
		return rc;
	file_read(note, &bases, 65536, NULL); /* none: the image alone */
	*dir = base_folder(image, buf_str(&bases));
	return 0;
}

bool vm_disk_kvm(const struct sandbox_spec *spec)
{
	CLEAN_FREE char *image = NULL;
	CLEAN_BUF struct buf why = BUF_INIT;
	return !vm_disk_image(spec, &image, NULL) && kvm_works(spec->paths, image, &why);
}
