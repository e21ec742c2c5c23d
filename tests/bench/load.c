/* The gateway's bench: a provider and a client in one small program, so that they cost little beside what is measured.
 *   load serve PORT                            answers; to "stream":true with 20 events, 250 ms apart, that carry the
 *                                              time. GET /left: how many streams began, how many were left early
 *   load rate PORT TOKEN RATE CONNS SECONDS    requests at a fixed rate; prints p50 and p99 in microseconds, from the
 *                                              time that a request was due
 *   load streams PORT TOKEN N                  N streams at once; prints the delay of events
 *   load leave PORT TOKEN N                    N streams at once, each left after its first event
 *   load first PORT TOKEN N                    N times, one after another, on a connection of its own: the first event
 * LOAD_HEADERS in the environment: header lines to add. One thread; a test program: it trusts what it speaks to. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/buf.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/list.h"
#include "backend/base/mem.h"

#define EVENTS	  20
#define GAP_US	  250000
#define MOMENT_US 1000 /* after which it looks whether the time is over */

struct peer {
	int fd;
	struct buf in;
	struct list link; /* serve: streams */
	int sent;
	int64_t next, due; /* microseconds */
	bool busy, bad, done, streams;
};

static int epoll_fd;
static int64_t *delays;
static size_t n_delays;
static int begun, left_early; /* serve: streams */

static void note(int64_t us)
{
	static size_t cap;
	if (n_delays == cap) {
		cap = cap ? 2 * cap : 65536;
		delays = xrealloc(delays, cap * sizeof *delays);
	}
	delays[n_delays++] = us;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static void report(const char *what)
{
	qsort(delays, n_delays, sizeof *delays, by_value);
	if (n_delays)
		printf("%s %zu p50 %lld p90 %lld p99 %lld max %lld\n", what, n_delays, (long long)delays[n_delays / 2],
		       (long long)delays[n_delays * 9 / 10], (long long)delays[n_delays * 99 / 100],
		       (long long)delays[n_delays - 1]);
	else
		printf("%s 0\n", what);
}

static void watch(struct peer *p)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = p};
	int on = 1;
	setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	fd_nonblock(p->fd);
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, p->fd, &e);
}

static bool read_some(struct peer *p)
{
	buf_reserve(&p->in, 65536);
	ssize_t n = recv(p->fd, p->in.p + p->in.n, 65536, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n <= 0)
		return false;
	p->in.n += (size_t)n;
	p->in.p[p->in.n] = 0;
	return true;
}

static void put(struct peer *p, const char *s, size_t n)
{
	if (send(p->fd, s, n, MSG_NOSIGNAL) != (ssize_t)n)
		p->bad = true;
}

/* Bytes of the message that begins in `in`, or 0 if it has not come as a whole. Content-Length only. */
static size_t message(const struct peer *p)
{
	const char *end = p->in.n ? strstr(p->in.p, "\r\n\r\n") : NULL;
	if (!end)
		return 0;
	const char *length = strcasestr(p->in.p, "content-length:");
	size_t n = (size_t)(end + 4 - p->in.p) + (length && length < end ? strtoul(length + 15, NULL, 10) : 0);
	return p->in.n >= n ? n : 0;
}

/* ---- serve ---- */

static void chunk(struct peer *p, const char *s)
{
	CLEAN_FREE char *t = xasprintf("%zx\r\n%s\r\n", strlen(s), s);
	put(p, t, strlen(t));
}

static void next_event(struct peer *p)
{
	CLEAN_FREE char *s = xasprintf(
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"
		"\"text_delta\",\"text\":\"some words of an answer\",\"t\":%lld}}\n\n",
		(long long)clock_mono_us());
	chunk(p, s);
	p->next += GAP_US;
	if (++p->sent < EVENTS)
		return;
	chunk(p, "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n"
		 "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
	put(p, "0\r\n\r\n", 5);
	list_remove(&p->link);
	p->streams = false;
}

/* How many streams have begun, and how many were left before their end. */
static void tell_left(struct peer *p)
{
	CLEAN_FREE char *body = xasprintf("%d %d", begun, left_early);
	CLEAN_FREE char *text = xasprintf("HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
	put(p, text, strlen(text));
}

static void answer(struct peer *p, size_t n, struct list *streams, const char *plain)
{
	bool stream = strstr(p->in.p, "\"stream\":true") != NULL, asks = !strncmp(p->in.p, "GET /left ", 10);
	buf_drop(&p->in, n);
	if (asks) {
		tell_left(p);
		return;
	}
	if (!stream) {
		put(p, plain, strlen(plain));
		return;
	}
	static const char head[] =
		"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
	put(p, head, sizeof head - 1);
	chunk(p, "event: message_start\ndata: "
		 "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n");
	p->sent = 0;
	p->streams = true;
	begun++;
	p->next = clock_mono_us();
	list_append(streams, &p->link);
	next_event(p);
}

static void drop(struct peer *p)
{
	left_early += p->streams;
	list_remove(&p->link);
	close(p->fd);
	buf_release(&p->in);
	free(p);
}

static int serve(int port)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	struct list streams;
	struct epoll_event events[256], self = {.events = EPOLLIN};
	char fill[1400];
	memset(fill, 'x', sizeof fill - 1);
	fill[sizeof fill - 1] = 0;
	CLEAN_FREE char *body = xasprintf("{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":"
					  "\"claude-a\",\"content\":[{\"type\":"
					  "\"text\",\"text\":\"%s\"}],\"stop_reason\":\"end_turn\",\"usage\":{\"input_"
					  "tokens\":10,\"output_tokens\":"
					  "20}}",
					  fill);
	CLEAN_FREE char *plain =
		xasprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			  strlen(body), body);
	list_init(&streams);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&sa, sizeof sa) || listen(fd, 4096))
		return 1;
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &self);
	for (;;) {
		int64_t now = clock_mono_us(), wait = 100000;
		list_each_safe (i, &streams) {
			struct peer *p = list_entry(i, struct peer, link);
			if (p->next <= now)
				next_event(p);
			if (p->next - now < wait)
				wait = p->next - now;
		}
		int n = epoll_wait(epoll_fd, events, 256, wait > 0 ? (int)(wait / 1000) : 0);
		for (int i = 0; i < n; i++) {
			struct peer *p = events[i].data.ptr;
			if (!p) {
				p = xcalloc(1, sizeof *p);
				list_init(&p->link);
				p->fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
				watch(p);
				continue;
			}
			bool alive = read_some(p);
			for (size_t m; alive && (m = message(p));)
				answer(p, m, &streams, plain);
			if (!alive || p->bad)
				drop(p);
		}
	}
}

/* ---- clients ---- */

static int dial(int port)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa))
		exit((perror("connect"), 1));
	return fd;
}

static char *request(const char *token, bool stream)
{
	char fill[8001];
	memset(fill, 'y', sizeof fill - 1);
	fill[sizeof fill - 1] = 0;
	CLEAN_FREE char *body = xasprintf(
		"{\"model\":\"claude-a\",\"max_tokens\":100,%s\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
		stream ? "\"stream\":true," : "", fill);
	const char *more = getenv("LOAD_HEADERS"); /* whole lines, for peers that want some of their own */
	return xasprintf("POST /v1/messages HTTP/1.1\r\nHost: h\r\nx-api-key: %s\r\nContent-Type: "
			 "application/json\r\n%sContent-Length: "
			 "%zu\r\n\r\n%s",
			 token, more ? more : "", strlen(body), body);
}

static int rate(int port, const char *token, int per_second, int conns, int seconds)
{
	struct epoll_event events[256];
	CLEAN_FREE char *text = request(token, false);
	struct peer *peers = xcalloc((size_t)conns, sizeof *peers);
	for (int i = 0; i < conns; i++) {
		peers[i].fd = dial(port);
		watch(&peers[i]);
	}
	int64_t start = clock_mono_us(), end = start + seconds * 1000000LL, due = start, late = 0;
	int bad = 0, busy = 0;
	prctl(PR_SET_TIMERSLACK, 1UL); /* nanosecond, not 50,000 */
	while (clock_mono_us() < end || busy) {
		int64_t now = clock_mono_us();
		for (int i = 0; i < conns && due <= now && due < end; i++) {
			if (peers[i].busy)
				continue;
			peers[i].due = due;
			peers[i].busy = true;
			busy++;
			put(&peers[i], text, strlen(text));
			due += 1000000 / per_second;
		}
		late += due <= now;
		if (now > end + 5000000)
			break;
		/* It sleeps until then: a client that looks all the time takes half of a small machine from what is
		 * measured, which then waits for the end of its slices, and for whoever else has the other half */
		int64_t us = due < end ? due - clock_mono_us() : MOMENT_US;
		struct timespec until = {.tv_nsec = (us < 0 ? 0 : us > MOMENT_US ? MOMENT_US : us) * 1000};
		int n = epoll_pwait2(epoll_fd, events, 256, &until, NULL);
		for (int i = 0; i < n; i++) {
			struct peer *p = events[i].data.ptr;
			if (!read_some(p))
				exit((fprintf(stderr, "closed\n"), 1));
			size_t m = message(p);
			if (!m)
				continue;
			bad += strncmp(p->in.p, "HTTP/1.1 200", 12) != 0;
			buf_reset(&p->in);
			note(clock_mono_us() - p->due);
			p->busy = false;
			busy--;
		}
	}
	report("us");
	return bad != 0;
}

/* Takes the times out of the events that have come. */
static void times(struct peer *p, bool first)
{
	int64_t now = clock_mono_us();
	char *at = p->in.p, *t;
	while (at && (t = strstr(at, "\"t\":")) && strchr(t, '}')) {
		if (!first)
			note(now - strtoll(t + 4, NULL, 10));
		at = t + 4;
		p->sent++;
	}
	if (strstr(p->in.p, "0\r\n\r\n"))
		p->done = true;
	buf_drop(&p->in, (size_t)(at - p->in.p));
}

static int streams(int port, const char *token, int count)
{
	struct epoll_event events[256];
	CLEAN_FREE char *text = request(token, true);
	struct peer *peers = xcalloc((size_t)count, sizeof *peers);
	int done = 0, bad = 0, dialled = 0;
	int64_t end = clock_mono_us() + (EVENTS + 40LL) * GAP_US;
	while (done + bad < count && clock_mono_us() < end) {
		if (dialled <
		    count) { /* between two it reads: else its dialling would count as delay of the first events */
			struct peer *p = &peers[dialled++];
			p->fd = dial(port);
			put(p, text, strlen(text));
			watch(p);
		}
		int n = epoll_wait(epoll_fd, events, 256, dialled < count ? 0 : 100);
		for (int i = 0; i < n; i++) {
			struct peer *p = events[i].data.ptr;
			bool alive = read_some(p);
			times(p, false);
			if (!alive || p->done) {
				done += p->done && p->sent == EVENTS;
				bad += !(p->done && p->sent == EVENTS);
				close(p->fd);
			}
		}
	}
	printf("finished %d of %d, ", done, count);
	report("event us");
	return done != count;
}

/* N streams that are left after their first event. */
static int leave(int port, const char *token, int count)
{
	struct epoll_event events[256];
	CLEAN_FREE char *text = request(token, true);
	struct peer *peers = xcalloc((size_t)count, sizeof *peers);
	int gone = 0;
	for (int i = 0; i < count; i++) {
		peers[i].fd = dial(port);
		put(&peers[i], text, strlen(text));
		watch(&peers[i]);
	}
	for (int64_t end = clock_mono_us() + EVENTS * GAP_US; gone < count && clock_mono_us() < end;) {
		int n = epoll_wait(epoll_fd, events, 256, 100);
		for (int i = 0; i < n; i++) {
			struct peer *p = events[i].data.ptr;
			bool alive = read_some(p);
			times(p, true);
			if (alive && !p->sent)
				continue;
			close(p->fd);
			gone++;
		}
	}
	printf("left %d of %d\n", gone, count);
	return gone != count;
}

static int first(int port, const char *token, int count)
{
	CLEAN_FREE char *text = request(token, true);
	for (int i = 0; i < count; i++) {
		struct peer p = {.fd = dial(port)};
		int64_t from = clock_mono_us();
		put(&p, text, strlen(text));
		while (!p.sent && read_some(&p))
			times(&p, true);
		note(clock_mono_us() - from);
		close(p.fd);
		buf_release(&p.in);
	}
	report("first event us");
	return 0;
}

int main(int argc, char **argv)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(atoi(argv[2]));
	if (argc == 7 && !strcmp(argv[1], "rate"))
		return rate(atoi(argv[2]), argv[3], atoi(argv[4]), atoi(argv[5]), atoi(argv[6]));
	if (argc == 5 && !strcmp(argv[1], "streams"))
		return streams(atoi(argv[2]), argv[3], atoi(argv[4]));
	if (argc == 5 && !strcmp(argv[1], "leave"))
		return leave(atoi(argv[2]), argv[3], atoi(argv[4]));
	if (argc == 5 && !strcmp(argv[1], "first"))
		return first(atoi(argv[2]), argv[3], atoi(argv[4]));
	return 64;
}
