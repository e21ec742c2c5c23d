/* Reads generated texts back out of the database: a table of one reader for each kind. Reader threads, each with its
 * own connection; plan_text() also in the store's transactions. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/parse/blocks.h"
#include "message.h"
#include "transcript.h"
#include "usage.h"

/* Adds the part of a piece at [at, at + n) that lies in the wanted window. False once the window is full. */
static bool window(struct buf *out, size_t start, uint64_t offset, size_t max, uint64_t at, const char *p, size_t n)
{
	size_t skip = offset > at ? (size_t)(offset - at) : 0;
	if (skip < n) {
		size_t room = max - (out->n - start), take = n - skip;
		buf_add(out, p + skip, take < room ? take : room);
	}
	return out->n - start < max;
}

/* Rows of (offset, text) in order, the first one holding the wanted offset. */
static int pieces(struct rows *r, int rc, uint64_t offset, size_t max, struct buf *out)
{
	size_t start = out->n;
	while (!rc && rows_next(r))
		if (!window(out, start, offset, max, (uint64_t)row_int(r, 0), row_text(r, 1), row_len(r, 1)))
			break;
	int end = rows_end(r);
	return rc ? rc : end;
}

#define SLICE(table, column, off)                                                                                      \
	"SELECT " off ", " column " FROM " table " WHERE session=?1 AND " off " >= coalesce((SELECT max(" off          \
	") FROM " table " WHERE session=?1 AND " off " <= ?2), 0) ORDER BY " off

static int read_transcript(struct db *db, int64_t id, uint64_t off, size_t max, struct buf *out, struct err *err)
{
	struct rows r;
	return pieces(&r, db_query(db, &r, err, SLICE("entries", "md", "md_off"), "ii", id, (int64_t)off), off, max,
		      out);
}

static int read_jsonl(struct db *db, int64_t id, uint64_t off, size_t max, struct buf *out, struct err *err)
{
	struct rows r;
	return pieces(&r, db_query(db, &r, err, SLICE("entries", "body", "json_off"), "ii", id, (int64_t)off), off, max,
		      out);
}

static int read_log(struct db *db, int64_t id, uint64_t off, size_t max, struct buf *out, struct err *err)
{
	struct rows r;
	return pieces(&r, db_query(db, &r, err, SLICE("logs", "line", "off"), "ii", id, (int64_t)off), off, max, out);
}

static int read_events(struct db *db, int64_t id, uint64_t off, size_t max, struct buf *out, struct err *err)
{
	struct rows r;
	return pieces(&r,
		      db_query(db, &r, err,
			       "SELECT off, line FROM events WHERE off >= coalesce((SELECT max(off) FROM events "
			       "WHERE off <= ?1), 0) ORDER BY off",
			       "i", (int64_t)off),
		      off, max, out);
}

static int read_template_log(struct db *db, int64_t id, uint64_t off, size_t max, struct buf *out, struct err *err)
{
	struct rows r;
	return pieces(
		&r,
		db_query(db, &r, err,
			 "SELECT off, line FROM template_logs WHERE template=?1 AND off >= coalesce((SELECT max(off) "
			 "FROM template_logs WHERE template=?1 AND off <= ?2), 0) ORDER BY off",
			 "ii", id, (int64_t)off),
		off, max, out);
}

/* The text of the assistant entry that the session's column points to. */
static int entry_text(struct rows *r, int rc, struct buf *text)
{
	if (!rc && rows_next(r)) {
		CLEAN_JSON cJSON *o = cJSON_Parse(row_text(r, 0));
		const char *s = json_str(o, "text");
		buf_adds(text, s ? s : "");
	}
	int end = rows_end(r);
	return rc ? rc : end;
}

#define POINTED(column)                                                                                                \
	"SELECT body FROM entries WHERE session=?1 AND seq=(SELECT " column " FROM sessions WHERE id=?1)"

int plan_text(struct db *db, int64_t id, int64_t request, int64_t plan_seq, struct buf *out, struct err *err)
{
	struct rows r;
	CLEAN_BUF struct buf text = BUF_INIT;
	bool streams = false;
	int rc = db_query(db, &r, err, "SELECT partial FROM requests WHERE session=? AND n=? AND state='pinned'", "ii",
			  id, request);
	if (!rc && rows_next(&r))
		streams = blocks_plan(row_text(&r, 0), row_len(&r, 0), out);
	int end = rows_end(&r);
	rc = rc ? rc : end;
	if (rc || streams)
		return rc;
	rc = entry_text(&r,
			db_query(db, &r, err, "SELECT body FROM entries WHERE session=? AND seq=?", "ii", id, plan_seq),
			&text);
	if (!rc)
		blocks_plan(buf_str(&text), text.n, out);
	return rc;
}

static int whole_plan(struct db *db, int64_t id, struct buf *out, struct err *err)
{
	return plan_text(db, id, db_int(db, 0, "SELECT request FROM sessions WHERE id=?", "i", id),
			 db_int(db, 0, "SELECT plan_seq FROM sessions WHERE id=?", "i", id), out, err);
}

static int whole_question(struct db *db, int64_t id, struct buf *out, struct err *err)
{
	struct rows r;
	CLEAN_BUF struct buf text = BUF_INIT;
	int rc = entry_text(&r, db_query(db, &r, err, POINTED("answer_seq"), "i", id), &text);
	if (!rc)
		blocks_question(buf_str(&text), text.n, out);
	return rc;
}

static int whole_answer(struct db *db, int64_t id, struct buf *out, struct err *err)
{
	struct rows r;
	int rc = entry_text(&r, db_query(db, &r, err, POINTED("answer_seq"), "i", id), out);
	if (!rc && out->n && !buf_ends(out, "\n"))
		buf_addc(out, '\n');
	return rc;
}

static int whole_queue(struct db *db, int64_t id, struct buf *out, struct err *err)
{
	return message_queue_text(db, id, out, err);
}

static const char *const stored[TEXT_KINDS] = {
	[TEXT_CHECKS] = "checks", [TEXT_DIFF] = "diff", [TEXT_CHANGES] = "changes", [TEXT_COMMITS] = "commits"};

static int (*const sliced[])(struct db *, int64_t, uint64_t, size_t, struct buf *,
			     struct err *) = {[TEXT_TRANSCRIPT] = read_transcript,
					      [TEXT_JSONL] = read_jsonl,
					      [TEXT_LOG] = read_log,
					      [TEXT_EVENTS] = read_events,
					      [TEXT_TEMPLATE_LOG] = read_template_log};

static int (*const whole[TEXT_KINDS])(struct db *, int64_t, struct buf *,
				      struct err *) = {[TEXT_PLAN] = whole_plan,
						       [TEXT_QUESTION] = whole_question,
						       [TEXT_ANSWER] = whole_answer,
						       [TEXT_QUEUE] = whole_queue,
						       [TEXT_USAGE] = usage_text};

int text_read(struct db *db, int64_t session, enum text_kind kind, uint64_t offset, size_t max, struct buf *out,
	      struct err *err)
{
	if (sliced[kind])
		return sliced[kind](db, session, offset, max, out, err);
	CLEAN_BUF struct buf text = BUF_INIT;
	struct rows r;
	int rc;
	if (whole[kind]) {
		rc = whole[kind](db, session, &text, err);
	} else {
		rc = db_query(db, &r, err, "SELECT body FROM texts WHERE session=? AND kind=?", "it", session,
			      stored[kind]);
		if (!rc && rows_next(&r))
			buf_add(&text, row_text(&r, 0), row_len(&r, 0));
		int end = rows_end(&r);
		rc = rc ? rc : end;
	}
	if (!rc)
		window(out, out->n, offset, max, 0, buf_str(&text), text.n);
	return rc;
}
