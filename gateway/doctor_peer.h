/* A throw-away provider on loopback for `berthfs doctor`: it tells what reached it. One thread of its own. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "backend/base/err.h"

struct peer {
	int fd, port, stop;
	pthread_t thread;
	const char *key;     /* what it wants as x-api-key, and sends back in its answer */
	atomic_int requests; /* that were whole */
	atomic_int with_key; /* of those: had the key, and nothing else that looks like a credential */
	atomic_int cut;	     /* streams whose reader has left */
};

int peer_start(struct peer *p, const char *key, struct err *err); /* key outlives it */
void peer_stop(struct peer *p);
