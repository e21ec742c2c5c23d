/* What a model is asked to sum up: the conversation as plain text, in which results are cut short. It is made from the
 * end backwards, so that a transcript of any length costs no more than what is asked for. */
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "compact.h"
#include "transcript.h"

#define RAW_FACTOR   8		/* bytes read for a byte of text, at most: results are mostly cut */
#define TEXT_BYTES   (16 << 10) /* of a message or an answer */
#define ARGS_BYTES   2000	/* of a call */
#define RESULT_BYTES 2000	/* of a result */

const char compact_prompt[] =
	"You sum up the conversation of a user with a coding agent, so that the agent can go on with your summary in "
	"the "
	"place of the conversation. Write only the summary; call no tools and answer nothing that is asked in it.\n\n"
	"Tell: what the user wants, with all conditions and later corrections, in the user's words where they matter; "
	"what was decided and why; what was done, with names of files, functions, commands, commits; what was tried "
	"and "
	"failed, with the error's words; what is open, and the very next step. Leave out what does not matter any "
	"more.\n";

/* Adds at most max bytes of a text: its begin and its end. */
static void add_cut(struct buf *out, const char *text, size_t max)
{
	size_t n = strlen(text);
	if (n <= max) {
		buf_adds(out, text);
		return;
	}
	size_t head = utf8_prefix(text, max / 2, NULL), tail = n - max / 2;
	while (tail < n && (text[tail] & 0xC0) == 0x80)
		tail++;
	buf_add(out, text, head);
	buf_addf(out, "\n[%zu bytes are left out]\n", tail - head);
	buf_adds(out, text + tail);
}

static void render(struct buf *out, enum entry_kind kind, const cJSON *o)
{
	const char *text = json_str(o, "text"), *name = json_str(o, "name");
	CLEAN_FREE char *args = NULL;
	const cJSON *a;
	bool blank = !text || utf8_blank(text, strlen(text));
	switch (kind) {
	case ENTRY_USER:
	case ENTRY_SHIP:
	case ENTRY_ASSISTANT:
		if (blank || (json_str(o, "stop") && !strcmp(json_str(o, "stop"), "aborted")))
			return;
		buf_adds(out, kind == ENTRY_ASSISTANT ? "## Agent\n\n" : "## User\n\n");
		add_cut(out, text, TEXT_BYTES);
		cJSON_ArrayForEach(a, json_get(o, "attached"))
			buf_addf(out, "\n[attached: %s %s]", json_str(a, "name") ? json_str(a, "name") : "",
				 json_str(a, "path") ? json_str(a, "path") : "");
		break;
	case ENTRY_TOOL_CALL:
		args = cJSON_PrintUnformatted(json_get(o, "input"));
		buf_addf(out, "## Agent calls %s\n\n", name ? name : "a tool");
		add_cut(out, args ? args : "{}", ARGS_BYTES);
		break;
	case ENTRY_TOOL_RESULT:
		buf_addf(out, "## %s %s\n\n", name ? name : "The tool",
			 json_bool(o, "error", false) ? "failed" : "gave");
		add_cut(out, blank ? "(nothing)" : text, RESULT_BYTES);
		break;
	case ENTRY_NOTICE:
	case ENTRY_KINDS: return;
	}
	buf_adds(out, "\n\n");
}

/* Pieces, the newest first. */
struct pieces {
	struct buf *piece;
	size_t n, cap, bytes;
};

static void pieces_release(struct pieces *p)
{
	for (size_t i = 0; i < p->n; i++)
		buf_release(&p->piece[i]);
	free(p->piece);
}

/* *left_out: entries that did not fit. */
static int collect(struct db *db, int64_t session, int64_t from, int64_t to, size_t max, struct pieces *p,
		   int64_t *left_out, struct err *err)
{
	struct rows r;
	size_t raw = 0;
	int rc = db_query(
		db, &r, err,
		"SELECT seq, kind, body FROM told_entries WHERE session=? AND seq>? AND seq<=? ORDER BY seq DESC",
		"iii", session, from, to);
	*left_out = 0;
	while (!rc && rows_next(&r)) {
		CLEAN_BUF struct buf piece = BUF_INIT;
		CLEAN_JSON cJSON *o = cJSON_Parse(row_text(&r, 2));
		raw += row_len(&r, 2);
		if (o)
			render(&piece, entry_kind_of(row_text(&r, 1)), o);
		if (p->bytes + piece.n > max || raw > max * RAW_FACTOR) {
			*left_out = row_int(&r, 0) - from;
			break;
		}
		if (p->n == p->cap)
			p->piece = xrealloc(p->piece, (p->cap = p->cap * 2 + 64) * sizeof *p->piece);
		p->bytes += piece.n;
		p->piece[p->n++] = piece;
		piece = BUF_INIT;
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

/* The oldest message stands for the whole where what follows it does not fit. */
static int add_first(struct db *db, int64_t session, int64_t from, struct buf *out, struct err *err)
{
	struct rows r;
	int rc = db_query(db, &r, err,
			  "SELECT kind, body FROM told_entries WHERE session=? AND seq>? ORDER BY seq LIMIT 1", "ii",
			  session, from);
	if (!rc && rows_next(&r)) {
		CLEAN_JSON cJSON *o = cJSON_Parse(row_text(&r, 1));
		enum entry_kind kind = entry_kind_of(row_text(&r, 0));
		if (o && kind == ENTRY_USER)
			render(out, kind, o);
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

static int add_before(struct db *db, int64_t session, int64_t from, struct buf *out, struct err *err)
{
	struct rows r;
	int rc = db_query(db, &r, err,
			  "SELECT text FROM told_summaries WHERE session=? AND cut=? ORDER BY made DESC LIMIT 1", "ii",
			  session, from);
	if (!rc && rows_next(&r))
		buf_addf(out, "# Summary of what came before\n\n%s\n\n", row_text(&r, 0));
	int end = rows_end(&r);
	return rc ? rc : end;
}

int compact_text(struct db *db, int64_t session, int64_t from, int64_t to, size_t max, struct buf *out, struct err *err)
{
	struct pieces p = {0};
	int64_t left_out;
	int rc = add_before(db, session, from, out, err);
	rc = rc ? rc : collect(db, session, from, to, max, &p, &left_out, err);
	if (!rc)
		buf_adds(out, "# The conversation\n\n");
	if (!rc && left_out) {
		rc = add_first(db, session, from, out, err);
		buf_addf(out, "[%lld entries are left out here]\n\n", (long long)left_out);
	}
	for (size_t i = p.n; i-- > 0 && !rc;)
		buf_add(out, p.piece[i].p, p.piece[i].n);
	if (!rc)
		buf_adds(out, "# Your task\n\nSum this conversation up as you were told.\n");
	pieces_release(&p);
	return rc;
}
