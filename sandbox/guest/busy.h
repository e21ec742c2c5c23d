/* Whether something in a sandbox says that it works, for whoever would let the sandbox rest: see README.md, "A sandbox
 * rests". A program says so by a file in the folder (in a VM /run/berthfs/busy, where everybody may write):
 *	a file whose first line is a number counts as long as the process with that number lives
 *	any other counts for BUSY_LEASE_S after it was last written (so the work goes on: write again, or touch it)
 *	names that begin with a point do not count
 * Whatever cannot be told counts as busy. Any thread. */
#pragma once
#include "backend/base/buf.h"
#include "job.h"

#define BUSY_FOLDER  "/run/berthfs/busy"
#define BUSY_LEASE_S 600

/* True if it is busy; words then says by what. folder NULL or missing: no program says anything. jobs: those that run
 * count too. */
bool busy_look(const char *folder, struct jobs *jobs, struct buf *words);
