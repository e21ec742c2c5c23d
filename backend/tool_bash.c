/* The tool `bash`: a job in the sandbox with an id, so that a restarted daemon joins or collects it. Worker threads. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "backend/parse/redact.h"
#include "killpoint.h"
#include "tool.h"

#define ARG_MAX_BYTES (100 << 10) /* a longer script goes through a file: Linux takes 128 KiB in one argument */
#define TAIL_MAX                                                                                                       \
	(TOOL_BYTES + REDACT_CONTEXT) /* output read for a result: a line's begin and a secret's are before the cut */

/* The last TOOL_LINES whole lines within TOOL_BYTES. Returns where they begin. */
static size_t tail_start(const struct buf *b, bool complete)
{
	size_t at = b->n > TOOL_BYTES ? b->n - TOOL_BYTES : 0, lines = 0;
	if (at || !complete) { /* the first line is cut: begin with the next, unless it is all there is */
		const char *nl = memchr(buf_str(b) + at, '\n', b->n - at);
		if (nl && (size_t)(nl + 1 - b->p) < b->n)
			at = (size_t)(nl + 1 - b->p);
	}
	for (size_t i = b->n; i > at; i--)
		if (b->p[i - 1] == '\n' && i != b->n && ++lines == TOOL_LINES)
			return i;
	return at;
}

/* Remarks come after the output, each on its own line, so that they cannot be taken for output. */
static void remarks(const struct tool_run *t, const struct env_job *job, size_t shown, const char *spill,
		    int timeout_ms, struct tool_result *out)
{
	if (out->text.n && !buf_ends(&out->text, "\n"))
		buf_addc(&out->text, '\n');
	if (!job->output)
		buf_adds(&out->text, "(no output)\n");
	if (shown < job->output)
		buf_addf(&out->text,
			 "[only the end is shown: %zu of %" PRIu64
			 " bytes; all of it is in %s until newer ones push it out]\n",
			 shown, job->output, spill ? spill : "the sandbox");
	if (job->state == ENV_JOB_LOST)
		buf_adds(&out->text, "[interrupted: the sandbox was restarted while the command ran]\n");
	else if (job->timed_out)
		buf_addf(&out->text, "[stopped after %d s, its time limit]\n", timeout_ms / 1000);
	else if (job->overflow)
		buf_adds(&out->text, "[stopped: its output grew too large]\n");
	else if (job->killed)
		buf_adds(&out->text, "[stopped]\n");
	else if (job->exit_code)
		buf_addf(&out->text, "[exit code %d]\n", job->exit_code);
	if (job->full)
		buf_adds(&out->text, "[" ENV_FULL "]\n");
	out->full = job->full;
	out->error = job->state != ENV_JOB_EXITED || job->exit_code || job->timed_out || job->killed || job->overflow;
}

static int collect(const struct tool_run *t, const struct env_job *job, int timeout_ms, struct tool_result *out,
		   struct err *err)
{
	CLEAN_BUF struct buf raw = BUF_INIT;
	uint64_t from = job->output > TAIL_MAX ? job->output - TAIL_MAX : 0;
	int rc = env_output(t->env, t->job, from, TAIL_MAX, &raw, err);
	if (rc)
		return rc;
	size_t at = tail_start(&raw, from == 0), shown = raw.n - at;
	CLEAN_BUF struct buf clear = BUF_INIT;
	redact(&clear, raw.p, raw.n, at, raw.n);
	utf8_clean(&out->text, buf_str(&clear), clear.n);
	CLEAN_FREE char *spill = NULL;
	if (shown < job->output) {
		rc = env_kept(t->env, t->job, &spill, err);
		if (rc)
			return rc;
	}
	remarks(t, job, shown, spill, timeout_ms, out);
	out->job = true;
	out->keep = shown < job->output;
	return 0;
}

static int time_limit(const struct tool_run *t, int *ms)
{
	const cJSON *v = json_get(t->args, "timeout");
	*ms = t->limit_ms;
	if (!v || cJSON_IsNull(v))
		return 0;
	if (!cJSON_IsNumber(v) || v->valuedouble <= 0 || v->valuedouble > 1e6)
		return -EINVAL;
	int asked = (int)(v->valuedouble * 1000);
	if (!*ms || asked < *ms)
		*ms = asked > 0 ? asked : 1;
	return 0;
}

int tool_bash(const struct tool_run *t, struct tool_result *out, struct err *err)
{
	const char *command = json_str(t->args, "command");
	struct env_job job = {0};
	struct err why = ERR_INIT;
	int timeout_ms;
	if (!command || utf8_blank(command, strlen(command)))
		return tool_fail(out, "bash needs a command");
	if (time_limit(t, &timeout_ms))
		return tool_fail(out, "timeout must be a number of seconds above 0");
	CLEAN_FREE char *script = xasprintf("%s/.cache/berthfs/%s.sh", env_home(t->env), t->job);
	const char *argv[] = {"/bin/bash", "-c", command, NULL};
	if (strlen(command) > ARG_MAX_BYTES) {
		int wrote = env_write(t->env, script, command, strlen(command), ENV_WRITE_PARENTS, &why);
		if (wrote)
			return tool_env_lost(wrote) ? err_set(err, -wrote, "%s", why.text)
						    : tool_fail(out, "%s", why.text);
		argv[1] = script;
		argv[2] = NULL;
	}
	struct env_exec exec = {.job = t->job, .argv = argv, .cwd = t->clone, .timeout_ms = timeout_ms};
	/* A known id is not started again, and the record of a job is on the sandbox's disk before its process exists:
	 * so this is right for a first try and after a restart alike. */
	int rc = env_start(t->env, &exec, &why);
	if (rc && tool_env_lost(rc))
		return err_set(err, -rc, "%s", why.text);
	if (rc)
		return tool_fail(out, "the command could not be started: %s", why.text);
	killpoint("tool.start");
	rc = env_wait(t->env, t->job, timeout_ms, t->cancel, &job, err); /* who cancels decides about the job */
	if (rc)
		return rc;
	if (job.state == ENV_JOB_UNKNOWN)
		return tool_fail(out, "interrupted: the sandbox does not know this command any more");
	return collect(t, &job, timeout_ms, out, err);
}
