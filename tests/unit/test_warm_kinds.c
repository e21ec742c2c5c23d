/* Which warm starts a build takes for its own, and what is taken away. No VM: folders alone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/image.h"
#include "sandbox/qemu.h"
#include "sandbox/warm.h"

static const struct sandbox_size size = {1, 512};
static char root[64], *disk, *note;

static char *in(const char *name)
{
	return xasprintf("%s/%s", root, name);
}

static void put(const char *name, const char *text)
{
	CLEAN_FREE char *path = in(name);
	CHECK_INT(file_write(path, text, strlen(text), 0600, NULL), 0);
}

static void begin(void)
{
	CLEAN_FREE char *warm = NULL;
	strcpy(root, "/tmp/test-warm-XXXXXX");
	CHECK(mkdtemp(root) != NULL);
	disk = in("disk");
	note = in("note");
	warm = in("warm");
	CHECK_INT(dir_make(warm, 0700, NULL), 0);
	put("vmlinux", "a kernel");
	put("modules.cpio", "");
}

static void end(void)
{
	CHECK_INT(dir_remove(root, NULL), 0);
	free(disk);
	free(note);
}

/* "1x512-KIND" of what this very build can go on from. */
static char *kind(void)
{
	char name[QEMU_KEY_NAME];
	CLEAN_FREE char *vmlinux = in("vmlinux");
	CLEAN_FREE char *initrd = NULL;
	CHECK_INT(image_initrd(root, &initrd, NULL), 0);
	qemu_key_name(&(struct qemu_spec){.vmlinux = vmlinux, .initrd = initrd, .cpus = 1, .memory_mib = 512}, name);
	return xasprintf("1x512-%s", name);
}

/* One that was used last so many seconds ago; its path. malloc'd. */
static char *make(const char *kind, const char *id, const char *text, int age)
{
	struct timespec t[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};
	CLEAN_FREE char *name = xasprintf("warm/%s-%s", kind, id);
	CLEAN_FREE char *content = xasprintf("%s/disk.qcow2", name);
	char *path = in(name);
	CHECK_INT(dir_make(path, 0700, NULL), 0);
	put(content, text);
	CHECK_INT(utimensat(AT_FDCWD, path, t, 0), 0);
	return path;
}

static void copied_is(const char *text)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CHECK_INT(warm_copy(root, &size, true, disk, note, NULL), -ENOENT); /* that ran on another machine */
	CHECK_INT(warm_copy(root, &size, false, disk, note, NULL), 0);
	CHECK_INT(file_read(disk, &b, 100, NULL), 0);
	CHECK_STR(buf_str(&b), text);
}

static int how_many(void)
{
	CLEAN_FREE char *warm = in("warm");
	DIR *d = opendir(warm);
	int n = 0;
	for (struct dirent *e; d && (e = readdir(d));)
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

TEST(only_those_of_this_build)
{
	begin();
	CLEAN_FREE char *own = kind();
	CLEAN_FREE char *other = make("1x512-0123456789abcdef", "ffffffffffff", "another build's", 0);
	CLEAN_FREE char *older_way = make("1x512", "019abcdef012", "without a kind", 0);
	CLEAN_FREE char *larger = make("2x2048-0123456789abcdef", "000000000001", "larger", 0);
	CHECK_INT(warm_copy(root, &size, false, disk, note, NULL), -ENOENT);
	CLEAN_FREE char *first = make(own, "000000000001", "first", 3600);
	copied_is("first");
	CLEAN_FREE char *second = make(own, "000000000002", "second", 3600);
	copied_is("second");
	struct stat st;
	CHECK(!stat(second, &st) && time(NULL) - st.st_mtime < 600); /* it was used */
	CHECK(!stat(first, &st) && time(NULL) - st.st_mtime < 600);
	/* only its own can be of no more use to it */
	CLEAN_FREE char *not_ours = xasprintf("%s/memory", other);
	CLEAN_FREE char *ours = xasprintf("%s/memory", second);
	warm_drop(root, &size, false, not_ours);
	warm_drop(root, &size, false, ours);
	CHECK(file_exists(other) && !file_exists(second));
	copied_is("first");
	/* another kernel */
	put("vmlinux", "another kernel");
	CHECK_INT(warm_copy(root, &size, false, disk, note, NULL), -ENOENT);
	end();
}

TEST(a_template_goes_by_its_image)
{
	begin();
	CLEAN_FREE char *own = kind();
	CLEAN_FREE char *template = in("template");
	CLEAN_FREE char *line = xasprintf("%s\n", root);
	CLEAN_FREE char *folder = xasprintf("template/warm/%s-000000000001", own);
	CLEAN_FREE char *file = xasprintf("%s/disk.qcow2", folder);
	CLEAN_FREE char *path = in(folder);
	CHECK_INT(dir_make(path, 0700, NULL), 0);
	put("template/image", line);
	put(file, "a template's");
	CHECK_INT(warm_copy(template, &size, false, disk, note, NULL), 0);
	end();
}

#define DAY 86400

TEST(what_nobody_uses_is_taken_away)
{
	begin();
	CLEAN_FREE char *own = kind();
	CLEAN_FREE char *unused = make("1x512-0123456789abcdef", "000000000001", "x", 6 * DAY);
	CLEAN_FREE char *own_unused = make(own, "000000000001", "x", 6 * DAY);
	CLEAN_FREE char *used = make("2x2048-0123456789abcdef", "000000000001", "x", 3 * DAY);
	CLEAN_FREE char *cut = in("warm/.1x512-0123456789abcdef-000000000009.gone");
	CHECK_INT(dir_make(cut, 0700, NULL), 0);
	put("warm/log", "");
	warm_collect(root);
	CHECK(!file_exists(unused) && !file_exists(own_unused) && !file_exists(cut));
	CHECK(file_exists(used));
	CHECK_INT(how_many(), 2);
	/* of many that are used, the last few; what was only just used may yet be started from */
	for (int i = 0; i < 10; i++) {
		CLEAN_FREE char *name = xasprintf("1x512-00000000000000%02d", i);
		free(make(name, "000000000001", "x", i < 8 ? 3600 + i : i - 8));
	}
	warm_collect(root);
	CHECK(!file_exists(used));
	CHECK_INT(how_many(), 1 + 6);
	for (int i = 0; i < 10; i++) {
		CLEAN_FREE char *name = xasprintf("1x512-00000000000001%02d", i);
		free(make(name, "000000000001", "x", 0));
	}
	warm_collect(root);
	CHECK_INT(how_many(), 1 + 12);
	end();
}

CHECK_MAIN()
