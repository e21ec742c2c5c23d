/* Talking to the keeper of a VM (keeper.h), and the files of its folder. For the driver of kind vm; worker threads. */
#pragma once
#include "sandbox.h"

char *vm_folder(const struct paths *paths, int64_t id);			/* malloc'd */
char *vm_file(const struct paths *paths, int64_t id, const char *name); /* malloc'd */
bool vm_kvm(const struct paths *paths, int64_t id); /* its last start was on KVM: it is, or was, not emulated */
bool vm_cancelled(const struct sandbox_spec *spec); /* NULL: no */

/* vm_copy.c: sandbox_copy() of this kind. */
int vm_copy(const struct sandbox_copy *c, struct err *err);

/* Reads until the end of the stream, or of the first line. spec (or NULL) may cancel. */
int vm_receive(int fd, bool to_end, int64_t deadline, const struct sandbox_spec *spec, struct buf *out,
	       struct err *err);
/* Tells the keeper, or the one that is about to start, where its socket is looked for. */
int vm_note_socket(const struct paths *paths, int64_t id, struct err *err);
/* Sends a request and reads the answer's first line. The connection, or -errno: -ENOTCONN if there is no keeper, -EIO
 * with the keeper's words if it refused. */
int vm_request(const struct paths *paths, int64_t id, const char *line, int64_t deadline,
	       const struct sandbox_spec *spec, struct err *err);
/* A request with an answer of its own after "ok". */
int vm_ask(const struct paths *paths, int64_t id, const char *line, int ms, struct buf *out, struct err *err);
/* Whether the lock of the disk is free: no keeper and no QEMU has it. Waits up to ms for that. */
bool vm_lock_free(const struct paths *paths, int64_t id, int ms);
