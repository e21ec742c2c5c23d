/* Warm starts: a VM that was booted once is saved with its memory, before it has a name or anything of a session, and
 * new VMs go on from copies of that. Kept in the folder of what the disk is made over (an image, a template), and gone
 * with it:
 *	warm/CPUSxMEMORY-KIND-ID/disk.qcow2, memory    one for each size and kind; ID: never used again
 *	warm/work                                      one that is being made
 *	warm/failed-CPUSxMEMORY-KIND                   why the last one was not made
 * KIND: a hash of all that the memory is valid for (qemu_key_name), the guest program of this build among it: builds
 *that share a folder of images take no notice of each other's. What nobody has started from for some days is taken
 *away. Any thread; blocks. */
#pragma once
#include "sandbox.h"

#define WARM_SAVED "warm" /* in a sandbox's folder: the file of memory that its disk, a copy, is in step with */

/* A disk at `disk` that is a copy, and the note of the memory that belongs to it, if there is one to start from. The
 * note is there first, and counts once the disk is there. -ENOENT: there is none. */
int warm_copy(const char *dir, const struct sandbox_size *size, bool kvm, const char *disk, const char *note,
	      struct err *err);
/* It cannot be used by this build: memory is its file of memory. If it is of this kind, it cannot be used any more, and
 * is taken away. */
void warm_drop(const char *dir, const struct sandbox_size *size, bool kvm, const char *memory);
/* Takes away what nobody has started from for some days, and all but the last few that were. */
void warm_collect(const char *dir);
/* Makes one for the size of spec, whose sandbox has just booted, in a process of its own, which has only the time that
 * nobody else wants, and ends with that sandbox. Does nothing if there is one, or if making it has failed lately. */
void warm_begin(const struct sandbox_spec *spec, const char *dir, bool kvm);
/* That process: WARM_VERB and its arguments. */
#define WARM_VERB "--warm"
int warm_main(int argc, char **argv);
