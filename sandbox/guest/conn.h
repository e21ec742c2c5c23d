/* One connection to the tool daemon: reads requests, answers them in order. Its own thread; blocks nobody else. */
#pragma once
#include <stdbool.h>

#include "files.h"
#include "protect.h"
#include "sandbox/wire.h"
#include "tools.h"

struct conn {
	struct tools *tools;
	const struct tools_config *config;
	struct jobs *jobs;
	struct protect *protect;
	int fd;
	bool ended;    /* malformed, closed, or cannot be written */
	bool shutdown; /* SHUTDOWN was answered */
	struct wire_reader in;
	struct wire_out out;
	struct put put;
	struct buf data; /* payload of the answer */
};

/* Serves until the peer leaves or shutdown is asked for. Closes fd. */
void conn_serve(struct conn *c, enum tools_how how);

/* ops.c: the table of requests. An op adds its fields to c->out and its payload to c->data, or fails. */
int ops_run(struct conn *c, const struct wire_msg *m, struct err *err);
/* conn.c, for POLL: waits for the event or ms, answering pings. False: it was cancelled, or the peer has left. */
bool conn_wait(struct conn *c, uint32_t id, int event, int ms);
