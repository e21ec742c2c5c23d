/* The agents that are known, and how each is started for a prompt. Pure. */
#pragma once
#include "guest_read.h"
#include "models.h"
#include "sandbox/sandbox.h"

/* What an agent is started with. */
struct guest_start {
	const char *url;	    /* of the gateway, as seen from inside; nothing follows the port */
	const char *home;	    /* folder for tools' files inside the sandbox */
	const struct model_info *m; /* NULL: a command, whatever the model */
	const char *provider;	    /* the model's, by its name in the policy; "": there is no gateway */
	const char *talk;	    /* its own conversation that goes on; "": a new one */
	int64_t n;		    /* number of the prompt in the session, from 1 */
	const char *command;	    /* of a plain command */
};

struct guest_words { /* NULL-terminated, malloc'd */
	char **p;
	size_t n;
};
void guest_words_add(struct guest_words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void guest_words_release(struct guest_words *w);

struct guest_kind {
	const char *name;    /* NULL: a plain command */
	const char *program; /* that has to be in the sandbox */
	const char *speaks;  /* kinds of providers that it can be pointed at, with blanks between them */
	bool reads_agents;   /* it reads AGENTS.md itself */
	guest_format *format;
	const char *filter; /* sed script over its output, or NULL */
	void (*argv)(const struct guest_start *s, struct guest_words *argv);
	void (*environ)(const struct guest_start *s, struct guest_words *pairs);
	/* A file that it needs: its path below home, and its text. May be NULL. */
	const char *file;
	void (*file_text)(const struct guest_start *s, struct buf *out);
};

const struct guest_kind *guest_kind(const char *agent); /* any other word than a name is a command */
/* `opencode, claude, codex, pi` */
void guest_kind_names(struct buf *out);
