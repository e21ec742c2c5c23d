/* Inside of the image builder: one build and its steps. One thread. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/child.h"
#include "backend/base/err.h"

#define IMAGE_STEPS  6
#define IMAGE_KERNEL "linux-image-cloud-amd64" /* Debian's kernel for virtual machines: small, PVH */

struct image_job {
	char *tmp;	/* folder of this build, in CACHE/images */
	char *suite;	/* bookworm */
	char *kernel;	/* linux-image-6.1.0-57-cloud-amd64 */
	char **sources; /* the machine's files with its distribution's sources, NULL-terminated */
	const atomic_bool *cancel;
	void (*progress)(void *arg, const char *line);
	void *arg;
	int step;
	struct {			    /* of the step that runs */
		int total, fetched, halves; /* packages; halves: unpacked, set up */
		int64_t told_ms;
	} count;
	struct buf tail; /* the last lines of a program's output, for error words */
};

/* "base image 2 of 6: words" */
__attribute__((format(printf, 2, 3))) void build_tell(struct image_job *job, const char *fmt, ...);
void build_step(struct image_job *job, int step, const char *words);
/* Runs a program in job->tmp; its lines go to line (may be NULL). 0, or -errno with words that carry the program's own
 * last complaint; -ENOSPC if the disk is full. env as in struct child. */
int build_run(struct image_job *job, const char *const *argv, const char *const *env,
	      void (*line)(struct image_job *job, const char *line), struct err *err);
char *build_path(const struct image_job *job, const char *name); /* malloc'd */

/* How a root file system with other owners than us can be made here. */
struct image_mode {
	const char *name;	 /* of mmdebstrap's mode: root, unshare, fakechroot */
	const char *const *wrap; /* words before a program that has to see itself as root */
};
/* -EPERM with words on what to install. */
int image_mode(struct image_mode *out, struct err *err);

/* The steps. sources: needed by the others, and by the recipe; only reads apt's settings. */
int image_sources(char **suite, char ***sources, struct err *err);
void image_sources_free(char **sources);
int image_fetch_kernel(struct image_job *job, struct err *err);	 /* step 1: the .deb in tmp/kernel */
int image_unpack_kernel(struct image_job *job, struct err *err); /* step 2: vmlinux, modules.cpio */
int image_install(struct image_job *job, struct err *err);	 /* step 3: tmp/root.tar */
int image_format(struct image_job *job, struct err *err);	 /* steps 4 and 5: disk.qcow2 */
/* Removes the folder of a build, finished or not, with whatever the steps left elsewhere. */
void image_discard(const char *tmp);
/* Words that say what the disk is made by; a change of them is a new recipe. */
void image_recipe(struct buf *out);
