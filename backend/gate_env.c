/* A sandbox's token, and the variables by which usual programs find the gateway with it. Worker threads. The variables
 * are kept by the tool daemon inside, as long as the sandbox runs: so a daemon that comes back finds that they are
 * there and makes no new token, and one that has been down has none. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "engine.h"
#include "gate_private.h"
#include "killpoint.h"

#define PAIRS 16

struct pairs {
	char *p[PAIRS];
	size_t n;
};

__attribute__((format(printf, 2, 3))) static void add(struct pairs *v, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	v->p[v->n++] = xvasprintf(fmt, ap);
	va_end(ap);
}

static void pairs_release(struct pairs *v)
{
	for (size_t i = 0; i < v->n; i++) {
		explicit_bzero(v->p[i], strlen(v->p[i]));
		free(v->p[i]);
	}
}

/* url is http://HOST:PORT. A proxy's URL carries the token as its password: that is how curl, git, pip, npm, cargo and
 * apt-get take one. Model clients take base URLs and keys; none of them asks the proxy for those, since they are on
 * loopback. proxy: the gateway is the only way out; on the user's own machine it is not. */
static void make_pairs(struct pairs *v, const char *url, const char *token, bool proxy)
{
	static const char *const proxies[] = {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"};
	static const char *const around[] = {"no_proxy", "NO_PROXY"};
	const char *host = strstr(url, "://");
	host = host ? host + 3 : url;
	add(v, "ANTHROPIC_BASE_URL=%s", url);
	add(v, "ANTHROPIC_API_KEY=%s", token);
	add(v, "OPENAI_BASE_URL=%s/v1", url);
	add(v, "OPENAI_API_KEY=%s", token);
	for (size_t i = 0; i < ARRAY_LEN(proxies) && proxy; i++)
		add(v, "%s=http://berthfs:%s@%s", proxies[i], token, host);
	for (size_t i = 0; i < ARRAY_LEN(around) && proxy; i++)
		add(v, "%s=localhost,127.0.0.1,::1", around[i]);
}

/* A token of before is as good as none when the gateway does not know it any more: its state was put away, or it was
 * taken back while this sandbox seemed to be down. */
static bool has_token(struct gate_link *l, int64_t id)
{
	char number[24];
	snprintf(number, sizeof number, "%" PRId64, id);
	pthread_mutex_lock(&l->minting);
	bool has = map_get(&l->sandboxes, number);
	pthread_mutex_unlock(&l->minting);
	return has;
}

int gate_sandbox(struct worker *w, struct err *err)
{
	return gate_sandbox_of(w->b, w->s, w->env, &w->cancel, err);
}

int gate_sandbox_of(struct backend *b, const struct session *s, struct env *env, const atomic_bool *cancel,
		    struct err *err)
{
	struct gate_link *l = b->link;
	const char *url = env_gateway_url(env);
	char token[GATE_TOKEN];
	struct pairs v = {.n = 0};
	bool has;
	if (!l || !url)
		return 0;
	int rc = env_has_environ(env, &has, err);
	rc = rc ? rc : gate_wait_up(l, cancel, err);
	if (rc || (has && has_token(l, s->id)))
		return rc;
	CLEAN_FREE char *socket = gate_sandbox_socket(b, s->id);
	rc = gate_mint_sandbox(l, s, socket, token, err);
	if (!rc) {
		killpoint("gate.minted");
		make_pairs(&v, url, token, strcmp(s->sandbox, "host") != 0);
		rc = env_set_environ(env, (const char *const *)v.p, err);
		pairs_release(&v);
	}
	explicit_bzero(token, sizeof token);
	return rc;
}
