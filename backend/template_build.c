/* Builds a template: a sandbox of its own, the project's clone in it, the setup, a clean shutdown, its disk saved. One
 * worker thread. Each step is committed before it begins and can be repeated, so that a daemon that was killed goes on
 * where it was; what cannot be gone on with is begun anew. Must never save a sandbox whose setup did not end well. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "backend/git/repo.h"
#include "backend/parse/redact.h"
#include "bundle.h"
#include "engine.h"
#include "gate_link.h"
#include "killpoint.h"
#include "template_private.h"

#define SETUP_MS   (2 * 60 * 60 * 1000) /* a large project under emulation takes long */
#define TIDY_MS	   (10 * 60 * 1000)
#define TRIES	   3 /* for a sandbox that dies by itself, or is cut off while it shuts down */
#define LOG_MAX	   (4 << 20)
#define PIECE_MAX  (256 << 10)
#define TAIL_LINES 20
#define FULL_BYTES (1 << 20)
#define IMAGE_LINE "base image" /* how sandbox_up()'s progress begins while the image is made */

struct build {
	struct worker *w;
	const struct plan *plan;
	struct template *t;
	struct session *as; /* what the sandbox is to the gateway: a session of its own */
	struct env *env;
	char *dir;	 /* where it will be */
	struct buf tail; /* last lines of the setup's output */
	bool refused;	 /* the setup itself has failed: the sandbox is sound */
};

/* Said in both logs. */
__attribute__((format(printf, 2, 3))) static void tell(struct build *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *line = xvasprintf(fmt, ap);
	va_end(ap);
	template_log(b->w, b->t, line);
	worker_log(b->w, "template: %s", line);
}

static void progress(void *arg, const char *line)
{
	struct build *b = arg;
	if (!strncmp(line, IMAGE_LINE, strlen(IMAGE_LINE)))
		worker_detail(b->w, "waiting: %s", line);
	else if (!strcmp(b->t->step, "starting"))
		worker_detail(b->w, "starting");
	tell(b, "%s", line);
}

static int enter(struct build *b, const char *step, struct err *err)
{
	int rc = template_step(b->w, b->t, step, err);
	return rc ? rc : worker_detail(b->w, "%s", step);
}

/* ---- the sandbox ---- */

static void drop_env(struct build *b)
{
	env_close(b->env);
	b->env = NULL;
}

static int come_up(struct build *b, struct err *err)
{
	struct worker *w = b->w;
	struct config *c = backend_config(w->b);
	CLEAN_FREE char *net = gate_sandbox_socket(w->b, b->t->sandbox);
	CLEAN_FREE char *parent = b->t->parent ? template_dir(w->b->paths, w->db, b->t->parent) : NULL;
	struct sandbox_spec spec = {.paths = w->b->paths,
				    .kind = w->s->sandbox,
				    .id = b->t->sandbox,
				    .name = "template",
				    .size = "large",
				    .template = parent,
				    .boot_timeout_ms = (int)(config_int(c, CONFIG_BOOT_TIMEOUT) * 1000),
				    .disk_mib = (int)config_int(c, CONFIG_DISK),
				    .cancel = &w->cancel,
				    .net = net,
				    .progress = progress,
				    .arg = b};
	config_put(c);
	drop_env(b);
	int rc = sandbox_possible(w->s->sandbox, err);
	rc = rc ? rc : sandbox_up(&spec, err);
	rc = rc ? rc : env_open(w->b->paths, w->s->sandbox, b->t->sandbox, &w->cancel, &b->env, err);
	if (rc)
		return rc;
	struct err why = ERR_INIT;
	if (gate_sandbox_of(w->b, b->as, b->env, &w->cancel, &why) && why.code != ECANCELED)
		tell(b, "no way out for now: %s", why.text);
	return 0;
}

/* ---- the clone ---- */

static int bring(struct build *b, const char *path, struct err *err)
{
	CLEAN_FREE char *prefix = xasprintf("t%" PRId64 ".clone", b->t->id);
	struct clone_how how = {.env = b->env,
				.commit = b->w->s->base_commit,
				.clone = path,
				.prefix = prefix,
				.progress = progress,
				.arg = b};
	return worker_clone(b->w, &how, b->t->parent ? clone_move : clone_into, err);
}

/* ---- the setup ---- */

static void job_name(const struct build *b, int64_t n, char out[65])
{
	snprintf(out, 65, "template.%" PRId64 ".%" PRId64, b->t->id, n);
}

/* Keeps the last lines. */
static void keep_tail(struct build *b, const char *text)
{
	buf_adds(&b->tail, text);
	size_t lines = 0, at = b->tail.n;
	while (at && (lines += b->tail.p[at - 1] == '\n') <= TAIL_LINES)
		at--;
	buf_drop(&b->tail, at);
}

/* Brings what the job has said since `seen` into the log; whole lines only, unless it is its last word. */
static int collect(struct build *b, const char *job, int64_t n, uint64_t until, bool last, struct err *err)
{
	uint64_t seen = (uint64_t)b->t->seen;
	while (seen < until) {
		CLEAN_BUF struct buf raw = BUF_INIT;
		CLEAN_BUF struct buf clear = BUF_INIT;
		CLEAN_BUF struct buf text = BUF_INIT;
		int rc = env_output(b->env, job, seen, PIECE_MAX, &raw, err);
		if (rc)
			return rc;
		size_t whole = raw.n;
		while (!last && whole && raw.p[whole - 1] != '\n' && raw.n < PIECE_MAX)
			whole--;
		if (!whole)
			return 0;
		utf8_clean(&clear, raw.p, whole);
		redact(&text, buf_str(&clear), clear.n, 0, clear.n);
		if (buf_ends(&text, "\n"))
			buf_cut(&text, text.n - 1);
		for (char *p = text.p; p && *p; p++) /* progress bars write over their own line */
			if (*p == '\r')
				*p = '\n';
		CLEAN_FREE char *copy = xasprintf("%s\n", buf_str(&text));
		keep_tail(b, copy);
		seen += whole;
		if (seen > LOG_MAX)
			buf_reset(&text);
		rc = template_output(b->w, b->t, &text, n, (int64_t)seen, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* What a program says of a full disk finds no room there either. */
static bool is_full(const char *path)
{
	struct statvfs fs;
	return !statvfs(path, &fs) && (uint64_t)fs.f_bavail * fs.f_frsize < FULL_BYTES;
}

static int setup_failed(struct build *b, const struct plan_step *step, const struct env_job *job, struct err *err)
{
	CLEAN_FREE char *copy = xstrdup(buf_str(&b->tail));
	const char *last = "";
	char *rest = copy;
	for (char *line; (line = strsep(&rest, "\n"));)
		if (*line) {
			worker_log(b->w, "template: %s: %s", step->name, line);
			last = line;
		}
	b->refused = true;
	if (job->timed_out)
		return err_set(err, ETIMEDOUT, "setting the project up failed: %s did not end within %d minutes",
			       step->name, SETUP_MS / 60000);
	err_set(err, EIO, "setting the project up failed: %s ended with exit code %d%s%.300s", step->name,
		job->exit_code, *last ? ": " : "", last);
	const char *state = b->w->b->paths->state;
	if (is_full(state))
		return err_set(err, ENOSPC, "%s; the disk of %s is full: free some space", err->text, state);
	if (job->full || strstr(buf_str(&b->tail), strerror(ENOSPC)))
		return err_set(err, ENOSPC, "%s; the sandbox's own disk is full: its setup has to need less of it",
			       err->text);
	return -EIO;
}

static int run_step(struct build *b, size_t n, const char *clone, struct err *err)
{
	const struct plan_step *step = b->plan->steps[n];
	const char *argv[] = {"/bin/bash", "-c", step->script, step->name, NULL};
	char job[65];
	struct env_job state = {0};
	job_name(b, (int64_t)n, job);
	struct env_exec exec = {.job = job, .argv = argv, .cwd = clone, .timeout_ms = SETUP_MS};
	buf_reset(&b->tail);
	int rc = env_poll(b->env, job, 0, 0, &state, err);
	if (!rc && state.state == ENV_JOB_LOST) /* half of it may have been done, of which nobody can say what */
		return err_set(err, ECONNRESET, "the sandbox was restarted while %s ran", step->name);
	if (!rc && state.state == ENV_JOB_UNKNOWN) {
		b->t->seen = 0;
		tell(b, "%s", step->name);
	}
	rc = rc ? rc : env_start(b->env, &exec, err);
	for (uint64_t since = 0; !rc;) {
		rc = env_poll(b->env, job, since, 1000, &state, err);
		bool ended = !rc && state.state != ENV_JOB_RUNNING;
		if (!rc && state.state == ENV_JOB_LOST)
			rc = err_set(err, ECONNRESET, "the sandbox was restarted while %s ran", step->name);
		rc = rc ? rc : collect(b, job, (int64_t)n, state.output, ended, err);
		since = state.output;
		if (!rc && atomic_load(&b->w->cancel))
			rc = -ECANCELED;
		if (ended)
			break;
	}
	return rc ? rc : state.exit_code || state.timed_out || state.killed ? setup_failed(b, step, &state, err) : 0;
}

static int install(struct build *b, const char *clone, struct err *err)
{
	int64_t from = b->t->step_no;
	int rc = 0;
	for (size_t n = (size_t)from; !rc && n < b->plan->n; n++) {
		CLEAN_BUF struct buf none = BUF_INIT;
		rc = run_step(b, n, clone, err);
		if (!rc) /* a repeat goes on with the next */
			rc = template_output(b->w, b->t, &none, (int64_t)n + 1, 0, err);
	}
	return rc;
}

/* ---- saving ---- */

/* Nothing of the setup's jobs goes into the template, and freed blocks go back to the host. */
static int tidy(struct build *b, struct err *err)
{
	static const char script[] =
		"sync; if command -v fstrim >/dev/null; then sudo -n fstrim / || :; fi; sync -f .\n";
	const char *argv[] = {"/bin/bash", "-c", !strcmp(b->w->s->sandbox, "vm") ? script : "sync -f .", NULL};
	char job[65];
	int rc = 0;
	for (size_t n = 0; !rc && n < b->plan->n; n++) {
		job_name(b, (int64_t)n, job);
		rc = env_ack(b->env, job, false, NULL, err);
	}
	CLEAN_FREE char *tidying = xasprintf("template.%" PRId64 ".tidy", b->t->id);
	struct env_exec exec = {.job = tidying, .argv = argv, .timeout_ms = TIDY_MS, .halt = &b->w->halt};
	CLEAN_BUF struct buf out = BUF_INIT;
	rc = rc ? rc : env_run(b->env, &exec, &b->w->cancel, 4096, &out, err);
	return rc > 0 ? err_set(err, EIO, "the sandbox's file system cannot be synced: %.200s", buf_str(&out)) : rc;
}

static int shut_down(struct build *b, struct err *err)
{
	int rc = b->env ? 0 : come_up(b, err);
	rc = rc ? rc : tidy(b, err);
	drop_env(b);
	if (rc)
		return rc;
	gate_sandbox_revoke(b->w->b, b->t->sandbox, NULL);
	rc = sandbox_down(b->w->b->paths, b->w->s->sandbox, b->t->sandbox, err);
	killpoint("template.down");
	return rc;
}

static int save(struct build *b, struct err *err)
{
	const struct paths *paths = b->w->b->paths;
	const char *kind = b->w->s->sandbox;
	bool alone = false;
	int rc = -EAGAIN;
	for (int tries = 0; rc == -EAGAIN && tries < TRIES; tries++) {
		rc = sandbox_state(paths, kind, b->t->sandbox) == SANDBOX_RUNNING ? shut_down(b, err) : 0;
		rc = rc ? rc : template_place(paths, b->w->db, err);
		rc = rc ? rc : sandbox_save(paths, kind, b->t->sandbox, b->dir, &alone, err);
		if (rc == -EAGAIN) { /* it was cut off: once more, from what is on its disk */
			tell(b, "%s", err->text);
			rc = come_up(b, err);
			rc = rc ? rc : -EAGAIN;
		}
	}
	killpoint("template.saved");
	rc = rc ? rc : sandbox_destroy(paths, kind, b->t->sandbox, err);
	if (rc)
		return rc;
	uint64_t bytes = 0;
	dir_bytes(b->dir, &bytes);
	rc = template_ready(b->w, b->t, alone, (int64_t)bytes, err);
	killpoint("template.ready");
	return rc;
}

/* ---- all of it ---- */

static int once(struct build *b, struct err *err)
{
	if (!strcmp(b->t->step, "saving") &&
	    sandbox_state(b->w->b->paths, b->w->s->sandbox, b->t->sandbox) != SANDBOX_RUNNING)
		return save(b, err);
	worker_detail(b->w, "starting");
	int rc = come_up(b, err);
	if (rc)
		return rc;
	killpoint("template.started");
	CLEAN_FREE char *path = worker_clone_path(b->w, b->env);
	if (!strcmp(b->t->step, "starting"))
		rc = enter(b, "cloning", err);
	if (!rc && !strcmp(b->t->step, "cloning")) {
		rc = bring(b, path, err);
		killpoint("template.cloned");
		rc = rc ? rc : enter(b, "installing", err);
	}
	if (!rc && !strcmp(b->t->step, "installing")) {
		worker_detail(b->w, "installing");
		rc = install(b, path, err);
		killpoint("template.installed");
		rc = rc ? rc : enter(b, "saving", err);
	}
	if (rc)
		return rc;
	worker_detail(b->w, "saving");
	return save(b, err);
}

/* A VM that finds no room for its disk stands still and answers nothing; who wants it up is told why. */
static int ask_why(struct build *b, int rc, struct err *err)
{
	struct err why = ERR_INIT;
	if ((rc != -ENOTCONN && rc != -ETIMEDOUT && rc != -ENOSPC) || come_up(b, &why) != -ENOSPC)
		return rc;
	return err_set(err, ENOSPC, "setting the project up failed: the disk of %s is full: free some space",
		       b->w->b->paths->state);
}

/* What a failure calls for: 0 to begin anew. */
static int mend(struct build *b, int rc, int *deaths, struct err *err)
{
	const char *kind = b->w->s->sandbox;
	struct err more = ERR_INIT;
	bool lives = sandbox_state(b->w->b->paths, kind, b->t->sandbox) == SANDBOX_RUNNING;
	rc = lives && !b->refused ? ask_why(b, rc, err) : rc;
	bool died = !b->refused && (!lives || rc == -ECONNRESET || rc == -ENOTCONN);
	drop_env(b);
	gate_sandbox_revoke(b->w->b, b->t->sandbox, NULL);
	if (sandbox_destroy(b->w->b->paths, kind, b->t->sandbox, &more)) {
		*err = more;
		return -more.code;
	}
	bool again = died && rc != -ENOSPC && rc != -ENOENT && ++*deaths < TRIES;
	if (!again && !b->t->parent)
		return rc;
	tell(b, "%s; beginning anew from %s", err->text,
	     again && b->t->parent ? "the same template" : "the base image");
	return template_restart(b->w, b->t, again && b->t->parent, err);
}

int template_build(struct worker *w, const struct plan *plan, struct template *t, struct err *err)
{
	struct build b = {
		.w = w, .plan = plan, .t = t, .as = session_new(), .dir = template_dir(w->b->paths, w->db, t->id)};
	b.as->id = t->sandbox;
	session_set(&b.as->project, w->s->project);
	session_set(&b.as->setting[SETTING_NETWORK], "registries");
	killpoint("template.begun");
	int rc = 0, deaths = 0;
	worker_log(w, "template: building %s%s", t->name, t->parent ? " from that of an earlier commit" : "");
	for (;;) {
		b.refused = false;
		rc = once(&b, err);
		if (rc && (atomic_load(&w->cancel) || rc == -ESHUTDOWN))
			rc = -ECANCELED;
		if (!rc || rc == -ECANCELED)
			break;
		if ((rc = mend(&b, rc, &deaths, err))) {
			template_failed(w, t, err);
			break;
		}
	}
	drop_env(&b);
	session_free(b.as);
	free(b.dir);
	buf_release(&b.tail);
	return rc;
}
