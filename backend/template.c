/* The records of templates. Transactions on the store thread; the rest on worker and pool threads, which may block.
 * Must never remove a folder that a live session or another template lies on. */
#include "template.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "engine.h"
#include "gate_link.h"
#include "killpoint.h"
#include "template_private.h"

void template_release(struct template *t)
{
	free(t->name);
	free(t->step);
	*t = (struct template){0};
}

/* ---- where they are ---- */

/* A cache may be shared by more than one state folder: each has a number. */
static char *place(const struct paths *paths, struct db *db)
{
	return xasprintf("%s/templates/%012" PRIx64, paths->cache,
			 (uint64_t)db_int(db, 0, "SELECT value FROM counters WHERE name='cache'", ""));
}

static int number(struct tx *tx, struct err *err)
{
	uint64_t n = 0;
	if (getrandom(&n, 6, 0) != 6)
		abort(); /* cannot be: the kernel gives that many in one go */
	return db_run(tx->db, err, "INSERT OR IGNORE INTO counters(name,value) VALUES('cache',?)", "i", (int64_t)n + 1);
}

/* Earlier programs had them in the state folder. Those stay there: disks of sessions lie on them by that name. */
char *template_dir(const struct paths *paths, struct db *db, int64_t id)
{
	CLEAN_FREE char *old = xasprintf("%s/templates/%" PRId64, paths->state, id);
	CLEAN_FREE char *in = place(paths, db);
	return file_exists(old) ? take(old) : xasprintf("%s/%" PRId64, in, id);
}

int template_place(const struct paths *paths, struct db *db, struct err *err)
{
	CLEAN_FREE char *in = place(paths, db);
	CLEAN_FREE char *note = xasprintf("%s/state", in); /* for people who wonder whose it is */
	CLEAN_FREE char *line = xasprintf("%s\n", paths->state);
	int rc = dir_make(in, 0700, err);
	return rc || file_exists(note) ? rc : file_write(note, line, strlen(line), 0600, err);
}

char *template_folder(const struct paths *paths, struct db *db, int64_t session)
{
	int64_t id = db_int(db, 0, "SELECT template FROM template_uses WHERE session=?", "i", session);
	CLEAN_FREE char *dir = id ? template_dir(paths, db, id) : NULL;
	return dir && file_exists(dir) ? take(dir) : NULL;
}

/* ---- its log ---- */

static int add_log(struct tx *tx, int64_t id, const char *text, bool timed, struct err *err)
{
	char when[CLOCK_TEXT];
	CLEAN_BUF struct buf line = BUF_INIT;
	CLEAN_FREE char *words = xstrdup(text);
	text_one_line(words, SIZE_MAX);
	buf_addf(&line, "%s%s%s\n", timed ? clock_rfc3339(tx->now_ms, when) : "", timed ? " " : "", words);
	int64_t n = (int64_t)line.n;
	int rc = db_run(tx->db, err,
			"INSERT INTO template_logs(template,off,line) SELECT id, log_size, ? FROM templates WHERE id=?",
			"ti", buf_str(&line), id);
	tx->root_changed = true;
	return rc ? rc
		  : db_run(tx->db, err, "UPDATE templates SET log_size=log_size+?, log_ms=? WHERE id=?", "iii", n,
			   tx->now_ms, id);
}

/* ---- transactions of a build ---- */

struct change {
	struct worker *w;
	const struct plan *plan;
	struct template *t;
	const char *text;
	const struct buf *lines;
	const struct err *why;
	int64_t step_no, seen, size;
	bool alone, same;
};

static int set_step(struct tx *tx, int64_t id, const char *step, struct err *err)
{
	tx->root_changed = true;
	return db_run(tx->db, err, "UPDATE templates SET step=?, changed_ms=? WHERE id=?", "tii", step, tx->now_ms, id);
}

/* The project's newest one that may be built upon: not too old, and made by the same script. */
static int find_parent(struct tx *tx, const struct session *s, const struct plan *plan, struct template *t,
		       struct err *err)
{
	struct rows r;
	int rc =
		db_query(tx->db, &r, err,
			 "SELECT id, origin_ms FROM templates WHERE project=? AND kind=? AND state='ready' AND setup=? "
			 "AND origin_ms > ? ORDER BY created_ms DESC, id DESC LIMIT 1",
			 "ttti", s->project, s->sandbox, plan->setup, tx->now_ms - TEMPLATE_DAY_MS);
	t->parent = 0;
	t->origin_ms = tx->now_ms;
	if (!rc && rows_next(&r)) {
		t->parent = row_int(&r, 0);
		t->origin_ms = row_int(&r, 1);
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

/* A build that an earlier daemon or worker began. */
static int find_begun(struct tx *tx, const struct session *s, struct template *t, struct err *err)
{
	struct rows r;
	int rc = db_query(tx->db, &r, err,
			  "SELECT id, name, step, parent, origin_ms, step_no, seen FROM templates WHERE project=? AND "
			  "base=? AND kind=? AND state='building'",
			  "ttt", s->project, s->base_commit, s->sandbox);
	if (!rc && rows_next(&r)) {
		t->id = row_int(&r, 0);
		t->name = xstrdup(row_text(&r, 1));
		t->step = xstrdup(row_text(&r, 2));
		t->parent = row_int(&r, 3);
		t->origin_ms = row_int(&r, 4);
		t->step_no = row_int(&r, 5);
		t->seen = row_int(&r, 6);
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

/* PROJECT@COMMIT, as people know the project; the same of another folder, kind or try gets a number behind it. */
static char *choose_name(struct tx *tx, const struct session *s)
{
	const char *slash = strrchr(s->project, '/');
	CLEAN_FREE char *project = xstrdup(slash && slash[1] ? slash + 1 : "project");
	struct rows r;
	if (!db_query(tx->db, &r, NULL, "SELECT name FROM projects WHERE path=? ORDER BY name LIMIT 1", "t",
		      s->project) &&
	    rows_next(&r)) {
		free(project);
		project = xstrdup(row_text(&r, 0));
	}
	rows_end(&r);
	for (char *p = project; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == '@' || *p == 0x7f)
			*p = '_';
	project[strlen(project) > 100 ? 100 : strlen(project)] = 0;
	CLEAN_FREE char *name = xasprintf("%s@%.12s", project, s->base_commit);
	for (int n = 2;
	     db_int(tx->db, 0, "SELECT 1 FROM templates WHERE name=? AND state IN ('building','ready','failed')", "t",
		    name);
	     n++) {
		free(name);
		name = xasprintf("%s@%.12s.%d", project, s->base_commit, n);
	}
	return take(name);
}

static int begin_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct change *c = arg;
	struct template *t = c->t;
	int rc = number(tx, err);
	rc = rc ? rc : find_begun(tx, s, t, err);
	if (rc || t->id)
		return rc ? rc : add_log(tx, t->id, "going on", true, err);
	rc = db_run(tx->db, err,
		    "UPDATE templates SET state='old' WHERE project=? AND base=? AND kind=? AND state='failed'", "ttt",
		    s->project, s->base_commit, s->sandbox);
	rc = rc ? rc : find_parent(tx, s, c->plan, t, err);
	if (rc)
		return rc;
	int64_t zero = 0;
	t->name = choose_name(tx, s);
	t->step = xstrdup("starting");
	rc = db_run(
		tx->db, err,
		"INSERT INTO templates(name,project,base,kind,setup,state,step,detail,parent,origin_ms,step_no,seen,"
		"size,created_ms,changed_ms,log_size,log_ms) VALUES(?1,?2,?3,?4,?5,'building','starting','',?6,?7,?8,"
		"?8,?8,?9,?9,?8,?9)",
		"tttttiiii", t->name, s->project, s->base_commit, s->sandbox, c->plan->setup, t->parent, t->origin_ms,
		zero, tx->now_ms);
	t->id = db_int(tx->db, 0, "SELECT last_insert_rowid()", "");
	CLEAN_FREE char *from =
		t->parent ? xasprintf("template %s at %s, from that of an earlier commit", t->name, s->base_commit)
			  : xasprintf("template %s at %s, from the base image", t->name, s->base_commit);
	return rc ? rc : add_log(tx, t->id, from, true, err);
}

int template_begin(struct worker *w, const struct plan *plan, struct template *t, struct err *err)
{
	*t = (struct template){0};
	int rc = worker_commit(w, begin_fn, &(struct change){.plan = plan, .t = t}, err);
	t->sandbox = TEMPLATE_SANDBOX + t->id;
	return rc;
}

static int restart_fn(struct tx *tx, void *arg, struct err *err)
{
	const struct change *c = arg;
	struct template *t = c->t;
	t->step_no = t->seen = 0;
	if (!c->same) {
		t->parent = 0;
		t->origin_ms = tx->now_ms;
	}
	int rc = db_run(tx->db, err, "UPDATE templates SET parent=?, origin_ms=?, step_no=0, seen=0 WHERE id=?", "iii",
			t->parent, t->origin_ms, t->id);
	return rc ? rc : set_step(tx, t->id, "starting", err);
}

int template_restart(struct worker *w, struct template *t, bool same, struct err *err)
{
	session_set(&t->step, "starting");
	return store_do(w->b->store, restart_fn, &(struct change){.t = t, .same = same}, err);
}

static int enter_fn(struct tx *tx, void *arg, struct err *err)
{
	struct change *c = arg;
	return set_step(tx, c->t->id, c->text, err);
}

int template_step(struct worker *w, struct template *t, const char *step, struct err *err)
{
	session_set(&t->step, step);
	return store_do(w->b->store, enter_fn, &(struct change){.t = t, .text = step}, err);
}

static int log_fn(struct tx *tx, void *arg, struct err *err)
{
	struct change *c = arg;
	return add_log(tx, c->t->id, c->text, true, err);
}

int template_log(struct worker *w, const struct template *t, const char *line)
{
	struct template copy = *t;
	return store_do(w->b->store, log_fn, &(struct change){.t = &copy, .text = line}, NULL);
}

static int output_fn(struct tx *tx, void *arg, struct err *err)
{
	struct change *c = arg;
	CLEAN_FREE char *copy = xstrdup(buf_str(c->lines));
	char *rest = copy;
	int rc = db_run(tx->db, err, "UPDATE templates SET step_no=?, seen=? WHERE id=?", "iii", c->step_no, c->seen,
			c->t->id);
	for (char *line; !rc && (line = strsep(&rest, "\n"));)
		if (*line || rest)
			rc = add_log(tx, c->t->id, line, false, err);
	return rc;
}

int template_output(struct worker *w, struct template *t, const struct buf *lines, int64_t step_no, int64_t seen,
		    struct err *err)
{
	t->step_no = step_no;
	t->seen = seen;
	struct change c = {.t = t, .lines = lines, .step_no = step_no, .seen = seen};
	return store_do(w->b->store, output_fn, &c, err);
}

int template_use(struct tx *tx, int64_t session, int64_t id, struct err *err)
{
	return db_run(tx->db, err, "INSERT OR REPLACE INTO template_uses(session,template) VALUES(?,?)", "ii", session,
		      id);
}

static int share_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	return db_run(
		tx->db, err,
		"INSERT OR IGNORE INTO template_uses(session,template) SELECT ?, template FROM template_uses WHERE "
		"session=?",
		"ii", s->id, s->cloned_from);
}

int template_share(struct worker *w, struct err *err)
{
	return worker_commit(w, share_fn, NULL, err);
}

static int ready_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct change *c = arg;
	int64_t id = c->t->id;
	int rc = db_run(tx->db, err,
			"UPDATE templates SET state='ready', step='', size=?, parent=?, changed_ms=? WHERE id=?",
			"iiii", c->size, c->alone ? (int64_t)0 : c->t->parent, tx->now_ms, id);
	rc = rc ? rc
		: db_run(tx->db, err,
			 "UPDATE templates SET state='old' WHERE project=? AND kind=? AND id<>? AND state IN "
			 "('ready','failed')",
			 "tti", s->project, s->sandbox, id);
	rc = rc ? rc : add_log(tx, id, "ready", true, err);
	rc = rc ? rc : template_use(tx, s->id, id, err);
	return rc ? rc : tx_event(tx, s, "template", c->t->name, err);
}

int template_ready(struct worker *w, const struct template *t, bool alone, int64_t size, struct err *err)
{
	struct template copy = *t;
	return worker_commit(w, ready_fn, &(struct change){.t = &copy, .alone = alone, .size = size}, err);
}

static int failed_fn(struct tx *tx, void *arg, struct err *err)
{
	struct change *c = arg;
	CLEAN_FREE char *line = xasprintf("failed: %s", c->why->text);
	int rc = db_run(tx->db, err, "UPDATE templates SET state='failed', step='', detail=?, changed_ms=? WHERE id=?",
			"tii", c->why->text, tx->now_ms, c->t->id);
	return rc ? rc : add_log(tx, c->t->id, line, true, err);
}

int template_failed(struct worker *w, const struct template *t, const struct err *why)
{
	struct template copy = *t;
	return store_do_urgent(w->b->store, failed_fn, &(struct change){.t = &copy, .why = why}, NULL);
}

static int lost_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const int64_t *id = arg;
	tx->root_changed = true;
	int rc = db_run(tx->db, err, "UPDATE templates SET state='old' WHERE id=? AND state='ready'", "i", *id);
	rc = rc ? rc : add_log(tx, *id, "its folder is gone", true, err);
	return rc ? rc : template_unuse(tx, s->id, err);
}

int template_lost(struct worker *w, int64_t id, struct err *err)
{
	return worker_commit(w, lost_fn, &id, err);
}

static int forget_fn(struct tx *tx, void *arg, struct err *err)
{
	int64_t id = ((struct change *)arg)->t->id;
	tx->root_changed = true;
	return db_run(tx->db, err, "UPDATE templates SET state='old' WHERE id=? AND state='building'", "i", id);
}

int template_forget(struct worker *w, const struct template *t)
{
	struct template copy = *t;
	return store_do(w->b->store, forget_fn, &(struct change){.t = &copy}, NULL);
}

/* ---- their end ---- */

int template_unuse(struct tx *tx, int64_t session, struct err *err)
{
	return db_run(tx->db, err, "DELETE FROM template_uses WHERE session=?", "i", session);
}

int template_drop_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	int64_t id = (int64_t)r->number;
	if (db_int(tx->db, 0, "SELECT 1 FROM templates WHERE id=? AND state='building'", "i", id))
		return err_set(err, EBUSY,
			       "this template is being built: the sessions that wait for it are in state preparing");
	int rc = db_run(tx->db, err, "UPDATE templates SET state='old' WHERE id=? AND state IN ('ready','failed')", "i",
			id);
	tx->root_changed = true;
	return rc || db_changes(tx->db) ? rc : err_set(err, ENOENT, "there is no such template");
}

struct drop {
	int64_t id;
};

/* The next one that can go. */
static int drop_fn(struct tx *tx, void *arg, struct err *err)
{
	struct drop *d = arg;
	d->id = db_int(
		tx->db, 0,
		"SELECT id FROM templates t WHERE state='dropping' OR (state='old' AND NOT EXISTS (SELECT 1 FROM "
		"template_uses WHERE template=t.id) AND NOT EXISTS (SELECT 1 FROM templates WHERE parent=t.id)) "
		"LIMIT 1",
		"");
	return d->id ? db_run(tx->db, err, "UPDATE templates SET state='dropping' WHERE id=?", "i", d->id) : 0;
}

static int dropped_fn(struct tx *tx, void *arg, struct err *err)
{
	int64_t id = ((struct drop *)arg)->id;
	int rc = db_run(tx->db, err, "DELETE FROM template_logs WHERE template=?", "i", id);
	return rc ? rc : db_run(tx->db, err, "DELETE FROM templates WHERE id=?", "i", id);
}

/* Of which kind it is, and where. */
static char *kind_of(struct backend *b, int64_t id, char **dir)
{
	struct db *db = NULL;
	struct rows r;
	char *kind = NULL;
	if (db_open(b->db_path, false, &db, NULL))
		return NULL;
	if (!db_query(db, &r, NULL, "SELECT kind FROM templates WHERE id=?", "i", id) && rows_next(&r))
		kind = xstrdup(row_text(&r, 0));
	rows_end(&r);
	*dir = template_dir(b->paths, db, id);
	db_close(db);
	return kind;
}

void template_sweep(struct backend *b)
{
	struct drop d = {0};
	pthread_mutex_lock(&b->templates->sweeping);
	while (!store_try(b->store, drop_fn, &d, NULL) && d.id) {
		struct err err = ERR_INIT;
		CLEAN_FREE char *dir = NULL;
		CLEAN_FREE char *kind = kind_of(b, d.id, &dir);
		gate_sandbox_revoke(b, TEMPLATE_SANDBOX + d.id, NULL);
		int rc = kind ? sandbox_destroy(b->paths, kind, TEMPLATE_SANDBOX + d.id, &err)
			      : err_set(&err, EIO, "its record cannot be read");
		rc = rc ? rc : dir_remove(dir, &err);
		killpoint("template.dropped");
		rc = rc ? rc : store_try(b->store, dropped_fn, &d, &err);
		if (rc) {
			log_warn("template %" PRId64 " cannot be removed: %s", d.id, err.text);
			break;
		}
	}
	pthread_mutex_unlock(&b->templates->sweeping);
}

/* Builds of an earlier daemon that no session waits for. */
static int orphans_fn(struct tx *tx, void *arg, struct err *err)
{
	return db_run(
		tx->db, err,
		"UPDATE templates SET state='old' WHERE state='building' AND NOT EXISTS (SELECT 1 FROM sessions s "
		"WHERE s.destroyed_ms IS NULL AND s.state='preparing' AND s.project=templates.project AND "
		"s.base_commit=templates.base AND s.sandbox=templates.kind)",
		"");
}

static void *sweeper(void *arg)
{
	template_sweep(arg);
	return NULL;
}

int templates_start(struct backend *b, struct err *err)
{
	struct templates *t = b->templates;
	int rc = store_try(b->store, orphans_fn, NULL, err);
	rc = rc == -ENOSPC ? 0 : rc; /* the next start does it */
	if (!rc)
		t->has_thread = !pthread_create(&t->thread, NULL, sweeper, b);
	return rc;
}

void templates_stop(struct templates *t)
{
	if (t && t->has_thread)
		pthread_join(t->thread, NULL);
}

/* ---- as the tree shows them ---- */

static char *status(const struct rows *r)
{
	const char *state = row_text(r, 2), *step = row_text(r, 3), *detail = row_text(r, 4);
	return !strcmp(state, "building") ? xasprintf("building %s", step)
	       : !strcmp(state, "failed") ? xasprintf("failed: %s", detail)
					  : xstrdup(state);
}

void template_views(struct db *db, struct root_view *v)
{
	struct rows r;
	int rc = db_query(db, &r, NULL,
			  "SELECT id, name, state, step, detail, size, changed_ms, log_size, log_ms, created_ms FROM "
			  "templates WHERE state IN ('building','ready','failed') ORDER BY id",
			  "");
	while (!rc && rows_next(&r)) {
		v->templates = xrealloc(v->templates, (v->n_templates + 1) * sizeof *v->templates);
		v->templates[v->n_templates++] =
			(struct template_info){.id = row_int(&r, 0),
					       .name = xstrdup(row_text(&r, 1)),
					       .status = status(&r),
					       .size = (uint64_t)row_int(&r, 5),
					       .changed_ms = row_int(&r, 6),
					       .log = {(uint64_t)row_int(&r, 7), row_int(&r, 8)},
					       .created_ms = row_int(&r, 9)};
		if (row_int(&r, 9) > v->templates_ms)
			v->templates_ms = row_int(&r, 9);
	}
	rows_end(&r);
}
