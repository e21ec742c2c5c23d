/* The loop: epoll, curl's timer, a sweep each second, records that the ledger has written. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "gw.h"

#define EVENTS	 256
#define SWEEP_MS 1000

int source_add(struct gw *g, struct source *s, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = s};
	list_init(&s->dead);
	return epoll_ctl(g->epoll, EPOLL_CTL_ADD, s->fd, &e) ? -errno : 0;
}

/* An event of the same round may still name it, so it is only marked; closing takes it out of the epoll set. */
void source_free(struct gw *g, struct source *s)
{
	s->ready = NULL;
	fd_close(&s->fd);
	if (list_empty(&s->dead))
		list_append(&g->dead, &s->dead);
}

void gw_bury(struct gw *g)
{
	while (!list_empty(&g->dead)) {
		struct source *s = list_entry(g->dead.next, struct source, dead);
		list_remove(&s->dead);
		s->destroy(s);
	}
}

int gw_loop(struct gw *g, struct err *err)
{
	struct epoll_event events[EVENTS];
	int64_t swept = clock_mono_ms();
	while (!g->stopping || !list_empty(&g->calls)) {
		int64_t now = clock_mono_ms(), wait = swept + SWEEP_MS - now;
		if (g->curl_at >= 0 && g->curl_at - now < wait)
			wait = g->curl_at - now;
		int n = epoll_wait(g->epoll, events, EVENTS, wait > 0 ? (int)wait : 0);
		if (n < 0 && errno != EINTR)
			return err_sys(err, errno, "epoll_wait");
		for (int i = 0; i < n; i++) {
			struct source *s = events[i].data.ptr;
			if (s->ready)
				s->ready(s, events[i].events);
		}
		now = clock_mono_ms();
		if (g->curl_at >= 0 && g->curl_at <= now)
			forward_curl_timer(g);
		if (now - swept >= SWEEP_MS) {
			conn_sweep(g, now);
			swept = now;
		}
		gw_bury(g);
	}
	return 0;
}
