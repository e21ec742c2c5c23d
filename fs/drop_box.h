/* What drop.c (text and commit) and drop_dir.c (names) share. Loop thread only. */
#pragma once
#include "drop.h"
#include "handle.h"

#define GRACE_MS    10000     /* editors look at a file once more after they have saved it */
#define SCRATCH_MAX (4 << 20) /* bytes of one scratch file: swap files grow with the text they guard */
#define DRAFTS_MAX  1000
#define BOX_MAX	    (64 << 20) /* bytes of all drafts: they are kept in memory */
#define FRONT_MAX   (64 << 10) /* bytes of front matter before a message */

struct draft {
	struct list link; /* of face.drafts, while it has a name */
	unsigned refs;
	struct face *f;
	int64_t number;	 /* for listing */
	int64_t project; /* number of the project whose directory it is in, 0: `new` itself */
	char *name;
	uint64_t beside; /* inode of the closed directory that it is kept in (aside.c), 0: it is in the drop box */
	bool listed;	 /* it is in the directory */
	bool scratch;	 /* by its name */
	bool by_rename;	 /* made as a saver makes its temporary file: the rename after it is what counts */
	char *was;	 /* the regular name that an editor has taken from it, or NULL */
	char *cwd;	 /* folder that the writer stands in, or NULL */
	struct buf text;
	size_t checked;	 /* leading bytes known to be UTF-8 */
	size_t judged_n; /* leading bytes that the backend has judged */
	bool judged;	 /* nothing that may follow has to be judged before it is complete */
	bool creating;	 /* the backend is making the session */
	int64_t session; /* that it has become */
	int64_t changed_ms;
	struct list nodes;
	struct timer grace;
};

/* Where its writer stands, which whoever opens it next has asked the backend: he may have gone to a checkout since. */
void draft_stands(struct draft *d, struct request *r);
struct draft *draft_new(const struct spot *dir, const char *name);
struct draft *draft_beside(const struct spot *dir, const char *name); /* in a closed directory; a scratch file */
/* Answers a CREATE with a handle on d. */
void draft_open_new(struct draft *d, fuse_req_t req, int flags);
bool draft_is_open(const struct draft *d);
void draft_unlist(struct draft *d); /* takes its name away; drops the directory's reference */
/* The session has been made: the draft is read-only now and goes away soon. */
void draft_done(struct draft *d, int64_t session);
/* Has somebody written to it and not closed it yet? except: a handle that does not count, or NULL. */
bool draft_is_written(const struct draft *d, const struct handle *except);
/* Checks the text as a whole and makes the request for its session. NULL after the refusal; *rc is it. */
struct request *draft_request(struct draft *d, const char *name, int64_t project, const char *path, int *rc);
const char *project_name(const struct face *f, int64_t number); /* NULL for 0 */
