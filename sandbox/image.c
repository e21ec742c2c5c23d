/* The folder of base images: finding the right one, listing, removing. Blocks shortly; any thread. What is in use by a
 * sandbox is never removed. */
#include "image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "cpio.h"
#include "guest_image.h"
#include "image_job.h"
#include "image_store.h"
#include "sandbox.h"

char *image_root(const struct paths *paths)
{
	return xasprintf("%s/images", paths->cache);
}

/* SHA-256 in hex; malloc'd. */
static char *sha256_hex(const void *p, size_t n)
{
	unsigned char sum[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	if (!EVP_Digest(p, n, sum, &len, EVP_sha256(), NULL))
		abort();
	CLEAN_BUF struct buf hex = BUF_INIT;
	for (unsigned i = 0; i < len; i++)
		buf_addf(&hex, "%02x", sum[i]);
	return buf_take(&hex);
}

char *image_recipe_hash(const char *suite)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_addf(&b, "suite %s\nkernel %s\n", suite, IMAGE_KERNEL);
	image_recipe(&b);
	return sha256_hex(b.p, b.n);
}

void image_sweep(const char *images)
{
	DIR *d = opendir(images);
	for (struct dirent *e; d && (e = readdir(d));) {
		CLEAN_FREE char *path = xasprintf("%s/%s", images, e->d_name);
		if (!strncmp(e->d_name, IMAGE_TMP, strlen(IMAGE_TMP)))
			image_discard(path);
	}
	if (d)
		closedir(d);
}

/* ---- reading ---- */

void image_release(struct image *im)
{
	free(im->dir);
	free(im->name);
	free(im->recipe);
	free(im->kernel);
	*im = (struct image){0};
}

static bool complete(const char *dir)
{
	static const char *const parts[] = {"disk.qcow2", "vmlinux", "modules.cpio"};
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		CLEAN_FREE char *path = xasprintf("%s/%s", dir, parts[i]);
		if (!file_exists(path))
			return false;
	}
	return true;
}

static int load(const char *images, const char *name, struct image *im)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *manifest = xasprintf("%s/%s/manifest", images, name);
	*im = (struct image){.dir = xasprintf("%s/%s", images, name), .name = xstrdup(name)};
	if (file_read(manifest, &b, 65536, NULL) || !complete(im->dir)) {
		image_release(im);
		return -ENOENT;
	}
	CLEAN_FREE char *text = buf_take(&b);
	char *save = NULL;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *value = strstr(line, " = ");
		if (!value)
			continue;
		*value = 0;
		value += 3;
		if (!strcmp(line, "recipe") && !im->recipe)
			im->recipe = xstrdup(value);
		else if (!strcmp(line, "kernel") && !im->kernel)
			im->kernel = xstrdup(value);
		else if (!strcmp(line, "built-ms"))
			im->built_ms = strtoll(value, NULL, 10);
	}
	if (im->recipe)
		return 0;
	image_release(im);
	return -ENOENT;
}

static int by_age(const void *a, const void *b)
{
	const struct image *x = a, *y = b;
	return (x->built_ms < y->built_ms) - (x->built_ms > y->built_ms);
}

/* All images, newest first; recipe: the current one, or NULL. */
static struct image *load_all(const struct paths *paths, const char *recipe, size_t *n)
{
	CLEAN_FREE char *images = image_root(paths);
	struct image *all = NULL, im;
	DIR *d = opendir(images);
	*n = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		if (strncmp(e->d_name, "base-", 5) || load(images, e->d_name, &im))
			continue;
		im.current = recipe && !strcmp(im.recipe, recipe);
		all = xrealloc(all, (*n + 1) * sizeof *all);
		all[(*n)++] = im;
	}
	if (d)
		closedir(d);
	if (*n)
		qsort(all, *n, sizeof *all, by_age);
	return all;
}

static void free_all(struct image *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		image_release(&all[i]);
	free(all);
}

/* All that apt's answer depends on. It is asked anew when any of that has changed: it takes half a second of a
 * processor, which is more than a whole warm start. */
static void sources_state(struct buf *key)
{
	static const char *const places[] = {"/etc/apt",	  "/etc/apt/sources.list", "/etc/apt/sources.list.d",
					     "/etc/apt/apt.conf", "/etc/apt/apt.conf.d",   "/var/lib/apt/lists",
					     "/etc/os-release",	  "/usr/lib/os-release"};
	CLEAN_FREE char *program = image_recipe_hash("");
	buf_addf(key, "%s", program);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		struct stat st = {0};
		stat(places[i], &st);
		buf_addf(key, " %lld.%09ld", (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
		DIR *d = S_ISDIR(st.st_mode) && i ? opendir(places[i]) : NULL;
		for (struct dirent *e; d && i < 5 && (e = readdir(d));)
			if (!fstatat(dirfd(d), e->d_name, &st, 0) && S_ISREG(st.st_mode))
				buf_addf(key, "+%llx.%09lx", (unsigned long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
		if (d)
			closedir(d);
	}
	buf_addc(key, '\n');
}

/* The note is "STATE\nHASH\n"; whoever cannot write it asks each time. */
static int current_recipe(const struct paths *paths, char **recipe, struct err *err)
{
	CLEAN_BUF struct buf key = BUF_INIT;
	CLEAN_BUF struct buf old = BUF_INIT;
	CLEAN_FREE char *note = xasprintf("%s/images/recipe", paths->cache);
	CLEAN_FREE char *suite = NULL;
	char **sources = NULL;
	sources_state(&key);
	if (!file_read(note, &old, 1 << 20, NULL) && old.n == key.n + 65 && !memcmp(old.p, key.p, key.n)) {
		*recipe = xstrndup(old.p + key.n, 64);
		return 0;
	}
	int rc = image_sources(&suite, &sources, err);
	image_sources_free(sources);
	*recipe = rc ? NULL : image_recipe_hash(suite);
	if (rc)
		return rc;
	buf_addf(&key, "%s\n", *recipe);
	file_write(note, key.p, key.n, 0600, NULL);
	return 0;
}

int image_current(const struct paths *paths, struct image *out, struct err *err)
{
	CLEAN_FREE char *recipe = NULL;
	int rc = current_recipe(paths, &recipe, err);
	if (rc)
		return rc;
	size_t n;
	struct image *all = load_all(paths, recipe, &n);
	rc = -ENOENT;
	for (size_t i = 0; i < n && rc; i++)
		if (all[i].current) {
			*out = all[i];
			all[i] = (struct image){0};
			rc = 0;
		}
	free_all(all, n);
	return rc ? err_set(err, ENOENT, "there is no base image yet: berthfs image build") : 0;
}

int image_initrd(const char *dir, char **path, struct err *err)
{
	CLEAN_FREE char *hash = sha256_hex(guest_image, guest_image_size);
	CLEAN_FREE char *modules = xasprintf("%s/modules.cpio", dir);
	CLEAN_BUF struct buf b = BUF_INIT;
	*path = xasprintf("%s/initrd-%.12s", dir, hash);
	if (file_exists(*path))
		return 0;
	int rc = file_read(modules, &b, 64 << 20, err);
	if (!rc) {
		cpio_file(&b, "init", 0755, guest_image, guest_image_size);
		cpio_end(&b);
		rc = file_write(*path, b.p, b.n, 0644, err);
	}
	if (rc) {
		free(*path);
		*path = NULL;
	}
	return rc;
}

/* ---- who uses it ---- */

static int hold(const struct paths *paths, int how, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/images/use.lock", paths->cache);
	CLEAN_FREE char *images = image_root(paths);
	int rc = dir_make(images, 0700, err);
	if (rc)
		return rc;
	CLEAN_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, errno, "cannot open %s", path);
	while (flock(fd, how))
		if (errno != EINTR)
			return err_sys(err, errno, "cannot lock %s", path);
	return take_fd(&fd);
}

int image_hold(const struct paths *paths, struct err *err)
{
	return hold(paths, LOCK_SH, err);
}

int image_use(const char *dir, const char *folder, struct err *err)
{
	CLEAN_FREE char *hash = sha256_hex(folder, strlen(folder));
	CLEAN_FREE char *link = xasprintf("%s/users/%.24s", dir, hash);
	if (symlink(folder, link) && errno != EEXIST)
		return err_sys(err, errno, "cannot make %s", link);
	return 0;
}

/* A link whose sandbox is gone, or is made from another image by now, does not count. */
static bool still_used(const char *dir, const char *folder)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *note = xasprintf("%s/image", folder);
	if (file_read(note, &b, 4096, NULL))
		return false;
	return strlen(dir) == strcspn(buf_str(&b), "\n") && !strncmp(dir, buf_str(&b), strlen(dir));
}

int image_users(const char *dir)
{
	CLEAN_FREE char *users = xasprintf("%s/users", dir);
	DIR *d = opendir(users);
	int n = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		char folder[4096];
		ssize_t len = readlinkat(dirfd(d), e->d_name, folder, sizeof folder - 1);
		if (len <= 0)
			continue;
		folder[len] = 0;
		n += still_used(dir, folder);
	}
	if (d)
		closedir(d);
	return n;
}

/* ---- the verbs list and rm ---- */

/* Trees without a disk. */
static void list_trees(const struct paths *paths, struct buf *out)
{
	CLEAN_FREE char *images = image_root(paths);
	DIR *d = opendir(images);
	for (struct dirent *e; d && (e = readdir(d));) {
		CLEAN_FREE char *dir = xasprintf("%s/%s", images, e->d_name);
		if (!strncmp(e->d_name, IMAGE_TREE, strlen(IMAGE_TREE)))
			buf_addf(out, "%-22s %-5s %-9s %-10d for containers\n", e->d_name, "", "", image_users(dir));
	}
	if (d)
		closedir(d);
}

int image_list(const struct paths *paths, struct buf *out, struct err *err)
{
	CLEAN_FREE char *recipe = NULL;
	size_t n;
	current_recipe(paths, &recipe, NULL);
	struct image *all = load_all(paths, recipe, &n);
	if (n)
		buf_addf(out, "%-22s %-5s %-9s %-10s %s\n", "NAME", "AGE", "SIZE", "SANDBOXES", "KERNEL");
	else
		buf_adds(out, "no base image: berthfs image build\n");
	for (size_t i = 0; i < n; i++) {
		char age[CLOCK_TEXT];
		struct stat st = {0};
		CLEAN_FREE char *disk = xasprintf("%s/disk.qcow2", all[i].dir);
		stat(disk, &st);
		CLEAN_FREE char *size = xasprintf("%lld MiB", (long long)st.st_blocks * 512 >> 20);
		buf_addf(out, "%-22s %-5s %-9s %-10d %s%s\n", all[i].name,
			 clock_age(clock_real_ms() - all[i].built_ms, age), size, image_users(all[i].dir),
			 all[i].kernel ? all[i].kernel : "?", all[i].current ? "" : " (old recipe)");
	}
	free_all(all, n);
	list_trees(paths, out);
	return 0;
}

int image_remove(const struct paths *paths, const char *name, struct err *err)
{
	CLEAN_FREE char *dir = xasprintf("%s/images/%s", paths->cache, name);
	CLEAN_FREE char *gone = xasprintf("%s/images/" IMAGE_TMP "rm-%s", paths->cache, name);
	if ((strncmp(name, "base-", 5) && strncmp(name, IMAGE_TREE, strlen(IMAGE_TREE))) || strchr(name, '/') ||
	    !file_exists(dir))
		return err_set(err, ENOENT, "there is no base image %s: berthfs image list", name);
	CLEAN_FD int lock = hold(paths, LOCK_EX, err);
	if (lock < 0)
		return lock;
	int users = image_users(dir);
	if (users)
		return err_set(err, EBUSY, "%d sandbox%s made from %s: destroy %s first", users,
			       users == 1 ? " is" : "es are", name, users == 1 ? "its session" : "their sessions");
	/* Out of the way in one step; a removal that is cut off is finished by the next build. */
	if (rename(dir, gone))
		return err_sys(err, errno, "cannot remove %s", dir);
	return dir_remove(gone, err);
}
