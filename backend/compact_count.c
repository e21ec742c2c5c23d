/* How many tokens the next request has, told by the provider: for where a guess by bytes could be wrong. Worker
 * threads. A provider that cannot tell is not asked again for a while; the guess does then. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "compact.h"
#include "context.h"
#include "killpoint.h"
#include "model.h"
#include "turn.h"

#define PAUSE_MS 600000 /* from a count that failed to the next one */

/* The request as it would be, with the messages that it would take. */
static int build(struct worker *w, struct context *ctx, struct err *err)
{
	struct rows r;
	int rc = context_build(w->db, w->id, w->s->entries, ctx, err);
	if (!rc)
		attach_images(w, ctx, compact_window_of(w));
	rc = rc ? rc
		: db_query(w->db, &r, err, "SELECT text FROM messages WHERE session=? AND state='waiting' ORDER BY k",
			   "i", w->id);
	if (rc)
		return rc;
	while (rows_next(&r))
		context_user(ctx, row_text(&r, 0));
	return rows_end(&r);
}

static int ask(struct worker *w, const struct model_kind *kind, int64_t *tokens, struct err *err)
{
	struct context ctx = {0};
	int rc = turn_prompt(w, err);
	rc = rc ? rc : build(w, &ctx, err);
	struct model_request q = {.model = w->s->setting[SETTING_MODEL],
				  .project = w->s->project,
				  .backend = w->b,
				  .session = w->s,
				  .system = w->prompt,
				  .context = &ctx,
				  .cancel = &w->cancel};
	rc = rc ? rc : kind->count(&q, tokens, err);
	killpoint("compact.counted");
	context_release(&ctx);
	return rc;
}

int compact_count(struct worker *w, int64_t waiting, int64_t *tokens, struct err *err)
{
	struct err why = ERR_INIT;
	struct compact_count *c = &w->counted;
	const char *model = w->s->setting[SETTING_MODEL];
	const struct model_kind *kind = model_find(model, NULL);
	bool same = !strcmp(c->model, model);
	if (!kind || !kind->count || (same && !c->tokens && clock_mono_ms() < c->again_ms))
		return -EAGAIN;
	if (!same || !c->tokens || c->entries != w->s->entries || c->waiting != waiting) {
		int64_t n = 0;
		int rc = ask(w, kind, &n, &why);
		if (rc == -ECANCELED || atomic_load(&w->cancel))
			return -ECANCELED;
		*c = (struct compact_count){.entries = w->s->entries, .waiting = waiting, .tokens = rc ? 0 : n};
		snprintf(c->model, sizeof c->model, "%s", model);
		c->again_ms = clock_mono_ms() + PAUSE_MS;
		if (rc && rc != -EOPNOTSUPP)
			worker_log(w, "the request's tokens could not be counted, its size is guessed: %s", why.text);
		if (rc)
			return -EAGAIN;
	}
	*tokens = c->tokens;
	return 0;
}
