/* backend/: sessions that survive. This is all that the faces (fs/) may call.
 *
 * Two things cross the border. Upwards, immutable ref-counted views: a picture of one session (struct view) or of the
 * whole (struct root_view), replaced after each commit and delivered as notes through the face's queue, in commit
 * order. Downwards, requests: a face fills a struct request, submits it, and finds it again in the same queue when it
 * is answered; every note about what the request changed stands before the answer. Nothing here blocks the caller. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/base/paths.h"
#include "backend/base/queue.h"

struct backend;

#define MESSAGE_MAX    (1 << 20) /* bytes of one message or draft body; spec: EFBIG past 1 MiB */
#define NAME_MAX_CHARS 64	 /* of a session's name */

/* ---- views ---- */

/* Texts that are too long or too rarely read to be kept in memory; read with REQ_READ. Their true size is in the view.
 */
enum text_kind {
	TEXT_TRANSCRIPT,
	TEXT_JSONL,
	TEXT_PLAN,
	TEXT_QUESTION,
	TEXT_CHECKS,
	TEXT_DIFF,
	TEXT_CHANGES,
	TEXT_COMMITS,
	TEXT_LOG,
	TEXT_USAGE,  /* requests, tokens, cost; see usage.h */
	TEXT_QUEUE,  /* messages that wait */
	TEXT_ANSWER, /* the newest answer, as `wait/reply` gives it */
	TEXT_KINDS,
	TEXT_EVENTS = TEXT_KINDS, /* of the whole: request.session = 0 */
	TEXT_LEDGER,		  /* the gateway's, of the whole */
	TEXT_TEMPLATE_LOG,	  /* of a template: request.session = its id */
};

/* Values of one line each, without their newline. */
enum value_kind {
	VALUE_STATUS,
	VALUE_SANDBOX,
	VALUE_PROJECT,
	VALUE_BRANCH,
	VALUE_BASE,
	VALUE_SHIP,
	VALUE_KINDS,
};

/* settings/ of a session: what may be changed after creation. */
enum setting_kind {
	SETTING_MODEL,
	SETTING_NETWORK,
	SETTING_AFTER_RUN,
	SETTING_SHIP,
	SETTING_APPROVALS,
	SETTING_AGENT,
	SETTING_KINDS,
};
extern const char
	*const setting_names[SETTING_KINDS]; /* "model", "network", "after-run", "ship", "approvals", "agent" */

struct text_info {
	uint64_t size;
	int64_t changed_ms; /* CLOCK_REALTIME */
};

/* What a run has streamed so far. */
struct live {
	atomic_int refs;
	int64_t run; /* number of the run; 0: none yet */
	bool running;
	struct buf text; /* immutable */
};

#define ATTACH_FILE_MAX	 (16 << 20) /* bytes of an attached file */
#define ATTACH_IMAGE_MAX 3900000    /* of an image that is shown to the model: providers take 5 MiB of base64 */
#define ATTACH_MAX	 32	    /* that wait in one session */

/* A file in attach/ that waits for the next message. */
struct attach_info {
	uint64_t n; /* unique in its session */
	char *name;
	uint64_t size;
	int64_t changed_ms;
};

struct view {
	atomic_int refs;
	int64_t id;
	char *name;
	bool destroyed; /* it has just ended; the last view of this session */
	bool idle;	/* answered, synced, checked; nothing is held or waits */
	bool failed;	/* state failed */
	bool shipping;	/* a ship is asked for or under way */
	int64_t created_ms;
	int64_t changed_ms;  /* of the state: mtime of `status` and of the directory */
	uint64_t accepted;   /* number K of the newest accepted message, 0 = none */
	uint64_t unanswered; /* lowest K that is not answered, 0 = none */
	uint64_t ships;	     /* ships that have ended so far */
	uint64_t version;    /* grows with every change of this session */
	char *value[VALUE_KINDS];
	int64_t value_ms[VALUE_KINDS];
	char *uncommitted; /* second line of `status` while nothing runs: what is not committed in the sandbox, or "" */
	char *setting[SETTING_KINDS];
	int64_t setting_ms[SETTING_KINDS];
	struct text_info text[TEXT_KINDS];
	struct live *live; /* or NULL */
	struct attach_info *attach;
	size_t n_attach;
	uint64_t approval;   /* number K of the approval that waits, 0 = none */
	char *approval_text; /* approvals/K, or NULL */
	int64_t approval_ms; /* when it was asked for */
	char *grants;	     /* rows of settings/approvals below its value, or NULL */
};

struct project_info {
	char *name;
	char *path;
	int64_t changed_ms;
};

/* A sandbox that was set up for a project at a commit; sessions start from it. */
struct template_info {
	int64_t id;    /* never used again */
	char *name;    /* PROJECT@COMMIT */
	char *status;  /* "ready", "building STEP", "failed: why" */
	uint64_t size; /* bytes on the disk */
	struct text_info log;
	int64_t created_ms, changed_ms;
};

struct gateway_key {
	char *name, *fingerprint;
	int64_t changed_ms;
};

/* The gateway as it was last seen. Immutable; each string is a whole text with its newlines, but state. */
struct gateway_view {
	atomic_int refs;
	char *state;  /* words for `status` */
	char *policy; /* in force */
	char *draft;  /* a written policy that did not hold, kept; NULL if none */
	int64_t policy_ms;
	char *head;
	int64_t head_ms;
	char *tokens;
	int64_t tokens_ms;
	struct text_info ledger;
	struct gateway_key *keys; /* sorted by name */
	size_t n_keys;
	int64_t keys_ms;
};

struct root_view {
	atomic_int refs;
	char *config; /* whole text of config, the one in force */
	int64_t config_ms;
	char *draft; /* a written config that did not hold, kept; NULL if none */
	struct text_info events;
	struct project_info *projects;
	size_t n_projects;
	int64_t projects_ms;
	struct template_info *templates; /* sorted by id */
	size_t n_templates;
	int64_t templates_ms;
	int64_t started_ms;
	size_t workers;		      /* running now */
	struct gateway_view *gateway; /* a reference, or NULL */
};

struct view *view_get(struct view *v); /* any thread */
void view_put(struct view *v);
struct root_view *root_view_get(struct root_view *v);
void root_view_put(struct root_view *v);
struct gateway_view *gateway_view_new(void);
struct gateway_view *gateway_view_get(struct gateway_view *v);
void gateway_view_put(struct gateway_view *v);
void live_put(struct live *l);

/* ---- requests ---- */

enum request_kind {
	REQ_READ,	 /* session, text, offset, size -> out: bytes of that text (fewer at its end) */
	REQ_FILE_FIND,	 /* session, name: path below files/ ("": the top) -> file. -ENOENT */
	REQ_FILE_LIST,	 /* session, name: folder -> out: for each entry `MODE OBJECT NAME` and a NUL, mode in octal */
	REQ_FILE_READ,	 /* session, name: object of a file, offset, size -> out. -EFBIG: too large to be shown */
	REQ_CWD,	 /* pid -> name: folder that the process stands in, or NULL (never an error) */
	REQ_DRAFT,	 /* judge a draft that is being written: text (so far), project (of new/PROJECT, or NULL),
			    cwd (folder of the writer, or NULL) -> rc, err. Nothing is created. An unfinished front matter
			    is judged by its complete lines; a finished one wholly (project, model script, sandbox...). */
	REQ_CREATE,	 /* the same fields + name -> session: its id. Commits the session and its first message. */
	REQ_MESSAGE,	 /* session, text -> number: K. Committed when answered. */
	REQ_CTL,	 /* session, text: one line of verbs */
	REQ_SHIP,	 /* session, text: one line */
	REQ_ATTACH,	 /* session, name, text: bytes of a file -> number. On the disk and committed when answered. */
	REQ_ATTACH_READ, /* session, number, offset, size -> out */
	REQ_ATTACH_REMOVE,  /* session, number. -ENOENT: it has gone with a message */
	REQ_APPROVE,	    /* session, number: K as in the view, text: once, session, project or no [reason] */
	REQ_SETTING,	    /* session, setting, text: one value */
	REQ_CONFIG,	    /* text: the whole new config. Refused: kept as draft, err says the line and the reason */
	REQ_CONFIG_LINE,    /* text: one line of a config that is being written; judged alone */
	REQ_PROJECT_ADD,    /* name, text: target path of the symlink */
	REQ_PROJECT_REMOVE, /* name */
	REQ_RENAME,	    /* session, name */
	REQ_DESTROY,	    /* session, force. EBUSY if work is not synced */
	REQ_KEY,	    /* name, text: a provider's key. Its bytes are wiped before it is answered */
	REQ_KEY_REMOVE,	    /* name */
	REQ_POLICY,	    /* text: the gateway's whole new policy; as REQ_CONFIG */
	REQ_POLICY_LINE,    /* as REQ_CONFIG_LINE */
	REQ_TEMPLATE_DROP,  /* number: its id. -EBUSY while it is being built. No session starts from it any more; its
			       disk goes with the last that lies on it */
};

#define OBJECT_TEXT 41 /* hex name of a git object and its end */

/* An entry below files/: the session's work as of its last sync. */
struct work_file {
	unsigned mode; /* as in git: 040000, 0100644, 0100755, 0120000, 0160000 (a submodule: an empty folder) */
	uint64_t size;
	char object[OBJECT_TEXT];
	int64_t changed_ms; /* when the work was last fetched */
};

struct request {
	struct queue_node node;
	enum request_kind kind;
	int64_t session;
	enum text_kind text_kind;
	enum setting_kind setting;
	uint64_t offset;
	size_t size;
	int pid;
	bool force;
	char *name, *project, *cwd; /* malloc'd or NULL; owned by the request */
	struct buf text;
	/* answer */
	int rc;		/* 0 or -errno */
	struct err err; /* words when rc < 0 */
	struct buf out;
	uint64_t number;
	struct work_file file;
	void (*done)(struct request *); /* for the face: called by it when it takes the request out of its queue */
	void *arg;
};

struct request *request_new(enum request_kind kind, void (*done)(struct request *), void *arg);
void request_free(struct request *r);

/* ---- notes: what a face finds in its queue ---- */

enum note_kind {
	NOTE_VIEW,  /* view: new or changed session; the note owns a reference */
	NOTE_ROOT,  /* root: new root view; the note owns a reference */
	NOTE_ERROR, /* session (0: of the whole), err, path: a failure to be shown in `error` */
	NOTE_DONE,  /* request: answered */
	NOTE_READY, /* everything that was in the database has been delivered; sent once */
	NOTE_OTHER, /* the face's own items in the same queue */
};

struct note {
	struct queue_node node;
	enum note_kind kind;
	struct view *view;
	struct root_view *root;
	struct request *request;
	int64_t session, at_ms;
	struct err err;
	char path[64]; /* file the failure belongs to, e.g. "ship" */
};
void note_free(struct note *n); /* drops the references and the request pointer (not the request) */

/* ---- life ---- */

struct backend_options {
	const struct paths *paths;
	struct queue *notes; /* of the face; struct note items, freed by the face with note_free() */
	const char *mount;   /* absolute mount point: projects inside it are refused */
	int log_fd;	     /* of the gateway's log; 0: standard error, as it is now */
	bool gateway;	     /* start and watch the gateway; paths->self has to be this program */
};

/* Opens (or makes) the database and config, loads all sessions, starts the threads; sessions that were running go on.
 * Nothing under the mount point is touched. -EBUSY words if another daemon holds the instance; -EINVAL (config broken).
 */
int backend_start(const struct backend_options *opt, struct backend **out, struct err *err);
void backend_submit(struct backend *b, struct request *r);
/* Finishes commits, lets workers come to a safe point (jobs in sandboxes go on), closes. Answers open requests with
 * -ESHUTDOWN. The face must go on popping its queue until this returns or drop it afterwards. */
/* main() of the process that stands between the daemon and Claude Code, and of what it starts in the jail. */
int backend_claude_main(int argc, char **argv);
void backend_stop(struct backend *b);

/* Checks a session or project name by the rules; 0 or -EINVAL with words. Any thread, no I/O. */
int name_check(const char *name, struct err *err);
/* The same for a provider's key. */
int key_name_check(const char *name, struct err *err);
/* Does a file that begins so (12 bytes will do) count as an image, with ATTACH_IMAGE_MAX? Any thread, no I/O. */
bool attach_is_image(const void *p, size_t n);
/* The verbs of `ctl`, one a line, with what they do. Any thread. */
void ctl_verbs(struct buf *out);
/* The keys of `config`, in the order of its file. Any thread; the strings are constant. */
struct config_key_info {
	const char *name, *fallback, *about;
	const char *values; /* what a value may be, in words; NULL: `about` says it */
};
void config_describe(void (*key)(void *arg, const struct config_key_info *key), void *arg);
/* Prints the transcript of a session by name or id, also a destroyed one (`berthfs show`). Opens the database
 * read-only. */
int backend_show(const struct paths *paths, const char *name, int fd, struct err *err);
/* A session that lives, as `berthfs ssh` and `berthfs connect` need it. */
struct entrance {
	int64_t id;
	char *name, *kind, *size;
	char *clone; /* in the sandbox; "" until it is there */
	bool up;     /* its sandbox runs */
};
/* By name or id, with or without `.berth` behind it. -ENOENT; -EOPNOTSUPP: its kind of sandbox has no ssh. */
int backend_entrance(const struct paths *paths, const char *name, struct entrance *out, struct err *err);
void entrance_release(struct entrance *e);
/* Folder of the session's ssh keys (sandbox_keys()), malloc'd; STATE/ssh/ALIAS is made a link to it. */
int backend_enter_keys(const struct paths *paths, const struct entrance *e, const char *alias, char **folder,
		       struct err *err);
/* Starts the sandbox if it has to; a descriptor to the ssh server inside, or -errno. Blocks for as long as a boot. */
int backend_enter(const struct paths *paths, const struct entrance *e, void (*progress)(void *arg, const char *line),
		  void *arg, struct err *err);
/* `berthfs doctor`: one line a finding about git, config and models. */
void backend_doctor(const struct paths *paths, void (*line)(void *arg, bool ok, const char *name, const char *words),
		    void *arg);
/* `berthfs models`: a line each for what can be used and for what cannot, with what to do. The number of models that
 * can be used, or -errno. Asks servers on this machine or its LAN; some seconds at most. */
int backend_models(const struct paths *paths, void (*line)(void *arg, bool ok, const char *name, const char *words),
		   void *arg, struct err *err);
