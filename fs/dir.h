/* Names and listings. Loop thread only; memory only. */
#pragma once
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>

struct face;
struct spot;

/* Fills the reply of a LOOKUP or CREATE for an inode that is there. */
void dir_entry(struct face *f, uint64_t ino, struct fuse_entry_param *e);
/* Answers a LOOKUP, or what else makes an entry, and counts it as known to the kernel. */
void dir_reply(struct face *f, fuse_req_t req, const struct fuse_entry_param *e);
/* The inode of a name in a directory, for the thread tid; 0 if there is none. */
uint64_t dir_lookup(const struct spot *dir, const char *name, pid_t tid);
/* Answers a READDIR, or a READDIRPLUS, which gives sessions with their attributes: `ls -l` of thousands of them would
 * be a request or two for each. */
void dir_read(const struct spot *dir, fuse_req_t req, size_t size, off_t off, bool plus);
