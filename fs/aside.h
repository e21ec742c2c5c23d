/* Backups (input~), auto-saves (#input#) and rescued texts (input.save) that editors make beside a file of a closed
 * directory. Loop thread only. */
#pragma once
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>

struct face;
struct spot;
struct draft;

/* May a file of this name be made beside what dir has? Only of a file that can be written. */
bool aside_allowed(const struct spot *dir, const char *name);
/* The one of this name in the directory whose inode is dir, or NULL. */
struct draft *aside_find(const struct face *f, uint64_t dir, const char *name);
/* Answers a CREATE for which aside_allowed() is true. */
void aside_create(const struct spot *dir, fuse_req_t req, const char *name, int flags);
/* Answers an UNLINK if there is one of this name, else false. */
bool aside_unlink(const struct spot *dir, fuse_req_t req, const char *name);
/* A session has ended: what was kept in its directories goes. */
void asides_session_left(struct face *f);
void asides_release(struct face *f);
