/* Open files. Loop thread only. */
#pragma once
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/buf.h"
#include "backend/base/list.h"
#include "face.h"
#include "holder.h"
#include "message.h"

struct draft;

struct handle {
	struct list link; /* of face.handles */
	unsigned refs;	  /* one until RELEASE, one for each op, scan and commit */
	struct face *f;
	uint64_t ino;
	const struct file *file;
	int64_t number;	     /* session id, or 0 */
	struct node *node;   /* of input, drafts and files/: counted in node.opens */
	struct draft *draft; /* a reference, or NULL */
	int flags;	     /* of the open */

	/* reading */
	struct buf snap; /* text as it was at the last read from offset 0 */
	bool snapped;
	uint64_t snap_version; /* of the view that it was taken from */
	bool by_cursor;	       /* opened for both and written: reads go on from cursor, whatever the offset says */
	size_t cursor;

	/* polling */
	struct fuse_pollhandle *ph; /* to be notified once, or NULL */
	struct list poll;	    /* of session.polls or face.polls */
	uint64_t consumed;	    /* bytes of a growing file that were read, or version of a snapshot */

	bool keyed; /* a key was written through it */

	/* wait files: what was so when it was opened */
	uint64_t mark;
	bool marked;
	struct view *seen; /* newest view with the run that wait/live follows; a reference, or NULL */
	int64_t run;	   /* that run, 0: not known yet */

	/* writing text: input, config, drop files */
	struct message msg;	/* input: the message. config: the whole new text */
	bool dirty;		/* written since the last commit */
	bool committing;	/* the backend has it */
	bool again;		/* commit once more when that is answered */
	bool released;		/* its RELEASE waits for the commit: face.barrier counts it */
	int last_rc;		/* of the last commit */
	struct list waiters;	/* ops that wait for the commit */
	struct writers writers; /* who may hold this file */
	bool asked;		/* a read waits for the result: it is complete, whatever else is missing */
	struct {
		size_t off, pos, n; /* of the last WRITE: its offset, and where its bytes are in the text */
		size_t stuck;	    /* from this offset on ... */
		size_t lag;	    /* ... the text is so much longer than the writer knows */
	} wrote;
};

struct handle *handle_new(const struct spot *at, struct draft *draft, int flags);
struct handle *handle_get(struct handle *h);
void handle_put(struct handle *h);
/* The spot of the handle's file. -ESTALE as spot_of(). */
int handle_spot(struct handle *h, struct spot *at);
/* malloc'd path for words. */
char *handle_path(struct handle *h);

static inline bool handle_may_write(const struct handle *h)
{
	return (h->flags & O_ACCMODE) != O_RDONLY;
}

#define OPEN_PARKED 1
/* Answers an OPEN, or a CREATE if e is given, with this handle; drops it if the kernel does not want it any more. */
void handle_opened(struct handle *h, fuse_req_t req, const struct fuse_entry_param *e);

/* How a kind of file answers. A function that may have to wait parks the request itself. NULL: it cannot be. */
struct handle_kind {
	/* 0, -errno after the refusal was recorded, or OPEN_PARKED: it answers with handle_opened() itself later. */
	int (*open)(struct handle *h, fuse_req_t req);
	void (*read)(struct handle *h, fuse_req_t req, size_t size, off_t off);
	void (*write)(struct handle *h, fuse_req_t req, const char *p, size_t n, off_t off);
	/* Truncated through this handle, or opened with O_TRUNC, which cannot fail. 0, or -errno after the refusal. */
	int (*truncate)(struct handle *h, off_t size);
	/* Makes the request that commits what was written; NULL after the refusal, whose rc is in last_rc. */
	struct request *(*commit)(struct handle *h);
	/* The backend's answer to it; sets nothing but what the kind keeps. Returns the rc to report. */
	int (*committed)(struct handle *h, struct request *r);
};
const struct handle_kind *handle_kind_of(const struct handle *h);
extern const struct handle_kind line_kind, config_kind, errors_kind; /* accept.c */
extern const struct handle_kind key_kind;			     /* keys.c */
extern const struct handle_kind attached_kind;			     /* attach.c */
extern const struct handle_kind wait_kind;			     /* wait.c */
extern const struct handle_kind draft_kind;			     /* drop.c */
extern const struct handle_kind work_kind;			     /* files.c */

/* Where a WRITE of n bytes at off goes in a text of which refused writes are kept. A writer's offset does not move with
 * a write that was refused: its next one comes at the same offset, and is either the same again or what follows. */
size_t handle_write_at(struct handle *h, const struct buf *text, const char *p, size_t n, off_t off);
/* The last WRITE has been refused, and its bytes are in the text. */
void handle_write_refused(struct handle *h);
/* The text has been cut: offsets mean again what they say. */
void handle_cut(struct handle *h);

/* Reads shared by kinds. */
void handle_read_made(struct handle *h, fuse_req_t req, size_t size, off_t off); /* what file.show makes */
void handle_read_text(struct handle *h, fuse_req_t req, size_t size, off_t off); /* answers out of h->snap */

/* ---- complete.c: when is a message complete ---- */
void complete_wrote(struct handle *h, fuse_req_t req); /* note the writer; call it in each WRITE */
void complete_flush(struct handle *h, fuse_req_t req);
void complete_fsync(struct handle *h, fuse_req_t req);
void complete_release(struct handle *h, fuse_req_t req); /* also drops the handle's own reference */
/* True if a read has to wait for a commit first: the request is parked, and read again after it. */
bool complete_before_read(struct handle *h, fuse_req_t req, size_t size, off_t off);
void complete_scanned(struct scan *scan); /* a worker has looked; takes the scan */
void complete_all(struct face *f);	  /* at the end: commits what is still open */
