/* A session's sandbox: made with the project's clone in it, taken up again, ended. Worker threads. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "backend/git/repo.h"
#include "backend/parse/redact.h"
#include "bundle.h"
#include "claude.h"
#include "engine.h"
#include "env_git.h"
#include "gate_link.h"
#include "guest.h"
#include "killpoint.h"
#include "rest.h"
#include "snapshot.h"
#include "template.h"
#include "template_plan.h"
#include "transcript.h"

#define TRIES	   4   /* of waking a sandbox that goes away again */
#define DEAD_MS	   100 /* the kernel is done with a killed process by then */
#define SETUP_MS   (2 * 60 * 60 * 1000)
#define TAIL_LINES 50		/* of what the setup says, in the log: the last */
#define IMAGE_LINE "base image" /* how sandbox_up()'s progress begins while the image is made */

/* ---- the sandbox's own state, for the `sandbox` file ---- */

static int state_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	if (strcmp(s->sandbox_state, arg)) {
		session_set(&s->sandbox_state, arg);
		s->changed_ms = tx->now_ms;
	}
	return 0;
}

static int show_state(struct worker *w, enum sandbox_state state, struct err *err)
{
	char line[64];
	sandbox_describe(w->b->paths, w->s->sandbox, w->id, state, line);
	/* w->s may be older than what the thread that looks at sandboxes has found meanwhile */
	bool same = db_int(w->db, 0, "SELECT 1 FROM sessions WHERE id=? AND sandbox_state=?", "it", w->id, line);
	return same ? 0 : worker_commit(w, state_fn, line, err);
}

static void progress(void *arg, const char *line)
{
	struct worker *w = arg;
	if (w->s->state == STATE_PREPARING) {
		if (!strncmp(line, IMAGE_LINE, strlen(IMAGE_LINE)))
			worker_detail(w, "waiting: %s", line);
		else
			worker_detail(w, "starting");
	}
	worker_log(w, "%s", line);
}

int worker_up(struct worker *w, const struct session *s, struct err *err)
{
	struct config *c = backend_config(w->b);
	CLEAN_FREE char *net = gate_sandbox_socket(w->b, s->id);
	CLEAN_FREE char *template = template_folder(w->b->paths, w->db, s->id);
	struct sandbox_spec spec = {.paths = w->b->paths,
				    .kind = s->sandbox,
				    .id = s->id,
				    .name = s->name,
				    .size = s->size,
				    .template = template,
				    .boot_timeout_ms = (int)(config_int(c, CONFIG_BOOT_TIMEOUT) * 1000),
				    .disk_mib = (int)config_int(c, CONFIG_DISK),
				    .cancel = &w->cancel,
				    .net = net,
				    .progress = progress,
				    .arg = w};
	config_put(c);
	int rc = sandbox_possible(s->sandbox, err);
	return rc ? rc : sandbox_up(&spec, err);
}

static int start(struct worker *w, struct err *err)
{
	int rc = worker_up(w, w->s, err);
	return rc ? rc : show_state(w, SANDBOX_RUNNING, err);
}

/* ---- the clone ---- */

char *worker_clone_path(const struct worker *w, const struct env *env)
{
	const char *slash = strrchr(w->s->project, '/');
	return xasprintf("%s/%s", env_home(env), slash && slash[1] ? slash + 1 : "project");
}

/* On the user's own machine there is no clone: a link to the project's directory stands where it would. */
static bool on_host(const struct worker *w)
{
	return !strcmp(w->s->sandbox, "host");
}

static int link_project(struct worker *w, const char *path, struct err *err)
{
	CLEAN_FREE char *job = xasprintf("s%" PRId64 ".link.%" PRIx64, w->id, (uint64_t)clock_real_ms());
	CLEAN_BUF struct buf words = BUF_INIT;
	const char *const argv[] = {"ln", "-sfn", "--", w->s->project, path, NULL};
	struct env_exec exec = {.job = job, .argv = argv, .timeout_ms = 60000};
	int rc = env_run(w->env, &exec, &w->cancel, 1000, &words, err);
	return rc > 0 ? err_set(err, EIO, "cannot link %s: %s", w->s->project, buf_str(&words)) : rc;
}

int worker_clone(struct worker *w, struct clone_how *how, int (*bring)(const struct clone_how *how, struct err *err),
		 struct err *err)
{
	struct repo_head h = {0};
	CLEAN_FREE char *tmp = xasprintf("%s/tmp", w->b->paths->state);
	int rc = repo_head(w->s->project, &h, err);
	if (rc)
		return rc;
	how->host_repo = w->s->project;
	how->name = h.name;
	how->email = h.email;
	how->branch = strcmp(w->s->base_branch, "HEAD") ? w->s->base_branch : NULL;
	how->tmp_dir = tmp;
	how->durable = !strcmp(w->s->sandbox, "vm");
	how->cancel = &w->cancel;
	how->halt = &w->halt;
	rc = bring(how, err);
	repo_head_release(&h);
	return rc;
}

/* From the template it is there already, perhaps of another commit; or that has none. */
static int move_or_make(const struct clone_how *how, struct err *err)
{
	int rc = clone_move(how, err);
	return rc == -ENOENT ? clone_into(how, err) : rc;
}

static int make_clone(struct worker *w, const char *path, const char *commit, struct err *err)
{
	if (on_host(w))
		return link_project(w, path, err);
	CLEAN_FREE char *prefix = xasprintf("s%" PRId64 ".clone", w->id);
	struct clone_how how = {
		.env = w->env, .commit = commit, .clone = path, .prefix = prefix, .progress = progress, .arg = w};
	bool used = db_int(w->db, 0, "SELECT 1 FROM template_uses WHERE session=?", "i", w->id);
	return worker_clone(w, &how, used ? move_or_make : clone_into, err);
}

/* ---- the setup, where no template can be made ---- */

static void log_tail(struct worker *w, const struct buf *raw)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_BUF struct buf clear = BUF_INIT;
	utf8_clean(&text, buf_str(raw), raw->n);
	redact(&clear, buf_str(&text), text.n, 0, text.n);
	size_t at = clear.n, lines = 0;
	while (at && (lines += clear.p[at - 1] == '\n') <= TAIL_LINES)
		at--;
	char *rest = clear.n ? clear.p + at : NULL;
	for (char *line; (line = strsep(&rest, "\n"));)
		if (*line)
			worker_log(w, ".agents/setup: %.500s", line);
}

/* Whether the project's script is run in the sandbox itself, when that begins. What lockfiles ask for is not: that
 * machine is somebody's, and not ours to install on. */
static bool sets_up(struct worker *w)
{
	struct plan plan;
	return !sandbox_can_save(w->s->sandbox) && !plan_find(w->s->project, w->s->base_commit, &plan, NULL) &&
	       *plan.setup;
}

/* The same job after a restart of the daemon; a failed one is run anew by `retry`. */
static int set_up(struct worker *w, const char *clone, struct err *err)
{
	static const char script[] = "cd -- \"$1\" || exit\n"
				     "if [ -x .agents/setup ]; then exec ./.agents/setup; fi\n"
				     "exec bash .agents/setup\n";
	const char *const args[] = {clone, NULL};
	CLEAN_FREE char *prefix = xasprintf("s%" PRId64, w->id);
	CLEAN_BUF struct buf out = BUF_INIT;
	const struct env_git g = {.env = w->env,
				  .prefix = prefix,
				  .step = "setup",
				  .join = true,
				  .script = script,
				  .args = args,
				  .timeout_ms = SETUP_MS,
				  .cancel = &w->cancel,
				  .halt = &w->halt};
	if (on_host(w) || !sets_up(w))
		return 0;
	if (w->s->state == STATE_PREPARING)
		worker_detail(w, "installing");
	worker_log(w, ".agents/setup");
	int rc = env_git(&g, &out, err);
	log_tail(w, &out);
	if (rc == -ETIMEDOUT)
		return err_prefix(err, "setting the project up failed");
	return rc > 0 ? err_set(err, EIO,
				"setting the project up failed: .agents/setup ended with exit code %d: log has "
				"its last lines",
				rc)
		      : rc;
}

/* Has it been woken by somebody who did not come to an end with it: killed, or failed? */
static bool is_half_awake(struct worker *w)
{
	return db_int(w->db, 0, "SELECT 1 FROM idle WHERE session=? AND waking=1", "i", w->id);
}

static bool has_no_clone(struct worker *w)
{
	struct env_stat st = {0};
	int rc = env_stat(w->env, w->s->clone, &st, NULL);
	free(st.real);
	return rc == -ENOENT;
}

/* A sandbox whose disk is gone comes back with what was synced last. */
static int renew(struct worker *w, struct err *err)
{
	const char *commit = *w->s->head ? w->s->head : w->s->base_commit;
	if (on_host(w))
		return link_project(w, w->s->clone, err);
	worker_log(w, "the sandbox's disk was lost, or its clone; it starts from %.12s, the last synced commit",
		   commit);
	int rc = guest_forget(w, err);
	rc = rc ? rc : make_clone(w, w->s->clone, commit, err);
	return rc ? rc : set_up(w, w->s->clone, err);
}

/* What needs no model of its own and no network works without the gateway. */
static void open_way(struct worker *w)
{
	struct err why = ERR_INIT;
	int rc = gate_sandbox(w, &why);
	if (rc && rc != -ECANCELED)
		worker_log(w, "the sandbox has no way out for now: %s", why.text);
}

static int wake(struct worker *w, struct err *err)
{
	enum sandbox_state state = sandbox_state(w->b->paths, w->s->sandbox, w->id);
	bool woken = state != SANDBOX_RUNNING && *w->s->clone, up = state == SANDBOX_RUNNING || state == SANDBOX_PAUSED;
	bool half = is_half_awake(w);
	int rc = woken ? rest_waking(w, state, err) : 0;
	if (!rc && !up) {
		if (state != SANDBOX_HIBERNATED)
			worker_log(w, "the sandbox is down; starting it");
		rc = start(w, err);
	}
	/* a connection lets a paused one go on */
	rc = rc ? rc : env_open(w->b->paths, w->s->sandbox, w->id, &w->cancel, &w->env, err);
	if (rc == -ENOTCONN && up) { /* what holds it lives, but the tool daemon behind that does not */
		worker_log(w, "the sandbox does not let us in; starting it");
		rc = *w->s->clone ? rest_waking(w, SANDBOX_DOWN, err) : 0;
		rc = rc ? rc : start(w, err);
		rc = rc ? rc : env_open(w->b->paths, w->s->sandbox, w->id, &w->cancel, &w->env, err);
	}
	if (!rc && up)
		rc = show_state(w, SANDBOX_RUNNING, err); /* it was thought to be otherwise, maybe */
	if (!rc)
		open_way(w);
	if (!rc && *w->s->clone && (state == SANDBOX_NONE || (half && has_no_clone(w))))
		rc = renew(w, err);
	return rc ? rc : rest_awake(w, err);
}

int worker_env(struct worker *w, struct err *err)
{
	int rc = 0;
	if (w->env && !env_lost(w->env))
		return 0;
	for (int i = 0; i < TRIES; i++) {
		worker_env_drop(w);
		rc = wake(w, err);
		/* one that dies while it is being made ready is started again, once it is seen to be dead */
		if (rc != -ENOTCONN || worker_pause(w, DEAD_MS))
			break;
	}
	if (rc) /* what is not ready is made ready by whoever comes next */
		worker_env_drop(w);
	return rc;
}

void worker_env_drop(struct worker *w)
{
	env_close(w->env);
	w->env = NULL;
}

/* ---- steps ---- */

/* What the checkout has and the sandbox has not, a line each. */
static void not_carried(struct worker *w, struct buf *out)
{
	struct repo_head h = {0};
	if (on_host(w)) {
		buf_addf(out,
			 "tools run on this machine as you, in %s itself, without any isolation; pushes and ssh to "
			 "other "
			 "machines are asked for (approvals)\n",
			 w->s->project);
		if (sets_up(w))
			buf_adds(out, ".agents/setup is not run: this is your own directory\n");
		return;
	}
	if (!repo_head(w->s->project, &h, NULL) && h.uncommitted)
		buf_addf(
			out,
			"%zu changed or untracked file%s of the checkout are not committed and so not in the sandbox\n",
			h.uncommitted, h.uncommitted == 1 ? "" : "s");
	repo_head_release(&h);
	repo_not_carried(w->s->project, w->s->base_commit, out, NULL);
}

struct ready {
	char *clone;
	struct buf lacks;
};

static int prepared_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	struct ready *r = arg;
	int rc = 0;
	session_set(&s->clone, r->clone);
	CLEAN_FREE char *copy = xstrdup(buf_str(&r->lacks));
	char *rest = copy;
	for (char *line; !rc && (line = strsep(&rest, "\n"));)
		if (*line)
			rc = log_add(tx, s, line, err);
	rc = rc ? rc : log_add(tx, s, "the sandbox is ready", err);
	return rc ? rc : session_event(tx, s, EVENT_PREPARED, NULL, err);
}

static int start_as_clone(struct worker *w, char **clone, struct err *err)
{
	CLEAN_FREE char *name = NULL;
	worker_detail(w, "cloning");
	int rc = template_share(w, err); /* its disk lies on the same one */
	rc = rc ? rc : snapshot_fill(w, &name, err);
	worker_detail(w, "starting");
	rc = rc ? rc : start(w, err);
	rc = rc ? rc : env_open(w->b->paths, w->s->sandbox, w->id, &w->cancel, &w->env, err);
	if (rc)
		return rc;
	open_way(w);
	*clone = xasprintf("%s/%s", env_home(w->env), name);
	return 0;
}

/* A session that begins as another one has all of it: disk, branch and transcript. */
static int prepare_clone(struct worker *w, struct err *err)
{
	struct ready r = {0};
	worker_env_drop(w);
	int rc = start_as_clone(w, &r.clone, err);
	rc = rc ? rc : worker_commit(w, prepared_fn, &r, err);
	free(r.clone);
	if (rc)
		worker_env_drop(w);
	return rc && atomic_load(&w->cancel) ? -ECANCELED : rc;
}

int prepare_step(struct worker *w, struct err *err)
{
	int64_t template;
	if (w->s->cloned_from)
		return prepare_clone(w, err);
	int rc = *w->s->clone ? 0 : template_take(w, &template, err);
	if (!rc) {
		worker_detail(w, "starting");
		rc = start(w, err);
	}
	if (w->env && env_lost(w->env))
		worker_env_drop(w);
	if (!rc && !w->env)
		rc = env_open(w->b->paths, w->s->sandbox, w->id, &w->cancel, &w->env, err);
	if (!rc) {
		open_way(w);
		worker_detail(w, "cloning");
		CLEAN_FREE char *path = worker_clone_path(w, w->env);
		killpoint("prepare.clone");
		rc = make_clone(w, path, w->s->base_commit, err);
		rc = rc ? rc : set_up(w, path, err);
		if (!rc) {
			struct ready r = {.clone = path};
			not_carried(w, &r.lacks);
			rc = worker_commit(w, prepared_fn, &r, err);
			buf_release(&r.lacks);
			return rc;
		}
	}
	worker_env_drop(w);
	if (atomic_load(&w->cancel))
		return -ECANCELED;
	return rc;
}

static int ended_tx(struct tx *tx, void *arg, struct err *err)
{
	const struct worker *w = arg;
	int rc = template_unuse(tx, w->id, err);
	return rc ? rc
		  : db_run(tx->db, err,
			   "UPDATE sessions SET state='idle', sandbox_state='down' WHERE id=? AND destroyed_ms IS NOT "
			   "NULL",
			   "i", w->id);
}

int destroy_step(struct worker *w, struct err *err)
{
	worker_env_drop(w);
	claudes_drop(w->b->claudes, w->id);
	for (;;) {
		struct err why = ERR_INIT;
		int rc = sandbox_destroy(w->b->paths, w->s->sandbox, w->id, &why);
		if (!rc)
			break;
		notes_error(w->b->notes, 0, "sessions", &why, clock_real_ms());
		if (worker_sleep(w, clock_real_ms() + 10000) && atomic_load(&w->halt))
			return -ECANCELED; /* the next start goes on with it */
	}
	attach_forget(w);
	int rc = store_do(w->b->store, ended_tx, w, err);
	if (!rc)
		template_sweep(w->b);
	return rc;
}
