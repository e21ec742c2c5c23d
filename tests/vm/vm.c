/* The instance of the VM tests. */
#include "vm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/cpio.h"
#include "sandbox/image.h"
#include "sandbox/keeper.h"

struct instance here;

static void on_progress(void *arg, const char *line)
{
	buf_addf(&here.progress, "%s\n", line);
}

static void print_progress(void *arg, const char *line)
{
	printf("# %s\n", line);
	fflush(stdout);
}

static void clear(void)
{
	CLEAN_FREE char *folder = xasprintf("%s/sandboxes", here.paths.state);
	DIR *d = opendir(folder);
	struct err err = ERR_INIT;
	for (struct dirent *e; d && (e = readdir(d));)
		if (atoll(e->d_name) > 0 && sandbox_destroy(&here.paths, "vm", atoll(e->d_name), &err))
			printf("# %s\n", err.text);
	if (d)
		closedir(d);
	if (dir_remove(here.root, &err))
		printf("# %s\n", err.text);
}

/* A process that ends what is left if this one is killed: its end of a pipe is closed then. */
static int cleaner_begin(void)
{
	int fds[2];
	char all_done;
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	here.cleaner = fork();
	if (!here.cleaner) {
		setsid(); /* what ends a test at its time limit speaks to its session */
		close(fds[1]);
		if (read(fds[0], &all_done, 1) == 0)
			clear();
		_exit(0);
	}
	close(fds[0]);
	here.cleaner_fd = fds[1];
	return here.cleaner < 0 ? -errno : 0;
}

int instance_begin(void)
{
	static const char *const vars[] = {"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"};
	struct err err = ERR_INIT;
	strcpy(here.root, "/tmp/berthfs-vm-XXXXXX");
	if (!mkdtemp(here.root)) {
		perror("mkdtemp");
		return 1;
	}
	for (size_t i = 0; i < ARRAY_LEN(vars); i++) {
		CLEAN_FREE char *dir = xasprintf("%s/%s", here.root, vars[i]);
		setenv(vars[i], dir, 1);
	}
	setenv("ANTHROPIC_API_KEY", "sk-secret-of-the-host", 1);
	if (paths_init(&here.paths, &err) || cleaner_begin() || sandbox_possible("vm", &err) ||
	    image_build(&here.paths, false, NULL, print_progress, NULL, &err)) {
		printf("# %s\n", err.text);
		return 1;
	}
	return 0;
}

void instance_end(void)
{
	clear();
	if (here.cleaner > 0 && write(here.cleaner_fd, "", 1) == 1)
		waitpid(here.cleaner, NULL, 0);
	paths_release(&here.paths);
	buf_release(&here.progress);
}

int up(int64_t id, int timeout_ms, struct err *err)
{
	return up_from(id, NULL, timeout_ms, err);
}

int up_from(int64_t id, const char *template, int timeout_ms, struct err *err)
{
	struct sandbox_spec spec = {.paths = &here.paths,
				    .kind = "vm",
				    .id = id,
				    .name = "test_box",
				    .size = "mini",
				    .template = template,
				    .boot_timeout_ms = timeout_ms,
				    .progress = on_progress};
	buf_reset(&here.progress);
	return sandbox_up(&spec, err);
}

/* An overlay of base at disk. */
static bool overlay(const char *base, const char *disk)
{
	const char *argv[] = {"qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", disk, NULL};
	return child_run(&(struct child){.argv = argv, .timeout_ms = 60000}, NULL) == 0;
}

/* The folder of an image is all that QEMU sees of it: no links out of it. */
static bool copy(const char *from, const char *to)
{
	const char *argv[] = {"sh", "-c", "ln \"$1\" \"$2\" 2>/dev/null || cp \"$1\" \"$2\"", "sh", from, to, NULL};
	return !child_run(&(struct child){.argv = argv, .timeout_ms = 60000}, NULL);
}

bool broken_image(int64_t id, bool empty_kernel)
{
	struct image im = {0};
	CLEAN_BUF struct buf modules = BUF_INIT;
	CLEAN_FREE char *folder = xasprintf("%s/sandboxes/%lld", here.paths.state, (long long)id);
	CLEAN_FREE char *dir = xasprintf("%s/image-%lld", here.root, (long long)id);
	CLEAN_FREE char *users = xasprintf("%s/users", dir);
	CLEAN_FREE char *cpio = xasprintf("%s/modules.cpio", dir);
	CLEAN_FREE char *kernel = xasprintf("%s/vmlinux", dir);
	CLEAN_FREE char *note = xasprintf("%s/image", folder);
	CLEAN_FREE char *disk = xasprintf("%s/disk.qcow2", folder);
	CLEAN_FREE char *line = xasprintf("%s\n", dir);
	if (image_current(&here.paths, &im, NULL))
		return false;
	CLEAN_FREE char *base = xasprintf("%s/disk.qcow2", im.dir);
	CLEAN_FREE char *own_base = xasprintf("%s/disk.qcow2", dir);
	CLEAN_FREE char *real_kernel = xasprintf("%s/vmlinux", im.dir);
	image_release(&im);
	cpio_dir(&modules, "modules", 0755);
	cpio_file(&modules, "modules/list", 0644, "not-there.ko\n", 13);
	cpio_end(&modules);
	return !dir_make(users, 0755, NULL) && !dir_make(folder, 0700, NULL) &&
	       !file_write(cpio, modules.p, modules.n, 0644, NULL) &&
	       !(empty_kernel ? file_write(kernel, "", 0, 0644, NULL) : !copy(real_kernel, kernel)) &&
	       !file_write(note, line, strlen(line), 0600, NULL) && copy(base, own_base) && overlay(own_base, disk);
}

int shell(int64_t id, const char *line, struct buf *out)
{
	static int serial;
	struct env *env = NULL;
	struct err err = ERR_INIT;
	CLEAN_FREE char *job = xasprintf("shell.%d.%d", (int)getpid(), ++serial);
	struct env_exec exec = {
		.job = job, .argv = (const char *const[]){"/bin/bash", "-c", line, NULL}, .timeout_ms = 240000};
	buf_reset(out);
	int rc = env_open(&here.paths, "vm", id, NULL, &env, &err);
	if (!rc)
		rc = env_run(env, &exec, NULL, 1 << 20, out, &err);
	if (rc < 0)
		printf("# %s: %s\n", line, err.text);
	env_close(env);
	return rc;
}

/* A process of ours names its sandbox's folder in its arguments. */
static bool is_one(const char *pid, bool qemu, int64_t id)
{
	CLEAN_FREE char *path = xasprintf("/proc/%s/cmdline", pid);
	CLEAN_FREE char *folder = id ? xasprintf("%s/sandboxes/%lld", here.paths.state, (long long)id)
				     : xasprintf("%s/sandboxes/", here.paths.state);
	CLEAN_BUF struct buf b = BUF_INIT;
	if (file_read(path, &b, 65536, NULL) || !b.n)
		return false;
	bool is_qemu = !strncmp(b.p, "qemu-system", 11), named = false; /* its jail names it, too */
	for (size_t at = 0; at < b.n; at += strlen(b.p + at) + 1) {
		char *hit = strstr(b.p + at, folder);
		named |= hit && (!id || hit[strlen(folder)] < '0' || hit[strlen(folder)] > '9');
	}
	return named && is_qemu == qemu && (qemu || !strcmp(b.p + strlen(b.p) + 1, "vm-keeper"));
}

int count(bool qemu, int64_t id, int *pid)
{
	DIR *d = opendir("/proc");
	int n = 0;
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && is_one(e->d_name, qemu, id) && n++ == 0 && pid)
			*pid = atoi(e->d_name);
	if (d)
		closedir(d);
	return n;
}

/* QEMU has been stopped by a signal, and the keeper has no helper thread any more. */
static bool is_thin(int qemu, int keeper)
{
	CLEAN_FREE char *tasks = xasprintf("/proc/%d/task", keeper);
	CLEAN_FREE char *stat_file = xasprintf("/proc/%d/stat", qemu);
	CLEAN_BUF struct buf b = BUF_INIT;
	struct stat st;
	const char *name_end = file_read(stat_file, &b, 4096, NULL) ? NULL : strrchr(buf_str(&b), ')');
	return name_end && !strncmp(name_end, ") T ", 4) && !stat(tasks, &st) && st.st_nlink == 3;
}

bool gave_back(int64_t id)
{
	int qemu = 0, keeper = 0;
	count(true, id, &qemu);
	count(false, id, &keeper);
	for (int64_t end = clock_mono_ms() + 300000; clock_mono_ms() < end; clock_sleep_ms(20))
		if (is_thin(qemu, keeper)) {
			clock_sleep_ms(300); /* the keeper has heard of it, and waits for the next thing */
			return true;
		}
	return false;
}

bool gone(int64_t id)
{
	for (int64_t end = clock_mono_ms() + 120000; clock_mono_ms() < end; clock_sleep_ms(20))
		if (!count(true, id, NULL) && !count(false, id, NULL))
			return true;
	return false;
}

bool came_up(int64_t id)
{
	struct err err = ERR_INIT;
	if (!up(id, 300000, &err))
		return true;
	printf("# %s\n%s", err.text, buf_str(&here.progress));
	return false;
}

int put_to_rest(rest_fn *rest, int64_t id, struct err *err)
{
	int rc = -EBUSY;
	for (int64_t end = clock_mono_ms() + 300000; rc == -EBUSY && clock_mono_ms() < end; clock_sleep_ms(5))
		rc = rest(&here.paths, "vm", id, err);
	return rc;
}

int vm_main(int argc, char **argv, int (*tests)(void))
{
	if (argc > 1 && !strcmp(argv[1], KEEPER_VERB))
		return sandbox_keeper_main(argc - 1, argv + 1);
	int rc = instance_begin();
	rc = rc ? rc : tests();
	instance_end();
	return rc;
}
