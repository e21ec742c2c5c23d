/* Snapshots of a session, and sessions that begin as clones of others: disk, branch and transcript. */
#pragma once
#include "engine.h"
#include "session.h"

#define SNAPSHOTS_MAX 64 /* of one session: each keeps a disk, so that they must not pile up unnoticed */

/* ---- store thread ---- */

/* `snapshot` and `restore K`: judge, and set the state whose step does it. */
int snapshot_begin(struct tx *tx, struct session *s, struct err *err);
int restore_begin(struct tx *tx, struct session *s, int64_t k, struct err *err);
/* Gives s, which has just been made, the transcript and the branch's heads of session from. -EBUSY while from has no
 * sandbox yet, -ENOENT once it has ended. */
int snapshot_clone(struct tx *tx, struct session *s, int64_t from, struct err *err);
/* Does a session that is just being made still need the disk of s? */
bool snapshot_wanted(struct tx *tx, const struct session *s);

/* ---- worker threads ---- */

/* The disk, the attached files and the branch of a session that begins as a clone; *clone: the path of its git clone
 * (malloc'd). Safe to repeat. The sandbox is not started. */
int snapshot_fill(struct worker *w, char **name, struct err *err);
