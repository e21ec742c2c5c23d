/* Messages: accepted, placed, answered. Store thread (message_queue_text: reader threads too). */
#include "message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "backend/parse/blocks.h"
#include "transcript.h"

#define LINE_MAX_BYTES 200 /* of a message's first line in `queue` */

int message_count(struct db *db, struct session *s, int64_t now_ms, struct err *err)
{
	s->unanswered = db_int(db, 0,
			       "SELECT k FROM messages WHERE session=? AND state IN ('waiting','placed') "
			       "ORDER BY k LIMIT 1",
			       "i", s->id);
	s->waiting = 0;
	if (s->unanswered)
		s->waiting = db_int(db, 0,
				    "SELECT count(*) FROM messages WHERE session=? AND state IN ('waiting','placed') "
				    "AND state='waiting'",
				    "i", s->id);
	uint64_t old = s->queue.size;
	CLEAN_BUF struct buf text = BUF_INIT;
	int rc = s->waiting ? message_queue_text(db, s->id, &text, err) : 0;
	s->queue.size = text.n;
	if (old != text.n || !s->queue.changed_ms)
		s->queue.changed_ms = now_ms;
	return rc;
}

/* A bare number while a question is open picks its option. option stays empty if it is no such message. */
static int picked(struct tx *tx, const struct session *s, const char *text, struct buf *option, struct err *err)
{
	struct rows r;
	const char *digits = text + strspn(text, " \t\r\n");
	size_t n = strspn(digits, "0123456789");
	if (s->state != STATE_IDLE || !s->question_size || !n || n > 3 || digits[n + strspn(digits + n, " \t\r\n")])
		return 0;
	int rc = db_query(tx->db, &r, err, "SELECT body FROM entries WHERE session=? AND seq=?", "ii", s->id,
			  s->answer_seq);
	if (!rc && rows_next(&r)) {
		CLEAN_JSON cJSON *o = cJSON_Parse(row_text(&r, 0));
		const char *answer = json_str(o, "text");
		if (answer)
			blocks_option(answer, strlen(answer), atoi(digits), option);
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

int message_accept(struct tx *tx, struct session *s, const char *text, int64_t *k, struct err *err)
{
	if (utf8_blank(text, strlen(text)))
		return err_set(err, EINVAL, "the message is empty but for white space; nothing was sent");
	if (s->state == STATE_DESTROYING)
		return err_set(err, ESHUTDOWN, "this session is being destroyed");
	bool taken = s->state == STATE_RUNNING || s->state == STATE_IDLE || (s->state == STATE_FAILED && *s->clone);
	int64_t held = !taken;
	CLEAN_BUF struct buf option = BUF_INIT;
	int rc = picked(tx, s, text, &option, err);
	if (rc)
		return rc;
	*k = ++s->accepted;
	rc = db_run(tx->db, err,
		    "INSERT INTO messages(session,k,at_ms,text,held,state,run,option) VALUES(?,?,?,?,?,'waiting',0,?)",
		    "iiitit", s->id, *k, tx->now_ms, text, held, buf_str(&option));
	rc = rc ? rc : attach_take(tx, s, *k, err);
	rc = rc ? rc : message_count(tx->db, s, tx->now_ms, err);
	CLEAN_FREE char *detail = xasprintf("%" PRId64 "%s", *k, held ? " held" : "");
	rc = rc ? rc : tx_event(tx, s, "message", detail, err);
	return rc ? rc : session_event(tx, s, EVENT_MESSAGE, NULL, err);
}

int message_withdraw(struct tx *tx, struct session *s, int64_t k, struct err *err)
{
	int rc =
		db_run(tx->db, err, "UPDATE messages SET state='withdrawn' WHERE session=? AND k=? AND state='waiting'",
		       "ii", s->id, k);
	if (rc)
		return rc;
	if (!db_changes(tx->db))
		return k > 0 && k <= s->accepted
			       ? err_set(err, EBUSY,
					 "message %" PRId64
					 " does not wait any more: it is in the transcript or was withdrawn",
					 k)
			       : err_set(err, ENOENT,
					 "there is no message %" PRId64 ": `cat queue` lists those that wait", k);
	rc = attach_give_back(tx, s, k, err);
	rc = rc ? rc : message_count(tx->db, s, tx->now_ms, err);
	CLEAN_FREE char *detail = xasprintf("%" PRId64, k);
	return rc ? rc : tx_event(tx, s, "withdrawn", detail, err);
}

static int place_one(struct tx *tx, struct session *s, int64_t k, const char *text, const char *option, struct err *err)
{
	int rc = transcript_user(tx, s, k, text, option, err);
	return rc ? rc
		  : db_run(tx->db, err, "UPDATE messages SET state='placed', run=? WHERE session=? AND k=?", "iii",
			   s->run, s->id, k);
}

bool message_any_placed(struct tx *tx, const struct session *s)
{
	return db_int(tx->db, 0, "SELECT 1 FROM messages WHERE session=? AND state='placed'", "i", s->id);
}

int message_place(struct tx *tx, struct session *s, struct err *err)
{
	bool first = !message_any_placed(tx, s);
	for (int rc = 0; !rc;) {
		struct rows r;
		rc = db_query(tx->db, &r, err,
			      "SELECT k, text, held, option FROM messages WHERE session=? AND state='waiting' "
			      "ORDER BY k LIMIT 1",
			      "i", s->id);
		bool found = !rc && rows_next(&r);
		int64_t k = found ? row_int(&r, 0) : 0;
		bool held = found && row_int(&r, 2);
		CLEAN_FREE char *text = found ? xstrdup(row_text(&r, 1)) : NULL;
		CLEAN_FREE char *option = found ? xstrdup(row_text(&r, 3)) : NULL;
		int end = rows_end(&r);
		rc = rc ? rc : end;
		if (rc)
			return rc;
		if (!found || (held && !first) || attach_missing(tx, s, k))
			break;
		rc = place_one(tx, s, k, text, option, err);
		if (rc)
			return rc;
		first = false;
	}
	return message_count(tx->db, s, tx->now_ms, err);
}

int message_answer_all(struct tx *tx, struct session *s, struct err *err)
{
	int rc = db_run(tx->db, err,
			"UPDATE messages SET state='answered' WHERE session=? AND state IN ('waiting','placed') "
			"AND state='placed'",
			"i", s->id);
	return rc ? rc : message_count(tx->db, s, tx->now_ms, err);
}

int message_queue_text(struct db *db, int64_t session, struct buf *out, struct err *err)
{
	struct rows r;
	int rc = db_query(db, &r, err,
			  "SELECT k, at_ms, text FROM messages WHERE session=? AND state IN ('waiting','placed') "
			  "AND state='waiting' ORDER BY k",
			  "i", session);
	while (!rc && rows_next(&r)) {
		char when[CLOCK_TEXT];
		const char *text = row_text(&r, 2);
		text += strspn(text, " \t\r\n");
		size_t n = strcspn(text, "\r\n");
		if (n > LINE_MAX_BYTES)
			n = utf8_prefix(text, LINE_MAX_BYTES, NULL);
		buf_addf(out, "%" PRId64 "\t%s\t", row_int(&r, 0), clock_rfc3339(row_int(&r, 1), when));
		for (size_t i = 0; i < n; i++)
			buf_addc(out, text[i] == '\t' ? ' ' : text[i]);
		buf_addc(out, '\n');
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}
