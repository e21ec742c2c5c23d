/* One connection after the other, each closed after its answer. A request for the model claude-slow gets a stream that
 * does not end by itself. */
#include "doctor_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/http.h"
#include "backend/base/mem.h"

#define BODY_MAX  (1 << 20)
#define WAIT_MS	  20000
#define STREAM_MS 30000 /* longer than the doctor waits for anything */
#define CHUNK	  "10\r\ndata: {\"n\":1}\n\n\r\n"

static bool wait_for(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, ms) > 0;
}

static void answer(struct peer *p, int fd, const struct http_reader *r)
{
	CLEAN_BUF struct buf body = BUF_INIT, out = BUF_INIT;
	char key[200], bearer[8];
	bool whole = http_field_copy(r, "x-api-key", key, sizeof key) && !strcmp(key, p->key);
	if (whole && !http_field_copy(r, "authorization", bearer, sizeof bearer) && !http_count(r, "authorization"))
		atomic_fetch_add(&p->with_key, 1);
	if (strstr(buf_str(&r->body), "claude-slow")) {
		buf_adds(&out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
			       "chunked\r\n\r\n" CHUNK);
		fd_write_full(fd, out.p, out.n);
		char c;
		if (wait_for(fd, STREAM_MS) && recv(fd, &c, 1, 0) <= 0)
			atomic_fetch_add(&p->cut, 1);
		return;
	}
	buf_addf(&body,
		 "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"your key is %s\"}],\"usage\":{"
		 "\"input_tokens\":1,\"output_tokens\":1}}",
		 p->key);
	buf_addf(
		&out,
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
		body.n);
	buf_add(&out, body.p, body.n);
	fd_write_full(fd, out.p, out.n);
}

static void serve(struct peer *p, int fd)
{
	struct http_reader r;
	char piece[4096];
	size_t used;
	ssize_t n;
	http_init(&r, BODY_MAX, 0);
	while (r.stage != HTTP_DONE && wait_for(fd, WAIT_MS) && (n = recv(fd, piece, sizeof piece, 0)) > 0)
		if (http_feed(&r, piece, (size_t)n, &used))
			break;
	if (r.stage == HTTP_DONE) {
		atomic_fetch_add(&p->requests, 1);
		answer(p, fd, &r);
	}
	http_release(&r);
}

static void *peer_main(void *arg)
{
	struct peer *p = arg;
	for (;;) {
		struct pollfd f[] = {{.fd = p->fd, .events = POLLIN}, {.fd = p->stop, .events = POLLIN}};
		if (poll(f, 2, -1) < 0 && errno != EINTR)
			return NULL;
		if (f[1].revents)
			return NULL;
		CLEAN_FD int fd = f[0].revents ? accept4(p->fd, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (fd >= 0)
			serve(p, fd);
	}
}

int peer_start(struct peer *p, const char *key, struct err *err)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	*p = (struct peer){
		.key = key, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .stop = eventfd(0, EFD_CLOEXEC)};
	int rc = p->fd < 0 || p->stop < 0 || bind(p->fd, (struct sockaddr *)&a, sizeof a) || listen(p->fd, 16) ||
				 getsockname(p->fd, (struct sockaddr *)&a, &n)
			 ? errno
			 : pthread_create(&p->thread, NULL, peer_main, p);
	p->port = ntohs(a.sin_port);
	if (!rc)
		return 0;
	fd_close(&p->fd);
	fd_close(&p->stop);
	return err_sys(err, rc, "cannot listen on loopback");
}

void peer_stop(struct peer *p)
{
	uint64_t one = 1;
	if (p->fd < 0)
		return;
	if (write(p->stop, &one, sizeof one) == sizeof one)
		pthread_join(p->thread, NULL);
	fd_close(&p->fd);
	fd_close(&p->stop);
}
