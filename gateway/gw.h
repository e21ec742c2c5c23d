/* The gateway process inside: one loop thread that owns all of this. Other threads: the ledger's two, resolvers, curl's
 * own resolvers; they speak by queues. */
#pragma once
#include <curl/curl.h>
#include <openssl/evp.h>
#include <stdint.h>

#include "backend/base/http.h"
#include "backend/base/list.h"
#include "body.h"
#include "key.h"
#include "ledger.h"
#include "meter.h"
#include "policy.h"
#include "sha.h"
#include "spend.h"
#include "token.h"
#include "usage.h"

#define BACKLOG_HIGH (256 << 10) /* bytes that wait for a slow reader before the other side is paused */
#define BACKLOG_LOW  (64 << 10)
#define SCRATCH	     (64 << 10)
#define LENGTH_OPEN  (-1)
#define LENGTH_CODED (-2)
#define READ_TURN    32 /* pieces that are read of a connection before others get their turn */

struct gw;
struct call;
struct tunnel;
struct pull;
struct curl_socket;
struct handle;
struct denials;

/* Something with a descriptor in the loop's epoll set. Freed by source_free() only, after the round. */
struct source {
	int fd;
	void (*ready)(struct source *s, uint32_t events);
	void (*destroy)(struct source *s);
	struct list dead;
};

enum listen_kind { LISTEN_DAEMON, LISTEN_SANDBOX, LISTEN_CONTROL };

struct listener {
	struct source source;
	struct gw *gw;
	struct list link;
	enum listen_kind kind;
	char *path;	     /* of a unix socket; NULL for TCP */
	struct token *token; /* a sandbox's: the one token that is taken here */
	int connections;
	size_t bodies;		 /* bytes of its connections' request bodies */
	struct denials *denials; /* or NULL: there was none yet */
};

enum conn_state { CONN_READING, CONN_WAITING, CONN_ANSWERING, CONN_TUNNEL, CONN_CLOSING, CONN_LINGERING };

struct conn { /* a client's connection */
	struct source source;
	struct gw *gw;
	struct list link;
	struct list again;  /* in gw->again: it has more to read, when others have had their turn */
	struct list unsent; /* in gw->unsent: bytes of an answer that have not been tried to send */
	struct listener *from;
	enum conn_state state;
	struct http_reader in;
	struct buf ahead; /* bytes that came after the request that is being served */
	struct buf out;
	size_t out_at;
	bool readable, gone, close_after, expect_sent;
	int64_t since_ms;    /* of the request's first byte, or of being idle */
	int64_t progress_ms; /* when bytes last went out */
	struct call *call;
	struct tunnel *tunnel;
	struct pull *pull;
	size_t counted; /* of the request's body, in the sums of its listener and of all */
};

struct gw {
	int epoll;
	struct source upstream; /* an epoll set of its own for curl's sockets: they go first */
	bool stopping;
	char *dir, *runtime; /* state and sockets */
	struct list listeners, conns, calls, tunnels, pulls, controls, attached, dead, again, unsent;
	int n_conns, most_conns;
	size_t bodies; /* bytes of request bodies that are being read or sent */
	CURLM *multi;
	int64_t curl_at;	   /* mono ms when curl wants to be called; -1: never */
	struct curl_socket **kept; /* by descriptor: connections to providers, which stay in the set */
	int n_kept;
	struct handle *spare[64];
	int n_spare;
	struct keys *keys;
	struct sha sha;
	struct tokens tokens;
	struct meter meter;
	struct spend spend; /* of who writes the ledger */
	struct policy *policy;
	struct ledger *ledger;
	struct ledger_record *later, **later_tail; /* for the next commit */
	int64_t later_ms;			   /* by when it has to be made */
	int n_now;				   /* of them: those that are written at this turn's end */
	int n_handed;				   /* records that the ledger's thread has not given back */
	struct queue done;			   /* finished ledger records */
	struct source done_source;
	struct queue names, resolved; /* resolvers' jobs, and back */
	struct source resolved_source;
	pthread_t resolvers[4];
	int n_resolvers;
	struct words registries; /* hosts of this machine's package managers */
	int unknown;		 /* outcomes that the last run left open */
	int64_t started_ms, activity_ms;
	uint64_t served, denied;
	uint64_t changes; /* of anything that the daemon shows */
	int64_t alone_ms; /* since when no daemon is attached, or the last look for sandboxes then; 0: none has
				ever been, or one is */
	char *listen;	  /* the TCP address that is listened on, or NULL */
	char scratch[SCRATCH];
	struct buf clean; /* on_body()'s: an answer's bytes without the key */
};

/* ---- loop.c ---- */
int source_add(struct gw *g, struct source *s, uint32_t events);
void source_free(struct gw *g, struct source *s); /* closes the descriptor now, frees after the round */
int gw_loop(struct gw *g, bool drain,
	    struct err *err); /* until stopping; drain: until no call or tunnel is left, or 3 s */
void gw_bury(struct gw *g);   /* frees the sources that were given up */

/* To the ledger, at the end of the loop's turn, all in one commit; done() is called from there, never from here. A
 * record that nobody waits for may come some milliseconds later, in the commit of the next one. The order stays. */
void record_now(struct gw *g, struct ledger_record *r);
void record_later(struct gw *g, struct ledger_record *r);
void record_flush(struct gw *g); /* all that waits to the ledger's thread */

/* ---- listen.c: listeners and client connections ---- */
int listen_unix(struct gw *g, enum listen_kind kind, const char *path, struct token *token, struct listener **out,
		struct err *err);
int listen_set(struct gw *g, const char *address, struct err *err); /* of TCP, instead of the one before; or NULL */
void listener_close(struct gw *g, struct listener *l);
void conn_read(struct conn *c);				 /* goes on with what has come */
void conn_put_off(struct conn *c);			 /* it has more to read: after the others */
void conn_read_again(struct gw *g);			 /* those that have been put off, once each */
void conn_send(struct conn *c, const void *p, size_t n); /* queues and sends what goes at once */
void conn_flush(struct conn *c);
void conn_add(struct conn *c, const void *p, size_t n); /* queues; goes out with what follows, by conn_flush_all() */
void conn_flush_all(struct gw *g);
size_t conn_backlog(const struct conn *c);
void conn_done(struct conn *c);	 /* the answer is queued as a whole: on to the next request, or close */
void conn_abort(struct conn *c); /* closed in the middle, so that nobody takes the answer for complete */
void conn_deny(struct conn *c, const struct denial *d, bool anthropic);
void conn_body_sent(struct conn *c); /* the provider has all of the request's body: it is held no longer */
void conn_sweep(struct gw *g, int64_t now_ms);

/* ---- call.c: from a complete request to its decision ---- */
void call_begin(struct conn *c);
void call_denied(struct conn *c, struct token *t, const struct denial *d, bool anthropic); /* ledger and answer */
struct token *call_token(struct conn *c, const char *field, struct denial *d);
void record_who(struct ledger_record *r, const struct token *t);

/* ---- denials.c ---- */
/* To the ledger, by itself or counted. t: or NULL. */
void denials_note(struct conn *c, struct token *t, const struct denial *d, int64_t now_ms);
void denials_sweep(struct gw *g, int64_t now_ms);
void denials_end(struct listener *l); /* what was counted is told */

struct call {
	struct gw *gw;
	struct list link;
	struct conn *conn; /* NULL: the client has left */
	struct token *token;
	struct policy *policy;
	struct ask ask;
	struct hold hold;
	struct meter_change change;
	struct buf body; /* as it goes out */
	char query[256], version[64], beta[1024];
	uint64_t seq; /* of the decision; 0: not written yet */
	/* forwarding */
	struct handle *handle;
	CURL *easy; /* the handle's */
	struct curl_slist headers[9];
	int n_headers;
	char *lines; /* those of the headers that are not the same for all; the key is in them */
	size_t lines_n;
	struct scrub scrub;
	struct usage_reader usage;
	EVP_MD_CTX *hash; /* of what the client gets */
	int status;
	bool head_sent, swallow, chunked, paused, cut;
	size_t head_bytes;  /* that have come of it, and of trailers */
	bool encoded;	    /* the answer is compressed, which nobody asked for */
	bool events;	    /* it is of events */
	int64_t swallow_ms; /* since when what comes is thrown away */
	bool sent;	    /* curl has begun to send it */
	bool twice;	    /* and would have again: the connection broke */
	int64_t length;	    /* of the answer; LENGTH_OPEN: not said, LENGTH_CODED: chunked, whatever else is said */
	struct buf head;    /* header lines that pass */
	uint64_t bytes;
	int64_t started_ms, heard_ms; /* heard: last sign of the provider */
	const char *result;	      /* set when something else than curl decides */
};

void call_free(struct call *call);
/* The record of how it ended, and the meter's settlement. */
void call_outcome(struct call *call, const char *result);

/* ---- forward.c ---- */
int forward_init(struct gw *g, struct err *err);
void forward_release(struct gw *g);
void forward_start(struct call *call);
void forward_client_gone(struct call *call);
void forward_resume(struct call *call);			 /* the client has taken bytes */
void forward_sweep(struct gw *g, int64_t now_ms);	 /* gives up on silent providers; each second */
void forward_cut(struct call *call, const char *result); /* stops at once, client and provider */
void forward_curl_timer(struct gw *g);
void forward_finished(struct gw *g); /* takes from curl what it is done with */

/* ---- sockets.c ---- */
int sockets_init(struct gw *g, struct err *err); /* for g->multi */
void sockets_release(struct gw *g);		 /* after it */
void sockets_keep(struct gw *g, CURL *easy);	 /* its connections may stay in the set between requests */

/* ---- egress.c ---- */
void machine_hosts(struct words *out); /* hosts that this machine's package managers are set up for */
void egress_begin(struct conn *c);
void egress_client_ready(struct conn *c); /* bytes from or room for the client */
void egress_cut(struct tunnel *t, const char *result);
void egress_recheck(struct gw *g, const struct token *token); /* cuts what its network allows no more */
struct token *egress_token(const struct tunnel *t);
struct tunnel *egress_of(struct list *link);

/* ---- forge.c: a ship's pull request, on the daemon's own socket alone ---- */
bool pull_wanted(const struct conn *c); /* the request is for it */
void pull_begin(struct conn *c);
bool pull_finished(struct gw *g, CURL *easy, CURLcode rc); /* false: it is none of its */
void pull_stop(struct gw *g);				   /* gives all up: the process ends */
void pull_cut(struct pull *p);				   /* its client has left */

/* ---- control.c ---- */
void control_accept(struct gw *g, int fd);
int sandbox_listen(struct gw *g, struct token *t, struct err *err); /* the socket of a sandbox's token */
void control_release(struct gw *g);

/* ---- attach.c ---- */
void attach_new(struct gw *g, int fd); /* takes the connection of a daemon */
void attach_tell(struct gw *g);	       /* something has changed */
bool attach_over(struct gw *g, int64_t now);
void attach_release(struct gw *g);
