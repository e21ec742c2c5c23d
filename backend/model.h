/* What every kind of model looks like to a turn: a pinned request goes in, text streams out, a whole reply or a fault
 * comes back. Worker threads; a model may block and must look at `cancel` at least every 100 ms. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

struct config;
struct context;
struct backend;
struct session;

struct model_call {
	char *id; /* unique in the session; made by us where the provider has none */
	char *name;
	char *input; /* JSON object as text, complete but unchecked */
};

struct model_reply {
	struct buf text, thinking;
	char *replay; /* JSON: blocks as they have to be given back to the same model, see answer.h; or NULL */
	struct model_call *calls;
	size_t n_calls;
	char stop[32];		       /* end_turn, tool_use, max_tokens, refusal, pause_turn */
	char notice[160];	       /* for the reader: why it ended early; or "" */
	char log[300];		       /* for the session's log: what was done to get it; or "" */
	bool more;		       /* the provider wants it back as it is, and goes on */
	int64_t tokens_in, tokens_out; /* tokens_in: all input, what came from a cache as well */
	int64_t tokens_cached;	       /* of tokens_in. All are also filled as far as known when the request fails */
};

/* Why there is no reply. */
struct model_fault {
	int status;		  /* HTTP status, 0: none was received, or the stream broke */
	char code[64];		  /* the provider's error code or type, "" if none; see fault.c */
	bool retry;		  /* without a status: the connection or the stream broke, another try may do */
	signed char should_retry; /* x-should-retry: 1 true, -1 false, 0 not said */
	int64_t retry_after_ms;	  /* asked for by the server, 0: not */
};

struct model_request {
	const char *model;
	const char *project; /* checkout on the host, for script:FILE */
	int64_t n;	     /* number of this request in its session, from 1 */
	const char *system;
	const struct context *context;
	bool bare;  /* nothing of its own thinking is given back, and none is asked for: the provider refused that */
	bool plain; /* no tools are offered: words are wanted, a summary */
	struct backend *backend;
	const struct session *session;
	const atomic_bool *cancel;
	void (*text)(void *arg, const char *p, size_t n); /* streamed text, as it comes */
	void *arg;
};

struct model_info;

struct model_kind {
	const char *prefix; /* of the model's name, e.g. "script:" */
	/* Can this model be used? Judged when a session is made or its model is set. */
	int (*check)(const struct config *c, const char *model, const char *project, struct err *err);
	/* 0, -ECANCELED, or an error with words and fault filled. */
	int (*run)(const struct model_request *q, struct model_reply *reply, struct model_fault *fault,
		   struct err *err);
	/* Tokens of the request's input as the provider counts them; nothing is generated, and it costs nothing. NULL
	 * or -EOPNOTSUPP: it does not; -ECANCELED; other errors in words. */
	int (*count)(const struct model_request *q, int64_t *tokens, struct err *err);
};

const struct model_kind *model_find(const char *model, struct err *err); /* NULL in words */
int model_check(const struct config *c, const char *model, const char *project, struct err *err);
void model_reply_release(struct model_reply *r);
void model_reply_call(struct model_reply *r, char *id, char *name, char *input); /* takes ownership */

/* For kinds: asks; and once more without thinking if that was what the provider did not like, which reply->log says. */
typedef int model_ask_fn(const struct model_request *q, const struct config *c, const struct model_info *m,
			 struct model_reply *reply, struct model_fault *fault, struct err *err);
int model_ask_again(model_ask_fn *ask, const struct model_request *q, const struct config *c,
		    const struct model_info *m, struct model_reply *reply, struct model_fault *fault, struct err *err);

extern const struct model_kind model_script, model_claude, model_served;
