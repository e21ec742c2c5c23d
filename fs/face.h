/* What the files of this folder share: the one context of the face and what hangs below it. All of it belongs to the
 * loop thread; nothing here is locked. */
#pragma once
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "backend/base/list.h"
#include "backend/base/map.h"
#include "park.h"
#include "seen.h"
#include "tree.h"

struct ring;	 /* refuse.c */
struct holder;	 /* holder.c */
struct watchers; /* watchers.c */
struct key_slot; /* keys.c */

/* One session as the face knows it: the newest view and what waits for the next. */
struct session {
	int64_t id;
	struct view *view;   /* a reference */
	struct ring *errors; /* NULL until the first refusal */
	struct list nodes;   /* inodes of its `input` */
	struct list waits;   /* ops parked in its wait files */
	struct list polls;   /* handles that are polled */
	bool hidden;	     /* from the poker, until it has made the directory */
};

/* A text that is made now and then and asked for often. */
struct made {
	struct buf text;
	uint64_t version;   /* of face.version when it was made */
	int64_t until_ms;   /* CLOCK_REALTIME: ages in it are right until then */
	int64_t changed_ms; /* when it last came out different */
};

struct face {
	struct fuse_session *se;
	struct backend *backend;
	struct queue notes;
	const struct paths *paths;
	const char *mount; /* absolute mount point */
	uid_t uid;	   /* whom the tree belongs to */
	gid_t gid;
	bool allow_other;

	struct root_view *root;	   /* a reference; never NULL once the backend has started */
	struct session **sessions; /* sorted by id */
	size_t n_sessions, cap_sessions;
	struct map names;     /* of sessions, to struct session */
	int64_t sessions_ms;  /* last birth, end or renaming */
	uint64_t version;     /* grows when `index` or `status` may come out different */
	int64_t version_ms;   /* when it last grew */
	char **project_names; /* number of a project is its index here + 1; never taken back */
	size_t n_project_names;
	struct key_slot *keys; /* keys.c */
	size_t n_keys;

	struct ring *errors;
	struct made index, status;
	struct buf readme;
	int64_t started_ms;

	struct node **nodes; /* open addressing by inode number */
	size_t n_nodes, cap_nodes;
	uint64_t node_seed; /* of numbers below files/; 0: not drawn yet */
	struct seen_table seen;
	struct watchers *watchers;

	struct list handles;  /* all open files */
	struct list listings; /* all open folders of files/ */
	struct list drafts;   /* in the order of their numbers */
	struct list asides;   /* drafts beside files of closed directories, see aside.c */
	int64_t drop_ms;      /* last change of the drop box */
	size_t n_drafts;
	int64_t next_draft;
	size_t draft_bytes;

	struct list ops;	 /* parked and not yet answered */
	struct list interrupted; /* of those, the ones a signal has reached */
	struct list timers;	 /* sorted by time */
	struct list polls;	 /* handles of files of the whole that are polled */
	struct holder *holder;

	unsigned barrier;	  /* commits begun by a RELEASE and not answered: nothing is read from FUSE meanwhile */
	int64_t barrier_until_ms; /* CLOCK_MONOTONIC; the barrier falls then at the latest */
	bool ready;		  /* NOTE_READY has come */
	bool connected;		  /* the kernel has said hello */
	bool announced;		  /* `berthfs mount` was told that the tree is usable */
	bool quit;		  /* SIGTERM: what is under way is finished, waits end */
	int64_t quit_until_ms;
	int signal_fd;
	void (*usable)(void *arg); /* called once when the tree can be used */
	void *usable_arg;
};

/* What an inode number stands for, looked up anew in each request. */
struct spot {
	struct face *f;
	uint64_t ino;
	const struct file *file;
	int64_t number;		 /* session id or project number, 0 */
	struct session *session; /* NULL if the file is of none */
	struct node *node;	 /* of input, drafts and files/ */
	bool rough;		 /* attributes as they were last made will do: they are not kept */
};

/* Does the number in the inode of such a row name a session? */
bool file_of_session(const struct file *file);
/* 0, or -ESTALE if that session, project or draft is gone. */
int spot_of(struct face *f, uint64_t ino, struct spot *out);
void spot_stat(const struct spot *at, struct stat *st);
/* For how many seconds the kernel may keep attributes and the name of it; spot.c tells why it may. */
double spot_keep_attr(const struct spot *at);
double spot_keep_entry(const struct spot *at);
/* "sessions/fix-login/ctl": for people; malloc'd. name (or NULL) is appended as an entry. */
char *spot_path(const struct spot *at, const char *name);
/* May this request's user do that (R_OK, W_OK, X_OK) with a file of this mode? 0 or -EACCES. */
int spot_allowed(const struct face *f, fuse_req_t req, mode_t mode, int want);

/* ---- sessions.c ---- */
struct session *session_by_id(const struct face *f, int64_t id);
struct session *session_by_name(const struct face *f, const char *name); /* or by its number in digits */
/* Index of the first session whose id is greater. */
size_t session_after(const struct face *f, int64_t id);
void face_take_view(struct face *f, struct view *view);	     /* takes the reference */
void face_take_root(struct face *f, struct root_view *root); /* takes the reference */
void face_forget_sessions(struct face *f);
/* Number of a project's name, 0 if it is none now; and back, NULL if it is none now. */
int64_t project_number(const struct face *f, const char *name);
const struct project_info *project_by_number(const struct face *f, int64_t number);
const struct project_info *project_by_name(const struct face *f, const char *name);
