/* sandbox/: the places where a session's tools run. This is all that the engine may ask of one.
 *
 * A sandbox is named by its kind and the session's id; everything about it is on disk or behind a unix socket, so a
 * daemon that was killed finds it again by the same two words and nothing is held in memory between calls. The
 * processes behind it live in sessions of their own and outlive the daemon: a keeper with QEMU (vm) or with bubblewrap
 * (container), a bridge that holds the ssh connection (ssh:HOST), the tool daemon alone (host, dir).
 *
 * All functions block and run on worker threads, never on the FUSE loop. They return 0 or -errno with words in err.
 * The functions keep no global state; two threads may use the same sandbox at once (each with its own struct env). */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/base/paths.h"

/* ---- what a sandbox is made from ---- */

struct sandbox_size {
	int cpus;
	int memory_mib;
};
/* mini 1/512, small 2/2048, large 8/16384; then cpus = min(size, online), memory = min(size, MemTotal/2).
 * -EINVAL for an unknown name. */
int sandbox_size(const char *name, struct sandbox_size *out);

enum sandbox_state {
	SANDBOX_NONE,	    /* never made, or destroyed */
	SANDBOX_DOWN,	    /* its disk is there, nothing runs */
	SANDBOX_RUNNING,    /* its tool daemon can be reached */
	SANDBOX_PAUSED,	    /* stopped with its memory; whatever connects to it lets it go on, within milliseconds */
	SANDBOX_HIBERNATED, /* its memory is on disk, nothing runs */
};

struct sandbox_spec {
	const struct paths *paths;
	const char *kind; /* "vm", "container", "ssh:HOST", "host" or "dir" */
	int64_t id;	  /* session id */
	const char *name; /* session name: becomes the host name */
	const char *size; /* size name; ignored by dir */
	/* Folder that sandbox_save() has filled: a sandbox that has no disk yet starts as that one was. NULL: from the
	 * base image. It has to stay as long as the sandbox. */
	const char *template;
	int disk_mib;		   /* container: how much of the machine's disk it may take; 0: as a VM */
	bool pristine;		   /* to be copied: always boots, with what time nobody else wants */
	int boot_timeout_ms;	   /* from start to the first answer of the tool daemon */
	const atomic_bool *cancel; /* or NULL; true ends the call with -ECANCELED */
	/* The gateway's unix socket of this sandbox, absolute: what connects to the gateway's address inside
	 * (env_gateway_url()) is relayed to it, by a process that goes on when the daemon ends. NULL: none, and such
	 * connections are closed. Taken anew by each sandbox_up(), also of a sandbox that runs; the socket need not be
	 * there yet. */
	const char *net;
	/* Progress for `status` and `log`: a line of words, e.g. "building the base image (2 of 5): packages". May be
	 * NULL. */
	void (*progress)(void *arg, const char *line);
	void *arg;
};

/* Whether there is such a kind, and its argument (`ssh:HOST`) may be one. Looks at nothing but the words. */
int sandbox_kind_check(const char *kind, struct err *err);
/* Says in words why sandboxes of this kind cannot be made here (no QEMU, unknown kind), or returns 0. Looks only at
 * the machine and never starts anything. -EOPNOTSUPP for kinds that are not built yet. */
int sandbox_possible(const char *kind, struct err *err);

/* Makes the sandbox if there is none (as a copy of one that was booted before, memory and all, where there is one; it
 * gets time, random numbers, machine id and name of its own before anything of it is used), starts it if it is down
 * (from its memory if it hibernates; where that cannot be used progress says why, and it boots), takes it over if it
 * runs already, paused or not. Builds the base image first when there is none (progress says so). On a boot that does
 * not end in time the console's last lines are given to progress and the error is -ETIMEDOUT. -ENOSPC for a full disk.
 */
int sandbox_up(const struct sandbox_spec *spec, struct err *err);
enum sandbox_state sandbox_state(const struct paths *paths, const char *kind, int64_t id);
/* A unix socket that takes connections as long as the sandbox's processes live, also for whoever knows nothing of
 * sandboxes and only wants to know that; malloc'd. */
char *sandbox_life(const struct paths *paths, int64_t id);
/* Stops it with all that it runs, as it is: nothing in it sees any of the time until it goes on. Success if it is
 * paused already. -EBUSY: somebody is connected to it (also once it has waited 2 s for connections that were just
 * closed), -ENOTCONN: it does not run, -EOPNOTSUPP: sandboxes of this kind always run. */
int sandbox_pause(const struct paths *paths, const char *kind, int64_t id, struct err *err);
/* Lets it go on, and has its clock set. Not needed before env_open(), which does the same. Success if it runs. */
int sandbox_resume(const struct paths *paths, const char *kind, int64_t id, struct err *err);
/* Whether sandboxes of this kind can be in that state. Looks at nothing. */
bool sandbox_can(const char *kind, enum sandbox_state state);
/* Clean power-off (10 s, then killed); the disk stays. The memory of one that hibernates is dropped. */
int sandbox_down(const struct paths *paths, const char *kind, int64_t id, struct err *err);
/* Writes the memory of one that runs or is paused to its folder and ends its processes; sandbox_up() lets them go on
 * where they were, jobs too. If it fails the sandbox goes on as before. 0 also if
 * it hibernates already; -EBUSY: somebody is connected to it (as with a pause); -ENOTCONN: it does not run;
 * -ENOSPC: no room for its memory; -EOPNOTSUPP: not this kind. */
int sandbox_hibernate(const struct paths *paths, const char *kind, int64_t id, struct err *err);
/* Ends its processes and removes its disk and sockets. Success if there is nothing. */
int sandbox_destroy(const struct paths *paths, const char *kind, int64_t id, struct err *err);

/* A copy of a disk, near-instant where the file system shares blocks. */
struct sandbox_copy {
	const struct paths *paths;
	const char *kind;
	int64_t from;
	const char *from_save; /* NULL: its disk as it is now; what runs is held for the moment. Else that save of it */
	int64_t to;
	const char
		*to_save; /* NULL: it becomes the disk of that sandbox, which must not run. Else a save of that name */
	const atomic_bool *cancel; /* or NULL */
};
/* Whole or not at all; what stood there before is replaced. Saves go with their sandbox. -ENOENT: nothing to copy;
 * -ENOSPC. */
int sandbox_copy(const struct sandbox_copy *c, struct err *err);
bool sandbox_copies(const char *kind); /* can disks of this kind be copied? */
/* Makes a template of a sandbox that has been shut down: its disk moves into the folder (made if it is missing), where
 * nothing changes it any more, and the sandbox has none then; destroy it. The move is the last step, so whatever dies
 * on the way the folder holds a whole disk or none; a repeat does what is left. *alone: it needs no other template
 * (chains are cut at four). -EAGAIN: it was not shut down cleanly: up and down again; -EBUSY: it runs; -EOPNOTSUPP:
 * sandboxes of this kind cannot be saved. */
int sandbox_save(const struct paths *paths, const char *kind, int64_t id, const char *folder, bool *alone,
		 struct err *err);
bool sandbox_can_save(const char *kind);
/* "vm running tcg", "vm down", "dir running": the line of the `sandbox` file, no newline. What runs is looked at. */
void sandbox_describe(const struct paths *paths, const char *kind, int64_t id, enum sandbox_state state, char out[64]);

/* ---- people: ssh into a sandbox ---- */

/* Why nobody can get into sandboxes of this kind by ssh, in words, or 0. */
int sandbox_enter_possible(const char *kind, struct err *err);
/* The folder of a session's own key (`id`) and of the key that its server has to show (`known_hosts`); the first is
 * made if it is missing. malloc'd. */
int sandbox_keys(const struct paths *paths, int64_t id, char **folder, struct err *err);
/* Brings the sandbox up, sees to both keys, and opens a connection to the ssh server inside (user `agent`): a
 * descriptor that the caller relays to an ssh client. While it is open the sandbox counts as in use. -ENOTCONN: the
 * sandbox has never been made. */
int sandbox_enter(const struct sandbox_spec *spec, struct err *err);

/* ---- the base image (kind vm) ---- */

/* Builds it if its recipe changed or there is none; force: always. Progress as in sandbox_spec. */
int image_build(const struct paths *paths, bool force, const atomic_bool *cancel,
		void (*progress)(void *arg, const char *line), void *arg, struct err *err);
int image_list(const struct paths *paths, struct buf *out, struct err *err); /* a table for people */
int image_remove(const struct paths *paths, const char *name, struct err *err);

/* One line a thing that kind vm needs: ok, its name, words. Called in order. */
void sandbox_doctor(const struct paths *paths, void (*line)(void *arg, bool ok, const char *name, const char *words),
		    void *arg);

/* berthfs conformance KIND: makes a sandbox of its own, runs one suite of cases on it, takes it away. A line a case on
 * standard output with its time, and the total. Exit code: 0, 64 bad arguments, 69 such a sandbox cannot be made here,
 * 70 a case failed. */
int sandbox_conformance_main(const struct paths *paths, int argc, char **argv);

/* ---- hidden verbs of the program: processes that outlive the daemon ---- */

int sandbox_keeper_main(int argc, char **argv); /* berthfs vm-keeper ...: parent of one QEMU */
int sandbox_box_main(int argc, char **argv);	/* berthfs box-keeper ...: parent of one container */
int sandbox_bridge_main(int argc, char **argv); /* berthfs ssh-bridge ...: the connection of one sandbox behind ssh */
int sandbox_tools_main(int argc, char **argv);	/* berthfs tool-daemon ...: that of kinds dir and host */

/* ---- env: a connection to the tool daemon inside a sandbox; one thread at a time ---- */

struct env;

/* Connects and says hello. -ENOTCONN if the sandbox is not running, -ETIMEDOUT if it does not answer. cancel (or NULL)
 * outlives the connection: once it is true, a call that is not answered within a second gives -ECANCELED, and the
 * connection is lost. No call lasts longer than some minutes, whatever the sandbox sends. */
int env_open(const struct paths *paths, const char *kind, int64_t id, const atomic_bool *cancel, struct env **out,
	     struct err *err);
void env_close(struct env *env);      /* NULL is fine; jobs go on */
bool env_lost(const struct env *env); /* its peer is gone or was given up: close it and open another */
/* Folder for the clone: "/home/agent" in a VM (tools run as the user `agent`), a folder of the state directory in
 * dir. Belongs to env. */
const char *env_home(const struct env *env);
/* The gateway as programs inside reach it: "http://127.0.0.1:8080" in a VM, a port of its own in dir. Nothing follows
 * the port: a proxy variable takes it as it is, a base URL with its path behind it. NULL: this sandbox listens nowhere.
 * Belongs to env. */
const char *env_gateway_url(const struct env *env);
/* The base environment of all jobs that start from now on, on any connection; an env_exec's own entries win. The tool
 * daemon keeps it in memory only, so it lasts while the sandbox runs (also over a daemon that ends, and a pause) and is
 * gone after a power-off: *has says whether one was set since. Tokens may be in it. */
int env_has_environ(struct env *env, bool *has, struct err *err);
/* pairs: "KEY=value", NULL-terminated; replaces the one before. NULL or none: an empty one, which counts as set.
 * -EINVAL: an entry without a name, or more than 256 entries or 64 KiB. */
int env_set_environ(struct env *env, const char *const *pairs, struct err *err);

/* What the sandbox says of itself, for whoever would let it rest (guest/busy.h). A tool daemon of an older program
 * knows nothing of it: -ENOSYS. */
struct env_busy {
	bool busy;
	int64_t cpu_ms;	 /* processor time of all that runs in it, since it began; -1: not told */
	char words[120]; /* by what it is busy, on one line; the sandbox's own words */
};
/* Asks over a connection of its own, all within ms. A sandbox that is paused would go on. */
int env_busy(const struct paths *paths, const char *kind, int64_t id, int ms, struct env_busy *out, struct err *err);

/* What is said when a sandbox has more on disk than it may have. */
#define ENV_FULL                                                                                                       \
	"the sandbox's disk is full: nothing can be written there until something is removed; what was committed is "  \
	"safe"

/* Every exec is a job with an id that the tool daemon keeps, with its output and exit code, until it is
 * acknowledged. Standard output and standard error go, in the order written, to one file of the job. */
struct env_exec {
	const char *job;	    /* 1-64 of letters, digits, . _ - */
	const char *const *argv;    /* NULL-terminated, no shell; for a script: {"/bin/bash", "-c", text, NULL} */
	const char *cwd;	    /* absolute, or relative to env_home(); NULL: env_home() */
	const char *const *environ; /* "KEY=value" added, or NULL */
	int timeout_ms;		    /* 0: none; over it the job's process tree is killed */
	const atomic_bool *halt;    /* env_run(), or NULL: once it is set a job that is cancelled goes on */
};

enum env_job_state {
	ENV_JOB_UNKNOWN, /* never heard of (or acknowledged) */
	ENV_JOB_RUNNING,
	ENV_JOB_EXITED, /* the shell has exited; children that hold the output do not count */
	ENV_JOB_LOST,	/* it was running when the sandbox itself went down */
};

struct env_job {
	enum env_job_state state;
	int exit_code;	 /* EXITED: 0-255, 128+n for a signal */
	bool timed_out;	 /* killed by timeout_ms */
	bool killed;	 /* killed by env_kill() */
	bool overflow;	 /* killed because its output passed 256 MiB */
	bool full;	 /* the sandbox had more on disk than it may have: it was killed, or could write nothing */
	uint64_t output; /* bytes of output so far */
};

/* Starts a job. An id that is known already is not started again and gives 0 (so a repeat after a crash is safe).
 * -ENOENT: no such program; -ENOTDIR or -ENOENT: bad cwd. */
int env_start(struct env *env, const struct env_exec *exec, struct err *err);
/* State of a job, at once (wait_ms 0) or as soon as it is not running, or its output passes `since` bytes, or
 * wait_ms are over, whichever is first. */
int env_poll(struct env *env, const char *job, uint64_t since, int wait_ms, struct env_job *out, struct err *err);
/* Waits until a job does not run any more. A job that runs longer than timeout_ms (0: no limit) although the sandbox
 * was told that limit is killed from here and counts as EXITED and timed_out. -ECANCELED: cancel (or NULL) is set; the
 * job goes on. */
int env_wait(struct env *env, const char *job, int timeout_ms, const atomic_bool *cancel, struct env_job *out,
	     struct err *err);
/* Up to max bytes of a job's output from offset, appended to out. Fewer only at its end. */
int env_output(struct env *env, const char *job, uint64_t offset, size_t max, struct buf *out, struct err *err);
/* SIGKILLs the job's process tree (its group and every descendant that still hangs below it). Unknown or ended: 0. */
int env_kill(struct env *env, const char *job, struct err *err);
/* The same and env_ack(), over a connection of its own and all within ms, for a `stop` that must not wait for a sandbox
 * which answers late or never. -ENOTCONN, -ETIMEDOUT: the job may go on. */
int env_end_job(const struct paths *paths, const char *kind, int64_t id, const char *job, int ms, struct err *err);
/* The same for a job of env whose start or end somebody has given up waiting for, so that env is lost (or not): within
 * some seconds. One that has not begun will not. */
int env_abandon(struct env *env, const char *job, struct err *err);
/* Forgets a job. keep: its output file stays in the sandbox and *path (malloc'd) names it: the spill file. Old ones are
 * removed (guest/kept.h says when). */
int env_ack(struct env *env, const char *job, bool keep, char **path, struct err *err);
/* Where that file will be (malloc'd; NULL if the sandbox does not say); forgets nothing. So a path can be committed
 * before the job is forgotten. */
int env_kept(struct env *env, const char *job, char **path, struct err *err);

/* Start, wait, collect, acknowledge; for short commands of the host itself. output (may be NULL) gets at most max
 * bytes. Exit code, or -errno (-ETIMEDOUT, -ECANCELED). */
int env_run(struct env *env, const struct env_exec *exec, const atomic_bool *cancel, size_t max, struct buf *output,
	    struct err *err);

struct env_stat {
	uint64_t size;
	uint32_t mode; /* st_mode */
	int64_t mtime_ms;
	char *real; /* resolved absolute path inside the sandbox; malloc'd by env_stat(), free with free() */
};

/* Paths are absolute or relative to env_home(). Errors are those of the system call inside the sandbox. */
int env_stat(struct env *env, const char *path, struct env_stat *out, struct err *err);
int env_read(struct env *env, const char *path, uint64_t offset, size_t max, struct buf *out, struct err *err);
enum { ENV_WRITE_PARENTS = 1, ENV_WRITE_APPEND = 2 };
/* Replaces (temporary file and rename, mode and owner of an existing file kept) or appends. New files are 0644. */
int env_write(struct env *env, const char *path, const void *data, size_t n, int flags, struct err *err);
/* From here on env_read() and env_write() refuse (-EACCES in words) what the patterns protect (backend/base/guard.h),
 * judged inside the sandbox by what was really opened: links, `..`, hard links and /proc lead nowhere. NULL: nothing.
 */
void env_guard(struct env *env, const char *patterns);
int env_remove(struct env *env, const char *path, struct err *err); /* a file; missing is success */
int env_send_file(struct env *env, const char *host_path, const char *path, struct err *err); /* streamed */
/* Streamed. -EFBIG: the file is larger than max. */
int env_receive_file(struct env *env, const char *path, uint64_t max, const char *host_path, struct err *err);
