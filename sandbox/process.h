/* Processes that outlive this one. Any thread. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "backend/base/err.h"

#define PROCESS_STATUS_FD 3

/* Start time of a process in clock ticks since boot, 0 if there is none. With the pid it names a process for good. */
unsigned long long process_start(pid_t pid);
/* Reads "PID STARTTIME" from a file. The pid if that very process is alive, else 0. */
pid_t process_alive(const char *pid_file);
/* Kills (SIGKILL) all processes but the calling one that hold a lock (flock) on the file; how many there were. */
int process_kill_holders(const char *path);
/* Starts argv (argv[0] a path) as a process that outlives this one: session of its own, child of init, standard input
 * /dev/null, output and errors to log_path (made anew, 0600), no other descriptor but PROCESS_STATUS_FD: a pipe whose
 * reading end is returned. The environment is reduced to what a program of ours needs: no keys of the user's shell stay
 * in it. The descriptor, or -errno. */
int process_detach(const char *const *argv, const char *log_path, struct err *err);
/* For the process so started: a line "WORDS MORE" to its starter, the only one; the pipe is closed. False: nobody reads
 * it any more (if SIGPIPE is ignored). */
bool process_report(const char *words, const char *more);
