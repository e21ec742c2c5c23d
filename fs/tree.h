/* The table of every file; see tree.c, which is the page to read first. Constant data; any thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"

struct spot;
struct op;

/* Where a row stands: the directory that holds it. */
enum place {
	PLACE_NONE, /* the root itself, and for `inside` of what is no directory */
	PLACE_ROOT,
	PLACE_PROJECTS,
	PLACE_SESSIONS,
	PLACE_DROP,	    /* sessions/new */
	PLACE_DROP_PROJECT, /* sessions/new/PROJECT */
	PLACE_SESSION,
	PLACE_APPROVALS,
	PLACE_ATTACH,
	PLACE_SETTINGS,
	PLACE_WAIT,
	PLACE_FILES, /* sessions/NAME/files and all folders below it */
	PLACE_GATEWAY,
	PLACE_KEYS, /* gateway/keys */
	PLACE_TEMPLATES,
	PLACE_TEMPLATE, /* templates/NAME */
};

/* How a file behaves when it is opened, read and written: see handle_kind_of() in handle.c. */
enum file_kind {
	KIND_DIR,
	KIND_LINK,     /* a symlink: to a project's checkout, or one of the session's work */
	KIND_MADE,     /* text that `show` makes from memory; a snapshot */
	KIND_SNAPSHOT, /* text of the backend, taken whole at the first read and at each read from offset 0 */
	KIND_GROWING,  /* text of the backend that only grows; read at any offset, never a snapshot */
	KIND_MESSAGE,  /* what is written between an open and its last close is one message; reads empty */
	KIND_LINE,     /* each write is one command, answered in that write by `accept` */
	KIND_CONFIG,   /* each line is judged in its write, the whole when it is complete */
	KIND_KEY,      /* a write hands a provider's key over; reads its fingerprint */
	KIND_ERRORS,   /* the last refusals; truncating clears */
	KIND_WAIT,     /* unlisted; a read blocks until something is so */
	KIND_DRAFT,    /* a file of the drop box, or of attach/, that is being written */
	KIND_ATTACHED, /* a file that waits in attach/ */
	KIND_WORK,     /* a file of the session's work; its content never changes, see files.h */
};

enum whole_kind { WHOLE_CONFIG, WHOLE_POLICY }; /* of KIND_CONFIG */

enum wait_kind { WAIT_REPLY, WAIT_LIVE, WAIT_IDLE, WAIT_APPROVAL, WAIT_SHIPPED, WAIT_CHANGE };

struct file {
	enum place place;
	const char *name; /* NULL: the entries of its place that have names of their own (sessions, projects, drafts) */
	mode_t mode;	  /* permission bits; all belongs to the user who mounted */
	enum file_kind kind;
	enum place inside; /* KIND_DIR: what its entries are */
	/* What the show and accept functions, the text reader and the wait files need to know of this row. */
	union {
		enum value_kind value;
		enum setting_kind setting;
		enum text_kind text;
		enum wait_kind wait;
		enum whole_kind whole;
	};
	/* Makes the text of a file from memory. */
	void (*show)(const struct spot *at, struct buf *out);
	/* Time of the last change, CLOCK_REALTIME ms; NULL: that of the session, or of the start. */
	int64_t (*changed)(const struct spot *at);
	/* Hands one command to the backend; NULL: the file cannot be written by lines. */
	struct request *(*accept)(const struct spot *at, const char *line, size_t n);
	const char *about; /* one line for README; NULL: not told there */
};

extern const struct file tree[];
extern const unsigned tree_rows; /* rows are 1 .. tree_rows - 1; row 1 is the root */

static inline unsigned tree_row(const struct file *file)
{
	return (unsigned)(file - tree);
}
/* The row of this place and name; for rows without a name pass NULL and their kind. NULL if there is none. */
const struct file *tree_find(enum place place, const char *name);
const struct file *tree_unnamed(enum place place, enum file_kind kind);
/* The directory whose entries are of this place. */
const struct file *tree_dir(enum place inside);
static inline bool file_writable(const struct file *file)
{
	return file->mode & 0200;
}
