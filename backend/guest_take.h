/* What an agent's output says, taken into the transcript. Store thread. */
#pragma once
#include "engine.h"
#include "guest_read.h"

/* A prompt that is pinned: the row of `requests` and that of `guests`. */
struct guest_run {
	int64_t n;	      /* request */
	int64_t from, cutoff; /* the prompt is what the user said in entries (from, cutoff] */
	int64_t prompts;      /* it is the agent's so many-th prompt in this session */
	uint64_t offset;      /* so much of its output is taken */
	bool again;	      /* an earlier try was cut off: it goes on with what that has begun */
	char *agent, *model;  /* as they were set then */
	char *talk;	      /* the agent's own conversation, "" if none yet */
};
void guest_run_release(struct guest_run *g);

/* Pins the prompt that is due, or finds the one that was pinned before a restart. */
struct guest_pin {
	struct worker *w;
	struct guest_run run;
	bool nothing; /* every message was withdrawn */
	bool again;   /* files of a message have to be delivered first */
};
session_fn guest_pin_fn;

enum guest_end {
	GUEST_GOES_ON,
	GUEST_ANSWERED, /* the last text is the answer */
	GUEST_FAILED,
	GUEST_CUT, /* its sandbox went away below it */
};

struct guest_take {
	struct backend *b;
	struct guest_run *run;
	const struct guest_line *lines;
	size_t n;
	uint64_t offset;     /* of the output that is taken with this */
	const char *pending; /* text that stands there and is not taken */
	struct buf *said;    /* what this prompt's answer has shown so far; grows */
	enum guest_end end;
	session_fn *final; /* with GUEST_ANSWERED */
	const char *why;   /* of GUEST_FAILED and GUEST_CUT */
	bool lost;	   /* the agent does not know its conversation any more */
};
session_fn guest_take_fn;
