/* Where an instance of berthfs keeps its things: the four XDG folders. Any thread after init. */
#pragma once
#include "err.h"

struct paths {
	char *state;   /* $XDG_STATE_HOME/berthfs: database, VM disks */
	char *cache;   /* $XDG_CACHE_HOME/berthfs: images, templates */
	char *runtime; /* $XDG_RUNTIME_DIR/berthfs, else state/run: sockets, 0700 */
	char *config;  /* $XDG_CONFIG_HOME/berthfs/config: a file */
	char *self;    /* absolute path of this program, for its own child processes */
};

/* Fills p from the environment and makes the folders (0700). Relative XDG values are ignored, as their spec says. */
int paths_init(struct paths *p, struct err *err);
void paths_release(struct paths *p);
/* What to run this program again by: its path, or, when an upgrade has taken that away under the running daemon, a name
 * that only means it in a child of this process. */
const char *paths_program(const struct paths *p);
