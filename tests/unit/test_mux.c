/* The multiplexer: two of them over a socket pair, driven by one loop. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/mux.h"
#include "sandbox/mux_stream.h"

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

/* ---- what the guest opens ---- */

static size_t stuff(int fd)
{
	static const char junk[65536];
	size_t n = 0;
	for (ssize_t r; (r = write(fd, junk, sizeof junk)) > 0;)
		n += (size_t)r;
	return n;
}

static size_t drain(int fd)
{
	char room[65536];
	size_t n = 0;
	for (ssize_t r; (r = read(fd, room, sizeof room)) > 0;)
		n += (size_t)r;
	return n;
}

TEST(guest_opens_so_many_and_the_host_always_can)
{
	struct pair *p = pair_new();
	struct err err = ERR_INIT;
	int fds[MUX_GUEST_STREAMS];
	for (int i = 0; i < MUX_GUEST_STREAMS; i++)
		fds[i] = open_stream(p, &p->guest);
	settle(p, 0);
	CHECK_INT(p->host.n, MUX_GUEST_STREAMS);
	CHECK_INT(mux_guest_streams(p->host.mux), MUX_GUEST_STREAMS);
	CHECK_INT(mux_open(p->guest.mux, "net", dup(fds[0]), &err), -EMFILE);
	int tool = open_stream(p, &p->host);
	settle(p, 0);
	CHECK_INT(transfer(p, tool, p->guest.accepted[0], 300000), 300000);
	close(fds[9]);
	shutdown(p->host.accepted[9], SHUT_WR);
	settle(p, 0);
	CHECK_INT(mux_guest_streams(p->host.mux), MUX_GUEST_STREAMS - 1);
	fds[9] = open_stream(p, &p->guest);
	settle(p, 0);
	CHECK_INT(transfer(p, fds[9], p->host.accepted[MUX_GUEST_STREAMS], 300000), 300000);
	for (int i = 0; i < MUX_GUEST_STREAMS; i++)
		close(fds[i]);
	close(tool);
	pair_free(p);
}

/* A guest that is not ours and keeps to no limit: frames by hand. */
TEST(guest_that_opens_more_is_refused)
{
	struct side host = {0};
	int s[2], refused = 0;
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	side_new(&host, MUX_HOST);
	mux_port(host.mux, s[0]);
	unsigned char hello[41], frame[12] = {1, 0, 0, 0, 0, 0, 0, 0, 3, 'n', 'e', 't'};
	CHECK_INT(fd_read_full(s[1], hello, sizeof hello), 0);
	unsigned char own[8];
	memcpy(own, hello + 25, 8);
	memcpy(hello + 33, own, 8); /* "yours as I have seen it" */
	hello[25] ^= 1;		    /* and an epoch of mine */
	CHECK_INT(fd_write_full(s[1], hello, sizeof hello), 0);
	for (int i = 0; i < MUX_GUEST_STREAMS + 300; i++) {
		int id = 2 * i + 3;
		frame[3] = (unsigned char)(id >> 8);
		frame[4] = (unsigned char)id;
		CHECK_INT(fd_write_full(s[1], frame, sizeof frame), 0);
		mux_work(host.mux);
	}
	CHECK_INT(mux_state(host.mux), MUX_LIVE);
	CHECK_INT(mux_guest_streams(host.mux), MUX_GUEST_STREAMS);
	CHECK_INT(host.n, MUX_GUEST_STREAMS);
	fd_nonblock(s[1]);
	unsigned char in[9];
	for (mux_work(host.mux); read(s[1], in, 9) == 9; mux_work(host.mux)) {
		CHECK(in[0] == 4 || in[0] == 'H');
		refused += in[0] == 4;
		if (in[0] == 'H')
			CHECK_INT(fd_read_full(s[1], hello, in[8]), 0);
	}
	CHECK_INT(refused, 300);
	mux_free(host.mux);
	for (int i = 0; i < host.n; i++)
		close(host.accepted[i]);
	close(s[1]);
}

/* Everything the guest can send is sent and nobody reads it: the host holds little, and tools go on. */
TEST(flood_that_nobody_reads)
{
	struct pair *p = pair_new();
	int fds[MUX_GUEST_STREAMS];
	for (int i = 0; i < MUX_GUEST_STREAMS; i++)
		fds[i] = open_stream(p, &p->guest);
	settle(p, 0);
	size_t sent = 0;
	for (int round = 0; round < 50; round++) {
		size_t now = 0;
		for (int i = 0; i < MUX_GUEST_STREAMS; i++)
			now += stuff(fds[i]);
		settle(p, 0);
		sent += now;
		if (!now)
			break;
	}
	size_t held = 0, room = 0, most = 0;
	for (int i = 0; i < MUX_BUCKETS; i++)
		for (struct mux_stream *t = p->host.mux->buckets[i]; t; t = t->next) {
			size_t n = t->out.n - t->out_at;
			held += n;
			room += t->out.cap;
			most = n > most ? n : most;
		}
	printf("# %zu KiB sent, %zu held in %zu\n", sent >> 10, held >> 10, room >> 10);
	CHECK(held > 0 && most <= MUX_GUEST_CREDIT);
	CHECK(room <= 2 * MUX_GUEST_STREAMS * MUX_GUEST_CREDIT);
	int tool = open_stream(p, &p->host);
	settle(p, 0);
	CHECK_INT(transfer(p, tool, p->guest.accepted[0], 1000000), 1000000);
	CHECK_INT(transfer(p, p->guest.accepted[0], tool, 1000000), 1000000);
	for (int i = 0; i < MUX_GUEST_STREAMS; i++)
		close(fds[i]);
	close(tool);
	pair_free(p);
}

/* Many busy streams of the guest, all read as fast as they come, through a port that takes little at a time: a tool's
 * answer waits for half a MiB of them at most, and they get the same share. */
TEST(busy_streams_share_and_tools_go_first)
{
	enum { N = 200 };
	struct pair *p = pair_new();
	int fds[N], tool = open_stream(p, &p->host);
	size_t got[N] = {0}, all = 0, worst = 0, asked_at = 0;
	int answers = 0;
	bool waiting = false;
	settle(p, 0);
	for (int i = 0; i < N; i++)
		fds[i] = open_stream(p, &p->guest);
	settle(p, 0);
	struct pollfd f[2] = {{.fd = mux_fd(p->host.mux), .events = POLLIN},
			      {.fd = mux_fd(p->guest.mux), .events = POLLIN}};
	for (int64_t end = clock_mono_ms() + 30000; all < (128 << 20) && clock_mono_ms() < end;) {
		char c;
		for (int i = 0; i < N; i++)
			stuff(fds[i]);
		if (!waiting && write(p->guest.accepted[0], "x", 1) == 1) {
			waiting = true;
			asked_at = all;
		}
		poll(f, 2, 0);
		mux_work(p->guest.mux);
		mux_work(p->host.mux);
		for (int i = 0; i < N; i++) {
			size_t n = drain(p->host.accepted[i]);
			got[i] += n;
			all += n;
		}
		if (waiting && read(tool, &c, 1) == 1) {
			waiting = false;
			answers++;
			worst = all - asked_at > worst ? all - asked_at : worst;
		}
	}
	size_t least = got[0], most = got[0];
	for (int i = 1; i < N; i++) {
		least = got[i] < least ? got[i] : least;
		most = got[i] > most ? got[i] : most;
	}
	printf("# %d answers, at most %zu KiB before one; shares %zu to %zu KiB\n", answers, worst >> 10, least >> 10,
	       most >> 10);
	CHECK(answers > 20);
	CHECK(worst <= 1 << 20);
	CHECK(least * 2 > most);
	for (int i = 0; i < N; i++)
		close(fds[i]);
	close(tool);
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

/* Started again on purpose, with the guest in the middle of sending: once the host is live the guest has taken in all,
 * and the host has nothing more to say, so that the guest may stand still and the port be another one afterwards. */
TEST(restart_leaves_nothing_on_its_way)
{
	struct pair *p = pair_new();
	int a = open_stream(p, &p->host);
	settle(p, 0);
	CHECK(transfer(p, p->guest.accepted[0], a, 100000) == 100000);
	CHECK(write(p->guest.accepted[0], "late", 4) == 4);
	CHECK(write(a, "last", 4) == 4);
	mux_work(p->host.mux);
	mux_restart(p->host.mux);
	CHECK(at_end(a));
	int live = p->host.live;
	for (int i = 0; i < 100 && p->host.live == live; i++) {
		mux_work(p->guest.mux);
		mux_work(p->host.mux);
	}
	CHECK_INT(p->host.live, live + 1);
	CHECK_INT(mux_state(p->guest.mux), MUX_LIVE);
	CHECK_INT(mux_streams(p->guest.mux), 0);
	char words[16] = {0};
	CHECK(read(p->guest.accepted[0], words, 15) == 4 && !strcmp(words, "last"));
	struct pollfd quiet = {.fd = mux_fd(p->guest.mux), .events = POLLIN};
	CHECK_INT(poll(&quiet, 1, 0), 0);
	int b = open_stream(p, &p->host);
	settle(p, 0);
	CHECK(transfer(p, b, p->guest.accepted[1], 100000) == 100000);
	close(a);
	close(b);
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
