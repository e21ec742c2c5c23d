/* One daemon an instance (a state folder): who runs, and where it is mounted. Not on the loop. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "backend/base/err.h"
#include "backend/base/paths.h"

/* The file `mount` of the state folder. */
struct record {
	pid_t pid;
	char *dir;
	char boot[40]; /* of this boot: device numbers mean nothing in another */
	char dev[32];  /* "" while it is not mounted yet */
};

struct instance {
	int live_fd;   /* locked by the daemon alone: free as soon as it is dead */
	int helper_fd; /* locked by the daemon and its helper: free when the dead one's mount has been cleared away */
};

/* Takes both locks; waits for those of a daemon that is going away. -EBUSY with words if one is alive. */
int instance_claim(const struct paths *paths, struct instance *out, struct err *err);
/* Pid of the daemon of this instance that is alive, as seen from here; 0 if there is none. -1: alive, but it runs where
 * its pid cannot be told. */
pid_t instance_pid(const struct paths *paths);
/* Waits until it and its helper are gone; -ETIMEDOUT. */
int instance_wait_gone(const struct paths *paths, int ms);
void instance_release(struct instance *i);

/* -ENOENT without one; a record of another boot counts as none. */
int record_read(const struct paths *paths, struct record *out);
int record_write(const struct paths *paths, const char *dir, const char *dev, struct err *err);
void record_remove(const struct paths *paths);
void record_release(struct record *r);
