/* A client of QEMU's control protocol (QMP, docs/interop/qmp-spec in QEMU): commands, their answers, events.
 * One thread owns it and polls its descriptor in its own loop; nothing here blocks. */
#pragma once
#include <stdbool.h>

#include "backend/base/err.h"
#include "backend/base/json.h"

struct qmp;

struct qmp_ops {
	/* An event: its name and data (NULL if it has none), valid for the call. May be NULL. */
	void (*event)(void *arg, const char *name, const cJSON *data);
	/* The connection has ended or broken the protocol; no further call follows. Commands without an answer have had
	 * theirs (an error) before. May be NULL. */
	void (*closed)(void *arg, const struct err *why);
};

/* The answer to one command: result, or err (then result is NULL; err->text is QEMU's own description). */
typedef void qmp_done(void *arg, const cJSON *result, const struct err *err);

/* Takes fd (a connected socket) and makes it non-blocking. ops is copied. The greeting is awaited and capabilities are
 * negotiated by itself; commands given before wait for that. */
struct qmp *qmp_new(int fd, const struct qmp_ops *ops, void *arg);
void qmp_free(struct qmp *q); /* closes; calls nobody back; NULL is fine */

int qmp_fd(const struct qmp *q);       /* -1 once closed */
short qmp_events(const struct qmp *q); /* what to poll for */
void qmp_work(struct qmp *q);	       /* after poll said so: reads, calls back, writes */
bool qmp_ready(const struct qmp *q);   /* negotiated and open */

/* Sends a command. arguments: a JSON object as text, or NULL. done may be NULL. Once closed, done is called at once. */
void qmp_execute(struct qmp *q, const char *command, const char *arguments, qmp_done *done, void *done_arg);
/* getfd: QEMU gets a copy of fd under that name (letters). One at a time: -EBUSY until the one before is on its way.
 * -ENOTCONN unless ready. */
int qmp_pass(struct qmp *q, const char *name, int fd, qmp_done *done, void *done_arg);
