/* One connection to the tool daemon. Runs on the connection's own thread. Must never believe a malformed frame: it ends
 * the connection, and with it nothing else: jobs go on, a file that was being replaced stays the old one. */
#include "conn.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "relay.h"

#define HELLO_LINE "tool\n"

static void flush(struct conn *c)
{
	if (fd_write_full(c->fd, c->out.b.p, c->out.b.n))
		c->ended = true;
	buf_reset(&c->out.b);
}

static void pong(struct conn *c)
{
	struct wire_out o = {0};
	wire_begin(&o, WIRE_PONG, 0);
	wire_end(&o, NULL, 0);
	if (fd_write_full(c->fd, o.b.p, o.b.n))
		c->ended = true;
	wire_out_release(&o);
}

/* Reads what is there into the reader. False: nothing now (only with MSG_DONTWAIT), or the peer has left. */
static bool receive(struct conn *c, int flags)
{
	char room[65536];
	ssize_t n = recv(c->fd, room, sizeof room, flags);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return false;
	if (n <= 0) {
		c->ended = true;
		return false;
	}
	wire_feed(&c->in, room, (size_t)n);
	return true;
}

static void answer(struct conn *c, const struct wire_msg *m)
{
	struct err err = ERR_INIT;
	uint32_t id = m->id;
	buf_reset(&c->data);
	wire_begin(&c->out, WIRE_RESULT, id);
	int rc = ops_run(c, m, &err);
	if (rc) {
		buf_reset(&c->out.b);
		wire_begin(&c->out, WIRE_ERROR, id);
		wire_add_num(&c->out, WIRE_CODE, (uint64_t)-rc);
		wire_add_text(&c->out, WIRE_TEXT, err.text);
		buf_reset(&c->data);
	}
	wire_end(&c->out, c->data.p, c->data.n);
	flush(c);
}

static void on_frame(struct conn *c, const struct wire_msg *m)
{
	switch (m->type) {
	case WIRE_REQUEST: answer(c, m); break;
	case WIRE_PING: pong(c); break;
	case WIRE_CANCEL: break; /* its request has been answered meanwhile */
	default: c->ended = true; break;
	}
}

/* While a POLL waits only ping, pong and cancel may come. False: stop waiting. */
static bool while_waiting(struct conn *c, uint32_t id)
{
	struct wire_msg m;
	int rc;
	if (!receive(c, MSG_DONTWAIT))
		return !c->ended;
	while ((rc = wire_next(&c->in, &m)) > 0) {
		if (m.type == WIRE_CANCEL && m.id == id)
			return false;
		if (m.type == WIRE_PING)
			pong(c);
		else if (m.type != WIRE_CANCEL)
			c->ended = true;
	}
	c->ended |= rc < 0;
	return !c->ended;
}

bool conn_wait(struct conn *c, uint32_t id, int event, int ms)
{
	int64_t end = clock_mono_ms() + ms;
	for (;;) {
		int64_t left = end - clock_mono_ms();
		struct pollfd p[2] = {{.fd = event, .events = POLLIN}, {.fd = c->fd, .events = POLLIN}};
		if (left <= 0)
			return true;
		int n = poll(p, 2, (int)left);
		if (n < 0 && errno != EINTR)
			return false;
		if (n > 0 && p[1].revents && !while_waiting(c, id))
			return false;
		if (n > 0 && p[0].revents)
			return true;
	}
}

/* A server of its own for this connection, which is ssh's from here to its end. The answer comes first. */
static void serve_ssh(struct conn *c)
{
	static const char no[] = "error there is no ssh server in there, or it has no key yet\n";
	CLEAN_FD int server = c->config->ssh(c->jobs);
	if (server < 0)
		fd_write_full(c->fd, no, sizeof no - 1);
	else if (!fd_write_full(c->fd, "ok\n", 3))
		relay_pair(c->fd, server);
}

/* The line that names the service; later bytes belong to the frames. */
static bool greeted(struct conn *c)
{
	char line[sizeof HELLO_LINE - 1];
	if (fd_read_full(c->fd, line, sizeof line))
		return false;
	if (!memcmp(line, HELLO_LINE, sizeof line))
		return !fd_write_full(c->fd, "ok\n", 3);
	static const char no[] = "error only \"tool\" is served here\n";
	fd_write_full(c->fd, no, sizeof no - 1);
	return false;
}

/* True: frames follow. */
static bool begun(struct conn *c, enum tools_how how)
{
	switch (how) {
	case TOOLS_LINE: return greeted(c);
	case TOOLS_GREET: return !fd_write_full(c->fd, "ok\n", 3);
	case TOOLS_SSH: serve_ssh(c); return false;
	default: return true;
	}
}

void conn_serve(struct conn *c, enum tools_how how)
{
	c->ended = !begun(c, how);
	while (!c->ended && !c->shutdown) {
		struct wire_msg m;
		int rc = wire_next(&c->in, &m);
		if (rc > 0)
			on_frame(c, &m);
		else if (rc < 0)
			c->ended = true;
		else
			receive(c, 0);
	}
	put_abort(&c->put);
	wire_reader_release(&c->in);
	wire_out_release(&c->out);
	buf_release(&c->data);
	fd_close(&c->fd);
}
