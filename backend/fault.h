/* What a failed model request means: another try, an end, or a conversation that is too long. Any thread, no I/O. */
#pragma once
#include "model.h"

enum fault_kind {
	FAULT_NEVER,	/* another try would fail the same: bad request, bad key, spent money */
	FAULT_RETRY,	/* overload, limits of rate, broken connections */
	FAULT_OVERFLOW, /* the request is larger than the model's window */
};

/* words: the provider's message; it is looked at only where there is no code. */
enum fault_kind fault_judge(const struct model_fault *f, const char *words);
/* Did the provider refuse what the model's thinking was given back as, or that it is asked to think? A conversation
 * must not end by that: it goes on without. */
bool fault_of_thinking(const struct model_fault *f, const char *words);
/* The wait that a response header asks for, in ms; 0 if it is no such header or nothing is asked. name: retry-after
 * (seconds, or an HTTP date that now_ms is compared with) or retry-after-ms; in any case of letters. */
int64_t fault_retry_after(const char *name, const char *value, int64_t now_ms);
/* How long to wait before the next try: exponential with jitter, or what the server asked for if that is longer.
 * attempt: failed tries so far, from 1; random: any number. */
int64_t fault_backoff_ms(const struct model_fault *f, int64_t attempt, uint64_t random);
