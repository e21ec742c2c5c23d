/* Session tokens by the control socket: made, revoked, listed, given another network. A change is in the ledger before
 * it is told, and whatever uses a revoked token is cut at once. The loop's thread; must never keep a token's text. */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "control.h"

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
	control_answer(c, rc, &out, &err);
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
int on_mint(struct control *c, struct buf *out, struct err *err)
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
int on_revoke(struct control *c, struct buf *out, struct err *err)
{
	int kind = kind_of(c->args[1]);
	if (kind < 0 && strcmp(c->args[1], "all"))
		return err_set(err, EINVAL, "engine, sandbox or all");
	for (struct token *t; (t = other(c->gw, c->args[2], kind, NULL));)
		revoke_one(c, t, !other(c->gw, c->args[2], kind, t));
	return 0;
}

int on_network(struct control *c, struct buf *out, struct err *err)
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
		egress_recheck(c->gw, t);
		last = t;
	}
	if (last)
		record_token(c, last, false, NULL);
	return 0;
}

int on_tokens(struct control *c, struct buf *out, struct err *err)
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

/* session path */
int on_life(struct control *c, struct buf *out, struct err *err)
{
	struct token *t = other(c->gw, c->args[1], TOKEN_SANDBOX, NULL);
	if (t) {
		free(t->life);
		t->life = xstrdup(c->args[2]);
	}
	return 0;
}
