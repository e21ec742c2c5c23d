/* The requests of the tool protocol: a table of functions that read a request's fields, do it, and add the answer's.
 * Runs on a connection's thread. Must never act on files with more rights than the tools' user has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "busy.h"
#include "conn.h"

#define WAIT_MAX (10 * 60 * 1000) /* longest wait of one POLL, ms */

static int missing(const char *what, struct err *err)
{
	return err_set(err, EINVAL, "the request has no %s, or one with a zero byte", what);
}

/* PATH, made absolute by the home. */
static int get_path(struct conn *c, const struct wire_msg *m, char **out, struct err *err)
{
	CLEAN_FREE char *path = wire_text(m, WIRE_PATH);
	if (!path)
		return missing("path", err);
	if (!*path)
		return err_sys(err, ENOENT, "an empty path");
	*out = *path == '/' ? take(path) : xasprintf("%s/%s", c->config->jobs.home, path);
	return 0;
}

/* GUARD: what the request may not touch. The list is malloc'd; a damaged one fails. */
static int get_guard(struct conn *c, const struct wire_msg *m, char **list, struct protection *no, struct err *err)
{
	*list = wire_text(m, WIRE_GUARD);
	if (!*list && wire_get(m, WIRE_GUARD))
		return missing("usable guard", err);
	*no = (struct protection){c->protect, *list};
	return 0;
}

static size_t get_max(const struct wire_msg *m)
{
	uint64_t max = wire_num(m, WIRE_MAXIMUM, WIRE_CHUNK);
	return max < WIRE_CHUNK ? (size_t)max : WIRE_CHUNK;
}

static int op_hello(struct conn *c, const struct wire_msg *m, struct err *err)
{
	uint64_t version = wire_num(m, WIRE_VERSION_TAG, 0);
	if (version != WIRE_VERSION)
		return err_set(err, EPROTONOSUPPORT, "the tool daemon speaks version %d of the protocol, not %d",
			       WIRE_VERSION, (int)version);
	if (c->config->hello)
		c->config->hello(c->config->arg, (int64_t)wire_num(m, WIRE_TIME, 0), m->payload, m->payload_n);
	wire_add_num(&c->out, WIRE_VERSION_TAG, WIRE_VERSION);
	wire_add_text(&c->out, WIRE_HOME, c->config->jobs.home);
	wire_add_text(&c->out, WIRE_URL, c->config->url);
	return 0;
}

static void free_list(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}

/* The fields of a tag as a NULL-terminated list. False: one has a NUL inside. */
static bool get_list(const struct wire_msg *m, enum wire_tag tag, char ***out)
{
	char **list = xcalloc(m->n_fields + 1, sizeof *list);
	size_t n = 0;
	bool ok = true;
	for (size_t i = 0; i < m->n_fields && ok; i++) {
		const struct wire_field *f = &m->fields[i];
		if (f->tag != tag)
			continue;
		ok = !memchr(f->p, 0, f->n);
		list[n++] = xstrndup(f->p, f->n);
	}
	*out = list;
	return ok;
}

static int op_start(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *job = wire_text(m, WIRE_JOB), *cwd = wire_text(m, WIRE_CWD);
	char **argv = NULL, **env = NULL;
	int rc = 0;
	if (!job)
		rc = missing("job", err);
	else if (wire_get(m, WIRE_CWD) && !cwd)
		rc = missing("working directory", err);
	else if (!get_list(m, WIRE_ARGV, &argv) || !get_list(m, WIRE_ENVIRON, &env))
		rc = missing("usable arguments", err);
	uint64_t timeout = wire_num(m, WIRE_TIMEOUT, 0);
	struct env_exec exec = {.job = job,
				.argv = (const char *const *)argv,
				.environ = (const char *const *)env,
				.cwd = cwd,
				.timeout_ms = timeout < INT32_MAX ? (int)timeout : INT32_MAX};
	if (!rc)
		rc = jobs_start(c->jobs, &exec, err);
	free_list(argv);
	free_list(env);
	return rc;
}

static void add_job(struct conn *c, const struct env_job *job)
{
	wire_add_num(&c->out, WIRE_STATE, job->state);
	wire_add_num(&c->out, WIRE_EXIT, (uint64_t)job->exit_code);
	wire_add_num(&c->out, WIRE_FLAGS,
		     (job->timed_out ? WIRE_TIMED_OUT : 0) | (job->killed ? WIRE_KILLED : 0) |
			     (job->overflow ? WIRE_OVERFLOW : 0) | (job->full ? WIRE_FULL : 0));
	wire_add_num(&c->out, WIRE_SIZE, job->output);
}

static int op_poll(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *id = wire_text(m, WIRE_JOB);
	if (!id || !job_id_ok(id))
		return missing("good job id", err);
	uint64_t since = wire_num(m, WIRE_SINCE, UINT64_MAX), wait = wire_num(m, WIRE_WAIT, 0);
	uint32_t request = m->id;
	struct env_job job;
	if (!jobs_poll(c->jobs, id, since, &job) && wait) {
		/* m points into the reader, which goes on reading in conn_wait(): not used from here on */
		CLEAN_FD int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (event < 0)
			return err_sys(err, errno, "cannot wait");
		struct job_watch *w = jobs_watch(c->jobs, id, since, event);
		bool go = jobs_poll(c->jobs, id, since, &job) ||
			  conn_wait(c, request, event, wait < WAIT_MAX ? (int)wait : WAIT_MAX);
		jobs_unwatch(c->jobs, w);
		if (!go)
			return err_set(err, ECANCELED, "the wait was cancelled");
		jobs_poll(c->jobs, id, since, &job);
	}
	add_job(c, &job);
	return 0;
}

static int op_output(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *id = wire_text(m, WIRE_JOB);
	return id ? jobs_output(c->jobs, id, wire_num(m, WIRE_OFFSET, 0), get_max(m), &c->data, err)
		  : missing("job", err);
}

static int op_kill(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *id = wire_text(m, WIRE_JOB);
	return id ? jobs_kill(c->jobs, id, err) : missing("job", err);
}

static int op_ack(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *id = wire_text(m, WIRE_JOB), *path = NULL;
	if (!id)
		return missing("job", err);
	uint64_t flags = wire_num(m, WIRE_FLAGS, 0);
	int rc = flags & WIRE_WHERE ? jobs_where(c->jobs, id, &path, err)
				    : jobs_ack(c->jobs, id, flags & WIRE_KEEP, &path, err);
	wire_add_text(&c->out, WIRE_PATH, path);
	return rc;
}

static int op_stat(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *path = NULL;
	struct env_stat st = {0};
	int rc = get_path(c, m, &path, err);
	rc = rc ? rc : files_stat(path, &st, err);
	if (rc)
		return rc;
	wire_add_text(&c->out, WIRE_PATH, st.real);
	wire_add_num(&c->out, WIRE_SIZE, st.size);
	wire_add_num(&c->out, WIRE_MODE, st.mode);
	wire_add_num(&c->out, WIRE_MTIME, (uint64_t)st.mtime_ms);
	free(st.real);
	return 0;
}

static int op_read(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *path = NULL, *list = NULL;
	struct protection no;
	uint64_t size = 0, generation = 0;
	int rc = get_path(c, m, &path, err);
	rc = rc ? rc : get_guard(c, m, &list, &no, err);
	rc = rc ? rc
		: files_read(&no, path, wire_num(m, WIRE_OFFSET, 0), get_max(m), &c->data, &size, &generation, err);
	wire_add_num(&c->out, WIRE_SIZE, size);
	wire_add_num(&c->out, WIRE_GENERATION, generation);
	return rc;
}

static bool wants_parents(const struct wire_msg *m)
{
	return wire_num(m, WIRE_FLAGS, 0) & WIRE_PARENTS;
}

static int has_room(struct conn *c, struct err *err)
{
	return jobs_have_room(c->jobs) ? 0 : err_set(err, ENOSPC, "%s", ENV_FULL);
}

static int op_append(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *path = NULL, *list = NULL;
	struct protection no;
	int rc = has_room(c, err);
	rc = rc ? rc : get_path(c, m, &path, err);
	rc = rc ? rc : get_guard(c, m, &list, &no, err);
	return rc ? rc : files_append(&no, path, wants_parents(m), m->payload, m->payload_n, err);
}

static int op_put(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *path = NULL, *list = NULL;
	struct protection no;
	int rc = has_room(c, err);
	rc = rc ? rc : get_path(c, m, &path, err);
	rc = rc ? rc : get_guard(c, m, &list, &no, err);
	return rc ? rc : put_begin(&c->put, &no, path, wants_parents(m), err);
}

static int op_put_data(struct conn *c, const struct wire_msg *m, struct err *err)
{
	int rc = has_room(c, err);
	return rc ? rc : put_data(&c->put, m->payload, m->payload_n, err);
}

static int op_put_end(struct conn *c, const struct wire_msg *m, struct err *err)
{
	return put_end(&c->put, err);
}

static int op_remove(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *path = NULL;
	int rc = get_path(c, m, &path, err);
	return rc ? rc : files_remove(path, err);
}

static int op_shutdown(struct conn *c, const struct wire_msg *m, struct err *err)
{
	c->shutdown = true;
	return 0;
}

static int op_set_environ(struct conn *c, const struct wire_msg *m, struct err *err)
{
	char **env = NULL;
	int rc = get_list(m, WIRE_ENVIRON, &env) ? jobs_set_environ(c->jobs, (const char *const *)env, err)
						 : missing("usable environment", err);
	free_list(env);
	return rc;
}

static int op_has_environ(struct conn *c, const struct wire_msg *m, struct err *err)
{
	wire_add_num(&c->out, WIRE_STATE, jobs_has_environ(c->jobs));
	return 0;
}

static int op_busy(struct conn *c, const struct wire_msg *m, struct err *err)
{
	const struct tools_config *t = c->config;
	CLEAN_BUF struct buf words = BUF_INIT;
	bool busy = busy_look(t->busy, c->jobs, &words);
	int64_t cpu = t->cpu_ms ? t->cpu_ms() : -1;
	wire_add_num(&c->out, WIRE_STATE, busy);
	if (cpu >= 0)
		wire_add_num(&c->out, WIRE_SIZE, (uint64_t)cpu);
	wire_add_text(&c->out, WIRE_TEXT, buf_str(&words));
	return 0;
}

static int op_settle(struct conn *c, const struct wire_msg *m, struct err *err)
{
	sync();
	return 0;
}

static int op_renew(struct conn *c, const struct wire_msg *m, struct err *err)
{
	CLEAN_FREE char *host = wire_text(m, WIRE_TEXT);
	if (!c->config->renew)
		return err_set(err, EOPNOTSUPP, "this sandbox has no memory to restore");
	c->config->renew(c->config->arg, (int64_t)wire_num(m, WIRE_TIME, 0), m->payload, m->payload_n, host);
	return 0;
}

static const struct op {
	int (*run)(struct conn *c, const struct wire_msg *m, struct err *err);
	bool as_user; /* with the file rights of the tools' user */
} ops[WIRE_OPS] = {
	[WIRE_HELLO] = {op_hello, false},
	[WIRE_START] = {op_start, false},
	[WIRE_POLL] = {op_poll, false},
	[WIRE_OUTPUT] = {op_output, false},
	[WIRE_KILL] = {op_kill, false},
	[WIRE_ACK] = {op_ack, false},
	[WIRE_STAT] = {op_stat, true},
	[WIRE_READ] = {op_read, true},
	[WIRE_APPEND] = {op_append, true},
	[WIRE_PUT] = {op_put, true},
	[WIRE_PUT_DATA] = {op_put_data, true},
	[WIRE_PUT_END] = {op_put_end, true},
	[WIRE_REMOVE] = {op_remove, true},
	[WIRE_SHUTDOWN] = {op_shutdown, false},
	[WIRE_SET_ENVIRON] = {op_set_environ, false},
	[WIRE_HAS_ENVIRON] = {op_has_environ, false},
	[WIRE_BUSY] = {op_busy, false},
	[WIRE_SETTLE] = {op_settle, false},
	[WIRE_RENEW] = {op_renew, false},
};

int ops_run(struct conn *c, const struct wire_msg *m, struct err *err)
{
	uint64_t op = wire_num(m, WIRE_OP, 0);
	const struct jobs_config *j = &c->config->jobs;
	if (op >= WIRE_OPS || !ops[op].run)
		return err_set(err, ENOSYS, "the tool daemon knows no request %d", (int)op);
	bool as_user = ops[op].as_user && j->drop;
	/* both are the calling thread's alone, and take root's rights over files away with the number */
	if (as_user) {
		setfsgid(j->gid);
		setfsuid(j->uid);
	}
	int rc = ops[op].run(c, m, err);
	if (as_user) {
		setfsuid(0);
		setfsgid(0);
	}
	return rc;
}
