/* A kind of sandbox: what sandbox.c dispatches to. Contracts are those of the functions of the same names in
 * sandbox.h; state and describe may not block for longer than a connect to a local socket. */
#pragma once
#include "sandbox.h"

struct driver {
	const char *kind; /* without its argument */
	/* Kinds with an argument, KIND:ARGUMENT: whether it may be one. spec->kind is the whole; what state, down and
	 * destroy need of it, the driver keeps in its folder. NULL: the kind takes none. */
	int (*argument)(const char *argument, struct err *err);
	int (*possible)(struct err *err);
	int (*up)(const struct sandbox_spec *spec, struct err *err);
	enum sandbox_state (*state)(const struct paths *paths, int64_t id);
	/* NULL: sandboxes of this kind always run; then there is no resume either */
	int (*pause)(const struct paths *paths, int64_t id, struct err *err);
	int (*resume)(const struct paths *paths, int64_t id, struct err *err);
	int (*down)(const struct paths *paths, int64_t id, struct err *err);
	int (*hibernate)(const struct paths *paths, int64_t id, struct err *err); /* or NULL */
	int (*destroy)(const struct paths *paths, int64_t id, struct err *err);
	int (*copy)(const struct sandbox_copy *c, struct err *err); /* or NULL */
	void (*describe)(const struct paths *paths, int64_t id, enum sandbox_state state, char out[64]);
	int (*save)(const struct paths *paths, int64_t id, const char *folder, bool *alone, struct err *err);
	int (*ssh)(const struct paths *paths, int64_t id, struct err *err); /* NULL: there is none inside */
	bool one_user; /* inside, everything is the one user's: nobody becomes root there */
};

extern const struct driver driver_container, driver_dir, driver_host, driver_ssh, driver_vm;

bool sandbox_one_user(const char *kind);
/* A stream to the ssh server of a sandbox that is up: a descriptor, or -errno. */
int sandbox_ssh(const struct paths *paths, const char *kind, int64_t id, struct err *err);
/* For drivers: where the tool protocol of a sandbox is served (both kinds): runtime/ID.sock. malloc'd. */
char *sandbox_socket(const struct paths *paths, int64_t id);
/* For drivers: a copy of a file or folder by cp(1), which shares blocks where it can; it replaces `to` in one step. */
int sandbox_copy_tree(const char *from, const char *to, const atomic_bool *cancel, struct err *err);
/* For drivers: a rename, or where that cannot be a copy; from may be there still after that. */
int sandbox_move(const char *from, const char *to, struct err *err);
/* For drivers: a host name made from a session's: letters, digits and inner hyphens, at most 63. malloc'd. */
char *sandbox_host(const char *name);
/* For drivers: says a line of progress, if somebody listens. */
__attribute__((format(printf, 2, 3))) void sandbox_say(const struct sandbox_spec *spec, const char *fmt, ...);
