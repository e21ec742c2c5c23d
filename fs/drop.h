/* The drop box: files in sessions/new and sessions/new/PROJECT, of which a session is made. Loop thread only. */
#pragma once
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/list.h"

struct face;
struct spot;
struct draft;
struct file;

struct draft *draft_get(struct draft *d);
void draft_put(struct draft *d);
void drafts_release(struct face *f);

const struct file *draft_row(const struct draft *d);
void draft_path(const struct draft *d, struct buf *out);
uint64_t draft_size(const struct draft *d);
int64_t draft_changed(const struct draft *d);
int64_t draft_session(const struct draft *d); /* 0 until it has become one */
struct list *draft_nodes(struct draft *d);
const char *draft_name(const struct draft *d);

/* The draft of this name in a directory of the drop box (project number 0: in `new` itself), or NULL. */
struct draft *draft_find(const struct face *f, int64_t project, const char *name);
/* The first one there whose number is greater; *number is its. NULL at the end. */
struct draft *draft_next(const struct face *f, int64_t project, int64_t *number);

/* Session id has ended or got another name: a draft that it came from must not keep the old one taken. */
void drop_session_left(struct face *f, int64_t id);

/* Requests on a directory of the drop box; they answer themselves. */
void drop_create(const struct spot *dir, fuse_req_t req, const char *name, int flags);
void drop_unlink(const struct spot *dir, fuse_req_t req, const char *name);
void drop_rename(const struct spot *dir, const char *name, const struct spot *to, const char *new_name, bool replace,
		 fuse_req_t req);
/* Truncates by path, without an open file. 0, or -errno after the refusal. */
int drop_truncate(const struct spot *at, off_t size);
