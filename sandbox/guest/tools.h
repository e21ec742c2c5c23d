/* The tool daemon: serves the tool protocol (wire.h) for one sandbox. In a VM it lives in init, for kind dir in a
 * process of its own. Any number of connections, a thread each. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/base/err.h"
#include "job.h"

struct tools_config {
	const char *url;	 /* of the gateway as programs here reach it, or NULL */
	struct jobs_config jobs; /* home and drop, uid, gid also hold for file requests */
	const char *busy;	 /* folder of busy.h, or NULL */
	int64_t (*cpu_ms)(void); /* processor time of all that runs here since it began; NULL: cannot be told */
	/* Host's time (ms since 1970) and random bytes, at each hello; NULL: not wanted. Any thread. */
	void (*hello)(void *arg, int64_t time_ms, const void *entropy, size_t n);
	/* The memory was saved and goes on: time and entropy are the host's; host: under another name, or NULL. NULL:
	 * not possible here. Any thread. */
	void (*renew)(void *arg, int64_t time_ms, const void *entropy, size_t n, const char *host);
	int (*ssh)(struct jobs *jobs); /* our end of a stream to a new server, or -errno; NULL: none here. Any thread */
	/* SHUTDOWN was asked for and answered; everything must end now. Any thread, may be called more than once. */
	void (*shutdown)(void *arg);
	void *arg;
};

struct tools;

/* Strings are copied. There is no tools_free(): a tool daemon lives as long as its process. */
int tools_new(const struct tools_config *config, struct tools **out, struct err *err);
enum tools_how {
	TOOLS_FRAMES, /* frames at once */
	TOOLS_LINE,   /* the line "tool" comes first, and is answered */
	TOOLS_GREET,  /* that has come, and is answered */
	TOOLS_SSH,    /* it goes to an ssh server; answered once that is there, or with words */
};
/* Serves a connection on a thread of its own; fd (a socket) belongs to it. */
int tools_serve(struct tools *t, int fd, enum tools_how how);
int tools_connections(struct tools *t); /* how many are open */
struct jobs *tools_jobs(struct tools *t);
void tools_close(struct tools *t); /* what ends from here on was ended by the sandbox going down */
void tools_stop(struct tools *t);  /* ends all jobs; returns when their ends are on disk */
