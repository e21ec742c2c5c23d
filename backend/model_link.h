/* How a model request reaches the gateway: its socket, and the session's own token. Worker threads; they block. */
#pragma once
#include <stdatomic.h>

#include "core.h"
#include "session.h"

#define LINK_TOKEN 80 /* bytes of a token with its NUL */

struct model_link;

struct model_link *model_link_new(void);
void model_link_free(struct model_link *l);

/* *socket is malloc'd. The token is made at its first use; after a restart there is a new one. -EAGAIN in words: the
 * gateway does not run now. */
int link_token(struct backend *b, const struct session *s, const atomic_bool *cancel, char **socket,
	       char token[LINK_TOKEN], struct err *err);
void link_token_forget(struct backend *b, int64_t session); /* the gateway does not take it: the next one is new */
