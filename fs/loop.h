/* The loop that serves the mounted tree. */
#pragma once
#include "face.h"

/* Memory and the scan workers; signals that end the loop must be blocked in the whole process before (they are read
 * from a descriptor). 0 or -errno. */
int face_init(struct face *f);
/* Takes notes until all sessions are known. Only before the mount; blocks. -ETIMEDOUT after a minute of silence. */
int face_load(struct face *f);
/* Serves until a signal ends it (0) or somebody else unmounts (0). Requests under way are finished. */
int face_run(struct face *f);
/* After backend_stop(): drops what came since, and everything else. */
void face_release(struct face *f);
