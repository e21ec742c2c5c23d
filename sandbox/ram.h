/* The memory of a VM and a file that holds it, with the state of its devices: what hibernation and warm starts are made
 * of. QEMU keeps the guest's memory in a memfd (shared, so that its own migration leaves it out); the keeper, which is
 * outside of the jail, opens that and copies it. So the time depends on what the guest uses, not on its size.
 *
 * A file of memory: a page with the head and the key, the pages that are not zero, packed; where they belong; the state
 * of the devices. Sums guard against damage. Any thread; blocks. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

/* The memory of the QEMU below the process `above` (its jail): a descriptor, or -errno. */
int ram_find(pid_t above, struct err *err);

/* Writes a file at path, whole and on disk when this returns; removed if it fails. The guest must not run. state: a
 * file with the state of the devices. */
int ram_save(int ram, int state, const char *key, const char *path, struct err *err);
/* Its key. -EBADMSG: no file of memory, or a damaged one. */
int ram_key(const char *path, struct buf *key, struct err *err);
/* Copies it into a memory that holds nothing yet, and the state of the devices into a file that is empty. -EBADMSG:
 * damaged; -EINVAL: of another size. */
int ram_load(const char *path, int ram, int state, struct err *err);
