/* Shared by the files of the gateway's link: gate_link.c (its life), gate_look.c (what it shows), gate_token.c,
 * gate_ask.c (what is asked of it). */
#pragma once
#include <pthread.h>

#include "backend/base/map.h"
#include "gate_link.h"
#include "gateway/gateway.h"

enum gate_state {
	GATE_STARTING, /* or starting again: those who need it wait a moment */
	GATE_UP,
	GATE_DOWN, /* why says why; it is tried again */
};

struct gate_link {
	struct backend *b;
	int log_fd; /* the gateway's standard error */
	pthread_t thread, asker;
	bool has_thread, has_asker;
	struct queue asks; /* requests of the face */
	int wake;	   /* eventfd: somebody wants a round now */

	pthread_mutex_t lock; /* guards what follows, held for moments only */
	pthread_cond_t change;
	bool stop;
	enum gate_state state;
	struct err why;
	uint64_t wanted, done;	   /* rounds */
	struct gateway_view *view; /* a reference */
	char *draft;		   /* a written policy that does not hold, or NULL */

	/* One token is made or revoked at a time. The one lock that is held while the gateway is asked, by threads that
	 * may block; its client never calls back. */
	pthread_mutex_t minting;
	struct map engine;    /* session's number to the engine's token; guarded by minting */
	struct map sandboxes; /* sessions whose sandbox had a token at the last look; guarded by minting */

	/* of the link's thread */
	struct db *db;
	int line;			       /* gateway_attach(); -1: not connected */
	int64_t looked_ms, up_ms, next_try_ms; /* CLOCK_MONOTONIC */
	int silent;
	int tries;		     /* failed starts in a row */
	char *listen, *listen_words; /* settings as they were last told, and what came of it */
	bool sync_each;
	bool told;
	bool tell_lives; /* this gateway has not been told by what to know that a sandbox lives */
};

/* ---- gate_look.c; the link's thread ---- */
/* Brings tokens into line with the sessions, reads what the tree shows, and is up then; -errno: the gateway does not
 * answer. */
int gate_look(struct gate_link *l, struct err *err);
/* The state has changed, or the draft: what was read last is shown with it. Any thread. */
void gate_show(struct gate_link *l);

/* ---- gate_link.c ---- */
/* 0 if it is up, after a wait while it starts; else -EAGAIN or -ECANCELED in words. */
int gate_wait_up(struct gate_link *l, const atomic_bool *cancel, struct err *err);
bool gate_stopping(struct gate_link *l);
void gate_want(struct gate_link *l);

/* ---- gate_token.c ---- */
/* The link's thread. tokens gets the text of gateway_tokens() as it is afterwards. */
int gate_reconcile(struct gate_link *l, struct buf *tokens, struct err *err);
/* A new one; the older one ends. token has GATE_TOKEN bytes. */
int gate_mint_sandbox(struct gate_link *l, const struct session *s, const char *socket, char *token, struct err *err);
void gate_tokens_release(struct gate_link *l);

/* ---- gate_ask.c ---- */
void *gate_asker(void *arg);
