/* Files inside the sandbox, as the tool protocol's requests need them. Any thread; acts with the calling thread's
 * rights (conn.c takes on the tools' user around these). Paths are absolute. Errors are those of the system call. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "sandbox/sandbox.h"

int files_stat(const char *path, struct env_stat *out, struct err *err); /* out->real is malloc'd */

/* What a request may not touch. NULL or an empty list: nothing is protected. */
struct protection {
	struct protect *protect;
	const char *list; /* backend/base/guard.h */
};

/* Up to max bytes from offset, appended to out. generation: another number once the file is another or was written. */
int files_read(const struct protection *no, const char *path, uint64_t offset, size_t max, struct buf *out,
	       uint64_t *size, uint64_t *generation, struct err *err);
int files_append(const struct protection *no, const char *path, bool parents, const void *p, size_t n, struct err *err);
int files_remove(const char *path, struct err *err); /* missing is success */

/* Replacing a file: the bytes go to a temporary file beside it that takes its place, mode and owner at the end. Where
 * that cannot be (no right to the folder, another's file) the file is written in place. */
struct put {
	char *target; /* for words; name: its last part */
	const char *name;
	char *tmp; /* name of the temporary file in dir; NULL: in place */
	int dir;   /* its folder: what was judged is what is replaced, whatever is renamed meanwhile */
	int fd;	   /* -1: nothing begun */
};
#define PUT_INIT ((struct put){.fd = -1, .dir = -1})
int put_begin(struct put *put, const struct protection *no, const char *path, bool parents, struct err *err);
int put_data(struct put *put, const void *p, size_t n, struct err *err);
int put_end(struct put *put, struct err *err);
void put_abort(struct put *put); /* leaves the old file, removes the temporary one */
