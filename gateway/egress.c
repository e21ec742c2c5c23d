/* The proxy: CONNECT, and plain GET of http:// URLs, to hosts that the session's network setting allows. Names only,
 * resolved once, every address checked, the checked one dialled. What is allowed and how many bytes passed is in the
 * ledger: they are charged there before they pass, a piece at a time, so that a gateway that is killed has let none
 * through that the next one does not know of. Must never connect to what is not public, but for the addresses that the
 * policy maps a name to. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "egress_private.h"
#include "hello.h"
#include "net.h"

#define PIECE_FIRST (256 << 10) /* bytes that are charged with the decision */
#define PIECE_LEAST (1 << 20)	/* then, each time, a quarter of what has passed, within these */
#define PIECE_MOST  (64 << 20)

struct token *egress_token(const struct tunnel *t)
{
	return t->token;
}

struct tunnel *egress_of(struct list *link)
{
	return list_entry(link, struct tunnel, link);
}

/* ---- the end ---- */

static void tunnel_destroy(struct source *s)
{
	struct tunnel *t = (struct tunnel *)s;
	token_put(t->token);
	policy_put(t->policy);
	buf_release(&t->to_host);
	free(t->job);
	free(t);
}

static void outcome(struct tunnel *t)
{
	struct ledger_record *r = ledger_record_new("outcome");
	struct usage none = {0};
	static const struct price nothing;
	meter_settle(&t->gw->meter, &t->hold, &nothing, &none, &t->change);
	t->change.bytes = (int64_t)(t->up + t->down) - (int64_t)t->charged;
	spend_text(&t->change, &r->aside);
	r->of = t->seq;
	r->done = ledger_record_free;
	ledger_int(r, "of", (int64_t)t->seq);
	ledger_text(r, "result", t->result);
	ledger_int(r, "bytes_up", (int64_t)t->up);
	ledger_int(r, "bytes_down", (int64_t)t->down);
	ledger_int(r, "ms", clock_mono_ms() - t->started_ms);
	t->gw->activity_ms = clock_mono_ms();
	record_later(t->gw, r);
}

/* Nothing holds it any more. */
static void bury(struct tunnel *t)
{
	if (t->seq)
		outcome(t);
	list_remove(&t->link);
	source_free(t->gw, &t->source);
}

void egress_cut(struct tunnel *t, const char *result)
{
	struct conn *c = t->conn;
	if (t->over)
		return;
	t->over = true;
	t->result = result;
	t->conn = NULL;
	if (c) {
		c->tunnel = NULL;
		c->close_after = true;
		if (!strcmp(result, "complete"))
			conn_done(c);
		else
			conn_abort(c);
	}
	fd_close(&t->source.fd);
	if (!t->resolving && !t->charging && t->seq)
		bury(t);
}

static void refuse(struct tunnel *t, int status, const char *rule, const char *text)
{
	struct conn *c = t->conn;
	struct denial d;
	deny(&d, status, rule, "%s", text);
	t->conn = NULL;
	if (c) {
		c->tunnel = NULL;
		c->close_after = true;
		conn_deny(c, &d, false);
	}
	egress_cut(t, rule);
}

/* ---- bytes ---- */

static size_t backlog(const struct tunnel *t)
{
	return t->to_host.n - t->to_host_at;
}

static void pump(struct tunnel *t);

/* More may pass. */
static void charged(struct ledger_record *r)
{
	struct tunnel *t = r->arg;
	ledger_record_free(r);
	t->charging = false;
	t->charged += t->piece;
	if (t->over)
		bury(t);
	else
		pump(t);
}

/* The next piece, no more than the limits leave. It must not get lost: with it goes what the outcome takes back. */
static void charge(struct tunnel *t)
{
	uint64_t passed = t->up + t->down, left = t->charged - passed, piece = passed / 4;
	int64_t most = meter_bytes_left(t->policy, &t->hold);
	if (t->charging || left > t->piece / 2 || most <= (int64_t)left)
		return;
	piece = piece < PIECE_LEAST ? PIECE_LEAST : piece > PIECE_MOST ? PIECE_MOST : piece;
	t->piece = piece < (uint64_t)most - left ? piece : (uint64_t)most - left;
	t->charging = true;
	struct ledger_record *r = ledger_record_new("bytes");
	meter_bytes_change(&t->hold, (int64_t)t->piece, &t->change);
	spend_text(&t->change, &r->aside);
	ledger_int(r, "decision", (int64_t)t->seq);
	ledger_int(r, "bytes_up", (int64_t)t->up);
	ledger_int(r, "bytes_down", (int64_t)t->down);
	ledger_int(r, "reserved_bytes", (int64_t)(t->charged + t->piece));
	r->keep = true;
	r->arg = t;
	r->done = charged;
	record_later(t->gw, r);
}

/* How much may be read, of n at most; 0: not now. */
static size_t may_read(struct tunnel *t, size_t n)
{
	uint64_t left = t->charged - t->up - t->down;
	int64_t most = meter_bytes_left(t->policy, &t->hold);
	charge(t);
	if (most <= 0)
		return 1; /* of what ends here; anything else is too much */
	left = left < (uint64_t)most ? left : (uint64_t)most;
	return left < n ? (size_t)left : n;
}

/* True while the tunnel goes on; they pass then. */
static bool count(struct tunnel *t, uint64_t *which, size_t n)
{
	if (meter_bytes_left(t->policy, &t->hold) < (int64_t)n) {
		egress_cut(t, "limit of bytes");
		return false;
	}
	*which += n;
	meter_bytes(&t->hold, (int64_t)n);
	charge(t);
	return true;
}

/* Many hosts share an address: the one that TLS names has to be the one that was allowed. What is no TLS passes, for
 * such a server reads no name in it. True while the tunnel goes on. */
static bool names_host(struct tunnel *t)
{
	char name[256];
	if (t->named || !backlog(t))
		return true;
	enum hello what = hello_name(t->to_host.p + t->to_host_at, backlog(t), name, sizeof name);
	if (what == HELLO_BAD || (what == HELLO_NAMED && strcasecmp(name, t->host))) {
		egress_cut(t, *name ? "TLS names another host" : "TLS names no host");
		return false;
	}
	t->named = what != HELLO_MORE;
	return true;
}

static void flush_host(struct tunnel *t)
{
	while (t->named && backlog(t)) {
		ssize_t n = send(t->source.fd, t->to_host.p + t->to_host_at, backlog(t), MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break; /* full, or the host has left: its end is seen when reading */
		t->to_host_at += (size_t)n;
	}
	if (!backlog(t)) {
		t->to_host_at = 0;
		buf_reset(&t->to_host);
		if (t->client_end)
			shutdown(t->source.fd, SHUT_WR);
	}
}

/* From the client, while the host takes it. */
static void pump_up(struct tunnel *t)
{
	struct conn *c = t->conn;
	for (int i = 0; c && t->conn && !t->client_end && backlog(t) < BACKLOG_HIGH; i++) {
		ssize_t n;
		if (i == READ_TURN) {
			conn_put_off(c);
			return;
		}
		if (t->get) /* one request a connection: what follows it is not passed on */
			buf_release(&c->ahead);
		size_t most = t->get ? SCRATCH : may_read(t, SCRATCH);
		if (!most || (!c->ahead.n && !c->readable))
			return;
		if (c->ahead.n) {
			n = (ssize_t)(c->ahead.n < most ? c->ahead.n : most);
			if (!count(t, &t->up, (size_t)n))
				return;
			buf_add(&t->to_host, c->ahead.p, (size_t)n);
			buf_drop(&c->ahead, (size_t)n);
			if (!names_host(t))
				return;
			flush_host(t);
			continue;
		}
		n = recv(c->source.fd, t->gw->scratch, most, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			c->readable = false;
			return;
		}
		if (n <= 0) {
			t->client_end = true;
			flush_host(t);
			if (n < 0 || t->get || t->host_end || !t->named)
				egress_cut(t, "client left");
			return;
		}
		if (t->get)
			continue;
		if (!count(t, &t->up, (size_t)n))
			return;
		buf_add(&t->to_host, t->gw->scratch, (size_t)n);
		if (!names_host(t))
			return;
		flush_host(t);
	}
}

/* From the host, while the client takes it. */
static void pump_down(struct tunnel *t)
{
	for (int i = 0; t->conn && t->up_readable && !t->host_end && conn_backlog(t->conn) < BACKLOG_HIGH; i++) {
		if (i == READ_TURN) {
			conn_put_off(t->conn);
			return;
		}
		size_t most = may_read(t, SCRATCH);
		ssize_t n = most ? recv(t->source.fd, t->gw->scratch, most, 0) : 0;
		if (!most)
			return;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			t->up_readable = false;
			return;
		}
		if (n < 0) {
			egress_cut(t, "host broke off");
			return;
		}
		if (!n) {
			t->host_end = true;
			egress_cut(t, "complete");
			return;
		}
		if (!count(t, &t->down, (size_t)n))
			return;
		conn_send(t->conn, t->gw->scratch, (size_t)n);
	}
}

static void pump(struct tunnel *t)
{
	pump_up(t);
	if (!t->over)
		pump_down(t);
}

void egress_client_ready(struct conn *c)
{
	struct tunnel *t = c->tunnel;
	if (conn_backlog(c))
		conn_flush(c);
	if (!t || !t->connected)
		return;
	pump_up(t);
	if (c->tunnel == t)
		pump_down(t);
}

/* ---- dialling ---- */

static void dial_next(struct tunnel *t);

static void on_connected(struct tunnel *t)
{
	int on = 1;
	setsockopt(t->source.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	t->connected = true;
	if (!t->get)
		conn_send(t->conn, "HTTP/1.1 200 Connection established\r\n\r\n", 39);
	else if (!count(t, &t->up, backlog(t))) /* an address carries data as well as a body does */
		return;
	flush_host(t);
	t->up_readable = true;
	pump(t);
}

static void host_ready(struct source *s, uint32_t events)
{
	struct tunnel *t = (struct tunnel *)s;
	if (t->over)
		return;
	if (!t->connected) {
		int e = 0;
		socklen_t n = sizeof e;
		if (!(events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
			return;
		getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &e, &n);
		if (e) {
			close(s->fd);
			s->fd = -1;
			dial_next(t);
		} else {
			on_connected(t);
		}
		return;
	}
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		t->up_readable = true;
	if (events & EPOLLOUT && backlog(t))
		flush_host(t);
	if (backlog(t) < BACKLOG_LOW)
		pump_up(t);
	if (!t->over)
		pump_down(t);
}

static void dial_next(struct tunnel *t)
{
	while (t->next < t->job->n) {
		struct sockaddr *a = (struct sockaddr *)&t->job->addresses[t->next++];
		socklen_t len = a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
		int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0)
			break;
		if (connect(fd, a, len) && errno != EINPROGRESS) {
			close(fd);
			continue;
		}
		t->source.fd = fd;
		if (!source_add(t->gw, &t->source, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET))
			return; /* told by EPOLLOUT */
		close(fd);
		t->source.fd = -1;
	}
	char text[340];
	snprintf(text, sizeof text, "%s:%d cannot be reached", t->host, t->port);
	refuse(t, 502, "egress.unreachable", text);
}

/* All addresses have to be public: one that is not makes the name a trap. */
static void resolved(struct resolve_job *job)
{
	struct tunnel *t = job->arg;
	t->resolving = false;
	if (t->over) {
		bury(t);
		return;
	}
	char text[340];
	if (job->n <= 0) {
		snprintf(text, sizeof text, "the name %s cannot be resolved", t->host);
		refuse(t, 502, "egress.name", text);
		return;
	}
	for (int i = 0; i < job->n; i++) {
		const struct sockaddr *a = (struct sockaddr *)&job->addresses[i];
		if (net_public(a) && !net_own(a))
			continue;
		snprintf(text, sizeof text, "%s is an address that is not public", t->host);
		refuse(t, 403, "egress.address", text);
		return;
	}
	dial_next(t);
}

/* The decision is written. */
static void decided(struct ledger_record *r)
{
	struct tunnel *t = r->arg;
	int rc = r->rc;
	t->seq = r->seq;
	ledger_record_free(r);
	if (rc) {
		meter_cancel(&t->gw->meter, &t->hold);
		t->seq = 0;
		struct conn *c = t->conn;
		struct denial d;
		deny(&d, 503, "ledger", "the connection cannot be recorded, so it is not made");
		t->conn = NULL;
		if (c) {
			c->tunnel = NULL;
			c->close_after = true;
			conn_deny(c, &d, false);
		}
		bury(t);
	} else if (t->over) {
		bury(t);
	} else if (t->job->n) {
		dial_next(t); /* mapped by the policy */
	} else {
		t->resolving = true;
		resolve_start(t->gw, t->job);
	}
}

/* ---- the request ---- */

static int check(struct tunnel *t, struct conn *c, struct denial *d)
{
	struct token *token = call_token(c, "proxy-authorization", d);
	if (!token)
		return -EPERM;
	t->token = token_get(token);
	int rc = egress_target(t, &c->in, d);
	t->named = t->get || (token->kind == TOKEN_SANDBOX && token->network == EGRESS_INTERNET);
	if (!rc)
		rc = egress_allowed(t->gw, t, d);
	if (!rc)
		rc = meter_reserve(&t->gw->meter, t->policy, token->session, token->project, NULL, &t->hold, &t->change,
				   d);
	if (rc)
		return rc;
	int64_t most = meter_bytes_left(t->policy, &t->hold);
	t->charged = t->piece = most < PIECE_FIRST ? (uint64_t)most : PIECE_FIRST;
	t->change.bytes = (int64_t)t->charged;
	return 0;
}

void egress_begin(struct conn *c)
{
	struct gw *g = c->gw;
	struct denial d;
	struct tunnel *t = xcalloc(1, sizeof *t);
	t->source = (struct source){.fd = -1, .ready = host_ready, .destroy = tunnel_destroy};
	t->gw = g;
	t->policy = policy_get(g->policy);
	t->started_ms = clock_mono_ms();
	list_init(&t->source.dead);
	if (check(t, c, &d)) {
		call_denied(c, t->token, &d, false);
		tunnel_destroy(&t->source);
		return;
	}
	const struct host_rule *map = policy_map(t->policy, t->host, t->port);
	t->job = xcalloc(1, sizeof *t->job);
	snprintf(t->job->host, sizeof t->job->host, "%s", t->host);
	t->job->port = t->port;
	t->job->done = resolved;
	t->job->arg = t;
	if (map)
		t->job->n = net_parse(map->to, &t->job->addresses[0]) > 0;
	list_append(&g->tunnels, &t->link);
	t->conn = c;
	c->tunnel = t;
	c->state = CONN_TUNNEL;
	struct ledger_record *r = ledger_record_new("decision");
	char where[300];
	snprintf(where, sizeof where, "%s:%d", t->host, t->port);
	record_who(r, t->token);
	ledger_text(r, "method", t->get ? "GET" : "CONNECT");
	ledger_text(r, "target", where);
	ledger_text(r, "verdict", "allowed");
	ledger_int(r, "reserved_bytes", (int64_t)t->charged);
	r->open = true;
	r->arg = t;
	spend_text(&t->change, &r->aside);
	r->done = decided;
	record_now(g, r);
}
