/* The transcript: writes entries. Store thread, inside transactions. */
#include "transcript.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/parse/blocks.h"

static const char *const names[ENTRY_KINDS] = {"user", "assistant", "tool_call", "tool_result", "notice", "ship"};

const char *entry_name(enum entry_kind kind)
{
	return names[kind];
}

enum entry_kind entry_kind_of(const char *name)
{
	int i = 0;
	while (i < ENTRY_KINDS && strcmp(names[i], name))
		i++;
	return (enum entry_kind)i;
}

/* ---- Markdown ---- */

/* A fence longer than any run of backticks in the text, so that the text cannot end its own block. */
static void fenced(struct buf *md, const char *info, const char *text)
{
	size_t longest = 2, here = 0;
	for (const char *p = text; *p; p++) {
		here = *p == '`' ? here + 1 : 0;
		longest = here > longest ? here : longest;
	}
	for (size_t i = 0; i <= longest; i++)
		buf_addc(md, '`');
	buf_addf(md, "%s\n%s", info, text);
	if (!buf_ends(md, "\n"))
		buf_addc(md, '\n');
	for (size_t i = 0; i <= longest; i++)
		buf_addc(md, '`');
	buf_addc(md, '\n');
}

static void paragraph(struct buf *md, const char *text)
{
	buf_adds(md, text);
	if (!buf_ends(md, "\n"))
		buf_addc(md, '\n');
}

static void heading(struct buf *md, struct tx *tx, struct session *s, const char *title)
{
	char when[CLOCK_TEXT];
	buf_addf(md, "%s## %s — %s\n\n", s->entries ? "\n" : "", title, clock_rfc3339(tx->now_ms, when));
}

/* ---- entries ---- */

static void field(struct buf *b, const char *key, const char *text)
{
	buf_addf(b, ",\"%s\":", key);
	json_quote(b, text ? text : "", text ? strlen(text) : 0);
}

static int add(struct tx *tx, struct session *s, enum entry_kind kind, const struct buf *fields, const struct buf *md,
	       struct err *err)
{
	char when[CLOCK_TEXT];
	CLEAN_BUF struct buf body = BUF_INIT;
	int64_t seq = s->entries + 1;
	buf_addf(&body, "{\"seq\":%" PRId64 ",\"time\":\"%s\",\"kind\":\"%s\"%s}\n", seq,
		 clock_rfc3339(tx->now_ms, when), names[kind], buf_str(fields));
	int rc = db_run(tx->db, err,
			"INSERT INTO entries(session,seq,at_ms,kind,run,body,md,md_off,json_off) "
			"VALUES(?,?,?,?,?,?,?,?,?)",
			"iiitittii", s->id, seq, tx->now_ms, names[kind], s->run, buf_str(&body), buf_str(md),
			s->md_size, s->json_size);
	if (rc)
		return rc;
	s->entries = seq;
	s->md_size += (int64_t)md->n;
	s->json_size += (int64_t)body.n;
	s->transcript_ms = tx->now_ms;
	return 0;
}

int transcript_user(struct tx *tx, struct session *s, int64_t k, const char *text, const char *option, struct err *err)
{
	CLEAN_BUF struct buf md = BUF_INIT;
	CLEAN_BUF struct buf fields = BUF_INIT;
	CLEAN_FREE char *title = xasprintf("user, message %" PRId64, k);
	heading(&md, tx, s, title);
	buf_addf(&fields, ",\"message\":%" PRId64, k);
	if (*option) {
		text += strspn(text, " \t\r\n");
		CLEAN_FREE char *typed = xstrndup(text, strspn(text, "0123456789"));
		buf_addf(&md, "%s. %s\n", typed, option);
		field(&fields, "text", option);
		field(&fields, "typed", typed);
	} else {
		paragraph(&md, text);
		field(&fields, "text", text);
	}
	int rc = attach_entry(tx, s, k, &fields, &md, err);
	return rc ? rc : add(tx, s, ENTRY_USER, &fields, &md, err);
}

static int told(struct tx *tx, struct session *s, enum entry_kind kind, const char *text, struct err *err)
{
	CLEAN_BUF struct buf md = BUF_INIT;
	CLEAN_BUF struct buf fields = BUF_INIT;
	heading(&md, tx, s, names[kind]);
	paragraph(&md, text);
	field(&fields, "text", text);
	return add(tx, s, kind, &fields, &md, err);
}

int transcript_notice(struct tx *tx, struct session *s, const char *text, struct err *err)
{
	return told(tx, s, ENTRY_NOTICE, text, err);
}

int transcript_ship(struct tx *tx, struct session *s, const char *text, struct err *err)
{
	return told(tx, s, ENTRY_SHIP, text, err);
}

int transcript_assistant(struct tx *tx, struct session *s, const char *model, const char *text, const char *thinking,
			 const char *replay, const char *stop, int calls, bool final, struct err *err)
{
	CLEAN_BUF struct buf md = BUF_INIT;
	CLEAN_BUF struct buf fields = BUF_INIT;
	CLEAN_BUF struct buf block = BUF_INIT;
	heading(&md, tx, s, "assistant");
	if (*text)
		paragraph(&md, text);
	field(&fields, "model", model);
	field(&fields, "text", text);
	if (thinking && *thinking)
		field(&fields, "thinking", thinking);
	if (replay)
		buf_addf(&fields, ",\"replay\":%s", replay);
	field(&fields, "stop", stop);
	buf_addf(&fields, ",\"calls\":%d", calls);
	int rc = add(tx, s, ENTRY_ASSISTANT, &fields, &md, err);
	if (rc)
		return rc;
	if (blocks_plan(text, strlen(text), &block)) {
		s->plan_seq = s->entries;
		s->plan_size = (int64_t)block.n;
	}
	if (!final)
		return 0;
	s->answer_seq = s->entries;
	s->answer_size = (int64_t)strlen(text) + (*text && text[strlen(text) - 1] != '\n');
	buf_reset(&block);
	blocks_question(text, strlen(text), &block);
	s->question_size = (int64_t)block.n;
	return 0;
}

/* The argument that a person wants to see first, fenced; everything for unknown tools. */
static void show_args(struct buf *md, const char *name, const char *args)
{
	static const struct {
		const char *tool, *key, *info;
	} shown[] = {{"bash", "command", "sh"}, {"read", "path", ""}, {"write", "path", ""}, {"edit", "path", ""}};
	CLEAN_JSON cJSON *o = cJSON_Parse(args);
	for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
		const char *text = json_str(o, shown[i].key);
		if (strcmp(shown[i].tool, name) || !text)
			continue;
		if (!strcmp(name, "bash") || strpbrk(text, "`\n"))
			fenced(md, shown[i].info, text);
		else
			buf_addf(md, "`%s`\n", text);
		return;
	}
	fenced(md, "json", args);
}

int transcript_call(struct tx *tx, struct session *s, const char *id, const char *name, const char *args,
		    struct err *err)
{
	CLEAN_BUF struct buf md = BUF_INIT;
	CLEAN_BUF struct buf fields = BUF_INIT;
	buf_addf(&md, "\n### %s\n\n", name);
	show_args(&md, name, args);
	field(&fields, "id", id);
	field(&fields, "name", name);
	buf_addf(&fields, ",\"input\":%s", args);
	return add(tx, s, ENTRY_TOOL_CALL, &fields, &md, err);
}

int transcript_result(struct tx *tx, struct session *s, const char *id, const char *name, const char *text, bool error,
		      struct err *err)
{
	CLEAN_BUF struct buf md = BUF_INIT;
	CLEAN_BUF struct buf fields = BUF_INIT;
	buf_addf(&md, "\n#### %s%s\n\n", name, error ? " failed" : " gave");
	fenced(&md, "", text);
	field(&fields, "id", id);
	field(&fields, "name", name);
	field(&fields, "text", text);
	buf_addf(&fields, ",\"error\":%s", error ? "true" : "false");
	return add(tx, s, ENTRY_TOOL_RESULT, &fields, &md, err);
}

int log_add(struct tx *tx, struct session *s, const char *text, struct err *err)
{
	char when[CLOCK_TEXT];
	CLEAN_BUF struct buf line = BUF_INIT;
	CLEAN_FREE char *words = xstrdup(text);
	text_one_line(words, SIZE_MAX);
	buf_addf(&line, "%s %s\n", clock_rfc3339(tx->now_ms, when), words);
	int rc = db_run(tx->db, err, "INSERT INTO logs(session,off,line) VALUES(?,?,?)", "iit", s->id, s->log_size,
			buf_str(&line));
	if (rc)
		return rc;
	s->log_size += (int64_t)line.n;
	s->log_ms = tx->now_ms;
	return 0;
}
