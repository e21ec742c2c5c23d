/* `snapshot`, `restore K` and sessions that begin `from` another one. Worker threads; the _fn functions and those of
 * the header's first part run on the store thread.
 *
 * The disk is copied first and the row is committed after it, so that what a row names is there; a copy that was cut
 * off is made again. A restore keeps what is now as a snapshot of its own before it touches anything, and takes nothing
 * out of the transcript: entries that it undoes are only not told to the model any more (the view told_entries). */
#include "snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/git/repo.h"
#include "finish.h"
#include "gate_link.h"
#include "killpoint.h"
#include "message.h"
#include "transcript.h"

#define FLUSH_MS 20000 /* for the sandbox to write what it holds in memory to its disk */

/* ---- asking for one ---- */

static int can_copy(const struct session *s, struct err *err)
{
	if (sandbox_copies(s->sandbox))
		return 0;
	return err_set(err, EOPNOTSUPP, "the disk of a sandbox of kind %s cannot be copied", s->sandbox);
}

static int is_room(struct tx *tx, const struct session *s, struct err *err)
{
	int64_t n = db_int(tx->db, 0, "SELECT count(*) FROM snapshots WHERE session=?", "i", s->id);
	if (n < SNAPSHOTS_MAX)
		return 0;
	return err_set(err, EDQUOT,
		       "this session has %" PRId64 " snapshots, which is the most; begin another session `from: %s`", n,
		       s->name);
}

int snapshot_begin(struct tx *tx, struct session *s, struct err *err)
{
	int rc = can_copy(s, err);
	rc = rc ? rc : is_room(tx, s, err);
	rc = rc ? rc : session_event(tx, s, EVENT_SNAPSHOT, NULL, err);
	if (!rc)
		s->snapshots++;
	return rc;
}

static bool is_there(struct db *db, int64_t session, int64_t k)
{
	return db_int(db, 0, "SELECT 1 FROM snapshots WHERE session=? AND k=?", "ii", session, k);
}

int restore_begin(struct tx *tx, struct session *s, int64_t k, struct err *err)
{
	int rc = can_copy(s, err);
	if (!rc && !is_there(tx->db, s->id, k))
		rc = err_set(err, ENOENT,
			     s->snapshots ? "there is no snapshot %" PRId64 ": `log` has their numbers"
					  : "there is no snapshot %" PRId64 " yet: write `snapshot` to ctl to make one",
			     k);
	rc = rc ? rc : is_room(tx, s, err);
	rc = rc ? rc : session_event(tx, s, EVENT_RESTORE, NULL, err);
	if (!rc) {
		s->snapshots++; /* what is now */
		s->restoring = k;
	}
	return rc;
}

/* ---- the disk ---- */

/* What programs have written is on the disk afterwards, as far as the sandbox answers; a disk is consistent anyway. */
static void flush(struct worker *w, struct env *env)
{
	struct err why = ERR_INIT;
	CLEAN_FREE char *job = xasprintf("s%" PRId64 ".flush.%" PRIx64, w->id, (uint64_t)clock_real_ms());
	const char *argv[] = {"/bin/sync", NULL};
	struct env_exec exec = {.job = job, .argv = argv, .timeout_ms = FLUSH_MS};
	int rc = env_run(env, &exec, &w->cancel, 256, NULL, &why);
	if (rc)
		worker_log(w, "the sandbox did not flush its files before the copy%s%s", why.code ? ": " : "",
			   why.text);
}

/* from_save: a save of `from`, or NULL: its disk. The rest of a hibernating one's files is in its memory: it is woken.
 */
static int copy_disk(struct worker *w, const struct session *from, const char *from_save, const char *to_save,
		     struct err *err)
{
	const char *kind = from->sandbox;
	struct sandbox_copy copy = {.paths = w->b->paths,
				    .kind = kind,
				    .from = from->id,
				    .from_save = from_save,
				    .to = w->id,
				    .to_save = to_save,
				    .cancel = &w->cancel};
	enum sandbox_state state = from_save ? SANDBOX_DOWN : sandbox_state(w->b->paths, kind, from->id);
	struct env *env = NULL;
	int rc = state == SANDBOX_HIBERNATED ? worker_up(w, from, err) : 0;
	if (rc)
		return rc;
	if (state != SANDBOX_DOWN && state != SANDBOX_NONE &&
	    !env_open(w->b->paths, kind, from->id, &w->cancel, &env, NULL))
		flush(w, env);
	rc = sandbox_copy(&copy, err);
	env_close(env);
	return rc;
}

/* ---- snapshot ---- */

static int keep_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	int rc = db_run(tx->db, err,
			"INSERT INTO snapshots(session,k,at_ms,entries,head,base_branch,base_commit,unsynced,plan_seq,"
			"plan_size,answer_seq,answer_size,question_size) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)",
			"iiiitttiiiiii", s->id, s->snapshots, tx->now_ms, s->entries, s->head, s->base_branch,
			s->base_commit, s->unsynced, s->plan_seq, s->plan_size, s->answer_seq, s->answer_size,
			s->question_size);
	rc = rc ? rc
		: db_run(tx->db, err,
			 "INSERT INTO snapshot_talks SELECT session,?,agent,talk,since FROM guest_talks WHERE "
			 "session=? "
			 "AND talk<>''",
			 "ii", s->snapshots, s->id);
	CLEAN_FREE char *line =
		xasprintf("snapshot %" PRId64 ": %" PRId64 " entries, %.12s%s", s->snapshots, s->entries,
			  *s->head ? s->head : s->base_commit, s->unsynced ? ", and what is not synced yet" : "");
	rc = rc ? rc : log_add(tx, s, line, err);
	return rc ? rc : tx_event(tx, s, "snapshot", line + strlen("snapshot "), err);
}

/* What is now becomes snapshot number s->snapshots. */
static int keep(struct worker *w, struct err *err)
{
	CLEAN_FREE char *name = xasprintf("%" PRId64, w->s->snapshots);
	if (is_there(w->db, w->id, w->s->snapshots))
		return 0;
	int rc = copy_disk(w, w->s, NULL, name, err);
	if (!rc) {
		killpoint("snapshot.copied");
		rc = worker_commit(w, keep_fn, NULL, err);
	}
	return rc;
}

static int ended_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct err *why = arg;
	int rc = why->code ? tx_error(tx, s->id, "ctl", why, err) : 0;
	rc = rc || !why->code ? rc : log_add(tx, s, why->text, err);
	s->restoring = 0;
	return rc ? rc : session_event(tx, s, EVENT_SAVED, NULL, err);
}

int snapshot_step(struct worker *w, struct err *err)
{
	struct err why = ERR_INIT;
	int rc = keep(w, &why);
	if (rc == -ECANCELED || rc == -ESHUTDOWN)
		return rc;
	if (rc)
		err_prefix(&why, "no snapshot was made");
	return worker_commit(w, ended_fn, &why, err);
}

/* ---- restore ---- */

struct restored {
	const struct paths *paths;
	int64_t k, entries, unsynced, plan_seq, plan_size, answer_seq, answer_size, question_size;
	char *head, *base_branch, *base_commit;
};

static void restored_release(struct restored *r)
{
	free(r->head);
	free(r->base_branch);
	free(r->base_commit);
}
#define CLEAN_RESTORED __attribute__((cleanup(restored_release)))

static int load(struct worker *w, struct restored *out, struct err *err)
{
	struct rows r;
	int rc = db_query(w->db, &r, err,
			  "SELECT entries,unsynced,plan_seq,plan_size,answer_seq,answer_size,question_size,head,"
			  "base_branch,base_commit FROM snapshots WHERE session=? AND k=?",
			  "ii", w->id, w->s->restoring);
	if (!rc && rows_next(&r)) {
		int64_t *numbers[] = {&out->entries,	&out->unsynced,	   &out->plan_seq,     &out->plan_size,
				      &out->answer_seq, &out->answer_size, &out->question_size};
		char **texts[] = {&out->head, &out->base_branch, &out->base_commit};
		for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
			*numbers[i] = row_int(&r, (int)i);
		for (size_t i = 0; i < ARRAY_LEN(texts); i++)
			*texts[i] = xstrdup(row_text(&r, (int)(ARRAY_LEN(numbers) + i)));
		out->k = w->s->restoring;
	}
	int end = rows_end(&r);
	rc = rc ? rc : end;
	return rc || out->k ? rc : err_set(err, ENOENT, "snapshot %" PRId64 " is gone", w->s->restoring);
}

/* The entries behind a snapshot are not told any more; ranges that an earlier restore had undone before it are not
 * touched, later ones lie in this one. */
static int undo(struct tx *tx, const struct session *s, int64_t kept, struct err *err)
{
	int64_t off = db_int(tx->db, s->json_size, "SELECT json_off FROM entries WHERE session=? AND seq=?", "ii",
			     s->id, kept + 1);
	int rc = db_run(tx->db, err, "DELETE FROM undone WHERE session=? AND made>=?", "ii", s->id, kept);
	if (rc || s->entries == kept)
		return rc;
	return db_run(tx->db, err, "INSERT INTO undone(session,kept,made,bytes) VALUES(?,?,?,?)", "iiii", s->id, kept,
		      s->entries, s->json_size - off);
}

/* Agents of the sandbox go on with the conversations that this disk has: those of then, not what they began since. What
 * they have answered stays answered. (Snapshots of earlier versions know only when a conversation began.) */
static int restore_talks(struct tx *tx, const struct session *s, const struct restored *r, struct err *err)
{
	int rc = db_run(tx->db, err, "UPDATE guest_talks SET talk='' WHERE session=? AND since>=?", "ii", s->id,
			r->entries);
	return rc ? rc
		  : db_run(tx->db, err,
			   "INSERT INTO guest_talks(session,agent,talk,since,given) SELECT session,agent,talk,since,0 "
			   "FROM snapshot_talks WHERE session=? AND k=? ON CONFLICT(session,agent) DO UPDATE SET "
			   "talk=excluded.talk, since=excluded.since",
			   "ii", s->id, r->k);
}

static int restored_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	const struct restored *r = arg;
	char line[64];
	CLEAN_FREE char *words =
		xasprintf("restored snapshot %" PRId64 "; what was before is snapshot %" PRId64, r->k, s->snapshots);
	int rc = undo(tx, s, r->entries, err);
	rc = rc ? rc : restore_talks(tx, s, r, err);
	rc = rc ? rc : transcript_notice(tx, s, words, err);
	rc = rc ? rc : message_answer_all(tx, s, err); /* of a run that had failed */
	rc = rc ? rc : log_add(tx, s, words, err);
	rc = rc ? rc : tx_event(tx, s, "restored", words + strlen("restored "), err);
	s->plan_seq = r->plan_seq;
	s->plan_size = r->plan_size;
	s->answer_seq = r->answer_seq;
	s->answer_size = r->answer_size;
	s->question_size = r->question_size;
	s->unsynced = r->unsynced;
	s->context_tokens = s->overflowed = s->compact = 0;
	session_set(&s->head, r->head);
	session_set(&s->base_branch, r->base_branch);
	session_set(&s->base_commit, r->base_commit);
	sandbox_describe(r->paths, s->sandbox, s->id, SANDBOX_DOWN, line);
	session_set(&s->sandbox_state, line);
	s->restoring = 0;
	return rc ? rc : session_event(tx, s, EVENT_SAVED, NULL, err);
}

/* Moves the session's branch to a commit that the checkout has: from where the last sync put it, or not at all. */
static int move_branch(struct worker *w, int64_t id, const char *head, const char *replace, struct err *err)
{
	CLEAN_FREE char *branch = xasprintf("sandbox/%" PRId64, id);
	struct repo_fetch_how how = {.head = head, .branch = branch, .replace = replace, .cancel = &w->cancel};
	enum repo_fetch result;
	struct err left = ERR_INIT;
	int rc = repo_bundle_fetch(w->s->project, &how, &result, &left);
	if (rc)
		return err_set(err, -rc, "%s", left.text);
	if (result == REPO_MOVED || result == REPO_CHECKED_OUT || result == REPO_NOT_DESCENDANT)
		return err_set(err, EBUSY, "%s", left.text);
	return 0;
}

/* The branch goes back with the disk: the next sync would be refused otherwise. Where there was no branch yet it goes
 * to the commit that the work started from. */
static int restore_branch(struct worker *w, struct restored *r, struct err *err)
{
	const char *head = *r->head ? r->head : r->base_commit;
	if (!*w->s->head || !strcmp(w->s->head, head))
		return 0;
	int rc = move_branch(w, w->id, head, w->s->head, err);
	if (!rc && !*r->head) {
		free(r->head);
		r->head = xstrdup(head);
	}
	return rc;
}

static int restore(struct worker *w, struct restored *r, struct err *err)
{
	CLEAN_FREE char *name = xasprintf("%" PRId64, w->s->restoring);
	int rc = load(w, r, err);
	rc = rc ? rc : keep(w, err);
	if (rc)
		return rc;
	worker_env_drop(w);
	gate_sandbox_revoke(w->b, w->id, NULL);
	rc = sandbox_down(w->b->paths, w->s->sandbox, w->id, err);
	rc = rc ? rc : restore_branch(w, r, err);
	killpoint("restore.moved");
	return rc ? rc : copy_disk(w, w->s, name, NULL, err);
}

int restore_step(struct worker *w, struct err *err)
{
	struct err why = ERR_INIT;
	CLEAN_RESTORED struct restored r = {.paths = w->b->paths};
	int rc = restore(w, &r, &why);
	if (rc == -ECANCELED || rc == -ESHUTDOWN)
		return rc;
	killpoint("restore.copied");
	if (rc) {
		err_prefix(&why, "not restored");
		return worker_commit(w, ended_fn, &why, err);
	}
	/* before it is idle: who has waited for that reads them */
	int texts = *r.head ? finish_texts(w, r.base_commit, r.head, err) : 0;
	if (texts == -ECANCELED || texts == -ESHUTDOWN)
		return texts;
	rc = worker_commit(w, restored_fn, &r, texts ? NULL : err);
	return rc ? rc : texts;
}

/* ---- from ---- */

/* What another session's rows give a new one; ?1 is the new session, ?2 the other one, ?3 its newest message. */
static const char *const clone_rows[] = {
	"INSERT INTO entries SELECT ?1,seq,at_ms,kind,run,body,md,md_off,json_off FROM entries WHERE session=?2 AND "
	"?3>=0",
	"INSERT INTO summaries SELECT ?1,made,cut,text FROM summaries WHERE session=?2 AND ?3>=0",
	"INSERT INTO undone SELECT ?1,kept,made,bytes FROM undone WHERE session=?2 AND ?3>=0",
	"INSERT INTO told SELECT ?1,path FROM told WHERE session=?2 AND ?3>=0",
	"INSERT INTO guest_talks SELECT ?1,agent,talk,since,given FROM guest_talks WHERE session=?2 AND ?3>=0",
	"INSERT INTO texts SELECT ?1,kind,body,changed_ms FROM texts WHERE session=?2 AND ?3>=0",
	"INSERT INTO checks SELECT ?1,pos,name,result,seconds,head,output FROM checks WHERE session=?2 AND ?3>=0",
	"INSERT INTO attachments SELECT ?1,n,at_ms,name,media,note,size,file,state,message FROM attachments "
	"WHERE session=?2 AND message BETWEEN 1 AND ?3 AND state IN ('sent','there')",
};

static void clone_record(struct session *s, const struct session *from)
{
	int64_t *const to[] = {
		&s->run,	   &s->entries,	     &s->md_size,	 &s->json_size,	  &s->transcript_ms,
		&s->plan_seq,	   &s->plan_size,    &s->answer_seq,	 &s->answer_size, &s->unsynced,
		&s->question_size, &s->output_bytes, &s->context_tokens, &s->context_off, &s->compact_turns,
		&s->attached};
	const int64_t what[] = {
		from->run,	     from->entries,	 from->md_size,	       from->json_size,	  from->transcript_ms,
		from->plan_seq,	     from->plan_size,	 from->answer_seq,     from->answer_size, from->unsynced,
		from->question_size, from->output_bytes, from->context_tokens, from->context_off, from->compact_turns,
		from->attached};
	for (size_t i = 0; i < ARRAY_LEN(to); i++)
		*to[i] = what[i];
	session_set(&s->head, from->head);
	session_set(&s->base_branch, from->base_branch);
	session_set(&s->base_commit, from->base_commit);
	session_set(&s->start_commit, from->start_commit);
	session_set(&s->uncommitted, from->uncommitted);
	s->checks = from->checks;
	s->diff = from->diff;
	s->changes = from->changes;
	s->commits = from->commits;
}

int snapshot_clone(struct tx *tx, struct session *s, int64_t id, struct err *err)
{
	struct session *from = tx_session(tx, id);
	if (!from)
		return err_set(err, ENOENT, "the session %" PRId64 " has ended", id);
	if (!*from->clone || from->state == STATE_RESTORING)
		return err_set(err, EBUSY, "the sandbox of %s is not ready: wait with `cat sessions/%s/wait/idle`",
			       from->name, from->name);
	/* Messages that the model has not seen stay with that session. */
	int64_t waits = db_int(tx->db, from->accepted + 1,
			       "SELECT min(k) FROM messages WHERE session=? AND state='waiting'", "i", id);
	s->accepted = (waits ? waits : from->accepted + 1) - 1;
	int rc = 0;
	for (size_t i = 0; !rc && i < ARRAY_LEN(clone_rows); i++)
		rc = db_run(tx->db, err, clone_rows[i], "iii", s->id, id, s->accepted);
	rc = rc ? rc
		: db_run(tx->db, err, "UPDATE sessions SET start_commit=? WHERE id=?", "ti", from->start_commit, s->id);
	if (rc)
		return rc;
	clone_record(s, from);
	s->cloned_from = id;
	CLEAN_FREE char *words = xasprintf("this session began as %s (session %" PRId64 ")", from->name, id);
	return transcript_notice(tx, s, words, err);
}

bool snapshot_wanted(struct tx *tx, const struct session *s)
{
	return db_int(tx->db, 0,
		      "SELECT 1 FROM sessions WHERE cloned_from=? AND clone='' AND destroyed_ms IS NULL LIMIT 1", "i",
		      s->id);
}

/* The other session's attached files under this one's name; they never change, so links will do. */
static int link_attached(struct worker *w, struct err *err)
{
	CLEAN_FREE char *from = attach_folder(w->b->paths, w->s->cloned_from), *to = attach_folder(w->b->paths, w->id);
	DIR *d = opendir(from);
	if (!d)
		return 0; /* there are none */
	int rc = dir_make(to, 0700, err);
	for (struct dirent *e; !rc && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		CLEAN_FREE char *old = xasprintf("%s/%s", from, e->d_name), *new = xasprintf("%s/%s", to, e->d_name);
		if (link(old, new) && errno != EEXIST && errno != ENOENT)
			rc = err_sys(err, errno, "cannot link %s", new);
	}
	closedir(d);
	return rc;
}

int snapshot_fill(struct worker *w, char **name, struct err *err)
{
	struct session *from = NULL;
	int rc = session_load(w->db, w->s->cloned_from, &from, err);
	if (rc)
		return rc;
	const char *slash = from ? strrchr(from->clone, '/') : NULL;
	if (!slash)
		return err_set(err, ENOENT, "session %" PRId64 ", which this one begins as, is gone",
			       w->s->cloned_from);
	*name = xstrdup(slash + 1);
	if (sandbox_state(w->b->paths, w->s->sandbox, w->id) == SANDBOX_NONE) {
		if (from->destroyed_ms)
			rc = err_set(err, ENOENT, "%s has ended before its disk was copied; start anew without `from`",
				     from->name);
		rc = rc ? rc : copy_disk(w, from, NULL, NULL, err);
		killpoint("clone.copied");
	}
	session_free(from);
	rc = rc ? rc : link_attached(w, err);
	return rc || !*w->s->head ? rc : move_branch(w, w->id, w->s->head, NULL, err);
}
