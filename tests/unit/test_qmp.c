/* The QMP client against a scripted peer on the other end of a socket pair. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/qmp.h"

struct side {
	struct qmp *q;
	int peer;
	struct buf events;  /* "NAME:reason " */
	struct buf answers; /* "ok " or "error WORDS " */
	char closed[600];
};

static void on_event(void *arg, const char *name, const cJSON *data)
{
	struct side *s = arg;
	const char *reason = json_str(data, "reason");
	buf_addf(&s->events, "%s:%s ", name, reason ? reason : "-");
}

static void on_closed(void *arg, const struct err *why)
{
	struct side *s = arg;
	snprintf(s->closed, sizeof s->closed, "%s", why->text);
}

static void on_answer(void *arg, const cJSON *result, const struct err *err)
{
	struct side *s = arg;
	const char *status = json_str(result, "status");
	if (err)
		buf_addf(&s->answers, "error %s ", err->text);
	else
		buf_addf(&s->answers, "ok %s ", status ? status : "-");
}

static void begin(struct side *s)
{
	static const struct qmp_ops ops = {on_event, on_closed};
	int pair[2];
	*s = (struct side){.peer = -1};
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	s->q = qmp_new(pair[0], &ops, s);
	s->peer = pair[1];
	fd_nonblock(s->peer);
}

static void end(struct side *s)
{
	qmp_free(s->q);
	fd_close(&s->peer);
	buf_release(&s->events);
	buf_release(&s->answers);
}

static void send_text(struct side *s, const char *text)
{
	CHECK_INT(fd_write_full(s->peer, text, strlen(text)), 0);
	qmp_work(s->q);
}

/* What the client has written so far; static room. */
static const char *got(struct side *s)
{
	static char room[8192];
	qmp_work(s->q);
	ssize_t n = read(s->peer, room, sizeof room - 1);
	room[n > 0 ? n : 0] = 0;
	return room;
}

#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": [\"oob\"]}}\r\n"

static void negotiate(struct side *s)
{
	send_text(s, GREETING);
	CHECK_STR(got(s), "{\"execute\":\"qmp_capabilities\",\"id\":1}\n");
	send_text(s, "{\"return\": {}, \"id\": 1}\r\n");
	CHECK(qmp_ready(s->q));
}

TEST(negotiates_then_sends)
{
	struct side s;
	begin(&s);
	qmp_execute(s.q, "query-status", NULL, on_answer, &s); /* before the greeting: waits */
	CHECK_STR(got(&s), "");
	CHECK(!qmp_ready(s.q));
	send_text(&s, GREETING);
	CHECK_STR(got(&s), "{\"execute\":\"qmp_capabilities\",\"id\":2}\n");
	send_text(&s, "{\"return\": {}, \"id\": 2}\r\n");
	CHECK_STR(got(&s), "{\"execute\":\"query-status\",\"id\":1}\n");
	send_text(&s, "{\"return\": {\"status\": \"running\"}, \"id\": 1}\r\n");
	CHECK_STR(buf_str(&s.answers), "ok running ");
	end(&s);
}

TEST(answers_and_events_in_pieces)
{
	struct side s;
	begin(&s);
	negotiate(&s);
	qmp_execute(s.q, "cont", NULL, on_answer, &s);
	qmp_execute(s.q, "device_add", "{\"id\":\"x\"}", on_answer, &s);
	CHECK_STR(got(&s), "{\"execute\":\"cont\",\"id\":2}\n{\"execute\":\"device_add\",\"arguments\":{\"id\":\"x\"},"
			   "\"id\":3}\n");
	const char *text =
		"{\"event\": \"RESUME\", \"timestamp\": {\"seconds\": 1}}\r\n"
		"{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such device\"}, \"id\": 3}\r\n"
		"{\"event\": \"SHUTDOWN\", \"data\": {\"reason\": \"guest-reset\"}}\r\n{\"return\": {}, \"id\": 2}\r\n";
	for (const char *p = text; *p; p++) {
		CHECK_INT(write(s.peer, p, 1), 1);
		qmp_work(s.q);
	}
	CHECK_STR(buf_str(&s.events), "RESUME:- SHUTDOWN:guest-reset ");
	CHECK_STR(buf_str(&s.answers), "error no such device ok - ");
	CHECK(qmp_ready(s.q));
	end(&s);
}

TEST(end_answers_everything)
{
	struct side s;
	begin(&s);
	negotiate(&s);
	qmp_execute(s.q, "quit", NULL, on_answer, &s);
	qmp_work(s.q);
	fd_close(&s.peer);
	qmp_work(s.q);
	CHECK_STR(buf_str(&s.answers), "error QEMU closed its control connection ");
	CHECK_STR(s.closed, "QEMU closed its control connection");
	CHECK_INT(qmp_fd(s.q), -1);
	qmp_execute(s.q, "cont", NULL, on_answer, &s);
	CHECK(buf_ends(&s.answers, "error QEMU's control connection is closed "));
	qmp_work(s.q); /* harmless */
	end(&s);
}

/* A descriptor comes once, at the latest with the first byte of its command. */
TEST(passes_a_descriptor)
{
	struct side s;
	char room[65536] = {0};
	size_t n = 0;
	int fds = 0;
	begin(&s);
	CHECK_INT(qmp_pass(s.q, "state", s.peer, on_answer, &s), -ENOTCONN);
	negotiate(&s);
	for (int i = 0; i < 20; i++)
		qmp_execute(s.q, "query-status", NULL, NULL, NULL);
	CHECK_INT(qmp_pass(s.q, "state", s.peer, on_answer, &s), 0);
	CHECK_INT(qmp_pass(s.q, "other", s.peer, on_answer, &s), -EBUSY);
	qmp_execute(s.q, "cont", NULL, NULL, NULL);
	for (qmp_work(s.q); n < sizeof room - 1;) {
		union {
			struct cmsghdr head;
			char room[CMSG_SPACE(sizeof(int))];
		} control;
		struct iovec bytes = {room + n, sizeof room - 1 - n};
		struct msghdr m = {
			.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
		ssize_t r = recvmsg(s.peer, &m, MSG_CMSG_CLOEXEC);
		if (r <= 0)
			break;
		if (m.msg_controllen) {
			int fd;
			memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
			CHECK(strstr(room + n, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"state\"}") != NULL);
			CHECK(fd >= 0);
			close(fd);
			fds++;
		}
		n += (size_t)r;
	}
	room[n] = 0;
	CHECK_INT(fds, 1);
	CHECK(strstr(room, "getfd") < strstr(room, "cont"));
	CHECK_INT(qmp_pass(s.q, "again", s.peer, on_answer, &s), 0);
	end(&s);
}

TEST(breaks_on_nonsense)
{
	static const char *const bad[] = {"hello\n", "[1]\n", "{\"return\": {}, \"id\": 99}\n", "{\"return\": {}}\n",
					  "{\"return\": {}, \"id\": 1, \"id\": 1}\n"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct side s;
		begin(&s);
		negotiate(&s);
		send_text(&s, bad[i]);
		CHECK_INT(qmp_fd(s.q), -1);
		CHECK(s.closed[0] != 0);
		end(&s);
	}
}

TEST(endless_message_breaks)
{
	struct side s;
	begin(&s);
	negotiate(&s);
	char room[16384];
	memset(room, 'x', sizeof room);
	for (int i = 0; i < 200 && qmp_fd(s.q) >= 0; i++) {
		ssize_t n = send(s.peer, room, sizeof room, MSG_NOSIGNAL);
		(void)n;
		qmp_work(s.q);
	}
	CHECK_INT(qmp_fd(s.q), -1);
	CHECK(strstr(s.closed, "endless") != NULL);
	end(&s);
}

CHECK_MAIN()
