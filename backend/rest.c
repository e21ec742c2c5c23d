/* What a sandbox does while nobody needs it. Worker threads; the thread of watch.c for what only looks. Must never act
 * on a sandbox whose session has anything to do, nor take a token from one that may still use it. */
#include "rest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "gate_link.h"
#include "gateway/gateway.h"
#include "idle.h"
#include "killpoint.h"
#include "transcript.h"

#define ASK_MS	   5000 /* a guest under emulation on a busy host answers within a second */
#define LOOK_MS	   5000
#define LOOK_MIN   200
#define END_MS	   5000 /* that the end of the daemon may take for all sandboxes together */
#define END_ASK_MS 1000

struct rest {
	struct idle_look look;
	int64_t id, cpu_ms;
	char kind[64], words[160]; /* why it is kept awake, as it was said last */
};

/* ---- what is known ---- */

#define RESTING                                                                                                        \
	"SELECT s.id, s.sandbox, s.sandbox_state, coalesce(i.quiet_ms, s.changed_ms), coalesce(i.busy_ms, 0), "        \
	"coalesce(i.worked_ms, 0), coalesce(i.asked_ms, 0), coalesce(i.answer, 0), coalesce(i.cpu_ms, -1), "           \
	"coalesce(i.words, '') FROM sessions s LEFT JOIN idle i ON i.session = s.id "                                  \
	"WHERE s.destroyed_ms IS NULL AND s.state IN ('idle', 'failed') AND s.approval = 0 AND NOT EXISTS "            \
	"(SELECT 1 FROM messages m WHERE m.session = s.id AND m.state = 'waiting') AND (s.sandbox_state LIKE "         \
	"'% running%' OR s.sandbox_state LIKE '% paused%' OR s.sandbox_state LIKE '% hibernated%')"

/* The `sandbox` file begins with the kind; then it says how it is. */
static enum sandbox_state state_of(const char *kind, const char *line)
{
	static const struct {
		const char *word;
		enum sandbox_state state;
	} words[] = {{" running", SANDBOX_RUNNING}, {" paused", SANDBOX_PAUSED}, {" hibernated", SANDBOX_HIBERNATED}};
	size_t n = strlen(kind);
	for (size_t i = 0; !strncmp(line, kind, n) && i < ARRAY_LEN(words); i++)
		if (!strncmp(line + n, words[i].word, strlen(words[i].word)))
			return words[i].state;
	return SANDBOX_DOWN;
}

static void limits(struct backend *b, struct idle_look *k)
{
	struct config *c = backend_config(b);
	k->pause_ms = config_int(c, CONFIG_IDLE_PAUSE) * 1000;
	k->hibernate_ms = config_int(c, CONFIG_IDLE_HIBERNATE) * 1000;
	k->down_ms = config_int(c, CONFIG_IDLE_DOWN) * 1000;
	config_put(c);
}

/* A row of RESTING. The settings are filled in by the caller. */
static struct rest row(struct rows *r)
{
	struct rest k = {.id = row_int(r, 0), .cpu_ms = row_int(r, 8)};
	snprintf(k.kind, sizeof k.kind, "%s", row_text(r, 1));
	snprintf(k.words, sizeof k.words, "%s", row_text(r, 9));
	k.look = (struct idle_look){.now_ms = clock_real_ms(),
				    .sandbox = state_of(k.kind, row_text(r, 2)),
				    .can_pause = sandbox_can(k.kind, SANDBOX_PAUSED),
				    .can_hibernate = sandbox_can(k.kind, SANDBOX_HIBERNATED),
				    .quiet_ms = row_int(r, 3),
				    .busy_ms = row_int(r, 4),
				    .worked_ms = row_int(r, 5),
				    .asked_ms = row_int(r, 6),
				    .answer = (enum idle_answer)row_int(r, 7)};
	return k;
}

static bool load(struct backend *b, struct db *db, int64_t id, struct rest *k)
{
	struct rows r;
	bool found = !db_query(db, &r, NULL, RESTING " AND s.id = ?", "i", id) && rows_next(&r);
	if (found)
		*k = row(&r);
	rows_end(&r);
	limits(b, &k->look);
	return found;
}

/* ---- what is committed ---- */

static int begin_at(struct tx *tx, int64_t session, int waking, struct err *err)
{
	return db_run(
		tx->db, err,
		"INSERT INTO idle(session, quiet_ms, waking) VALUES(?1, ?2, ?3) ON CONFLICT(session) DO UPDATE SET "
		"quiet_ms = ?2, waking = max(waking, ?3)",
		"iii", session, tx->now_ms, (int64_t)waking);
}

int rest_begin(struct tx *tx, const struct session *s, struct err *err)
{
	return begin_at(tx, s->id, 0, err);
}

int rest_woken(struct tx *tx, const struct session *s, struct err *err)
{
	return begin_at(tx, s->id, 1, err);
}

static int reset_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	int rc = db_run(
		tx->db, err,
		"UPDATE idle SET busy_ms = 0, worked_ms = 0, asked_ms = 0, answer = 0, cpu_ms = -1 WHERE session = ?",
		"i", s->id);
	return rc ? rc : rest_begin(tx, s, err);
}

/* What came of asking. */
static int asked_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct rest *k = arg;
	const struct idle_look *l = &k->look;
	bool told = l->answer != IDLE_BUSY ||
		    db_int(tx->db, 0, "SELECT 1 FROM idle WHERE session = ? AND words = ?", "it", s->id, k->words);
	int rc = db_run(tx->db, err,
			"INSERT INTO idle(session, quiet_ms, busy_ms, worked_ms, asked_ms, answer, cpu_ms, words) "
			"VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT(session) DO UPDATE SET busy_ms = ?3, "
			"worked_ms = ?4, asked_ms = ?5, answer = ?6, cpu_ms = ?7, words = ?8",
			"iiiiiiit", s->id, l->quiet_ms, l->busy_ms, l->worked_ms, l->asked_ms, (int64_t)l->answer,
			k->cpu_ms, k->words);
	if (rc || told)
		return rc;
	CLEAN_FREE char *line = xasprintf("the sandbox is kept awake: %s", k->words);
	return log_add(tx, s, line, err);
}

static const char *state_word(enum sandbox_state state)
{
	static const char *const words[] = {[SANDBOX_NONE] = "gone",
					    [SANDBOX_DOWN] = "down",
					    [SANDBOX_RUNNING] = "running",
					    [SANDBOX_PAUSED] = "paused",
					    [SANDBOX_HIBERNATED] = "hibernated"};
	return words[state];
}

struct rested {
	const struct paths *paths;
	enum sandbox_state state;
	const char *why; /* for the log, or NULL */
};

static int rested_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct rested *r = arg;
	char line[64];
	sandbox_describe(r->paths, s->sandbox, s->id, r->state, line);
	CLEAN_FREE char *words =
		xasprintf("sandbox %s%s%s", state_word(r->state), r->why ? ": " : "", r->why ? r->why : "");
	if (strcmp(s->sandbox_state, line))
		s->changed_ms = tx->now_ms;
	session_set(&s->sandbox_state, line);
	int rc = log_add(tx, s, words, err);
	return rc ? rc : tx_event(tx, s, "sandbox", line, err);
}

/* ---- asking ---- */

/* Whether the gateway has had anything to do for it since it came to rest: moves busy_ms. True: it has right now. */
static bool traffic(struct backend *b, struct rest *k, char *words, size_t n)
{
	char number[24];
	int running = 0;
	int64_t ago = -1;
	struct err err = ERR_INIT;
	struct idle_look *l = &k->look;
	if (!b->link)
		return false;
	snprintf(number, sizeof number, "%" PRId64, k->id);
	int rc = gateway_activity(b->paths, number, &running, &ago, &err);
	if (rc == -ENOENT || rc == -ECONNREFUSED) /* it does not run: so nothing goes through it */
		return false;
	if (rc || running)
		snprintf(words, n, "%.100s", rc ? err.text : "a request of it is at the gateway");
	if (!rc && ago >= 0 && l->now_ms - ago > l->busy_ms && l->now_ms - ago > l->quiet_ms)
		l->busy_ms = l->now_ms - ago;
	return rc || running;
}

/* Asks the sandbox and the gateway, and keeps what they say. A question that goes wrong was answered: busy. */
static void ask(struct backend *b, struct rest *k, int ms)
{
	struct idle_look *l = &k->look;
	struct env_busy said = {.cpu_ms = -1};
	struct err err = ERR_INIT;
	int rc = env_busy(b->paths, k->kind, k->id, ms, &said, &err);
	l->now_ms = clock_real_ms();
	if (!rc && idle_works(k->cpu_ms, said.cpu_ms, l->now_ms - l->asked_ms))
		l->worked_ms = l->now_ms;
	k->cpu_ms = rc ? -1 : said.cpu_ms;
	*k->words = 0;
	if (rc)
		snprintf(k->words, sizeof k->words, "it cannot be asked (%.120s)", err.text);
	else if (said.busy)
		snprintf(k->words, sizeof k->words, "%s", *said.words ? said.words : "it says that it works");
	bool busy = *k->words || traffic(b, k, k->words, sizeof k->words);
	l->asked_ms = l->now_ms;
	l->answer = busy ? IDLE_BUSY : IDLE_QUIET;
	if (busy)
		l->busy_ms = l->now_ms;
}

/* ---- acts: 0, or -errno in words, and nothing has changed then ---- */

static int act_pause(struct worker *w, const char *kind, struct err *err)
{
	int rc = sandbox_pause(w->b->paths, kind, w->id, err);
	if (!rc)
		killpoint("rest.paused");
	return rc;
}

/* Its token ends while it stands still, so that no request of it is cut off: one that is on its way keeps it awake. */
static int act_hibernate(struct worker *w, const char *kind, bool asked_for, struct err *err)
{
	struct rest k = {.id = w->id};
	if (sandbox_state(w->b->paths, kind, w->id) == SANDBOX_HIBERNATED)
		return 0;
	if (!sandbox_can(kind, SANDBOX_HIBERNATED))
		return sandbox_hibernate(w->b->paths, kind, w->id, err); /* says why */
	int rc = act_pause(w, kind, err);
	k.look.now_ms = clock_real_ms();
	if (!rc && !asked_for && traffic(w->b, &k, k.words, sizeof k.words))
		rc = err_set(err, EBUSY, "%s", k.words);
	if (rc)
		return rc;
	gate_sandbox_revoke(w->b, w->id, NULL); /* if the gateway is away: gate_token.c does it when it is back */
	killpoint("rest.revoked");
	rc = sandbox_hibernate(w->b->paths, kind, w->id, err);
	if (!rc)
		killpoint("rest.hibernated");
	else if (sandbox_state(w->b->paths, kind, w->id) == SANDBOX_RUNNING) { /* it goes on, and what runs in it */
		worker_env(w, NULL);					       /* needs a token again */
		worker_env_drop(w);
	}
	return rc;
}

/* Where it can be paused it is, first: that is refused while somebody is connected to it. */
static int act_down(struct worker *w, const char *kind, bool asked_for, struct err *err)
{
	bool can = !asked_for && sandbox_can(kind, SANDBOX_PAUSED);
	if (can && sandbox_state(w->b->paths, kind, w->id) == SANDBOX_RUNNING && act_pause(w, kind, err))
		return -err->code;
	gate_sandbox_revoke(w->b, w->id, NULL);
	int rc = sandbox_down(w->b->paths, kind, w->id, err);
	killpoint("down.stopped");
	return rc;
}

/* ---- by itself ---- */

static const char *setting_of(enum idle_act act)
{
	return act == IDLE_DOWN ? "idle.down" : act == IDLE_HIBERNATE ? "idle.hibernate" : "idle.pause";
}

static int act(struct worker *w, struct rest *k, enum idle_act what, struct err *err)
{
	struct err why = ERR_INIT;
	int rc = what == IDLE_PAUSE	  ? act_pause(w, k->kind, &why)
		 : what == IDLE_HIBERNATE ? act_hibernate(w, k->kind, false, &why)
					  : act_down(w, k->kind, false, &why);
	if (rc) { /* it is not tried again before the time has passed once more */
		k->look.answer = IDLE_BUSY;
		k->look.asked_ms = k->look.busy_ms = clock_real_ms();
		snprintf(k->words, sizeof k->words, "%.150s", why.text);
		return worker_commit(w, asked_fn, k, err);
	}
	CLEAN_FREE char *words = xasprintf("nothing was asked of it for the time of %s", setting_of(what));
	struct rested r = {w->b->paths, sandbox_state(w->b->paths, k->kind, w->id), words};
	return worker_commit(w, rested_fn, &r, err);
}

bool rest_step(struct worker *w)
{
	struct rest k;
	struct err err = ERR_INIT;
	if (!load(w->b, w->db, w->id, &k))
		return false;
	enum idle_act what = idle_decide(&k.look);
	if (what == IDLE_NOTHING)
		return false;
	worker_env_drop(w);
	int rc = 0;
	if (what == IDLE_RESET)
		rc = worker_commit(w, reset_fn, NULL, &err);
	else if (what != IDLE_ASK)
		rc = act(w, &k, what, &err);
	else if (sandbox_state(w->b->paths, k.kind, k.id) != SANDBOX_RUNNING)
		return false; /* it has died: watch.c will say so */
	else {
		ask(w->b, &k, ASK_MS);
		rc = worker_commit(w, asked_fn, &k, &err);
	}
	if (rc && rc != -ESHUTDOWN && rc != -ECANCELED)
		log_error("session %" PRId64 ": its sandbox at rest: %s", w->id, err.text);
	return !rc && !atomic_load(&w->halt);
}

int64_t rest_look_ms(struct backend *b)
{
	struct idle_look k;
	limits(b, &k);
	int64_t ms = LOOK_MS, windows[] = {k.pause_ms, k.hibernate_ms, k.down_ms};
	for (size_t i = 0; i < ARRAY_LEN(windows); i++)
		if (windows[i] > 0 && windows[i] / 4 < ms)
			ms = windows[i] / 4;
	return ms < LOOK_MIN ? LOOK_MIN : ms;
}

void rest_look(struct backend *b, struct db *db)
{
	struct rows r;
	struct idle_look set;
	limits(b, &set);
	int rc = db_query(db, &r, NULL, RESTING, "");
	while (!rc && rows_next(&r)) {
		struct rest k = row(&r);
		k.look.pause_ms = set.pause_ms;
		k.look.hibernate_ms = set.hibernate_ms;
		k.look.down_ms = set.down_ms;
		if (idle_decide(&k.look) != IDLE_NOTHING)
			engine_kick(b->engine, k.id);
	}
	rows_end(&r);
}

/* ---- by the user's word ---- */

static const struct {
	const char *word;
	enum sandbox_state state;
} wishes[] = {{"down", SANDBOX_DOWN},
	      {"pause", SANDBOX_PAUSED},
	      {"hibernate", SANDBOX_HIBERNATED},
	      {"resume", SANDBOX_RUNNING}};

struct lowered {
	struct rested rested;
	struct err why;
	bool same;
};

static int lowered_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct lowered *l = arg;
	int rc = l->why.code ? tx_error(tx, s->id, "ctl", &l->why, err) : 0;
	rc = rc || (l->same && !l->why.code) ? rc : rested_fn(tx, s, (void *)&l->rested, err);
	return rc ? rc : session_event(tx, s, EVENT_LOWERED, NULL, err);
}

/* What a sandbox says before it is paused stands until it goes on. */
static int pause_now(struct worker *w, struct err *err)
{
	struct rest k = {.id = w->id, .cpu_ms = -1, .look = {.now_ms = clock_real_ms()}};
	const char *kind = w->s->sandbox;
	if (sandbox_state(w->b->paths, kind, w->id) == SANDBOX_RUNNING && strlen(kind) < sizeof k.kind) {
		snprintf(k.kind, sizeof k.kind, "%s", kind);
		k.look.quiet_ms = k.look.now_ms;
		ask(w->b, &k, ASK_MS);
		worker_commit(w, asked_fn, &k, NULL);
	}
	return act_pause(w, kind, err);
}

/* ctl down, pause, hibernate, resume: what is wished is in the session's detail ("" of older programs: down). Whatever
 * happens, the session is idle again after, and `error` says what went wrong. */
int lower_step(struct worker *w, struct err *err)
{
	struct lowered l = {.why = ERR_INIT};
	const char *kind = w->s->sandbox;
	enum sandbox_state wish = SANDBOX_DOWN;
	for (size_t i = 0; i < ARRAY_LEN(wishes); i++)
		if (!strcmp(w->s->detail, wishes[i].word))
			wish = wishes[i].state;
	int rc = 0;
	if (wish != SANDBOX_RUNNING)
		worker_env_drop(w);
	switch (wish) {
	case SANDBOX_PAUSED: rc = pause_now(w, &l.why); break;
	case SANDBOX_HIBERNATED: rc = act_hibernate(w, kind, true, &l.why); break;
	case SANDBOX_RUNNING: rc = worker_env(w, &l.why); break;
	default: rc = act_down(w, kind, true, &l.why); break;
	}
	if (rc == -ECANCELED && atomic_load(&w->halt))
		return rc; /* the next daemon goes on with it */
	l.rested = (struct rested){w->b->paths, sandbox_state(w->b->paths, kind, w->id),
				   l.why.code ? l.why.text : "by ctl"};
	l.same = wish == SANDBOX_RUNNING;
	return worker_commit(w, lowered_fn, &l, err);
}

/* ---- the end of the daemon ---- */

struct closing {
	int64_t id;
	struct rested rested;
};

static int closing_tx(struct tx *tx, void *arg, struct err *err)
{
	struct closing *c = arg;
	struct session *s = tx_session(tx, c->id);
	return s ? rested_fn(tx, s, &c->rested, err) : 0;
}

static void close_one(struct backend *b, struct rest *k, int ms)
{
	struct closing c = {k->id, {b->paths, SANDBOX_PAUSED, "the daemon ends"}};
	if (sandbox_state(b->paths, k->kind, k->id) != SANDBOX_RUNNING)
		return;
	ask(b, k, ms);
	if (k->look.answer != IDLE_QUIET || sandbox_pause(b->paths, k->kind, k->id, NULL))
		return;
	store_try(b->store, closing_tx, &c, NULL);
}

void rest_all(struct backend *b)
{
	struct db *db = NULL;
	struct rows r;
	struct idle_look set;
	int64_t end = clock_mono_ms() + END_MS;
	if (!b->store || db_open(b->db_path, false, &db, NULL))
		return;
	limits(b, &set);
	int rc = set.pause_ms > 0 ? db_query(db, &r, NULL, RESTING, "") : -ENOENT;
	while (!rc && rows_next(&r) && clock_mono_ms() < end) {
		struct rest k = row(&r);
		if (k.look.can_pause && k.look.sandbox == SANDBOX_RUNNING)
			close_one(b, &k, END_ASK_MS);
	}
	if (!rc)
		rows_end(&r);
	db_close(db);
}
