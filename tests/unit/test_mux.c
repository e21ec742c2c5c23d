/* The multiplexer: two of them over a socket pair, driven by one loop. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/mux.h"

#define PEERS 64

struct side {
	struct mux *mux;
	int accepted[2048]; /* our ends of what the peer opened */
	int n;
	int live, down;
	bool refuse;
	char kind[MUX_KIND + 1];
};

static int on_accept(void *arg, const char *kind)
{
	struct side *s = arg;
	int p[2];
	snprintf(s->kind, sizeof s->kind, "%s", kind);
	if (s->refuse || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p))
		return -EPROTONOSUPPORT;
	fd_nonblock(p[0]);
	s->accepted[s->n++] = p[0];
	return p[1];
}

static void on_state(void *arg, enum mux_state state, const char *why)
{
	struct side *s = arg;
	s->live += state == MUX_LIVE;
	s->down += state == MUX_DOWN;
}

struct pair {
	struct side host, guest;
};

static void side_new(struct side *s, enum mux_side which)
{
	static const struct mux_ops ops = {on_accept, on_state};
	CHECK_INT(mux_new(which, &ops, s, &s->mux, NULL), 0);
}

static void connect_pair(struct pair *p)
{
	int s[2];
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	mux_port(p->host.mux, s[0]);
	mux_port(p->guest.mux, s[1]);
}

/* Works until nothing is ready any more for ms. */
static void settle(struct pair *p, int ms)
{
	struct pollfd f[2] = {{.fd = mux_fd(p->host.mux), .events = POLLIN},
			      {.fd = mux_fd(p->guest.mux), .events = POLLIN}};
	while (poll(f, 2, ms) > 0) {
		mux_work(p->host.mux);
		mux_work(p->guest.mux);
	}
}

static struct pair *pair_new(void)
{
	struct pair *p = xcalloc(1, sizeof *p);
	side_new(&p->host, MUX_HOST);
	side_new(&p->guest, MUX_GUEST);
	connect_pair(p);
	settle(p, 0);
	return p;
}

static void pair_free(struct pair *p)
{
	mux_free(p->host.mux);
	mux_free(p->guest.mux);
	for (int i = 0; i < p->host.n; i++)
		close(p->host.accepted[i]);
	for (int i = 0; i < p->guest.n; i++)
		close(p->guest.accepted[i]);
	free(p);
}

/* A stream from the host: returns our end, non-blocking. */
static int open_stream(struct pair *p, struct side *from)
{
	int s[2];
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	fd_nonblock(s[0]);
	CHECK_INT(mux_open(from->mux, "tool", s[1], NULL), 0);
	return s[0];
}

/* Sends n patterned bytes from a to b and checks them; returns how many arrived right. */
static size_t transfer(struct pair *p, int a, int b, size_t n)
{
	char out[8192], in[8192];
	size_t sent = 0, got = 0;
	int64_t end = clock_mono_ms() + 20000;
	while (got < n && clock_mono_ms() < end) {
		size_t part = n - sent < sizeof out ? n - sent : sizeof out;
		for (size_t i = 0; i < part; i++)
			out[i] = (char)((sent + i) * 31 % 251);
		ssize_t w = part ? write(a, out, part) : 0;
		sent += w > 0 ? (size_t)w : 0;
		settle(p, 0);
		ssize_t r;
		while ((r = read(b, in, sizeof in)) > 0)
			for (ssize_t i = 0; i < r; i++, got++)
				if (in[i] != (char)(got * 31 % 251))
					return got;
	}
	return got;
}

static bool at_end(int fd)
{
	char c;
	return read(fd, &c, 1) == 0;
}

TEST(goes_live)
{
	struct pair *p = pair_new();
	CHECK_INT(mux_state(p->host.mux), MUX_LIVE);
	CHECK_INT(mux_state(p->guest.mux), MUX_LIVE);
	CHECK_INT(p->host.live, 1);
	CHECK_INT(p->guest.live, 1);
	pair_free(p);
}

TEST(relays_both_ways)
{
	struct pair *p = pair_new();
	int a = open_stream(p, &p->host);
	settle(p, 0);
	CHECK_INT(p->guest.n, 1);
	CHECK_STR(p->guest.kind, "tool");
	CHECK_INT(transfer(p, a, p->guest.accepted[0], 5000000), 5000000);
	CHECK_INT(transfer(p, p->guest.accepted[0], a, 5000000), 5000000);
	int b = open_stream(p, &p->guest);
	settle(p, 0);
	CHECK_INT(p->host.n, 1);
	CHECK_INT(transfer(p, b, p->host.accepted[0], 300000), 300000);
	CHECK_INT(mux_streams(p->host.mux), 2);
	close(a);
	close(b);
	pair_free(p);
}

TEST(half_close)
{
	struct pair *p = pair_new();
	int a = open_stream(p, &p->host);
	settle(p, 0);
	int b = p->guest.accepted[0];
	shutdown(a, SHUT_WR);
	settle(p, 0);
	CHECK(at_end(b));
	CHECK_INT(transfer(p, b, a, 100000), 100000);
	CHECK_INT(mux_streams(p->host.mux), 1);
	shutdown(b, SHUT_WR);
	settle(p, 0);
	CHECK(at_end(a));
	CHECK_INT(mux_streams(p->host.mux), 0);
	CHECK_INT(mux_streams(p->guest.mux), 0);
	close(a);
	pair_free(p);
}

TEST(data_before_close_arrives)
{
	struct pair *p = pair_new();
	int a = open_stream(p, &p->host);
	settle(p, 0);
	CHECK_INT(write(a, "last words", 10), 10);
	close(a);
	settle(p, 0);
	char in[32] = {0};
	CHECK_INT(read(p->guest.accepted[0], in, sizeof in), 10);
	CHECK_STR(in, "last words");
	CHECK(at_end(p->guest.accepted[0]));
	pair_free(p);
}

TEST(refused)
{
	struct pair *p = pair_new();
	p->guest.refuse = true;
	int a = open_stream(p, &p->host);
	settle(p, 0);
	CHECK(at_end(a));
	CHECK_INT(mux_streams(p->host.mux), 0);
	close(a);
	pair_free(p);
}

TEST(slow_stream_holds_up_nobody)
{
	struct pair *p = pair_new();
	int slow = open_stream(p, &p->host), fast = open_stream(p, &p->host);
	settle(p, 0);
	char junk[65536] = {0};
	size_t stuck = 0;
	for (int i = 0; i < 200; i++) {
		ssize_t n = write(slow, junk, sizeof junk);
		stuck += n > 0 ? (size_t)n : 0;
		settle(p, 0);
	}
	CHECK(stuck < 4000000); /* credit and socket buffers, no more */
	CHECK_INT(transfer(p, fast, p->guest.accepted[1], 2000000), 2000000);
	size_t got = 0;
	for (ssize_t n; (n = read(p->guest.accepted[0], junk, sizeof junk)) > 0; settle(p, 0))
		got += (size_t)n;
	CHECK_INT(got, stuck);
	close(slow);
	close(fast);
	pair_free(p);
}

TEST(many_streams_and_the_limit)
{
	struct pair *p = pair_new();
	int fds[MUX_STREAMS];
	int before = p->guest.n;
	for (int i = 0; i < PEERS; i++)
		fds[i] = open_stream(p, &p->host);
	settle(p, 0);
	CHECK_INT(p->guest.n - before, PEERS);
	for (int i = 0; i < PEERS; i++)
		CHECK_INT(transfer(p, fds[i], p->guest.accepted[i], 70000), 70000);
	for (int i = 0; i < PEERS; i++)
		close(fds[i]);
	settle(p, 0);
	CHECK_INT(mux_streams(p->guest.mux), PEERS); /* the guest's ends are still open for writing */
	for (int i = 0; i < PEERS; i++)
		shutdown(p->guest.accepted[i], SHUT_WR);
	settle(p, 0);
	CHECK_INT(mux_streams(p->guest.mux), 0);
	CHECK_INT(mux_streams(p->host.mux), 0);
	pair_free(p);
}

TEST(reopened_port)
{
	struct pair *p = pair_new();
	int a = open_stream(p, &p->host);
	settle(p, 0);
	connect_pair(p); /* both ends see it */
	settle(p, 0);
	CHECK_INT(mux_state(p->host.mux), MUX_LIVE);
	CHECK_INT(mux_state(p->guest.mux), MUX_LIVE);
	CHECK_INT(mux_streams(p->host.mux), 0);
	CHECK_INT(mux_streams(p->guest.mux), 0);
	CHECK(at_end(a));
	CHECK(at_end(p->guest.accepted[0]));
	int b = open_stream(p, &p->host);
	settle(p, 0);
	CHECK_INT(transfer(p, b, p->guest.accepted[1], 100000), 100000);
	close(a);
	close(b);
	pair_free(p);
}

/* The host starts again on the same bytes and the guest has been told nothing, in the middle of a frame. */
TEST(unseen_restart)
{
	struct pair *p = pair_new();
	struct side again = {0};
	int s[2];
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	int keep = dup(s[0]);
	mux_port(p->host.mux, s[0]);
	mux_port(p->guest.mux, s[1]);
	settle(p, 0);
	CHECK_INT(mux_state(p->guest.mux), MUX_LIVE);
	int a = open_stream(p, &p->guest);
	settle(p, 0);
	/* half a DATA frame of the old life: 30,000 bytes promised, ten there */
	static const char half[] = {2, 0, 0, 0, 3, 0, 0, 0x75, 0x30, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
	CHECK_INT(write(keep, half, sizeof half), sizeof half);
	side_new(&again, MUX_HOST);
	mux_free(p->host.mux);
	p->host.mux = again.mux;
	mux_port(again.mux, keep);
	int64_t end = clock_mono_ms() + 10000;
	while ((mux_state(again.mux) != MUX_LIVE || mux_state(p->guest.mux) != MUX_LIVE) && clock_mono_ms() < end)
		settle(p, 100);
	CHECK_INT(mux_state(again.mux), MUX_LIVE);
	CHECK_INT(mux_state(p->guest.mux), MUX_LIVE);
	CHECK_INT(mux_streams(p->guest.mux), 0);
	char junk[65536]; /* what completed the half frame */
	while (read(a, junk, sizeof junk) > 0)
		;
	CHECK(at_end(a));
	int b = open_stream(p, &p->guest);
	settle(p, 0);
	CHECK_INT(again.n, 1);
	CHECK_INT(transfer(p, b, again.accepted[0], 100000), 100000);
	close(a);
	close(b);
	close(again.accepted[0]);
	pair_free(p);
}

TEST(garbage_resets_and_recovers)
{
	struct pair *p = pair_new();
	int s[2];
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	int keep = dup(s[0]);
	mux_port(p->host.mux, s[0]);
	mux_port(p->guest.mux, s[1]);
	settle(p, 0);
	int a = open_stream(p, &p->host);
	settle(p, 0);
	CHECK_INT(write(keep, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 10), 10);
	int64_t end = clock_mono_ms() + 10000;
	do
		settle(p, 50);
	while ((mux_state(p->host.mux) != MUX_LIVE || mux_state(p->guest.mux) != MUX_LIVE) && clock_mono_ms() < end);
	CHECK_INT(p->guest.live, 3);
	CHECK_INT(mux_streams(p->host.mux), 0);
	CHECK(at_end(a));
	int b = open_stream(p, &p->host);
	settle(p, 0);
	CHECK_INT(transfer(p, b, p->guest.accepted[1], 100000), 100000);
	close(a);
	close(b);
	close(keep);
	pair_free(p);
}

TEST(lost_port)
{
	struct pair *p = pair_new();
	int a = open_stream(p, &p->host);
	settle(p, 0);
	mux_port(p->guest.mux, -1);
	settle(p, 0);
	CHECK_INT(mux_state(p->host.mux), MUX_DOWN);
	CHECK_INT(p->host.down, 1);
	CHECK(at_end(a));
	struct err err = ERR_INIT;
	int s[2];
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	CHECK_INT(mux_open(p->host.mux, "tool", s[0], &err), -ENOTCONN);
	CHECK(at_end(s[1])); /* the descriptor was taken all the same */
	close(s[1]);
	close(a);
	pair_free(p);
}

TEST(bad_kind)
{
	struct pair *p = pair_new();
	int s[2];
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	CHECK_INT(mux_open(p->host.mux, "Tool 1", s[0], NULL), -EINVAL);
	close(s[1]);
	pair_free(p);
}

CHECK_MAIN()
