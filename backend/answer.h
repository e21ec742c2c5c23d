/* A reply that is put together from a provider's stream, block by block; and a reply that is given back to the model
 * that wrote it. Worker threads; one owner. */
#pragma once
#include <cjson/cJSON.h>

#include "context.h"
#include "model.h"
#include "models.h"

#define ANSWER_BYTES (4 << 20) /* of text, thinking and arguments; models give a tenth of it */

enum part_kind { PART_TEXT, PART_THINKING, PART_CALL };

struct part {
	enum part_kind kind;
	int64_t index;	   /* by which the stream names it */
	bool ended;	   /* the provider has said that it is complete */
	struct buf text;   /* thinking: what can be read; call: its arguments */
	struct buf sign;   /* of thinking */
	char *raw;	   /* block as JSON that only this model understands; or NULL */
	char *id, *name;   /* of a call, or NULL */
	size_t skip, size; /* text: where it stands in the reply's, behind the text before it */
};

struct answer {
	const struct model_request *q;
	struct model_reply *reply;
	struct model_fault *fault;
	struct part *parts;
	size_t n, bytes;
	struct part *writing; /* the text that grew last */
	bool mixed;	      /* texts grew by turns, so that their places are not known */
	bool began, done;     /* the first and the last event came */
	bool ending;	      /* the reason of its end is known */
	bool refused;	      /* text of a refusal came */
	char reason[64];      /* why it ended, in the provider's word */
};

void answer_release(struct answer *a);
struct part *answer_part(struct answer *a, enum part_kind kind, int64_t index); /* the open one, or NULL */
struct part *answer_add(struct answer *a, enum part_kind kind, int64_t index);	/* valid until the next one is added */
/* Text of a part as it comes: checked, streamed. NULL text is none. -EFBIG past ANSWER_BYTES. */
int answer_text(struct answer *a, struct part *p, const char *text, struct err *err);
int answer_bytes(struct answer *a, struct buf *to, const char *text, struct err *err); /* thinking, arguments */
int answer_bounds(struct answer *a, struct err *err); /* after each event: -EFBIG if there is too much of it */
/* Fills the reply: thinking, calls, what is given back. api: name of the format. n: a call's id is made of it where the
 * provider's is missing, or (own) always. cut: it ended at a limit: a call that is not ended is no call to run, and
 * gets no arguments that could be taken for whole. */
void answer_finish(struct answer *a, const char *api, bool own_ids, bool cut);

/* For the reading of streams. */
int answer_broken(struct answer *a, struct err *err, const char *why); /* another try may do */
/* {"error":{"type","message","code","details"}} or {"error":"words"} or the inner object: fault and words. status 0:
 * it came inside a stream. */
int answer_error(struct model_fault *fault, int status, const cJSON *o, struct err *err);
/* One event's data. NULL: broken. Half surrogates and NUL become U+FFFD instead of failing every later try as well. */
cJSON *answer_json(const char *p, size_t n);
void answer_count(const cJSON *o, const char *key, int64_t *out); /* a number that may be null or missing */

/* ---- giving back ---- */

struct given {
	struct cJSON *layout; /* or NULL: text, then calls */
	const struct item *assistant, *calls;
	size_t n_calls;
};
/* What stands between a turn's begin at items[at] and its results. Only the model that wrote it gets its own blocks
 * back, and only in the format that they came in. Returns where the results begin. */
size_t given_open(struct given *g, const struct context *c, size_t at, const char *model, const char *api);
/* Calls one of the three for each block, in order; a blank text is left out, as providers refuse it. */
struct given_to {
	void (*text)(void *arg, const char *p, size_t n);
	void (*raw)(void *arg, const cJSON *block);
	void (*call)(void *arg, const struct item *call);
	void *arg;
};
void given_each(const struct given *g, const struct given_to *to);
void given_close(struct given *g);
bool given_thinks(const struct given *g); /* it begins with a block of its own */
/* Is the image to be sent? If not, why is to be told in its place: words for the model, malloc'd. */
bool given_image(const struct model_info *m, const struct item_image *i, char **words);
void given_base64(struct buf *out, const struct buf *data);
/* A call's id in letters that every provider takes (a-z A-Z 0-9 _ -, 40 at most); the same for the same id. */
void given_id(struct buf *out, const char *id);
void given_name(struct buf *out, const char *name);
