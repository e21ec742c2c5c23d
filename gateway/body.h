/* A request's body against the policy: strict JSON, fields by allowlist, features, and the body that goes out instead.
 * Pure; one thread. What is checked here is what is sent: the outgoing body is put together from the members that were
 * checked. */
#pragma once
#include "backend/base/buf.h"
#include "policy.h"

#define TOKENS_MAX 1000000000 /* asked for or used by one request; more is no figure, and sums would overflow */

struct denial {
	int status;
	const char *rule; /* a fixed word: "model", "field", "limit.session.money"... */
	int retry_after;  /* seconds, 0: none */
	char text[400];
};
/* Fills d; returns -EPERM, so that `return deny(...)` works. */
__attribute__((format(printf, 4, 5))) int deny(struct denial *d, int status, const char *rule, const char *fmt, ...);
/* The same error in the shape that clients of the API know. */
void denial_json(struct buf *out, const struct denial *d, bool anthropic);

#define MODEL_MAX 128

struct member { /* of the body's top: offsets into the text */
	const char *key, *value;
	size_t key_n, value_n; /* the key's text between its quotes, as written */
};

struct ask {
	enum api api;
	const struct provider *provider;
	const struct price *price;
	char model[MODEL_MAX];
	bool stream;
	int64_t input;	/* tokens that the input has at most */
	int64_t extra;	/* of them: those that do not come from its bytes */
	int64_t seen;	/* bytes of pictures, which are looked at, and not read */
	int64_t answer; /* tokens that the answer may have; INT64_MAX: the request names no maximum */
	struct member members[64];
	int n;
	const char *cap_field; /* the member that caps the answer's length */
};

/* 0, or -EPERM with d filled. text must stay as long as a is used. */
int body_check(const struct policy *p, enum api api, const char *text, size_t n, struct ask *a, struct denial *d);
/* The same for the one provider that the client names; NULL: the policy chooses. */
int body_check_for(const struct policy *p, enum api api, const char *provider, const char *text, size_t n,
		   struct ask *a, struct denial *d);
/* The body to send. answer: the maximum to ask for, or INT64_MAX to leave it as it was. */
void body_build(const struct policy *p, const struct ask *a, int64_t answer, struct buf *out);
