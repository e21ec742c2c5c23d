/* Kind vm: QEMU microvms. Everything about one is in its folder and behind its keeper's socket (keeper.h), so nothing
 * is held here between calls and a daemon that was killed finds it again. Blocks; worker threads only. Must never start
 * a second QEMU on a disk (the keeper's lock sees to it) and never change a base image. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "driver.h"
#include "env_call.h"
#include "image.h"
#include "jail.h"
#include "keeper.h"
#include "kvm.h"
#include "net.h"
#include "process.h"
#include "qemu.h"
#include "template.h"
#include "vm_disk.h"
#include "vm_talk.h"
#include "warm.h"

#define CANCEL_MS     50
#define ORPHAN_MS     2000  /* a QEMU that is dying has given its lock back by then */
#define STATUS_MS     5000  /* the keeper answers at once, even while its VM is stuck */
#define START_MS      10000 /* from starting a keeper to its QEMU: 5 s of them may be the wait for an old QEMU's lock */
#define STOP_MS	      (KEEPER_POWEROFF_MS + 5000)
#define PAUSE_MS      2000
#define PAUSE_LOOK_MS 10
#define RESUME_MS     30000  /* it answers within 10 ms on a machine that has time */
#define SAVE_MS	      300000 /* a large memory to a slow disk */
#define TAIL_LINES    20

static int possible(struct err *err)
{
	static const struct {
		const char *program, *package;
	} needed[] = {{QEMU_PROGRAM, "qemu-system-x86"}, {"qemu-img", "qemu-utils"}, {JAIL_PROGRAM, "bubblewrap"}};
	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		if (!child_found(needed[i].program))
			return err_set(err, ENOENT, "sandboxes of kind vm need %s: install the package %s",
				       needed[i].program, needed[i].package);
	return 0;
}

/* ---- starting ---- */

/* What a VM starts from, and on. */
struct begin {
	const char *from; /* a file of memory, or NULL */
	const char *once; /* the file that has to be gone before the guest goes on; if it is not `from`, that is there
			     for others, too */
	bool kvm;
};

static void options(const struct sandbox_spec *spec, const struct begin *how, const char **argv)
{
	const char *const flags[][2] = {{"--spare", spec->pristine ? "yes" : NULL},
					{"--kvm", how->kvm ? "yes" : NULL},
					{"--restore", how->from},
					{"--once", how->once},
					{"--clone", how->from && strcmp(how->from, how->once) != 0 ? "yes" : NULL}};
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		if (!flags[i][1])
			continue;
		*argv++ = flags[i][0];
		*argv++ = flags[i][1];
	}
	*argv = NULL;
}

/* Starts a keeper and waits until its QEMU runs. */
static int start(const struct sandbox_spec *spec, const struct begin *how, struct err *err)
{
	struct sandbox_size size;
	CLEAN_FREE char *image = NULL;
	CLEAN_FREE char *initrd = NULL;
	int rc = sandbox_size(spec->size, &size);
	if (rc)
		return err_set(err, -rc, "there is no size %s: mini, small or large", spec->size);
	rc = vm_note_socket(spec->paths, spec->id, err);
	rc = rc ? rc : vm_disk_bases(spec, err);
	rc = rc ? rc : vm_disk_image(spec, &image, err);
	rc = rc ? rc : image_initrd(image, &initrd, err);
	if (rc)
		return rc;
	CLEAN_FREE char *folder = vm_folder(spec->paths, spec->id);
	CLEAN_FREE char *vmlinux = xasprintf("%s/vmlinux", image);
	CLEAN_FREE char *log = xasprintf("%s/keeper.log", folder);
	CLEAN_FREE char *host = sandbox_host(spec->name);
	CLEAN_FREE char *cpus = xasprintf("%d", size.cpus);
	CLEAN_FREE char *mib = xasprintf("%d", size.memory_mib);
	const char *fixed[] = {paths_program(spec->paths),
			       KEEPER_VERB,
			       "--folder",
			       folder,
			       "--vmlinux",
			       vmlinux,
			       "--initrd",
			       initrd,
			       "--host",
			       host,
			       "--cpus",
			       cpus,
			       "--memory",
			       mib};
	const char *argv[ARRAY_LEN(fixed) + 2 * 5 + 1];
	memcpy(argv, fixed, sizeof fixed);
	options(spec, how, argv + ARRAY_LEN(fixed));
	CLEAN_FD int status = process_detach(argv, log, err);
	if (status < 0)
		return status;
	CLEAN_BUF struct buf answer = BUF_INIT;
	rc = vm_receive(status, false, clock_mono_ms() + START_MS, spec, &answer, err);
	if (rc == -ECONNRESET)
		return err_set(err, EIO, "the VM's keeper ended at once: see %s", log);
	if (!rc && strncmp(buf_str(&answer), "ok", 2)) {
		buf_cut(&answer, answer.n - 1);
		rc = err_set(err, EIO, "%s", buf_str(&answer) + 6);
	}
	return rc;
}

/* ---- boot ---- */

/* The console's last lines, from the keeper or, if that has ended, from its file. */
static void tell_console(const struct sandbox_spec *spec)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *path = vm_file(spec->paths, spec->id, "console.log");
	if (vm_ask(spec->paths, spec->id, "console\n", STATUS_MS, &b, NULL)) {
		buf_reset(&b);
		file_read(path, &b, 1 << 20, NULL);
	}
	CLEAN_BUF struct buf text = BUF_INIT;
	utf8_clean(&text, b.p, b.n);
	size_t at = text.n, lines = 0;
	while (at && (lines += text.p[at - 1] == '\n') <= TAIL_LINES)
		at--;
	char *save = NULL;
	if (text.n == 0)
		sandbox_say(spec, "the VM printed nothing on its console");
	else
		for (char *line = strtok_r(text.p + at, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
			sandbox_say(spec, "console: %s", line);
}

/* A keeper that is killed in the moment in which it starts its QEMU leaves that behind, with the disk's lock. */
static void end_orphans(const struct paths *paths, int64_t id)
{
	CLEAN_FREE char *pid_file = vm_file(paths, id, "keeper.pid");
	CLEAN_FREE char *lock = vm_file(paths, id, "lock");
	if (!process_alive(pid_file) && process_kill_holders(lock))
		vm_lock_free(paths, id, STATUS_MS);
}

static void kill_vm(const struct paths *paths, int64_t id)
{
	CLEAN_BUF struct buf how = BUF_INIT;
	CLEAN_FREE char *pid_file = vm_file(paths, id, "keeper.pid");
	if (!vm_ask(paths, id, "kill\n", STATUS_MS, &how, NULL) && vm_lock_free(paths, id, STATUS_MS))
		return;
	pid_t pid = process_alive(pid_file); /* a keeper that does not answer: QEMU dies with it */
	if (pid)
		kill(pid, SIGKILL);
	if (!vm_lock_free(paths, id, ORPHAN_MS))
		end_orphans(paths, id);
}

static bool is_not_run(const struct err *err)
{
	return strstr(err->text, KEEPER_NO_KVM) != NULL;
}

static bool is_not_restored(const struct err *err)
{
	return strstr(err->text, KEEPER_NOT_RESTORED) != NULL;
}

/* Waits until the tool daemon can be reached and answers. Whatever else happens ends the VM. */
static int await_boot(const struct sandbox_spec *spec, int64_t deadline, struct err *err)
{
	CLEAN_FD int fd = vm_request(spec->paths, spec->id, "wait\n", deadline, spec, err);
	int64_t left = deadline - clock_mono_ms();
	struct env *env = NULL;
	int rc =
		fd < 0 ? fd : env_open_within(spec->paths, spec->id, left > 1 ? (int)left : 1, spec->cancel, &env, err);
	env_close(env);
	if (!rc)
		return 0;
	if (rc == -ECANCELED) {
		kill_vm(spec->paths, spec->id);
		return err_set(err, ECANCELED, "starting the VM was stopped");
	}
	if (is_not_restored(err) || is_not_run(err))
		return rc;
	tell_console(spec);
	if (rc != -ETIMEDOUT)
		return err_prefix(err, "the VM did not boot");
	kill_vm(spec->paths, spec->id);
	return err_set(err, ETIMEDOUT, "the VM did not boot within %d s: its console's last lines are in the log",
		       spec->boot_timeout_ms / 1000);
}

/* One call at a time works on a sandbox; a second one then finds it running. */
static int take_turn(const struct sandbox_spec *spec, int *turn, struct err *err)
{
	CLEAN_FREE char *folder = vm_folder(spec->paths, spec->id);
	CLEAN_FREE char *path = vm_file(spec->paths, spec->id, "up.lock");
	int rc = dir_make(folder, 0700, err);
	if (rc)
		return rc;
	*turn = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*turn < 0)
		return err_sys(err, errno, "cannot open %s", path);
	while (flock(*turn, LOCK_EX | LOCK_NB)) {
		if (vm_cancelled(spec))
			return err_set(err, ECANCELED, "starting the VM was stopped");
		clock_sleep_ms(CANCEL_MS);
	}
	return 0;
}

/* A VM that runs is never ended for being slow: what works in it may be worth more than this call. */
static int take_over(const struct sandbox_spec *spec, struct err *err)
{
	struct env *env = NULL;
	int rc = env_open_within(spec->paths, spec->id, spec->boot_timeout_ms, spec->cancel, &env, err);
	env_close(env);
	return rc;
}

/* From a file of memory. 1: that cannot be, and the VM has to boot; why says it. */
static int begin_from(const struct sandbox_spec *spec, const struct begin *how, int64_t deadline, struct err *err,
		      char **why)
{
	struct err e = ERR_INIT;
	int rc = start(spec, how, &e);
	rc = rc ? rc : await_boot(spec, deadline, &e);
	if (!rc || !is_not_restored(&e))
		return rc ? err_set(err, -rc, "%s", e.text) : 0;
	if (!vm_lock_free(spec->paths, spec->id, STATUS_MS))
		return err_set(err, EBUSY, "a VM that could not go on from its memory does not end");
	rc = file_remove(how->once, err);
	*why = xstrdup(strstr(e.text, KEEPER_NOT_RESTORED) + strlen(KEEPER_NOT_RESTORED));
	return rc ? rc : 1;
}

static int wake(const struct sandbox_spec *spec, const char *memory, int64_t deadline, struct err *err)
{
	CLEAN_FREE char *why = NULL;
	sandbox_say(spec, "waking the VM");
	const struct begin how = {
		.from = memory, .once = memory, .kvm = vm_kvm(spec->paths, spec->id) && vm_disk_kvm(spec)};
	int rc = begin_from(spec, &how, deadline, err, &why);
	if (rc == 1)
		sandbox_say(spec, "the VM boots, what ran in it is lost: its memory cannot be used: %s", why);
	return rc;
}

/* A VM that has never run, from the memory of the one that its disk is a copy of. */
static int begin_warm(const struct sandbox_spec *spec, const char *note, int64_t deadline, struct err *err)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *disk = vm_file(spec->paths, spec->id, "disk.qcow2");
	CLEAN_FREE char *base = NULL;
	CLEAN_FREE char *why = NULL;
	struct sandbox_size size;
	int rc = file_read(note, &b, 4096, err);
	if (rc)
		return rc;
	CLEAN_FREE char *memory = xstrndup(buf_str(&b), strcspn(buf_str(&b), "\n"));
	sandbox_say(spec, "starting the VM, a copy of one that has booted before");
	const struct begin how = {.from = memory, .once = note, .kvm = vm_disk_kvm(spec)};
	rc = begin_from(spec, &how, deadline, err, &why);
	if (rc != 1)
		return rc;
	sandbox_say(spec, "the VM boots: the copied memory cannot be used: %s", why);
	rc = vm_disk_base(spec, &base, err);
	if (!rc && !sandbox_size(spec->size, &size))
		warm_drop(base, &size, how.kvm, memory);
	CLEAN_FREE char *base_disk = xasprintf("%s/disk.qcow2", base);
	rc = rc ? rc : vm_disk_empty(base_disk, disk, err);
	return rc ? rc : 1;
}

/* On KVM if that works here. If it then does not, in spite of what was found out about it, nothing of the sandbox has
 * run yet, and it is emulated, as are all others from then on. */
static int boot(const struct sandbox_spec *spec, int64_t deadline, struct err *err)
{
	CLEAN_FREE char *image = NULL;
	struct err e = ERR_INIT;
	sandbox_say(spec, "starting the VM");
	if (vm_disk_kvm(spec) && !vm_disk_image(spec, &image, NULL)) {
		int rc = start(spec, &(struct begin){.kvm = true}, &e);
		rc = rc ? rc : await_boot(spec, deadline, &e);
		if (!rc || (rc != -ETIMEDOUT && !is_not_run(&e)))
			return rc ? err_set(err, -rc, "%s", e.text) : 0;
		kvm_deny(spec->paths, image, e.text);
		sandbox_say(spec, "%s; the VM is emulated", e.text);
		if (!vm_lock_free(spec->paths, spec->id, STATUS_MS))
			return err_set(err, EBUSY, "a VM that does not run does not end");
		deadline = clock_mono_ms() + spec->boot_timeout_ms;
	}
	int rc = start(spec, &(struct begin){0}, err);
	return rc ? rc : await_boot(spec, deadline, err);
}

/* From memory, if there is any that can be used, else by booting. */
static int begin(const struct sandbox_spec *spec, int64_t deadline, struct err *err)
{
	CLEAN_FREE char *memory = vm_file(spec->paths, spec->id, KEEPER_MEMORY);
	CLEAN_FREE char *warm = vm_file(spec->paths, spec->id, WARM_SAVED);
	CLEAN_FREE char *base = NULL;
	int rc = file_exists(memory) ? wake(spec, memory, deadline, err)
		 : file_exists(warm) ? begin_warm(spec, warm, deadline, err)
				     : 1;
	if (rc != 1)
		return rc;
	rc = boot(spec, deadline, err);
	if (!rc && !spec->pristine && !vm_disk_base(spec, &base, NULL))
		warm_begin(spec, base, vm_kvm(spec->paths, spec->id));
	return rc;
}

static int up(const struct sandbox_spec *spec, struct err *err)
{
	CLEAN_FREE char *disk = vm_file(spec->paths, spec->id, "disk.qcow2");
	CLEAN_FREE char *net = vm_file(spec->paths, spec->id, "net");
	CLEAN_BUF struct buf status = BUF_INIT;
	CLEAN_BUF struct buf how = BUF_INIT;
	CLEAN_FD int turn = -1;
	int rc = take_turn(spec, &turn, err);
	if (!rc && !file_exists(disk))
		rc = vm_disk_make(spec, err);
	if (rc)
		return rc;
	rc = net_note(net, spec->net, err);
	if (rc)
		return rc;
	vm_ask(spec->paths, spec->id, "status\n", STATUS_MS, &status, NULL);
	const char *phase = buf_str(&status);
	if (!strncmp(phase, "running", 7) || !strncmp(phase, "paused", 6))
		return take_over(spec, err);
	if (!strncmp(phase, "stalled", 7))
		return err_set(err, ENOSPC, "the disk of %s is full: the VM waits and goes on when there is room",
			       spec->paths->state);
	if (!strncmp(phase, "saving", 6))
		vm_ask(spec->paths, spec->id, "hibernate\n", SAVE_MS, &how, NULL);
	if (!strncmp(phase, "stopping", 8)) /* the answer comes with its end */
		vm_ask(spec->paths, spec->id, "poweroff\n", STOP_MS, &how, NULL);
	int64_t deadline = clock_mono_ms() + spec->boot_timeout_ms;
	if (!strncmp(phase, "booting", 7)) {
		struct err e = ERR_INIT;
		rc = await_boot(spec, deadline, &e);
		if (!rc || !is_not_run(&e))
			return rc ? err_set(err, -rc, "%s", e.text) : 0;
		deadline = clock_mono_ms() + spec->boot_timeout_ms; /* begin() finds that out once more */
	}
	if (!*phase && !vm_lock_free(spec->paths, spec->id, ORPHAN_MS))
		end_orphans(spec->paths, spec->id);
	return begin(spec, deadline, err);
}

/* ---- state and end ---- */

static enum sandbox_state state(const struct paths *paths, int64_t id)
{
	CLEAN_FREE char *disk = vm_file(paths, id, "disk.qcow2");
	CLEAN_FREE char *memory = vm_file(paths, id, KEEPER_MEMORY);
	CLEAN_BUF struct buf b = BUF_INIT;
	if (!file_exists(disk))
		return SANDBOX_NONE;
	if (vm_ask(paths, id, "status\n", STATUS_MS, &b, NULL))
		return file_exists(memory) ? SANDBOX_HIBERNATED : SANDBOX_DOWN;
	if (!strncmp(buf_str(&b), "paused", 6) || !strncmp(buf_str(&b), "saving", 6))
		return SANDBOX_PAUSED; /* on its way to disk, or back if there is no room */
	bool ends = !strncmp(buf_str(&b), "stopping", 8) || !strncmp(buf_str(&b), "ended", 5);
	if (ends && file_exists(memory))
		return SANDBOX_HIBERNATED;
	/* stalled: its processes are all there and go on when the host's disk has room again */
	return !strncmp(buf_str(&b), "running", 7) || !strncmp(buf_str(&b), "stalled", 7) ? SANDBOX_RUNNING
											  : SANDBOX_DOWN;
}

/* The keeper refuses while somebody is connected. A connection that was closed on this side is gone from there only
 * when the guest has closed its own end, so it is asked again for a while. */
static int ask_idle(const struct paths *paths, int64_t id, const char *line, int ms, struct err *err)
{
	for (int64_t end = clock_mono_ms() + PAUSE_MS;; clock_sleep_ms(PAUSE_LOOK_MS)) {
		CLEAN_BUF struct buf out = BUF_INIT;
		struct err why = ERR_INIT;
		int rc = vm_ask(paths, id, line, ms, &out, &why);
		if (!rc)
			return 0;
		bool busy = rc == -EIO && !strncmp(why.text, KEEPER_BUSY, strlen(KEEPER_BUSY));
		if (busy && clock_mono_ms() < end)
			continue;
		return err_set(err, busy ? EBUSY : -rc, "%s", busy ? why.text + strlen(KEEPER_BUSY) : why.text);
	}
}

static int pause_vm(const struct paths *paths, int64_t id, struct err *err)
{
	return ask_idle(paths, id, "pause\n", STATUS_MS, err);
}

/* The hello of a connection sets the guest's clock, and shows that it answers. */
static int resume_vm(const struct paths *paths, int64_t id, struct err *err)
{
	struct env *env = NULL;
	int rc = env_open_within(paths, id, RESUME_MS, NULL, &env, err);
	env_close(env);
	return rc;
}

static int down(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_BUF struct buf how = BUF_INIT;
	CLEAN_FREE char *pid_file = vm_file(paths, id, "keeper.pid");
	CLEAN_FREE char *memory = vm_file(paths, id, KEEPER_MEMORY);
	int rc = vm_ask(paths, id, "poweroff\n", STOP_MS, &how, NULL);
	if (rc && (rc != -ENOTCONN || process_alive(pid_file)))
		kill_vm(paths, id);
	if (!vm_lock_free(paths, id, STATUS_MS))
		return err_set(err, EBUSY, "the VM %lld cannot be ended: another process holds its disk",
			       (long long)id);
	return file_exists(memory) ? file_remove(memory, err) : 0;
}

/* Under the turn of up(), so that nobody starts what is being saved. */
static int hibernate(const struct paths *paths, int64_t id, struct err *err)
{
	const struct sandbox_spec spec = {.paths = paths, .id = id};
	CLEAN_FREE char *disk = vm_file(paths, id, "disk.qcow2");
	CLEAN_FD int turn = -1;
	if (!file_exists(disk))
		return err_set(err, ENOTCONN, "there is no VM");
	int rc = take_turn(&spec, &turn, err);
	if (rc || state(paths, id) == SANDBOX_HIBERNATED)
		return rc;
	rc = ask_idle(paths, id, "hibernate\n", SAVE_MS, err);
	if (rc == -ENOTCONN || rc == -EBUSY)
		return rc;
	if (rc)
		return err_set(err, strstr(err->text, strerror(ENOSPC)) ? ENOSPC : -rc,
			       "the VM cannot hibernate: %.400s", err->text);
	if (!vm_lock_free(paths, id, STATUS_MS))
		return err_set(err, EBUSY, "the VM %lld hibernates and does not end", (long long)id);
	return 0;
}

static int destroy(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_FREE char *folder = vm_folder(paths, id);
	CLEAN_FREE char *socket = sandbox_socket(paths, id);
	int64_t end = clock_mono_ms() + STATUS_MS;
	/* A keeper whose starter has given up may begin meanwhile: it puts files into the folder until it sees that. */
	while (file_exists(folder)) {
		kill_vm(paths, id);
		if (!vm_lock_free(paths, id, STATUS_MS))
			return err_set(err, EBUSY, "the VM %lld cannot be ended: another process holds its disk",
				       (long long)id);
		unlink(socket);
		int rc = dir_remove(folder, err);
		if (rc && (rc != -ENOTEMPTY || clock_mono_ms() > end))
			return rc;
	}
	return 0;
}

static int save(const struct paths *paths, int64_t id, const char *to, bool *alone, struct err *err)
{
	CLEAN_BUF struct buf status = BUF_INIT;
	CLEAN_FREE char *folder = vm_folder(paths, id);
	bool runs = !vm_ask(paths, id, "status\n", STATUS_MS, &status, NULL);
	if (runs || !vm_lock_free(paths, id, STATUS_MS)) /* a QEMU whose keeper is dead ends soon */
		return err_set(err, EBUSY, "the VM %lld runs: it has to be down to be saved", (long long)id);
	return template_save(paths, folder, to, alone, err);
}

static void describe(const struct paths *paths, int64_t id, enum sandbox_state s, char out[64])
{
	static const char *const words[] = {"vm none", "vm down", "vm running", "vm paused", "vm hibernated"};
	bool emulated = s == SANDBOX_RUNNING && !vm_kvm(paths, id);
	snprintf(out, 64, "%s%s", words[s], emulated ? " tcg" : "");
}

static int ssh(const struct paths *paths, int64_t id, struct err *err)
{
	return vm_request(paths, id, "ssh\n", clock_mono_ms() + STATUS_MS, NULL, err);
}

const struct driver driver_vm = {.kind = "vm",
				 .possible = possible,
				 .up = up,
				 .state = state,
				 .pause = pause_vm,
				 .resume = resume_vm,
				 .down = down,
				 .hibernate = hibernate,
				 .destroy = destroy,
				 .copy = vm_copy,
				 .describe = describe,
				 .save = save,
				 .ssh = ssh};
