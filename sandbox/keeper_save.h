/* Inside of the keeper: memory to a file and back. Its only thread, with a helper that copies. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/err.h"
#include "wire.h"

enum save_step {
	SAVE_NONE,
	/* memory to a file */
	SAVE_SETTLE,  /* the guest writes to its disk what it has not written */
	SAVE_SYNC,    /* nothing may be on its way to it */
	SAVE_DEVICES, /* it stands still; QEMU writes the state of its devices */
	SAVE_WRITE,   /* the helper writes the file */
	SAVE_DONE,    /* it is whole: QEMU ends */
	SAVE_UNDO,    /* the guest goes on */
	/* memory from a file */
	SAVE_FIND,     /* QEMU starts */
	SAVE_LOAD,     /* the helper copies */
	SAVE_INCOMING, /* QEMU reads the state of its devices */
	SAVE_GO,       /* it has */
	SAVE_CONNECT,  /* the guest runs */
	SAVE_RENEW,    /* and renews what must not be as it was */
	SAVE_STEPS,
};

struct save {
	enum save_step step;
	int64_t end;	  /* of this step (mono ms); INT64_MAX: none */
	bool live;	  /* the mux has come into step in this step */
	bool quiet;	  /* the mux is left alone: the guest must not be sent a byte */
	bool failed;	  /* why says what */
	struct err why;	  /* words of the last failure */
	int ram, state;	  /* the guest's memory, the state of its devices: memfds; -1 */
	char *from;	  /* file that the VM starts from, or NULL */
	char *once;	  /* file that has to be gone before the guest goes on, or NULL */
	bool clone;	  /* others start from it, too: the guest becomes another machine */
	char *tmp, *path; /* file that is written */
	char *key;
	/* the helper */
	pthread_t thread;
	bool helping;
	int ended; /* eventfd: it has */
	int rc;
	struct err result;
	/* the one request to the guest */
	int talk;
	struct wire_reader answer;
};

struct keeper;
struct pollfd;

void save_init(struct keeper *k);
/* What such a VM is, for its file. */
struct qemu_spec;
void save_key(struct keeper *k, const struct qemu_spec *spec);
/* The VM starts from that file of memory; once (or NULL) is gone before its guest goes on; clone: as another machine.
 */
void save_from(struct keeper *k, const char *path, const char *once, bool clone);
/* Begins to hibernate. -errno with words if that cannot be. */
int save_begin(struct keeper *k, struct err *err);
bool save_restoring(const struct keeper *k);
bool save_busy(const struct keeper *k);
/* Descriptors to poll, at most SAVE_FDS. */
#define SAVE_FDS 2
void save_poll(struct keeper *k, struct pollfd *p);
/* What is next, after everything else has had its turn. */
void save_work(struct keeper *k);
int64_t save_due(const struct keeper *k);		   /* mono ms; INT64_MAX: never */
void save_migration(struct keeper *k, const char *status); /* QMP's event MIGRATION */
void save_finish(struct keeper *k);
