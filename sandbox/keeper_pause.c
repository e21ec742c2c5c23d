/* The keeper's part in pausing its VM: QEMU stops the guest's processors and lets them go on. Runs on the keeper's only
 * thread and never blocks: QEMU's answers come later. Must never
 * stop a guest while somebody is connected to it, but for the moment of a copy of its disk. */
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "keeper.h"
#include "keeper_vm.h"
#include "wire.h"

#define ENTROPY 64

static void move(struct keeper *k, enum vm_motion motion)
{
	k->changed |= k->motion != motion;
	k->motion = motion;
}

bool keeper_resting(const struct keeper *k)
{
	return k->motion == VM_PAUSING || k->motion == VM_PAUSED;
}

static void stopped(void *arg, const cJSON *result, const struct err *err)
{
	struct keeper *k = arg;
	if (err)
		snprintf(k->stuck, sizeof k->stuck, "the VM cannot be paused: %s", err->text);
	if (k->motion != VM_PAUSING) /* somebody has come meanwhile: it goes on */
		return;
	move(k, err ? VM_GOING : VM_PAUSED);
	thin_begin(k);
}

const char *keeper_pause(struct keeper *k)
{
	if (k->phase == VM_SAVING)
		return KEEPER_BUSY "the VM is about to hibernate";
	if (k->phase != VM_RUNNING)
		return k->phase == VM_BOOTING ? KEEPER_BUSY "the VM is starting" : "the VM is powering off";
	if (k->stalled)
		return KEEPER_BUSY "the VM waits for room on the host's disk";
	if (k->holds)
		return KEEPER_BUSY "its disk is being copied";
	if (keeper_resting(k))
		return NULL;
	if (k->motion == VM_RESUMING || mux_streams(k->mux) > mux_guest_streams(k->mux))
		return KEEPER_BUSY "somebody is connected to the VM";
	move(k, VM_PAUSING);
	qmp_execute(k->qmp, "stop", NULL, stopped, k);
	return NULL;
}

/* ---- going on ---- */

/* The guest's clocks have stood still. It is told the time, and given random bytes, whoever it was that wanted it to go
 * on: in a hello, the answer to which is of no interest. */
static void tell_time(struct keeper *k)
{
	int pair[2];
	unsigned char entropy[ENTROPY];
	ssize_t n = getrandom(entropy, sizeof entropy, GRND_NONBLOCK);
	fd_close(&k->clock);
	if (mux_state(k->mux) != MUX_LIVE || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return;
	struct wire_out o = {.b = BUF_INIT};
	wire_begin(&o, WIRE_REQUEST, 1);
	wire_add_num(&o, WIRE_OP, WIRE_HELLO);
	wire_add_num(&o, WIRE_VERSION_TAG, WIRE_VERSION);
	wire_add_num(&o, WIRE_TIME, (uint64_t)clock_real_ms());
	wire_end(&o, entropy, n > 0 ? (size_t)n : 0);
	bool told = !fd_write_full(pair[1], o.b.p, o.b.n) && !mux_open(k->mux, "tool", take_fd(&pair[0]), NULL);
	wire_out_release(&o);
	fd_close(&pair[0]);
	if (told)
		k->clock = take_fd(&pair[1]); /* closing it now could take the request back */
	fd_close(&pair[1]);
}

void keeper_clock_answered(struct keeper *k)
{
	fd_close(&k->clock);
}

static void gone_on(void *arg, const cJSON *result, const struct err *err)
{
	struct keeper *k = arg;
	if (err)
		snprintf(k->stuck, sizeof k->stuck, "the paused VM does not go on: %s", err->text);
	if (err)
		log_warn("%s", k->stuck);
	move(k, err ? VM_PAUSED : VM_GOING);
	if (!err && k->phase == VM_RUNNING)
		tell_time(k);
}

void keeper_resume(struct keeper *k)
{
	if (!keeper_resting(k))
		return;
	if (k->holds) {
		k->hold_over = true;
		return;
	}
	move(k, VM_RESUMING);
	thin_end(k);
}

void keeper_whole(struct keeper *k, const struct err *why)
{
	if (k->motion != VM_RESUMING)
		return;
	if (!why) {
		qmp_execute(k->qmp, "cont", NULL, gone_on, k);
		return;
	}
	snprintf(k->stuck, sizeof k->stuck, "the paused VM does not go on: %s", why->text);
	move(k, VM_PAUSED);
}

/* ---- standing still, for a copy of the disk ---- */

const char *keeper_hold(struct keeper *k)
{
	if (k->phase != VM_RUNNING || k->motion == VM_RESUMING)
		return KEEPER_BUSY "the VM is starting, stopping or waking";
	if (k->stalled)
		return KEEPER_BUSY "the VM waits for room on the host's disk";
	if (!k->holds++)
		k->hold_over = k->motion == VM_GOING;
	if (k->motion == VM_GOING) {
		move(k, VM_PAUSING);
		qmp_execute(k->qmp, "stop", NULL, stopped, k);
	}
	return NULL;
}

void keeper_let_go(struct keeper *k)
{
	if (--k->holds || k->phase != VM_RUNNING)
		return;
	if (k->hold_over)
		keeper_resume(k);
	else if (k->motion == VM_PAUSED)
		thin_begin(k);
}
