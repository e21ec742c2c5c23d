/* The jail of one QEMU: bubblewrap's command line. A guest that breaks out of QEMU finds namespaces of its own with no
 * network, no process but itself, no privileges, the system's programs and its image read-only, and its one disk. */
#pragma once
#include "backend/base/err.h"

#define JAIL_PROGRAM "bwrap"

struct jail {
	const char *image;  /* folder that is shown read-only: kernel, initrd, the disk that overlays lie on */
	const char *bases;  /* more folders that are shown read-only, one a line; at most four. May be NULL */
	const char *disk;   /* the one file that may be written */
	const char *device; /* one that it may use, or NULL */
	const char *open;   /* folder of QEMU where it is not below /usr, or NULL */
};

struct jail_args {
	const char *v[96];
	char *own[16]; /* those that are ours to free */
	int n, owned;
};

/* Begins a command line: what follows in v is the program that runs inside. Adds no end. */
void jail_begin(const struct jail *j, struct jail_args *a);
void jail_release(struct jail_args *a);
/* Starts a program that does nothing in such a jail. -ENOENT: no bubblewrap; -EPERM: this machine forbids it, words say
 * what to change. Any thread; blocks for some 20 ms. */
int jail_possible(struct err *err);
