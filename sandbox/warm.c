/* Making, finding and copying what warm starts go on from. Any thread; blocks. Must never show a disk and a memory that
 * do not belong together: each has a folder whose name is used once. */
#include "warm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "image.h"
#include "keeper.h"
#include "process.h"
#include "qemu.h"
#include "vm_talk.h"

#define AGAIN_S	  3600	 /* after one that could not be made */
#define BOOT_MS	  600000 /* with the time that nobody else wants */
#define SETTLE_MS 5000	 /* the guest gives back memory that it has freed two seconds later */
#define WORK_ID	  1
/* What has been kept for others */
#define UNUSED_S   (5 * 86400)
#define KEPT	   6   /* of a folder, if they are used; some 100 MiB each */
#define STARTING_S 600 /* a VM that was made from it may not have started yet */

/* ---- finding and copying ---- */

static char *first_line(const char *path)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	return file_read(path, &b, 4096, NULL) ? NULL : xstrndup(buf_str(&b), strcspn(buf_str(&b), "\n"));
}

/* The image of what is in dir: an image itself, or a template that names it; malloc'd. */
static char *image_of(const char *dir)
{
	CLEAN_FREE char *note = xasprintf("%s/image", dir);
	char *image = first_line(note);
	return image ? image : xstrdup(dir);
}

/* How the names of folders begin whose memory this build can go on from: "CPUSxMEMORY-KIND". NULL: it cannot be known.
 * malloc'd. */
static char *kind_of(const char *dir, const struct sandbox_size *size, bool kvm)
{
	char name[QEMU_KEY_NAME];
	CLEAN_FREE char *image = image_of(dir);
	CLEAN_FREE char *vmlinux = xasprintf("%s/vmlinux", image);
	CLEAN_FREE char *initrd = NULL;
	if (image_initrd(image, &initrd, NULL))
		return NULL;
	qemu_key_name(&(struct qemu_spec){.vmlinux = vmlinux,
					  .initrd = initrd,
					  .cpus = size->cpus,
					  .memory_mib = size->memory_mib,
					  .kvm = kvm},
		      name);
	return xasprintf("%dx%d-%s", size->cpus, size->memory_mib, name);
}

/* Path of the newest folder of that kind, or NULL; malloc'd. */
static char *find(const char *dir, const char *kind)
{
	CLEAN_FREE char *warm = xasprintf("%s/warm", dir);
	CLEAN_FREE char *start = xasprintf("%s-", kind);
	CLEAN_FREE char *best = NULL;
	DIR *d = opendir(warm);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (strncmp(e->d_name, start, strlen(start)) != 0 || (best && strcmp(best, e->d_name) > 0))
			continue;
		free(best);
		best = xstrdup(e->d_name);
	}
	if (d)
		closedir(d);
	return best ? xasprintf("%s/%s", warm, best) : NULL;
}

static int copy_bytes(int from, int to)
{
	if (!ioctl(to, FICLONE, from))
		return 0;
	CLEAN_FREE char *room = xmalloc(256 * 1024);
	for (;;) {
		ssize_t n = copy_file_range(from, NULL, to, NULL, 64 << 20, 0);
		if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)) {
			n = read(from, room, 256 * 1024);
			int rc = n > 0 ? fd_write_full(to, room, (size_t)n) : 0;
			if (rc)
				return rc;
		}
		if (n <= 0)
			return n ? -errno : 0;
	}
}

static int copy_disk(const char *from, const char *to, struct err *err)
{
	CLEAN_FREE char *tmp = xasprintf("%s.new", to);
	CLEAN_FD int in = open(from, O_RDONLY | O_CLOEXEC);
	if (in < 0)
		return err_sys(err, errno, "cannot read %s", from);
	CLEAN_FD int out = open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int rc = out < 0 ? -errno : copy_bytes(in, out);
	if (!rc && (fsync(out) || rename(tmp, to)))
		rc = -errno;
	if (rc)
		unlink(tmp);
	return rc ? err_sys(err, -rc, "cannot make the VM's disk") : 0;
}

int warm_copy(const char *dir, const struct sandbox_size *size, bool kvm, const char *disk, const char *note,
	      struct err *err)
{
	CLEAN_FREE char *kind = kind_of(dir, size, kvm);
	CLEAN_FREE char *found = kind ? find(dir, kind) : NULL;
	if (!found)
		return err_set(err, ENOENT, "there is nothing to start from");
	utimensat(AT_FDCWD, found, NULL, 0); /* when it was used last */
	CLEAN_FREE char *from = xasprintf("%s/disk.qcow2", found);
	CLEAN_FREE char *line = xasprintf("%s/" KEEPER_MEMORY "\n", found);
	int rc = file_write(note, line, strlen(line), 0600, err);
	if (!rc)
		rc = copy_disk(from, disk, err);
	if (rc)
		unlink(note);
	return rc;
}

static void take_away(const char *folder)
{
	CLEAN_FREE char *gone = xasprintf("%s.gone", folder);
	char *name = strrchr(gone, '/') + 1;
	*name = '.'; /* found by nobody from here on */
	if (!rename(folder, gone))
		dir_remove(gone, NULL);
}

void warm_drop(const char *dir, const struct sandbox_size *size, bool kvm, const char *memory)
{
	CLEAN_FREE char *folder = xstrndup(memory, (size_t)(strrchr(memory, '/') - memory));
	CLEAN_FREE char *kind = kind_of(dir, size, kvm);
	if (kind && !strncmp(strrchr(folder, '/') + 1, kind, strlen(kind)))
		take_away(folder);
}

/* ---- those of other builds ---- */

struct old {
	char *path;
	time_t used;
};

static int by_use(const void *a, const void *b)
{
	const struct old *x = a, *y = b;
	return (x->used < y->used) - (x->used > y->used);
}

/* Those that copies start from, the last used one first. What was being taken away is so now. */
static struct old *load_all(const char *warm, size_t *n)
{
	struct old *all = NULL;
	DIR *d = opendir(warm);
	*n = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		struct stat st;
		size_t len = strlen(e->d_name);
		CLEAN_FREE char *path = xasprintf("%s/%s", warm, e->d_name);
		if (e->d_name[0] == '.' && len > 5 && !strcmp(e->d_name + len - 5, ".gone"))
			dir_remove(path, NULL);
		if (!strncmp(e->d_name, "failed", 6) && !stat(path, &st) && time(NULL) - st.st_mtime > AGAIN_S)
			unlink(path);
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || stat(path, &st))
			continue;
		all = xrealloc(all, (*n + 1) * sizeof *all);
		all[(*n)++] = (struct old){take(path), st.st_mtime};
	}
	if (d)
		closedir(d);
	if (*n)
		qsort(all, *n, sizeof *all, by_use);
	return all;
}

void warm_collect(const char *dir)
{
	size_t n;
	CLEAN_FREE char *warm = xasprintf("%s/warm", dir);
	struct old *all = load_all(warm, &n);
	for (size_t i = 0; i < n; i++) {
		time_t since = time(NULL) - all[i].used;
		if (since > UNUSED_S || (i >= KEPT && since > STARTING_S))
			take_away(all[i].path);
		free(all[i].path);
	}
	free(all);
}

/* ---- a process that makes one ---- */

static bool failed_lately(const char *dir, const char *kind)
{
	struct stat st;
	CLEAN_FREE char *path = xasprintf("%s/warm/failed-%s", dir, kind);
	return !stat(path, &st) && time(NULL) - st.st_mtime < AGAIN_S;
}

void warm_begin(const struct sandbox_spec *spec, const char *dir, bool kvm)
{
	struct sandbox_size size;
	struct err err = ERR_INIT;
	warm_collect(dir);
	CLEAN_FREE char *kind = sandbox_size(spec->size, &size) ? NULL : kind_of(dir, &size, kvm);
	if (!kind || failed_lately(dir, kind))
		return;
	CLEAN_FREE char *found = find(dir, kind);
	CLEAN_FREE char *warm = xasprintf("%s/warm", dir);
	CLEAN_FREE char *log = xasprintf("%s/warm/log", dir);
	CLEAN_FREE char *life = sandbox_life(spec->paths, spec->id);
	if (found || dir_make(warm, 0755, NULL))
		return;
	const char *argv[] = {paths_program(spec->paths),
			      KEEPER_VERB,
			      WARM_VERB,
			      dir,
			      spec->paths->cache,
			      spec->paths->config,
			      spec->size,
			      life,
			      kvm ? "kvm" : "tcg",
			      NULL};
	CLEAN_FD int status = process_detach(argv, log, &err);
	if (status < 0)
		log_warn("no warm start is made: %s", err.text);
}

/* Ends the work with the sandbox that it was begun for. */
struct watch {
	int fd;
	atomic_bool over;
};

static void *watch(void *arg)
{
	struct watch *w = arg;
	struct pollfd p = {.fd = w->fd, .events = POLLIN};
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	atomic_store(&w->over, true);
	return NULL;
}

static void on_progress(void *arg, const char *line)
{
	log_info("%s", line);
}

/* Brings what every session uses into memory, and takes away what only one machine may have. */
static int prepare(const struct paths *paths, const atomic_bool *over, struct err *err)
{
	static const char script[] =
		"git --version; git -C /etc status; python3 -c 'import json, subprocess'; ls -la "
		"/etc; cat /etc/passwd | "
		"grep agent | sed s/agent/x/ | head -n 1; find /etc -name x; mkdir -p /tmp/x; touch "
		"/tmp/x/y; rm -r /tmp/x; "
		"sudo -n sh -c 'rm -f /etc/machine-id; echo 1 >/proc/sys/vm/compact_memory'";
	struct env *env = NULL;
	struct env_exec exec = {
		.job = "warm", .argv = (const char *const[]){"/bin/bash", "-c", script, NULL}, .timeout_ms = BOOT_MS};
	int rc = env_open(paths, "vm", WORK_ID, over, &env, err);
	if (!rc)
		rc = env_run(env, &exec, over, 65536, NULL, err);
	env_close(env);
	for (int64_t end = clock_mono_ms() + SETTLE_MS; rc >= 0 && clock_mono_ms() < end; clock_sleep_ms(50))
		if (atomic_load(over))
			rc = err_set(err, ECANCELED, "stopped");
	return rc < 0 ? rc : 0;
}

/* The two files alone, into a folder that nobody has used. */
static int publish(const struct paths *paths, const char *dir, const char *kind, struct err *err)
{
	static const char *const parts[] = {"disk.qcow2", KEEPER_MEMORY};
	CLEAN_FREE char *tmp = xasprintf("%s/publish", paths->state);
	CLEAN_FREE char *to = xasprintf("%s/warm/%s-%012llx", dir, kind, (unsigned long long)clock_real_ms());
	int rc = dir_make(tmp, 0755, err);
	for (size_t i = 0; !rc && i < ARRAY_LEN(parts); i++) {
		CLEAN_FREE char *from = vm_file(paths, WORK_ID, parts[i]);
		CLEAN_FREE char *at = xasprintf("%s/%s", tmp, parts[i]);
		rc = file_rename(from, at, err);
	}
	return rc ? rc : file_rename(tmp, to, err);
}

/* Its disk lies on what is in dir; a new image may have been built meanwhile. */
static int is_of(const struct paths *paths, const char *dir, struct err *err)
{
	CLEAN_FREE char *note = vm_file(paths, WORK_ID, "image");
	CLEAN_FREE char *its = first_line(note);
	CLEAN_FREE char *image = image_of(dir);
	return its && !strcmp(its, image) ? 0 : err_set(err, ESTALE, "there is a newer base image");
}

static int make(const struct sandbox_spec *spec, const char *dir, const char *kind, bool kvm, struct err *err)
{
	CLEAN_FREE char *found = find(dir, kind);
	if (found)
		return 0;
	int rc = sandbox_up(spec, err);
	rc = rc ? rc : is_of(spec->paths, dir, err);
	if (!rc && vm_kvm(spec->paths, WORK_ID) != kvm)
		rc = err_set(err, ESTALE, "what VMs run on here has changed");
	if (!rc)
		rc = prepare(spec->paths, spec->cancel, err);
	if (!rc)
		rc = sandbox_hibernate(spec->paths, "vm", WORK_ID, err);
	if (!rc)
		rc = publish(spec->paths, dir, kind, err);
	struct err ignored = ERR_INIT;
	sandbox_destroy(spec->paths, "vm", WORK_ID, &ignored);
	return rc;
}

/* One at a time for a folder; what a killed one has left is taken away. */
static int lock_work(const char *dir, const char *work, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/warm/lock", dir);
	CLEAN_FD int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB))
		return err_sys(err, errno, "another is being made");
	int rc = dir_make(work, 0700, err);
	return rc ? rc : take_fd(&lock);
}

/* DIR CACHE CONFIG SIZE LIFE ACCELERATOR */
int warm_main(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct sandbox_size size;
	if (argc < 6 || sandbox_size(argv[3], &size))
		return 64;
	bool kvm = !strcmp(argv[5], "kvm");
	CLEAN_FREE char *kind = kind_of(argv[0], &size, kvm);
	CLEAN_FREE char *work = xasprintf("%s/warm/work", argv[0]);
	CLEAN_FREE char *failed = xasprintf("%s/warm/failed-%s", argv[0], kind ? kind : "");
	CLEAN_FREE char *image = xasprintf("%s/image", argv[0]); /* a template's folder has it */
	CLEAN_FREE char *self = realpath("/proc/self/exe", NULL);
	struct paths paths = {.state = work, .cache = argv[1], .runtime = work, .config = argv[2], .self = self};
	struct watch w = {.fd = unix_connect(argv[4], &err)};
	pthread_t thread;
	if (close(PROCESS_STATUS_FD) || !kind || w.fd < 0 || pthread_create(&thread, NULL, watch, &w))
		return 1;
	pthread_detach(thread);
	CLEAN_FD int lock = lock_work(argv[0], work, &err);
	if (lock < 0)
		return 0;
	struct sandbox_spec spec = {.paths = &paths,
				    .kind = "vm",
				    .id = WORK_ID,
				    .name = "sandbox",
				    .size = argv[3],
				    .template = file_exists(image) ? argv[0] : NULL,
				    .pristine = true,
				    .boot_timeout_ms = BOOT_MS,
				    .cancel = &w.over,
				    .progress = on_progress};
	sandbox_destroy(&paths, "vm", WORK_ID, NULL);
	int rc = make(&spec, argv[0], kind, kvm, &err);
	if (rc)
		log_warn("no warm start was made: %s", err.text);
	if (rc && !atomic_load(&w.over))
		file_write(failed, err.text, strlen(err.text), 0644, NULL);
	dir_remove(work, NULL);
	return rc ? 1 : 0;
}
