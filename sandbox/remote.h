/* One ssh connection to a machine on which tools run (kind ssh:HOST), by libssh2. All of it blocks but what the bridge
 * does with the channel after remote_link(). One thread at a time. */
#pragma once
#include <libssh2.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "remote_conf.h"

struct remote {
	struct remote_conf conf;
	int fd;
	LIBSSH2_SESSION *session;
	size_t heard; /* bytes from there while the handshake goes on */
	bool shaken;
	LIBSSH2_CHANNEL *link; /* after remote_link() */
	char *folder;	       /* of the sandbox, there; absolute */
	char *program;	       /* the guest program, there */
};

struct remote_spec {
	const struct paths *paths;
	const char *host;
	int64_t id;	    /* of the session */
	atomic_int *socket; /* or NULL: holds the connection's descriptor while remote_open() and remote_ready() work,
			     * so that another thread can cut it by shutdown(); else -1 */
	void (*progress)(void *arg, const char *line); /* or NULL */
	void *arg;
};

/* Connects, checks the host's key and logs in. -EACCES: the key is unknown or has changed, or no key of ours is
 * accepted: trying again is of no use. -EHOSTUNREACH and others: it may be. */
int remote_open(const struct remote_spec *spec, struct remote **out, struct err *err);
/* Whether the guest program can run there. -ENOEXEC: another architecture. */
int remote_fits(struct remote *r, struct err *err);
/* Puts the guest program there, verified. -EBADMSG: something changes it. */
int remote_ready(struct remote *r, const struct remote_spec *spec, struct err *err);
/* Starts the program's `link` on r->link; from here on the session does not block. */
int remote_link(struct remote *r, struct err *err);
/* Runs the program's `end`: nothing of the sandbox is left there. */
int remote_end(struct remote *r, struct err *err);
void remote_free(struct remote *r); /* NULL is fine; never waits for the other side */
