/* Inside of the keeper: the state of its one VM, and its clients. One thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/list.h"
#include "console.h"
#include "keeper_save.h"
#include "keeper_thin.h"
#include "mux.h"
#include "qemu.h"
#include "qmp.h"

enum vm_phase {
	VM_BOOTING, /* the tool daemon cannot be reached yet */
	VM_RUNNING,
	VM_SAVING,   /* its memory is being written to a file */
	VM_STOPPING, /* asked to power off */
	VM_ENDED,    /* QEMU has ended and has been waited for */
};

/* Whether the guest's processors are meant to run, and what QEMU has been told and not answered yet. */
enum vm_motion {
	VM_GOING,
	VM_PAUSING,
	VM_PAUSED,
	VM_RESUMING,
};

struct keeper {
	struct qemu qemu;
	struct qmp *qmp;
	struct mux *mux;
	struct console console;
	enum vm_phase phase;
	enum vm_motion motion;
	bool changed; /* phase or motion has changed and the clients have not been told */
	bool stalled; /* QEMU stopped the guest, since a write found the host's disk full */
	struct save save;
	struct thin thin;
	bool kvm;    /* not emulated */
	bool lived;  /* the tool daemon was reached once */
	bool broken; /* QEMU had an internal error, and was killed for it */
	const char *folder, *host;
	char *socket; /* path of the listener; malloc'd */
	char *net;    /* the file that names the gateway's socket; malloc'd */
	bool net_failed;
	int listener, signals;
	int lock;	 /* of the folder, held */
	int folder_fd;	 /* by which the kernel tells that files of it are removed */
	int64_t look_at; /* where it does not: when the folder is looked for next (mono ms); else 0 */
	int holds;	 /* clients that want the guest to stand still; whoever wants it to run waits for them */
	bool hold_over;	 /* once they have gone it goes on */
	int clock;	 /* our end of the stream that tells the guest the time; -1: none */
	char stuck[700]; /* why the guest did not stop or go on, until the clients have been told */
	int power;	 /* our end of the stream that asked the guest to power off */
	int64_t stop_at, kill_at; /* while stopping: QEMU is told to quit, is killed (mono ms) */
	int64_t retry_at;	  /* stalled: try to go on */
	struct list clients;	  /* that have not been answered */
	int client_count;
	char ended[256]; /* how QEMU ended, in words */
};

/* Asks the guest to power off, once. */
void keeper_stop(struct keeper *k);
void keeper_kill(struct keeper *k);
void keeper_quit(struct keeper *k); /* QEMU ends at once, in order */
void keeper_phase(struct keeper *k, enum vm_phase phase);

/* keeper_pause.c. Stops the guest; the motion changes when QEMU has done it. The reason why not, or NULL. */
const char *keeper_pause(struct keeper *k);
void keeper_resume(struct keeper *k);	     /* a guest that is paused, or just being so, goes on; else nothing */
bool keeper_resting(const struct keeper *k); /* paused, or just being so */
void keeper_whole(struct keeper *k, const struct err *why); /* after thin_end(); why: its memory is not whole */
/* The guest stands still until it is let go, whoever is connected. The reason why not, or NULL. */
const char *keeper_hold(struct keeper *k);
void keeper_let_go(struct keeper *k);
void keeper_clock_answered(struct keeper *k); /* k->clock can be read */

#define CLIENTS_MAX 64 /* waiting at once; streams in use do not count */

void clients_accept(struct keeper *k);
/* Descriptors to poll: fills at most CLIENTS_MAX entries, returns how many. Handed back, in the same order. */
struct pollfd;
int clients_poll(struct keeper *k, struct pollfd *p);
void clients_work(struct keeper *k, const struct pollfd *p, int n);
void clients_phase(struct keeper *k); /* the phase has changed: answers those who waited for it */
void clients_release(struct keeper *k);
