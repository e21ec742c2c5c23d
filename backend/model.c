/* The kinds of models. Any thread. */
#include "model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "fault.h"

static const struct model_kind *const kinds[] = {&model_script, &model_claude,
						 &model_served}; /* the last one takes any name */

const struct model_kind *model_find(const char *model, struct err *err)
{
	for (size_t i = 0; *model && i < ARRAY_LEN(kinds); i++)
		if (!strncmp(model, kinds[i]->prefix, strlen(kinds[i]->prefix)))
			return kinds[i];
	err_set(err, EINVAL,
		"no model is set: log Claude Code in, write a key to gateway/keys/anthropic or gateway/keys/openai, or "
		"`model = NAME` to "
		"config (berthfs "
		"models lists what there is); sh contrib/try.sh shows the whole and needs none");
	return NULL;
}

int model_check(const struct config *c, const char *model, const char *project, struct err *err)
{
	struct err why = ERR_INIT;
	const struct model_kind *k = model_find(model, &why);
	if (k)
		return k->check(c, model, project, err);
	return err_set(err, why.code, "%s", why.text);
}

void model_reply_release(struct model_reply *r)
{
	for (size_t i = 0; i < r->n_calls; i++) {
		free(r->calls[i].id);
		free(r->calls[i].name);
		free(r->calls[i].input);
	}
	free(r->calls);
	free(r->replay);
	buf_release(&r->text);
	buf_release(&r->thinking);
	*r = (struct model_reply){0};
}

void model_reply_call(struct model_reply *r, char *id, char *name, char *input)
{
	r->calls = xrealloc(r->calls, (r->n_calls + 1) * sizeof *r->calls);
	r->calls[r->n_calls++] = (struct model_call){id, name, input};
}

int model_ask_again(model_ask_fn *ask, const struct model_request *q, const struct config *c,
		    const struct model_info *m, struct model_reply *reply, struct model_fault *fault, struct err *err)
{
	struct model_request bare = *q;
	int rc = ask(q, c, m, reply, fault, err);
	if (!rc || !fault_of_thinking(fault, err->text))
		return rc;
	snprintf(reply->log, sizeof reply->log, "model request %" PRId64 " is sent again without thinking: %.200s",
		 q->n, err->text);
	*fault = (struct model_fault){0};
	bare.bare = true;
	return ask(&bare, c, m, reply, fault, err);
}
