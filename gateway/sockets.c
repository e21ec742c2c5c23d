/* The sockets of the connections to providers: curl says what it waits for on each, an epoll set of their own watches
 * them. Must never watch a descriptor that was closed and is something else's by now. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "backend/base/mem.h"
#include "gw.h"

#define UPSTREAM 128 /* events in one go */

struct curl_socket {
	struct source source;
	struct gw *gw;
	curl_socket_t s;  /* curl's own; source.fd is -1 once it is taken out */
	uint32_t watched; /* events in the epoll set; 0: it is not in it */
	bool kept;	  /* it is in gw->kept until curl closes it */
	bool rests;	  /* no request is on it */
};

static void watch(struct curl_socket *k, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = &k->source};
	if (k->watched != events)
		epoll_ctl(k->gw->upstream.fd,
			  !events      ? EPOLL_CTL_DEL
			  : k->watched ? EPOLL_CTL_MOD
				       : EPOLL_CTL_ADD,
			  k->s, &e);
	k->watched = events;
}

static void socket_ready(struct source *s, uint32_t events)
{
	struct curl_socket *k = (struct curl_socket *)s;
	int running, bits = (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
			    (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR | CURL_CSELECT_IN : 0);
	struct gw *g = k->gw;
	if (k->rests) { /* the provider closes it: curl finds that out when it wants to use it again */
		watch(k, 0);
		return;
	}
	curl_multi_socket_action(g->multi, k->s, bits, &running);
	forward_finished(g);
	conn_flush_all(g);
}

/* Those that are ready now, once each. */
static void upstream_ready(struct source *s, uint32_t events)
{
	struct epoll_event e[UPSTREAM];
	int n = epoll_wait(s->fd, e, UPSTREAM, 0);
	for (int i = 0; i < n; i++) {
		struct source *one = e[i].data.ptr;
		if (one->ready)
			one->ready(one, e[i].events);
	}
}

static void upstream_destroy(struct source *s)
{
}

static void socket_destroy(struct source *s)
{
	free(s);
}

/* Whether the socket is that of a connection which outlives the request: only such a one is closed by on_close(). */
static bool outlives(CURL *easy, curl_socket_t s)
{
	curl_socket_t last;
	return !curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &last) && last == s;
}

static struct curl_socket *kept(struct gw *g, curl_socket_t s)
{
	return s < g->n_kept ? g->kept[s] : NULL;
}

static void keep(struct gw *g, struct curl_socket *k)
{
	if (k->s >= g->n_kept) {
		int n = k->s + 64;
		g->kept = xrealloc(g->kept, (size_t)n * sizeof(struct curl_socket *));
		memset(g->kept + g->n_kept, 0, (size_t)(n - g->n_kept) * sizeof(struct curl_socket *));
		g->n_kept = n;
	}
	g->kept[k->s] = k;
	k->kept = true;
}

/* A connection that waits for its next request stays in the epoll set: else each request would cost two calls. */
static int on_socket(CURL *easy, curl_socket_t s, int what, void *arg, void *own)
{
	struct gw *g = arg;
	struct curl_socket *k = own;
	if (what == CURL_POLL_REMOVE) {
		if (!k)
			return 0;
		curl_multi_assign(g->multi, s, NULL);
		if (!k->kept && outlives(easy, s))
			keep(g, k);
		k->rests = true;
		if (!k->kept) {
			watch(k, 0);
			k->source.fd = -1; /* it is curl's to close */
			source_free(g, &k->source);
		}
		return 0;
	}
	if (!k && !(k = kept(g, s))) {
		k = xcalloc(1, sizeof *k);
		*k = (struct curl_socket){
			.source = {.fd = s, .ready = socket_ready, .destroy = socket_destroy}, .gw = g, .s = s};
		list_init(&k->source.dead);
	}
	if (!own)
		curl_multi_assign(g->multi, s, k);
	k->rests = false;
	watch(k, (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) | (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0));
	return 0;
}

static int on_close(void *arg, curl_socket_t s)
{
	struct gw *g = arg;
	struct curl_socket *k = kept(g, s);
	if (k) {
		g->kept[s] = NULL;
		k->source.fd = -1;
		source_free(g, &k->source);
	}
	return close(s);
}

int sockets_init(struct gw *g, struct err *err)
{
	g->upstream = (struct source){
		.fd = epoll_create1(EPOLL_CLOEXEC), .ready = upstream_ready, .destroy = upstream_destroy};
	if (g->upstream.fd < 0 || source_add(g, &g->upstream, EPOLLIN))
		return err_sys(err, errno, "epoll");
	curl_multi_setopt(g->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(g->multi, CURLMOPT_SOCKETDATA, g);
	return 0;
}

void sockets_release(struct gw *g)
{
	gw_bury(g);
	free(g->kept);
	close(g->upstream.fd);
}

void sockets_keep(struct gw *g, CURL *easy)
{
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, g);
}
