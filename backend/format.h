/* The formats that providers speak: what a request looks like, and what its stream of events means. Pure; worker
 * threads. */
#pragma once
#include "answer.h"

struct format {
	const char *kind; /* as in provider.NAME.kind */
	const char *path;
	bool x_api_key;		    /* the token goes in x-api-key, else as Authorization: Bearer */
	const char *const *headers; /* fixed ones, NULL-terminated */
	void (*body)(const struct model_request *q, const struct model_info *m, struct buf *out);
	/* One event. 0, or an error with words and a fault. The last one sets a->done. */
	int (*event)(struct answer *a, const char *name, const char *data, size_t n, struct err *err);
	/* The stream has ended, properly (clean) or not. 0: the reply is there. */
	int (*end)(struct answer *a, bool clean, struct err *err);
	/* Where the provider counts a request's tokens, and that request; NULL: nowhere. */
	const char *count_path;
	void (*count_body)(const struct model_request *q, const struct model_info *m, struct buf *out);
};

extern const struct format format_anthropic, format_openai, format_responses;
const struct format *format_find(const char *kind); /* NULL: unknown */

/* The conversation as Messages has it: each message in order, its blocks as JSON with commas between. model: whose own
 * blocks are given back; prefix: stands before each tool's name; from: member "from" of the layout that the answer was
 * kept with, or NULL. */
typedef void anthropic_message_fn(void *arg, bool user, const char *blocks, size_t n, const char *from);
void anthropic_talk(const struct context *c, const struct model_info *m, const char *model, const char *prefix,
		    anthropic_message_fn *message, void *arg);
