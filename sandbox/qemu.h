/* Starts QEMU for one VM. Keeper's thread only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

#define QEMU_PROGRAM "qemu-system-x86_64"

struct qemu_spec {
	const char *vmlinux, *initrd; /* absolute, in one folder: it is shown to QEMU read-only */
	const char *disk;	      /* qcow2; absolute */
	const char *bases;	      /* folders that its backing files are in beside that of vmlinux, one a line */
	const char *host;	      /* host name of the guest */
	bool fresh;		      /* the disk has another machine's identity: the guest gives itself its own */
	int cpus, memory_mib;
	bool kvm;      /* runs on the host's processors (kvm.h); else they are emulated */
	long khz;      /* of the host's time stamp counter (tsc.h), as the guest is told it; 0: not told */
	bool incoming; /* does not boot: waits for a state of its devices (QMP migrate-incoming, then cont) */
	int lock_fd;   /* kept open by QEMU, so that the lock outlives a keeper that is killed */
};

struct qemu {
	pid_t pid;   /* of the jail: QEMU is below it and ends with it */
	int port;    /* the guest's virtio-serial port: a socket */
	int qmp;     /* control protocol: a socket */
	int console; /* serial console and QEMU's own messages: a pipe to read */
};

/* It runs in a jail (jail.h) and is killed by the kernel when the calling thread ends. Descriptors in out belong to the
 * caller. -ENOENT: no such program. */
int qemu_start(const struct qemu_spec *spec, struct qemu *out, struct err *err);

/* All that the memory of such a VM is valid for, a line each: "NAME = VALUE". Any thread. */
void qemu_key(const struct qemu_spec *spec, struct buf *key);
/* Whether memory with the key `saved` can go on under the key `now` (whose khz is not looked at: it is measured, for
 * 60 ms, where the host has started again meanwhile). Words name the first thing that is another. */
bool qemu_key_fits(const char *saved, const char *now, struct err *err);
long qemu_key_khz(const char *saved); /* 0: none in it */
/* The same for a file's name, 16 hex digits, but for the host's clock, which only a comparison can tell. */
#define QEMU_KEY_NAME 17
void qemu_key_name(const struct qemu_spec *spec, char out[QEMU_KEY_NAME]);
/* For those two: the words that describe the devices, and the program's real path or NULL (malloc'd). */
void qemu_devices(const struct qemu_spec *spec, struct buf *out);
char *qemu_path(void);
/* The folder of a QEMU that lies outside of /usr, for its jail; malloc'd; NULL: it is where all systems have it. */
char *qemu_elsewhere(void);
/* What the guest's kernel is told, but for what our own program in it is; malloc'd. khz: as in qemu_spec. */
char *qemu_kernel_words(long khz);
