/* Finding and ending process trees through /proc. Any thread; keeps nothing. Linux only. */
#pragma once
#include <sys/types.h>

/* SIGKILLs, until none is left: the processes whose group or session is root, those that hang below root (root itself
 * included), and those whose environment holds mark as a whole entry ("BERTHFS_JOB=/jobs/7"), or, where mark ends in
 * '/', an entry that begins with it. root 0 or mark NULL: not looked for. The calling process is never killed.
 * Returns how many were still alive after the last of 50 rounds (normally 0). */
int proc_kill_tree(pid_t root, const char *mark);
/* The same for everything that hangs below the calling process (which adopts orphans as a subreaper). */
int proc_kill_below_self(const char *mark);
/* How many processes hang below the calling one. */
int proc_count_below_self(void);
