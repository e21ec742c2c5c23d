/* The providers' keys. Their bytes are in one mapping that is kept out of core dumps, swap and, where the kernel can,
 * out of its own view of memory; nothing outside key.c sees them but the header that goes out. One thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "policy.h"

#define KEY_MAX	 1024 /* bytes of one */
#define KEY_TEXT 24   /* bytes for a fingerprint */

struct keys;

/* Takes the process out of reach: not dumpable, no core. Once, before any key is read. */
int keys_lock_down(struct err *err);
/* dir: files NAME, mode 0600, made by key_set(); credentials: a folder of more (systemd's $CREDENTIALS_DIRECTORY), or
 * NULL. */
int keys_open(const char *dir, const char *credentials, struct keys **out, struct err *err);
void keys_close(struct keys *k);
bool keys_secret(const struct keys *k); /* the kernel has secret memory */
/* Keeps it in memory and in its 0600 file; n 0 removes both. The caller wipes its own copy. */
int key_set(struct keys *k, const char *name, const void *bytes, size_t n, struct err *err);
bool key_name_ok(const char *name); /* letters, digits, - _ . and no point first; less than 64 */
bool key_known(const struct keys *k, const char *name);
/* "sha256:" and 16 hex digits; false: no such key. */
bool key_fingerprint(const struct keys *k, const char *name, char out[KEY_TEXT]);
void key_list(const struct keys *k, struct buf *out); /* "NAME FINGERPRINT" lines */
/* "x-api-key: KEY" or "Authorization: Bearer KEY"; the caller wipes it. -ENOENT: no such key; -ENOSPC. */
int key_header(const struct keys *k, const char *name, enum kind kind, char *out, size_t cap);

/* Finds a key in what comes back and overwrites it with stars, also when it is split over pieces. */
struct scrub {
	const struct keys *keys;
	int slot;	/* -1: nothing to look for */
	size_t matched; /* bytes of the key at the end of what was held back */
	unsigned changes;
};
void scrub_start(struct scrub *s, const struct keys *k, const char *name);
/* Appends to out what is certain; what could be the beginning of the key is held back. last: nothing follows. */
void scrub_feed(struct scrub *s, const char *p, size_t n, bool last, struct buf *out);
