/* attach/ of a session: files that go with its next message. While one is written it is a draft like those of the drop
 * box; when it is complete the backend has it, and the view lists it until it is sent. Loop thread only. */
#pragma once
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

struct draft;
struct face;
struct handle;
struct spot;

/* In a draft's `project`: which attach/ it is in. Negative; projects are not. */
int64_t attach_key(int64_t session);
bool draft_is_attach(const struct draft *d);
int64_t draft_attach_session(const struct draft *d); /* 0: it is none */

/* A file of the view by its name, or by its number; NULL. */
const struct attach_info *attach_find(const struct spot *dir, const char *name);
const struct attach_info *attach_of(const struct spot *at);

/* May n bytes be written there? 0, or -errno after the refusal. */
int attach_room(const struct draft *d, const struct spot *at, size_t n, size_t pos);
/* After a write: 0, or -errno after the refusal. */
int attach_written(const struct draft *d, const struct spot *at);
int attach_check_name(const struct spot *dir, const char *name);
bool attach_is_scratch(const char *name); /* an editor's, never sent */
/* Hands the file to the backend; NULL: there is nothing to hand over. */
struct request *attach_request(struct draft *d);
void attach_unlink(const struct spot *dir, fuse_req_t req, const struct attach_info *a);
/* Is that one being removed by a request of the kernel, which makes the event itself? */
bool attach_unlinks(const struct face *f, int64_t session, uint64_t n);
void attach_session_ended(struct face *f, int64_t session);
