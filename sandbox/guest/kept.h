/* Outputs that were kept in the sandbox for the model to look at. Any thread. */
#pragma once

#define KEPT_FILES 64		  /* of them stay */
#define KEPT_BYTES (512ULL << 20) /* of them all together; the newest stays whatever its size */

/* Removes the oldest files of a folder beyond the limits. */
void kept_prune(const char *folder);
