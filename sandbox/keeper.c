/* The keeper of one VM: a process that outlives the daemon, parent of one QEMU. It holds QEMU's control connection and
 * the one connection into the guest, so that a daemon that is killed loses no stream, and ends when QEMU has ended.
 * One thread, one poll loop; must never block (a guest or a client may be stuck) and never leave a QEMU behind: QEMU
 * dies with it. Its lock makes it the only one that runs its disk. */
#include "keeper.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "keeper_vm.h"
#include "listen.h"
#include "process.h"
#include "ram.h"
#include "sandbox.h"
#include "tsc.h"
#include "warm.h"
#include "wire.h"

#define LOCK_WAIT_MS 5000 /* a QEMU whose keeper was killed is gone within moments */
#define QUIT_MS	     2000 /* from QMP's quit, which writes the disk's last blocks, to SIGKILL */
#define STALL_MS     2000 /* how often a VM that found the disk full is tried again */
#define STALL_FREE   (256ULL << 20)
#define LOOK_MS	     5000 /* how often the folder is looked for where the kernel does not tell of it */

struct options {
	const char *folder, *vmlinux, *initrd, *host;
	const char *restore; /* file of memory to start from, or NULL */
	const char *once;    /* file that has to be gone before the guest goes on */
	const char *clone;   /* others start from that memory, too: the guest gets to be another machine */
	const char *kvm;     /* not emulated */
	const char *spare;   /* has only the time that nobody else wants */
	int cpus, memory_mib;
};

/* "--NAME VALUE" pairs, wherever they begin. */
static int parse(int argc, char **argv, struct options *o)
{
	const char *cpus = "0", *memory = "0";
	const struct {
		const char *name, **value;
	} known[] = {{"--folder", &o->folder},	 {"--vmlinux", &o->vmlinux}, {"--initrd", &o->initrd},
		     {"--host", &o->host},	 {"--cpus", &cpus},	     {"--memory", &memory},
		     {"--restore", &o->restore}, {"--clone", &o->clone},     {"--once", &o->once},
		     {"--spare", &o->spare},	 {"--kvm", &o->kvm}};
	int i = 0;
	while (i < argc && argv[i][0] != '-')
		i++;
	for (; i + 1 < argc; i += 2)
		for (size_t j = 0; j < ARRAY_LEN(known); j++)
			if (!strcmp(argv[i], known[j].name))
				*known[j].value = argv[i + 1];
	o->cpus = atoi(cpus);
	o->memory_mib = atoi(memory);
	for (const char *p = o->host; p && *p; p++) /* it goes into the kernel's command line */
		if (!isalnum((unsigned char)*p) && *p != '-')
			return -EINVAL;
	return o->folder && o->vmlinux && o->initrd && o->host && o->cpus > 0 && o->memory_mib > 0 ? 0 : -EINVAL;
}

/* ---- what happens to the VM ---- */

void keeper_phase(struct keeper *k, enum vm_phase phase)
{
	k->changed |= k->phase != phase;
	k->phase = phase;
	if (phase == VM_RUNNING) {
		CLEAN_FREE char *fresh = xasprintf("%s/" KEEPER_FRESH, k->folder);
		unlink(fresh); /* it has an identity of its own by now */
	}
}

static int guest_stream(void *arg, const char *kind)
{
	struct keeper *k = arg;
	return listen_net(kind, k->net, "VM", &k->net_failed);
}

static void mux_changed(void *arg, enum mux_state state, const char *why)
{
	struct keeper *k = arg;
	k->save.live |= state == MUX_LIVE;
	k->lived |= state == MUX_LIVE;
	if (state == MUX_LIVE && k->phase == VM_BOOTING && !save_busy(k))
		keeper_phase(k, VM_RUNNING);
	else if (state != MUX_LIVE && k->phase == VM_RUNNING)
		keeper_phase(k, VM_BOOTING);
	if (state == MUX_DOWN && k->phase != VM_ENDED)
		log_info("the connection into the VM is gone: %s", why);
}

/* A processor that KVM cannot go on with stops the guest, and nothing else happens. */
static void stopped_why(void *arg, const cJSON *result, const struct err *err)
{
	struct keeper *k = arg;
	const char *status = err ? NULL : json_str(result, "status");
	if (!status || strcmp(status, "internal-error") != 0)
		return;
	log_error("QEMU has an internal error: the guest cannot go on");
	k->broken = true;
	keeper_kill(k);
}

static void qmp_event(void *arg, const char *name, const cJSON *data)
{
	struct keeper *k = arg;
	if (!strcmp(name, "BLOCK_IO_ERROR")) {
		const char *action = json_str(data, "action");
		log_warn("the VM's disk: %s%s",
			 json_bool(data, "nospace", false) ? "no space left" : "input/output error",
			 action && !strcmp(action, "stop") ? "; the VM waits" : "");
		if (action && !strcmp(action, "stop") && !k->stalled) {
			k->stalled = true;
			k->retry_at = clock_mono_ms() + STALL_MS;
		}
	} else if (!strcmp(name, "STOP")) {
		qmp_execute(k->qmp, "query-status", NULL, stopped_why, k);
	} else if (!strcmp(name, "RESUME")) {
		k->stalled = false;
	} else if (!strcmp(name, "MIGRATION") && json_str(data, "status")) {
		save_migration(k, json_str(data, "status"));
	}
}

static void qmp_closed(void *arg, const struct err *why)
{
	log_debug("%s", why->text);
}

void keeper_kill(struct keeper *k)
{
	if (k->phase != VM_ENDED)
		child_kill_jail(k->qemu.pid);
}

/* Tells the tool daemon to power off. Its answer is of no interest: QEMU ends or it does not. */
static bool tell_guest(struct keeper *k)
{
	int pair[2];
	if (k->phase != VM_RUNNING || k->stalled || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return false;
	struct wire_out o = {.b = BUF_INIT};
	wire_begin(&o, WIRE_REQUEST, 1);
	wire_add_num(&o, WIRE_OP, WIRE_SHUTDOWN);
	wire_end(&o, "", 0);
	bool told = !fd_write_full(pair[1], o.b.p, o.b.n) && !mux_open(k->mux, "tool", take_fd(&pair[0]), NULL);
	wire_out_release(&o);
	fd_close(&pair[0]);
	shutdown(pair[1], SHUT_WR); /* nothing follows: the guest need not wait for us to close */
	k->power = pair[1];	    /* open until the end: closing it could take the request back */
	return told;
}

void keeper_stop(struct keeper *k)
{
	if (k->phase == VM_STOPPING || k->phase == VM_ENDED)
		return;
	keeper_resume(k); /* only a guest that runs powers off by itself */
	if (k->motion == VM_PAUSED)
		thin_end(k); /* or QEMU does */
	int64_t grace = tell_guest(k) ? KEEPER_POWEROFF_MS : 0;
	keeper_phase(k, VM_STOPPING);
	k->stop_at = clock_mono_ms() + grace;
	k->kill_at = k->stop_at + QUIT_MS;
}

void keeper_quit(struct keeper *k)
{
	keeper_phase(k, VM_STOPPING);
	k->stop_at = clock_mono_ms();
	k->kill_at = k->stop_at + QUIT_MS;
}

static void describe_end(struct keeper *k, int status)
{
	char when[CLOCK_TEXT];
	const char *asked = k->save.step == SAVE_DONE ? "hibernated"
			    : k->phase == VM_STOPPING ? "powered off"
						      : "ended by itself";
	clock_rfc3339(clock_real_ms(), when);
	/* the jail passes on how QEMU ended: 128 and the signal */
	int signal = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;
	if (k->save.failed)
		snprintf(k->ended, sizeof k->ended, KEEPER_NOT_RESTORED "%.180s", k->save.why.text);
	else if (save_restoring(k) && k->phase != VM_STOPPING)
		snprintf(k->ended, sizeof k->ended, KEEPER_NOT_RESTORED "QEMU ended with code %d at %s", signal + 128,
			 when);
	else if (k->kvm && !k->lived && k->phase != VM_STOPPING && (k->broken || signal != SIGKILL))
		snprintf(k->ended, sizeof k->ended, KEEPER_NO_KVM "%s%d at %s",
			 k->broken ? "an internal error of QEMU, which ended with code " : "QEMU ended with code ",
			 signal > 0 ? signal + 128 : WEXITSTATUS(status), when);
	else if (k->broken)
		snprintf(k->ended, sizeof k->ended, "ended for an internal error of QEMU at %s", when);
	else if (signal > 0)
		snprintf(k->ended, sizeof k->ended, "killed by signal %d at %s", signal, when);
	else if (WEXITSTATUS(status))
		snprintf(k->ended, sizeof k->ended, "QEMU failed with exit code %d at %s", WEXITSTATUS(status), when);
	else
		snprintf(k->ended, sizeof k->ended, "%s%s at %s",
			 k->stop_at < 0 && k->save.step != SAVE_DONE ? "cut off, " : "", asked, when);
}

static void reap(struct keeper *k)
{
	int status;
	if (k->phase == VM_ENDED || waitpid(k->qemu.pid, &status, WNOHANG) != k->qemu.pid)
		return;
	describe_end(k, status);
	keeper_phase(k, VM_ENDED);
}

/* The lock is the one file that stays as long as the folder does. */
static bool folder_gone(const struct keeper *k)
{
	struct stat st;
	return !fstat(k->lock, &st) && !st.st_nlink;
}

/* SIGIO whenever a file of the folder is removed. Not by inotify, of which a user has 128 instances for all programs.
 */
static void watch_folder(struct keeper *k)
{
	k->folder_fd = open(k->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (k->folder_fd >= 0 && !fcntl(k->folder_fd, F_NOTIFY, DN_DELETE | DN_MULTISHOT))
		return;
	log_info("%s is looked for every %d s: %s", k->folder, LOOK_MS / 1000, strerror(errno));
	k->look_at = clock_mono_ms() + LOOK_MS;
}

/* Nobody could ever find the VM, or end it. */
static void look_for_folder(struct keeper *k)
{
	if (!folder_gone(k))
		return;
	log_warn("%s has been removed: its VM ends", k->folder);
	keeper_kill(k);
}

static void signalled(struct keeper *k)
{
	struct signalfd_siginfo s;
	struct err err = ERR_INIT;
	while (read(k->signals, &s, sizeof s) == sizeof s) {
		if (s.ssi_signo == SIGCHLD)
			reap(k);
		else if (s.ssi_signo == SIGTERM)
			keeper_stop(k);
		else if (s.ssi_signo == SIGIO)
			look_for_folder(k);
		else if (listen_noted(k->folder, &k->socket, &k->listener, &err))
			log_warn("%s", err.text);
	}
}

static void go_on(void *arg, const cJSON *result, const struct err *err)
{
	if (err)
		log_warn("the VM cannot go on: %s", err->text);
}

static bool has_space(const char *folder)
{
	struct statvfs v;
	return !statvfs(folder, &v) && (uint64_t)v.f_bavail * v.f_frsize > STALL_FREE;
}

/* What is due; returns milliseconds until the next thing is, or -1. */
static int timers(struct keeper *k)
{
	int64_t now = clock_mono_ms(), next = INT64_MAX;
	if (k->phase == VM_STOPPING) {
		if (k->stop_at >= 0 && now >= k->stop_at) {
			qmp_execute(k->qmp, "quit", NULL, NULL, NULL);
			k->stop_at = -1;
		}
		if (now >= k->kill_at) {
			keeper_kill(k);
			k->kill_at = INT64_MAX;
		}
		next = k->stop_at >= 0 ? k->stop_at : k->kill_at;
	}
	if (k->stalled && k->motion == VM_GOING && now >= k->retry_at) {
		k->retry_at = now + STALL_MS;
		if (has_space(k->folder))
			qmp_execute(k->qmp, "cont", NULL, go_on, k);
	}
	if (k->stalled && k->motion == VM_GOING && k->retry_at < next)
		next = k->retry_at;
	if (save_due(k) < next)
		next = save_due(k);
	if (thin_due(k) < next)
		next = thin_due(k);
	if (k->look_at && now >= k->look_at) {
		look_for_folder(k);
		k->look_at = now + LOOK_MS;
	}
	if (k->look_at && k->look_at < next)
		next = k->look_at;
	return next == INT64_MAX ? -1 : (int)(next > now ? next - now : 0);
}

static void run(struct keeper *k)
{
	enum { SIGNALS, MUX, QMP, CONSOLE, CLOCK, THIN, LISTENER, SAVE, OWN = SAVE + SAVE_FDS };
	while (k->phase != VM_ENDED) {
		int wait = timers(k);
		struct pollfd p[OWN + CLIENTS_MAX] = {
			[SIGNALS] = {k->signals, POLLIN, 0},
			[MUX] = {k->save.quiet ? -1 : mux_fd(k->mux), POLLIN, 0},
			[QMP] = {qmp_fd(k->qmp), qmp_events(k->qmp), 0},
			[CONSOLE] = {k->console.fd, POLLIN, 0},
			[CLOCK] = {k->clock, POLLIN, 0},
			[THIN] = {thin_fd(k), POLLIN, 0},
			[LISTENER] = {k->client_count < CLIENTS_MAX ? k->listener : -1, POLLIN, 0},
		};
		save_poll(k, p + SAVE);
		int clients = clients_poll(k, p + OWN);
		if (poll(p, (nfds_t)(OWN + clients), wait) < 0 && errno != EINTR)
			break;
		if (p[CONSOLE].revents)
			console_read(&k->console);
		if (p[MUX].revents)
			mux_work(k->mux);
		if (p[QMP].revents)
			qmp_work(k->qmp);
		if (p[CLOCK].revents)
			keeper_clock_answered(k);
		clients_work(k, p + OWN, clients);
		if (p[LISTENER].revents)
			clients_accept(k);
		if (p[SIGNALS].revents)
			signalled(k);
		save_work(k);
		thin_work(k);
		if (k->changed) {
			k->changed = false;
			console_read(&k->console); /* its last words come before the news of its end */
			clients_phase(k);
		}
	}
}

/* ---- start and end ---- */

/* The lock of a keeper that was killed is held by its QEMU until the kernel has ended that. */
static int take_lock(const char *folder, int *lock, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/lock", folder);
	int64_t end = clock_mono_ms() + LOCK_WAIT_MS;
	*lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*lock < 0)
		return err_sys(err, errno, "cannot open %s", path);
	while (flock(*lock, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_sys(err, errno, "cannot lock %s", path);
		if (clock_mono_ms() > end)
			return err_set(err, EBUSY, "another process runs the disk in %s", folder);
		clock_sleep_ms(20);
	}
	return 0;
}

static int signals_open(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGIO);
	sigprocmask(SIG_SETMASK, &set, NULL);
	signal(SIGINT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Looked at before anything is started. */
static int may_restore(struct qemu_spec *spec, const char *path, struct err *err)
{
	CLEAN_BUF struct buf saved = BUF_INIT;
	CLEAN_BUF struct buf now = BUF_INIT;
	int rc = ram_key(path, &saved, err);
	qemu_key(spec, &now);
	if (!rc && !qemu_key_fits(buf_str(&saved), buf_str(&now), err))
		rc = -err->code;
	spec->khz = qemu_key_khz(buf_str(&saved));
	struct err why = *err;
	return rc ? err_set(err, -rc, KEEPER_NOT_RESTORED "%s", why.text) : 0;
}

static int start(struct keeper *k, const struct options *o, struct err *err)
{
	static const struct mux_ops mux_ops = {guest_stream, mux_changed};
	static const struct qmp_ops qmp_ops = {qmp_event, qmp_closed};
	CLEAN_FREE char *disk = xasprintf("%s/disk.qcow2", o->folder);
	CLEAN_FREE char *console = xasprintf("%s/console.log", o->folder);
	CLEAN_FREE char *pid = xasprintf("%s/keeper.pid", o->folder);
	CLEAN_FREE char *ended = xasprintf("%s/ended", o->folder);
	CLEAN_FREE char *self = xasprintf("%d %llu\n", (int)getpid(), process_start(getpid()));
	CLEAN_FREE char *accel = xasprintf("%s/" KEEPER_ACCEL, o->folder);
	CLEAN_FREE char *note = xasprintf("%s/bases", o->folder);
	CLEAN_FREE char *fresh = xasprintf("%s/" KEEPER_FRESH, o->folder);
	CLEAN_BUF struct buf bases = BUF_INIT;
	file_read(note, &bases, 65536, NULL); /* none: the disk lies on the image alone */
	struct qemu_spec spec = {.vmlinux = o->vmlinux,
				 .initrd = o->initrd,
				 .disk = disk,
				 .bases = buf_str(&bases),
				 .host = o->host,
				 .fresh = file_exists(fresh),
				 .cpus = o->cpus,
				 .memory_mib = o->memory_mib,
				 .kvm = o->kvm != NULL,
				 .incoming = o->restore != NULL,
				 .lock_fd = k->lock};
	unlink(ended);
	k->net = xasprintf("%s/net", o->folder);
	int rc = o->restore ? may_restore(&spec, o->restore, err) : 0;
	if (!rc && !o->restore && !o->kvm)
		spec.khz = tsc_khz();
	save_key(k, &spec);
	thin_from(k, o->clone ? o->restore : NULL);
	if (!rc && (k->signals = signals_open()) < 0)
		rc = err_sys(err, errno, "cannot wait for signals");
	if (!rc)
		watch_folder(k);
	if (!rc)
		rc = mux_new(MUX_HOST, &mux_ops, k, &k->mux, err);
	if (!rc)
		rc = file_write(pid, self, strlen(self), 0600, err);
	if (!rc)
		rc = file_write(accel, spec.kvm ? "kvm\n" : "tcg\n", 4, 0600, err);
	if (!rc)
		rc = listen_noted(k->folder, &k->socket, &k->listener, err);
	if (!rc)
		rc = qemu_start(&spec, &k->qemu, err);
	if (rc)
		return rc;
	console_init(&k->console, take_fd(&k->qemu.console), console);
	k->qmp = qmp_new(take_fd(&k->qemu.qmp), &qmp_ops, k);
	if (o->restore)
		save_from(k, o->restore, o->once, o->clone != NULL);
	else
		mux_port(k->mux, take_fd(&k->qemu.port));
	return 0;
}

static void finish(struct keeper *k, const struct options *o)
{
	CLEAN_FREE char *ended = xasprintf("%s/ended", o->folder);
	CLEAN_FREE char *pid = xasprintf("%s/keeper.pid", o->folder);
	CLEAN_FREE char *line = xasprintf("%s\n", k->ended);
	log_info("the VM has ended: %s", k->ended);
	unlink(k->socket);
	unlink(pid);
	if (!folder_gone(k))
		file_write(ended, line, strlen(line), 0600, NULL);
	clients_accept(k); /* those that were just connecting */
	clients_phase(k);
	clients_release(k);
	save_finish(k);
	thin_finish(k);
	fd_close(&k->qemu.port);
	mux_free(k->mux);
	qmp_free(k->qmp);
	console_release(&k->console);
	fd_close(&k->power);
	fd_close(&k->clock);
	fd_close(&k->folder_fd);
	fd_close(&k->lock);
	free(k->socket);
	free(k->net);
}

int sandbox_keeper_main(int argc, char **argv)
{
	struct options o = {.host = "sandbox"};
	struct keeper k = {.listener = -1,
			   .signals = -1,
			   .power = -1,
			   .clock = -1,
			   .lock = -1,
			   .folder_fd = -1,
			   .qemu = {.pid = -1, .port = -1, .qmp = -1, .console = -1}};
	struct err err = ERR_INIT;
	list_init(&k.clients);
	save_init(&k);
	thin_init(&k);
	if (argc > 2 && !strcmp(argv[1], WARM_VERB))
		return warm_main(argc - 2, argv + 2);
	if (fcntl(PROCESS_STATUS_FD, F_SETFD, FD_CLOEXEC) || parse(argc, argv, &o)) {
		log_error("%s is started by berthfs itself", KEEPER_VERB);
		return 64;
	}
	umask(077);
	setsid();
	if (o.spare)
		sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
	k.folder = o.folder;
	k.host = o.host;
	k.kvm = o.kvm != NULL;
	int rc = take_lock(o.folder, &k.lock, &err);
	if (!rc)
		rc = start(&k, &o, &err);
	if (rc) {
		log_error("%s", err.text);
		if (k.socket)
			unlink(k.socket);
		process_report("error ", err.text);
		return 1;
	}
	/* Whoever gave up before could not know of us, and end us: the sandbox may be gone by now. */
	if (!process_report("ok", "") || folder_gone(&k))
		keeper_kill(&k);
	run(&k);
	finish(&k, &o);
	return 0;
}
