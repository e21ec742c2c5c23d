/* Inside the control socket: a connection of it, and the verbs by who answers them. The loop's thread. */
#pragma once
#include "gw.h"

#define CONTROL_LINE 2048
#define CONTROL_BODY (1 << 20)
#define CONTROL_ARGS 8

struct control {
	struct source source;
	struct gw *gw;
	struct list link;
	char line[CONTROL_LINE];
	size_t line_n;
	char *args[CONTROL_ARGS];
	int n_args;
	char *body; /* NULL while the line is read */
	size_t body_n, body_at;
	struct buf out;
	size_t out_at;
	bool waiting; /* for the ledger */
	bool closed;
};

/* The answer to a request that waited for the ledger; c may be gone after. */
void control_answer(struct control *c, int rc, const struct buf *out, const struct err *err);

/* Verbs: 0 with out, or -errno with err; or c->waiting is set, and control_answer() follows. */
typedef int control_verb(struct control *c, struct buf *out, struct err *err);
/* control_tokens.c */
control_verb on_mint, on_revoke, on_network, on_tokens, on_life;
/* control_show.c: keys, policy, settings, and what is going on */
control_verb on_hello, on_key, on_keys, on_policy_get, on_policy_set, on_status, on_head, on_ledger, on_activity,
	on_options;
/* report.c */
control_verb on_usage;
