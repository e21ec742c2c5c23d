/* What a request to the proxy asks for, and whether the session's network setting allows it. The loop's thread. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backend/base/mem.h"
#include "egress_private.h"
#include "net.h"

static bool of_machine(const struct gw *g, const char *host, int port, int usual)
{
	char with[300];
	snprintf(with, sizeof with, "%s:%d", host, port);
	return words_have(&g->registries, host, strlen(host)) ? port == usual
							      : words_have(&g->registries, with, strlen(with));
}

int egress_allowed(const struct gw *g, const struct tunnel *t, struct denial *d)
{
	const struct policy *p = t->policy;
	bool mapped = policy_map(p, t->host, t->port) != NULL;
	int usual = t->get ? 80 : 443;
	if (net_is_literal(t->host) && !mapped)
		return deny(d, 403, "egress.literal", "hosts are named, not given by address");
	if (t->token->kind == TOKEN_ENGINE)
		return policy_host(p, t->host, t->port, usual, true)
			       ? 0
			       : deny(d, 403, "egress.vendor", "%.100s is no host of the model vendor's client",
				      t->host);
	if (t->token->network == EGRESS_NONE)
		return deny(d, 403, "egress.none", "this session's network is none; settings/network changes it");
	if (policy_host(p, t->host, t->port, usual, false) || of_machine(g, t->host, t->port, usual))
		return 0;
	if (t->token->network == EGRESS_REGISTRIES)
		return deny(d, 403, "egress.registries",
			    "%.100s:%d is no package host of this machine or of the policy", t->host, t->port);
	if (t->port != usual && !mapped)
		return deny(d, 403, "egress.port", "only the ports 443 and, for plain http, 80 are reached");
	return 0;
}

void egress_recheck(struct gw *g, const struct token *token)
{
	struct denial d;
	list_each_safe (i, &g->tunnels) {
		struct tunnel *t = egress_of(i);
		if (t->token == token && !t->over && egress_allowed(g, t, &d))
			egress_cut(t, "network changed");
	}
}

/* Fields of a plain request that pass; the request is made anew from them. */
static void build_get(struct tunnel *t, const struct http_reader *r, const char *path, size_t path_n,
		      const char *authority)
{
	static const char *const passes[] = {"accept",	      "user-agent", "range",	     "if-modified-since",
					     "if-none-match", "if-range",   "cache-control", "accept-encoding"};
	buf_addf(&t->to_host, "%.*s %s%.*s HTTP/1.1\r\nHost: %s\r\n", (int)r->method.n, http_span(r, r->method),
		 path_n ? "" : "/", (int)path_n, path, authority);
	for (size_t i = 0; i < ARRAY_LEN(passes); i++) {
		size_t n;
		const char *v = http_field(r, passes[i], &n);
		if (v)
			buf_addf(&t->to_host, "%s: %.*s\r\n", passes[i], (int)n, v);
	}
	buf_adds(&t->to_host, "Connection: close\r\n\r\n");
}

int egress_target(struct tunnel *t, const struct http_reader *r, struct denial *d)
{
	const char *text = http_span(r, r->target);
	size_t n = r->target.n;
	t->get = !http_is(r, r->method, "CONNECT");
	if (t->get && !http_is(r, r->method, "GET") && !http_is(r, r->method, "HEAD"))
		return deny(d, 405, "egress.method", "plain http is for GET and HEAD; use https for others");
	if (t->get && r->body.n)
		return deny(d, 400, "egress.body", "GET with a body is not passed on");
	if (t->get) {
		text += 7;
		n -= 7;
	}
	size_t host_n = 0;
	while (host_n < n && !strchr("/?", text[host_n]))
		host_n++;
	CLEAN_FREE char *authority = xstrndup(text, host_n);
	if (net_host_port(authority, 80, t->host, sizeof t->host, &t->port))
		return deny(d, 400, "egress.target", "the target is no HOST:PORT");
	char host[300];
	if (t->get && (!http_field_copy(r, "host", host, sizeof host) || strcasecmp(host, authority)))
		return deny(d, 400, "egress.host", "Host and the URL are different");
	if (t->get && host_n < n && text[host_n] == '?')
		return deny(d, 400, "egress.target", "the URL has no path");
	if (t->get)
		build_get(t, r, text + host_n, n - host_n, authority);
	return 0;
}
