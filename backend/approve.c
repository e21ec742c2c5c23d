/* Asks, answers and grants. Worker threads; functions with a tx on the store thread.
 *
 * A call that waits keeps no thread: its approval is committed, the worker ends, and the answer, a commit too, starts
 * another one, which comes to the same call again. */
#include "approve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "killpoint.h"
#include "transcript.h"

#define TEXT_BYTES   (64 << 10) /* of a call that is shown; all of it is in the transcript */
#define REASON_BYTES 2000

/* ---- may it run? ---- */

struct ask {
	const struct approve_call *call;
	const char *rule;
};

/* What is allowed must be what is seen: nothing that a terminal would swallow or move is shown as it is. */
static void add_visible(struct buf *out, const char *text)
{
	size_t n = strlen(text) <= TEXT_BYTES ? strlen(text) : utf8_prefix(text, TEXT_BYTES, NULL);
	buf_adds(out, "    ");
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c == '\n')
			buf_adds(out, "\n    ");
		else if ((c < ' ' && c != '\t') || c == 0x7f)
			buf_addf(out, "\\x%02x", c);
		else if (c == 0xe2 && (unsigned char)text[i + 1] == 0x80 && (unsigned char)text[i + 2] >= 0xaa &&
			 (unsigned char)text[i + 2] <= 0xae)
			buf_adds(out, "\\u202?"), i += 2; /* turns the direction of what follows */
		else
			buf_addc(out, (char)c);
	}
	buf_addc(out, '\n');
	if (n < strlen(text))
		buf_addf(out, "[%zu bytes more are in the transcript: look there before you allow it]\n",
			 strlen(text) - n);
}

static void describe(struct buf *out, const struct session *s, const struct ask *a)
{
	CLEAN_JSON cJSON *args = cJSON_Parse(a->call->args);
	const char *shown = json_str(args, !strcmp(a->call->tool, "bash") ? "command" : "path");
	buf_addf(out, "%s asks to run %s in its %s sandbox:\n\n", s->name, a->call->tool, s->sandbox);
	add_visible(out, shown ? shown : a->call->args);
	buf_addf(out,
		 "\nRule: %s\nWrite once, session (this rule, for this session), project (for all sessions of %s), or "
		 "no "
		 "[reason].\n",
		 a->rule, s->project);
}

static int ask_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct ask *a = arg;
	CLEAN_BUF struct buf text = BUF_INIT;
	describe(&text, s, a);
	s->approval = ++s->asked;
	int rc = db_run(tx->db, err,
			"INSERT INTO approvals(session,k,at_ms,request,pos,rule,text,state,reason) "
			"VALUES(?,?,?,?,?,?,?,'waiting','')",
			"iiiiitt", s->id, s->approval, tx->now_ms, a->call->request, a->call->pos, a->rule,
			buf_str(&text));
	rc = rc ? rc : approve_load(tx->db, s, err);
	s->changed_ms = tx->now_ms;
	CLEAN_FREE char *detail = xasprintf("%" PRId64 " %s", s->approval, a->rule);
	return rc ? rc : tx_event(tx, s, "approval", detail, err);
}

static bool granted(struct worker *w, const char *rule)
{
	return db_int(w->db, 0,
		      "SELECT 1 FROM grants WHERE rule=? AND (session=? OR (session=0 AND project=?)) LIMIT 1", "tit",
		      rule, w->id, w->s->project);
}

/* The state of what was asked for this call by this rule, "" if nothing was. malloc'd. */
static int asked(struct worker *w, const struct approve_call *c, const char *rule, char **state, struct buf *reason,
		 struct err *err)
{
	struct rows r;
	int rc = db_query(
		w->db, &r, err,
		"SELECT state, reason FROM approvals WHERE session=? AND request=? AND pos=? AND rule=? ORDER BY "
		"k DESC LIMIT 1",
		"iiit", w->id, c->request, c->pos, rule);
	bool found = !rc && rows_next(&r);
	*state = xstrdup(found ? row_text(&r, 0) : "");
	if (found && !strcmp(*state, "no"))
		buf_adds(reason, row_text(&r, 1));
	int end = rows_end(&r);
	return rc ? rc : end;
}

static int one_rule(struct worker *w, const struct approve_call *c, const char *rule, enum approve_verdict *verdict,
		    struct buf *reason, struct err *err)
{
	CLEAN_FREE char *state = NULL;
	if (granted(w, rule))
		return 0;
	int rc = asked(w, c, rule, &state, reason, err);
	if (rc)
		return rc;
	if (!*state) {
		struct ask a = {c, rule};
		rc = worker_commit(w, ask_fn, &a, err);
		*verdict = APPROVE_WAIT;
		if (!rc)
			killpoint("approval.asked");
	} else if (!strcmp(state, "waiting")) {
		*verdict = APPROVE_WAIT;
	} else if (!strcmp(state, "no")) {
		*verdict = APPROVE_REFUSED;
	}
	return rc;
}

int approve_call(struct worker *w, const struct approve_call *c, enum approve_verdict *verdict, struct buf *reason,
		 struct err *err)
{
	char *rules[APPROVE_RULES_MAX];
	struct config *config = backend_config(w->b);
	struct approve_how how = {.kind = w->s->sandbox,
				  .on = !strcmp(w->s->setting[SETTING_APPROVALS], "on"),
				  .ask = config->value[CONFIG_APPROVALS_ASK],
				  .hosts = config->value[CONFIG_SHIP_HOSTS]};
	CLEAN_JSON cJSON *args = cJSON_Parse(c->args);
	size_t n = approve_rules(&how, c->tool, args, rules);
	config_put(config);
	int rc = 0;
	*verdict = APPROVE_RUN;
	for (size_t i = 0; i < n; i++) {
		if (!rc && *verdict == APPROVE_RUN)
			rc = one_rule(w, c, rules[i], verdict, reason, err);
		free(rules[i]);
	}
	return rc;
}

/* ---- answers ---- */

static int grant(struct tx *tx, struct session *s, int64_t k, bool project, struct err *err)
{
	int64_t session = project ? 0 : s->id;
	int rc = db_run(
		tx->db, err,
		"INSERT INTO grants(session,project,rule,at_ms) SELECT ?,?,rule,? FROM approvals WHERE session=? "
		"AND k=?",
		"itiii", session, s->project, tx->now_ms, s->id, k);
	return rc;
}

/* Grants of a project are shown by all of its sessions. */
static int show_again(struct tx *tx, struct session *s, bool project, struct err *err)
{
	struct rows r;
	int64_t ids[256];
	size_t n = 0;
	int rc = approve_load(tx->db, s, err);
	s->settings_ms = tx->now_ms;
	if (rc || !project)
		return rc;
	rc = db_query(tx->db, &r, err,
		      "SELECT id FROM sessions WHERE project=? AND destroyed_ms IS NULL ORDER BY id DESC", "t",
		      s->project);
	while (!rc && n < ARRAY_LEN(ids) && rows_next(&r))
		ids[n++] = row_int(&r, 0);
	int end = rows_end(&r);
	rc = rc ? rc : end;
	for (size_t i = 0; i < n && !rc; i++) {
		struct session *other = ids[i] == s->id ? NULL : tx_session(tx, ids[i]);
		if (!other)
			continue;
		rc = approve_load(tx->db, other, err);
		other->settings_ms = tx->now_ms;
	}
	return rc;
}

int approve_answer(struct tx *tx, struct session *s, int64_t k, const char *line, struct err *err)
{
	static const char *const scopes[] = {"once", "session", "project"};
	CLEAN_FREE char *copy = xstrdup(line);
	char *word = text_trim(copy);
	size_t n = strcspn(word, " \t");
	const char *reason = word[n] ? text_trim(word + n + 1) : "";
	bool no = n == 2 && !strncmp(word, "no", 2);
	size_t scope = 0;
	while (scope < ARRAY_LEN(scopes) && (strlen(scopes[scope]) != n || strncmp(word, scopes[scope], n)))
		scope++;
	if (!no && (scope == ARRAY_LEN(scopes) || *reason))
		return err_set(err, EINVAL, "\"%.40s\" is no answer; write once, session, project or no [reason]",
			       word);
	if (strlen(reason) > REASON_BYTES)
		return err_set(err, EINVAL, "a reason has at most %d bytes", REASON_BYTES);
	if (!k || s->approval != k)
		return err_set(err, ESTALE, "approval %" PRId64 " does not wait any more: look at approvals/ again", k);
	word[n] = 0;
	int rc = db_run(tx->db, err, "UPDATE approvals SET state=?, reason=? WHERE session=? AND k=?", "ttii", word,
			reason, s->id, k);
	if (!rc && scope == 1)
		rc = grant(tx, s, k, false, err);
	if (!rc && scope == 2)
		rc = grant(tx, s, k, true, err);
	s->approval = 0;
	s->changed_ms = tx->now_ms;
	rc = rc ? rc : show_again(tx, s, scope == 2 && !no, err);
	CLEAN_FREE char *detail = xasprintf("%" PRId64 " %s%s%s", k, word, *reason ? " " : "", reason);
	return rc ? rc : tx_event(tx, s, "approval", detail, err);
}

int approve_revoke(struct tx *tx, struct session *s, const char *which, struct err *err)
{
	char *end;
	int64_t id = strtoll(which, &end, 10);
	bool all = !strcmp(which, "all");
	if (!all && (!*which || *end))
		return err_set(err, EINVAL, "revoke needs the number of a grant, as this file lists them, or all");
	int64_t any = all;
	int rc =
		db_run(tx->db, err, "DELETE FROM grants WHERE (id=? OR ?) AND (session=? OR (session=0 AND project=?))",
		       "iiit", id, any, s->id, s->project);
	if (!rc && !db_changes(tx->db) && !all)
		return err_set(err, ENOENT, "there is no grant %s here", which);
	rc = rc ? rc : show_again(tx, s, true, err);
	CLEAN_FREE char *detail = xasprintf("revoked %s", which);
	return rc ? rc : tx_event(tx, s, "approval", detail, err);
}

int approve_drop(struct tx *tx, struct session *s, struct err *err)
{
	if (!s->approval)
		return 0;
	int rc = db_run(tx->db, err, "UPDATE approvals SET state='dropped' WHERE session=? AND k=?", "ii", s->id,
			s->approval);
	s->approval = 0;
	return rc ? rc : approve_load(tx->db, s, err);
}

/* ---- texts ---- */

int approve_load(struct db *db, struct session *s, struct err *err)
{
	struct rows r;
	CLEAN_BUF struct buf list = BUF_INIT;
	free(s->approval_text);
	free(s->grants);
	s->approval_text = s->grants = NULL;
	int rc = 0, end = 0;
	if (s->approval) {
		rc = db_query(db, &r, err, "SELECT text, at_ms FROM approvals WHERE session=? AND k=?", "ii", s->id,
			      s->approval);
		if (!rc && rows_next(&r)) {
			s->approval_text = xstrdup(row_text(&r, 0));
			s->approval_ms = row_int(&r, 1);
		}
		end = rows_end(&r);
	}
	rc = rc ? rc : end;
	if (rc)
		return rc;
	rc = db_query(
		db, &r, err,
		"SELECT id, session, rule, at_ms FROM grants WHERE session=? OR (session=0 AND project=?) ORDER BY id",
		"it", s->id, s->project);
	while (!rc && rows_next(&r)) {
		char when[CLOCK_TEXT];
		CLEAN_FREE char *rule = xstrdup(row_text(&r, 2));
		text_one_line(rule, SIZE_MAX);
		buf_addf(&list, "%" PRId64 "\t%s\t%s\t%s\n", row_int(&r, 0), row_int(&r, 1) ? "session" : "project",
			 clock_rfc3339(row_int(&r, 3), when), rule);
	}
	end = rows_end(&r);
	if (list.n)
		s->grants = buf_take(&list);
	return rc ? rc : end;
}
