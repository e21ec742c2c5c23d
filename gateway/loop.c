/* The loop: epoll, curl's timer, a sweep each second, records that the ledger has written. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "gw.h"

#define EVENTS	 256
#define TURN	 16 /* events of clients after which the providers' sockets are looked at again */
#define SWEEP_MS 1000
#define LATER_MS 3
#define HERE	 3    /* records that somebody waits for, which are written by the loop itself */
#define CROWD	 32   /* and those that the ledger's thread gets at once */
#define DRAIN_MS 3000 /* for the ledger to take the last outcomes */

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

static struct ledger_record *take(struct gw *g)
{
	struct ledger_record *list = g->later;
	g->later = NULL;
	g->n_now = 0;
	return list;
}

void record_flush(struct gw *g)
{
	struct ledger_record *list = take(g);
	for (struct ledger_record *r = list; r; r = (struct ledger_record *)r->node.next)
		g->n_handed++;
	if (list)
		ledger_append(g->ledger, list);
}

/* A few records are written here: to wake a thread and be woken by it takes longer than to write them. true: they are.
 */
static bool record_turn(struct gw *g)
{
	if (!g->n_now)
		return false;
	if (g->n_handed || g->n_now > HERE || !ledger_write(g->ledger, g->later)) {
		record_flush(g);
		return false;
	}
	for (struct ledger_record *r = take(g), *next; r; r = next) {
		next = (struct ledger_record *)r->node.next;
		r->done(r);
	}
	return true;
}

void record_later(struct gw *g, struct ledger_record *r)
{
	r->node.next = NULL;
	if (!g->later) {
		g->later_tail = &g->later;
		g->later_ms = clock_mono_ms() + LATER_MS;
	}
	*g->later_tail = r;
	g->later_tail = (struct ledger_record **)&r->node.next;
}

void record_now(struct gw *g, struct ledger_record *r)
{
	record_later(g, r);
	if (++g->n_now >= CROWD) /* the thread works while the others of this turn are read */
		record_flush(g);
}

int gw_loop(struct gw *g, bool drain, struct err *err)
{
	struct epoll_event events[EVENTS];
	int64_t swept = clock_mono_ms();
	int64_t until = swept + DRAIN_MS;
	while (drain ? (!list_empty(&g->calls) || !list_empty(&g->tunnels) || !list_empty(&g->pulls)) &&
			       clock_mono_ms() < until
		     : !g->stopping) {
		bool written = record_turn(g);
		int64_t now = clock_mono_ms(), wait = drain ? 50 : swept + SWEEP_MS - now;
		if (g->curl_at >= 0 && g->curl_at <= now)
			forward_curl_timer(g);
		if (written) /* after what it let go has gone */
			attach_tell(g);
		if (g->curl_at >= 0 && g->curl_at - now < wait)
			wait = g->curl_at - now;
		if (g->later && g->later_ms - now < wait)
			wait = g->later_ms - now;
		if (!list_empty(&g->again) || g->n_now)
			wait = 0;
		int n = epoll_wait(g->epoll, events, EVENTS, wait > 0 ? (int)wait : 0);
		if (n < 0 && errno != EINTR)
			return err_sys(err, errno, "epoll_wait");
		/* What streams already is passed on before anything new is begun: a crowd of new requests does not
		 * hold it up */
		for (int i = 0; i < n; i++) {
			struct source *s = events[i].data.ptr;
			if (i % TURN == 0)
				g->upstream.ready(&g->upstream, EPOLLIN);
			if (s->ready && s != &g->upstream)
				s->ready(s, events[i].events);
		}
		conn_read_again(g);
		now = clock_mono_ms();
		if (g->later && !g->n_now && g->later_ms <= now)
			record_flush(g);
		if (now - swept >= SWEEP_MS) {
			conn_sweep(g, now);
			forward_sweep(g, now);
			denials_sweep(g, now);
			swept = now;
			g->stopping |= attach_over(g, now);
		}
		gw_bury(g);
	}
	return 0;
}
