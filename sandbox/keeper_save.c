/* Hibernation and its end: a row of steps that the keeper's loop drives. Runs on the keeper's only thread; a helper
 * thread copies memory, and touches nothing else. Must never let the guest run on while a file of its memory says that
 * the disk is as the memory thinks, and never send the guest a byte that it would not get. */
#include "keeper_save.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "keeper.h"
#include "keeper_vm.h"
#include "ram.h"

#define STEP_MS	 60000 /* of each step that waits for the guest or for QEMU */
#define ENTROPY	 64    /* bytes */
#define STATE_FD "state"

static void enter(struct keeper *k, enum save_step step)
{
	struct save *s = &k->save;
	s->step = step;
	s->live = false;
	s->end = step == SAVE_NONE || step == SAVE_LOAD || step == SAVE_WRITE || step == SAVE_DONE
			 ? INT64_MAX
			 : clock_mono_ms() + STEP_MS;
}

void save_init(struct keeper *k)
{
	k->save = (struct save){.ram = -1, .state = -1, .talk = -1, .end = INT64_MAX};
	k->save.ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void save_key(struct keeper *k, const struct qemu_spec *spec)
{
	CLEAN_BUF struct buf key = BUF_INIT;
	qemu_key(spec, &key);
	k->save.key = buf_take(&key);
	k->save.path = xasprintf("%s/" KEEPER_MEMORY, k->folder);
	k->save.tmp = xasprintf("%s.new", k->save.path);
}

void save_from(struct keeper *k, const char *path, const char *once, bool clone)
{
	k->save.from = xstrdup(path);
	k->save.once = xstrdup(once);
	k->save.clone = clone;
	enter(k, SAVE_FIND);
}

bool save_restoring(const struct keeper *k)
{
	return k->save.step >= SAVE_FIND;
}

bool save_busy(const struct keeper *k)
{
	return k->save.step != SAVE_NONE;
}

/* A step went wrong. A guest that was to be saved goes on, one that was to be restored is given up. */
static void fail(struct keeper *k, const struct err *why)
{
	struct save *s = &k->save;
	if (s->step == SAVE_NONE || s->step == SAVE_UNDO || s->step == SAVE_DONE || s->failed)
		return;
	s->why = *why;
	log_warn("%s: %s", save_restoring(k) ? "the saved memory cannot be used" : "the VM cannot hibernate",
		 why->text);
	if (save_restoring(k)) {
		s->failed = true;
		keeper_kill(k);
	} else {
		enter(k, SAVE_UNDO);
	}
}

__attribute__((format(printf, 2, 3))) static void fail_with(struct keeper *k, const char *fmt, ...)
{
	struct err why = ERR_INIT;
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *words = xvasprintf(fmt, ap);
	va_end(ap);
	err_set(&why, EIO, "%s", words);
	fail(k, &why);
}

/* ---- QEMU ---- */

static void on_qmp(void *arg, const cJSON *result, const struct err *err)
{
	if (err)
		fail(arg, err);
}

static void command(struct keeper *k, const char *name, const char *arguments)
{
	qmp_execute(k->qmp, name, arguments, on_qmp, k);
}

/* Memory is shared and copied by us, so that it is no part of a migration. */
static void capabilities(struct keeper *k)
{
	command(k, "migrate-set-capabilities",
		"{\"capabilities\":[{\"capability\":\"x-ignore-shared\",\"state\":true},"
		"{\"capability\":\"events\",\"state\":true}]}");
}

static bool new_state(struct keeper *k)
{
	fd_close(&k->save.state);
	k->save.state = memfd_create("berthfs-devices", MFD_CLOEXEC);
	if (k->save.state >= 0)
		return true;
	fail_with(k, "no memory file: %s", strerror(errno));
	return false;
}

static bool pass_state(struct keeper *k)
{
	int rc = qmp_pass(k->qmp, STATE_FD, k->save.state, on_qmp, k);
	if (rc)
		fail_with(k, "QEMU cannot be given a descriptor: %s", strerror(-rc));
	return !rc;
}

void save_migration(struct keeper *k, const char *status)
{
	if (!strcmp(status, "failed"))
		fail_with(k, "QEMU cannot %s the state of the devices",
			  k->save.step == SAVE_INCOMING ? "read" : "write");
	else if (strcmp(status, "completed") != 0)
		return;
	else if (k->save.step == SAVE_INCOMING)
		enter(k, SAVE_GO);
	else if (k->save.step == SAVE_DEVICES)
		enter(k, SAVE_WRITE);
}

/* ---- the helper ---- */

static void *load(void *arg)
{
	struct save *s = arg;
	uint64_t one = 1;
	s->rc = ram_load(s->from, s->ram, s->state, &s->result);
	(void)!write(s->ended, &one, sizeof one);
	return NULL;
}

static void *save(void *arg)
{
	struct save *s = arg;
	uint64_t one = 1;
	s->rc = ram_save(s->ram, s->state, s->key, s->tmp, &s->result);
	if (!s->rc)
		s->rc = file_rename(s->tmp, s->path, &s->result);
	(void)!write(s->ended, &one, sizeof one);
	return NULL;
}

static bool help(struct keeper *k, void *(*with)(void *))
{
	k->save.result = ERR_INIT;
	int rc = pthread_create(&k->save.thread, NULL, with, &k->save);
	if (rc)
		fail_with(k, "cannot start a thread: %s", strerror(rc));
	k->save.helping = !rc;
	return !rc;
}

/* Whether it has ended; then its result has been taken in. */
static bool helped(struct keeper *k)
{
	struct save *s = &k->save;
	uint64_t n;
	if (!s->helping || read(s->ended, &n, sizeof n) != sizeof n)
		return false;
	pthread_join(s->thread, NULL);
	s->helping = false;
	if (s->rc)
		fail(k, &s->result);
	return !s->rc;
}

/* ---- the one request to the guest ---- */

static void ask_guest(struct keeper *k, enum wire_op op, const char *host)
{
	struct wire_out o = {.b = BUF_INIT};
	unsigned char entropy[ENTROPY];
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		fail_with(k, "no pair of sockets: %s", strerror(errno));
		return;
	}
	bool renew = op == WIRE_RENEW;
	if (renew && getrandom(entropy, sizeof entropy, 0) != sizeof entropy)
		abort(); /* cannot be: the kernel gives that many in one go */
	wire_begin(&o, WIRE_REQUEST, 1);
	wire_add_num(&o, WIRE_OP, op);
	if (renew)
		wire_add_num(&o, WIRE_TIME, (uint64_t)clock_real_ms());
	wire_add_text(&o, WIRE_TEXT, host);
	wire_end(&o, entropy, renew ? sizeof entropy : 0);
	k->save.talk = pair[1];
	fd_nonblock(pair[1]);
	wire_reader_release(&k->save.answer);
	if (fd_write_full(pair[1], o.b.p, o.b.n) || mux_open(k->mux, "tool", take_fd(&pair[0]), NULL))
		fail_with(k, "the guest cannot be reached");
	fd_close(&pair[0]);
	wire_out_release(&o);
}

/* 1: it has answered and agreed. 0: not yet. */
static int guest_answer(struct keeper *k)
{
	struct wire_msg m;
	char room[4096];
	ssize_t n = recv(k->save.talk, room, sizeof room, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n > 0)
		wire_feed(&k->save.answer, room, (size_t)n);
	int rc = n > 0 ? wire_next(&k->save.answer, &m) : -ECONNRESET;
	if (rc > 0 && m.type == WIRE_RESULT) {
		fd_close(&k->save.talk);
		return 1;
	}
	if (rc)
		fail_with(k, "the guest %s", rc > 0 ? "refused" : "has closed the connection");
	return 0;
}

/* ---- the steps ---- */

int save_begin(struct keeper *k, struct err *err)
{
	if (k->save.step != SAVE_NONE)
		return 0; /* goes on already */
	if (k->phase != VM_RUNNING)
		return err_set(err, EAGAIN, "the VM does not run");
	if (k->stalled)
		return err_set(err, ENOSPC, "the disk of the machine is full");
	if (mux_streams(k->mux) > mux_guest_streams(k->mux))
		return err_set(err, EBUSY, KEEPER_BUSY "somebody is connected to the VM");
	if (k->save.ram < 0)
		k->save.ram = ram_find(k->qemu.pid, NULL, err);
	if (k->save.ram < 0)
		return -err->code;
	enter(k, SAVE_SETTLE);
	keeper_phase(k, VM_SAVING);
	keeper_resume(k);
	ask_guest(k, WIRE_SETTLE, NULL);
	return 0;
}

static void step_settle(struct keeper *k)
{
	if (!guest_answer(k))
		return;
	enter(k, SAVE_SYNC);
	mux_restart(k->mux);
}

static void step_sync(struct keeper *k)
{
	if (!k->save.live)
		return;
	enter(k, SAVE_DEVICES);
	k->save.quiet = true;
	if (!new_state(k))
		return;
	capabilities(k);
	command(k, "stop", NULL);
	if (pass_state(k))
		command(k, "migrate", "{\"uri\":\"fd:" STATE_FD "\"}");
}

static void step_write(struct keeper *k)
{
	if (!k->save.helping && !help(k, save))
		return;
	if (!helped(k))
		return;
	enter(k, SAVE_DONE);
	keeper_quit(k);
}

/* Back to where it was, with the connection that the guest has been told of. */
static void step_undo(struct keeper *k)
{
	struct err err = ERR_INIT;
	fd_close(&k->save.talk);
	k->save.quiet = false;
	enter(k, SAVE_NONE);
	if (file_remove(k->save.path, &err)) { /* it may be there: with it the guest must not go on */
		log_error("%s", err.text);
		keeper_kill(k);
		return;
	}
	qmp_execute(k->qmp, "cont", NULL, NULL, NULL);
	keeper_phase(k, mux_state(k->mux) == MUX_LIVE ? VM_RUNNING : VM_BOOTING);
}

static void step_find(struct keeper *k)
{
	struct err err = ERR_INIT;
	if (!qmp_ready(k->qmp))
		return;
	k->save.ram = ram_find(k->qemu.pid, NULL, &err);
	if (k->save.ram < 0) {
		fail(k, &err);
		return;
	}
	capabilities(k);
	if (new_state(k) && help(k, load))
		enter(k, SAVE_LOAD);
}

static void step_load(struct keeper *k)
{
	if (!helped(k))
		return;
	enter(k, SAVE_INCOMING);
	if (pass_state(k))
		command(k, "migrate-incoming", "{\"uri\":\"fd:" STATE_FD "\"}");
}

/* From here on the disk goes its own way: the file must be gone, and be so for good, before the guest runs. */
static void step_go(struct keeper *k)
{
	struct err err = ERR_INIT;
	if (k->save.once && file_remove(k->save.once, &err)) {
		fail(k, &err);
		return;
	}
	enter(k, SAVE_CONNECT);
	command(k, "cont", NULL);
	mux_port(k->mux, take_fd(&k->qemu.port));
}

static void step_connect(struct keeper *k)
{
	if (!k->save.live)
		return;
	enter(k, SAVE_RENEW);
	ask_guest(k, WIRE_RENEW, k->save.clone ? k->host : NULL);
}

static void step_renew(struct keeper *k)
{
	if (!guest_answer(k))
		return;
	enter(k, SAVE_NONE);
	fd_close(&k->save.state);
	if (mux_state(k->mux) == MUX_LIVE)
		keeper_phase(k, VM_RUNNING);
}

void save_work(struct keeper *k)
{
	static void (*const steps[SAVE_STEPS])(struct keeper *) = {
		[SAVE_SETTLE] = step_settle, [SAVE_SYNC] = step_sync,	    [SAVE_WRITE] = step_write,
		[SAVE_UNDO] = step_undo,     [SAVE_FIND] = step_find,	    [SAVE_LOAD] = step_load,
		[SAVE_GO] = step_go,	     [SAVE_CONNECT] = step_connect, [SAVE_RENEW] = step_renew};
	enum save_step before;
	if (k->phase == VM_ENDED || (k->phase == VM_STOPPING && k->save.step < SAVE_WRITE))
		return;
	if (clock_mono_ms() >= k->save.end)
		fail_with(k, "no answer within %d s", STEP_MS / 1000);
	do {
		before = k->save.step;
		if (steps[before] && !k->save.failed)
			steps[before](k);
	} while (k->save.step != before);
}

void save_poll(struct keeper *k, struct pollfd *p)
{
	p[0] = (struct pollfd){.fd = k->save.talk, .events = POLLIN};
	p[1] = (struct pollfd){.fd = k->save.helping ? k->save.ended : -1, .events = POLLIN};
}

int64_t save_due(const struct keeper *k)
{
	return k->save.failed ? INT64_MAX : k->save.end;
}

void save_finish(struct keeper *k)
{
	struct save *s = &k->save;
	if (s->helping)
		pthread_join(s->thread, NULL);
	if (s->tmp)
		unlink(s->tmp);
	if (s->step == SAVE_WRITE) /* ended from outside meanwhile */
		unlink(s->path);
	fd_close(&s->ram);
	fd_close(&s->state);
	fd_close(&s->talk);
	fd_close(&s->ended);
	wire_reader_release(&s->answer);
	free(s->from);
	free(s->once);
	free(s->tmp);
	free(s->path);
	free(s->key);
}
