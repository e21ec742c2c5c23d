/* What the driver of kind container, the keeper of one container and the program inside agree on. The keeper is a
 * process of its own that outlives the daemon: parent of bubblewrap, and the container's way to the gateway.
 *
 * Files of one sandbox, in the folder STATE/sandboxes/ID (0700):
 *	root/        what the container has changed of its file system (overlay), or all of it (copy)
 *	work/, mnt/  overlay only: the kernel's working folder, and where the whole is mounted (seen by the keeper)
 *	kind         "overlay" or "copy": how root/ is meant; written when the sandbox is made
 *	image        the image folder whose tree lies below, one line
 *	lock         flock, held by the keeper, bubblewrap and the program inside: free once all of them have ended
 *	keeper.pid   "PID STARTTIME" of the keeper, one line
 *	keeper.log   what keeper and bubblewrap have to say; last start only
 *	net          the gateway's socket of this sandbox, one line (net.h)
 *
 * RUNTIME/ID.sock (0600) is the keeper's; connections are handed inside, where no name leads out. The other way round,
 *the socket that listens on 127.0.0.1:8080 inside comes out as a descriptor and is served by the keeper: nothing of the
 *gateway is visible inside. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

/* What whoever connects says first, a line. The answer begins with "ok", or is "error WORDS":
 *	tool, ssh   then the connection is a stream to the tool daemon, or to an ssh server, inside (guest/ssh.h); what
 *	            stands still goes on before
 *	pause       all that runs inside stands still; "error busy: WORDS" while a stream is open
 *	status      "ok running" or "ok paused"
 * Whatever else connects, and says nothing, wakes nobody. */
#define BOX_TOOL   "tool"
#define BOX_SSH	   "ssh"
#define BOX_PAUSE  "pause"
#define BOX_STATUS "status"
#define BOX_BUSY   "busy: "
/* The keeper's words to the program inside: "tool" and "ssh" with the connection; "count N", answered by "N
 * CONNECTIONS"; "stop N", the same, and if there is none all processes but itself are stopped; "go": they go on. */
#define BOX_COUNT "count"
#define BOX_STOP  "stop"
#define BOX_GO	  "go"

#define BOX_VERB "box-keeper" /* the program's hidden verb */
/* PROCESS_STATUS_FD: "ok MORE" or "error WORDS" once tools can run. MORE: limits it lacks */
/* The program inside; it is started as `guest box DOOR NET LOCK PROCESSES MIB DISK`. */
#define BOX_GUEST "/run/berthfs/guest"
/* Processes of one container at most, threads counted. */
static inline int box_processes(int memory_mib)
{
	return memory_mib < 512 ? 1024 : memory_mib > 2048 ? 4096 : memory_mib * 2;
}
/* How much of the machine's disk a container may take where nothing else is said: what a VM's disk may grow to. */
#define BOX_DISK_MIB 20480
/* What the program inside hears over that socket later: the container takes more of the disk than it may, or no longer.
 */
#define BOX_FULL "full"
#define BOX_ROOM "room"
/* It may ask whether that still is so, and hears BOX_STILL if it is. */
#define BOX_LOOK  "look"
#define BOX_STILL "still"
#define BOX_READY "ok" /* what the program inside sends with its listening socket; anything else are words */

/* ---- box_jail.c: bubblewrap's command line ---- */

struct box_jail {
	const char *root;    /* folder that becomes / */
	const char *host;    /* name */
	int guest, filter;   /* descriptors: the program (bytes), the filter of system calls */
	int door, net, lock; /* descriptors that the program takes along */
	int processes;
	int memory_mib;
	int disk_mib;
};

/* malloc'd words, NULL-terminated, for execvp(); free with box_jail_free(). */
char **box_jail(const struct box_jail *j);
void box_jail_free(char **argv);

/* ---- box_filter.c ---- */

/* The filter of system calls as a BPF program in a memory file: a descriptor, or -errno. */
int box_filter(struct err *err);

/* ---- box_limits.c: cgroups, where this user may make some ---- */

enum box_limit { BOX_MEMORY, BOX_PIDS, BOX_CPU, BOX_LIMITS };
struct box_limits {
	char *group[BOX_LIMITS]; /* folders of the groups, one for each that is limited; NULL: cannot be */
	char *freeze;		 /* one of version 2, which can be frozen, or NULL */
};
/* Makes (or takes over) the groups called name. missing gets the words of those that cannot be had, with commas. */
void box_limits_open(struct box_limits *l, const char *name, int memory_mib, int cpus, struct buf *missing);
int box_limits_join(const struct box_limits *l); /* the calling process; only system calls */
/* Removes the groups, once nothing is in them. */
void box_limits_remove(const char *name);
void box_limits_release(struct box_limits *l);

/* ---- box_disk.c: how much of the disk it takes ---- */

struct box_disk {
	const char *root; /* the folder that grows */
	const char *base; /* a folder that it began as a copy of, or NULL */
	int tell;	  /* a socket of packets: BOX_FULL and the like */
	uint64_t limit;	  /* bytes */
};
/* Starts a process that looks after it and ends with the calling thread: its pid, or -1. */
pid_t box_disk_watch(const struct box_disk *d);

/* box_keeper.c: a user namespace in which the caller is root over its own files, and a mount namespace that nobody else
 * sees. */
int box_namespaces(void);
