/* Inside env: the connection and one request over it. One thread at a time. */
#pragma once
#include "sandbox.h"
#include "wire.h"

struct env {
	int fd;			     /* -1 once the peer is lost: every later call gives -ENOTCONN */
	int64_t id;		     /* of the sandbox, for words */
	int silence_ms;		     /* a peer that says nothing for so long is lost */
	int call_ms;		     /* and so is one that has not given a whole answer by then, however much it says */
	int64_t deadline, cancelled; /* of the call that goes on; when its cancel flag was first seen, or 0 */
	const atomic_bool *cancel;   /* or NULL */
	char *socket;		     /* where its peer listens */
	char *home;
	char *url;     /* of the gateway, seen from inside; or NULL */
	char *guard;   /* patterns that file requests carry, or NULL */
	uint32_t last; /* request */
	struct wire_reader in;
	struct wire_out out;
};

/* env_open() with another limit of time, for drivers that wait for a boot. */
int env_open_within(const struct paths *paths, int64_t id, int ms, const atomic_bool *cancel, struct env **out,
		    struct err *err);
/* The same by the path of the socket. */
int env_open_at(const char *socket, int64_t id, int ms, const atomic_bool *cancel, struct env **out, struct err *err);
/* All that follows on this connection has to be answered within ms a call. */
void env_hurry(struct env *env, int ms);
/* Begins a request; its fields are added to the result in ascending order of tags. */
struct wire_out *env_request(struct env *env, enum wire_op op);
/* Sends it and waits for its answer, which is valid until the next request. m may be NULL. -errno of the other side,
 * or -ENOTCONN. */
int env_call(struct env *env, const void *payload, size_t n, struct wire_msg *m, struct err *err);
/* Asks the tool daemon to end itself and everything it runs; 0 once it has agreed. */
int env_shutdown(struct env *env, struct err *err);
