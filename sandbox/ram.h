/* The memory of a VM and a file that holds it, with the state of its devices: what hibernation and warm starts are made
 * of. QEMU keeps the guest's memory in a memfd (shared, so that its own migration leaves it out); the keeper, which is
 * outside of the jail, opens that and copies it. So the time depends on what the guest uses, not on its size.
 *
 * A file of memory: a page with the head and the key, the pages that are not zero, packed; where they belong; the state
 * of the devices. Sums guard against damage. Any thread; blocks. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

/* A process, by its number and by a descriptor (pidfd), which is the caller's. */
struct ram_owner {
	pid_t pid;
	int fd;
};
/* The memory of the QEMU below the process `above` (its jail): a descriptor, or -errno. owner: that QEMU, or NULL. */
int ram_find(pid_t above, struct ram_owner *owner, struct err *err);

/* Writes a file at path, whole and on disk when this returns; removed if it fails. The guest must not run. state: a
 * file with the state of the devices. */
int ram_save(int ram, int state, const char *key, const char *path, struct err *err);
/* Its key. -EBADMSG: no file of memory, or a damaged one. */
int ram_key(const char *path, struct buf *key, struct err *err);
/* Copies it into a memory that holds nothing yet, and the state of the devices into a file that is empty. -EBADMSG:
 * damaged; -EINVAL: of another size. */
int ram_load(const char *path, int ram, int state, struct err *err);

/* ---- a memory that nobody touches ---- */

/* Pages that are not there: they are in the file. */
struct ram_lent {
	int file;
	off_t size;
	struct timespec written;
	struct buf pages;
	uint64_t sum;
};
#define RAM_LENT_INIT ((struct ram_lent){.file = -1})
void ram_lent_release(struct ram_lent *l);
uint64_t ram_lent_bytes(const struct ram_lent *l);

/* Gives the host back what of a memory is zero, or stands in the file of memory at path (NULL: none) at the same place.
 * From then until ram_back() has returned 0 nobody may look at that memory or write to it; QEMU does so even while the
 * guest is stopped. Ends early once over is true, with less. */
int ram_lend(int ram, const char *path, const atomic_bool *over, struct ram_lent *l, struct err *err);
/* It is as it was when this returns 0; else nothing is lost, and it can be tried again. -EBADMSG: the file has changed.
 */
int ram_back(int ram, const struct ram_lent *l, struct err *err);
