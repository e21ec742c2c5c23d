/* Copies of a VM's disk: for a snapshot, back from one, and for a session that begins as another. What runs stands
 * still meanwhile, so that the file is as QEMU has left it when it stopped; the guest's file system is then as after a
 * power cut, but for what was flushed before. Blocks; worker threads only. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "driver.h"
#include "image.h"
#include "keeper.h"
#include "vm_talk.h"

#define HOLD_MS	  20000 /* for a VM that is just starting, stopping or waking to be done with it */
#define LOOK_MS	  50
#define STATUS_MS 5000
#define LIST_MAX  65536

/* Descriptor of a keeper that keeps its guest still until it is closed; -ENOTCONN: nothing runs. */
static int hold(const struct sandbox_copy *c, struct err *err)
{
	int64_t end = clock_mono_ms() + HOLD_MS;
	for (;; clock_sleep_ms(LOOK_MS)) {
		struct err why = ERR_INIT;
		int fd = vm_request(c->paths, c->from, "hold\n", clock_mono_ms() + STATUS_MS, NULL, &why);
		bool busy = fd == -EIO && !strncmp(why.text, KEEPER_BUSY, strlen(KEEPER_BUSY));
		if (fd >= 0 || fd == -ENOTCONN)
			return fd;
		if (c->cancel && atomic_load(c->cancel))
			return err_set(err, ECANCELED, "stopped");
		if (!busy || clock_mono_ms() >= end)
			return err_set(err, EBUSY, "the VM cannot be held for a copy of its disk: %s", why.text);
	}
}

/* What the disk lies on, noted for another sandbox before it has the disk, so that it counts as used. */
static int copy_notes(const struct sandbox_copy *c, struct err *err)
{
	static const char *const notes[] = {"image", "bases"};
	CLEAN_FREE char *folder = vm_folder(c->paths, c->to);
	CLEAN_BUF struct buf image = BUF_INIT;
	int rc = dir_make(folder, 0700, err);
	for (size_t i = 0; !rc && i < ARRAY_LEN(notes); i++) {
		CLEAN_FREE char *from = vm_file(c->paths, c->from, notes[i]), *to = vm_file(c->paths, c->to, notes[i]);
		CLEAN_BUF struct buf b = BUF_INIT;
		rc = file_read(from, &b, LIST_MAX, err);
		rc = rc ? rc : file_write(to, buf_str(&b), b.n, 0600, err);
		if (!i)
			buf_add(&image, b.p, strcspn(buf_str(&b), "\n"));
	}
	return rc ? rc : image_use(buf_str(&image), folder, err);
}

int vm_copy(const struct sandbox_copy *c, struct err *err)
{
	CLEAN_FREE char *save = c->from_save ? xasprintf("saves/%s.qcow2", c->from_save) : xstrdup("disk.qcow2");
	CLEAN_FREE char *into = c->to_save ? xasprintf("saves/%s.qcow2", c->to_save) : xstrdup("disk.qcow2");
	CLEAN_FREE char *from = vm_file(c->paths, c->from, save), *to = vm_file(c->paths, c->to, into);
	CLEAN_FREE char *saves = vm_file(c->paths, c->to, "saves");
	CLEAN_FREE char *memory = vm_file(c->paths, c->from, KEEPER_MEMORY);
	CLEAN_FREE char *fresh = vm_file(c->paths, c->to, KEEPER_FRESH);
	CLEAN_FD int holder = -1;
	int rc = 0;
	if (!c->from_save) {
		holder = hold(c, err);
		rc = holder < 0 && holder != -ENOTCONN ? holder : 0;
		if (!rc && holder < 0 && file_exists(memory))
			rc = err_set(err, EBUSY, "the VM hibernates: a part of its files is in its memory only");
	}
	if (!rc && c->to != c->from)
		rc = copy_notes(c, err);
	if (!rc && c->to != c->from)
		rc = file_write(fresh, "", 0, 0600, err);
	if (!rc && c->to_save)
		rc = dir_make(saves, 0700, err);
	return rc ? rc : sandbox_copy_tree(from, to, c->cancel, err);
}
