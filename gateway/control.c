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

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "gw.h"

#define LINE_MAX_BYTES 2048
#define BODY_MAX       (1 << 20)
#define ARGS	       8

struct control {
	struct source source;
	struct gw *gw;
	struct list link;
	char line[LINE_MAX_BYTES];
	size_t line_n;
	char *args[ARGS];
	int n_args;
	char *body; /* NULL while the line is read */
	size_t body_n, body_at;
	struct buf out;
	size_t out_at;
	bool waiting; /* for the ledger */
	bool closed;
};

static void control_destroy(struct source *s)
{
	struct control *c = (struct control *)s;
	if (c->waiting) { /* a record still points here; answer() frees it */
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

/* ---- tokens: their changes are in the ledger before they are told ---- */

struct change {
	struct control *control;
	struct token *token;
	char text[TOKEN_TEXT];
	bool drop;
};

static int write_token(sqlite3 *db, struct ledger_record *r, struct err *err)
{
	struct change *k = r->arg;
	return k->drop ? token_drop(db, k->token->hash, err) : token_save(db, k->token, err);
}

static void drop_listener(struct gw *g, struct token *t)
{
	list_each_safe (i, &g->listeners) {
		struct listener *l = list_entry(i, struct listener, link);
		if (l->token == t)
			listener_close(g, l);
	}
}

/* Streams end at once, and not as if they were complete. */
static void cut_streams(struct gw *g, struct token *t)
{
	list_each_safe (i, &g->calls) {
		struct call *k = list_entry(i, struct call, link);
		if (k->token == t)
			forward_cut(k, "revoked");
	}
	list_each_safe (j, &g->tunnels) {
		struct tunnel *u = egress_of(j);
		if (egress_token(u) == t)
			egress_cut(u, "revoked");
	}
}

int sandbox_listen(struct gw *g, struct token *t, struct err *err)
{
	return t->kind == TOKEN_SANDBOX ? listen_unix(g, LISTEN_SANDBOX, t->socket, t, NULL, err) : 0;
}

static void token_written(struct ledger_record *r)
{
	struct change *k = r->arg;
	struct control *c = k->control;
	int rc = r->rc;
	struct err err = r->err;
	CLEAN_BUF struct buf out = BUF_INIT;
	if (!rc && !k->drop) {
		buf_adds(&out, k->text);
		if (!*k->text)
			rc = 0; /* a change of one that is there */
		else if (k->token->revoked)
			rc = err_set(&err, ECANCELED, "the token was revoked meanwhile");
		else
			rc = sandbox_listen(c->gw, k->token, &err);
	}
	if (rc && *k->text && !k->token->revoked)
		token_revoke(&c->gw->tokens, k->token);
	c->waiting = false;
	if (c->closed) {
		control_destroy(&c->source);
	} else {
		reply(c, rc, &out, &err);
		control_ready(&c->source, 0); /* what came meanwhile */
	}
	if (out.p)
		OPENSSL_cleanse(out.p, out.n);
	OPENSSL_cleanse(k->text, sizeof k->text);
	token_put(k->token);
	free(k);
	ledger_record_free(r);
}

static void record_token(struct control *c, struct token *t, bool drop, const char *text)
{
	struct change *k = xcalloc(1, sizeof *k);
	struct ledger_record *r = ledger_record_new("event");
	*k = (struct change){.control = c, .token = token_get(t), .drop = drop};
	if (text)
		memcpy(k->text, text, TOKEN_TEXT);
	ledger_text(r, "what", drop ? "token revoked" : text ? "token made" : "network changed");
	record_who(r, t);
	r->checkpoint = drop;
	r->arg = k;
	r->also = write_token;
	r->done = token_written;
	c->waiting = true;
	record_now(c->gw, r);
}

static void lone_written(struct ledger_record *r)
{
	struct change *k = r->arg;
	token_put(k->token);
	free(k);
	ledger_record_free(r);
}

/* The n-th of several: nobody waits for it but the last one's record, which comes after. */
static void revoke_one(struct control *c, struct token *t, bool last)
{
	struct gw *g = c->gw;
	token_get(t);
	token_revoke(&g->tokens, t);
	cut_streams(g, t);
	drop_listener(g, t);
	if (last) {
		record_token(c, t, true, NULL);
	} else {
		struct change *k = xcalloc(1, sizeof *k);
		struct ledger_record *r = ledger_record_new("event");
		*k = (struct change){.token = token_get(t), .drop = true};
		ledger_text(r, "what", "token revoked");
		record_who(r, t);
		r->arg = k;
		r->also = write_token;
		r->done = lone_written;
		record_now(g, r);
	}
	token_put(t);
}

static struct token *other(struct gw *g, const char *session, int kind, const struct token *but)
{
	list_each (i, &g->tokens.all) {
		struct token *t = list_entry(i, struct token, link);
		if (t != but && !strcmp(t->session, session) && (kind < 0 || (int)t->kind == kind))
			return t;
	}
	return NULL;
}

static int kind_of(const char *word)
{
	return !strcmp(word, "engine") ? TOKEN_ENGINE : !strcmp(word, "sandbox") ? TOKEN_SANDBOX : -1;
}

static const char *const networks[] = {
	[EGRESS_NONE] = "none", [EGRESS_REGISTRIES] = "registries", [EGRESS_INTERNET] = "internet"};

static int network_of(const char *word)
{
	for (size_t i = 0; i < ARRAY_LEN(networks); i++)
		if (!strcmp(word, networks[i]))
			return (int)i;
	return -1;
}

/* kind session project network socket */
static int on_mint(struct control *c, struct buf *out, struct err *err)
{
	struct gw *g = c->gw;
	int kind = kind_of(c->args[1]), network = network_of(c->args[4]);
	const char *session = c->args[2], *socket = *c->args[5] ? c->args[5] : NULL;
	char text[TOKEN_TEXT];
	if (kind < 0 || network < 0 || !*session || strlen(session) > 128 || strlen(c->args[3]) > 128)
		return err_set(err, EINVAL, "a token needs kind engine or sandbox, a session, a project and a network");
	if ((kind == TOKEN_SANDBOX) != (socket != NULL))
		return err_set(err, EINVAL, "a sandbox's token needs a socket, an engine's has none");
	for (struct token *t; (t = other(g, session, kind, NULL));)
		revoke_one(c, t, false);
	struct token *t =
		token_mint(&g->tokens, (enum token_kind)kind, session, c->args[3], (enum egress)network, socket, text);
	if (!t)
		return err_set(err, EIO, "no random numbers");
	record_token(c, t, false, text);
	OPENSSL_cleanse(text, sizeof text);
	return 0;
}

/* kind|all session */
static int on_revoke(struct control *c, struct buf *out, struct err *err)
{
	int kind = kind_of(c->args[1]);
	if (kind < 0 && strcmp(c->args[1], "all"))
		return err_set(err, EINVAL, "engine, sandbox or all");
	for (struct token *t; (t = other(c->gw, c->args[2], kind, NULL));)
		revoke_one(c, t, !other(c->gw, c->args[2], kind, t));
	return 0;
}

static int on_network(struct control *c, struct buf *out, struct err *err)
{
	int network = network_of(c->args[2]);
	struct token *last = NULL;
	if (network < 0)
		return err_set(err, EINVAL, "a network is none, registries or internet");
	list_each (i, &c->gw->tokens.all) {
		struct token *t = list_entry(i, struct token, link);
		if (strcmp(t->session, c->args[1]) || t->kind != TOKEN_SANDBOX)
			continue;
		t->network = (enum egress)network;
		last = t;
	}
	if (last)
		record_token(c, last, false, NULL);
	return 0;
}

/* ---- keys, policy ---- */

static int on_key(struct control *c, struct buf *out, struct err *err)
{
	int rc = key_set(c->gw->keys, c->args[1], c->body, c->body_n, err);
	OPENSSL_cleanse(c->body, c->body_n);
	if (rc)
		return rc;
	char f[KEY_TEXT] = "";
	struct ledger_record *r = ledger_record_new("event");
	ledger_text(r, "what", key_fingerprint(c->gw->keys, c->args[1], f) ? "key written" : "key removed");
	ledger_text(r, "key", c->args[1]);
	ledger_text(r, "fingerprint", f);
	r->done = ledger_record_free;
	record_now(c->gw, r);
	return 0;
}

static int on_keys(struct control *c, struct buf *out, struct err *err)
{
	key_list(c->gw->keys, out);
	return 0;
}

static int on_policy_get(struct control *c, struct buf *out, struct err *err)
{
	buf_adds(out, c->gw->policy->text);
	return 0;
}

/* Read as a whole, kept in its file, then swapped: requests that run keep the one they began with. */
static int on_policy_set(struct control *c, struct buf *out, struct err *err)
{
	struct policy *p = NULL;
	CLEAN_FREE char *path = xasprintf("%s/policy", c->gw->dir);
	int rc = policy_parse(c->body, c->body_n, &p, err);
	if (!rc)
		rc = file_write(path, c->body, c->body_n, 0600, err);
	if (rc) {
		policy_put(p);
		return rc;
	}
	policy_put(c->gw->policy);
	c->gw->policy = p;
	struct ledger_record *r = ledger_record_new("event");
	ledger_text(r, "what", "policy changed");
	ledger_int(r, "bytes", (int64_t)c->body_n);
	r->done = ledger_record_free;
	record_now(c->gw, r);
	return 0;
}

/* ---- what is going on ---- */

static int on_hello(struct control *c, struct buf *out, struct err *err)
{
	buf_addf(out, "%s %d\n", BERTHFS_VERSION, (int)getpid());
	return 0;
}

static int count(const struct list *l)
{
	int n = 0;
	list_each (i, l)
		n++;
	return n;
}

static int on_status(struct control *c, struct buf *out, struct err *err)
{
	struct gw *g = c->gw;
	struct ledger_head h;
	ledger_head(g->ledger, &h);
	buf_addf(out,
		 "pid %d\nversion %s\nage %lld\nserved %llu\ndenied %llu\nrunning %d\ntunnels %d\nconnections "
		 "%d\ntokens %d\n",
		 (int)getpid(), BERTHFS_VERSION, (long long)(clock_mono_ms() - g->started_ms) / 1000,
		 (unsigned long long)g->served, (unsigned long long)g->denied, count(&g->calls), count(&g->tunnels),
		 g->n_conns, count(&g->tokens.all));
	buf_addf(out, "keys %s\nledger %s\nrecords %llu\nunknown %d\n",
		 keys_secret(g->keys) ? "secret memory" : "locked memory", h.failing ? "failing" : "ok",
		 (unsigned long long)h.seq, g->unknown);
	for (size_t i = 0; i < g->registries.n; i++)
		buf_addf(out, "registry %s\n", g->registries.p[i]);
	return 0;
}

static int on_head(struct control *c, struct buf *out, struct err *err)
{
	return ledger_head_text(c->gw->ledger, out, err);
}

static int on_tokens(struct control *c, struct buf *out, struct err *err)
{
	int64_t now = clock_real_ms(), tokens, nano;
	list_each (i, &c->gw->tokens.all) {
		struct token *t = list_entry(i, struct token, link);
		meter_spend(&c->gw->meter, t->session, &tokens, &nano);
		buf_addf(out, "%s\t%s\t%.8s\t%lld\t%lld\t%lld\t%s\n", t->session,
			 t->kind == TOKEN_ENGINE ? "engine" : "sandbox", t->hash,
			 (long long)(now - t->created_ms) / 1000, (long long)tokens, (long long)nano,
			 networks[t->network]);
	}
	return 0;
}

/* offset max: the size of all, a line feed, bytes */
static int on_ledger(struct control *c, struct buf *out, struct err *err)
{
	struct ledger_head h;
	unsigned long long max = strtoull(c->args[2], NULL, 10);
	ledger_head(c->gw->ledger, &h);
	buf_addf(out, "%llu\n", (unsigned long long)h.bytes);
	return ledger_read(c->gw->ledger, strtoull(c->args[1], NULL, 10), max < BODY_MAX ? max : BODY_MAX, out, err);
}

static int on_activity(struct control *c, struct buf *out, struct err *err)
{
	struct gw *g = c->gw;
	int running = 0;
	list_each (i, &g->calls)
		running += !strcmp(list_entry(i, struct call, link)->token->session, c->args[1]);
	list_each (j, &g->tunnels)
		running += !strcmp(egress_token(egress_of(j))->session, c->args[1]);
	int64_t last = meter_last(&g->meter, c->args[1]);
	buf_addf(out, "%d %lld\n", running, last < 0 ? -1LL : (long long)(clock_mono_ms() - last));
	return 0;
}

/* listen sync: what a daemon's settings say now; an address - is none */
static int on_options(struct control *c, struct buf *out, struct err *err)
{
	bool none = !strcmp(c->args[1], "-");
	ledger_sync_each(c->gw->ledger, !strcmp(c->args[2], "each"));
	return listen_set(c->gw, none ? NULL : c->args[1], err);
}

/* session path */
static int on_life(struct control *c, struct buf *out, struct err *err)
{
	struct token *t = other(c->gw, c->args[1], TOKEN_SANDBOX, NULL);
	if (t) {
		free(t->life);
		t->life = xstrdup(c->args[2]);
	}
	return 0;
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
	for (char *w; c->n_args < ARGS && (w = strsep(&rest, "\t"));)
		c->args[c->n_args++] = w;
	if (rest || c->n_args < 2)
		return false;
	char *end, *length = c->args[--c->n_args];
	unsigned long n = strtoul(length, &end, 10);
	if (*end || !*length || n > BODY_MAX)
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
	if (n == 1 && c->line_n == LINE_MAX_BYTES - 1)
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
