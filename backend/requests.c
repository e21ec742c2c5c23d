/* The transactions of requests. Store thread. */
#include "requests.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "approve.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "guest.h"
#include "message.h"
#include "sandbox/sandbox.h"
#include "session.h"
#include "ship.h"
#include "snapshot.h"
#include "transcript.h"

static struct session *find(struct tx *tx, const struct request *r, struct err *err)
{
	struct session *s = tx_session(tx, r->session);
	if (!s)
		err_set(err, ESHUTDOWN, "this session has ended");
	return s;
}

int message_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	int64_t k = 0;
	struct session *s = find(tx, r, err);
	int rc = s ? message_accept(tx, s, buf_str(&r->text), &k, err) : -ESHUTDOWN;
	r->number = (uint64_t)k;
	return rc;
}

int setting_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	struct session *s = find(tx, r, err);
	if (!s)
		return -ESHUTDOWN;
	/* No change: an editor that writes the old value back after a refusal must not find a new time. */
	if (s->setting[r->setting] && !strcmp(s->setting[r->setting], buf_str(&r->text)))
		return 0;
	session_set(&s->setting[r->setting], buf_str(&r->text));
	s->settings_ms = tx->now_ms;
	CLEAN_FREE char *detail = xasprintf("%s = %s", setting_names[r->setting], buf_str(&r->text));
	return tx_event(tx, s, "setting", detail, err);
}

int rename_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	struct session *s = find(tx, r, err);
	if (!s)
		return -ESHUTDOWN;
	int rc = name_check(r->name, err);
	if (!rc && db_int(tx->db, 0, "SELECT 1 FROM sessions WHERE name=? AND destroyed_ms IS NULL", "t", r->name))
		rc = err_set(err, EEXIST, "a session with the name %s exists already", r->name);
	rc = rc ? rc : tx_event(tx, s, "renamed", r->name, err);
	if (!rc) {
		session_set(&s->name, r->name);
		s->changed_ms = tx->now_ms;
	}
	return rc;
}

/* Work that only the sandbox has: calls since the last sync, or one that is running. */
static bool has_work(struct tx *tx, const struct session *s)
{
	return s->unsynced || db_int(tx->db, 0, "SELECT 1 FROM calls WHERE session=? AND request=? AND state='started'",
				     "ii", s->id, s->request);
}

static int destroy(struct tx *tx, struct session *s, bool force, struct err *err)
{
	if (!force && has_work(tx, s))
		return err_set(err, EBUSY,
			       "%s has run tools since its last sync: wait with `cat sessions/%s/wait/idle` or write "
			       "`sync` to "
			       "its ctl first; `echo destroy force > sessions/%s/ctl` ends it all the same",
			       s->name, s->name, s->name);
	if (!force && snapshot_wanted(tx, s))
		return err_set(err, EBUSY,
			       "a session that begins as %s has not copied its disk yet: try again in a moment",
			       s->name);
	int rc = session_event(tx, s, EVENT_DESTROY, NULL, err);
	rc = rc ? rc : tx_event(tx, s, "destroyed", "", err);
	s->destroyed_ms = tx->now_ms;
	return rc;
}

int destroy_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	struct session *s = find(tx, r, err);
	return s ? destroy(tx, s, r->force, err) : -ESHUTDOWN;
}

/* ---- ctl ---- */

typedef int verb_fn(struct tx *tx, struct session *s, const char *arg, struct err *err);

static int no_arg(const char *arg, struct err *err)
{
	return *arg ? err_set(err, EINVAL, "this verb takes nothing behind it") : 0;
}

static int verb_stop(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	return rc ? rc : session_event(tx, s, EVENT_STOP, NULL, err);
}

static int verb_retry(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	return rc ? rc : session_event(tx, s, EVENT_RETRY, NULL, err);
}

static int verb_sync(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	return rc ? rc : session_event(tx, s, EVENT_SYNC, NULL, err);
}

static int verb_check(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	return rc ? rc : session_event(tx, s, EVENT_CHECK, NULL, err);
}

static int verb_merge(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	return rc ? rc : session_event(tx, s, EVENT_MERGE, NULL, err);
}

static int verb_compact(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	if (!rc && guest_is(s->setting[SETTING_AGENT]))
		return err_set(err, EOPNOTSUPP,
			       "its agent keeps its conversation itself, and makes room in it by itself");
	return rc ? rc : session_event(tx, s, EVENT_COMPACT, NULL, err);
}

static int verb_down(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	return rc ? rc : session_event(tx, s, EVENT_DOWN, "down", err);
}

/* The `sandbox` file as it was committed last: kind, and how it is. */
static bool sandbox_is(const struct session *s, const char *word)
{
	return strstr(s->sandbox_state + strcspn(s->sandbox_state, " "), word) != NULL;
}

static int lower_to(struct tx *tx, struct session *s, enum sandbox_state state, const char *verb, struct err *err)
{
	if (!sandbox_can(s->sandbox, state))
		return err_set(err, EOPNOTSUPP, "a sandbox of kind %s cannot %s", s->sandbox, verb);
	if (s->state == STATE_IDLE && sandbox_is(s, " down"))
		return err_set(err, EINVAL, "its sandbox is down: there is nothing to %s", verb);
	return session_event(tx, s, EVENT_DOWN, verb, err);
}

static int verb_pause(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	if (!rc && s->state == STATE_IDLE && sandbox_is(s, " hibernated"))
		return err_set(err, EINVAL, "its sandbox is hibernated: there is nothing to pause");
	return rc ? rc : lower_to(tx, s, SANDBOX_PAUSED, "pause", err);
}

static int verb_hibernate(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	return rc ? rc : lower_to(tx, s, SANDBOX_HIBERNATED, "hibernate", err);
}

static int verb_resume(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	return rc ? rc : session_event(tx, s, EVENT_DOWN, "resume", err);
}

static int verb_snapshot(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	int rc = no_arg(arg, err);
	return rc ? rc : snapshot_begin(tx, s, err);
}

static int verb_restore(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	char *end;
	int64_t k = strtoll(arg, &end, 10);
	if (!*arg || *end || k < 1)
		return err_set(err, EINVAL, "restore needs the number of a snapshot: `log` has them");
	return restore_begin(tx, s, k, err);
}

static int verb_withdraw(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	char *end;
	int64_t k = strtoll(arg, &end, 10);
	if (!*arg || *end || k < 1)
		return err_set(err, EINVAL, "withdraw needs the number of a message that waits: see `queue`");
	return message_withdraw(tx, s, k, err);
}

static int verb_destroy(struct tx *tx, struct session *s, const char *arg, struct err *err)
{
	bool force = !strcmp(arg, "force");
	if (*arg && !force)
		return err_set(err, EINVAL, "destroy takes nothing or `force` behind it");
	return destroy(tx, s, force, err);
}

static const struct verb {
	const char *name;
	verb_fn *run; /* NULL: known, not built yet */
	bool cancels;
	const char *form, *about; /* as `ctl` shows them */
} verbs[] = {
	{"stop", verb_stop, true, "stop", "end the run, tools included"},
	{"retry", verb_retry, false, "retry", "try again what failed, or try now"},
	{"withdraw", verb_withdraw, false, "withdraw K", "take back message K while it waits"},
	{"check", verb_check, false, "check", "run the checks"},
	{"sync", verb_sync, false, "sync", "bring the work into the checkout"},
	{"merge", verb_merge, false, "merge", "fast-forward the checked-out branch to it"},
	{"compact", verb_compact, false, "compact", "sum up older parts for the model, to make room"},
	{"pause", verb_pause, false, "pause", "stop the sandbox as it is, memory and all"},
	{"hibernate", verb_hibernate, false, "hibernate", "the same, and its memory goes to disk"},
	{"resume", verb_resume, false, "resume", "wake the sandbox: what needs it does so by itself"},
	{"down", verb_down, false, "down", "stop the sandbox; its disk stays, what needs it starts it again"},
	{"snapshot", verb_snapshot, false, "snapshot", "keep disk, branch and transcript as they are now"},
	{"restore", verb_restore, false, "restore K", "go back to snapshot K; what is now becomes a snapshot first"},
	{"destroy", verb_destroy, true, "destroy [force]", "end the session, as rmdir does"},
};

void ctl_verbs(struct buf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (verbs[i].run)
			buf_addf(out, "%-15s %s\n", verbs[i].form, verbs[i].about);
}

/* Splits the line in place; *arg is what follows the verb. */
static const struct verb *verb_of(char *line, const char **arg, const char **word)
{
	char *s = text_trim(line);
	size_t n = strcspn(s, " \t");
	bool more = s[n];
	s[n] = 0;
	*word = s;
	*arg = more ? text_trim(s + n + 1) : "";
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!strcmp(verbs[i].name, s))
			return &verbs[i];
	return NULL;
}

static int unknown_verb(const char *word, struct err *err)
{
	CLEAN_BUF struct buf list = BUF_INIT;
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (verbs[i].run)
			buf_addf(&list, "%s%s", list.n ? ", " : "", verbs[i].name);
	return err_set(err, EINVAL, "unknown verb \"%.40s\"; known: %s", word, buf_str(&list));
}

int ctl_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	const char *rest, *word;
	CLEAN_FREE char *line = xstrdup(buf_str(&r->text));
	const struct verb *v = verb_of(line, &rest, &word);
	if (!v)
		return unknown_verb(word, err);
	if (!v->run)
		return err_set(err, EOPNOTSUPP, "%s is not built yet", word);
	struct session *s = find(tx, r, err);
	return s ? v->run(tx, s, rest, err) : -ESHUTDOWN;
}

bool request_cancels(const struct request *r)
{
	const char *rest, *word;
	if (r->kind == REQ_DESTROY)
		return true;
	CLEAN_FREE char *line = xstrdup(buf_str(&r->text));
	const struct verb *v = r->kind == REQ_CTL ? verb_of(line, &rest, &word) : NULL;
	return v && v->cancels;
}

int approve_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	struct session *s = find(tx, r, err);
	return s ? approve_answer(tx, s, (int64_t)r->number, buf_str(&r->text), err) : -ESHUTDOWN;
}

int revoke_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	struct session *s = find(tx, r, err);
	return s ? approve_revoke(tx, s, buf_str(&r->text), err) : -ESHUTDOWN;
}

int ship_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	struct session *s = find(tx, r, err);
	return s ? ship_start(tx, s, buf_str(&r->text), err) : -ESHUTDOWN;
}

int project_remove_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	int rc = db_run(tx->db, err, "DELETE FROM projects WHERE name=?", "t", r->name);
	tx->root_changed = true;
	return rc || db_changes(tx->db) ? rc : err_set(err, ENOENT, "no project %s is registered", r->name);
}

int publish_fn(struct tx *tx, void *arg, struct err *err)
{
	tx->root_changed = true;
	return 0;
}
