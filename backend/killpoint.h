/* Named places where the process can be made to die, for crash tests: BERTHFS_KILL_AT=POINT, or POINT:N for the n-th
 * time it is reached. Any thread. Without the variable it costs a load and a branch. */
#pragma once

void killpoint_init(void); /* reads the environment, once at start */
void killpoint(const char *name);
