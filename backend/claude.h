/* The command-line program Claude Code as a model: where it is installed, the jail that it runs in, one running process
 * of it, and what is said to it. It is asked for words and for calls of tools alone: nothing that it prints makes this
 * machine do anything but keep text. */
#pragma once
#include <cjson/cJSON.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "core.h"
#include "model.h"
#include "models.h"

#define CLAUDE_NAME   "claude-code"		 /* the model; CLAUDE_NAME/X asks the program for its model X */
#define CLAUDE_SERVER "berthfs"			 /* name under which the program is told of our tools */
#define CLAUDE_PREFIX "mcp__" CLAUDE_SERVER "__" /* what it puts before a tool's name */
#define CLAUDE_PROXY  "8118"			 /* port in its jail, where nothing else listens */

/* ---- claude_place.c; any thread ---- */

struct claude_place {
	char *program; /* what is executed: a path without links */
	char *node;    /* what executes it, if it is a script of node; or NULL */
	char *show[6]; /* what else of the file system it needs to run, read-only */
	int n_show;
	char *home;
	char *login;	/* the file that its login is kept in, or NULL; only it reads that */
	bool signed_in; /* there is a login, by the look of it */
};

/* program: a path, or a name that is looked for. -ENOENT in words: it is not installed. */
int claude_place(const char *program, struct claude_place *out, struct err *err);
void claude_place_release(struct claude_place *p);

/* ---- claude_jail.c: bubblewrap's command line; any thread ---- */

#define CLAUDE_ARGS 192

struct claude_args {
	const char *v[CLAUDE_ARGS];
	char *own[24];
	int n, owned;
};

/* What follows in a->v is the program that runs inside. cwd: a folder that is made there, as the program tells its
 * model where it stands; self: this program, which is shown too; or NULL. Adds no end. */
void claude_jail(struct claude_args *a, const struct claude_place *p, const char *cwd, const char *self);
void claude_args_add(struct claude_args *a, const char *word);
void claude_args_release(struct claude_args *a);
/* Its environment: names that are kept of ours, and settings that make it a model alone. For the process that becomes
 * the jail; not for one with threads. */
void claude_environment(void);
/* Asks the installed program, in its jail and without a network, whether it is logged in: 0 with words for it. -ENOENT:
 * not installed; -EACCES: not logged in; -EPERM: no jail here. Blocks for a second. */
int claude_status(const struct paths *paths, const char *program, char *text, size_t cap, struct err *err);

/* ---- claude_proc.c: one running process; one thread at a time ---- */

struct claude {
	int64_t session;
	char *key;   /* what it was started and told with: model, prompt, tools; another one needs another process */
	char *token; /* of the gateway, that its traffic goes with */
	pid_t pid;   /* of the relay, whose end is its end */
	int in, out, errs; /* its standard input, output and errors; ours are the other ends */
	int line;	   /* to the relay */
	struct buf got;	   /* read, not taken yet; from `at` on */
	size_t at, looked;
	struct buf said;  /* the end of what it wrote to its standard error */
	int64_t heard_ms; /* CLOCK_MONOTONIC of the last byte */
	bool ended;
	/* claude_talk.c */
	bool plain;	    /* it was told of no tools */
	bool ran;	    /* it has tried to run one */
	size_t told;	    /* messages of the conversation that it knows */
	uint64_t seed, sum; /* of them */
	int lines;	    /* numbers of the messages that it was told as the model's */
	char version[48];
	struct claude *next; /* claude_keep.c */
	int64_t used_ms;
};

struct claude_start {
	const struct paths *paths;
	const char *program;
	const char *socket, *token; /* of the gateway */
	const char *cwd;
	const char *model;  /* NULL: its own choice */
	const char *effort; /* low ... max; NULL: its own choice */
	int idle_s;	    /* it ends by itself when it has been idle for so long */
};

int claude_start(const struct claude_start *s, struct claude **out, struct err *err);
void claude_free(struct claude *c); /* ends it */
/* Writes one line. Reads meanwhile, since the program may wait for that. 0, -ECANCELED, -EPIPE, -ETIMEDOUT. */
int claude_send(struct claude *c, const struct buf *line, const atomic_bool *cancel, struct err *err);
/* The next line it printed, without its end; valid until the next call. -EPIPE: it has ended; -ETIMEDOUT: nothing came
 * for idle_ms; -EFBIG: a line that no program of its kind writes; -ECANCELED. */
int claude_line(struct claude *c, int64_t idle_ms, const atomic_bool *cancel, const char **p, size_t *n,
		struct err *err);
void claude_busy(struct claude *c, bool busy); /* idle: its time begins to run */
bool claude_alive(struct claude *c);
const char *claude_last_words(struct claude *c); /* of its standard error; "" if there are none */

/* ---- claude_keep.c: those that wait for a session's next turn; any thread ---- */

struct claudes;
struct claudes *claudes_new(void);
void claudes_free(struct claudes *k);
/* Takes the session's out, or NULL: it is the caller's then. Those of other keys or tokens are ended. */
struct claude *claudes_take(struct claudes *k, int64_t session, const char *key, const char *token);
void claudes_put(struct claudes *k, struct claude *c, int most); /* the longest unused ones beyond most are ended */
void claudes_drop(struct claudes *k, int64_t session);

/* ---- claude_talk.c: what is said to it; worker threads ---- */

/* A conversation as it is told: messages by turns, of the user and of the model. */
struct claude_message {
	bool user;
	struct buf blocks; /* JSON, with commas between */
	char *from;	   /* the model that wrote it, or NULL */
};
struct claude_told {
	struct claude_message *v;
	size_t n;
};
/* model: whose own blocks are given back. The last one is the user's. */
void claude_told(struct claude_told *t, const struct context *c, const struct model_info *m, const char *model);
/* Appends what the model has answered, as the next request will tell it. */
void claude_told_answer(struct claude_told *t, const struct model_reply *r, const struct model_info *m,
			const char *model);
void claude_told_release(struct claude_told *t);
/* Does the program know the begin of it, and is there just one message more? */
bool claude_knows(const struct claude *c, const struct claude_told *t);
void claude_learns(struct claude *c, const struct claude_told *t); /* it knows all of it now */

/* Introduces us, our tools (unless plain) and the system prompt. -EPROTO in words: it speaks otherwise than is known
 * here; *fault says whether another try may do. */
int claude_hello(struct claude *c, const struct model_request *q, struct model_fault *fault, struct err *err);
/* Tells what it does not know yet. The last message asks for an answer. */
int claude_tell(struct claude *c, const struct claude_told *t, const atomic_bool *cancel, struct err *err);
/* A line that asks something of us is answered: what is asked of hooks and tools always with a no. 1: it was such a
 * line; 0: another; -errno. */
int claude_answer(struct claude *c, const cJSON *line, const atomic_bool *cancel, struct err *err);

/* ---- claude_turn.c: what it answers; worker threads ---- */

struct claude_limits {
	int64_t begin_ms, idle_ms;
};
/* After claude_tell(). *clean: its own history is as ours will be, so that it can be told the next message. */
int claude_turn(struct claude *c, const struct model_request *q, const struct claude_limits *l,
		struct model_reply *reply, struct model_fault *fault, bool *clean, struct err *err);

/* ---- claude_relay.c ---- */
/* main() of the process between is backend_claude_main(), see backend.h. */
