/* The port of a mux: frames, epochs and the repeated HELLO. Runs on its owner's thread; must never block and never
 * believe a byte that does not belong to the present pair of epochs. */
#include "mux.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "mux_stream.h"

#define KEY_PORT  (1ULL << 32) /* epoll keys below are stream ids */
#define KEY_TIMER (2ULL << 32)
#define HELLO_LEN 32
#define RETRY_MIN 1000 /* ms; doubled at each repetition */
#define RETRY_MAX 4000
#define IN_MAX	  (1 << 20) /* with this much unsent, nothing more is read: the peer makes us answer too much */

/* Head of a HELLO frame and its magic, 25 bytes that stale stream data does not contain by chance. */
static const unsigned char hello_mark[MUX_HEAD + 16] = {'H',  0,    0,	  0,	0,    0,    0,	  0,	HELLO_LEN,
							0xb7, 'm',  'u',  'x',	0x0d, 0x0a, 0x1a, 0xe9, 0x5f,
							0xc3, 0x88, 0x14, 0xd2, 0x71, 0xae, 1};

static void put32(unsigned char *p, uint32_t v)
{
	for (int i = 3; i >= 0; i--, v >>= 8)
		p[i] = v & 255;
}

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint64_t get64(const unsigned char *p)
{
	return (uint64_t)get32(p) << 32 | get32(p + 4);
}

ssize_t mux_put(int fd, bool *socket, const void *p, size_t n)
{
	for (;;) {
		ssize_t r = *socket ? send(fd, p, n, MSG_NOSIGNAL) : write(fd, p, n);
		if (r >= 0 || (errno != EINTR && (errno != ENOTSOCK || !*socket)))
			return r;
		if (errno == ENOTSOCK)
			*socket = false;
	}
}

void mux_watch(struct mux *m, int fd, uint32_t *now, uint32_t want, uint64_t key)
{
	if (*now == want)
		return;
	struct epoll_event e = {.events = want, .data.u64 = key};
	epoll_ctl(m->epoll, want ? *now ? EPOLL_CTL_MOD : EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &e);
	*now = want;
}

static size_t unsent(const struct mux *m)
{
	return m->out.n - m->out_at;
}

/* Follows what is unsent: whether streams are read, and what the port is watched for. */
static void follow(struct mux *m)
{
	size_t n = unsent(m);
	int full = n >= 2 * MUX_FULL ? 2 : n >= MUX_FULL ? 1 : n >= MUX_FULL / 2 && m->full ? 1 : 0;
	if (full != m->full) {
		m->full = full;
		mux_interest_all(m);
	}
	if (m->port >= 0)
		mux_watch(m, m->port, &m->port_events,
			  (unsent(m) < IN_MAX ? EPOLLIN : 0U) | (unsent(m) ? EPOLLOUT : 0U), KEY_PORT);
}

void mux_frame(struct mux *m, enum mux_type type, uint32_t id, const void *p, uint32_t n)
{
	unsigned char head[MUX_HEAD] = {(unsigned char)type};
	put32(head + 1, id);
	put32(head + 5, n);
	buf_add(&m->out, head, sizeof head);
	buf_add(&m->out, p, n);
	follow(m);
}

static void say_hello(struct mux *m)
{
	unsigned char p[HELLO_LEN];
	memcpy(p, hello_mark + MUX_HEAD, 16);
	put32(p + 16, (uint32_t)(m->own >> 32));
	put32(p + 20, (uint32_t)m->own);
	put32(p + 24, (uint32_t)(m->seen >> 32));
	put32(p + 28, (uint32_t)m->seen);
	m->told = m->seen;
	mux_frame(m, MUX_HELLO, 0, p, sizeof p);
}

static void set_timer(struct mux *m, int ms)
{
	struct itimerspec t = {.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}};
	timerfd_settime(m->timer, 0, &t, NULL);
}

/* Leaving MUX_LIVE closes all streams before anyone hears of it. */
static void set_state(struct mux *m, enum mux_state state, const char *why)
{
	if (state != MUX_LIVE)
		mux_close_all(m);
	m->retry_ms = RETRY_MIN;
	set_timer(m, state == MUX_SYNC ? m->retry_ms : 0);
	if (state == m->state)
		return;
	m->state = state;
	if (m->ops.state)
		m->ops.state(m->arg, state, why);
}

static void new_epoch(struct mux *m)
{
	m->own = 0;
	if (getrandom(&m->own, sizeof m->own, GRND_NONBLOCK) != sizeof m->own || !m->own)
		m->own = (uint64_t)clock_mono_us() << 16 | 1; /* early in a guest's boot; distinct is enough */
	m->seen = 0;
}

static void port_lost(struct mux *m, const char *why)
{
	if (m->port < 0)
		return;
	mux_watch(m, m->port, &m->port_events, 0, KEY_PORT);
	fd_close(&m->port);
	buf_reset(&m->in);
	buf_reset(&m->out);
	m->out_at = 0;
	set_state(m, MUX_DOWN, why);
	follow(m);
}

static void malformed(struct mux *m)
{
	new_epoch(m);
	set_state(m, MUX_SYNC, "the peer sent a malformed frame");
	say_hello(m);
}

static void flush(struct mux *m)
{
	while (m->port >= 0 && unsent(m)) {
		ssize_t n = mux_put(m->port, &m->port_socket, m->out.p + m->out_at, unsent(m));
		if (n < 0 && errno != EAGAIN) {
			port_lost(m, "the port was closed while writing");
			return;
		}
		if (n <= 0)
			break;
		m->out_at += (size_t)n;
	}
	if (!unsent(m) || m->out_at > MUX_FULL) {
		buf_drop(&m->out, m->out_at);
		m->out_at = 0;
	}
	follow(m);
}

static void on_hello(struct mux *m, const unsigned char *payload)
{
	uint64_t peer = get64(payload + 16), us = get64(payload + 24);
	if (m->state == MUX_LIVE) {
		if (peer == m->seen && us == m->own)
			return;
		set_state(m, MUX_SYNC, "the peer has started again");
	}
	m->seen = peer;
	if (m->told != peer)
		say_hello(m);
	if (us == m->own)
		set_state(m, MUX_LIVE, "in step with the peer");
}

static bool kind_ok(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] < 'a' || p[i] > 'z')
			return false;
	return n > 0 && n <= MUX_KIND;
}

static bool on_open(struct mux *m, uint32_t id, const char *p, uint32_t n)
{
	/* the peer's ids: odd ones here in the host, even ones in the guest */
	if (!id || (id & 1) != (m->side == MUX_HOST) || !kind_ok(p, n) || mux_find(m, id))
		return false;
	char kind[MUX_KIND + 1] = {0};
	memcpy(kind, p, n);
	bool room = m->streams < MUX_STREAMS && (m->side == MUX_GUEST || m->bulk_streams < MUX_GUEST_STREAMS);
	int fd = room ? m->ops.accept(m->arg, kind) : -EMFILE;
	if (fd < 0)
		mux_frame(m, MUX_CLOSE, id, NULL, 0);
	else
		mux_add(m, id, fd);
	return true;
}

static bool on_frame(struct mux *m, const unsigned char *head, const char *p, uint32_t n)
{
	uint32_t id = get32(head + 1);
	switch (head[0]) {
	case MUX_PAD: return !id && !n;
	case MUX_OPEN: return on_open(m, id, p, n);
	case MUX_HELLO:
		if (memcmp(head, hello_mark, sizeof hello_mark) != 0)
			return false;
		on_hello(m, (const unsigned char *)p);
		return true;
	default: return id && mux_stream_frame(m, mux_find(m, id), head[0], p, n);
	}
}

/* Out of step: skips to the next HELLO. Returns the bytes used up; 0: needs more. */
static size_t skip_to_hello(struct mux *m, const unsigned char *p, size_t n)
{
	const unsigned char *hit = memmem(p, n, hello_mark, sizeof hello_mark);
	if (!hit)
		return n < sizeof hello_mark ? 0 : n - sizeof hello_mark + 1;
	if (hit != p)
		return (size_t)(hit - p);
	if (n < MUX_HEAD + HELLO_LEN)
		return 0;
	on_hello(m, p + MUX_HEAD);
	return MUX_HEAD + HELLO_LEN;
}

/* One frame. Returns the bytes used up; 0: needs more, or the mux has fallen out of step. */
static size_t next_frame(struct mux *m, const unsigned char *p, size_t n)
{
	if (n < MUX_HEAD)
		return 0;
	uint32_t len = get32(p + 5);
	if (len <= MUX_FRAME && n - MUX_HEAD < len)
		return 0;
	if (len <= MUX_FRAME && on_frame(m, p, (const char *)p + MUX_HEAD, len))
		return MUX_HEAD + len;
	malformed(m);
	return 0;
}

static void understand(struct mux *m)
{
	size_t at = 0;
	while (m->port >= 0 && at < m->in.n) {
		const unsigned char *p = (const unsigned char *)m->in.p + at;
		bool live = m->state == MUX_LIVE;
		size_t used = live ? next_frame(m, p, m->in.n - at) : skip_to_hello(m, p, m->in.n - at);
		at += used;
		if (!used && live == (m->state == MUX_LIVE))
			break;
	}
	if (m->port >= 0)
		buf_drop(&m->in, at);
}

static void receive(struct mux *m)
{
	/* a few reads a call, so that a busy peer does not keep the streams waiting */
	for (int i = 0; i < 4 && m->port >= 0 && unsent(m) < IN_MAX; i++) {
		buf_reserve(&m->in, 65536);
		ssize_t n = read(m->port, m->in.p + m->in.n, 65536);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			port_lost(m, n ? "the port cannot be read" : "the port was closed by the peer");
			return;
		}
		m->in.n += (size_t)n;
		understand(m);
	}
}

/* The peer has not answered. It may be inside a half frame of an older connection, which the padding completes. */
static void on_timer(struct mux *m)
{
	uint64_t ticks;
	if (read(m->timer, &ticks, sizeof ticks) < 0 || m->state != MUX_SYNC)
		return;
	if (!unsent(m)) {
		static const char zero[MUX_HEAD * 512];
		for (size_t n = 0; n < MUX_FRAME + MUX_HEAD; n += sizeof zero)
			buf_add(&m->out, zero, sizeof zero);
		say_hello(m);
	}
	m->retry_ms = m->retry_ms * 2 < RETRY_MAX ? m->retry_ms * 2 : RETRY_MAX;
	set_timer(m, m->retry_ms);
}

void mux_work(struct mux *m)
{
	struct epoll_event e[64];
	int n = epoll_wait(m->epoll, e, 64, 0);
	for (int i = 0; i < n; i++) {
		uint64_t key = e[i].data.u64;
		struct mux_stream *s = key < KEY_PORT ? mux_find(m, (uint32_t)key) : NULL;
		if (s)
			mux_stream_event(m, s, e[i].events);
		else if (key == KEY_TIMER)
			on_timer(m);
		else if (key == KEY_PORT && m->port >= 0 && e[i].events & ~(uint32_t)EPOLLOUT)
			receive(m);
	}
	flush(m);
}

void mux_port(struct mux *m, int fd)
{
	if (m->port >= 0)
		port_lost(m, "the port is replaced");
	if (fd < 0)
		return;
	fd_nonblock(fd);
	m->port = fd;
	m->port_socket = true;
	new_epoch(m);
	set_state(m, MUX_SYNC, "waiting for the peer");
	say_hello(m);
	flush(m);
}

void mux_restart(struct mux *m)
{
	uint64_t peer = m->seen;
	if (m->port < 0)
		return;
	new_epoch(m);
	m->seen = peer; /* said at once, so that nothing more is to be said once the peer has answered */
	set_state(m, MUX_SYNC, "starting again");
	say_hello(m);
	flush(m);
}

int mux_open(struct mux *m, const char *kind, int fd, struct err *err)
{
	CLEAN_FD int own = fd;
	size_t n = strlen(kind);
	if (!kind_ok(kind, n))
		return err_set(err, EINVAL, "\"%s\" is no kind of stream", kind);
	if (m->state != MUX_LIVE)
		return err_set(err, ENOTCONN, "the sandbox does not answer yet");
	if (m->streams >= MUX_STREAMS)
		return err_set(err, EMFILE, "%d streams are open already", m->streams);
	if (m->side == MUX_GUEST && m->bulk_streams >= MUX_GUEST_STREAMS)
		return err_set(err, EMFILE, "%d streams to the host are open already", m->bulk_streams);
	do {
		m->next_id += 2;
		if (m->next_id < 2)
			m->next_id += 2;
	} while (mux_find(m, m->next_id));
	mux_frame(m, MUX_OPEN, m->next_id, kind, (uint32_t)n);
	memcpy(mux_add(m, m->next_id, take_fd(&own))->kind, kind, n + 1);
	flush(m);
	return 0;
}

int mux_new(enum mux_side side, const struct mux_ops *ops, void *arg, struct mux **out, struct err *err)
{
	struct mux *m = xcalloc(1, sizeof *m);
	m->side = side;
	m->ops = *ops;
	m->arg = arg;
	m->port = -1;
	m->next_id = side == MUX_GUEST; /* 2, 4.. and 3, 5.. */
	m->epoll = epoll_create1(EPOLL_CLOEXEC);
	m->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = KEY_TIMER};
	if (m->epoll < 0 || m->timer < 0 || epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->timer, &e)) {
		int code = errno;
		mux_free(m);
		return err_sys(err, code, "cannot make a multiplexer");
	}
	*out = m;
	return 0;
}

void mux_free(struct mux *m)
{
	if (!m)
		return;
	mux_close_all(m);
	fd_close(&m->port);
	fd_close(&m->timer);
	fd_close(&m->epoll);
	buf_release(&m->in);
	buf_release(&m->out);
	free(m);
}

int mux_fd(const struct mux *m)
{
	return m->epoll;
}

enum mux_state mux_state(const struct mux *m)
{
	return m->state;
}

int mux_streams(const struct mux *m)
{
	return m->streams;
}

int mux_guest_streams(const struct mux *m)
{
	return m->bulk_streams;
}

int mux_streams_of(const struct mux *m, const char *kind)
{
	int n = 0;
	for (size_t i = 0; i < MUX_BUCKETS; i++)
		for (const struct mux_stream *s = m->buckets[i]; s; s = s->next)
			n += !strcmp(s->kind, kind);
	return n;
}
