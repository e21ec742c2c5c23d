/* The table of jobs and their folder. Any thread, under jobs->lock; must never wait for a job while it holds that. */
#include "job.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "job_run.h"
#include "kept.h"
#include "proc.h"

#define ASK_S 10 /* adding up takes that long where there are millions of files */

bool job_id_ok(const char *id)
{
	size_t n = strlen(id);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)id[i]) && !strchr("._-", id[i]))
			return false;
	return n > 0 && n <= 64 && strcmp(id, ".") != 0 && strcmp(id, "..") != 0;
}

static int bad_id(const char *id, struct err *err)
{
	return err_set(err, EINVAL, "\"%s\" is no job id: 1 to 64 letters, digits, . _ -", id);
}

char *job_path(const struct job *job, const char *name)
{
	return xasprintf("%s/run/%s%s%s", job->jobs->config.folder, job->id, *name ? "/" : "", name);
}

static struct job *find(struct jobs *jobs, const char *id)
{
	list_each (pos, &jobs->all) {
		struct job *job = list_entry(pos, struct job, link);
		if (!strcmp(job->id, id))
			return job;
	}
	return NULL;
}

static struct job *job_new(struct jobs *jobs, const char *id)
{
	struct job *job = xcalloc(1, sizeof *job);
	list_init(&job->link);
	job->jobs = jobs;
	snprintf(job->id, sizeof job->id, "%.64s", id);
	job->out = job->record = job->pipe = job->wake = -1;
	return job;
}

void job_free(struct job *job)
{
	fd_close(&job->out);
	fd_close(&job->record);
	fd_close(&job->pipe);
	fd_close(&job->wake);
	free(job);
}

void job_changed(struct job *job)
{
	uint64_t one = 1;
	list_each (pos, &job->jobs->watches) {
		struct job_watch *w = list_entry(pos, struct job_watch, link);
		if (!strcmp(w->id, job->id) && (job->now.state != ENV_JOB_RUNNING || job->now.output > w->since))
			(void)!write(w->event, &one, sizeof one);
	}
}

int job_write_record(struct job *job, const char *text)
{
	char record[JOB_RECORD];
	memset(record, ' ', sizeof record);
	memcpy(record, text, strlen(text));
	record[sizeof record - 1] = '\n';
	ssize_t n = pwrite(job->record, record, sizeof record, 0);
	if (n != (ssize_t)sizeof record)
		return n < 0 ? -errno : -ENOSPC;
	return fdatasync(job->record) ? -errno : 0;
}

/* ---- what an earlier process left ---- */

static void load_record(struct job *job)
{
	CLEAN_FREE char *record = job_path(job, "job"), *out = job_path(job, "out");
	CLEAN_BUF struct buf text = BUF_INIT;
	struct stat st;
	unsigned flags;
	job->now.state = ENV_JOB_LOST;
	if (!stat(out, &st))
		job->now.output = (uint64_t)st.st_size;
	if (file_read(record, &text, JOB_RECORD, NULL) || text.n != JOB_RECORD)
		return;
	if (sscanf(text.p, "E %d %u .", &job->now.exit_code, &flags) != 2 || !memmem(text.p, text.n, " . ", 3))
		return;
	job->now.state = ENV_JOB_EXITED;
	job->now.timed_out = flags & 1;
	job->now.killed = flags & 2;
	job->now.overflow = flags & 4;
	job->now.full = flags & 8;
}

/* A folder whose record is not complete was never started: its start was cut off before it had a record. */
static void load_job(struct jobs *jobs, const char *id)
{
	if (!job_id_ok(id))
		return; /* not made here */
	struct job *job = job_new(jobs, id);
	CLEAN_FREE char *record = job_path(job, "job"), *folder = job_path(job, "");
	struct stat st;
	if (stat(record, &st) || st.st_size != JOB_RECORD) {
		dir_remove(folder, NULL);
		job_free(job);
		return;
	}
	load_record(job);
	list_append(&jobs->all, &job->link);
}

static int load(struct jobs *jobs, struct err *err)
{
	CLEAN_FREE char *run = xasprintf("%s/run", jobs->config.folder);
	CLEAN_FREE char *kept = xasprintf("%s/kept", jobs->config.folder);
	int rc = dir_make(run, 0755, err);
	rc = rc ? rc : dir_make(kept, 0755, err);
	if (rc)
		return rc;
	CLEAN_FREE char *mark = xasprintf("%s%s/", JOB_MARK, jobs->config.folder);
	proc_kill_tree(0, mark);
	DIR *d = opendir(run);
	if (!d)
		return err_sys(err, errno, "cannot read %s", run);
	for (struct dirent *e; (e = readdir(d));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			load_job(jobs, e->d_name);
	closedir(d);
	return 0;
}

int jobs_new(const struct jobs_config *config, struct jobs **out, struct err *err)
{
	struct jobs *jobs = xcalloc(1, sizeof *jobs);
	jobs->config = *config;
	jobs->config.folder = xstrdup(config->folder);
	jobs->config.home = xstrdup(config->home);
	jobs->config.path = xstrdup(config->path);
	jobs->config.user = xstrdup(config->user);
	jobs->config.cgroup = xstrdup(config->cgroup);
	pthread_mutex_init(&jobs->lock, NULL);
	pthread_mutex_init(&jobs->starting, NULL);
	pthread_cond_init(&jobs->forked, NULL);
	pthread_cond_init(&jobs->disk, NULL);
	pthread_cond_init(&jobs->thread_gone, NULL);
	list_init(&jobs->all);
	list_init(&jobs->watches);
	*out = jobs;
	int rc = load(jobs, err);
	pthread_t reaper;
	if (!rc && (rc = -pthread_create(&reaper, NULL, job_reaper, jobs)))
		return err_sys(err, -rc, "cannot start a thread");
	if (!rc)
		pthread_detach(reaper);
	return rc;
}

void jobs_close(struct jobs *jobs)
{
	pthread_mutex_lock(&jobs->starting); /* a start that is under way ends first */
	pthread_mutex_lock(&jobs->lock);
	jobs->stopping = true;
	pthread_mutex_unlock(&jobs->starting);
	uint64_t one = 1;
	list_each (pos, &jobs->all) {
		struct job *job = list_entry(pos, struct job, link);
		if (job->has_thread)
			(void)!write(job->wake, &one, sizeof one);
	}
	pthread_mutex_unlock(&jobs->lock);
}

/* The struct stays allocated: the reaper and late callers may still look at it until the process ends. */
void jobs_stop(struct jobs *jobs)
{
	jobs_close(jobs);
	CLEAN_FREE char *mark = xasprintf("%s%s/", JOB_MARK, jobs->config.folder);
	proc_kill_below_self(mark);
	pthread_mutex_lock(&jobs->lock);
	while (jobs->threads)
		pthread_cond_wait(&jobs->thread_gone, &jobs->lock);
	pthread_mutex_unlock(&jobs->lock);
}

/* ---- the disk ---- */

void jobs_disk(struct jobs *jobs, bool full, bool end)
{
	CLEAN_FREE char *mark = xasprintf("%s%s/", JOB_MARK, jobs->config.folder);
	pthread_mutex_lock(&jobs->lock);
	jobs->full = full;
	jobs->disks++;
	pthread_cond_broadcast(&jobs->disk);
	list_each (pos, &jobs->all) {
		struct job *job = list_entry(pos, struct job, link);
		if (end && job->now.state == ENV_JOB_RUNNING)
			job->now.full = true;
	}
	pthread_mutex_unlock(&jobs->lock);
	if (end)
		proc_kill_below_self(mark);
}

bool jobs_have_room(struct jobs *jobs)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ASK_S;
	pthread_mutex_lock(&jobs->lock);
	unsigned seen = jobs->disks;
	if (jobs->full && jobs->config.ask_disk)
		jobs->config.ask_disk(jobs->config.arg);
	while (jobs->full && jobs->config.ask_disk && jobs->disks == seen &&
	       !pthread_cond_timedwait(&jobs->disk, &jobs->lock, &until))
		;
	bool room = !jobs->full;
	pthread_mutex_unlock(&jobs->lock);
	return room;
}

/* ---- start ---- */

/* The folder and its files. The record is durable before anything runs. */
static int make_files(struct job *job, struct err *err)
{
	CLEAN_FREE char *folder = job_path(job, "");
	CLEAN_FREE char *out = job_path(job, "out"), *record = job_path(job, "job");
	if (mkdir(folder, 0755) && errno != EEXIST)
		return err_sys(err, errno, "cannot make %s", folder);
	job->out = open(out, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	job->record = open(record, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	job->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (job->out < 0 || job->record < 0 || job->wake < 0)
		return err_sys(err, errno, "cannot make the files of a job in %s", folder);
	int rc = job_write_record(job, "R");
	CLEAN_FD int dir = rc ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!rc && (dir < 0 || fsync(dir)))
		rc = -errno;
	return rc ? err_sys(err, -rc, "cannot write %s", record) : 0;
}

static int start_new(struct jobs *jobs, const struct env_exec *exec, struct err *err)
{
	struct job *job = job_new(jobs, exec->job);
	job->now.state = ENV_JOB_RUNNING;
	jobs_have_room(jobs); /* else what it may do is known, and job_launch() sees to it */
	int rc = make_files(job, err);
	if (!rc)
		rc = job_launch(job, exec, err);
	if (rc) {
		CLEAN_FREE char *folder = job_path(job, "");
		dir_remove(folder, NULL);
		job_free(job);
	}
	return rc;
}

/* Whoever stops a command does not wait for its start: that may still be under way on another connection, or not even
 * be read. */
bool jobs_ended_before(const struct jobs *jobs, const char *id)
{
	for (size_t i = 0; i < JOB_ENDED; i++)
		if (!strcmp(jobs->ended[i], id))
			return true;
	return false;
}

int jobs_start(struct jobs *jobs, const struct env_exec *exec, struct err *err)
{
	if (!job_id_ok(exec->job))
		return bad_id(exec->job, err);
	if (!exec->argv || !exec->argv[0])
		return err_set(err, EINVAL, "there is no program to start");
	pthread_mutex_lock(&jobs->starting);
	pthread_mutex_lock(&jobs->lock);
	bool known = find(jobs, exec->job) != NULL, stopping = jobs->stopping;
	bool ended = !known && jobs_ended_before(jobs, exec->job);
	pthread_mutex_unlock(&jobs->lock);
	int rc = 0;
	if (stopping)
		rc = err_set(err, ESHUTDOWN, "the sandbox is shutting down");
	else if (ended)
		rc = err_set(err, EINTR, "the job %s was ended before it began", exec->job);
	else if (!known)
		rc = start_new(jobs, exec, err);
	pthread_mutex_unlock(&jobs->starting);
	return rc;
}

/* ---- the rest ---- */

int jobs_set_environ(struct jobs *jobs, const char *const *pairs, struct err *err)
{
	size_t n = 0, bytes = 0;
	for (; pairs && pairs[n]; n++) {
		bytes += strlen(pairs[n]) + 1;
		if (*pairs[n] == '=' || !strchr(pairs[n], '='))
			return err_set(err, EINVAL, "an entry of the environment is not NAME=value");
		if (n == JOB_ENVIRON || bytes > JOB_ENVIRON_BYTES)
			return err_set(err, EINVAL, "the environment has more than %d entries or %d bytes", JOB_ENVIRON,
				       JOB_ENVIRON_BYTES);
	}
	char **base = xcalloc(n + 1, sizeof *base);
	for (size_t i = 0; i < n; i++)
		base[i] = xstrdup(pairs[i]);
	pthread_mutex_lock(&jobs->lock);
	char **old = jobs->base;
	jobs->base = base;
	pthread_mutex_unlock(&jobs->lock);
	for (char **p = old; p && *p; p++)
		free(*p);
	free(old);
	return 0;
}

bool jobs_has_environ(struct jobs *jobs)
{
	pthread_mutex_lock(&jobs->lock);
	bool has = jobs->base != NULL;
	pthread_mutex_unlock(&jobs->lock);
	return has;
}

char **jobs_environ(struct jobs *jobs)
{
	size_t n = 0;
	pthread_mutex_lock(&jobs->lock);
	while (jobs->base && jobs->base[n])
		n++;
	char **env = xcalloc(n + 2, sizeof *env);
	env[0] = xstrdup("LANG=C.UTF-8");
	for (size_t i = 0; i < n; i++)
		env[i + 1] = xstrdup(jobs->base[i]);
	pthread_mutex_unlock(&jobs->lock);
	return env;
}

void jobs_forked(struct jobs *jobs)
{
	pthread_mutex_lock(&jobs->lock);
	jobs->forks++;
	pthread_cond_signal(&jobs->forked);
	pthread_mutex_unlock(&jobs->lock);
}

int jobs_kill(struct jobs *jobs, const char *id, struct err *err)
{
	if (!job_id_ok(id))
		return bad_id(id, err);
	pthread_mutex_lock(&jobs->lock);
	struct job *job = find(jobs, id);
	if (job && job->now.state == ENV_JOB_RUNNING) {
		uint64_t one = 1;
		job->kill_asked = true; /* its thread, if it has none yet, begins with that */
		(void)!write(job->wake, &one, sizeof one);
	} else if (!job && !jobs_ended_before(jobs, id)) {
		snprintf(jobs->ended[jobs->n_ended++ % JOB_ENDED], sizeof jobs->ended[0], "%s", id);
	}
	pthread_mutex_unlock(&jobs->lock);
	return 0;
}

/* Moves the output to its kept name. Once it is there, a repeat finds it there. */
static int keep_output(struct jobs *jobs, const char *id, bool known, char **path, struct err *err)
{
	CLEAN_FREE char *out = xasprintf("%s/run/%s/out", jobs->config.folder, id);
	CLEAN_FREE char *kept = xasprintf("%s/kept/%s.log", jobs->config.folder, id);
	if (known && rename(out, kept) && errno != ENOENT)
		return err_sys(err, errno, "cannot keep the output of job %s", id);
	CLEAN_FREE char *folder = xasprintf("%s/kept", jobs->config.folder);
	kept_prune(folder);
	if (file_exists(kept))
		*path = take(kept);
	return 0;
}

int jobs_where(struct jobs *jobs, const char *id, char **path, struct err *err)
{
	if (!job_id_ok(id))
		return bad_id(id, err);
	*path = xasprintf("%s/kept/%s.log", jobs->config.folder, id);
	return 0;
}

int jobs_ack(struct jobs *jobs, const char *id, bool keep, char **path, struct err *err)
{
	*path = NULL;
	if (!job_id_ok(id))
		return bad_id(id, err);
	pthread_mutex_lock(&jobs->lock);
	struct job *job = find(jobs, id);
	int rc = 0;
	if (job && job->now.state == ENV_JOB_RUNNING)
		rc = err_set(err, EBUSY, "job %s still runs: kill it first", id);
	if (!rc && keep)
		rc = keep_output(jobs, id, job != NULL, path, err);
	if (!rc && job) {
		CLEAN_FREE char *folder = job_path(job, "");
		dir_remove(folder, NULL);
		list_remove(&job->link);
		job->now.state = ENV_JOB_UNKNOWN;
		job_changed(job);
		job->acked = true;
		job->discard = !keep;
		if (!job->has_thread)
			job_free(job);
	}
	pthread_mutex_unlock(&jobs->lock);
	return rc;
}

int jobs_output(struct jobs *jobs, const char *id, uint64_t offset, size_t max, struct buf *out, struct err *err)
{
	if (!job_id_ok(id))
		return bad_id(id, err);
	CLEAN_FREE char *path = xasprintf("%s/run/%s/out", jobs->config.folder, id);
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "there is no output of job %s", id);
	buf_reserve(out, max);
	ssize_t n = pread(fd, out->p + out->n, max, (off_t)offset);
	if (n < 0)
		return err_sys(err, errno, "cannot read the output of job %s", id);
	out->n += (size_t)n;
	out->p[out->n] = 0;
	return 0;
}

bool jobs_poll(struct jobs *jobs, const char *id, uint64_t since, struct env_job *out)
{
	pthread_mutex_lock(&jobs->lock);
	struct job *job = find(jobs, id);
	*out = job ? job->now : (struct env_job){.state = ENV_JOB_UNKNOWN};
	pthread_mutex_unlock(&jobs->lock);
	return out->state != ENV_JOB_RUNNING || out->output > since;
}

struct job_watch *jobs_watch(struct jobs *jobs, const char *id, uint64_t since, int event)
{
	struct job_watch *w = xcalloc(1, sizeof *w);
	snprintf(w->id, sizeof w->id, "%s", id);
	w->since = since;
	w->event = event;
	pthread_mutex_lock(&jobs->lock);
	list_append(&jobs->watches, &w->link);
	pthread_mutex_unlock(&jobs->lock);
	return w;
}

void jobs_unwatch(struct jobs *jobs, struct job_watch *watch)
{
	pthread_mutex_lock(&jobs->lock);
	list_remove(&watch->link);
	pthread_mutex_unlock(&jobs->lock);
	free(watch);
}
