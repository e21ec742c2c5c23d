/* Streams of a mux: relays each descriptor to frames and back, with credit and half-close. Runs on the mux's thread;
 * must never block, and never trusts the peer to keep within its credit. */
#include "mux_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"

static struct mux_stream **slot(struct mux *m, uint32_t id)
{
	return &m->buckets[(id >> 1) % MUX_BUCKETS];
}

struct mux_stream *mux_find(struct mux *m, uint32_t id)
{
	struct mux_stream *s = *slot(m, id);
	while (s && s->id != id)
		s = s->next;
	return s;
}

static size_t pending(const struct mux_stream *s)
{
	return s->out.n - s->out_at;
}

static uint32_t whole_credit(const struct mux_stream *s)
{
	return s->bulk ? MUX_GUEST_CREDIT : MUX_CREDIT;
}

static bool may_collect(const struct mux *m, const struct mux_stream *s)
{
	return m->full < (s->bulk ? 1 : 2);
}

/* A descriptor that nothing is wanted of leaves the epoll set: a hang-up would be reported again and again. */
static void interest(struct mux *m, struct mux_stream *s)
{
	uint32_t want = 0;
	if (!s->eof && !s->closing && s->credit && may_collect(m, s))
		want |= EPOLLIN;
	if (pending(s))
		want |= EPOLLOUT;
	mux_watch(m, s->fd, &s->events, want, s->id);
}

void mux_interest_all(struct mux *m)
{
	/* epoll tells of them in the order in which they come back: from where it stopped the last time */
	for (size_t i = 0; i < MUX_BUCKETS; i++)
		for (struct mux_stream *s = m->buckets[(m->turn + i) % MUX_BUCKETS]; s; s = s->next)
			interest(m, s);
}

struct mux_stream *mux_add(struct mux *m, uint32_t id, int fd)
{
	struct mux_stream *s = xcalloc(1, sizeof *s), **at = slot(m, id);
	*s = (struct mux_stream){.id = id, .fd = fd, .bulk = id & 1, .next = *at};
	s->credit = s->allowed = whole_credit(s);
	*at = s;
	m->streams++;
	m->bulk_streams += s->bulk;
	fd_nonblock(fd);
	interest(m, s);
	return s;
}

static void end(struct mux *m, struct mux_stream *s)
{
	struct mux_stream **at = slot(m, s->id);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	m->streams--;
	m->bulk_streams -= s->bulk;
	mux_watch(m, s->fd, &s->events, 0, s->id);
	fd_close(&s->fd);
	buf_release(&s->out);
	free(s);
}

void mux_close_all(struct mux *m)
{
	for (size_t i = 0; i < MUX_BUCKETS; i++)
		while (m->buckets[i])
			end(m, m->buckets[i]);
}

static void abort_stream(struct mux *m, struct mux_stream *s)
{
	if (!s->closing)
		mux_frame(m, MUX_CLOSE, s->id, NULL, 0);
	end(m, s);
}

/* Ends a stream that has nothing left to do, else watches it for what is left. */
static void settle(struct mux *m, struct mux_stream *s)
{
	if (!pending(s) && (s->closing || (s->eof && s->fin)))
		end(m, s);
	else
		interest(m, s);
}

static void grant(struct mux *m, struct mux_stream *s, size_t n)
{
	s->delivered += (uint32_t)n;
	if (s->delivered < whole_credit(s) / 4 || s->fin || s->closing)
		return;
	unsigned char w[4] = {s->delivered >> 24 & 255, s->delivered >> 16 & 255, s->delivered >> 8 & 255,
			      s->delivered & 255};
	mux_frame(m, MUX_WINDOW, s->id, w, sizeof w);
	s->allowed += s->delivered;
	s->delivered = 0;
}

/* The descriptor's peer has closed, maybe after an answer that still waits to be read: a server that refuses a large
 * request does. So that is still relayed; what was for the descriptor is dropped. */
static void give_up(struct mux *m, struct mux_stream *s)
{
	size_t n = pending(s);
	s->broken = true;
	buf_reset(&s->out);
	s->out_at = 0;
	grant(m, s, n);
}

/* Writes what is waiting for the descriptor. False: the stream is gone. */
static bool deliver(struct mux *m, struct mux_stream *s)
{
	bool socket = true;
	while (pending(s)) {
		ssize_t n = mux_put(s->fd, &socket, s->out.p + s->out_at, pending(s));
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET) && !s->closing) {
			give_up(m, s);
			return true;
		}
		if (n < 0) {
			abort_stream(m, s);
			return false;
		}
		s->out_at += (size_t)n;
		grant(m, s, (size_t)n);
	}
	buf_reset(&s->out);
	s->out_at = 0;
	if (s->fin)
		shutdown(s->fd, SHUT_WR); /* fails for what is no socket: its end is the close */
	return true;
}

/* Reads one frame's worth; more waits for the next round, so that streams take turns. False: the stream is gone. */
static bool collect(struct mux *m, struct mux_stream *s)
{
	char room[MUX_FRAME];
	ssize_t n = read(s->fd, room, s->credit < sizeof room ? s->credit : sizeof room);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n < 0 && !(s->broken && errno == ECONNRESET)) {
		abort_stream(m, s);
		return false;
	}
	if (n <= 0) {
		s->eof = true;
		mux_frame(m, MUX_FIN, s->id, NULL, 0);
		return true;
	}
	s->credit -= (uint32_t)n;
	if (s->bulk)
		m->turn = (size_t)(slot(m, s->id) - m->buckets) + 1;
	mux_frame(m, MUX_DATA, s->id, room, (uint32_t)n);
	return true;
}

void mux_stream_event(struct mux *m, struct mux_stream *s, uint32_t events)
{
	if (s->events & EPOLLOUT && !deliver(m, s))
		return;
	if (s->events & EPOLLIN && events & ~(uint32_t)EPOLLOUT && may_collect(m, s) && !collect(m, s))
		return;
	settle(m, s);
}

static bool on_data(struct mux *m, struct mux_stream *s, const char *p, uint32_t n)
{
	if (n == 0 || n > s->allowed || s->fin)
		return false;
	s->allowed -= n;
	if (s->broken) {
		grant(m, s, n);
		return true;
	}
	if (s->out_at > whole_credit(s) / 2) {
		buf_drop(&s->out, s->out_at);
		s->out_at = 0;
	}
	buf_add(&s->out, p, n);
	if (deliver(m, s))
		settle(m, s);
	return true;
}

static bool on_window(struct mux *m, struct mux_stream *s, const unsigned char *p)
{
	uint32_t n = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
	if (n > whole_credit(s) - s->credit)
		return false;
	s->credit += n;
	interest(m, s);
	return true;
}

bool mux_stream_frame(struct mux *m, struct mux_stream *s, enum mux_type type, const char *p, uint32_t n)
{
	if (type == MUX_DATA ? n == 0 : n != (type == MUX_WINDOW ? 4U : 0U))
		return false;
	if (!s || s->closing)
		return true;
	switch (type) {
	case MUX_DATA: return on_data(m, s, p, n);
	case MUX_WINDOW: return on_window(m, s, (const unsigned char *)p);
	case MUX_FIN:
		if (s->fin)
			return false;
		s->fin = true;
		break;
	case MUX_CLOSE: s->closing = s->fin = true; break;
	default: return false;
	}
	if (deliver(m, s))
		settle(m, s);
	return true;
}
