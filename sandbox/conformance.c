/* `berthfs conformance KIND`: one suite of cases against env, the same for every kind of sandbox. It makes a sandbox in
 * an instance of its own (a folder in the state folder), so that no session and no daemon has anything to do with it,
 * and takes it away at the end, also after a signal. The cases run in a child process; the parent only waits and tidies
 * up. Must never touch a sandbox that it has not made. */
#include "conformance.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"

#define FOLDER	"conformance." /* start of an instance's name in the state folder */
#define BOOT_MS 180000
#define ID	1

/* ---- what cases use ---- */

char *conf_path(const struct conf *c, const char *name)
{
	return xasprintf("%s/%s", c->dir, name);
}

char *conf_job(struct conf *c)
{
	return xasprintf("conf.%d.%d", c->number, ++c->serial);
}

bool conf_fail(struct conf *c, const char *what, int line)
{
	if (!c->skipped)
		snprintf(c->why, sizeof c->why, "line %d: %s%s%s", line, what, c->err.code ? ": " : "", c->err.text);
	return false;
}

int conf_start(struct conf *c, const char *job, const char *script, int timeout_ms)
{
	struct env_exec exec = {.job = job,
				.argv = (const char *const[]){"/bin/bash", "-c", script, NULL},
				.cwd = c->dir,
				.timeout_ms = timeout_ms};
	return env_start(c->env, &exec, &c->err);
}

int conf_wait(struct conf *c, const char *job, struct env_job *out)
{
	return env_wait(c->env, job, CASE_MS, NULL, out, &c->err);
}

int conf_sh(struct conf *c, const char *script)
{
	CLEAN_FREE char *job = conf_job(c);
	struct env_exec exec = {.job = job,
				.argv = (const char *const[]){"/bin/sh", "-c", script, NULL},
				.cwd = c->dir,
				.timeout_ms = CASE_MS};
	buf_reset(&c->out);
	return env_run(c->env, &exec, NULL, 4 << 20, &c->out, &c->err);
}

bool conf_holds(struct conf *c, const char *name, const void *p, size_t n)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *path = conf_path(c, name);
	return !env_read(c->env, path, 0, n + 16, &b, &c->err) && b.n == n && (!n || !memcmp(b.p, p, n));
}

bool conf_put(struct conf *c, const char *name, const char *text)
{
	CLEAN_FREE char *path = conf_path(c, name);
	return !env_write(c->env, path, text, strlen(text), ENV_WRITE_PARENTS, &c->err);
}

/* ---- the instance ---- */

struct instance {
	struct paths paths; /* all but state and runtime are the user's */
	char *kind, *note;  /* the file that says which kind is inside, for whoever tidies up after a kill */
	int lock;
};

static void say(void *arg, const char *line)
{
	printf("# %s\n", line);
	fflush(stdout);
}

static void instance_release(struct instance *in)
{
	free(in->paths.state);
	free(in->paths.runtime);
	free(in->kind);
	free(in->note);
	fd_close(&in->lock);
}

/* The folder is locked as long as its process lives. */
static int instance_open(const struct paths *paths, const char *folder, struct instance *in, struct err *err)
{
	*in = (struct instance){.paths = *paths, .lock = -1};
	in->paths.state = xstrdup(folder);
	in->paths.runtime = xasprintf("%s/run", folder);
	in->note = xasprintf("%s/kind", folder);
	in->lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (in->lock < 0 || flock(in->lock, LOCK_EX | LOCK_NB))
		return err_sys(err, errno, "cannot lock %s", folder);
	return 0;
}

static int instance_end(struct instance *in, struct err *err)
{
	int rc = in->kind ? sandbox_destroy(&in->paths, in->kind, ID, err) : 0;
	return rc ? rc : dir_remove(in->paths.state, err);
}

/* What a run that was killed has left. */
static void sweep(const struct paths *paths)
{
	DIR *d = opendir(paths->state);
	for (struct dirent *e; d && (e = readdir(d));) {
		struct instance in;
		CLEAN_BUF struct buf kind = BUF_INIT;
		CLEAN_FREE char *folder = xasprintf("%s/%s", paths->state, e->d_name);
		if (strncmp(e->d_name, FOLDER, strlen(FOLDER)) != 0)
			continue;
		if (!instance_open(paths, folder, &in, NULL)) {
			if (!file_read(in.note, &kind, 400, NULL))
				in.kind = xstrdup(buf_str(&kind));
			instance_end(&in, NULL);
		}
		instance_release(&in);
	}
	if (d)
		closedir(d);
}

static int instance_begin(const struct paths *paths, const char *kind, struct instance *in, struct err *err)
{
	CLEAN_FREE char *folder = xasprintf("%s/" FOLDER "XXXXXX", paths->state);
	if (!mkdtemp(folder))
		return err_sys(err, errno, "cannot make a folder in %s", paths->state);
	int rc = instance_open(paths, folder, in, err);
	rc = rc ? rc : dir_make(in->paths.runtime, 0700, err);
	rc = rc ? rc : file_write(in->note, kind, strlen(kind), 0600, err);
	if (!rc)
		in->kind = xstrdup(kind);
	return rc;
}

/* ---- running ---- */

/* The case before may have broken the connection, which was its own failure. */
static bool connected(struct conf *c)
{
	if (c->env && !env_lost(c->env))
		return true;
	env_close(c->env);
	c->env = NULL;
	return !env_open(c->paths, c->kind, c->id, NULL, &c->env, &c->err) || conf_fail(c, "connect again", __LINE__);
}

static bool run_case(struct conf *c, const struct conf_case *k, const char *base)
{
	CLEAN_FREE char *dir = xasprintf("%s/%d", base, c->number);
	c->dir = dir;
	c->serial = 0;
	c->err = ERR_INIT;
	c->skipped = false;
	*c->why = 0;
	int64_t start = clock_mono_us();
	bool ok = connected(c) && k->run(c);
	printf("%s %s (%.1f ms)",
	       ok	    ? "ok"
	       : c->skipped ? "skip"
			    : "not ok",
	       k->name, (double)(clock_mono_us() - start) / 1000);
	printf(ok ? "\n" : ": %s\n", c->why);
	fflush(stdout);
	return ok || c->skipped;
}

/* The folder of all cases, with one for each in it: in the sandbox's home, which goes with the sandbox, also if this
 * run is killed. */
static int make_folders(struct conf *c, int n, char **base)
{
	CLEAN_FREE char *script =
		xasprintf("umask 077; d=$(mktemp -d \"$PWD/conformance-XXXXXX\") && cd \"$d\" && i=0 && while "
			  "[ $i -lt %d ]; do i=$((i+1)); mkdir $i || exit 1; done; pwd -P",
			  n);
	c->dir = env_home(c->env);
	int rc = conf_sh(c, script);
	if (rc)
		return rc < 0 ? rc : err_set(&c->err, EIO, "no folders can be made inside: %s", buf_str(&c->out));
	*base = xstrndup(buf_str(&c->out), strcspn(buf_str(&c->out), "\n"));
	return 0;
}

static int run_cases(struct conf *c)
{
	static const struct conf_case *const tables[] = {conf_files, conf_jobs};
	int total = 0, bad = 0, left_out = 0;
	for (size_t t = 0; t < ARRAY_LEN(tables); t++)
		for (const struct conf_case *k = tables[t]; k->name; k++)
			total++;
	CLEAN_FREE char *base = NULL;
	int64_t start = clock_mono_us();
	int rc = make_folders(c, total, &base);
	if (rc) {
		fprintf(stderr, "berthfs: %s\n", c->err.text);
		return EX_IOERR;
	}
	for (size_t t = 0; t < ARRAY_LEN(tables); t++)
		for (const struct conf_case *k = tables[t]; k->name; k++) {
			c->number++;
			bad += !run_case(c, k, base);
			left_out += c->skipped;
		}
	double seconds = (double)(clock_mono_us() - start) / 1e6;
	CLEAN_FREE char *remove = xasprintf("rm -rf '%s'", base);
	c->dir = "/";
	if (connected(c))
		conf_sh(c, remove);
	printf("%s: %d cases, %d failed, %d left out, %.2f s\n", c->kind, total, bad, left_out, seconds);
	return bad ? EX_SOFTWARE : EX_OK;
}

/* In the child. */
static int run_suite(struct instance *in)
{
	struct conf c = {.paths = &in->paths, .kind = in->kind, .id = ID};
	struct sandbox_spec spec = {.paths = &in->paths,
				    .kind = in->kind,
				    .id = ID,
				    .name = "conformance",
				    .size = "mini",
				    .boot_timeout_ms = BOOT_MS,
				    .progress = say};
	int64_t start = clock_mono_ms();
	int rc = sandbox_up(&spec, &c.err);
	rc = rc ? rc : env_open(c.paths, c.kind, c.id, NULL, &c.env, &c.err);
	if (rc) {
		fprintf(stderr, "berthfs: %s\n", c.err.text);
		return EX_UNAVAILABLE;
	}
	printf("# ready after %.2f s\n", (double)(clock_mono_ms() - start) / 1000);
	rc = run_cases(&c);
	env_close(c.env);
	buf_release(&c.out);
	return rc;
}

static volatile sig_atomic_t told;

static void on_signal(int sig)
{
	told = sig;
}

/* Waits for the child; a signal to us ends it, and then there is only tidying up to do. */
static int watch_child(pid_t pid)
{
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		if (told)
			kill(pid, SIGKILL);
	if (!told && WIFSIGNALED(status))
		fprintf(stderr, "berthfs: the suite itself was ended by signal %d\n", WTERMSIG(status));
	return told ? 128 + told : WIFEXITED(status) ? WEXITSTATUS(status) : EX_SOFTWARE;
}

static int run_instance(struct instance *in)
{
	const struct sigaction act = {.sa_handler = on_signal};
	for (int i = 0; i < 3; i++)
		sigaction((const int[]){SIGINT, SIGTERM, SIGHUP}[i], &act, NULL);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < 3; i++)
			signal((const int[]){SIGINT, SIGTERM, SIGHUP}[i], SIG_IGN); /* of a terminal: the parent's */
		int rc = run_suite(in);
		fflush(stdout);
		_exit(rc);
	}
	return pid < 0 ? EX_OSERR : watch_child(pid);
}

int sandbox_conformance_main(const struct paths *paths, int argc, char **argv)
{
	struct instance in;
	struct err err = ERR_INIT;
	if (argc != 2 || argv[1][0] == '-')
		return EX_USAGE;
	sweep(paths);
	int rc = sandbox_possible(argv[1], &err);
	if (rc) {
		fprintf(stderr, "berthfs: %s\n", err.text);
		return EX_UNAVAILABLE;
	}
	rc = instance_begin(paths, argv[1], &in, &err);
	int code = rc ? EX_OSERR : run_instance(&in);
	if (rc || (rc = instance_end(&in, &err))) {
		fprintf(stderr, "berthfs: %s\n", err.text);
		code = code ? code : EX_OSERR;
	}
	instance_release(&in);
	return code;
}
