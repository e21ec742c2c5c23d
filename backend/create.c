/* Makes sessions. Pool threads; create_fn and created on the store thread. */
#include "create.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/git/repo.h"
#include "killpoint.h"
#include "message.h"
#include "pool.h"
#include "snapshot.h"
#include "transcript.h"

struct new_session *new_session_new(void)
{
	return xcalloc(1, sizeof(struct new_session));
}

void new_session_free(struct new_session *n)
{
	if (!n)
		return;
	char *fields[] = {n->name, n->project, n->sandbox, n->size, n->message, n->branch, n->commit};
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		free(fields[i]);
	for (int i = 0; i < SETTING_KINDS; i++)
		free(n->setting[i]);
	free(n);
}

int create_look(struct new_session *n, struct err *err)
{
	struct repo_head h = {0};
	int rc = repo_tip(n->project, &h, err); /* of a clone too: whatever is wrong with the checkout is said now */
	if (rc)
		return rc;
	n->branch = xstrdup(h.branch ? h.branch : "HEAD");
	n->commit = xstrdup(h.commit);
	repo_head_release(&h);
	return 0;
}

static int log_start(struct tx *tx, struct session *s, const struct new_session *n, struct err *err)
{
	CLEAN_FREE char *from = xasprintf("session %" PRId64 " of %s at %s %.12s, sandbox %s", s->id, n->project,
					  n->branch, n->commit, n->sandbox);
	return log_add(tx, s, from, err);
}

static int create_fn(struct tx *tx, void *arg, struct err *err)
{
	struct new_session *n = arg;
	int64_t k, next = db_int(tx->db, 0, "SELECT value FROM counters WHERE name='session'", "") + 1;
	if (next > n->id) /* another session took the candidate: look for the next one */
		return -EAGAIN;
	if (db_int(tx->db, 0, "SELECT 1 FROM sessions WHERE name=? AND destroyed_ms IS NULL", "t", n->name))
		return err_set(err, EEXIST, "a session with the name %s exists already", n->name);
	int rc =
		db_run(tx->db, err,
		       "INSERT INTO counters(name,value) VALUES('session',?1) ON CONFLICT(name) DO UPDATE SET value=?1",
		       "i", n->id);
	if (rc)
		return rc;
	struct session *s = session_new();
	s->id = n->id;
	session_set(&s->name, n->name);
	session_set(&s->project, n->project);
	session_set(&s->sandbox, n->sandbox);
	session_set(&s->size, n->size);
	session_set(&s->base_branch, n->branch);
	session_set(&s->base_commit, n->commit);
	session_set(&s->detail, "waiting");
	CLEAN_FREE char *state = xasprintf("%s down", n->sandbox);
	session_set(&s->sandbox_state, state);
	for (int i = 0; i < SETTING_KINDS; i++)
		session_set(&s->setting[i], n->setting[i]);
	rc = session_insert(tx, s, err);
	if (rc) {
		session_free(s);
		return rc;
	}
	tx_adopt(tx, s);
	rc = n->from ? snapshot_clone(tx, s, n->from, err) : 0;
	rc = rc ? rc : tx_event(tx, s, "created", n->project, err);
	rc = rc ? rc : log_start(tx, s, n, err);
	return rc ? rc : message_accept(tx, s, n->message, &k, err);
}

static void created(void *arg, int rc, const struct err *err)
{
	struct new_session *n = arg;
	struct request *r = n->request;
	if (rc == -EAGAIN) { /* back to a pool thread: the checkout has to be looked at again */
		pool_push(n->b->pool, r);
		new_session_free(n);
		return;
	}
	if (!rc)
		killpoint("message.commit"); /* the first message is committed with its session */
	r->rc = rc;
	r->err = *err;
	r->session = rc ? 0 : n->id;
	notes_done(n->b->notes, r);
	new_session_free(n);
}

static int64_t counter(struct backend *b)
{
	struct db *db = NULL;
	if (db_open(b->db_path, false, &db, NULL))
		return 0;
	int64_t v = db_int(db, 0, "SELECT value FROM counters WHERE name='session'", "");
	db_close(db);
	return v;
}

void create_commit(struct backend *b, struct new_session *n, struct request *r)
{
	struct err err = ERR_INIT;
	n->b = b;
	n->request = r;
	int found;
	for (n->id = counter(b) + 1;; n->id++) { /* an id whose branch exists belonged to another instance */
		CLEAN_FREE char *branch = xasprintf("sandbox/%" PRId64, n->id);
		found = repo_branch_exists(n->project, branch, &err);
		if (found <= 0)
			break;
	}
	if (found < 0) {
		created(n, found, &err);
		return;
	}
	store_post(b->store, create_fn, created, n);
}
