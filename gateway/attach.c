/* The daemon's open line: it is told of changes so that it need not ask again and again, and its end is seen here. A
 * gateway that nobody needs any more, because the daemon has died and no sandbox is up, ends by itself. Loop thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "gw.h"

#define ALONE_MS 10000 /* for the next daemon to come */

struct attached {
	struct source source;
	struct gw *gw;
	struct list link;
	bool armed;    /* it wants to be told */
	uint64_t told; /* gw.changes as they were then */
};

static void attached_destroy(struct source *s)
{
	free(s);
}

static void detach(struct attached *a)
{
	struct gw *g = a->gw;
	list_remove(&a->link);
	if (list_empty(&g->attached))
		g->alone_ms = clock_mono_ms();
	source_free(g, &a->source);
}

static void tell(struct attached *a)
{
	if (!a->armed || a->told == a->gw->changes)
		return;
	a->armed = false;
	a->told = a->gw->changes;
	send(a->source.fd, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* full: it has not read the last one either */
}

static void attached_ready(struct source *s, uint32_t events)
{
	struct attached *a = (struct attached *)s;
	char rest[64];
	ssize_t n;
	while ((n = recv(s->fd, rest, sizeof rest, MSG_DONTWAIT)) > 0)
		a->armed = true;
	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		detach(a);
		return;
	}
	tell(a);
}

void attach_new(struct gw *g, int fd)
{
	struct attached *a = xcalloc(1, sizeof *a);
	a->source = (struct source){.fd = fd, .ready = attached_ready, .destroy = attached_destroy};
	a->gw = g;
	a->told = g->changes - 1; /* whatever happened before it came counts as a change */
	list_append(&g->attached, &a->link);
	g->alone_ms = 0;
	if (source_add(g, &a->source, EPOLLIN | EPOLLRDHUP) || send(fd, "0 0\n", 4, MSG_NOSIGNAL) != 4)
		detach(a);
}

void attach_tell(struct gw *g)
{
	g->changes++;
	list_each_safe (i, &g->attached)
		tell(list_entry(i, struct attached, link));
}

static bool lives(const struct token *t)
{
	if (t->kind != TOKEN_SANDBOX)
		return false;
	if (!t->life)
		return true; /* for all that is known */
	CLEAN_FD int fd = unix_connect_now(t->life, NULL);
	return fd >= 0 || fd == -EAGAIN;
}

bool attach_over(struct gw *g, int64_t now)
{
	if (!g->alone_ms || now - g->alone_ms < ALONE_MS || !list_empty(&g->attached))
		return false;
	g->alone_ms = now; /* the next look is as far away */
	list_each (i, &g->tokens.all)
		if (lives(list_entry(i, struct token, link)))
			return false;
	log_info("the daemon is gone and no sandbox is up: the gateway ends");
	return true;
}

void attach_release(struct gw *g)
{
	list_each_safe (i, &g->attached)
		detach(list_entry(i, struct attached, link));
}
