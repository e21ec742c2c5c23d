/* What the daemon asks of the gateway, on a socket that only the same user may use: `VERB TAB ARG... TAB LENGTH LF` and
 * that many bytes; back come `CODE LENGTH LF` and bytes. A key passes through here once: every buffer is wiped when it
 * is freed. */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "control.h"

static void control_destroy(struct source *s)
{
	struct control *c = (struct control *)s;
	if (c->waiting) { /* a record still points here; control_answer() frees it */
		c->closed = true;
		return;
	}
	OPENSSL_cleanse(c->line, sizeof c->line);
	if (c->body)
		OPENSSL_cleanse(c->body, c->body_n);
	free(c->body);
	buf_release(&c->out);
	free(c);
}

static void control_close(struct control *c)
{
	if (!c->source.ready)
		return;
	list_remove(&c->link);
	source_free(c->gw, &c->source);
}

static void flush(struct control *c)
{
	while (c->out_at < c->out.n) {
		ssize_t n = send(c->source.fd, c->out.p + c->out_at, c->out.n - c->out_at, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			control_close(c);
			return;
		}
		c->out_at += (size_t)n;
	}
	buf_reset(&c->out);
	c->out_at = 0;
}

static void reply(struct control *c, int rc, const struct buf *out, const struct err *err)
{
	const char *text = rc ? err->text : out ? buf_str(out) : "";
	size_t n = rc ? strlen(text) : out ? out->n : 0;
	buf_addf(&c->out, "%d %zu\n", rc, n);
	buf_add(&c->out, text, n);
	OPENSSL_cleanse(c->line, sizeof c->line);
	if (c->body)
		OPENSSL_cleanse(c->body, c->body_n);
	free(c->body);
	c->body = NULL;
	c->line_n = 0;
	flush(c);
}

static void control_ready(struct source *s, uint32_t events);

void control_answer(struct control *c, int rc, const struct buf *out, const struct err *err)
{
	c->waiting = false;
	if (c->closed) {
		control_destroy(&c->source);
	} else {
		reply(c, rc, out, err);
		control_ready(&c->source, 0); /* what came meanwhile */
	}
}

/* The connection stays, and is not this one's any more. */
static int on_attach(struct control *c, struct buf *out, struct err *err)
{
	epoll_ctl(c->gw->epoll, EPOLL_CTL_DEL, c->source.fd, NULL);
	attach_new(c->gw, take_fd(&c->source.fd));
	control_close(c);
	return 0;
}

static int on_stop(struct control *c, struct buf *out, struct err *err)
{
	c->gw->stopping = true;
	c->waiting = true; /* the end of the connection, which is that of the process, is the answer */
	return 0;
}

static const struct {
	const char *verb;
	int args;
	int (*run)(struct control *c, struct buf *out, struct err *err);
} verbs[] = {
	{"hello", 0, on_hello},
	{"token-mint", 5, on_mint},
	{"token-revoke", 2, on_revoke},
	{"network", 2, on_network},
	{"key-set", 1, on_key},
	{"key-list", 0, on_keys},
	{"policy-get", 0, on_policy_get},
	{"policy-set", 0, on_policy_set},
	{"status", 0, on_status},
	{"head", 0, on_head},
	{"tokens", 0, on_tokens},
	{"ledger", 2, on_ledger},
	{"activity", 1, on_activity},
	{"stop", 0, on_stop},
	{"options", 2, on_options},
	{"attach", 0, on_attach},
	{"life", 2, on_life},
	{"usage", 5, on_usage},
};

static void run(struct control *c)
{
	struct err err = ERR_INIT;
	CLEAN_BUF struct buf out = BUF_INIT;
	int rc = err_set(&err, ENOSYS,
			 "the gateway knows no such verb, or not with so many words: it is of another version");
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!strcmp(verbs[i].verb, c->args[0]) && verbs[i].args == c->n_args - 1) {
			err = ERR_INIT;
			rc = verbs[i].run(c, &out, &err);
		}
	if (!c->waiting && c->source.ready)
		reply(c, rc, &out, &err);
}

/* ---- reading ---- */

/* The line is whole: words, and the length of what follows as the last one. */
static bool split(struct control *c)
{
	char *rest = c->line;
	c->n_args = 0;
	for (char *w; c->n_args < CONTROL_ARGS && (w = strsep(&rest, "\t"));)
		c->args[c->n_args++] = w;
	if (rest || c->n_args < 2)
		return false;
	char *end, *length = c->args[--c->n_args];
	unsigned long n = strtoul(length, &end, 10);
	if (*end || !*length || n > CONTROL_BODY)
		return false;
	c->body = xmalloc(n + 1);
	c->body_n = n;
	c->body_at = 0;
	c->body[n] = 0;
	return true;
}

/* The line byte by byte, so that no byte of a key lands in it. */
static ssize_t read_some(struct control *c)
{
	if (c->body)
		return recv(c->source.fd, c->body + c->body_at, c->body_n - c->body_at, 0);
	ssize_t n = recv(c->source.fd, c->line + c->line_n, 1, 0);
	if (n == 1 && c->line_n == CONTROL_LINE - 1)
		return 0;
	return n;
}

static void control_ready(struct source *s, uint32_t events)
{
	struct control *c = (struct control *)s;
	if (events & EPOLLOUT)
		flush(c);
	while (c->source.ready && !c->waiting) {
		if (c->body && c->body_at == c->body_n) {
			run(c);
			continue;
		}
		ssize_t n = read_some(c);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			control_close(c);
			return;
		}
		if (c->body) {
			c->body_at += (size_t)n;
		} else if (c->line[c->line_n] == '\n') {
			c->line[c->line_n] = 0;
			if (!split(c)) {
				control_close(c);
				return;
			}
		} else {
			c->line_n++;
		}
	}
	if (c->source.ready && events & (EPOLLHUP | EPOLLERR))
		control_close(c);
}

void control_accept(struct gw *g, int fd)
{
	uid_t uid;
	pid_t pid;
	if (unix_peer(fd, &uid, &pid) || (uid != geteuid() && uid != 0)) {
		log_warn("user %d may not speak to the gateway", (int)uid);
		close(fd);
		return;
	}
	struct control *c = xcalloc(1, sizeof *c);
	c->source = (struct source){.fd = fd, .ready = control_ready, .destroy = control_destroy};
	c->gw = g;
	list_append(&g->controls, &c->link);
	if (source_add(g, &c->source, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET))
		control_close(c);
}

void control_release(struct gw *g)
{
	list_each_safe (i, &g->controls) {
		struct control *c = list_entry(i, struct control, link);
		c->waiting = false;
		control_close(c);
	}
}
