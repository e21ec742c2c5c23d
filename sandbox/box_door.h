/* A container's socket on the outside, which its keeper listens on, and whether what is inside stands still. On the
 * keeper's only thread. */
#pragma once
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/list.h"

enum { DOOR_CLIENTS = 64 }; /* that have not said what they want, or wait for an answer; more wait to be accepted */

enum door_motion {
	DOOR_GOING,
	DOOR_ASKED, /* the program inside was asked whether somebody is connected */
	DOOR_PAUSED,
};

struct door {
	int listener;
	int inside;	   /* socket of packets, to the program inside; -1: that has ended */
	const char *group; /* folder of the group that can be frozen, or NULL: the program inside stops the others */
	struct list clients;
	int count;
	enum door_motion motion;
	bool frozen; /* by the group */
	unsigned asked;
	int64_t until; /* DOOR_ASKED: for how long an answer is waited for */
};

void door_init(struct door *d, int listener, int inside, const char *group);
/* What to poll for: at most DOOR_CLIENTS + 2 entries; *ms is lowered to when it has to be called at the latest. */
int door_poll(struct door *d, struct pollfd *p, int *ms);
void door_work(struct door *d, const struct pollfd *p, int n);
/* Lets what is inside go on, whoever waits for what: before it is ended. */
void door_open(struct door *d);
void door_release(struct door *d);
