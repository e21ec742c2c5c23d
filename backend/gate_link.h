/* The daemon's side of the gateway: it is started and watched here, sessions' tokens are minted and revoked, and what
 * the tree shows of it is kept. Nothing here is called by the FUSE loop or the store thread but what is said not to
 * block. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core.h"
#include "session.h"

struct env;
struct gate_link;
struct worker;

#define GATE_TOKEN 80 /* bytes for a token with its NUL */

struct gate_link *gate_link_new(struct backend *b, int log_fd);
/* After the store is there. It returns at once; the gateway comes up meanwhile. */
int gate_link_start(struct gate_link *l, struct err *err);
/* Once nobody asks any more, and before the store ends. The gateway is told to end, unless a sandbox is up: then the
 * next daemon takes it over. */
void gate_link_stop(struct gate_link *l);
void gate_link_free(struct gate_link *l); /* after the store has ended */

/* ---- any thread, never blocks ---- */

/* Settings, sessions or sandboxes have changed: tokens are brought into line with them. */
void gate_kick(struct backend *b);
/* What `root_view` shows; a reference, never NULL. */
struct gateway_view *gate_view(struct backend *b);
/* Takes requests of the kinds that only the gateway can answer. */
bool gate_takes(const struct request *r);
void gate_push(struct backend *b, struct request *r);

/* ---- worker and pool threads; they block ---- */

/* For model requests of this session, which go by HTTP to the unix socket *socket (malloc'd, the caller frees it) with
 * `x-api-key: TOKEN` or `Authorization: Bearer TOKEN`: swapped for the provider's key there. The token is made at its
 * first use and is good until the session is destroyed; after a restart of the daemon there is a new one. Waits for a
 * gateway that is just starting, 10 s at most, and ends with -ECANCELED once *cancel (or NULL) is true. -EAGAIN: it
 * does not run now; words say why. If the gateway answers 401 `token...`, call gate_token_forget() and ask again once.
 */
int gate_token(struct backend *b, const struct session *s, const atomic_bool *cancel, char **socket,
	       char token[GATE_TOKEN], struct err *err);
void gate_token_forget(struct backend *b, int64_t session);

/* Where the gateway listens for this sandbox, for sandbox_spec.net; malloc'd. NULL: there is no gateway. */
char *gate_sandbox_socket(struct backend *b, int64_t session);
/* Gives the sandbox that w->env leads to its token and the variables by which usual programs find the gateway, unless
 * it has them. A failure is no reason to end a run: what needs no model or network works without. */
int gate_sandbox(struct worker *w, struct err *err);
/* The same for one that is no session's: s has its id, project and network. */
int gate_sandbox_of(struct backend *b, const struct session *s, struct env *env, const atomic_bool *cancel,
		    struct err *err);
/* For whoever takes a sandbox down or to disk: 0 also if it had none. -EAGAIN: the gateway does not run (nothing can be
 * asked of it then); it is revoked when it comes back, as long as the session's sandbox_state says that it is not up.
 */
int gate_sandbox_revoke(struct backend *b, int64_t session, struct err *err);
/* Waits until what has been committed so far holds in the gateway too; at most ms. -ETIMEDOUT, -EAGAIN. */
int gate_settle(struct backend *b, int ms, struct err *err);
