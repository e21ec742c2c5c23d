/* A reserve of disk space: a file in the state folder that is given up when the disk is full, so that `stop`,
 * `destroy`, other verbs and failures can still be committed. Store thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct reserve {
	char *path;
	int64_t tried_ms; /* CLOCK_MONOTONIC of the last try to lay it up again */
	bool full;	  /* the disk was full and has not been found to have room since */
};

void reserve_init(struct reserve *r, const char *folder); /* lays it up; no room: full */
void reserve_release(struct reserve *r);		  /* the file stays */
void reserve_spend(struct reserve *r);			  /* the disk is full: gives the space back */
/* Is there room for ordinary work? While full it tries to lay the reserve up again, a few times a second. */
bool reserve_room(struct reserve *r);
