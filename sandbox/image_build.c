/* Builds a base image: the steps in order, in a temporary folder that becomes the image by a rename at the end. Killed
 * at any moment it leaves only that folder, which the next build removes. Blocks; worker threads only. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "image.h"
#include "image_job.h"
#include "image_store.h"
#include "sandbox.h"

#define SPACE_NEEDED (3ULL << 30)  /* archive, tree, raw and qcow2 disk stand side by side for a moment */
#define SPACE_NONE   (32ULL << 20) /* a step that failed with less than this left failed for that reason */
#define STEP_MS	     1800000
#define TAIL_MAX     4096

static uint64_t space_left(const char *dir)
{
	struct statvfs v;
	return statvfs(dir, &v) ? UINT64_MAX : (uint64_t)v.f_bavail * v.f_frsize;
}

char *build_path(const struct image_job *job, const char *name)
{
	return xasprintf("%s/%s", job->tmp, name);
}

void build_tell(struct image_job *job, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *words = xvasprintf(fmt, ap);
	va_end(ap);
	CLEAN_FREE char *line = xasprintf("base image %d of %d: %s", job->step, IMAGE_STEPS, words);
	if (job->progress)
		job->progress(job->arg, line);
}

void build_step(struct image_job *job, int step, const char *words)
{
	job->step = step;
	memset(&job->count, 0, sizeof job->count);
	build_tell(job, "%s", words);
}

struct line_to {
	struct image_job *job;
	void (*line)(struct image_job *job, const char *line);
};

static void on_line(void *arg, const char *line)
{
	struct line_to *to = arg;
	buf_addf(&to->job->tail, "%s\n", line);
	if (to->job->tail.n > 2 * TAIL_MAX)
		buf_drop(&to->job->tail, to->job->tail.n - TAIL_MAX);
	if (to->line)
		to->line(to->job, line);
}

/* The last line that complains ("E: ...", "error: ..."), else the last one; malloc'd. */
static char *complaint(const struct buf *tail)
{
	CLEAN_FREE char *text = xstrdup(buf_str(tail));
	char *save = NULL, *last = NULL, *best = NULL;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		last = line;
		if (!strncmp(line, "E: ", 3) || strcasestr(line, "error") || strcasestr(line, "cannot") ||
		    strcasestr(line, "failed"))
			best = line;
	}
	return xstrdup(best ? best : last ? last : "it said nothing");
}

int build_run(struct image_job *job, const char *const *argv, const char *const *env,
	      void (*line)(struct image_job *job, const char *line), struct err *err)
{
	struct line_to to = {job, line};
	const char *path = getenv("PATH");
	/* mke2fs and others are not in an ordinary user's path. */
	CLEAN_FREE char *wider = xasprintf("PATH=%s:/usr/sbin:/sbin", path ? path : "/usr/local/bin:/usr/bin:/bin");
	const char *all[8] = {wider};
	for (int n = 1; env && *env && n < 7; env++)
		all[n++] = *env;
	buf_reset(&job->tail);
	int rc = child_run(&(struct child){.argv = argv,
					   .env = all,
					   .cwd = job->tmp,
					   .timeout_ms = STEP_MS,
					   .cancel = job->cancel,
					   .line = on_line,
					   .arg = &to},
			   err);
	if (rc == 0 || rc == -ECANCELED)
		return rc;
	if (strstr(buf_str(&job->tail), "No space left on device") || space_left(job->tmp) < SPACE_NONE)
		return err_set(err, ENOSPC, "the disk is full: making a base image needs about %llu GiB in %s",
			       SPACE_NEEDED >> 30, job->tmp);
	if (rc < 0)
		return rc;
	CLEAN_FREE char *why = complaint(&job->tail);
	return err_set(err, EIO, "making the base image failed: %s: %s", argv[0], why);
}

/* ---- before ---- */

static const struct {
	const char *program, *package;
} needed[] = {
	{"mmdebstrap", "mmdebstrap"},
	{"qemu-img", "qemu-utils"},
	{"dpkg-deb", "dpkg"},
	{"tar", "tar"},
};

int image_possible(struct err *err)
{
	struct image_mode mode;
	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		if (!child_found(needed[i].program))
			return err_set(err, ENOENT, "%s is missing: install the package %s", needed[i].program,
				       needed[i].package);
	if (!child_found("mke2fs") && access("/usr/sbin/mke2fs", X_OK) && access("/sbin/mke2fs", X_OK))
		return err_set(err, ENOENT, "mke2fs is missing: install the package e2fsprogs");
	return image_mode(&mode, err);
}

/* Two builders: the second waits, and then mostly finds the image made. */
static int take_build_lock(const char *images, struct image_job *job, int *lock, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/build.lock", images);
	bool told = false;
	*lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*lock < 0)
		return err_sys(err, errno, "cannot open %s", path);
	while (flock(*lock, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_sys(err, errno, "cannot lock %s", path);
		if (job->cancel && atomic_load(job->cancel))
			return err_set(err, ECANCELED, "waiting for another build of the base image was stopped");
		if (!told && job->progress)
			job->progress(job->arg, "base image: another build is under way, waiting for it");
		told = true;
		clock_sleep_ms(100);
	}
	return 0;
}

/* ---- after ---- */

static int sync_file(const char *path, struct err *err)
{
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 || fsync(fd) ? err_sys(err, errno, "cannot write %s", path) : 0;
}

static int publish(struct image_job *job, const char *images, const char *recipe, struct err *err)
{
	CLEAN_FREE char *disk = build_path(job, "disk.qcow2");
	CLEAN_FREE char *manifest = build_path(job, "manifest");
	CLEAN_FREE char *users = build_path(job, "users");
	CLEAN_BUF struct buf b = BUF_INIT;
	char when[CLOCK_TEXT];
	int64_t now = clock_real_ms();
	build_step(job, 6, "saving");
	buf_addf(&b, "recipe = %s\nbuilt = %s\nbuilt-ms = %lld\nsuite = %s\nkernel = %s\n", recipe,
		 clock_rfc3339(now, when), (long long)now, job->suite, job->kernel);
	int rc = chmod(disk, 0444) ? err_sys(err, errno, "cannot write %s", disk) : sync_file(disk, err);
	if (!rc)
		rc = dir_make(users, 0700, err);
	/* Only what an image consists of goes along. */
	static const char *const left[] = {"apt", "work", WORK_NOTE};
	for (size_t i = 0; !rc && i < ARRAY_LEN(left); i++) {
		CLEAN_FREE char *path = build_path(job, left[i]);
		rc = dir_remove(path, err);
	}
	CLEAN_FREE char *initrd = NULL;
	if (!rc)
		rc = image_initrd(job->tmp, &initrd, err);
	if (!rc)
		rc = file_write(manifest, b.p, b.n, 0644, err);
	for (int k = 1; !rc; k++) {
		CLEAN_FREE char *to = k == 1 ? xasprintf("%s/base-%.12s", images, recipe)
					     : xasprintf("%s/base-%.12s-%d", images, recipe, k);
		if (file_exists(to))
			continue;
		if (chmod(job->tmp, 0700) || rename(job->tmp, to))
			rc = err_sys(err, errno, "cannot make %s", to);
		else
			rc = sync_file(images, err);
		break;
	}
	return rc;
}

static int build(struct image_job *job, const char *images, const char *recipe, struct err *err)
{
	job->tmp = xasprintf("%s/" IMAGE_TMP "XXXXXX", images);
	if (!mkdtemp(job->tmp))
		return err_sys(err, errno, "cannot make a folder in %s", images);
	int (*const steps[])(struct image_job *, struct err *) = {image_fetch_kernel, image_unpack_kernel,
								  image_install, image_format};
	int rc = 0;
	if (space_left(images) < SPACE_NEEDED)
		rc = err_set(err, ENOSPC, "making a base image needs about %llu GiB in %s, and there are %llu MiB",
			     SPACE_NEEDED >> 30, images, (unsigned long long)space_left(images) >> 20);
	for (size_t i = 0; !rc && i < ARRAY_LEN(steps); i++) {
		if (job->cancel && atomic_load(job->cancel))
			rc = err_set(err, ECANCELED, "making the base image was stopped");
		else
			rc = steps[i](job, err);
	}
	if (!rc)
		rc = publish(job, images, recipe, err);
	if (rc)
		image_discard(job->tmp);
	return rc;
}

static void job_release(struct image_job *job)
{
	free(job->tmp);
	free(job->suite);
	free(job->kernel);
	image_sources_free(job->sources);
	buf_release(&job->tail);
}

int image_build(const struct paths *paths, bool force, const atomic_bool *cancel,
		void (*progress)(void *arg, const char *line), void *arg, struct err *err)
{
	struct image_job job = {.cancel = cancel, .progress = progress, .arg = arg};
	struct image found = {0};
	CLEAN_FD int lock = -1;
	CLEAN_FREE char *images = image_root(paths);
	CLEAN_FREE char *recipe = NULL;
	int rc = dir_make(images, 0700, err);
	if (!rc)
		rc = take_build_lock(images, &job, &lock, err);
	if (!rc && !force && !image_current(paths, &found, NULL)) {
		image_release(&found);
		job_release(&job);
		return 0;
	}
	if (!rc)
		rc = image_possible(err);
	if (!rc)
		rc = image_sources(&job.suite, &job.sources, err);
	if (!rc) {
		image_sweep(images);
		recipe = image_recipe_hash(job.suite);
		rc = build(&job, images, recipe, err);
	}
	job_release(&job);
	return rc;
}

/* ---- the tree alone ---- */

/* All is ours, and nothing of it is a device: see image_tree.c. */
#define UNTAR                                                                                                          \
	"set -e; mkdir tree users; tar -x -f root.tar -C tree --no-same-owner --exclude='./dev/*'; rm root.tar; "      \
	"chmod -R u+rwX tree; mkdir -p tree/proc tree/sys tree/run; chmod 1777 tree/tmp tree/var/tmp; [ -x "           \
	"tree/bin/sh ]"

static int build_tree(struct image_job *job, const char *images, const char *to, struct err *err)
{
	job->tmp = xasprintf("%s/" IMAGE_TMP "XXXXXX", images);
	if (!mkdtemp(job->tmp))
		return err_sys(err, errno, "cannot make a folder in %s", images);
	CLEAN_FREE char *note = build_path(job, WORK_NOTE), *work = build_path(job, "work");
	int rc = image_install(job, err);
	if (!rc) {
		build_step(job, 4, "unpacking it for containers");
		rc = build_run(job, (const char *const[]){"sh", "-c", UNTAR, NULL}, NULL, NULL, err);
	}
	unlink(note);
	rc = rc ? rc : dir_remove(work, err);
	if (!rc && (chmod(job->tmp, 0700) || rename(job->tmp, to)))
		rc = err_sys(err, errno, "cannot make %s", to);
	if (rc)
		image_discard(job->tmp);
	return rc;
}

int image_tree_alone(const struct paths *paths, const atomic_bool *cancel,
		     void (*progress)(void *arg, const char *line), void *arg, char **dir, struct err *err)
{
	struct image_job job = {.cancel = cancel, .progress = progress, .arg = arg};
	CLEAN_FD int lock = -1;
	CLEAN_FREE char *images = image_root(paths);
	CLEAN_FREE char *recipe = NULL, *to = NULL;
	int rc = child_found("mmdebstrap") && child_found("tar")
			 ? 0
			 : err_set(err, ENOENT, "mmdebstrap is missing: install the package mmdebstrap");
	rc = rc ? rc : dir_make(images, 0700, err);
	rc = rc ? rc : take_build_lock(images, &job, &lock, err);
	rc = rc ? rc : image_sources(&job.suite, &job.sources, err);
	if (!rc) {
		recipe = image_recipe_hash(job.suite);
		to = xasprintf("%s/" IMAGE_TREE "%.12s", images, recipe);
		if (!file_exists(to)) {
			image_sweep(images);
			rc = build_tree(&job, images, to, err);
		}
	}
	*dir = rc ? NULL : take(to);
	job_release(&job);
	return rc;
}
