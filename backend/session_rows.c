/* Loads and saves session records. Store thread (session_load: also a reader with its own connection). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "approve.h"
#include "attach.h"
#include "backend/base/mem.h"
#include "message.h"
#include "session.h"
#include "view.h"

void session_set(char **field, const char *value)
{
	char *copy = xstrdup(value ? value : "");
	free(*field);
	*field = copy;
}

/* Where a column's text or number lives in struct session; the order is that of the SELECT below. */
#define TEXT(field)                                                                                                    \
	{                                                                                                              \
#field, offsetof(struct session, field), true                                                          \
	}
#define NUMBER(field)                                                                                                  \
	{                                                                                                              \
#field, offsetof(struct session, field), false                                                         \
	}
#define SETTING(kind)                                                                                                  \
	{                                                                                                              \
		"setting", offsetof(struct session, setting) + (kind) * sizeof(char *), true                           \
	}

static const struct column {
	const char *name;
	size_t offset;
	bool text;
} columns[] = {
	TEXT(name),
	TEXT(project),
	NUMBER(created_ms),
	NUMBER(changed_ms),
	NUMBER(destroyed_ms),
	TEXT(detail),
	TEXT(base_branch),
	TEXT(base_commit),
	TEXT(start_commit),
	TEXT(head),
	TEXT(sandbox),
	TEXT(sandbox_state),
	TEXT(size),
	TEXT(clone),
	SETTING(SETTING_MODEL),
	SETTING(SETTING_NETWORK),
	SETTING(SETTING_AFTER_RUN),
	SETTING(SETTING_SHIP),
	SETTING(SETTING_APPROVALS),
	SETTING(SETTING_AGENT),
	NUMBER(settings_ms),
	NUMBER(accepted),
	NUMBER(run),
	NUMBER(request),
	NUMBER(attempt),
	NUMBER(retry_ms),
	NUMBER(stopping),
	NUMBER(unsynced),
	NUMBER(check_round),
	NUMBER(ship),
	NUMBER(ships_done),
	NUMBER(entries),
	NUMBER(md_size),
	NUMBER(json_size),
	NUMBER(transcript_ms),
	NUMBER(log_size),
	NUMBER(log_ms),
	NUMBER(plan_seq),
	NUMBER(plan_size),
	NUMBER(answer_seq),
	NUMBER(answer_size),
	NUMBER(question_size),
	NUMBER(retry_since_ms),
	NUMBER(output_bytes),
	NUMBER(usage_size),
	NUMBER(usage_ms),
	NUMBER(compact),
	NUMBER(compact_tries),
	NUMBER(compact_row),
	NUMBER(compact_turns),
	NUMBER(overflowed),
	NUMBER(context_tokens),
	NUMBER(context_off),
	NUMBER(approval),
	NUMBER(asked),
	NUMBER(attached),
	NUMBER(cloned_from),
	NUMBER(snapshots),
	NUMBER(restoring),
};

#define SELECT_COLUMNS                                                                                                 \
	"name,project,created_ms,changed_ms,destroyed_ms,detail,base_branch,base_commit,start_commit,head,sandbox,"    \
	"sandbox_state,size,clone,model,network,after_run,ship_to,approvals,agent,settings_ms,accepted,run,request,"   \
	"attempt,"                                                                                                     \
	"retry_ms,stopping,unsynced,check_round,ship,ships_done,entries,md_size,json_size,transcript_ms,log_size,log_" \
	"ms,"                                                                                                          \
	"plan_seq,plan_size,answer_seq,answer_size,question_size,retry_since_ms,output_bytes,usage_size,usage_ms,"     \
	"compact,compact_tries,compact_row,compact_turns,overflowed,context_tokens,context_off,approval,asked,"        \
	"attached,cloned_from,snapshots,restoring,"                                                                    \
	"state,after"

static char **text_at(struct session *s, size_t i)
{
	return (char **)(void *)((char *)s + columns[i].offset);
}

static int64_t *number_at(struct session *s, size_t i)
{
	return (int64_t *)(void *)((char *)s + columns[i].offset);
}

struct session *session_new(void)
{
	struct session *s = xcalloc(1, sizeof *s);
	for (size_t i = 0; i < ARRAY_LEN(columns); i++)
		if (columns[i].text)
			*text_at(s, i) = xstrdup("");
	s->ship_text = xstrdup("none");
	s->uncommitted = xstrdup("");
	return s;
}

void session_free(struct session *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < ARRAY_LEN(columns); i++)
		if (columns[i].text)
			free(*text_at(s, i));
	free(s->ship_text);
	free(s->approval_text);
	free(s->grants);
	for (size_t i = 0; i < s->n_attach; i++)
		free(s->attach[i].name);
	free(s->attach);
	free(s->uncommitted);
	live_put(s->live);
	free(s);
}

static enum state state_of(const char *name)
{
	for (int i = 0; i < STATES; i++)
		if (!strcmp(state_name(i), name))
			return (enum state)i;
	return STATE_FAILED;
}

static int load_texts(struct db *db, struct session *s, struct err *err)
{
	struct rows r;
	int rc = db_query(
		db, &r, err,
		"SELECT kind, length(CAST(body AS BLOB)), changed_ms, CASE kind WHEN 'uncommitted' THEN body END "
		"FROM texts WHERE session=?",
		"i", s->id);
	while (!rc && rows_next(&r)) {
		const char *kind = row_text(&r, 0);
		if (!strcmp(kind, "uncommitted")) {
			session_set(&s->uncommitted, row_text(&r, 3));
			continue;
		}
		struct text_info *t = !strcmp(kind, "diff")	 ? &s->diff
				      : !strcmp(kind, "changes") ? &s->changes
				      : !strcmp(kind, "commits") ? &s->commits
								 : &s->checks;
		*t = (struct text_info){(uint64_t)row_int(&r, 1), row_int(&r, 2)};
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

static int load_ship(struct db *db, struct session *s, struct err *err)
{
	struct rows r;
	int rc = db_query(db, &r, err, "SELECT at_ms, step, outcome FROM ships WHERE session=? AND n=?", "ii", s->id,
			  s->ship);
	if (!rc && rows_next(&r)) {
		s->ship_ms = row_int(&r, 0);
		s->shipping = *row_text(&r, 1);
		session_set(&s->ship_text, row_text(&r, 2));
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

static const struct {
	int bit;
	const char *name;
} owed[] = {{AFTER_SYNC, "sync"}, {AFTER_CHECKS, "checks"}, {AFTER_MERGE, "merge"}, {AFTER_SHIP, "ship"}};

static int parse_after(const char *text)
{
	int after = 0;
	for (size_t i = 0; i < ARRAY_LEN(owed); i++)
		after |= strstr(text, owed[i].name) ? owed[i].bit : 0;
	return after;
}

int session_load(struct db *db, int64_t id, struct session **out, struct err *err)
{
	struct rows r;
	*out = NULL;
	int rc = db_query(db, &r, err, "SELECT " SELECT_COLUMNS " FROM sessions WHERE id=?", "i", id);
	struct session *s = NULL;
	if (!rc && rows_next(&r)) {
		s = session_new();
		s->id = id;
		for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
			if (columns[i].text)
				session_set(text_at(s, i), row_text(&r, (int)i));
			else
				*number_at(s, i) = row_int(&r, (int)i);
		}
		s->state = state_of(row_text(&r, ARRAY_LEN(columns)));
		s->after = parse_after(row_text(&r, ARRAY_LEN(columns) + 1));
	}
	int end = rows_end(&r);
	rc = rc ? rc : end;
	if (rc || !s) {
		session_free(s);
		return rc;
	}
	rc = load_texts(db, s, err);
	rc = rc ? rc : load_ship(db, s, err);
	rc = rc ? rc : approve_load(db, s, err);
	rc = rc ? rc : attach_load(db, s, err);
	rc = rc ? rc : message_count(db, s, s->created_ms, err);
	if (rc) {
		session_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

static void after_text(const struct session *s, struct buf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(owed); i++)
		if (s->after & owed[i].bit)
			buf_addf(out, "%s%s", out->n ? " " : "", owed[i].name);
}

int session_insert(struct tx *tx, struct session *s, struct err *err)
{
	int64_t zero = 0;
	int rc = db_run(
		tx->db, err,
		"INSERT INTO sessions(id,name,project,created_ms,changed_ms,state,detail,after,base_branch,base_commit,"
		"start_commit,head,sandbox,sandbox_state,size,clone,model,network,after_run,ship_to,approvals,settings_"
		"ms,"
		"accepted,run,request,attempt,retry_ms,stopping,unsynced,check_round,ship,ships_done,entries,md_size,"
		"json_size,"
		"transcript_ms,log_size,log_ms,plan_seq,plan_size,answer_seq,answer_size,question_size,agent) "
		"VALUES(?1,?2,?3,?4,?4,'preparing',?5,'',?6,?7,?7,'',?8,?9,?10,'',?11,?12,?13,?14,?15,?4,"
		"?16,?16,?16,?16,?16,?16,?16,?16,?16,?16,?16,?16,?16,?4,?16,?4,?16,?16,?16,?16,?16,?17)",
		"ittitttttttttttit", s->id, s->name, s->project, tx->now_ms, s->detail, s->base_branch, s->base_commit,
		s->sandbox, s->sandbox_state, s->size, s->setting[SETTING_MODEL], s->setting[SETTING_NETWORK],
		s->setting[SETTING_AFTER_RUN], s->setting[SETTING_SHIP], s->setting[SETTING_APPROVALS], zero,
		s->setting[SETTING_AGENT]);
	if (rc == -EEXIST)
		return err_set(err, EEXIST, "a session with the name %s exists already", s->name);
	session_set(&s->start_commit, s->base_commit);
	s->created_ms = s->changed_ms = s->settings_ms = s->transcript_ms = s->log_ms = tx->now_ms;
	s->queue.changed_ms = tx->now_ms;
	s->state = STATE_PREPARING;
	return rc;
}

int session_save(struct tx *tx, struct session *s, struct err *err)
{
	CLEAN_BUF struct buf after = BUF_INIT;
	after_text(s, &after);
	int rc = db_run(
		tx->db, err,
		"UPDATE sessions SET "
		"name=?,changed_ms=?,destroyed_ms=nullif(?,0),state=?,detail=?,after=?,base_branch=?,"
		"base_commit=?,head=?,sandbox_state=?,clone=?,model=?,network=?,after_run=?,ship_to=?,approvals=?,"
		"settings_ms=?,accepted=?,run=?,request=?,attempt=?,retry_ms=?,stopping=?,unsynced=?,check_round=?,"
		"ship=?,ships_done=? "
		"WHERE id=?",
		"tiitttttttttttttiiiiiiiiiiii", s->name, s->changed_ms, s->destroyed_ms, state_name(s->state),
		s->detail, buf_str(&after), s->base_branch, s->base_commit, s->head, s->sandbox_state, s->clone,
		s->setting[SETTING_MODEL], s->setting[SETTING_NETWORK], s->setting[SETTING_AFTER_RUN],
		s->setting[SETTING_SHIP], s->setting[SETTING_APPROVALS], s->settings_ms, s->accepted, s->run,
		s->request, s->attempt, s->retry_ms, s->stopping, s->unsynced, s->check_round, s->ship, s->ships_done,
		s->id);
	if (rc)
		return rc;
	return db_run(tx->db, err,
		      "UPDATE sessions SET "
		      "entries=?,md_size=?,json_size=?,transcript_ms=?,log_size=?,log_ms=?,plan_seq=?,plan_size=?,"
		      "answer_seq=?,answer_size=?,question_size=?,retry_since_ms=?,output_bytes=?,usage_size=?,usage_"
		      "ms=?,compact=?,compact_tries=?,compact_row=?,compact_turns=?,overflowed=?,context_tokens=?,"
		      "context_off=?,approval=?,asked=?,attached=?,cloned_from=?,snapshots=?,restoring=?,agent=? "
		      "WHERE id=?",
		      "iiiiiiiiiiiiiiiiiiiiiiiiiiiiti", s->entries, s->md_size, s->json_size, s->transcript_ms,
		      s->log_size, s->log_ms, s->plan_seq, s->plan_size, s->answer_seq, s->answer_size,
		      s->question_size, s->retry_since_ms, s->output_bytes, s->usage_size, s->usage_ms, s->compact,
		      s->compact_tries, s->compact_row, s->compact_turns, s->overflowed, s->context_tokens,
		      s->context_off, s->approval, s->asked, s->attached, s->cloned_from, s->snapshots, s->restoring,
		      s->setting[SETTING_AGENT], s->id);
}
