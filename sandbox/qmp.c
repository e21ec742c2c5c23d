/* QMP client on the keeper's only thread. Holds at most MESSAGE_MAX bytes of a message that has not ended; must never
 * block and never believe an answer whose id it did not give. */
#include "qmp.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/list.h"
#include "backend/base/mem.h"

#define MESSAGE_MAX (1 << 20)

struct pending {
	struct list link;
	int64_t id;
	qmp_done *done;
	void *arg;
};

struct qmp {
	int fd;
	bool greeted, ready;
	int64_t next_id;
	struct qmp_ops ops;
	void *arg;
	struct buf in, out, held; /* held: commands that wait for the negotiation */
	struct list pending;
	int pass; /* descriptor that goes with the command that begins at pass_at in out; -1: none */
	size_t pass_at;
};

struct qmp *qmp_new(int fd, const struct qmp_ops *ops, void *arg)
{
	struct qmp *q = xcalloc(1, sizeof *q);
	q->fd = fd;
	q->pass = -1;
	q->ops = *ops;
	q->arg = arg;
	list_init(&q->pending);
	fd_nonblock(fd);
	return q;
}

static void forget(struct qmp *q, const struct err *why)
{
	list_each_safe (at, &q->pending) {
		struct pending *p = list_entry(at, struct pending, link);
		list_remove(at);
		if (why && p->done)
			p->done(p->arg, NULL, why);
		free(p);
	}
}

void qmp_free(struct qmp *q)
{
	if (!q)
		return;
	forget(q, NULL);
	fd_close(&q->fd);
	fd_close(&q->pass);
	buf_release(&q->in);
	buf_release(&q->out);
	buf_release(&q->held);
	free(q);
}

int qmp_fd(const struct qmp *q)
{
	return q->fd;
}

short qmp_events(const struct qmp *q)
{
	return (short)(POLLIN | (q->out.n ? POLLOUT : 0));
}

bool qmp_ready(const struct qmp *q)
{
	return q->ready && q->fd >= 0;
}

static void broken(struct qmp *q, int code, const char *words)
{
	if (q->fd < 0)
		return;
	struct err why = ERR_INIT;
	err_set(&why, code, "%s", words);
	fd_close(&q->fd);
	buf_reset(&q->out);
	forget(q, &why);
	if (q->ops.closed)
		q->ops.closed(q->arg, &why);
}

/* What is before a command with a descriptor goes first, so that the descriptor comes with its first byte. */
static ssize_t send_some(struct qmp *q)
{
	if (q->pass < 0)
		return send(q->fd, q->out.p, q->out.n, MSG_NOSIGNAL);
	if (q->pass_at) {
		ssize_t n = send(q->fd, q->out.p, q->pass_at, MSG_NOSIGNAL);
		q->pass_at -= n > 0 ? (size_t)n : 0;
		return n;
	}
	ssize_t n = unix_send(q->fd, q->out.p, q->out.n, q->pass, 0);
	if (n < 0)
		errno = (int)-n;
	if (n > 0)
		fd_close(&q->pass);
	return n;
}

static void flush(struct qmp *q)
{
	while (q->out.n && q->fd >= 0) {
		ssize_t n = send_some(q);
		if (n > 0) {
			buf_drop(&q->out, (size_t)n);
		} else if (n < 0 && errno == EINTR) {
			continue;
		} else {
			if (errno != EAGAIN)
				broken(q, EPIPE, "QEMU closed its control connection");
			return;
		}
	}
}

/* Written without a flush: a broken connection must be found in qmp_work(), not inside a caller's call. */
static void put_command(struct qmp *q, struct buf *to, const char *command, const char *arguments, qmp_done *done,
			void *done_arg)
{
	struct pending *p = xcalloc(1, sizeof *p);
	*p = (struct pending){.id = ++q->next_id, .done = done, .arg = done_arg};
	list_append(&q->pending, &p->link);
	buf_adds(to, "{\"execute\":");
	json_quote(to, command, strlen(command));
	if (arguments)
		buf_addf(to, ",\"arguments\":%s", arguments);
	buf_addf(to, ",\"id\":%lld}\n", (long long)p->id);
}

void qmp_execute(struct qmp *q, const char *command, const char *arguments, qmp_done *done, void *done_arg)
{
	if (q->fd < 0) {
		struct err why = ERR_INIT;
		err_set(&why, ENOTCONN, "QEMU's control connection is closed");
		if (done)
			done(done_arg, NULL, &why);
		return;
	}
	put_command(q, q->ready ? &q->out : &q->held, command, arguments, done, done_arg);
}

int qmp_pass(struct qmp *q, const char *name, int fd, qmp_done *done, void *done_arg)
{
	if (!qmp_ready(q))
		return -ENOTCONN;
	if (q->pass >= 0)
		return -EBUSY;
	q->pass = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (q->pass < 0)
		return -errno;
	CLEAN_FREE char *arguments = xasprintf("{\"fdname\":\"%s\"}", name);
	q->pass_at = q->out.n;
	put_command(q, &q->out, "getfd", arguments, done, done_arg);
	return 0;
}

static void negotiated(void *arg, const cJSON *result, const struct err *err)
{
	struct qmp *q = arg;
	if (err) {
		broken(q, EPROTO, "QEMU refused to negotiate its control connection");
		return;
	}
	q->ready = true;
	buf_add(&q->out, q->held.p, q->held.n);
	buf_release(&q->held);
}

static void answer(struct qmp *q, const cJSON *message)
{
	int64_t id;
	const cJSON *result = json_get(message, "return"), *error = json_get(message, "error");
	if (!json_int(message, "id", &id)) {
		broken(q, EPROTO, "QEMU answered without an id on its control connection");
		return;
	}
	list_each_safe (at, &q->pending) {
		struct pending *p = list_entry(at, struct pending, link);
		if (p->id != id)
			continue;
		list_remove(at);
		struct err why = ERR_INIT;
		const char *words = json_str(error, "desc");
		if (!result)
			err_set(&why, EIO, "%s", words ? words : "QEMU refused the command");
		if (p->done)
			p->done(p->arg, result, result ? NULL : &why);
		free(p);
		return;
	}
	broken(q, EPROTO, "QEMU answered a command that was not given");
}

static void message(struct qmp *q, const char *p, size_t n)
{
	CLEAN_JSON cJSON *m = json_parse(p, n, NULL);
	if (!cJSON_IsObject(m)) {
		broken(q, EPROTO, "QEMU sent something that is no JSON object on its control connection");
		return;
	}
	const char *event = json_str(m, "event");
	if (json_get(m, "QMP") && !q->greeted) {
		q->greeted = true;
		put_command(q, &q->out, "qmp_capabilities", NULL, negotiated, q);
	} else if (event) {
		if (q->ops.event)
			q->ops.event(q->arg, event, json_get(m, "data"));
	} else {
		answer(q, m);
	}
}

static void split(struct qmp *q)
{
	char *end;
	while (q->fd >= 0 && q->in.n && (end = memchr(q->in.p, '\n', q->in.n))) {
		size_t n = (size_t)(end - q->in.p), text = n;
		if (text && q->in.p[text - 1] == '\r')
			text--;
		if (text)
			message(q, q->in.p, text);
		buf_drop(&q->in, n + 1);
	}
	if (q->in.n > MESSAGE_MAX)
		broken(q, EPROTO, "QEMU sent an endless message on its control connection");
}

void qmp_work(struct qmp *q)
{
	for (int turns = 0; q->fd >= 0 && turns < 16; turns++) {
		buf_reserve(&q->in, 16384);
		ssize_t n = recv(q->fd, q->in.p + q->in.n, 16384, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			broken(q, EPIPE, "QEMU closed its control connection");
			return;
		}
		q->in.n += (size_t)n;
		q->in.p[q->in.n] = 0;
		split(q);
	}
	flush(q);
}
