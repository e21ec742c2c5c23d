/* Telling the kernel what has changed: cached attributes are dropped, and watchers (inotify) get events by way of the
 * poker (watchers.c, watch_tree.c). Loop thread only; nothing here waits. */
#pragma once
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/list.h"
#include "poke.h"

struct face;
struct session;
struct spot;
struct template_info;
struct timer;
struct view;
struct watchers;

/* Without a poker (p->work_fd < 0) only attributes are dropped. Before the mount. p outlives it. */
void watchers_start(struct face *f, struct poke *p);
void watchers_stop(struct face *f); /* no more orders; before the unmount */
void watchers_release(struct face *f);
bool watchers_are_told(const struct face *f); /* there is a poker, or will be again */
/* Descriptors to poll for reading; -1: none. */
int watchers_fd_janitor(const struct face *f);
int watchers_fd_poker(const struct face *f);
/* Once a turn of the loop: takes news and answers if there are any, gives orders. */
void watchers_run(struct face *f, bool janitor, bool poker);

/* A file or directory has changed. Its stat is asked for anew; event: its watchers get MODIFY, at most one in 100 ms,
 * and the last one after the last change. */
void watchers_changed(struct face *f, uint64_t ino, bool event);
/* approvals/ of a session: what waited before (number, 0: nothing) goes, what waits now comes. */
void watchers_approval(struct face *f, const struct view *view, uint64_t before);
/* attach/: DELETE of what has gone with a message. */
void watchers_attach(struct face *f, const struct view *old, const struct view *view);
/* A template has come or gone: CREATE or DELETE in templates/. */
void watchers_template(struct face *f, const struct template_info *t, bool come);
/* A session has just been made: CREATE in sessions/. */
void watchers_born(struct face *f, struct session *s);
/* A session ends (its view is the last but one): DELETE of its files and of itself. removed: the kernel is being
 * answered that it removed the directory, and makes that event by itself. */
void watchers_died(struct face *f, const struct session *s, bool removed);

/* The name is that of a session whose end the poker has yet to show: the kernel may not keep it for another one. */
bool watchers_has_ghost(const struct face *f, const char *name);
/* Wakes the ops in `waiting`, who are to be told that a session of this name has been made. While the kernel still has
 * one that had the name before, a path can lead to that and fail with ENOENT: then they are woken when the poker has
 * removed it, or after a second. */
void watchers_wake(struct face *f, const char *name, struct list *waiting);
void watchers_renamed(struct face *f, const char *name); /* a session has got this name */

/* Requests of the poker. It is known by its pid; each returns false if the request is somebody else's, or is nothing
 * special, and has answered it if not. */
bool watchers_is_poker(const struct face *f, fuse_req_t req);
bool watchers_open(struct face *f, fuse_req_t req, struct fuse_file_info *fi); /* with a handle of 0 */
bool watchers_lookup(struct face *f, fuse_req_t req, fuse_ino_t parent, const char *name);
bool watchers_mknod(struct face *f, fuse_req_t req, fuse_ino_t parent, const char *name);
bool watchers_mkdir(struct face *f, fuse_req_t req, fuse_ino_t parent, const char *name);
bool watchers_remove(struct face *f, fuse_req_t req, fuse_ino_t parent, const char *name); /* unlink and rmdir */
