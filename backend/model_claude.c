/* Model `claude-code`, or `claude-code/NAME`: the installed Claude Code with its own login, as a model that runs
 * nothing. One process of it serves a session's turns one after the other as long as it knows the same conversation as
 * we do; else another one is told it from the beginning. Worker threads. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "claude.h"
#include "config.h"
#include "gate_link.h"
#include "gateway/gateway.h"

static int check(const struct config *c, const char *model, const char *project, struct err *err)
{
	struct claude_place place;
	struct model_info m;
	int rc = models_find(c, model, &m, err);
	rc = rc ? rc : claude_place(c->value[CONFIG_CLAUDE_PROGRAM], &place, err);
	if (rc == -ENOENT) {
		struct err why = *err;
		return err_set(err, EINVAL, "%s", why.text);
	}
	if (rc)
		return rc;
	claude_place_release(&place);
	return 0;
}

struct asking {
	const struct model_request *q;
	const struct config *c;
	const struct model_info *m;
	struct model_reply *reply;
	struct model_fault *fault;
	char token[GATE_TOKEN];
	char *socket, *key;
	struct claude_told told;
};

static const char *effort(const struct model_info *m)
{
	static const char *const words[] = {"low", "medium", "high", "xhigh", "max"};
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcmp(words[i], m->thinking))
			return words[i];
	return NULL;
}

/* What a process was started with; another one is needed when it changes. */
static char *key_of(const struct asking *k)
{
	const struct model_request *q = k->q;
	return xasprintf("%s\n%s\n%s\n%s\n%s", q->model, k->m->thinking, q->session->clone ? q->session->clone : "",
			 k->c->value[CONFIG_CLAUDE_PROGRAM], q->system);
}

static int start(const struct asking *k, struct claude **out, struct err *err)
{
	const struct model_request *q = k->q;
	struct claude_start s = {.paths = q->backend->paths,
				 .program = k->c->value[CONFIG_CLAUDE_PROGRAM],
				 .socket = k->socket,
				 .token = k->token,
				 .cwd = q->session->clone ? q->session->clone : "",
				 .model = *k->m->id ? k->m->id : NULL,
				 .effort = effort(k->m),
				 .idle_s = (int)config_int(k->c, CONFIG_CLAUDE_IDLE)};
	struct claude_place place;
	int rc = claude_place(s.program, &place, err);
	if (rc)
		return rc;
	claude_place_release(&place);
	rc = claude_start(&s, out, err);
	if (rc)
		return rc;
	(*out)->session = q->session->id;
	(*out)->key = xstrdup(k->key);
	rc = claude_hello(*out, q, k->fault, err);
	if (rc == -EPIPE) /* what this machine lacks is not there at the next try either */
		k->fault->retry = !strstr(err->text, "claude-jail:") && !strstr(err->text, "bwrap:");
	return rc;
}

/* What the gateway refused it, in the relay's words: its own say only that there is no connection. *token_bad: it does
 * not know the session's token. */
static void add_gateway(struct asking *k, struct claude *cl, bool *token_bad, struct err *err)
{
	const char *words = claude_last_words(cl), *said = NULL;
	for (const char *p = words; (p = strstr(p, "gateway: ")); p++)
		said = p;
	if (!said)
		return;
	int status = atoi(said + 9);
	*token_bad = status == 407;
	if (status == 403)
		k->fault->should_retry = -1;
	struct err why = *err;
	err_set(err, why.code, "%s (%.200s)", why.text, said);
}

/* The kept one if it can go on, else NULL. */
static struct claude *kept(struct asking *k)
{
	if (k->q->plain)
		return NULL;
	struct claude *cl = claudes_take(k->q->backend->claudes, k->q->session->id, k->key, k->token);
	if (cl && !claude_knows(cl, &k->told)) {
		claude_free(cl);
		return NULL;
	}
	if (cl)
		claude_busy(cl, true);
	return cl;
}

static int converse(struct asking *k, struct claude *cl, bool *clean, struct err *err)
{
	const struct claude_limits limits = {config_int(k->c, CONFIG_ANSWER_BEGIN) * 1000,
					     config_int(k->c, CONFIG_ANSWER_IDLE) * 1000};
	int rc = claude_tell(cl, &k->told, k->q->cancel, err);
	if (rc == -EPIPE || rc == -ETIMEDOUT)
		k->fault->retry = true;
	return rc ? rc : claude_turn(cl, k->q, &limits, k->reply, k->fault, clean, err);
}

/* Its tokens, as it has reported them: the gateway sees only bytes of it. */
static void report(struct asking *k)
{
	struct err why = ERR_INIT;
	const struct model_reply *r = k->reply;
	char session[24];
	if (!r->tokens_in && !r->tokens_out)
		return;
	snprintf(session, sizeof session, "%" PRId64, k->q->session->id);
	if (gateway_usage_report(k->q->backend->paths, session, k->q->model, r->tokens_in, r->tokens_out,
				 r->tokens_cached, &why))
		log_warn("usage of claude-code is not in the ledger: %s", why.text);
}

static void finish(struct asking *k, struct claude *cl, bool clean)
{
	if (!clean || k->q->plain) {
		claude_free(cl);
		return;
	}
	claude_told_answer(&k->told, k->reply, k->m, k->q->model);
	claude_learns(cl, &k->told);
	claude_busy(cl, false);
	claudes_put(k->q->backend->claudes, cl, (int)config_int(k->c, CONFIG_CLAUDE_KEEP));
}

/* One try. */
static int try(struct asking *k, bool *token_bad, struct err *err)
{
	const struct model_request *q = k->q;
	bool clean = false;
	int rc = gate_token(q->backend, q->session, q->cancel, &k->socket, k->token, err);
	if (rc) {
		k->fault->retry = rc == -EAGAIN;
		return rc;
	}
	struct claude *cl = kept(k);
	if (cl) {
		rc = converse(k, cl, &clean, err);
		if (rc == -EPIPE && !k->reply->text.n && !k->reply->tokens_in) { /* it was just let go */
			claude_free(cl);
			cl = NULL;
			*k->fault = (struct model_fault){0};
		}
	}
	if (!cl) {
		rc = start(k, &cl, err);
		rc = rc ? rc : converse(k, cl, &clean, err);
	}
	report(k);
	if (rc && rc != -ECANCELED && cl)
		add_gateway(k, cl, token_bad, err);
	if (cl)
		finish(k, cl, clean && !rc);
	return rc;
}

static int ask(const struct model_request *q, const struct config *c, const struct model_info *m,
	       struct model_reply *reply, struct model_fault *fault, struct err *err)
{
	struct asking k = {.q = q, .c = c, .m = m, .reply = reply, .fault = fault};
	bool bad = false;
	k.key = key_of(&k);
	claude_told(&k.told, q->context, m, q->bare ? "" : q->model);
	int rc = try(&k, &bad, err);
	if (rc && bad) {
		gate_token_forget(q->backend, q->session->id);
		*fault = (struct model_fault){0};
		free(k.socket);
		k.socket = NULL;
		rc = try(&k, &bad, err);
	}
	claude_told_release(&k.told);
	explicit_bzero(k.token, sizeof k.token);
	free(k.socket);
	free(k.key);
	return rc;
}

static int run(const struct model_request *q, struct model_reply *reply, struct model_fault *fault, struct err *err)
{
	struct model_info m;
	struct config *c = backend_config(q->backend);
	int rc = models_find(c, q->model, &m, err);
	rc = rc ? rc : model_ask_again(ask, q, c, &m, reply, fault, err);
	config_put(c);
	return rc;
}

const struct model_kind model_claude = {CLAUDE_NAME, check, run};
