/* Jobs, seen from the host: each function is one request, or a loop of them. The caller's thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "env_call.h"

#define WAIT_MS	  20000 /* of one poll while nothing can cancel */
#define CANCEL_MS 100	/* how often env_run() looks at its cancel flag */
#define KILL_MS	  10000 /* a killed job that still runs after this is given up */

int env_start(struct env *env, const struct env_exec *exec, struct err *err)
{
	struct wire_out *o = env_request(env, WIRE_START);
	wire_add_text(o, WIRE_JOB, exec->job);
	wire_add_text(o, WIRE_CWD, exec->cwd);
	wire_add_num(o, WIRE_TIMEOUT, exec->timeout_ms > 0 ? (uint64_t)exec->timeout_ms : 0);
	size_t n = 8;
	for (const char *const *p = exec->argv; p && *p; p++, n++)
		wire_add_text(o, WIRE_ARGV, *p);
	for (const char *const *p = exec->environ; p && *p; p++, n++)
		wire_add_text(o, WIRE_ENVIRON, *p);
	if (n > WIRE_FIELDS || o->b.n > WIRE_MAX)
		return err_set(err, E2BIG, "the command has too many arguments");
	return env_call(env, NULL, 0, NULL, err);
}

int env_poll(struct env *env, const char *job, uint64_t since, int wait_ms, struct env_job *out, struct err *err)
{
	struct wire_msg m;
	struct wire_out *o = env_request(env, WIRE_POLL);
	wire_add_text(o, WIRE_JOB, job);
	wire_add_num(o, WIRE_SINCE, since);
	wire_add_num(o, WIRE_WAIT, wait_ms > 0 ? (uint64_t)wait_ms : 0);
	int rc = env_call(env, NULL, 0, &m, err);
	if (rc)
		return rc;
	uint64_t flags = wire_num(&m, WIRE_FLAGS, 0), state = wire_num(&m, WIRE_STATE, ENV_JOB_UNKNOWN);
	if (state > ENV_JOB_LOST)
		return err_set(err, EPROTO, "the tool daemon knows a state of jobs that this program does not");
	*out = (struct env_job){.state = (enum env_job_state)state,
				.exit_code = (int)wire_num(&m, WIRE_EXIT, 0),
				.timed_out = flags & WIRE_TIMED_OUT,
				.killed = flags & WIRE_KILLED,
				.overflow = flags & WIRE_OVERFLOW,
				.output = wire_num(&m, WIRE_SIZE, 0)};
	return 0;
}

int env_output(struct env *env, const char *job, uint64_t offset, size_t max, struct buf *out, struct err *err)
{
	for (size_t done = 0; done < max;) {
		struct wire_msg m;
		size_t want = max - done < WIRE_CHUNK ? max - done : WIRE_CHUNK;
		struct wire_out *o = env_request(env, WIRE_OUTPUT);
		wire_add_text(o, WIRE_JOB, job);
		wire_add_num(o, WIRE_OFFSET, offset + done);
		wire_add_num(o, WIRE_MAXIMUM, want);
		int rc = env_call(env, NULL, 0, &m, err);
		if (rc)
			return rc;
		if (m.payload_n > want)
			return err_set(err, EPROTO, "the tool daemon sent more than was asked for");
		buf_add(out, m.payload, m.payload_n);
		done += m.payload_n;
		if (m.payload_n < want)
			break;
	}
	return 0;
}

int env_kill(struct env *env, const char *job, struct err *err)
{
	wire_add_text(env_request(env, WIRE_KILL), WIRE_JOB, job);
	return env_call(env, NULL, 0, NULL, err);
}

static int ack(struct env *env, const char *job, uint64_t flags, char **path, struct err *err)
{
	struct wire_msg m;
	struct wire_out *o = env_request(env, WIRE_ACK);
	wire_add_text(o, WIRE_JOB, job);
	wire_add_num(o, WIRE_FLAGS, flags);
	int rc = env_call(env, NULL, 0, &m, err);
	if (path)
		*path = rc ? NULL : wire_text(&m, WIRE_PATH);
	return rc;
}

int env_ack(struct env *env, const char *job, bool keep, char **path, struct err *err)
{
	return ack(env, job, keep ? WIRE_KEEP : 0, path, err);
}

int env_kept(struct env *env, const char *job, char **path, struct err *err)
{
	int rc = ack(env, job, WIRE_WHERE, path, err);
	return rc || *path ? rc : err_set(err, EPROTO, "the tool daemon's answer has no path");
}

/* Waits for a job's end; a set cancel flag kills it. -ECANCELED: it ended because of that. */
static int wait_end(struct env *env, const struct env_exec *exec, const atomic_bool *cancel, struct env_job *job,
		    struct err *err)
{
	int64_t killed = 0;
	for (;;) {
		int rc = env_poll(env, exec->job, UINT64_MAX, cancel && !killed ? CANCEL_MS : WAIT_MS, job, err);
		if (rc || job->state != ENV_JOB_RUNNING)
			return rc ? rc : killed ? -ECANCELED : 0;
		if (cancel && !killed && atomic_load(cancel)) {
			killed = clock_mono_ms();
			if ((rc = env_kill(env, exec->job, err)))
				return rc;
		}
		if (killed && clock_mono_ms() - killed > KILL_MS)
			return err_set(err, EIO, "a killed command does not end");
	}
}

static int result(const struct env_exec *exec, const struct env_job *job, struct err *err)
{
	const char *name = exec->argv[0];
	if (job->state != ENV_JOB_EXITED)
		return err_set(err, ENOTCONN, "the sandbox went down while %s ran", name);
	if (job->timed_out)
		return err_set(err, ETIMEDOUT, "%s did not end within %d s", name, exec->timeout_ms / 1000);
	if (job->overflow)
		return err_set(err, EFBIG, "%s was ended: its output cannot be kept (%" PRIu64 " bytes)", name,
			       job->output);
	return job->exit_code;
}

int env_run(struct env *env, const struct env_exec *exec, const atomic_bool *cancel, size_t max, struct buf *output,
	    struct err *err)
{
	struct env_job job = {0};
	int rc = env_start(env, exec, err);
	if (rc)
		return rc;
	rc = wait_end(env, exec, cancel, &job, err);
	if (rc && rc != -ECANCELED)
		return rc;
	int code = rc ? err_set(err, ECANCELED, "%s was stopped", exec->argv[0]) : result(exec, &job, err);
	if (output && job.output && (rc = env_output(env, exec->job, 0, max, output, err)))
		return rc;
	rc = env_ack(env, exec->job, false, NULL, code < 0 ? NULL : err);
	return rc && code >= 0 ? rc : code;
}
