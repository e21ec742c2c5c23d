/* Starts QEMU for one VM. Keeper's thread only. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/err.h"

#define QEMU_PROGRAM "qemu-system-x86_64"

struct qemu_spec {
	const char *vmlinux, *initrd; /* absolute, in one folder: it is shown to QEMU read-only */
	const char *disk;	      /* qcow2; absolute */
	const char *bases;	      /* folders that its backing files are in beside that of vmlinux, one a line */
	const char *host;	      /* host name of the guest */
	int cpus, memory_mib;
	int lock_fd; /* kept open by QEMU, so that the lock outlives a keeper that is killed */
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
