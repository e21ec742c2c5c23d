/* Jobs, seen from the host: each function is one request, or a loop of them. The caller's thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "driver.h"
#include "env_call.h"

#define POLL_MS	   250	 /* longest single wait: how quickly a cancel flag is seen */
#define KILL_MS	   10000 /* a killed job that still runs after this is given up */
#define LATE_MS	   30000 /* over a job's time limit: the sandbox, which may be slow, has not seen to it */
#define SPIN_MS	   20	 /* least time between two polls that say the same */
#define ABANDON_MS 5000	 /* for a sandbox that answers late to hear that a job is to end */

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
	uint64_t code = wire_num(&m, WIRE_EXIT, 0), flags = wire_num(&m, WIRE_FLAGS, 0),
		 state = wire_num(&m, WIRE_STATE, ENV_JOB_UNKNOWN);
	if (state > ENV_JOB_LOST)
		return err_set(err, EPROTO, "the tool daemon knows a state of jobs that this program does not");
	*out = (struct env_job){.state = (enum env_job_state)state,
				.exit_code = code < 256 ? (int)code : 255,
				.timed_out = flags & WIRE_TIMED_OUT,
				.killed = flags & WIRE_KILLED,
				.overflow = flags & WIRE_OVERFLOW,
				.full = flags & WIRE_FULL,
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
	return ack(env, job, WIRE_WHERE, path, err);
}

static int end_job_at(const char *socket, int64_t id, const char *job, int ms, struct err *err)
{
	struct env *env = NULL;
	int64_t end = clock_mono_ms() + ms;
	int rc = env_open_at(socket, id, ms, NULL, &env, err);
	if (rc)
		return rc;
	env_hurry(env, (int)(end - clock_mono_ms()));
	rc = env_kill(env, job, err);
	struct env_job now = {.state = ENV_JOB_RUNNING};
	/* one that still runs cannot be forgotten */
	while (!rc && now.state == ENV_JOB_RUNNING && clock_mono_ms() < end) {
		env_hurry(env, (int)(end - clock_mono_ms()));
		if (env_poll(env, job, UINT64_MAX, POLL_MS, &now, NULL))
			break;
	}
	env_hurry(env, (int)(end - clock_mono_ms()));
	if (!rc)
		env_ack(env, job, false, NULL, NULL); /* if it is lost, the job only stays known a little longer */
	env_close(env);
	return rc;
}

int env_end_job(const struct paths *paths, const char *kind, int64_t id, const char *job, int ms, struct err *err)
{
	CLEAN_FREE char *socket = sandbox_socket(paths, id);
	return end_job_at(socket, id, job, ms, err);
}

int env_abandon(struct env *env, const char *job, struct err *err)
{
	/* A connection on which an answer is outstanding is of no use any more, and nobody knows what was heard. */
	return end_job_at(env->socket, env->id, job, ABANDON_MS, err);
}

/* Kills it and waits for its end. */
static int end_now(struct env *env, const char *job, struct env_job *out, struct err *err)
{
	int64_t end = clock_mono_ms() + KILL_MS;
	int rc = env_kill(env, job, err);
	while (!rc && !(rc = env_poll(env, job, UINT64_MAX, POLL_MS, out, err)) && out->state == ENV_JOB_RUNNING)
		if (clock_mono_ms() > end)
			return err_set(err, EIO, "a killed command does not end");
	return rc;
}

int env_wait(struct env *env, const char *job, int timeout_ms, const atomic_bool *cancel, struct env_job *out,
	     struct err *err)
{
	int64_t start = clock_mono_ms(), end = timeout_ms ? start + timeout_ms + LATE_MS : INT64_MAX;
	for (;;) {
		int64_t asked = clock_mono_ms();
		int rc = env_poll(env, job, UINT64_MAX, POLL_MS, out, err);
		if (rc || out->state != ENV_JOB_RUNNING)
			return rc;
		if (cancel && atomic_load(cancel))
			return err_set(err, ECANCELED, "stopped");
		if (clock_mono_ms() > end)
			break;
		/* one that answers at once instead of waiting must not keep this side busy */
		if (clock_mono_ms() - asked < SPIN_MS)
			clock_sleep_ms(SPIN_MS);
	}
	int rc = end_now(env, job, out, NULL);
	if (rc == -ENOTCONN || rc == -ECANCELED)
		return err_set(err, -rc, "the sandbox does not end a command that is over its time limit");
	out->state = ENV_JOB_EXITED;
	out->timed_out = true;
	return 0;
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
	if (job->full && job->exit_code >= 128)
		return err_set(err, ENOSPC, "%s could not do its work: " ENV_FULL, name);
	return job->exit_code;
}

int env_run(struct env *env, const struct env_exec *exec, const atomic_bool *cancel, size_t max, struct buf *output,
	    struct err *err)
{
	struct env_job job = {0};
	int rc = env_start(env, exec, err);
	bool begun = !rc;
	rc = rc ? rc : env_wait(env, exec->job, exec->timeout_ms, cancel, &job, err);
	bool stopped = rc == -ECANCELED;
	if (stopped && exec->halt && atomic_load(exec->halt))
		return rc;
	if (stopped && begun && !env_lost(env))
		rc = end_now(env, exec->job, &job, err);
	if (rc == -ECANCELED)
		env_abandon(env, exec->job, NULL);
	if (rc)
		return rc;
	int code = stopped ? err_set(err, ECANCELED, "%s was stopped", exec->argv[0]) : result(exec, &job, err);
	if (output && job.output && (rc = env_output(env, exec->job, 0, max, output, err)))
		return rc;
	rc = env_ack(env, exec->job, false, NULL, code < 0 ? NULL : err);
	return rc && code >= 0 ? rc : code;
}

int env_has_environ(struct env *env, bool *has, struct err *err)
{
	struct wire_msg m;
	env_request(env, WIRE_HAS_ENVIRON);
	int rc = env_call(env, NULL, 0, &m, err);
	*has = !rc && wire_num(&m, WIRE_STATE, 0) == 1;
	return rc;
}

int env_set_environ(struct env *env, const char *const *pairs, struct err *err)
{
	struct wire_out *o = env_request(env, WIRE_SET_ENVIRON);
	size_t n = 1;
	for (const char *const *p = pairs; p && *p; p++, n++)
		wire_add_text(o, WIRE_ENVIRON, *p);
	if (n > WIRE_FIELDS || o->b.n > WIRE_MAX)
		return err_set(err, EINVAL, "the environment has too many entries");
	return env_call(env, NULL, 0, NULL, err);
}
