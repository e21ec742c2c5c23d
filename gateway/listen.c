/* Listeners and the connections of clients: reads requests, sends answers, times out what is slow. Level of trust:
 * none. A connection must never hold up another, nor grow without bound. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "gw.h"
#include "net.h"

#define SHARE 4 /* one socket has a quarter of all connections at most */
/* Bytes of request bodies at once: four of the largest from one socket, so that no sandbox takes the memory of all. */
#define BODIES_SOCKET ((size_t)128 << 20)
#define BODIES_ALL    ((size_t)512 << 20)
#define TOGETHER      (16 << 10) /* bytes of an answer that wait for what comes in the same go */
#define IDLE_MS	      (120 * 1000)
#define HEAD_MS	      (10 * 1000) /* from the first byte of a request to the end of its head */
#define BODY_MS	      (60 * 1000) /* and to the end of its body */
#define LINGER_MS     2000	  /* a refused client that is still sending has this long to read why */
#define STALL_MS      (60 * 1000) /* a client that takes nothing */

/* ---- connections ---- */

static void conn_destroy(struct source *s)
{
	struct conn *c = (struct conn *)s;
	http_release(&c->in);
	buf_release(&c->ahead);
	buf_release(&c->out);
	free(c);
}

static void count_body(struct conn *c, size_t n)
{
	c->gw->bodies += n - c->counted;
	if (c->from)
		c->from->bodies += n - c->counted;
	c->counted = n;
}

void conn_body_sent(struct conn *c)
{
	count_body(c, 0);
}

static void conn_free(struct conn *c)
{
	struct call *call = c->call;
	struct tunnel *t = c->tunnel;
	struct pull *p = c->pull;
	if (!c->source.ready)
		return;
	c->call = NULL;
	c->tunnel = NULL;
	c->pull = NULL;
	c->gone = true;
	count_body(c, 0);
	list_remove(&c->link);
	list_remove(&c->again);
	list_remove(&c->unsent);
	c->gw->n_conns--;
	if (c->from)
		c->from->connections--;
	source_free(c->gw, &c->source);
	if (call)
		forward_client_gone(call);
	if (t)
		egress_cut(t, "client left");
	if (p)
		pull_cut(p);
}

void conn_abort(struct conn *c)
{
	c->call = NULL;
	c->tunnel = NULL;
	conn_flush(c);
	if (c->source.ready)
		conn_free(c);
}

size_t conn_backlog(const struct conn *c)
{
	return c->out.n - c->out_at;
}

/* Bytes go out at once where they can; what is left waits for the descriptor. */
void conn_flush(struct conn *c)
{
	list_remove(&c->unsent);
	while (!c->gone && c->out_at < c->out.n) {
		ssize_t n = send(c->source.fd, c->out.p + c->out_at, c->out.n - c->out_at, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n < 0) {
			c->gone = true; /* told to the loop by EPOLLHUP or EPOLLERR */
			break;
		}
		c->out_at += (size_t)n;
		c->progress_ms = clock_mono_ms();
	}
	if (c->out_at == c->out.n) {
		c->out_at = 0;
		if (c->out.cap > BACKLOG_HIGH)
			buf_release(&c->out);
		buf_reset(&c->out);
	} else if (c->out_at > BACKLOG_LOW) {
		buf_drop(&c->out, c->out_at);
		c->out_at = 0;
	}
}

static void add_bytes(struct conn *c, const void *p, size_t n)
{
	if (!conn_backlog(c))
		c->progress_ms = clock_mono_ms();
	buf_add(&c->out, p, n);
}

void conn_send(struct conn *c, const void *p, size_t n)
{
	if (c->gone)
		return;
	add_bytes(c, p, n);
	conn_flush(c);
}

void conn_add(struct conn *c, const void *p, size_t n)
{
	if (c->gone)
		return;
	add_bytes(c, p, n);
	if (conn_backlog(c) > TOGETHER)
		conn_flush(c);
	else if (list_empty(&c->unsent))
		list_append(&c->gw->unsent, &c->unsent);
}

void conn_flush_all(struct gw *g)
{
	while (!list_empty(&g->unsent))
		conn_flush(list_entry(g->unsent.next, struct conn, unsent));
}

void conn_deny(struct conn *c, const struct denial *d, bool anthropic)
{
	CLEAN_BUF struct buf body = BUF_INIT;
	CLEAN_BUF struct buf b = BUF_INIT;
	denial_json(&body, d, anthropic);
	if (c->in.stage == HTTP_REFUSED)
		c->close_after = true;
	buf_addf(&b,
		 "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nx-berthfs-rule: %s\r\n",
		 d->status, http_reason(d->status), body.n, d->rule);
	/* Asking again changes nothing, but for a rate that is over soon and failures on our side */
	bool firm = !strcmp(d->rule, "provider.key") || !strcmp(d->rule, "provider.redirect") ||
		    !strcmp(d->rule, "provider.encoding");
	bool retry = (d->status >= 500 && !firm) || (d->retry_after > 0 && d->retry_after <= 120);
	buf_addf(&b, "x-should-retry: %s\r\n", retry ? "true" : "false");
	if (d->retry_after)
		buf_addf(&b, "Retry-After: %d\r\n", d->retry_after);
	if (d->status == 426)
		buf_adds(&b, "Upgrade: HTTP/1.1\r\n");
	if (d->status == 407)
		buf_adds(&b, "Proxy-Authenticate: Basic realm=\"berthfs\"\r\n");
	buf_adds(&b, c->close_after || !c->in.keep_alive ? "Connection: close\r\n\r\n" : "\r\n");
	if (!http_head_done(&c->in) || !http_is(&c->in, c->in.method, "HEAD"))
		buf_add(&b, body.p, body.n);
	conn_send(c, b.p, b.n);
	conn_done(c);
}

void conn_put_off(struct conn *c)
{
	if (list_empty(&c->again))
		list_append(&c->gw->again, &c->again);
}

/* Drops what still comes. */
static void linger(struct conn *c)
{
	ssize_t n = 1;
	for (int i = 0; i < READ_TURN && n > 0; i++)
		n = recv(c->source.fd, c->gw->scratch, SCRATCH, MSG_DONTWAIT);
	if (n > 0 || (n < 0 && errno == EINTR)) {
		conn_put_off(c);
	} else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
		conn_free(c);
	}
}

/* The answer has gone out. Bytes that come after the close would turn it into a reset, which could take the answer with
 * it: of a request that has not come as a whole they are read for a while. */
static void conn_close(struct conn *c)
{
	shutdown(c->source.fd, SHUT_WR);
	if (c->gone || (c->in.stage == HTTP_DONE && recv(c->source.fd, c->gw->scratch, SCRATCH, MSG_DONTWAIT) <= 0)) {
		conn_free(c);
		return;
	}
	c->state = CONN_LINGERING;
	c->since_ms = clock_mono_ms();
	http_release(&c->in);
	buf_release(&c->ahead);
	linger(c);
}

void conn_done(struct conn *c)
{
	c->call = NULL;
	c->pull = NULL;
	count_body(c, 0);
	if (c->close_after || !c->in.keep_alive || c->gone) {
		c->state = CONN_CLOSING;
		if (!conn_backlog(c) || c->gone)
			conn_close(c);
		return;
	}
	c->state = CONN_READING;
	c->expect_sent = false;
	c->since_ms = clock_mono_ms();
	http_next(&c->in);
}

/* Whether there is room for what has come of the request's body. One that is refused can come again. */
static bool body_fits(struct conn *c)
{
	struct denial d;
	count_body(c, c->in.body.n);
	if (!c->from || (c->from->bodies <= BODIES_SOCKET && c->gw->bodies <= BODIES_ALL))
		return true;
	deny(&d, 503, "busy", "too many large requests at once");
	d.retry_after = 1;
	c->close_after = true;
	call_denied(c, NULL, &d, false);
	return false;
}

/* Bytes into the reader; what belongs to the next request waits. */
static void feed(struct conn *c, const char *p, size_t n)
{
	size_t used;
	if (!http_started(&c->in))
		c->since_ms = clock_mono_ms();
	int rc = http_feed(&c->in, p, n, &used);
	if (rc) {
		struct denial d;
		deny(&d, c->in.status, "http", "%s", c->in.why);
		call_denied(c, NULL, &d, false);
		return;
	}
	if (!body_fits(c))
		return;
	if (used < n) {
		CLEAN_BUF struct buf rest = BUF_INIT;
		buf_add(&rest, p + used, n - used);
		buf_add(&rest, buf_str(&c->ahead), c->ahead.n);
		buf_release(&c->ahead);
		c->ahead = rest;
		rest = BUF_INIT;
	}
	if (c->in.stage == HTTP_DONE) {
		c->state = CONN_WAITING;
		call_begin(c);
	} else if (c->in.expect && http_head_done(&c->in) && !c->expect_sent) {
		c->expect_sent = true;
		conn_send(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	}
}

/* Reads while a request is being read; with edge-triggered events that has to go on until nothing is left, in turns
 * with others. A client that does not take its answers is not read: it could ask without end. */
void conn_read(struct conn *c)
{
	for (int i = 0; c->source.ready && c->state == CONN_READING && conn_backlog(c) < BACKLOG_LOW; i++) {
		if (i == READ_TURN) {
			conn_put_off(c);
			return;
		}
		if (c->ahead.n) {
			CLEAN_BUF struct buf b = c->ahead;
			c->ahead = BUF_INIT;
			feed(c, b.p, b.n);
			continue;
		}
		if (!c->readable)
			return;
		ssize_t n = recv(c->source.fd, c->gw->scratch, SCRATCH, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			c->readable = false;
			return;
		}
		if (n <= 0) {
			conn_free(c);
			return;
		}
		feed(c, c->gw->scratch, (size_t)n);
	}
}

void conn_read_again(struct gw *g)
{
	struct list now;
	list_init(&now);
	while (!list_empty(&g->again)) {
		struct list *first = g->again.next;
		list_remove(first);
		list_append(&now, first);
	}
	while (!list_empty(&now)) {
		struct conn *c = list_entry(now.next, struct conn, again);
		list_remove(&c->again);
		if (c->state == CONN_LINGERING)
			linger(c);
		else if (c->state == CONN_TUNNEL)
			egress_client_ready(c);
		else
			conn_read(c);
	}
}

static void conn_ready(struct source *s, uint32_t events)
{
	struct conn *c = (struct conn *)s;
	if (events & EPOLLIN)
		c->readable = true;
	bool left = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
	if (left)
		c->readable = true; /* its end can be read */
	if (c->state == CONN_TUNNEL) {
		egress_client_ready(c);
		return;
	}
	if (c->state == CONN_LINGERING) {
		linger(c);
		return;
	}
	if (left && c->state != CONN_READING) {
		conn_free(c); /* it has left: whatever runs for it is stopped */
		return;
	}
	if (events & EPOLLOUT && conn_backlog(c)) {
		conn_flush(c);
		if (c->state == CONN_CLOSING && (!conn_backlog(c) || c->gone)) {
			conn_close(c);
			return;
		}
		if (c->call && conn_backlog(c) < BACKLOG_LOW)
			forward_resume(c->call);
	}
	conn_read(c);
	if (left && c->source.ready && (c->state == CONN_WAITING || c->state == CONN_ANSWERING))
		conn_free(c); /* it asked and left at once */
}

static void conn_new(struct listener *l, int fd)
{
	struct gw *g = l->gw;
	struct conn *c = xcalloc(1, sizeof *c);
	int on = 1;
	if (!l->path)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	c->source = (struct source){.fd = fd, .ready = conn_ready, .destroy = conn_destroy};
	c->gw = g;
	c->from = l;
	list_init(&c->again);
	list_init(&c->unsent);
	c->since_ms = c->progress_ms = clock_mono_ms();
	http_init(&c->in, (size_t)g->policy->body_max, HTTP_ALLOW_CONNECT | HTTP_ALLOW_ABSOLUTE);
	list_append(&g->conns, &c->link);
	g->n_conns++;
	l->connections++;
	if (source_add(g, &c->source, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET))
		conn_free(c);
}

/* Connections that are too slow, in one pass. */
void conn_sweep(struct gw *g, int64_t now)
{
	list_each_safe (i, &g->conns) {
		struct conn *c = list_entry(i, struct conn, link);
		int64_t age = now - c->since_ms;
		bool reading = c->state == CONN_READING;
		bool slow = reading && http_started(&c->in) && age > (http_head_done(&c->in) ? BODY_MS : HEAD_MS);
		if (slow) {
			struct denial d;
			deny(&d, 408, "slow", "the request did not come in time");
			c->close_after = true;
			call_denied(c, NULL, &d, false);
		} else if (c->gone || (c->state == CONN_LINGERING && age > LINGER_MS) || (reading && age > IDLE_MS) ||
			   (conn_backlog(c) && now - c->progress_ms > STALL_MS)) {
			conn_free(c);
		}
	}
}

/* ---- listeners ---- */

static void listener_destroy(struct source *s)
{
	struct listener *l = (struct listener *)s;
	free(l->path);
	token_put(l->token);
	free(l);
}

static void accept_ready(struct source *s, uint32_t events)
{
	struct listener *l = (struct listener *)s;
	for (int i = 0; i < 64; i++) {
		int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return; /* none left, or no descriptor: the sweep frees some */
		if (l->kind == LISTEN_CONTROL)
			control_accept(l->gw, fd);
		else if (l->gw->n_conns >= l->gw->most_conns || l->connections >= l->gw->most_conns / SHARE)
			close(fd);
		else
			conn_new(l, fd);
	}
}

static int listener_add(struct gw *g, int fd, enum listen_kind kind, const char *path, struct token *token,
			struct listener **out, struct err *err)
{
	struct listener *l = xcalloc(1, sizeof *l);
	l->source = (struct source){.fd = fd, .ready = accept_ready, .destroy = listener_destroy};
	l->gw = g;
	l->kind = kind;
	l->path = xstrdup(path);
	l->token = token ? token_get(token) : NULL;
	list_append(&g->listeners, &l->link);
	int rc = fd_nonblock(fd);
	if (!rc)
		rc = source_add(g, &l->source, EPOLLIN);
	if (rc) {
		list_remove(&l->link);
		source_free(g, &l->source);
		return err_sys(err, -rc, "cannot listen on %s", path ? path : "the address");
	}
	if (out)
		*out = l;
	return 0;
}

int listen_unix(struct gw *g, enum listen_kind kind, const char *path, struct token *token, struct listener **out,
		struct err *err)
{
	int fd = unix_listen(path, 0600, err);
	if (fd < 0)
		return fd;
	listen(fd, 1024);
	return listener_add(g, fd, kind, path, token, out, err);
}

static int listen_tcp(struct gw *g, const char *address, struct err *err)
{
	struct sockaddr_storage sa;
	int n = net_parse(address, &sa), on = 1;
	if (n < 0)
		return err_set(err, EINVAL, "gateway.listen is ADDRESS:PORT, not %s", address);
	int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
	    bind(fd, (struct sockaddr *)&sa, (socklen_t)n) || listen(fd, 1024)) {
		int rc = err_sys(err, errno, "cannot listen on %s", address);
		fd_close(&fd);
		return rc;
	}
	return listener_add(g, fd, LISTEN_DAEMON, NULL, NULL, NULL, err);
}

int listen_set(struct gw *g, const char *address, struct err *err)
{
	if (!address == !g->listen && (!address || !strcmp(address, g->listen)))
		return 0;
	list_each_safe (i, &g->listeners) {
		struct listener *l = list_entry(i, struct listener, link);
		if (!l->path)
			listener_close(g, l);
	}
	free(g->listen);
	g->listen = NULL;
	int rc = address ? listen_tcp(g, address, err) : 0;
	if (!rc)
		g->listen = xstrdup(address);
	return rc;
}

void listener_close(struct gw *g, struct listener *l)
{
	list_each_safe (i, &g->conns) {
		struct conn *c = list_entry(i, struct conn, link);
		if (c->from == l) {
			conn_free(c);
			c->from = NULL;
		}
	}
	denials_end(l);
	if (l->path)
		unlink(l->path);
	list_remove(&l->link);
	source_free(g, &l->source);
}
