/* Moves bytes between the mux's port and an ssh channel. Runs on the bridge's main thread; must never block. libssh2
 * takes no other packet while one is half sent, so the call that began it goes first. */
#include "bridge_link.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"

#define ROUNDS	  32 /* then the other descriptors have their turn */
#define WORDS_MAX 2000
#define KEEP_MS	  15000

int bridge_link_open(struct bridge_link *l, struct remote *remote)
{
	int s[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s))
		return -errno;
	*l = (struct bridge_link){.remote = remote, .end = s[0], .again = true, .keep_ms = clock_mono_ms()};
	return s[1];
}

void bridge_link_close(struct bridge_link *l)
{
	remote_free(l->remote);
	l->remote = NULL;
	fd_close(&l->end);
	buf_release(&l->words);
}

/* After a call that could not go on: whether it left half a packet. */
static bool is_half(const struct bridge_link *l)
{
	return libssh2_session_block_directions(l->remote->session) & LIBSSH2_SESSION_BLOCK_OUTBOUND;
}

/* -1: gone; 0: nothing moved; 1: something did. */
static int from_there(struct bridge_link *l)
{
	int moved = 0;
	if (l->in_at == l->in_n && l->half != LINK_WRITE) {
		ssize_t n = libssh2_channel_read(l->remote->link, l->in, sizeof l->in);
		l->half = n == LIBSSH2_ERROR_EAGAIN && is_half(l) ? LINK_READ : LINK_FREE;
		if ((n < 0 && n != LIBSSH2_ERROR_EAGAIN) || (n == 0 && libssh2_channel_eof(l->remote->link)))
			return -1;
		l->in_at = 0;
		l->in_n = n > 0 ? (size_t)n : 0;
		moved = n > 0;
	}
	if (l->in_at < l->in_n) {
		ssize_t n = send(l->end, l->in + l->in_at, l->in_n - l->in_at, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -1;
		l->in_at += n > 0 ? (size_t)n : 0;
		moved |= n > 0;
	}
	return moved;
}

static int to_there(struct bridge_link *l)
{
	int moved = 0;
	if (l->out_at == l->out_n) {
		ssize_t n = recv(l->end, l->out, sizeof l->out, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return -1;
		l->out_at = 0;
		l->out_n = n > 0 ? (size_t)n : 0;
	}
	if (l->out_at < l->out_n && l->half != LINK_READ) {
		ssize_t n = libssh2_channel_write(l->remote->link, l->out + l->out_at, l->out_n - l->out_at);
		l->half = n == LIBSSH2_ERROR_EAGAIN && is_half(l) ? LINK_WRITE : LINK_FREE;
		if (n < 0 && n != LIBSSH2_ERROR_EAGAIN)
			return -1;
		if (n > 0) {
			l->out_at += (size_t)n;
			l->keep_ms = clock_mono_ms();
			moved = 1;
		}
	}
	return moved;
}

/* Words of the other side: the first are kept, the rest is read away. */
static int words(struct bridge_link *l)
{
	char room[1024];
	if (l->half == LINK_WRITE)
		return 0;
	ssize_t n = libssh2_channel_read_stderr(l->remote->link, room, sizeof room);
	l->half = n == LIBSSH2_ERROR_EAGAIN && is_half(l) ? LINK_READ : LINK_FREE;
	if (n > 0 && l->words.n < WORDS_MAX)
		buf_add(&l->words, room, (size_t)n);
	return n < 0 && n != LIBSSH2_ERROR_EAGAIN ? -1 : n > 0;
}

/* Something is sent from time to time, so that a host that is gone shows (the kernel waits for its acknowledgement) and
 * whatever forgets idle connections on the way does not. */
static void keep_alive(struct bridge_link *l)
{
	int next;
	if (l->half != LINK_FREE || clock_mono_ms() - l->keep_ms < KEEP_MS)
		return;
	libssh2_keepalive_send(l->remote->session, &next);
	l->keep_ms = clock_mono_ms();
}

bool bridge_link_work(struct bridge_link *l)
{
	int moved = 1;
	for (int i = 0; i < ROUNDS && moved; i++) {
		/* its last words come before its end */
		int a = words(l), b = from_there(l), c = b < 0 ? -1 : to_there(l);
		if (a < 0 || b < 0 || c < 0)
			return false;
		moved = a | b | c;
	}
	l->again = moved != 0;
	keep_alive(l);
	return true;
}

short bridge_link_socket_events(const struct bridge_link *l)
{
	if (l->half != LINK_FREE)
		return POLLOUT;
	/* also for what is to be sent: the other side's window comes by a packet */
	return l->in_at == l->in_n || l->out_at < l->out_n ? POLLIN : 0;
}

short bridge_link_end_events(const struct bridge_link *l)
{
	return (short)((l->out_at == l->out_n ? POLLIN : 0) | (l->in_at < l->in_n ? POLLOUT : 0));
}
