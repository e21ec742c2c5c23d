/* What a model has used by its own word. The requests of a client with a login of its own pass as bytes that nobody
 * here can read; the daemon, which hears the client's own figures, tells them. They are in the ledger as what they are,
 * a report, and count against limits of tokens. The loop's thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "control.h"

static bool number(const char *text, int64_t *out)
{
	char *end;
	*out = strtoll(text, &end, 10);
	return *text && !*end && *out >= 0 && *out <= TOKENS_MAX;
}

static struct token *engine_of(struct gw *g, const char *session)
{
	list_each (i, &g->tokens.all) {
		struct token *t = list_entry(i, struct token, link);
		if (t->kind == TOKEN_ENGINE && !strcmp(t->session, session))
			return t;
	}
	return NULL;
}

/* session model in out cached */
int on_usage(struct control *c, struct buf *unused, struct err *err)
{
	struct gw *g = c->gw;
	char **args = c->args + 1;
	int64_t in, out, cached;
	struct token *t = engine_of(g, args[0]);
	if (!number(args[2], &in) || !number(args[3], &out) || !number(args[4], &cached) || cached > in)
		return err_set(err, EINVAL, "usage is told in tokens: in, out, and how many of in came from a cache");
	if (!t)
		return err_set(err, ENOENT, "the session has no token");
	struct meter_change change;
	meter_charge(&g->meter, t->session, t->project, in + out, &change);
	struct ledger_record *r = ledger_record_new("event");
	ledger_text(r, "what", "usage reported");
	record_who(r, t);
	ledger_text(r, "model", args[1]);
	ledger_int(r, "input", in);
	ledger_int(r, "output", out);
	ledger_int(r, "cached", cached);
	spend_text(&change, &r->aside);
	r->done = ledger_record_free;
	record_later(g, r);
	return 0;
}
