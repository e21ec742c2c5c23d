/* Counts what a session uses. Store thread, inside transactions. */
#include "usage.h"

#include <inttypes.h>

#include "backend/base/mem.h"
#include "models.h"

struct used {
	const char *kind, *name;
	enum use_end end;
	int64_t requests, in, out, cached, unpriced;
	double cost;
};

static int add(struct tx *tx, struct session *s, const struct used *u, struct err *err)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	int64_t failed = u->end == USE_FAILED, aborted = u->end == USE_ABORTED;
	int rc = db_run(
		tx->db, err,
		"INSERT INTO "
		"usage(session,kind,name,requests,failed,aborted,tokens_in,tokens_out,cached,cost,unpriced) "
		"VALUES(?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(session,kind,name) DO UPDATE SET "
		"requests=requests+excluded.requests,"
		"failed=failed+excluded.failed,aborted=aborted+excluded.aborted,tokens_in=tokens_in+excluded.tokens_in,"
		"tokens_out=tokens_out+excluded.tokens_out,cached=cached+excluded.cached,cost=cost+excluded.cost,"
		"unpriced=unpriced+excluded.unpriced",
		"ittiiiiiifi", s->id, u->kind, u->name, u->requests ? u->requests : 1, failed, aborted, u->in, u->out,
		u->cached, u->cost, u->unpriced);
	rc = rc ? rc : usage_text(tx->db, s->id, &text, err);
	s->usage_size = (int64_t)text.n;
	s->usage_ms = tx->now_ms;
	return rc;
}

static int add_model(struct tx *tx, struct session *s, const struct config *c, struct used *u, struct err *err)
{
	struct price p;
	u->kind = "model";
	if (u->cached > u->in)
		u->cached = u->in;
	if (models_price(c, u->name, &p))
		u->cost = ((double)(u->in - u->cached) * p.in + (double)u->cached * p.cached + (double)u->out * p.out) /
			  1e6;
	else
		u->unpriced = u->in || u->out;
	return add(tx, s, u, err);
}

int usage_request(struct tx *tx, struct session *s, const struct config *c, const char *model, enum use_end end,
		  int64_t tokens_in, int64_t tokens_out, int64_t cached, struct err *err)
{
	struct used u = {.name = model, .end = end, .in = tokens_in, .out = tokens_out, .cached = cached};
	return add_model(tx, s, c, &u, err);
}

int usage_requests(struct tx *tx, struct session *s, const struct config *c, const char *model, int64_t requests,
		   int64_t tokens_in, int64_t tokens_out, int64_t cached, struct err *err)
{
	struct used u = {.name = model,
			 .end = USE_DONE,
			 .requests = requests,
			 .in = tokens_in,
			 .out = tokens_out,
			 .cached = cached};
	return add_model(tx, s, c, &u, err);
}

int usage_call(struct tx *tx, struct session *s, const char *tool, enum use_end end, struct err *err)
{
	struct used u = {.kind = "tool", .name = tool, .end = end};
	return add(tx, s, &u, err);
}

int usage_text(struct db *db, int64_t session, struct buf *out, struct err *err)
{
	struct rows r;
	int rc = db_query(
		db, &r, err,
		"SELECT kind='tool', name, requests, tokens_in, tokens_out, cached, cost, unpriced, failed, aborted "
		"FROM usage WHERE session=? ORDER BY kind, name",
		"i", session);
	while (!rc && rows_next(&r)) {
		CLEAN_BUF struct buf name = BUF_INIT;
		buf_addf(&name, "%s%s", row_int(&r, 0) ? "tool " : "", row_text(&r, 1));
		for (size_t i = 0; i < name.n; i++) /* a model may call a tool of any name */
			if ((unsigned char)name.p[i] < ' ')
				name.p[i] = ' ';
		buf_addf(out, "%" PRId64 "\t", row_int(&r, 2));
		if (row_int(&r, 0))
			buf_adds(out, "-\t-\t-\t-\t");
		else
			buf_addf(out, "%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t", row_int(&r, 3), row_int(&r, 4),
				 row_int(&r, 5));
		if (!row_int(&r, 0) && row_int(&r, 7))
			buf_adds(out, "-\t");
		else if (!row_int(&r, 0))
			buf_addf(out, "%.6f\t", row_real(&r, 6));
		buf_addf(out, "%s\t%" PRId64 "\t%" PRId64 "\n", buf_str(&name), row_int(&r, 8), row_int(&r, 9));
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}
