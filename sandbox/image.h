/* Base images: the disk and kernel that every VM starts from. They live in CACHE/images/base-RECIPE[-N]/:
 *	disk.qcow2      root file system; never changed again, since overlays refer to it
 *	vmlinux         ELF kernel
 *	modules.cpio    initial ramdisk without /init
 *	initrd-GUEST    modules.cpio and our guest program as /init; GUEST: 12 hex digits of the program's SHA-256, so a
 *	                new guest program costs no new disk, and older sandboxes boot with the new one too
 *	tree/           the same as a folder, for containers; made when the first one is
 *	manifest        "key = value" lines; written last
 *	users/          one link to the folder of each sandbox whose disk is an overlay of this image
 * RECIPE: 12 hex digits of the SHA-256 of all that the disk and kernel are made by. A forced build of the same recipe
 * gets -2, -3...: the folder of a built image is never replaced. Any thread; blocks. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/err.h"
#include "backend/base/paths.h"

struct image {
	char *dir; /* absolute */
	char *name, *recipe, *kernel;
	int64_t built_ms;
	bool current; /* made by the recipe of this program on this machine */
};

void image_release(struct image *im);
/* The newest image of the current recipe. -ENOENT: none. */
int image_current(const struct paths *paths, struct image *out, struct err *err);
/* Whether the recipe can be known here (apt is there), and in words why not. */
int image_possible(struct err *err);
/* Path of the ramdisk with this program's guest in it, made if it is not there yet. */
int image_initrd(const char *dir, char **path, struct err *err);

/* Path of the image in dir as a folder (malloc'd), unpacked if it is not there yet: some 10 s. */
int image_tree(const char *dir, const atomic_bool *cancel, void (*say)(void *arg, const char *line), void *arg,
	       char **tree, struct err *err);

/* A folder (malloc'd) with a tree of the current recipe and nothing else, CACHE/images/tree-RECIPE, made if it is not
 * there yet: for containers on machines that lack what makes disks. */
int image_tree_alone(const struct paths *paths, const atomic_bool *cancel,
		     void (*progress)(void *arg, const char *line), void *arg, char **dir, struct err *err);

/* Keeps images from being removed while an overlay is made or looked for: a shared lock, a descriptor to close. */
int image_hold(const struct paths *paths, struct err *err);
/* Notes that the sandbox in folder is made from the image (while holding). */
int image_use(const char *dir, const char *folder, struct err *err);
/* How many sandboxes that still exist are made from it. */
int image_users(const char *dir);
