/* The life of a job: fork, its output, its limits, its end. One thread a job, until nobody holds its output any more,
 * and one reaper for all children. Must never call anything between fork and exec that is not async-signal-safe, nor
 * take away a pid from the kernel (reap) without telling its job under the lock. */
#include "job_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "proc.h"

#define STACK (256 * 1024) /* of a job thread; musl's default is smaller than `scratch` below likes */

/* All that the child needs, made before the fork. */
struct launch {
	const struct jobs *jobs;
	const char *const *argv;
	char *program, *cwd;
	char **env;
	int in, out, status, cgroup;
	bool full; /* it can make no file longer */
};
struct failure {
	int code;
	bool cwd; /* at chdir, else at exec */
};

/* ---- environment and paths ---- */

static void env_put(char **env, size_t *n, char *entry)
{
	size_t key = strcspn(entry, "=") + 1;
	for (size_t i = 0; i < *n; i++)
		if (!strncmp(env[i], entry, key)) {
			free(env[i]);
			env[i] = entry;
			return;
		}
	env[(*n)++] = entry;
}

/* A small environment of its own: nothing of the daemon's gets in, so no key of the user can. */
static char **make_env(const struct job *job, const char *const *extra)
{
	static const char *const fixed[] = {"LANG=C.UTF-8",	    "TERM=dumb",  "PAGER=cat",
					    "GIT_PAGER=cat",	    "NO_COLOR=1", "SHELL=/bin/bash",
					    "GIT_TERMINAL_PROMPT=0"};
	const struct jobs_config *c = &job->jobs->config;
	size_t n = 0, more = 0;
	while (extra && extra[more])
		more++;
	pthread_mutex_lock(&job->jobs->lock);
	char **const given = job->jobs->base;
	size_t based = 0;
	while (given && given[based])
		based++;
	size_t under = 0;
	while (c->environ && c->environ[under])
		under++;
	char **env = xcalloc(ARRAY_LEN(fixed) + under + based + more + 6, sizeof *env);
	char **base = xcalloc(based + 1, sizeof *base);
	for (size_t i = 0; i < based; i++)
		base[i] = xstrdup(given[i]);
	pthread_mutex_unlock(&job->jobs->lock);
	for (size_t i = 0; i < under; i++)
		env_put(env, &n, xstrdup(c->environ[i]));
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		env_put(env, &n, xstrdup(fixed[i]));
	env_put(env, &n, xasprintf("PATH=%s", c->path));
	env_put(env, &n, xasprintf("HOME=%s", c->user_home ? c->user_home : c->home));
	if (c->user) {
		env_put(env, &n, xasprintf("USER=%s", c->user));
		env_put(env, &n, xasprintf("LOGNAME=%s", c->user));
	}
	for (size_t i = 0; i < based; i++)
		env_put(env, &n, base[i]);
	free(base);
	for (size_t i = 0; i < more; i++)
		if (strchr(extra[i], '='))
			env_put(env, &n, xstrdup(extra[i]));
	env_put(env, &n, xasprintf(JOB_MARK "%s/%s", c->folder, job->id));
	return env;
}

static const char *env_get(char **env, const char *key)
{
	size_t n = strlen(key);
	for (; *env; env++)
		if (!strncmp(*env, key, n) && (*env)[n] == '=')
			return *env + n + 1;
	return "";
}

/* argv[0] as execve() takes it: a name without a slash is looked up in the job's own PATH. */
static char *find_program(const char *name, char **env)
{
	if (strchr(name, '/'))
		return xstrdup(name);
	CLEAN_FREE char *path = xstrdup(env_get(env, "PATH"));
	char *save = NULL;
	for (char *dir = strtok_r(path, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		CLEAN_FREE char *full = xasprintf("%s/%s", dir, name);
		struct stat st;
		if (!stat(full, &st) && S_ISREG(st.st_mode) && st.st_mode & 0111)
			return take(full);
	}
	return NULL;
}

static void launch_release(struct launch *l)
{
	for (char **e = l->env; e && *e; e++)
		free(*e);
	free(l->env);
	free(l->program);
	free(l->cwd);
	fd_close(&l->in);
	fd_close(&l->out);
	fd_close(&l->status);
	fd_close(&l->cgroup);
}

/* ---- the child ---- */

static int become_user(const struct jobs_config *c)
{
	/* the plain calls: libc's would look for threads that this copy of the process does not have */
	if (c->drop && (syscall(SYS_setgroups, 0, NULL) || syscall(SYS_setresgid, c->gid, c->gid, c->gid) ||
			syscall(SYS_setresuid, c->uid, c->uid, c->uid)))
		return -1;
	return 0;
}

/* A program that was written a moment ago may still be open for writing in a copy of this process that another thread
 * has forked and that has not come to its own exec: then a little later. */
static void exec_program(const struct launch *l)
{
	struct timespec little = {.tv_nsec = 5000000};
	for (int i = 0; i < 40; i++) {
		execve(l->program, (char *const *)(uintptr_t)l->argv, l->env);
		if (errno != ETXTBSY)
			break;
		nanosleep(&little, NULL);
		errno = ETXTBSY;
	}
}

static void child(const struct launch *l)
{
	struct failure f = {.cwd = true};
	sigset_t none;
	sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	umask(022);
	if (l->full) {
		setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
		signal(SIGXFSZ, SIG_IGN); /* "File too large", and it may go on */
	}
	if (l->cgroup >= 0)
		(void)!write(l->cgroup, "0", 1);
	if (dup2(l->in, 0) == 0 && dup2(l->out, 1) == 1 && dup2(l->out, 2) == 2 && !become_user(&l->jobs->config) &&
	    !chdir(l->cwd)) {
		f.cwd = false;
		exec_program(l);
	}
	f.code = errno;
	(void)!write(l->status, &f, sizeof f);
	_exit(127);
}

/* ---- starting ---- */

static int open_cgroup(const struct job *job)
{
	if (!job->jobs->config.cgroup)
		return -1;
	CLEAN_FREE char *dir = xasprintf("%s/%s", job->jobs->config.cgroup, job->id);
	CLEAN_FREE char *procs = xasprintf("%s/cgroup.procs", dir);
	mkdir(dir, 0755);
	return open(procs, O_WRONLY | O_CLOEXEC); /* without it /proc alone tells the tree */
}

static int prepare(struct job *job, const struct env_exec *exec, struct launch *l, int *status, struct err *err)
{
	const struct jobs_config *c = &job->jobs->config;
	int out[2], st[2];
	l->env = make_env(job, exec->environ);
	l->program = find_program(exec->argv[0], l->env);
	if (!l->program)
		return err_set(err, ENOENT, "there is no program %s in PATH", exec->argv[0]);
	const char *cwd = exec->cwd ? exec->cwd : "";
	l->cwd = *cwd == '/' ? xstrdup(cwd) : xasprintf("%s%s%s", c->home, *cwd ? "/" : "", cwd);
	if (pipe2(out, O_CLOEXEC))
		return err_sys(err, errno, "cannot make a pipe");
	job->pipe = out[0];
	l->out = out[1];
	if (pipe2(st, O_CLOEXEC))
		return err_sys(err, errno, "cannot make a pipe");
	*status = st[0];
	l->status = st[1];
	fd_nonblock(job->pipe);
	/* a pipe belongs to who made it; the job has to be able to open it again as /dev/stderr */
	if (c->drop && fchown(l->out, c->uid, c->gid))
		return err_sys(err, errno, "cannot hand over a pipe");
	l->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	l->cgroup = open_cgroup(job);
	return l->in < 0 ? err_sys(err, errno, "cannot open /dev/null") : 0;
}

/* The fork happens under the lock, so that the reaper meets no pid that is in no job. */
static int fork_job(struct job *job, struct launch *l)
{
	struct jobs *jobs = job->jobs;
	pthread_mutex_lock(&jobs->lock);
	job->now.full = l->full = jobs->full;
	list_append(&jobs->all, &job->link);
	job->kill_asked = jobs_ended_before(jobs, job->id);
	pid_t pid = fork();
	if (pid == 0)
		child(l);
	int rc = pid < 0 ? -errno : 0;
	if (!rc)
		job->pid = pid;
	else
		list_remove(&job->link);
	jobs->forks++;
	pthread_cond_signal(&jobs->forked);
	pthread_mutex_unlock(&jobs->lock);
	return rc;
}

static void *life(void *arg);

static int start_thread(struct job *job)
{
	pthread_attr_t attr;
	pthread_t thread;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_mutex_lock(&job->jobs->lock);
	int rc = -pthread_create(&thread, &attr, life, job);
	if (!rc) {
		uint64_t one = 1;
		job->has_thread = true;
		job->jobs->threads++;
		if (job->kill_asked)
			(void)!write(job->wake, &one, sizeof one);
	}
	pthread_mutex_unlock(&job->jobs->lock);
	pthread_attr_destroy(&attr);
	return rc;
}

/* A job that has no thread: waits until the reaper has had it, and takes it out of the table. */
static void take_back(struct job *job)
{
	for (bool reaped = false; !reaped;) {
		struct pollfd p = {.fd = job->wake, .events = POLLIN};
		poll(&p, 1, 100);
		pthread_mutex_lock(&job->jobs->lock);
		reaped = job->reaped;
		if (reaped)
			list_remove(&job->link);
		pthread_mutex_unlock(&job->jobs->lock);
	}
}

int job_launch(struct job *job, const struct env_exec *exec, struct err *err)
{
	struct launch l = {.jobs = job->jobs, .argv = exec->argv, .in = -1, .out = -1, .status = -1, .cgroup = -1};
	CLEAN_FD int status = -1;
	struct failure f = {0};
	if (exec->timeout_ms > 0)
		job->deadline = clock_mono_ms() + exec->timeout_ms;
	int rc = prepare(job, exec, &l, &status, err);
	if (!rc && (rc = fork_job(job, &l)))
		err_sys(err, -rc, "cannot start a process");
	fd_close(&l.out);
	fd_close(&l.status);
	if (!rc && !fd_read_full(status, &f, sizeof f)) {
		rc = f.cwd ? err_sys(err, f.code, "cannot run in %s", l.cwd)
			   : err_sys(err, f.code, "cannot run %s", l.program);
		take_back(job);
	} else if (!rc && (rc = start_thread(job))) {
		err_sys(err, -rc, "cannot start a thread");
		proc_kill_tree(job->pid, NULL);
		take_back(job);
	}
	launch_release(&l);
	return rc;
}

/* ---- running ---- */

static void kill_tree(struct job *job)
{
	const struct jobs_config *c = &job->jobs->config;
	CLEAN_FREE char *mark = xasprintf(JOB_MARK "%s/%s", c->folder, job->id);
	if (c->cgroup) {
		CLEAN_FREE char *path = xasprintf("%s/%s/cgroup.kill", c->cgroup, job->id);
		CLEAN_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd >= 0)
			(void)!write(fd, "1", 1);
	}
	/* pid stays the job's until the reaper says so, and a session's number is not given out while it has members */
	proc_kill_tree(job->pid, mark);
}

static void overflow(struct job *job)
{
	pthread_mutex_lock(&job->jobs->lock);
	bool first = job->now.state == ENV_JOB_RUNNING && !job->now.overflow, reaped = job->reaped;
	if (first)
		job->now.overflow = true;
	pthread_mutex_unlock(&job->jobs->lock);
	if (first && !reaped)
		kill_tree(job);
}

/* Reads what nobody will keep, so that the writer does not block on it. */
static ssize_t drop(struct job *job, size_t max)
{
	char scratch[16384];
	return read(job->pipe, scratch, max < sizeof scratch ? max : sizeof scratch);
}

/* Moves up to max bytes of output to its file. Returns how many left the pipe; 0: none for now, or its end. */
static size_t pump(struct job *job, size_t max)
{
	pthread_mutex_lock(&job->jobs->lock);
	loff_t at = (loff_t)job->now.output;
	bool discard = job->discard;
	pthread_mutex_unlock(&job->jobs->lock);
	size_t room = JOB_OUTPUT_MAX - (uint64_t)at;
	ssize_t n;
	if (discard || !room) {
		n = drop(job, max);
	} else {
		n = splice(job->pipe, NULL, job->out, &at, max < room ? max : room, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			n = drop(job, max); /* a full disk counts as too much output: it cannot be kept */
			room = 0;
		} else if (n > 0) {
			pthread_mutex_lock(&job->jobs->lock);
			job->now.output += (uint64_t)n;
			job_changed(job);
			pthread_mutex_unlock(&job->jobs->lock);
		}
	}
	if (n > 0 && !room && !discard)
		overflow(job);
	if (n == 0)
		fd_close(&job->pipe);
	return n > 0 ? (size_t)n : 0;
}

/* The job's first process has ended: its output so far is taken in, and its end made durable before anyone hears. */
static void finish(struct job *job)
{
	int left = 0;
	if (job->pipe >= 0 && ioctl(job->pipe, FIONREAD, &left))
		left = 0;
	for (size_t n; left > 0 && job->pipe >= 0 && (n = pump(job, (size_t)left)); left -= (int)n)
		;
	struct jobs *jobs = job->jobs;
	pthread_mutex_lock(&jobs->lock);
	struct env_job now = job->now;
	bool by_kill = WIFSIGNALED(job->status) && WTERMSIG(job->status) == SIGKILL, lost = jobs->stopping;
	now.exit_code = WIFSIGNALED(job->status) ? 128 + WTERMSIG(job->status) : WEXITSTATUS(job->status);
	pthread_mutex_unlock(&jobs->lock);
	now.timed_out = now.timed_out && by_kill;
	now.killed = now.killed && by_kill;
	now.state = lost ? ENV_JOB_LOST : ENV_JOB_EXITED;
	char record[JOB_RECORD];
	snprintf(record, sizeof record, "E %d %d .", now.exit_code,
		 now.timed_out * 1 + now.killed * 2 + now.overflow * 4 + now.full * 8);
	if (!lost && !fdatasync(job->out))
		job_write_record(job, record); /* if that fails, the job is LOST after a restart: true enough */
	pthread_mutex_lock(&jobs->lock);
	job->now = now;
	job->pid = 0;
	job_changed(job);
	pthread_mutex_unlock(&jobs->lock);
}

/* One wait for something to happen, and what follows from it. False: the thread has nothing left to do. */
static bool step(struct job *job)
{
	struct jobs *jobs = job->jobs;
	int64_t left = job->deadline ? job->deadline - clock_mono_ms() : -1;
	struct pollfd p[2] = {{.fd = job->wake, .events = POLLIN}, {.fd = job->pipe, .events = POLLIN}};
	poll(p, 2, job->deadline ? left > 0 ? (int)left : 0 : -1);
	uint64_t count;
	if (p[0].revents)
		(void)!read(job->wake, &count, sizeof count);
	if (p[1].revents)
		pump(job, 1 << 20);
	pthread_mutex_lock(&jobs->lock);
	bool running = job->now.state == ENV_JOB_RUNNING, reaped = job->reaped, stopping = jobs->stopping;
	bool late = running && !reaped && job->deadline && job->deadline <= clock_mono_ms();
	bool kill = running && !reaped && (job->kill_asked || late);
	job->now.timed_out |= late;
	job->now.killed |= kill && !late;
	job->kill_asked = false;
	pthread_mutex_unlock(&jobs->lock);
	if (late || reaped)
		job->deadline = 0;
	if (kill)
		kill_tree(job);
	if (running && reaped)
		finish(job);
	return !(reaped && (stopping || job->pipe < 0));
}

static void *life(void *arg)
{
	struct job *job = arg;
	struct jobs *jobs = job->jobs;
	while (step(job))
		;
	if (jobs->config.cgroup) {
		CLEAN_FREE char *dir = xasprintf("%s/%s", jobs->config.cgroup, job->id);
		rmdir(dir); /* stays while a background child lives in it */
	}
	pthread_mutex_lock(&jobs->lock);
	job->has_thread = false;
	fd_close(&job->out);
	fd_close(&job->record);
	jobs->threads--;
	pthread_cond_broadcast(&jobs->thread_gone);
	if (job->acked)
		job_free(job);
	pthread_mutex_unlock(&jobs->lock);
	return NULL;
}

/* ---- the reaper ---- */

static void reap(struct jobs *jobs, pid_t pid)
{
	pthread_mutex_lock(&jobs->lock);
	struct job *job = NULL;
	list_each (pos, &jobs->all) {
		struct job *j = list_entry(pos, struct job, link);
		if (j->pid == pid && !j->reaped)
			job = j;
	}
	int status;
	if (waitpid(pid, &status, WNOHANG) == pid && job) {
		uint64_t one = 1;
		job->status = status;
		job->reaped = true;
		(void)!write(job->wake, &one, sizeof one);
	}
	pthread_mutex_unlock(&jobs->lock);
}

void *job_reaper(void *arg)
{
	struct jobs *jobs = arg;
	for (;;) {
		pthread_mutex_lock(&jobs->lock);
		unsigned seen = jobs->forks;
		pthread_mutex_unlock(&jobs->lock);
		siginfo_t si = {0};
		if (!waitid(P_ALL, 0, &si, WEXITED | WNOWAIT)) {
			reap(jobs, si.si_pid);
		} else if (errno == ECHILD) {
			/* orphans are adopted only from children, so without one nothing can come but by a fork */
			pthread_mutex_lock(&jobs->lock);
			while (jobs->forks == seen)
				pthread_cond_wait(&jobs->forked, &jobs->lock);
			pthread_mutex_unlock(&jobs->lock);
		}
	}
	return NULL;
}
