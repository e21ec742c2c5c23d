/* Names to addresses, off the loop: a few threads that call the system's resolver. */
#pragma once
#include <sys/socket.h>

#include "gw.h"

#define RESOLVE_MAX 8 /* addresses that are looked at */

struct resolve_job {
	struct queue_node node;
	char host[256];
	int port, n; /* n < 0: the resolver's error */
	struct sockaddr_storage addresses[RESOLVE_MAX];
	void (*done)(struct resolve_job *job); /* on the loop; owns the job */
	void *arg;
};

int resolve_init(struct gw *g, struct err *err);
void resolve_release(struct gw *g);
void resolve_start(struct gw *g, struct resolve_job *job);
