/* Which template a session starts from, and who builds it: one worker of those that want it, while the others wait.
 * Worker threads; pick_fn on the store thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "engine.h"
#include "template_private.h"

/* ---- who builds ---- */

struct templates *templates_new(void)
{
	struct templates *t = xcalloc(1, sizeof *t);
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->sweeping, NULL);
	pthread_cond_init(&t->change, NULL);
	return t;
}

void templates_free(struct templates *t)
{
	if (!t)
		return;
	pthread_mutex_destroy(&t->lock);
	pthread_mutex_destroy(&t->sweeping);
	pthread_cond_destroy(&t->change);
	free(t);
}

static struct claim *find_claim(struct templates *t, const struct session *s)
{
	for (struct claim *c = t->claims; c; c = c->next)
		if (!strcmp(c->project, s->project) && !strcmp(c->kind, s->sandbox))
			return c;
	return NULL;
}

/* True: it is ours to build. False: another session's build of this project has ended meanwhile. -ECANCELED. */
static int claim(struct worker *w, bool *ours)
{
	struct templates *t = w->b->templates;
	pthread_mutex_lock(&t->lock);
	struct claim *c = find_claim(t, w->s);
	*ours = !c;
	if (!c) {
		c = xcalloc(1, sizeof *c);
		*c = (struct claim){t->claims, xstrdup(w->s->project), xstrdup(w->s->sandbox), 0};
		t->claims = c;
	}
	while (!*ours && find_claim(t, w->s) == c && !atomic_load(&w->cancel)) {
		/* the flag of a worker is not told to this condition */
		int64_t until = clock_real_ms() + 200;
		struct timespec at = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
		c->waiting++;
		pthread_cond_timedwait(&t->change, &t->lock, &at);
		if (find_claim(t, w->s) == c)
			c->waiting--;
	}
	pthread_mutex_unlock(&t->lock);
	return atomic_load(&w->cancel) && !*ours ? -ECANCELED : 0;
}

/* Whether others of this project wait for us: they go on with what we leave. */
static bool awaited(struct worker *w)
{
	struct templates *t = w->b->templates;
	pthread_mutex_lock(&t->lock);
	struct claim *c = find_claim(t, w->s);
	bool yes = c && c->waiting;
	pthread_mutex_unlock(&t->lock);
	return yes;
}

static void release(struct worker *w)
{
	struct templates *t = w->b->templates;
	pthread_mutex_lock(&t->lock);
	for (struct claim **at = &t->claims; *at; at = &(*at)->next) {
		struct claim *c = *at;
		if (strcmp(c->project, w->s->project) || strcmp(c->kind, w->s->sandbox))
			continue;
		*at = c->next;
		free(c->project);
		free(c->kind);
		free(c);
		break;
	}
	pthread_cond_broadcast(&t->change);
	pthread_mutex_unlock(&t->lock);
}

/* ---- taking one ---- */

struct pick {
	int64_t id, since; /* since: a failure of before that does not count */
	struct err why;
};

static int pick_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct pick *p = arg;
	struct rows r;
	int rc = db_query(
		tx->db, &r, err,
		"SELECT id, state, detail FROM templates WHERE project=? AND base=? AND kind=? AND (state='ready' "
		"OR (state='failed' AND changed_ms>=?)) ORDER BY state='ready' DESC, id DESC LIMIT 1",
		"ttti", s->project, s->base_commit, s->sandbox, p->since);
	if (!rc && rows_next(&r)) {
		if (!strcmp(row_text(&r, 1), "ready"))
			p->id = row_int(&r, 0);
		else
			err_set(&p->why, EIO, "%s", row_text(&r, 2));
	}
	int end = rows_end(&r);
	rc = rc ? rc : end;
	return rc || !p->id ? rc : template_use(tx, s->id, p->id, err);
}

static bool there(struct worker *w, int64_t id)
{
	CLEAN_FREE char *dir = template_dir(w->b->paths, w->db, id);
	return file_exists(dir);
}

/* The claim is ours. */
static int make(struct worker *w, const struct plan *plan, struct err *err)
{
	struct template t;
	int rc = template_begin(w, plan, &t, err);
	rc = rc ? rc : template_build(w, plan, &t, err);
	bool left = rc == -ECANCELED && !atomic_load(&w->halt) && t.id && !awaited(w);
	if (left)
		template_forget(w, &t);
	release(w);
	if (!rc || left)
		template_sweep(w->b);
	template_release(&t);
	return rc;
}

int template_take(struct worker *w, int64_t *id, struct err *err)
{
	struct plan plan;
	struct pick p = {.since = INT64_MAX};
	*id = 0;
	if (!sandbox_can_save(w->s->sandbox))
		return 0;
	*id = db_int(w->db, 0, "SELECT template FROM template_uses WHERE session=?", "i", w->id);
	if (*id && there(w, *id))
		return 0;
	int rc = *id ? template_lost(w, *id, err) : 0;
	*id = 0;
	rc = rc ? rc : plan_find(w->s->project, w->s->base_commit, &plan, err);
	if (rc || !plan.n)
		return rc;
	for (int64_t from = clock_real_ms();; p.since = from) {
		bool ours = false;
		rc = worker_commit(w, pick_fn, &p, err);
		if (!rc && p.id && !there(w, p.id)) {
			rc = template_lost(w, p.id, err);
			p.id = 0;
		}
		if (rc || p.id) {
			*id = p.id;
			return rc;
		}
		if (p.why.code)
			return err_set(err, p.why.code, "%s", p.why.text);
		worker_detail(w, "waiting");
		rc = claim(w, &ours);
		if (!rc && ours)
			rc = make(w, &plan, err);
		if (rc)
			return rc;
	}
}
