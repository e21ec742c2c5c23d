/* Transcript → what the model is shown. The repairs live here, not in storage: every call has exactly one result, in
 * its place; what cannot be sent is left out. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "db.h"

enum item_kind { ITEM_USER, ITEM_ASSISTANT, ITEM_CALL, ITEM_RESULT };

/* An image that goes with a user's message. */
struct item_image {
	char *name, *media; /* "image/png"... */
	char *file;	    /* see attach.h */
	uint64_t size;
	struct buf data; /* its bytes, once attach_images() has read them */
};

struct item {
	enum item_kind kind;
	char *text;		   /* USER, ASSISTANT, RESULT */
	char *thinking;		   /* ASSISTANT, or NULL */
	char *model;		   /* ASSISTANT: the one that wrote it */
	char *replay;		   /* ASSISTANT: blocks that only that model understands; see answer.h; or NULL */
	char *id;		   /* CALL, RESULT */
	char *name;		   /* CALL, RESULT */
	char *input;		   /* CALL: JSON object */
	bool error;		   /* RESULT */
	bool more;		   /* ASSISTANT: the provider wants it back as it is, and goes on */
	struct item_image *images; /* USER */
	size_t n_images;
};

struct context {
	struct item *items;
	size_t n;
};

/* Entries up to seq `cutoff`, repaired. What a summary made by then stands for is told by it. */
int context_build(struct db *db, int64_t session, int64_t cutoff, struct context *out, struct err *err);
void context_release(struct context *c);
/* Takes an image out of its message, which says so. */
void context_image_lost(struct item *i, size_t image, const char *why);
/* Appends one entry of the transcript: its kind and its JSON. Notices are none for a model. */
void context_words(struct context *c, const char *kind, const char *body);
/* A request asks for an answer to something: where nothing is left that could be answered, the user is made to say "Go
 * on.". */
void context_ask(struct context *c);
/* Appends a user's message. */
void context_user(struct context *c, const char *text);

/* The system prompt. protected: patterns of protected paths; agents: text of the project's AGENTS.md; or NULL.
 * malloc'd. */
char *context_prompt(const char *clone, bool host, const char *protected, const char *agents);
