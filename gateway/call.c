/* A complete request up to its decision: who asks, what for, may it, is there room; then the ledger. Nothing goes out
 * before the decision is written. This is the one place through which every model request passes. */
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backend/base/clock.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "gateway.h"
#include "gw.h"

#define TOKENS_A_SECOND 250 /* that a model makes */

/* ---- who ---- */

static const char *bearer(const struct http_reader *r, const char *field, size_t *n)
{
	const char *v = http_field(r, field, n);
	if (!v || *n < 8 || strncasecmp(v, "Bearer ", 7))
		return NULL;
	*n -= 7;
	return v + 7;
}

/* "Basic base64(user:token)", as curl and git send what stands in a proxy's URL. */
static bool basic(const struct http_reader *r, const char *field, char *out, size_t cap)
{
	size_t n;
	unsigned char d[512];
	const char *v = http_field(r, field, &n);
	if (!v || n < 7 || strncasecmp(v, "Basic ", 6) || (n - 6) % 4 || n - 6 > 600)
		return false;
	int got = EVP_DecodeBlock(d, (const unsigned char *)v + 6, (int)n - 6);
	for (size_t i = n; got > 0 && v[i - 1] == '='; i--)
		got--;
	const char *colon = got > 0 ? memchr(d, ':', (size_t)got) : NULL;
	size_t len = colon ? (size_t)((char *)d + got - colon - 1) : 0;
	bool ok = colon && len && len < cap;
	if (ok) {
		memcpy(out, colon + 1, len);
		out[len] = 0;
	}
	OPENSSL_cleanse(d, sizeof d);
	return ok;
}

static bool here(const struct conn *c, const struct token *t)
{
	return c->from && (t->kind == TOKEN_ENGINE ? c->from->kind == LISTEN_DAEMON : c->from->token == t);
}

/* The token of a request; field is "proxy-authorization" for a proxy's. NULL with d filled. */
struct token *call_token(struct conn *c, const char *field, struct denial *d)
{
	size_t a = 0, b = 0;
	char text[TOKEN_TEXT + 1];
	const char *key = field ? NULL : http_field(&c->in, "x-api-key", &a),
		   *bear = bearer(&c->in, field ? field : "authorization", &b);
	if (key && bear && (a != b || memcmp(key, bear, a))) {
		deny(d, 401, "token", "x-api-key and Authorization are different");
		return NULL;
	}
	if (!key && bear) {
		key = bear;
		a = b;
	}
	if (!key && basic(&c->in, field ? field : "authorization", text, sizeof text)) {
		key = text;
		a = strlen(text);
	}
	struct token *t = key ? token_find(&c->gw->tokens, key, a) : NULL;
	OPENSSL_cleanse(text, sizeof text);
	if (!key)
		deny(d, field ? 407 : 401, "token", "no session token; give it as x-api-key or Authorization: Bearer");
	else if (!t)
		deny(d, field ? 407 : 401, "token", "this session token is not valid, or not any more");
	else if (!here(c, t))
		deny(d, 403, "token.channel", "this session token is not taken on this socket");
	return t && here(c, t) ? t : NULL;
}

void record_who(struct ledger_record *r, const struct token *t)
{
	char id[9] = "";
	if (t)
		memcpy(id, t->hash, 8);
	ledger_text(r, "token", id);
	ledger_text(r, "session", t ? t->session : "");
	ledger_text(r, "project", t ? t->project : "");
	ledger_text(r, "via", !t ? "" : t->kind == TOKEN_ENGINE ? "engine" : "sandbox");
}

void call_denied(struct conn *c, struct token *t, const struct denial *d, bool anthropic)
{
	c->gw->denied++;
	denials_note(c, t, d, clock_mono_ms());
	conn_deny(c, d, anthropic);
}

/* ---- the call ---- */

void call_free(struct call *k)
{
	list_remove(&k->link);
	token_put(k->token);
	policy_put(k->policy);
	buf_release(&k->body);
	buf_release(&k->head);
	usage_release(&k->usage);
	EVP_MD_CTX_free(k->hash);
	free(k);
}

/* Exactly the path of a route, and a query of words that the policy lists. */
static int check_route(struct call *k, const struct http_reader *r, struct denial *d)
{
	const char *target = http_span(r, r->target), *method = http_span(r, r->method);
	const char *mark = memchr(target, '?', r->target.n);
	size_t path_n = mark ? (size_t)(mark - target) : r->target.n, query_n = mark ? r->target.n - path_n - 1 : 0;
	k->ask.api = policy_api(method, r->method.n, target, path_n);
	if (k->ask.api == API_N || !k->policy->routes[k->ask.api].on)
		return deny(d, 403, "route", "%.*s %.*s is no route of the policy", (int)r->method.n, method,
			    path_n < 100 ? (int)path_n : 100, target);
	if (!mark)
		return 0;
	if (query_n >= sizeof k->query - 1)
		return deny(d, 403, "query", "the query is too long");
	char *text = k->query;
	memcpy(text, mark + 1, query_n);
	text[query_n] = 0;
	CLEAN_FREE char *copy = xstrdup(text);
	char *rest = copy;
	for (char *word; (word = strsep(&rest, "&"));) {
		size_t n = strcspn(word, "=");
		const char *value = word[n] ? word + n + 1 : "";
		if (!words_have(&k->policy->routes[k->ask.api].query, word, n) ||
		    strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != strlen(value))
			return deny(d, 403, "query", "the query \"%.60s\" is not allowed", word);
	}
	return 0;
}

/* "a" or "a; charset=utf-8". */
static bool is_json_type(const struct http_reader *r)
{
	char v[64];
	if (!http_field_copy(r, "content-type", v, sizeof v))
		return false;
	size_t n = strcspn(v, ";");
	const char *rest = v[n] ? v + n + 1 : "";
	while (n && v[n - 1] == ' ')
		n--;
	rest += strspn(rest, " ");
	return n == 16 && !strncasecmp(v, "application/json", 16) && (!*rest || !strcasecmp(rest, "charset=utf-8"));
}

/* The one header that switches things on at the provider: each name in it has to be allowed. */
static int check_betas(struct call *k, struct denial *d)
{
	const char *at = k->beta;
	if (strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789-_., ") != strlen(at))
		return deny(d, 400, "header", "anthropic-beta has a character that it may not have");
	if (!*at) /* as some clients say that there is none */
		return 0;
	for (size_t n; at; at = at[n] ? at + n + 1 : NULL) {
		at += strspn(at, " ");
		n = strcspn(at, ",");
		size_t len = n;
		while (len && at[len - 1] == ' ')
			len--;
		if (!policy_beta(k->policy, at, len))
			return deny(d, 403, "beta",
				    "anthropic-beta names \"%.*s\", which no beta line of the policy allows",
				    len < 100 ? (int)len : 100, at);
	}
	return 0;
}

static int check_head(struct call *k, const struct http_reader *r, struct denial *d)
{
	size_t n;
	if (http_field(r, "content-encoding", &n))
		return deny(d, 415, "encoding", "a compressed body cannot be checked");
	if (k->ask.api == API_MODELS)
		return r->body.n ? deny(d, 400, "body", "GET has no body here") : 0;
	if (!is_json_type(r))
		return deny(d, 415, "type", "Content-Type has to be application/json");
	if (http_count(r, "anthropic-beta") > 1 || http_count(r, "anthropic-version") > 1)
		return deny(d, 400, "header", "anthropic-beta or anthropic-version is given twice");
	bool version = http_field_copy(r, "anthropic-version", k->version, sizeof k->version),
	     beta = http_field_copy(r, "anthropic-beta", k->beta, sizeof k->beta);
	if ((!version && http_field(r, "anthropic-version", &n)) || (!beta && http_field(r, "anthropic-beta", &n)))
		return deny(d, 400, "header", "anthropic-beta or anthropic-version is too long");
	if (strspn(k->version, "0123456789-") != strlen(k->version))
		return deny(d, 400, "header", "anthropic-version has a character that it may not have");
	return check_betas(k, d);
}

/* A list of models costs nothing; whose list: by the shape of the request. */
static int check_models(struct call *k, bool anthropic, struct denial *d)
{
	static const struct price nothing;
	list_each (i, &k->policy->providers) {
		const struct provider *p = list_entry(i, struct provider, link);
		if ((p->kind == KIND_ANTHROPIC) == anthropic && !k->ask.provider)
			k->ask.provider = p;
	}
	k->ask.price = &nothing;
	return k->ask.provider ? 0 : deny(d, 403, "route", "no provider of that kind is in the policy");
}

static void record_allowed(struct call *k, struct ledger_record *r)
{
	char hex[SHA_HEX + 1];
	record_who(r, k->token);
	ledger_text(r, "method", api_method(k->ask.api));
	ledger_text(r, "target", api_path(k->ask.api));
	ledger_text(r, "verdict", "allowed");
	ledger_text(r, "provider", k->ask.provider->name);
	ledger_text(r, "model", k->ask.model);
	ledger_int(r, "reserved_tokens", k->hold.tokens);
	ledger_int(r, "reserved_nano", k->hold.nano);
	ledger_int(r, "bytes", (int64_t)k->body.n);
	sha_hex(&k->gw->sha, buf_str(&k->body), k->body.n, hex);
	ledger_text(r, "sha256", hex);
}

/* The decision is in the ledger, or cannot be. */
static void decided(struct ledger_record *r)
{
	struct call *k = r->arg;
	k->seq = r->seq;
	if (r->rc) {
		meter_cancel(&k->gw->meter, &k->hold);
		struct denial d;
		deny(&d, 503, "ledger", "the request cannot be recorded, so it is not sent: %.200s", r->err.text);
		struct conn *c = k->conn;
		if (c) {
			conn_deny(c, &d, k->ask.api == API_MESSAGES || k->ask.api == API_COUNT_TOKENS);
			conn_read(c);
		}
		call_free(k);
	} else if (!k->conn) {
		call_outcome(k, k->result ? k->result : "client left before it was sent");
	} else if (k->token->revoked) {
		struct conn *c = k->conn;
		k->conn = NULL;
		conn_abort(c);
		call_outcome(k, "revoked before it was sent");
	} else {
		forward_start(k);
	}
	ledger_record_free(r);
}

static void decide(struct call *k)
{
	struct ledger_record *r = ledger_record_new("decision");
	record_allowed(k, r);
	r->open = true;
	r->arg = k;
	spend_text(&k->change, &r->aside);
	r->done = decided;
	k->conn->state = CONN_WAITING;
	record_now(k->gw, r);
}

/* The daemon and the agents that it starts say which of the policy's providers they mean: two may serve models of the
 * same name. It is a choice among what the policy serves to this token anyway. */
static int check_body(struct call *k, const struct http_reader *r, struct denial *d)
{
	char provider[80] = "";
	if (http_count(r, GATE_PROVIDER) &&
	    (!http_field_copy(r, GATE_PROVIDER, provider, sizeof provider) || !*provider))
		return deny(d, 400, "model", GATE_PROVIDER " has to be the name of one of the policy's providers");
	return body_check_for(k->policy, k->ask.api, *provider ? provider : NULL, buf_str(&r->body), r->body.n, &k->ask,
			      d);
}

/* All that is asked of a request, in order; the first no counts. */
static int check(struct call *k, struct conn *c, bool anthropic, struct denial *d)
{
	struct http_reader *r = &c->in;
	k->token = call_token(c, NULL, d);
	if (!k->token)
		return -EPERM;
	token_get(k->token);
	int rc = check_route(k, r, d);
	if (!rc)
		rc = check_head(k, r, d);
	if (!rc && k->ask.api == API_MODELS)
		rc = check_models(k, anthropic, d);
	else if (!rc)
		rc = check_body(k, r, d);
	if (rc)
		return rc;
	if (!k->ask.provider->local && !key_known(c->gw->keys, k->ask.provider->key))
		return deny(d, 403, "key", "there is no key %s yet: write one to gateway/keys/%s", k->ask.provider->key,
			    k->ask.provider->key);
	rc = meter_reserve(&c->gw->meter, k->policy, k->token->session, k->token->project, &k->ask, &k->hold,
			   &k->change, d);
	if (!rc && k->ask.api != API_MODELS)
		body_build(k->policy, &k->ask, k->hold.answer, &k->body);
	return rc;
}

void call_begin(struct conn *c)
{
	struct http_reader *r = &c->in;
	struct gw *g = c->gw;
	struct denial d;
	size_t n;
	g->activity_ms = clock_mono_ms();
	if (r->upgrade) {
		deny(&d, 426, "upgrade", "only plain HTTP/1.1 requests are served");
		call_denied(c, NULL, &d, false);
		return;
	}
	if (http_is(r, r->method, "CONNECT") || *http_span(r, r->target) != '/') {
		egress_begin(c);
		return;
	}
	if (pull_wanted(c)) {
		pull_begin(c);
		return;
	}
	bool anthropic = http_field(r, "anthropic-version", &n) || http_field(r, "x-api-key", &n) ||
			 (r->target.n >= 12 && !memcmp(http_span(r, r->target), "/v1/messages", 12));
	struct call *k = xcalloc(1, sizeof *k);
	k->gw = g;
	k->policy = policy_get(g->policy);
	k->started_ms = g->activity_ms;
	k->length = LENGTH_OPEN;
	list_append(&g->calls, &k->link);
	if (check(k, c, anthropic, &d)) {
		call_denied(c, k->token, &d, anthropic);
		call_free(k);
		return;
	}
	k->conn = c;
	c->call = k;
	g->served++;
	buf_release(&r->body); /* what goes out was built from it */
	decide(k);
}

/* ---- the outcome ---- */

/* What is charged: what the provider said; else the most that it can have been. */
static const struct usage *charge(struct call *k, struct usage *u)
{
	struct usage_reader *r = &k->usage;
	*u = (struct usage){0};
	if (k->ask.api == API_MODELS || api_counts(k->ask.api) || !k->easy || (k->status >= 400 && !r->input_seen))
		return u; /* nothing was made, or refused by the provider, which does not charge for that */
	if (!k->status && !k->cut)
		return u;		   /* it never reached the provider */
	if (!k->status && k->ask.stream) { /* it did, and was given up before the answer began */
		u->input = k->ask.input;
		return u;
	}
	if (!r->input_seen)
		return NULL;
	*u = r->u;
	if (!r->output_seen) { /* it ended early: count what came, one token for three bytes of the stream at most;
				* and thoughts that are not shown, which take their time */
		int64_t seen = (int64_t)(k->bytes / 3), most = k->hold.tokens - k->ask.input;
		int64_t unseen = (clock_mono_ms() - k->started_ms) * TOKENS_A_SECOND / 1000;
		seen = seen > unseen ? seen : unseen;
		int64_t guess = seen < most ? seen : most;
		u->output = u->output > guess ? u->output : guess;
	}
	return u;
}

void call_outcome(struct call *k, const char *result)
{
	struct usage u;
	const struct usage *charged = charge(k, &u);
	struct ledger_record *r = ledger_record_new("outcome");
	meter_settle(&k->gw->meter, &k->hold, k->ask.price, charged, &k->change);
	spend_text(&k->change, &r->aside);
	r->of = k->seq;
	r->done = ledger_record_free;
	ledger_int(r, "of", (int64_t)k->seq);
	ledger_text(r, "result", result);
	ledger_int(r, "status", k->status);
	ledger_text(r, "usage",
		    !charged					   ? "reserved"
		    : !k->usage.output_seen && k->usage.input_seen ? "estimated"
								   : "reported");
	if (charged) {
		ledger_int(r, "input", u.input);
		ledger_int(r, "output", u.output);
		ledger_int(r, "cache_read", u.cache_read);
		ledger_int(r, "cache_write", u.cache_write);
	}
	ledger_int(r, "nano", k->hold.nano);
	ledger_int(r, "bytes", (int64_t)k->bytes);
	ledger_int(r, "ms", clock_mono_ms() - k->started_ms);
	if (k->hash) {
		char hex[SHA_HEX + 1];
		sha_end(k->hash, hex);
		ledger_text(r, "sha256", hex);
	}
	k->gw->activity_ms = clock_mono_ms();
	record_later(k->gw, r);
	call_free(k);
}
