/* Inside of a remote connection: what its three files share. */
#pragma once
#include "remote.h"

#define REMOTE_CALL_MS 20000 /* longest silence of a host in one step */

/* Words of libssh2's last error behind ours; returns -code. */
__attribute__((format(printf, 4, 5))) int remote_fail(struct remote *r, struct err *err, int code, const char *fmt,
						      ...);
/* Standard base64 of n bytes; malloc'd. */
char *remote_base64(const void *p, size_t n);

/* remote_auth.c */
int remote_trust(struct remote *r, const struct buf *known, struct err *err); /* the host's key, after the handshake */
int remote_login(struct remote *r, struct err *err);

/* remote_deploy.c: sets r->folder and r->program. */
int remote_deploy(struct remote *r, const struct remote_spec *spec, struct err *err);
