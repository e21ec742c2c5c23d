/* The front door of backend/: starts and stops its threads and hands requests to the one that can answer them. The
 * functions that a face calls never block, but backend_start() and backend_stop(). */
#include "backend.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "backend/git/repo.h"
#include "backend/parse/image.h"
#include "claude.h"
#include "core.h"
#include "engine.h"
#include "gate_link.h"
#include "killpoint.h"
#include "pool.h"
#include "requests.h"
#include "rest.h"
#include "session.h"
#include "template.h"
#include "transcript.h"
#include "watch.h"

#define CONFIG_MAX (256 << 10) /* bytes of a config file */

/* ---- config ---- */

struct config *backend_config(struct backend *b)
{
	pthread_mutex_lock(&b->lock);
	struct config *c = config_get(b->config);
	pthread_mutex_unlock(&b->lock);
	return c;
}

static int load_config(struct backend *b, struct err *err)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	if (!file_exists(b->paths->config)) {
		config_default_text(&text);
		int rc = file_write(b->paths->config, buf_str(&text), text.n, 0600, err);
		if (rc)
			return rc;
		buf_reset(&text);
	}
	int rc = file_read(b->paths->config, &text, CONFIG_MAX, err);
	rc = rc ? rc : config_parse(buf_str(&text), text.n, &b->config, err);
	struct stat st;
	b->config_ms =
		stat(b->paths->config, &st) ? clock_real_ms() : st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
	if (rc == -EINVAL || rc == -EOPNOTSUPP || rc == -EILSEQ) {
		err_prefix(err, "%s", b->paths->config);
		return -EINVAL;
	}
	return rc;
}

void backend_set_config(struct backend *b, struct config *c, const char *draft)
{
	pthread_mutex_lock(&b->lock);
	if (draft)
		b->draft_ms = clock_real_ms();
	free(b->config_draft);
	b->config_draft = xstrdup(draft);
	if (c) { /* vim writes the old text back after a refusal, and looks at the time before it writes again */
		if (strcmp(c->text, b->config->text))
			b->config_ms = clock_real_ms();
		config_put(b->config);
		b->config = c;
	}
	pthread_mutex_unlock(&b->lock);
}

/* ---- the root view; store thread ---- */

static struct root_view *root_view(void *arg, struct tx *tx)
{
	struct backend *b = arg;
	struct root_view *v = xcalloc(1, sizeof *v);
	struct rows r;
	atomic_init(&v->refs, 1);
	v->started_ms = v->projects_ms = b->started_ms;
	v->workers = engine_workers(b->engine);
	v->gateway = gate_view(b);
	pthread_mutex_lock(&b->lock);
	v->config = xstrdup(b->config->text);
	v->config_ms = b->config_draft ? b->draft_ms : b->config_ms;
	v->draft = xstrdup(b->config_draft);
	pthread_mutex_unlock(&b->lock);
	int rc = db_query(tx->db, &r, NULL, "SELECT name, path, changed_ms FROM projects ORDER BY name", "");
	while (!rc && rows_next(&r)) {
		v->projects = xrealloc(v->projects, (v->n_projects + 1) * sizeof *v->projects);
		v->projects[v->n_projects++] =
			(struct project_info){xstrdup(row_text(&r, 0)), xstrdup(row_text(&r, 1)), row_int(&r, 2)};
		if (row_int(&r, 2) > v->projects_ms)
			v->projects_ms = row_int(&r, 2);
	}
	rows_end(&r);
	v->templates_ms = b->started_ms;
	template_views(tx->db, v);
	return v;
}

static void touched(void *arg, int64_t session)
{
	struct backend *b = arg;
	engine_kick(b->engine, session);
}

/* ---- requests ---- */

/* What ends a step is told to the worker once it is committed; then the face hears of it. */
struct cancelling {
	struct backend *b;
	struct request *r;
	tx_fn *fn;
	bool ends; /* there is a step to end: `stop` changes nothing where a session is made ready, or saved */
};

static int cancelling_fn(struct tx *tx, void *arg, struct err *err)
{
	struct cancelling *c = arg;
	int rc = c->fn(tx, c->r, err);
	const struct session *s = rc ? NULL : tx_session(tx, c->r->session);
	c->ends = !rc && (!s || s->stopping);
	return rc;
}

static void cancelling_done(void *arg, int rc, const struct err *err)
{
	struct cancelling *c = arg;
	c->r->rc = rc;
	c->r->err = *err;
	if (!rc && c->ends)
		engine_cancel(c->b->engine, c->r->session);
	if (!rc)
		gate_kick(c->b); /* if it ends, its tokens do */
	notes_done(c->b->notes, c->r);
	free(c);
}

static const struct {
	tx_fn *fn; /* NULL: a pool thread answers */
} lanes[] = {
	[REQ_FILE_FIND] = {NULL},
	[REQ_FILE_LIST] = {NULL},
	[REQ_FILE_READ] = {NULL},
	[REQ_READ] = {NULL},
	[REQ_CWD] = {NULL},
	[REQ_DRAFT] = {NULL},
	[REQ_CREATE] = {NULL},
	[REQ_MESSAGE] = {message_fn},
	[REQ_CTL] = {ctl_fn},
	[REQ_SHIP] = {ship_fn},
	[REQ_SETTING] = {NULL},
	[REQ_APPROVE] = {approve_fn},
	[REQ_ATTACH] = {NULL},
	[REQ_ATTACH_READ] = {NULL},
	[REQ_ATTACH_REMOVE] = {NULL},
	[REQ_CONFIG] = {NULL},
	[REQ_CONFIG_LINE] = {NULL},
	[REQ_PROJECT_ADD] = {NULL},
	[REQ_PROJECT_REMOVE] = {project_remove_fn},
	[REQ_RENAME] = {rename_fn},
	[REQ_DESTROY] = {destroy_fn},
	[REQ_POLICY_LINE] = {NULL},
	[REQ_TEMPLATE_DROP] = {NULL},
};

void backend_submit(struct backend *b, struct request *r)
{
	tx_fn *fn = gate_takes(r) ? NULL : lanes[r->kind].fn;
	if (gate_takes(r)) {
		gate_push(b, r);
	} else if (!fn) {
		pool_push(b->pool, r);
	} else if (request_cancels(r)) {
		struct cancelling *c = xcalloc(1, sizeof *c);
		*c = (struct cancelling){b, r, fn, false};
		store_post_urgent(b->store, cancelling_fn, cancelling_done, c);
	} else {
		store_request(b->store, fn, r);
	}
}

int name_check(const char *name, struct err *err)
{
	size_t n = strlen(name), digits = strspn(name, "0123456789");
	if (!n || n > NAME_MAX_CHARS)
		return err_set(err, EINVAL, "a name has 1 to %d characters", NAME_MAX_CHARS);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i]))
			return err_set(err, EINVAL,
				       "the name \"%.64s\" has other characters than letters, digits, . _ -", name);
	if (*name == '.')
		return err_set(err, EINVAL, "a name does not start with a point");
	if (digits == n)
		return err_set(err, EINVAL, "a name is not only digits: those are the ids of sessions");
	if (!strcmp(name, "new"))
		return err_set(err, EINVAL, "the name new is reserved for the drop box");
	return 0;
}

bool attach_is_image(const void *p, size_t n)
{
	return image_media(p, n) != NULL;
}

/* ---- life ---- */

static int going_on_fn(struct tx *tx, void *arg, struct err *err)
{
	struct session *s = tx_session(tx, *(int64_t *)arg);
	return s ? log_add(tx, s, "the daemon was started again; going on", err) : 0;
}

static void going_on_done(void *arg, int rc, const struct err *err)
{
	free(arg);
}

/* Sessions that were at work when the last daemon ended. */
static void kick_all(struct backend *b, struct err *err)
{
	struct rows r;
	struct db *db = NULL;
	if (db_open(b->db_path, false, &db, err))
		return;
	int rc = db_query(db, &r, err,
			  "SELECT id FROM sessions WHERE state='destroying' OR (destroyed_ms IS NULL AND "
			  "state NOT IN ('idle','failed'))",
			  "");
	while (!rc && rows_next(&r)) {
		int64_t *id = xmemdup(&(int64_t){row_int(&r, 0)}, sizeof *id);
		engine_kick(b->engine, *id);
		store_post(b->store, going_on_fn, going_on_done, id); /* takes id */
	}
	rows_end(&r);
	db_close(db);
}

static int start_parts(struct backend *b, struct err *err)
{
	CLEAN_FREE char *tmp = xasprintf("%s/tmp", b->paths->state);
	int rc = dir_remove(tmp, err); /* bundles of an earlier process */
	rc = rc ? rc : dir_make(tmp, 0700, err);
	rc = rc ? rc : load_config(b, err);
	rc = rc ? rc : repo_begin(err);
	rc = rc ? rc : engine_start(b, &b->engine, err);
	struct store_options so = {
		.path = b->db_path, .notes = b->notes, .touched = touched, .root = root_view, .arg = b};
	rc = rc ? rc : store_start(&so, &b->store, err);
	rc = rc ? rc : pool_start(b, &b->pool, err);
	rc = rc || !b->link ? rc : gate_link_start(b->link, err);
	rc = rc ? rc : watch_start(b, &b->watch, err);
	rc = rc ? rc : templates_start(b, err);
	return rc;
}

int backend_start(const struct backend_options *opt, struct backend **out, struct err *err)
{
	struct backend *b = xcalloc(1, sizeof *b);
	killpoint_init();
	b->paths = opt->paths;
	b->notes = opt->notes;
	b->mount = xstrdup(opt->mount);
	b->db_path = xasprintf("%s/berthfs.db", opt->paths->state);
	b->started_ms = clock_real_ms();
	pthread_mutex_init(&b->lock, NULL);
	b->templates = templates_new();
	b->link = opt->gateway ? gate_link_new(b, opt->log_fd) : NULL;
	b->claudes = claudes_new();
	int rc = start_parts(b, err);
	if (rc) {
		backend_stop(b);
		return rc;
	}
	struct note *ready = xcalloc(1, sizeof *ready);
	ready->kind = NOTE_READY;
	queue_push(b->notes, &ready->node);
	kick_all(b, err);
	*out = b;
	return 0;
}

void backend_stop(struct backend *b)
{
	if (!b)
		return;
	watch_stop(b->watch);
	engine_halt(b->engine);
	pool_stop(b->pool);
	templates_stop(b->templates);
	claudes_free(b->claudes);
	rest_all(b);
	gate_link_stop(b->link);
	store_stop(b->store);
	gate_link_free(b->link);
	engine_free(b->engine);
	templates_free(b->templates);
	repo_end();
	config_put(b->config);
	free(b->config_draft);
	free(b->mount);
	free(b->db_path);
	pthread_mutex_destroy(&b->lock);
	free(b);
}
