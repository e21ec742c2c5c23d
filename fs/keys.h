/* gateway/keys: files that are written to hand a key over, and show its fingerprint. Loop thread only. */
#pragma once
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>

struct buf;
struct face;
struct handle;
struct spot;

/* What is known of the gateway; never NULL. */
const struct gateway_view *gateway_of(const struct face *f);

/* A key's file has a number for as long as the mount lives: its index here + 1. 0: there is no such file now. */
int64_t key_number(const struct face *f, const char *name);
const char *key_name(const struct face *f, int64_t number);   /* NULL: there is no such file now */
int64_t key_after(const struct face *f, int64_t number);      /* the next one that is there, or 0 */
void keys_take(struct face *f, const struct gateway_view *v); /* numbers for those that are new */
void keys_forget(struct face *f);
void key_opened(struct face *f, int64_t number, int by); /* +1, -1: a file without a key is there while it is open */

void show_key(const struct spot *at, struct buf *out);
int64_t changed_key(const struct spot *at);

/* The requests of the kernel on the directory. */
void key_create(const struct spot *dir, fuse_req_t req, const char *name, int flags);
void key_unlink(const struct spot *dir, fuse_req_t req, const char *name);
