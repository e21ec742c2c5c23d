/* Relays connections to a port of 127.0.0.1 into the gateway's unix socket, with half-close and at most 64 KiB a
 * connection on the way. One thread accepts, and each connection has one of its own. Must never hold more than
 * RELAY_CONNECTIONS of them, nor serve another user of the machine. */
#include "relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/net.h"

#define ROOM	 (32 * 1024) /* a direction */
#define STACK	 (128 * 1024)
#define AGAIN_MS 50 /* after an accept that failed for want of descriptors */

struct relay {
	int listener;
	bool shared; /* see relay.h */
	char *note;
	sem_t free; /* connections that may still be accepted */
};

struct way {
	int from, to;
	bool end, done; /* from has ended; and to knows */
	bool broken;	/* to takes no more: what comes is dropped, so that its last answer still gets through */
	size_t at, n;
	char room[ROOM];
};

struct link {
	struct relay *relay;
	int fd;
	struct way ways[2];
};

/* Reads and writes what goes at once. False: the connection is broken. */
static bool move(struct way *w)
{
	if (!w->end && w->at == w->n) {
		ssize_t n = recv(w->from, w->room, sizeof w->room, MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNRESET)
			return false;
		w->end = n == 0 || (n < 0 && errno == ECONNRESET);
		w->at = 0;
		w->n = n > 0 ? (size_t)n : 0;
	}
	while (w->at < w->n && !w->broken) {
		ssize_t n = send(w->to, w->room + w->at, w->n - w->at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n < 0) {
			w->broken = true;
			break;
		}
		w->at += (size_t)n;
	}
	if (w->broken)
		w->at = w->n;
	if (w->end && !w->done) {
		shutdown(w->to, SHUT_WR);
		w->done = true;
	}
	return true;
}

static void pump(struct way *a, struct way *b)
{
	while (!a->done || !b->done) {
		struct pollfd p[2] = {{.fd = a->from}, {.fd = b->from}};
		p[0].events = (short)((!a->end && a->at == a->n ? POLLIN : 0) | (b->at < b->n ? POLLOUT : 0));
		p[1].events = (short)((!b->end && b->at == b->n ? POLLIN : 0) | (a->at < a->n ? POLLOUT : 0));
		/* of one that nothing is wanted of, a hang-up would be told again and again */
		for (int i = 0; i < 2; i++)
			if (!p[i].events)
				p[i].fd = -1;
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return;
		if (!move(a) || !move(b))
			return;
	}
}

/* Other users of this machine find the port as well: whose a connection is, the kernel tells. */
static bool is_ours(int fd)
{
	struct sockaddr_in us, peer;
	socklen_t n = sizeof us, m = sizeof peer;
	char line[256];
	unsigned from, from_port, to, to_port, uid;
	bool ours = false;
	FILE *f = fopen("/proc/net/tcp", "re");
	if (!f || getsockname(fd, (struct sockaddr *)&us, &n) || getpeername(fd, (struct sockaddr *)&peer, &m))
		goto out;
	/* sl local:port remote:port st tx:rx tr:when retrnsmt uid; the client's own end has its address first */
	while (!ours && fgets(line, sizeof line, f))
		ours = sscanf(line, " %*d: %x:%x %x:%x %*x %*s %*s %*x %u", &from, &from_port, &to, &to_port, &uid) ==
			       5 &&
		       from == peer.sin_addr.s_addr && from_port == ntohs(peer.sin_port) && to == us.sin_addr.s_addr &&
		       to_port == ntohs(us.sin_port) && (uid == geteuid() || !uid);
out:
	if (f)
		fclose(f);
	return ours;
}

static void *serve(void *arg)
{
	struct link *l = arg;
	int out = !l->relay->shared || is_ours(l->fd) ? net_dial(l->relay->note) : -EPERM;
	if (out >= 0) {
		l->ways[0].from = l->ways[1].to = l->fd;
		l->ways[0].to = l->ways[1].from = out;
		pump(&l->ways[0], &l->ways[1]);
	}
	fd_close(&out);
	fd_close(&l->fd);
	sem_post(&l->relay->free);
	free(l);
	return NULL;
}

void relay_pair(int a, int b)
{
	struct way *ways = xcalloc(2, sizeof *ways);
	ways[0].from = ways[1].to = a;
	ways[0].to = ways[1].from = b;
	pump(&ways[0], &ways[1]);
	free(ways);
}

static void begin(struct relay *r, int fd)
{
	struct link *l = xcalloc(1, sizeof *l);
	pthread_attr_t attr;
	pthread_t thread;
	int on = 1;
	l->relay = r;
	l->fd = fd;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, serve, l)) {
		close(fd);
		free(l);
		sem_post(&r->free);
	}
	pthread_attr_destroy(&attr);
}

static void *accept_all(void *arg)
{
	struct relay *r = arg;
	for (;;) {
		while (sem_wait(&r->free))
			;
		int fd = -1;
		while ((fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
			if (errno != EINTR && errno != ECONNABORTED)
				clock_sleep_ms(AGAIN_MS);
		begin(r, fd);
	}
	return NULL;
}

int relay_serve(int listener, bool shared, const char *note, struct err *err)
{
	pthread_t thread;
	struct relay *r = xcalloc(1, sizeof *r);
	sem_init(&r->free, 0, RELAY_CONNECTIONS);
	r->note = xstrdup(note);
	r->listener = listener;
	r->shared = shared;
	int rc = pthread_create(&thread, NULL, accept_all, r);
	if (rc) {
		close(r->listener);
		free(r->note);
		free(r);
		return err_sys(err, rc, "cannot start a thread");
	}
	pthread_detach(thread);
	return 0;
}

int relay_start(const char *note, struct err *err)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	CLEAN_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) || listen(fd, 128) ||
	    getsockname(fd, (struct sockaddr *)&a, &n))
		return err_sys(err, errno, "cannot listen for the gateway's clients");
	int rc = relay_serve(take_fd(&fd), true, note, err);
	return rc ? rc : ntohs(a.sin_port);
}
