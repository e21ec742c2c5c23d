/* Requests that look at paths and checkouts. Pool threads; they may block on a disk, never on a network. */
#include "clerk.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "backend/git/repo.h"
#include "create.h"
#include "draft.h"
#include "gate_link.h"
#include "gateway/gateway.h"
#include "guest.h"
#include "model.h"
#include "providers.h"
#include "requests.h"
#include "sandbox/sandbox.h"
#include "session.h"
#include "template.h"

#define NETWORK_MS 1500 /* for the gateway to take a changed `network` */

/* ---- projects ---- */

static bool inside(const char *dir, const char *path)
{
	size_t n = strlen(dir);
	return !strncmp(dir, path, n) && (!path[n] || path[n] == '/');
}

static char *expand_home(const char *path)
{
	if (strncmp(path, "~/", 2))
		return xstrdup(path);
	const char *home = getenv("HOME");
	return xasprintf("%s%s", home ? home : "", path + 1);
}

/* The checkout's top folder for a path that a person wrote. Never looks below the mount point. */
static int checkout_of(struct backend *b, const char *value, char **top, struct err *err)
{
	CLEAN_FREE char *path = expand_home(value);
	struct err why = ERR_INIT;
	if (*path != '/')
		return err_set(err, EINVAL, "project \"%s\" is neither a registered name nor an absolute path", value);
	if (inside(b->mount, path))
		return err_set(err, EINVAL, "the project %s lies inside the mount %s", path, b->mount);
	CLEAN_FREE char *found = NULL;
	if (repo_discover(path, &found, &why))
		return err_set(err, EINVAL, "project: %s", why.text);
	if (inside(b->mount, found))
		return err_set(err, EINVAL, "the project %s lies inside the mount %s", found, b->mount);
	*top = take(found);
	return 0;
}

static int registered(struct db *db, const char *name, char **path, struct err *err)
{
	struct rows r;
	*path = NULL;
	int rc = db_query(db, &r, err, "SELECT path FROM projects WHERE name=?", "t", name);
	if (!rc && rows_next(&r))
		*path = xstrdup(row_text(&r, 0));
	int end = rows_end(&r);
	return rc ? rc : end;
}

/* The checkout around the writer's folder, malloc'd; NULL if it stands in none that can be used, and why. */
static char *checkout_around(struct backend *b, const char *cwd, struct err *why)
{
	CLEAN_FREE char *top = NULL;
	if (!cwd)
		return NULL;
	bool in_mount = inside(b->mount, cwd);
	if (!in_mount && repo_discover(cwd, &top, why))
		return NULL;
	if (in_mount || inside(b->mount, top)) {
		err_set(why, EINVAL, "%s lies inside the mount", cwd);
		return NULL;
	}
	return take(top);
}

/* The project of a new session: front matter, drop box folder, config, or where its writer stands; in that order. */
static int find_project(struct backend *b, struct db *db, const struct draft *d, const struct request *r,
			const struct config *c, char **top, struct err *err)
{
	const char *value = d->value[DRAFT_PROJECT];
	struct err why = ERR_INIT;
	if (!value && r->project)
		value = r->project;
	if (!value && *c->value[CONFIG_PROJECT])
		value = c->value[CONFIG_PROJECT];
	if (!value && (*top = checkout_around(b, r->cwd, &why)))
		return 0;
	if (!value)
		return err_set(err, EINVAL,
			       "which project? Write it from inside a git checkout, or put `project: ~/path` between "
			       "--- lines at the top%s%s%s",
			       why.code ? " (" : "", why.text, why.code ? ")" : "");
	CLEAN_FREE char *path = NULL;
	int rc = registered(db, value, &path, err);
	return rc ? rc : checkout_of(b, path ? path : value, top, err);
}

/* ---- drafts ---- */

static const char *choice(const struct draft *d, enum draft_key key, const struct config *c, enum config_key fallback)
{
	return d->value[key] ? d->value[key] : c->value[fallback];
}

static int check_sandbox(const char *kind, const struct config *c, struct err *err)
{
	if (!strcmp(kind, "dir") && strcmp(c->value[CONFIG_ALLOW_DIR], "yes"))
		return err_set(
			err, EINVAL,
			"sandbox: dir runs tools on this machine without any isolation and is for tests only; if "
			"you want that, write `sandbox.allow-dir = yes` to config");
	return 0;
}

/* The session that a new one begins as: by name, or by id as in sessions/N. What is fixed for life comes from there,
 * and settings too where the draft has none. */
static int judge_from(struct backend *b, struct db *db, struct draft *d, struct new_session *n, struct err *err)
{
	static const enum draft_key keys[] = {DRAFT_MODEL, DRAFT_NETWORK,   DRAFT_AFTER_RUN,
					      DRAFT_SHIP,  DRAFT_APPROVALS, DRAFT_AGENT};
	const char *name = d->value[DRAFT_FROM];
	bool number = !name[strspn(name, "0123456789")];
	struct session *s = NULL;
	n->from = db_int(db, 0, "SELECT id FROM sessions WHERE destroyed_ms IS NULL AND (name=?1 OR (?2 AND id=?1))",
			 "ti", name, (int64_t)number);
	int rc = n->from ? session_load(db, n->from, &s, err)
			 : err_set(err, EINVAL, "from: there is no session %.64s", name);
	if (rc || !s)
		return rc ? rc : err_set(err, EINVAL, "from: %.64s has ended", name);
	const struct {
		enum draft_key key;
		const char *name, *is;
	} fixed[] = {{DRAFT_SANDBOX, "sandbox", s->sandbox}, {DRAFT_SIZE, "size", s->size}};
	for (size_t i = 0; !rc && i < ARRAY_LEN(fixed); i++)
		if (d->value[fixed[i].key] && strcmp(d->value[fixed[i].key], fixed[i].is) != 0)
			rc = err_set(err, EINVAL, "%s: %s has %s, and so has what begins as it: leave the line out",
				     fixed[i].name, s->name, fixed[i].is);
	if (!rc && !sandbox_copies(s->sandbox))
		rc = err_set(err, EOPNOTSUPP, "from: the disk of a sandbox of kind %s cannot be copied", s->sandbox);
	free(d->value[DRAFT_SANDBOX]);
	free(d->value[DRAFT_SIZE]);
	d->value[DRAFT_SANDBOX] = xstrdup(s->sandbox);
	d->value[DRAFT_SIZE] = xstrdup(s->size);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) /* in the order of the settings */
		if (!d->value[keys[i]])
			d->value[keys[i]] = xstrdup(s->setting[i]);
	n->project = xstrdup(s->project);
	session_free(s);
	return rc;
}

/* A project that is named beside `from` has to be the same one. */
static int same_project(struct backend *b, struct db *db, const struct draft *d, const struct request *r,
			const struct config *c, const struct new_session *n, struct err *err)
{
	CLEAN_FREE char *top = NULL;
	if (!d->value[DRAFT_PROJECT] && !r->project)
		return 0;
	int rc = find_project(b, db, d, r, c, &top, err);
	if (!rc && strcmp(top, n->project) != 0)
		rc = err_set(err, EINVAL, "project: %s belongs to %s; leave the line out", d->value[DRAFT_FROM],
			     n->project);
	return rc;
}

/* Whoever is to work: a model for the engine's own turns, or an agent, with the model that it asks. */
static int who(const struct config *c, char *const *setting, const char *sandbox, const char *project, struct err *err)
{
	if (!guest_is(setting[SETTING_AGENT]))
		return model_check(c, setting[SETTING_MODEL], project, err);
	return guest_check(c, setting[SETTING_AGENT], setting[SETTING_MODEL], sandbox, setting[SETTING_APPROVALS], err);
}

static int judge(struct backend *b, struct db *db, struct request *r, struct draft *d, struct new_session *n,
		 struct err *err)
{
	struct config *c = backend_config(b);
	int rc = d->value[DRAFT_FROM] ? judge_from(b, db, d, n, err) : find_project(b, db, d, r, c, &n->project, err);
	if (!rc && n->from)
		rc = same_project(b, db, d, r, c, n, err);
	n->setting[SETTING_MODEL] = xstrdup(choice(d, DRAFT_MODEL, c, CONFIG_MODEL));
	n->setting[SETTING_NETWORK] = xstrdup(choice(d, DRAFT_NETWORK, c, CONFIG_NETWORK));
	n->setting[SETTING_AFTER_RUN] = xstrdup(choice(d, DRAFT_AFTER_RUN, c, CONFIG_AFTER_RUN));
	n->setting[SETTING_SHIP] = xstrdup(choice(d, DRAFT_SHIP, c, CONFIG_SHIP));
	n->setting[SETTING_APPROVALS] = xstrdup(choice(d, DRAFT_APPROVALS, c, CONFIG_APPROVALS));
	n->setting[SETTING_AGENT] = xstrdup(choice(d, DRAFT_AGENT, c, CONFIG_AGENT));
	n->sandbox = xstrdup(choice(d, DRAFT_SANDBOX, c, CONFIG_SANDBOX));
	n->size = xstrdup(choice(d, DRAFT_SIZE, c, CONFIG_SIZE));
	if (!*n->setting[SETTING_MODEL]) {
		free(n->setting[SETTING_MODEL]);
		n->setting[SETTING_MODEL] = providers_default(b->paths, c);
		if (!n->setting[SETTING_MODEL])
			n->setting[SETTING_MODEL] = xstrdup("");
	}
	rc = rc ? rc : check_sandbox(n->sandbox, c, err);
	rc = rc ? rc : who(c, n->setting, n->sandbox, n->project, err);
	config_put(c);
	return rc;
}

static bool draft_run(struct backend *b, struct db *db, struct request *r)
{
	struct draft d;
	r->rc = draft_parse(buf_str(&r->text), r->kind == REQ_CREATE, &d, &r->err);
	if (r->rc)
		return false;
	struct new_session *n = new_session_new();
	bool passed = false;
	if (!d.open && (r->rc = judge(b, db, r, &d, n, &r->err)) == 0 && r->kind == REQ_CREATE) {
		if (utf8_blank(d.message, strlen(d.message)))
			r->rc = err_set(&r->err, EINVAL,
					"there is no message: write what is to be done below the front matter");
		n->name = xstrdup(r->name);
		n->message = xstrdup(d.message);
		r->rc = r->rc ? r->rc : create_look(n, &r->err);
		if (!r->rc) {
			create_commit(b, n, r); /* takes n */
			passed = true;
		}
	}
	draft_release(&d);
	if (!passed)
		new_session_free(n);
	return passed;
}

/* ---- the writer's folder ---- */

void clerk_cwd(struct request *r)
{
	char link[64], path[PATH_MAX];
	snprintf(link, sizeof link, "/proc/%d/cwd", r->pid);
	ssize_t n = readlink(link, path, sizeof path - 1);
	if (n > 0)
		r->name = xstrndup(path, (size_t)n);
}

/* ---- registering ---- */

static int project_add_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	int rc = db_run(tx->db, err, "INSERT INTO projects(name,path,changed_ms) VALUES(?,?,?)", "tti", r->name,
			r->project, tx->now_ms);
	tx->root_changed = true;
	return rc == -EEXIST ? err_set(err, EEXIST, "the project %s is registered already; rm projects/%s first",
				       r->name, r->name)
			     : rc;
}

static bool project_add_run(struct backend *b, struct db *db, struct request *r)
{
	r->rc = name_check(r->name, &r->err);
	if (!r->rc)
		r->rc = checkout_of(b, buf_str(&r->text), &r->project, &r->err);
	if (r->rc)
		return false;
	store_request(b->store, project_add_fn, r);
	return true;
}

/* ---- settings that name files ---- */

static bool setting_run(struct backend *b, struct db *db, struct request *r)
{
	struct session *s = NULL;
	CLEAN_FREE char *copy = xstrdup(buf_str(&r->text));
	const char *value = text_trim(copy);
	if (r->setting == SETTING_APPROVALS && !strncmp(value, "revoke", 6) && strchr(" \t", value[6])) {
		buf_reset(&r->text);
		buf_adds(&r->text, text_trim(copy + (value - copy) + 6));
		store_request(b->store, revoke_fn, r);
		return true;
	}
	r->rc = value_check(setting_names[r->setting], value, &r->err);
	buf_reset(&r->text);
	buf_adds(&r->text, value);
	r->rc = r->rc ? r->rc : session_load(db, r->session, &s, &r->err);
	if (!r->rc && !s)
		r->rc = err_set(&r->err, ESHUTDOWN, "this session has ended");
	if (!r->rc && (r->setting == SETTING_MODEL || r->setting == SETTING_AGENT || r->setting == SETTING_APPROVALS)) {
		struct config *c = backend_config(b);
		session_set(&s->setting[r->setting], buf_str(&r->text));
		r->rc = who(c, s->setting, s->sandbox, s->project, &r->err);
		config_put(c);
	}
	session_free(s);
	if (r->rc)
		return false;
	if (r->setting != SETTING_NETWORK) {
		store_request(b->store, setting_fn, r); /* it is the store's from here on */
		return true;
	}
	/* What a sandbox may reach is so when the write returns; a gateway that is down lets nothing through. */
	r->rc = store_try(b->store, setting_fn, r, &r->err);
	if (!r->rc)
		gate_settle(b, NETWORK_MS, NULL);
	return false;
}

/* ---- config ---- */

static bool config_run(struct backend *b, struct db *db, struct request *r)
{
	struct config *c = NULL;
	struct err why = ERR_INIT;
	r->rc = config_parse(buf_str(&r->text), r->text.n, &c, &why);
	if (!r->rc)
		r->rc = file_write(b->paths->config, buf_str(&r->text), r->text.n, 0600, &why);
	if (r->rc)
		config_put(c);
	backend_set_config(b, r->rc ? NULL : c, r->rc ? buf_str(&r->text) : NULL);
	if (!r->rc)
		gate_kick(b);
	struct err publish = ERR_INIT;
	store_try(b->store, publish_fn, NULL, &publish);
	r->err = why;
	return false;
}

static bool config_line_run(struct backend *b, struct db *db, struct request *r)
{
	r->rc = config_line(buf_str(&r->text), r->text.n, &r->err);
	return false;
}

static bool policy_line_run(struct backend *b, struct db *db, struct request *r)
{
	r->rc = gateway_policy_check_line(buf_str(&r->text), r->text.n, &r->err);
	return false;
}

static bool template_drop_run(struct backend *b, struct request *r)
{
	r->rc = store_try(b->store, template_drop_fn, r, &r->err);
	if (!r->rc)
		template_sweep(b);
	return false;
}

bool clerk_run(struct backend *b, struct db *db, struct request *r)
{
	switch ((int)r->kind) {
	case REQ_DRAFT:
	case REQ_CREATE: return draft_run(b, db, r);
	case REQ_ATTACH: return attach_add(b, r);
	case REQ_ATTACH_READ: attach_read(b, db, r); return false;
	case REQ_ATTACH_REMOVE: attach_remove(b, db, r); return false;
	case REQ_PROJECT_ADD: return project_add_run(b, db, r);
	case REQ_SETTING: return setting_run(b, db, r);
	case REQ_CONFIG: return config_run(b, db, r);
	case REQ_CONFIG_LINE: return config_line_run(b, db, r);
	case REQ_POLICY_LINE: return policy_line_run(b, db, r);
	case REQ_TEMPLATE_DROP: return template_drop_run(b, r);
	default: r->rc = err_set(&r->err, EINVAL, "no such request"); return false;
	}
}
