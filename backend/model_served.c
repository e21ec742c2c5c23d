/* Models that a provider serves, reached through the gateway with the session's own token: this process never sees a
 * key. Which provider and what it speaks stands in models.c. Worker threads. */
#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "core.h"
#include "format.h"
#include "gate_link.h"
#include "model_http.h"
#include "providers.h"

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
	CLEAN_FREE char *to = xasprintf("berthfs-provider: %s", provider);
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

/* One try. *token_bad: the gateway does not know the token. */
static int try(const struct model_request *q, struct model_http *h, const struct config *c,
	       const struct provider_info *p, struct asking *k, bool *token_bad, struct err *err)
{
	char token[GATE_TOKEN], provider[PROVIDER_POLICY];
	CLEAN_FREE char *socket = NULL;
	const struct format *f = k->format;
	bool clean = false;
	*token_bad = false;
	int rc = gate_token(q->backend, q->session, q->cancel, &socket, token, err);
	rc = rc ? rc : providers_tell(q->backend, c, p, provider, err);
	if (rc) {
		k->answer.fault->retry = rc == -EAGAIN;
		return rc;
	}
	struct curl_slist *list = headers(f, token, provider);
	h->socket = socket;
	h->headers = list;
	rc = model_http(h, &clean, k->answer.fault, err);
	curl_slist_free_all(list);
	explicit_bzero(token, sizeof token);
	*token_bad = rc && k->answer.fault->status == 401 && err && strstr(err->text, "(berthfs gateway, rule token)");
	return rc ? rc : f->end(&k->answer, clean, err);
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

const struct model_kind model_served = {"", check, run};
