/* What may happen to a session: the state × event → action table. Runs on the store thread, inside a transaction, so
 * a state and what led to it are one commit. Never blocks. */
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "message.h"
#include "rest.h"

/* An action changes the session and returns 0, or refuses with words. */
typedef int action(struct tx *tx, struct session *s, const char *words, struct err *err);

static void enter(struct tx *tx, struct session *s, enum state state, const char *detail)
{
	if (s->state == state && !strcmp(s->detail, detail))
		return;
	s->state = state;
	session_set(&s->detail, detail);
	s->changed_ms = tx->now_ms;
}

/* ---- actions ---- */

static int nothing(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	return 0;
}

/* Whatever has failed before does not count any more. */
static void begin_anew(struct session *s)
{
	s->attempt = 0;
	s->retry_ms = s->retry_since_ms = 0;
	s->overflowed = s->compact_row = s->compact_tries = 0;
	if (s->compact == COMPACT_OVERFLOW)
		s->compact = COMPACT_NONE;
}

static int start_run(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->run++;
	begin_anew(s);
	enter(tx, s, STATE_RUNNING, "");
	return tx_event(tx, s, "run", "started", err);
}

/* What comes when nothing is left to do: the next message that waits, or rest. */
static int next(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->stopping = 0;
	if (s->waiting)
		return start_run(tx, s, words, err);
	if (s->compact) { /* written while the last turn went on */
		enter(tx, s, STATE_COMPACTING, "");
		return 0;
	}
	enter(tx, s, STATE_IDLE, "");
	return tx_event(tx, s, "state", s->question_size ? "asking" : "idle", err);
}

static int prepared(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	int rc = tx_event(tx, s, "sandbox", "ready", err);
	return rc ? rc : next(tx, s, words, err);
}

static int answered(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	const char *then = s->setting[SETTING_AFTER_RUN];
	s->after = AFTER_SYNC | AFTER_CHECKS | (!strcmp(then, "ship") || !strcmp(then, "pr") ? AFTER_SHIP : 0);
	enter(tx, s, STATE_SYNCING, "");
	int rc = message_answer_all(tx, s, err);
	return rc ? rc : tx_event(tx, s, "answer", "", err);
}

static int stopped(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->stopping = 0;
	s->after = AFTER_SYNC;
	enter(tx, s, STATE_SYNCING, "");
	int rc = message_answer_all(tx, s, err);
	return rc ? rc : tx_event(tx, s, "stopped", "", err);
}

static int sync_now(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->after = AFTER_SYNC;
	enter(tx, s, STATE_SYNCING, "");
	return 0;
}

static int check_now(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->after = AFTER_SYNC | AFTER_CHECKS;
	enter(tx, s, STATE_SYNCING, "");
	return 0;
}

static int merge_now(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->after = AFTER_SYNC | AFTER_MERGE;
	enter(tx, s, STATE_SYNCING, "");
	return 0;
}

/* At rest a compaction is a step of its own; while turns go on it comes between two of them. */
static int compact_now(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->compact = COMPACT_ASKED;
	begin_anew(s);
	enter(tx, s, STATE_COMPACTING, "");
	return 0;
}

static int compact_next(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	if (!s->compact)
		s->compact = COMPACT_ASKED;
	return 0;
}

/* `stop`: the mark is committed, so that it holds over a restart; the worker does the rest. */
static int stop_now(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->stopping = 1;
	return 0;
}

static int synced(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->after &= ~(AFTER_SYNC | AFTER_MERGE);
	if (!s->after)
		return next(tx, s, words, err);
	s->check_round++;
	enter(tx, s, STATE_CHECKING, "");
	return 0;
}

static int checked(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->after = 0;
	int rc = tx_event(tx, s, "checks", words, err);
	return rc ? rc : next(tx, s, words, err);
}

static int ship_now(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->run++;
	begin_anew(s);
	s->shipping = true;
	enter(tx, s, STATE_SHIPPING, "fetching");
	return tx_event(tx, s, "ship", words, err);
}

static int shipped(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->shipping = false;
	s->ships_done++;
	int rc = tx_event(tx, s, "shipped", words, err);
	return rc ? rc : next(tx, s, words, err);
}

/* A ship that cannot go on: its end has to be told in `ship` as well. */
static int ship_failed(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	CLEAN_FREE char *outcome = xasprintf("blocked: %s", words);
	session_set(&s->ship_text, outcome);
	s->ship_ms = tx->now_ms;
	int rc = db_run(tx->db, err, "UPDATE ships SET step='', outcome=?, at_ms=? WHERE session=? AND n=?", "tiii",
			outcome, tx->now_ms, s->id, s->ship);
	return rc ? rc : shipped(tx, s, outcome, err);
}

static int fail(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	s->stopping = s->compact = 0;
	enter(tx, s, STATE_FAILED, words);
	return tx_event(tx, s, "failed", words, err);
}

static int retry(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	begin_anew(s);
	enter(tx, s, *s->clone ? STATE_RUNNING : STATE_PREPARING, *s->clone ? "" : "waiting");
	return tx_event(tx, s, "retry", "", err);
}

/* A message to a failed session goes on with its run; while there is no sandbox it is held. */
static int wake_failed(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	return *s->clone ? retry(tx, s, words, err) : 0;
}

/* The next try of a model request is brought forward. */
static int retry_now(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	if (!s->retry_ms)
		return err_set(err, EINVAL, "nothing waits for a retry: it is at work");
	s->retry_ms = 0;
	s->changed_ms = tx->now_ms;
	return 0;
}

static int lower(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	enter(tx, s, STATE_LOWERING, words);
	return 0;
}

static int save(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	enter(tx, s, STATE_SAVING, "");
	return 0;
}

static int restore(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	enter(tx, s, STATE_RESTORING, "");
	return 0;
}

static int destroy(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	enter(tx, s, STATE_DESTROYING, "");
	return 0;
}

static int busy(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	CLEAN_FREE char *status = session_status(s);
	return err_set(err, EBUSY, "it is busy (%s): wait with `cat wait/idle`, or write `stop` to ctl", status);
}

static int lowering(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	return strcmp(s->detail, words) ? busy(tx, s, words, err) : 0;
}

static int not_ready(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	return err_set(err, EBUSY, "its sandbox is not ready yet: wait with `cat wait/idle`");
}

static int no_work(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	return err_set(err, EINVAL, "nothing has failed, so there is nothing to retry");
}

static int is_failed(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	return err_set(err, EBUSY, "it has failed (%s): write `retry` to ctl first", s->detail);
}

static int gone(struct tx *tx, struct session *s, const char *words, struct err *err)
{
	return err_set(err, ESHUTDOWN, "this session is being destroyed");
}

/* ---- the table: what an event does in a state; NULL is an event that cannot come there ---- */

/* clang-format off */
static action *const table[EVENTS][STATES] = {
	/* in state:         PREPARING  IDLE         RUNNING       SYNCING   CHECKING  SHIPPING      COMPACTING  LOWERING  SAVING   RESTORING  FAILED       DESTROYING */
	[EVENT_MESSAGE]   = {nothing,   start_run,   nothing,      nothing,  nothing,  nothing,      nothing,    nothing,  nothing, nothing,   wake_failed, gone},
	[EVENT_PREPARED]  = {prepared,  NULL,        NULL,         NULL,     NULL,     NULL,         NULL,       NULL,     NULL,    NULL,      NULL,        nothing},
	[EVENT_ANSWERED]  = {NULL,      NULL,        answered,     NULL,     NULL,     NULL,         NULL,       NULL,     NULL,    NULL,      NULL,        nothing},
	[EVENT_STOP]      = {nothing,   nothing,     stop_now,     stop_now, stop_now, stop_now,     stop_now,   nothing,  nothing, nothing,   nothing,     gone},
	[EVENT_STOPPED]   = {nothing,   NULL,        stopped,      NULL,     NULL,     NULL,         next,       NULL,     NULL,    NULL,      NULL,        nothing},
	[EVENT_SYNCED]    = {NULL,      NULL,        NULL,         synced,   NULL,     NULL,         NULL,       NULL,     NULL,    NULL,      NULL,        nothing},
	[EVENT_CHECKED]   = {NULL,      NULL,        NULL,         NULL,     checked,  NULL,         NULL,       NULL,     NULL,    NULL,      NULL,        nothing},
	[EVENT_SHIP]      = {not_ready, ship_now,    busy,         busy,     busy,     busy,         busy,       busy,     busy,    busy,      is_failed,   gone},
	[EVENT_SHIPPED]   = {NULL,      NULL,        NULL,         NULL,     NULL,     shipped,      NULL,       NULL,     NULL,    NULL,      NULL,        nothing},
	[EVENT_RETRY]     = {no_work,   no_work,     retry_now,    busy,     busy,     retry_now,    retry_now,  busy,     busy,    busy,      retry,       gone},
	[EVENT_SYNC]      = {not_ready, sync_now,    busy,         busy,     busy,     busy,         busy,       busy,     busy,    busy,      is_failed,   gone},
	[EVENT_CHECK]     = {not_ready, check_now,   busy,         busy,     busy,     busy,         busy,       busy,     busy,    busy,      is_failed,   gone},
	[EVENT_MERGE]     = {not_ready, merge_now,   busy,         busy,     busy,     busy,         busy,       busy,     busy,    busy,      is_failed,   gone},
	[EVENT_COMPACT]   = {not_ready, compact_now, compact_next, busy,     busy,     compact_next, nothing,    busy,     busy,    busy,      is_failed,   gone},
	[EVENT_COMPACTED] = {NULL,      NULL,        NULL,         NULL,     NULL,     NULL,         next,       NULL,     NULL,    NULL,      NULL,        nothing},
	[EVENT_DOWN]      = {not_ready, lower,       busy,         busy,     busy,     busy,         busy,       lowering, busy,    busy,      is_failed,   gone},
	[EVENT_LOWERED]   = {NULL,      NULL,        NULL,         NULL,     NULL,     NULL,         NULL,       next,     NULL,    NULL,      NULL,        nothing},
	[EVENT_SNAPSHOT]  = {not_ready, save,        busy,         busy,     busy,     busy,         busy,       busy,     busy,    busy,      is_failed,   gone},
	[EVENT_RESTORE]   = {not_ready, restore,     busy,         busy,     busy,     busy,         busy,       busy,     busy,    busy,      restore,     gone},
	[EVENT_SAVED]     = {NULL,      NULL,        NULL,         NULL,     NULL,     NULL,         NULL,       NULL,     next,    next,      NULL,        nothing},
	[EVENT_FAILED]    = {fail,      fail,        fail,         fail,     fail,     ship_failed,  fail,       fail,     fail,    fail,      NULL,        nothing},
	[EVENT_DESTROY]   = {destroy,   destroy,     destroy,      destroy,  destroy,  destroy,      destroy,    destroy,  destroy, destroy,   destroy,     destroy},
};
/* clang-format on */

static const char *const event_names[EVENTS] = {"message", "prepared", "answered",  "stop",   "stopped", "synced",
						"checked", "ship",     "shipped",   "retry",  "sync",	 "check",
						"merge",   "compact",  "compacted", "down",   "lowered", "snapshot",
						"restore", "saved",    "failed",    "destroy"};
static const char *const state_names[STATES] = {"preparing", "idle",	  "running",	"syncing",
						"checking",  "shipping",  "compacting", "lowering",
						"saving",    "restoring", "failed",	"destroying"};

const char *state_name(enum state state)
{
	return state_names[state];
}

int session_event(struct tx *tx, struct session *s, enum event ev, const char *words, struct err *err)
{
	action *act = table[ev][s->state];
	if (!act)
		return err_set(err, EINVAL, "session %" PRId64 ": event %s in state %s", s->id, event_names[ev],
			       state_names[s->state]);
	enum state before = s->state;
	int rc = act(tx, s, words ? words : "", err);
	bool rests = s->state == STATE_IDLE || s->state == STATE_FAILED;
	return rc || s->state == before || !rests ? rc : rest_begin(tx, s, err);
}

void session_detail(struct tx *tx, struct session *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *text = xvasprintf(fmt, ap);
	va_end(ap);
	enter(tx, s, s->state, text);
}

bool session_idle(const struct session *s)
{
	return s->state == STATE_IDLE && !s->waiting && !s->unanswered;
}

bool session_waits(const struct session *s)
{
	return s->approval && !s->stopping && (s->state == STATE_RUNNING || s->state == STATE_SHIPPING);
}

bool session_has_work(const struct session *s)
{
	return !session_waits(s) && s->state != STATE_IDLE && s->state != STATE_FAILED;
}

static char *running_status(const struct session *s)
{
	int64_t left = s->retry_ms - clock_real_ms();
	if (s->retry_ms)
		return xasprintf("retrying in %" PRId64 " s: %s", left > 0 ? (left + 999) / 1000 : 0, s->detail);
	return *s->detail ? xasprintf("running %s", s->detail) : xstrdup("running");
}

/* The `sandbox` file begins with the kind and how it is. */
static bool is_down(const struct session *s)
{
	size_t n = strlen(s->sandbox);
	return !strncmp(s->sandbox_state, s->sandbox, n) && !strncmp(s->sandbox_state + n, " down", 5);
}

char *session_status(const struct session *s)
{
	if (session_waits(s))
		return xasprintf("waiting approval %" PRId64, s->approval);
	switch (s->state) {
	case STATE_PREPARING: return xasprintf("preparing %s", s->detail);
	case STATE_IDLE: return xstrdup(s->question_size ? "asking" : is_down(s) ? "down" : "idle");
	case STATE_RUNNING: return running_status(s);
	case STATE_SYNCING: return xstrdup("running sync");
	case STATE_CHECKING: return xstrdup("checking");
	case STATE_SHIPPING: return xasprintf("shipping %s", s->detail);
	case STATE_LOWERING: return xasprintf("running %s", *s->detail ? s->detail : "down");
	case STATE_SAVING: return xstrdup("running snapshot");
	case STATE_RESTORING: return xstrdup("running restore");
	case STATE_COMPACTING: return s->retry_ms ? running_status(s) : xstrdup("running compact");
	case STATE_FAILED: return xasprintf("failed: %s", s->detail);
	case STATE_DESTROYING:
	case STATES: break;
	}
	return xstrdup("down");
}
