/* What ssh itself would do to reach a host: settings by `ssh -G`, known keys by `ssh-keygen -F`. Blocks; any thread. */
#pragma once
#include <stdbool.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/base/paths.h"

#define REMOTE_HOST_MAX 40 /* bytes of HOST in `ssh:HOST`: the `sandbox` file shows it on one line */

struct remote_conf {
	char *host; /* as the user calls it */
	char *hostname, *user;
	char *known_as; /* its name in known_hosts */
	char *proxy;	/* command whose standard input and output reach it, for a shell; or NULL */
	char *agent;	/* socket of the agent, or NULL */
	int port;
	bool identities_only;
	char *keys[16], *known[8]; /* files, NULL after the last */
};

/* 1-40 of letters, digits and @ . _ - : / [ ] %, not beginning with `-`. */
int remote_host_check(const char *host, struct err *err);
/* Runs `ssh -G HOST`, with `-F` for the file ssh_config beside our own config if it is there. */
int remote_conf_read(const struct paths *paths, const char *host, struct remote_conf *out, struct err *err);
/* The same from its text (which is cut up). home: for ~ and %d. file: the -F of another ssh that it needs, or NULL.
 * *out is to be released in any case. */
int remote_conf_parse(const char *host, char *text, const char *home, const char *file, struct remote_conf *out,
		      struct err *err);
void remote_conf_release(struct remote_conf *c);

/* Keys of the host in all known_hosts files: lines `TYPE BASE64`, revoked ones `!TYPE BASE64`. */
int remote_known(const struct remote_conf *c, struct buf *out, struct err *err);
enum remote_trust {
	REMOTE_TRUSTED,
	REMOTE_UNKNOWN,	   /* nothing is known of the host */
	REMOTE_OTHER_TYPE, /* only keys of other types are */
	REMOTE_CHANGED,	   /* another key of that type is */
	REMOTE_REVOKED,
};
enum remote_trust remote_judge(const struct buf *known, const char *type, const char *base64);
/* The types that are known, for libssh2's preference: "ssh-ed25519,ecdsa-sha2-nistp256", of those that it can; "" for
 * none. malloc'd. */
char *remote_known_types(const struct buf *known);
