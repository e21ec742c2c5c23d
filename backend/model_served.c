/* Models that a provider serves, reached through the gateway with the session's own token: this process never sees a
 * key. Which provider and what it speaks stands in models.c. Worker threads. */
#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "core.h"
#include "format.h"
#include "gate_link.h"
#include "gateway/gateway.h"
#include "model_http.h"
#include "providers.h"

#define COUNT_MS 10000 /* for the provider to count: it is only to spare a guess */

static const struct format *const formats[] = {&format_anthropic, &format_openai, &format_responses};

const struct format *format_find(const char *kind)
{
	for (size_t i = 0; i < ARRAY_LEN(formats); i++)
		if (!strcmp(formats[i]->kind, kind))
			return formats[i];
	return NULL;
}

static int check(const struct config *c, const char *model, const char *project, struct err *err)
{
	struct model_info m;
	int rc = models_find(c, model, &m, err);
	if (!rc && !format_find(m.provider.kind))
		return err_set(err, EINVAL, "%s is no provider that is asked by HTTP: write %s/NAME as the model",
			       m.provider.name, m.provider.kind);
	return rc;
}

struct asking {
	const struct format *format;
	struct answer answer;
};

static int on_event(void *arg, const char *event, const char *data, size_t n, struct err *err)
{
	struct asking *k = arg;
	int rc = k->format->event(&k->answer, event, data, n, err);
	return rc ? rc : answer_bounds(&k->answer, err);
}

static bool is_done(void *arg)
{
	return ((struct asking *)arg)->answer.done;
}

static struct curl_slist *headers(const struct format *f, const char *token, const char *provider)
{
	CLEAN_FREE char *auth = xasprintf(f->x_api_key ? "x-api-key: %s" : "Authorization: Bearer %s", token);
	CLEAN_FREE char *to = xasprintf(GATE_PROVIDER ": %s", provider);
	struct curl_slist *h = curl_slist_append(NULL, auth);
	h = curl_slist_append(h, to);
	h = curl_slist_append(h, "Content-Type: application/json");
	h = curl_slist_append(h, "Accept: text/event-stream");
	h = curl_slist_append(h, "Expect:");
	for (const char *const *more = f->headers; *more; more++)
		h = curl_slist_append(h, *more);
	explicit_bzero(auth, strlen(auth));
	return h;
}

/* *token_bad: the gateway does not know the token. */
static int reach(const struct model_request *q, struct model_http *h, const struct config *c,
		 const struct provider_info *p, const struct format *f, bool *clean, bool *token_bad,
		 struct model_fault *fault, struct err *err)
{
	char token[GATE_TOKEN], provider[PROVIDER_POLICY];
	CLEAN_FREE char *socket = NULL;
	*token_bad = false;
	int rc = gate_token(q->backend, q->session, q->cancel, &socket, token, err);
	rc = rc ? rc : providers_tell(q->backend, c, p, provider, err);
	if (rc) {
		fault->retry = rc == -EAGAIN;
		return rc;
	}
	struct curl_slist *list = headers(f, token, provider);
	h->socket = socket;
	h->headers = list;
	rc = model_http(h, clean, fault, err);
	curl_slist_free_all(list);
	explicit_bzero(token, sizeof token);
	*token_bad = rc && fault->status == 401 && err && strstr(err->text, "(berthfs gateway, rule token)");
	return rc;
}

/* One try. */
static int try(const struct model_request *q, struct model_http *h, const struct config *c,
	       const struct provider_info *p, struct asking *k, bool *token_bad, struct err *err)
{
	bool clean = false;
	int rc = reach(q, h, c, p, k->format, &clean, token_bad, k->answer.fault, err);
	return rc ? rc : k->format->end(&k->answer, clean, err);
}

static int ask(const struct model_request *q, const struct config *c, const struct model_info *m,
	       struct model_reply *reply, struct model_fault *fault, struct err *err)
{
	CLEAN_BUF struct buf body = BUF_INIT;
	const struct format *f = format_find(m->provider.kind);
	struct asking k = {f, {.q = q, .reply = reply, .fault = fault}};
	struct model_http h = {.path = f->path,
			       .body = &body,
			       .cancel = q->cancel,
			       .begin_ms = config_int(c, CONFIG_ANSWER_BEGIN) * 1000,
			       .idle_ms = config_int(c, CONFIG_ANSWER_IDLE) * 1000,
			       .done = is_done,
			       .event = on_event,
			       .arg = &k};
	bool bad = false;
	f->body(q, m, &body);
	int rc = try(q, &h, c, &m->provider, &k, &bad, err);
	if (bad) {
		gate_token_forget(q->backend, q->session->id);
		*fault = (struct model_fault){0};
		rc = try(q, &h, c, &m->provider, &k, &bad, err);
	}
	answer_release(&k.answer);
	return rc;
}

static int run(const struct model_request *q, struct model_reply *reply, struct model_fault *fault, struct err *err)
{
	struct model_info m;
	struct config *c = backend_config(q->backend);
	int rc = models_find(c, q->model, &m, err);
	rc = rc ? rc : check(c, q->model, q->project, err);
	rc = rc ? rc : model_ask_again(ask, q, c, &m, reply, fault, err);
	config_put(c);
	return rc;
}

static int ask_count(const struct model_request *q, const struct config *c, const struct model_info *m,
		     const struct format *f, struct buf *answer, struct err *err)
{
	CLEAN_BUF struct buf body = BUF_INIT;
	struct model_http h = {.path = f->count_path,
			       .body = &body,
			       .cancel = q->cancel,
			       .begin_ms = COUNT_MS,
			       .idle_ms = COUNT_MS,
			       .whole = answer};
	bool clean, bad;
	f->count_body(q, m, &body);
	struct model_fault fault = {0};
	int rc = reach(q, &h, c, &m->provider, f, &clean, &bad, &fault, err);
	if (!bad)
		return rc;
	gate_token_forget(q->backend, q->session->id);
	fault = (struct model_fault){0};
	return reach(q, &h, c, &m->provider, f, &clean, &bad, &fault, err);
}

/* Has the policy a line for it? Where it is not known yet, the gateway will say. */
static bool lets_through(struct backend *b, const char *path)
{
	struct gateway_view *v = gate_view(b);
	CLEAN_FREE char *text = xstrdup(v->policy ? v->policy : "");
	gateway_view_put(v);
	bool found = !*text;
	char *save = NULL;
	for (char *line = strtok_r(text, "\n", &save); line && !found; line = strtok_r(NULL, "\n", &save)) {
		char method[8], at[64];
		found = sscanf(line, " route %7s %63s", method, at) == 2 && !strcmp(at, path);
	}
	return found;
}

static int count(const struct model_request *q, int64_t *tokens, struct err *err)
{
	struct model_info m;
	CLEAN_BUF struct buf answer = BUF_INIT;
	struct config *c = backend_config(q->backend);
	int rc = models_find(c, q->model, &m, err);
	const struct format *f = rc ? NULL : format_find(m.provider.kind);
	if (!rc && (!f || !f->count_path))
		rc = err_set(err, EOPNOTSUPP, "%s does not count tokens", m.provider.name);
	if (!rc && !lets_through(q->backend, f->count_path))
		rc = err_set(err, EOPNOTSUPP, "the policy does not let %s through", f->count_path);
	rc = rc ? rc : ask_count(q, c, &m, f, &answer, err);
	config_put(c);
	if (rc)
		return rc;
	CLEAN_JSON cJSON *o = answer_json(buf_str(&answer), answer.n);
	if (json_int(o, "input_tokens", tokens) && *tokens > 0)
		return 0;
	return err_set(err, EIO, "the provider's answer has no number of tokens");
}

const struct model_kind model_served = {"", check, run, count};
