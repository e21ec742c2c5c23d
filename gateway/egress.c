/* The proxy: CONNECT, and plain GET of http:// URLs, to hosts that the session's network setting allows. Names only,
 * resolved once, every address checked, the checked one dialled. What is allowed and how many bytes passed is in the
 * ledger. Must never connect to what is not public, but for the addresses that the policy maps a name to. */
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
#include "backend/base/mem.h"
#include "gw.h"
#include "hello.h"
#include "net.h"
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
	int64_t started_ms;
};

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
	t->change.bytes = (int64_t)(t->up + t->down);
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
	if (!t->resolving && t->seq)
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

/* True while the tunnel goes on. */
static bool count(struct tunnel *t, uint64_t *which, size_t n)
{
	*which += n;
	if (!meter_bytes(&t->gw->meter, t->policy, &t->hold, (int64_t)n))
		return true;
	egress_cut(t, "limit of bytes");
	return false;
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
		const char *from = t->gw->scratch;
		if (t->get) /* one request a connection: what follows it is not passed on */
			buf_release(&c->ahead);
		if (c->ahead.n) {
			n = (ssize_t)c->ahead.n;
			buf_add(&t->to_host, c->ahead.p, c->ahead.n);
			buf_release(&c->ahead);
			if (!count(t, &t->up, (size_t)n) || !names_host(t))
				return;
			flush_host(t);
			continue;
		}
		if (!c->readable)
			return;
		n = recv(c->source.fd, t->gw->scratch, SCRATCH, 0);
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
		buf_add(&t->to_host, from, (size_t)n);
		if (!count(t, &t->up, (size_t)n) || !names_host(t))
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
		ssize_t n = recv(t->source.fd, t->gw->scratch, SCRATCH, 0);
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
		conn_send(t->conn, t->gw->scratch, (size_t)n);
		if (!count(t, &t->down, (size_t)n))
			return;
	}
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
	if (t->conn)
		pump_up(t);
	if (!t->over)
		pump_down(t);
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

/* ---- may it? ---- */

static bool of_machine(const struct gw *g, const char *host, int port, int usual)
{
	char with[300];
	snprintf(with, sizeof with, "%s:%d", host, port);
	return words_have(&g->registries, host, strlen(host)) ? port == usual
							      : words_have(&g->registries, with, strlen(with));
}

static int allowed(const struct gw *g, const struct tunnel *t, struct denial *d)
{
	const struct policy *p = t->policy;
	bool mapped = policy_map(p, t->host, t->port) != NULL;
	int usual = t->get ? 80 : 443;
	if (net_is_literal(t->host) && !mapped)
		return deny(d, 403, "egress.literal", "hosts are named, not given by address");
	if (t->token->kind == TOKEN_ENGINE)
		return policy_host(p, t->host, t->port, usual, true)
			       ? 0
			       : deny(d, 403, "egress.vendor", "%.100s is no host of the model vendor's client",
				      t->host);
	if (t->token->network == EGRESS_NONE)
		return deny(d, 403, "egress.none", "this session's network is none; settings/network changes it");
	if (policy_host(p, t->host, t->port, usual, false) || of_machine(g, t->host, t->port, usual))
		return 0;
	if (t->token->network == EGRESS_REGISTRIES)
		return deny(d, 403, "egress.registries",
			    "%.100s:%d is no package host of this machine or of the policy", t->host, t->port);
	if (t->port != usual && !mapped)
		return deny(d, 403, "egress.port", "only the ports 443 and, for plain http, 80 are reached");
	return 0;
}

void egress_recheck(struct gw *g, const struct token *token)
{
	struct denial d;
	list_each_safe (i, &g->tunnels) {
		struct tunnel *t = egress_of(i);
		if (t->token == token && !t->over && allowed(g, t, &d))
			egress_cut(t, "network changed");
	}
}

/* Fields of a plain request that pass; the request is made anew from them. */
static void build_get(struct tunnel *t, const struct http_reader *r, const char *path, size_t path_n,
		      const char *authority)
{
	static const char *const passes[] = {"accept",	      "user-agent", "range",	     "if-modified-since",
					     "if-none-match", "if-range",   "cache-control", "accept-encoding"};
	buf_addf(&t->to_host, "%.*s %s%.*s HTTP/1.1\r\nHost: %s\r\n", (int)r->method.n, http_span(r, r->method),
		 path_n ? "" : "/", (int)path_n, path, authority);
	for (size_t i = 0; i < ARRAY_LEN(passes); i++) {
		size_t n;
		const char *v = http_field(r, passes[i], &n);
		if (v)
			buf_addf(&t->to_host, "%s: %.*s\r\n", passes[i], (int)n, v);
	}
	buf_adds(&t->to_host, "Connection: close\r\n\r\n");
}

/* host and port of the target, and for a plain GET the request to send. */
static int target(struct tunnel *t, const struct http_reader *r, struct denial *d)
{
	const char *text = http_span(r, r->target);
	size_t n = r->target.n;
	t->get = !http_is(r, r->method, "CONNECT");
	if (t->get && !http_is(r, r->method, "GET") && !http_is(r, r->method, "HEAD"))
		return deny(d, 405, "egress.method", "plain http is for GET and HEAD; use https for others");
	if (t->get && r->body.n)
		return deny(d, 400, "egress.body", "GET with a body is not passed on");
	if (t->get) {
		text += 7;
		n -= 7;
	}
	size_t host_n = 0;
	while (host_n < n && !strchr("/?", text[host_n]))
		host_n++;
	CLEAN_FREE char *authority = xstrndup(text, host_n);
	if (net_host_port(authority, 80, t->host, sizeof t->host, &t->port))
		return deny(d, 400, "egress.target", "the target is no HOST:PORT");
	char host[300];
	if (t->get && (!http_field_copy(r, "host", host, sizeof host) || strcasecmp(host, authority)))
		return deny(d, 400, "egress.host", "Host and the URL are different");
	if (t->get && host_n < n && text[host_n] == '?')
		return deny(d, 400, "egress.target", "the URL has no path");
	if (t->get)
		build_get(t, r, text + host_n, n - host_n, authority);
	return 0;
}

static int check(struct tunnel *t, struct conn *c, struct denial *d)
{
	struct token *token = call_token(c, "proxy-authorization", d);
	if (!token)
		return -EPERM;
	t->token = token_get(token);
	int rc = target(t, &c->in, d);
	t->named = t->get || (token->kind == TOKEN_SANDBOX && token->network == EGRESS_INTERNET);
	if (!rc)
		rc = allowed(t->gw, t, d);
	if (!rc)
		rc = meter_reserve(&t->gw->meter, t->policy, token->session, token->project, NULL, &t->hold, &t->change,
				   d);
	return rc;
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
	r->open = true;
	r->arg = t;
	spend_text(&t->change, &r->aside);
	r->done = decided;
	record_now(g, r);
}
