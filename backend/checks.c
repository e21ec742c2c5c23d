/* Runs a project's checks as jobs in the sandbox. Worker threads. A job's id is made from what is committed, so a
 * restarted daemon joins the check that runs and collects those that ended. */
#include "checks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "backend/git/repo.h"
#include "backend/parse/redact.h"

#define JOB_TEXT 65
#define END_MS	 2000 /* for a killed check to be gone */

const char *const check_words[] = {[CHECK_PASS] = "pass", [CHECK_FAIL] = "fail", [CHECK_ERROR] = "error"};

int checks_load(const char *host_repo, const char *commit, struct project *out, struct err *err)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	*out = (struct project){0};
	int rc = repo_file(host_repo, commit, PROJECT_FILE, PROJECT_FILE_MAX, &text, &why);
	if (rc == -ENOENT && repo_has(host_repo, commit, NULL) == 1)
		return 0;
	if (rc)
		return err_set(err, rc == -EFBIG ? EINVAL : -rc, "%s", why.text);
	return project_parse(buf_str(&text), text.n, out, err);
}

static void job_name(const struct checks_how *how, size_t i, char out[JOB_TEXT])
{
	snprintf(out, JOB_TEXT, "%.56s-%u", how->prefix, (unsigned)(i + 1) % 1000);
}

static bool on(const atomic_bool *flag)
{
	return flag && atomic_load(flag);
}

/* The running check ends, also one whose start the sandbox has not answered; unless only the daemon ends. */
static int stopped(const struct checks_how *how, const char *job, struct err *err)
{
	if (!on(how->halt) && (env_lost(how->env) || env_kill(how->env, job, NULL)))
		env_abandon(how->env, job, NULL);
	return err_set(err, ECANCELED, "the checks were stopped");
}

static int wait_for(const struct checks_how *how, const char *job, int timeout_ms, struct env_job *state,
		    struct err *err)
{
	int rc = env_wait(how->env, job, timeout_ms, how->cancel, state, err);
	if (rc != -ECANCELED)
		return rc;
	return stopped(how, job, err);
}

/* Why a check could not tell, or NULL if its exit code counts. */
static char *trouble(const struct env_job *job, int timeout_ms)
{
	if (job->state == ENV_JOB_LOST)
		return xstrdup("the sandbox went down while it ran");
	if (job->state != ENV_JOB_EXITED)
		return xstrdup("the sandbox does not know it any more");
	if (job->timed_out)
		return xasprintf("killed: it did not end within %d s", timeout_ms / 1000);
	if (job->overflow)
		return xstrdup("killed: its output grew too large");
	if (job->full && job->exit_code)
		return xstrdup(ENV_FULL);
	return job->killed ? xstrdup("killed") : NULL;
}

/* The output's end, from a line's begin. */
static int keep_output(const struct checks_how *how, const char *job, uint64_t size, struct buf *out, struct err *err)
{
	CLEAN_BUF struct buf raw = BUF_INIT;
	uint64_t from = size > CHECK_OUTPUT_MAX + REDACT_CONTEXT ? size - CHECK_OUTPUT_MAX - REDACT_CONTEXT : 0;
	int rc = env_output(how->env, job, from, CHECK_OUTPUT_MAX + REDACT_CONTEXT, &raw, err);
	if (rc)
		return rc;
	bool cut = raw.n > CHECK_OUTPUT_MAX;
	size_t begin = cut ? raw.n - CHECK_OUTPUT_MAX : 0, at = begin;
	while (cut && at < raw.n && raw.p[at] != '\n')
		at++;
	if (cut) {
		at = at < raw.n ? at + 1 : begin; /* one endless line is kept as it is */
		buf_addf(out, "(only the end: %zu of %llu bytes)\n", raw.n - at, (unsigned long long)size);
	}
	CLEAN_BUF struct buf clear = BUF_INIT;
	redact(&clear, raw.p, raw.n, at, raw.n);
	utf8_clean(out, buf_str(&clear), clear.n);
	if (out->n && !buf_ends(out, "\n"))
		buf_addc(out, '\n');
	return 0;
}

static int run_one(const struct checks_how *how, size_t i, struct check_result *r, struct err *err)
{
	const struct project_check *check = &how->project->checks[i];
	const char *argv[] = {"/bin/bash", "-c", check->command, NULL};
	struct err why = ERR_INIT;
	struct env_job state = {0};
	char job[JOB_TEXT];
	int timeout_ms = check->timeout_ms ? check->timeout_ms : how->timeout_ms;
	int64_t begin = clock_mono_ms();
	job_name(how, i, job);
	struct env_exec exec = {.job = job, .argv = argv, .cwd = how->clone, .timeout_ms = timeout_ms};
	if (how->progress)
		how->progress(how->arg, check);
	int rc = env_start(how->env, &exec, &why);
	if (rc == -ENOENT || rc == -ENOTDIR || rc == -E2BIG || rc == -EACCES) {
		r->state = CHECK_ERROR;
		buf_addf(&r->output, "it could not be started: %s\n", why.text);
		return 0;
	}
	if (rc == -ECANCELED)
		return stopped(how, job, err);
	if (rc)
		return err_set(err, -rc, "%s", why.text);
	rc = wait_for(how, job, timeout_ms, &state, err);
	r->ms = clock_mono_ms() - begin;
	if (rc)
		return rc;
	CLEAN_FREE char *words = trouble(&state, timeout_ms);
	r->state = words ? CHECK_ERROR : state.exit_code ? CHECK_FAIL : CHECK_PASS;
	if (r->state != CHECK_PASS && state.state == ENV_JOB_EXITED)
		rc = keep_output(how, job, state.output, &r->output, err);
	if (words)
		buf_addf(&r->output, "(%s)\n", words);
	else if (r->state == CHECK_FAIL)
		buf_addf(&r->output, "(exit code %d)\n", state.exit_code);
	return rc;
}

int checks_run(const struct checks_how *how, struct check_result **out, size_t *n, struct err *err)
{
	size_t count = how->project->n_checks;
	struct check_result *results = xcalloc(count + 1, sizeof *results);
	for (size_t i = 0; i < count; i++) {
		results[i].name = xstrdup(how->project->checks[i].name);
		int rc = run_one(how, i, &results[i], err);
		if (rc) {
			checks_free(results, count);
			return rc;
		}
	}
	*out = results;
	*n = count;
	return 0;
}

void checks_free(struct check_result *results, size_t n)
{
	for (size_t i = 0; results && i < n; i++) {
		free(results[i].name);
		buf_release(&results[i].output);
	}
	free(results);
}

void checks_forget(struct env *env, const char *prefix, size_t n)
{
	struct checks_how how = {.prefix = prefix};
	char job[JOB_TEXT];
	for (size_t i = 0; i < n; i++) {
		job_name(&how, i, job);
		env_ack(env, job, false, NULL, NULL);
	}
}

void checks_end(struct env *env, const char *prefix, size_t n)
{
	struct checks_how how = {.prefix = prefix};
	char job[JOB_TEXT];
	int rc = 0;
	for (size_t i = 0; !rc && i < n; i++) {
		struct env_job state = {0};
		job_name(&how, i, job);
		int64_t end = clock_mono_ms() + END_MS;
		rc = env_kill(env, job, NULL);
		do
			rc = rc ? rc : env_poll(env, job, UINT64_MAX, 100, &state, NULL);
		while (!rc && state.state == ENV_JOB_RUNNING && clock_mono_ms() < end);
		rc = rc ? rc : env_ack(env, job, false, NULL, NULL);
	}
}
