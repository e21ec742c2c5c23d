/* A connection through the proxy, for the files that make it. */
#pragma once
#include "gw.h"
#include "resolve.h"

struct tunnel {
	struct source source; /* the connection to the host; fd -1 until it is dialled */
	struct gw *gw;
	struct list link;
	struct conn *conn; /* NULL: the client has left */
	struct token *token;
	struct policy *policy;
	struct hold hold;
	struct meter_change change;
	bool named; /* what goes up may: by TLS the host itself is asked for, or that does not matter */
	bool get, connected, up_readable, client_end, host_end, over;
	bool resolving;	    /* a job has it */
	const char *result; /* set: it is over, and waits for what still holds it */
	char host[256];
	int port, next; /* of the addresses */
	struct resolve_job *job;
	struct buf to_host;
	size_t to_host_at;
	uint64_t seq, up, down;
	uint64_t charged; /* bytes that the ledger has: they may pass */
	uint64_t piece;	  /* of them, what the last record has charged, or the one that is being written */
	bool charging;	  /* one is */
	int64_t started_ms;
};

/* ---- egress_ask.c: may it? ---- */
int egress_allowed(const struct gw *g, const struct tunnel *t, struct denial *d);
/* host and port of the target, and for a plain GET the request to send. */
int egress_target(struct tunnel *t, const struct http_reader *r, struct denial *d);
