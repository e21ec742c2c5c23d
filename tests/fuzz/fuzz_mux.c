/* A hostile peer for the multiplexer: the bytes come in over its port after an honest HELLO (so that frames are
 * believed), and after another one each time that it has fallen out of step, while a stream of our own is open. Nothing
 * may crash, leak or spin. Built with -fsanitize=fuzzer, or with -DFUZZ_MAIN to run files. */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/mux.h"

#define ROUNDS 4000 /* of mux_work() at most; more means that it spins */

static int on_accept(void *arg, const char *kind)
{
	int s[2];
	if (strcmp(kind, "tool") != 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s))
		return -EPROTONOSUPPORT;
	close(s[1]); /* a local peer that leaves at once */
	return s[0];
}

static void work(struct mux *m)
{
	struct pollfd f = {.fd = mux_fd(m), .events = POLLIN};
	int rounds = 0;
	while (poll(&f, 1, 0) > 0) {
		mux_work(m);
		if (++rounds > ROUNDS)
			abort();
	}
}

static void drain(int fd)
{
	char room[65536];
	while (recv(fd, room, sizeof room, MSG_DONTWAIT) > 0)
		;
}

/* Reads what the mux has sent and answers its last HELLO, if there is one, with one that names its epoch. */
static void greet(struct mux *m, int fd)
{
	static const unsigned char mark[25] = {'H',  0,	   0,	 0,    0,    0,	   0,	 0,    32,
					       0xb7, 'm',  'u',	 'x',  0x0d, 0x0a, 0x1a, 0xe9, 0x5f,
					       0xc3, 0x88, 0x14, 0xd2, 0x71, 0xae, 1};
	static unsigned char room[2 << 20];
	unsigned char hello[41], swap[8];
	bool found = false;
	size_t n = 0;
	ssize_t got;
	while (n < sizeof room && (got = recv(fd, room + n, sizeof room - n, MSG_DONTWAIT)) > 0)
		n += (size_t)got;
	for (unsigned char *at = room; (at = memmem(at, n - (size_t)(at - room), mark, sizeof mark)); at++)
		if (n - (size_t)(at - room) >= sizeof hello) {
			memcpy(hello, at, sizeof hello);
			found = true;
		}
	if (!found)
		return;
	memcpy(swap, hello + 25, 8);
	memset(hello + 25, 7, 8);
	memcpy(hello + 33, swap, 8);
	if (send(fd, hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
		abort();
	work(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const struct mux_ops ops = {.accept = on_accept};
	struct mux *m;
	int port[2], own[2];
	if (mux_new(MUX_HOST, &ops, NULL, &m, NULL) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, own))
		abort();
	mux_port(m, port[0]);
	work(m);
	greet(m, port[1]);
	if (mux_state(m) != MUX_LIVE)
		abort();
	if (mux_open(m, "tool", own[0], NULL) || send(own[1], "hello", 5, MSG_NOSIGNAL) != 5)
		abort();
	for (size_t at = 0; at < n;) {
		size_t part = n - at < 1024 ? n - at : 1024;
		if (send(port[1], p + at, part, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)part)
			break;
		at += part;
		work(m);
		if (mux_state(m) != MUX_LIVE)
			greet(m, port[1]);
		drain(port[1]);
		drain(own[1]);
	}
	close(port[1]);
	work(m);
	if (mux_state(m) != MUX_DOWN || mux_streams(m))
		abort();
	mux_free(m);
	close(own[1]);
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
