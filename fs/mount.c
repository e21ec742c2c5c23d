/* From `berthfs mount` to a served tree and back. The order matters: locks, then what a dead daemon left, then the
 * helper (forked while there is one thread and nothing is mounted), then the backend with all sessions, and the mount
 * last, so that nobody sees a tree that is not ready. Runs on the main thread, before and after the loop. */
#include "mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "instance.h"
#include "loop.h"
#include "mountinfo.h"
#include "ops.h"
#include "poke.h"
#include "service.h"
#include "watchers.h"

#define LOG_MAX (4 << 20) /* bytes of the log file; at a start past that it is put aside once */

struct mounting {
	const struct mount_options *opt;
	struct paths paths;
	char *dir; /* absolute */
	struct instance instance;
	struct poke poke;
	struct service service;
	int log_fd;    /* the log file, -1 in the foreground */
	int tell_fd;   /* standard error of the one who mounts, until the tree can be used; -1 in the foreground */
	int parent_fd; /* the process that waits for the tree to be usable, -1 in the foreground */
	struct face face;
};

static int say(const struct mounting *m, int code, const struct err *err)
{
	dprintf(m->tell_fd < 0 ? STDERR_FILENO : m->tell_fd, "berthfs: %s\n", err->text);
	return code;
}

/* ---- where ---- */

static int find_dir(struct mounting *m, struct err *err)
{
	const char *home = getenv("HOME");
	if (!m->opt->dir && (!home || home[0] != '/'))
		return err_set(err, ENOENT, "HOME is not set; say where to mount: berthfs mount DIR");
	CLEAN_FREE char *dir = m->opt->dir ? xstrdup(m->opt->dir) : xasprintf("%s/berth", home);
	m->dir = mount_resolve(dir);
	return m->dir ? 0 : err_sys(err, errno, "cannot find the parent of %s", dir);
}

/* Clears away a mount of ours whose daemon is dead; refuses to mount over another berthfs. */
static int clear_stale(const struct mounting *m, struct err *err)
{
	struct record r;
	struct mounted at;
	bool known = !record_read(&m->paths, &r);
	if (known && strcmp(r.dir, m->dir) && !mountinfo_at(r.dir, &at)) { /* it was mounted elsewhere then */
		if (mounted_is_ours(&at) && !strcmp(at.dev, r.dev))
			mount_detach(r.dir);
		mounted_release(&at);
	}
	int rc = 0;
	while (!rc && !mountinfo_at(m->dir, &at)) {
		bool fuse = !strcmp(at.type, FUSE_TYPE);
		/* Without a device in the record it died while it was mounting. */
		bool ours = known && mounted_is_ours(&at) && !strcmp(r.dir, m->dir) &&
			    (!r.dev[0] || !strcmp(at.dev, r.dev));
		mounted_release(&at);
		if (!fuse)
			break;
		if (!ours)
			rc = err_set(err, EBUSY,
				     "%s is the mount of another berthfs instance: choose another directory; or if "
				     "its daemon is dead, clear it away with `fusermount3 -uz %s`",
				     m->dir, m->dir);
		else if ((rc = mount_detach(m->dir)))
			err_sys(err, -rc, "cannot clear away the mount of a dead daemon at %s", m->dir);
	}
	record_release(&r);
	return rc;
}

static int check_empty(const char *path, struct err *err)
{
	DIR *dir = opendir(path);
	if (!dir)
		return errno == ENOTDIR ? err_set(err, ENOTDIR, "%s is no directory", path)
					: err_sys(err, errno, "cannot open %s", path);
	int entries = 0;
	while (entries <= 2 && readdir(dir))
		entries++;
	closedir(dir);
	return entries <= 2 ? 0
			    : err_set(err, ENOTEMPTY, "%s is not empty; mount on a new or an empty directory", path);
}

static int check_dir(const struct mounting *m, struct err *err)
{
	const char *const own[] = {m->paths.state, m->paths.cache, m->paths.runtime};
	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		if (path_is_in(m->dir, own[i]) || path_is_in(own[i], m->dir))
			return err_set(err, EINVAL,
				       "%s and berthfs's own folder %s are one in the other; mount elsewhere", m->dir,
				       own[i]);
	int rc = dir_make(m->dir, 0755, err);
	return rc ? rc : check_empty(m->dir, err);
}

static int check_projects(const struct mounting *m, struct err *err)
{
	const struct root_view *root = m->face.root;
	for (size_t i = 0; i < root->n_projects; i++)
		if (path_is_in(m->dir, root->projects[i].path))
			return err_set(err, EINVAL, "%s lies inside the project %s (%s); mount outside of it", m->dir,
				       root->projects[i].name, root->projects[i].path);
	return 0;
}

/* ---- the mount itself ---- */

static void log_fuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[1000];
	vsnprintf(text, sizeof text, fmt, ap);
	text[strcspn(text, "\n")] = 0;
	log_line(level <= FUSE_LOG_ERR ? LOG_ERROR : level == FUSE_LOG_WARNING ? LOG_WARN : LOG_DEBUG, "%s", text);
}

static void add_escaped(struct buf *out, const char *s)
{
	for (; *s; s++) {
		if (*s == ',' || *s == '\\')
			buf_addc(out, '\\');
		buf_addc(out, *s);
	}
}

static int mount_fuse(struct mounting *m, struct err *err)
{
	CLEAN_BUF struct buf options = BUF_INIT;
	struct mounted at;
	buf_adds(&options, "subtype=berthfs,nosuid,nodev,fsname=");
	const char *fsname = m->opt->fsname ? m->opt->fsname : "berthfs";
	add_escaped(&options, m->opt->source ? m->opt->source : fsname);
	buf_adds(&options, m->opt->allow_other ? ",allow_other" : "");
	char name[] = "berthfs", o[] = "-o";
	char *argv[] = {name, o, options.p, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	fuse_set_log_func(log_fuse);
	m->face.se = fuse_session_new(&args, &face_ops, sizeof face_ops, &m->face);
	fuse_opt_free_args(&args);
	if (!m->face.se)
		return err_set(err, EINVAL, "libfuse refuses the mount options");
	int rc = record_write(&m->paths, m->dir, "", err);
	if (rc)
		return rc;
	if (fuse_session_mount(m->face.se, m->dir))
		return err_set(err, ENODEV,
			       "cannot mount at %s: see the line above; is fuse3 installed, and may you open "
			       "/dev/fuse? `berthfs doctor` looks",
			       m->dir);
	rc = mountinfo_at(m->dir, &at);
	if (rc)
		return err_sys(err, -rc, "cannot find the new mount %s in /proc/self/mountinfo", m->dir);
	rc = record_write(&m->paths, m->dir, at.dev, err);
	if (!rc && (rc = poke_mounted(&m->poke, m->dir, at.dev)))
		err_sys(err, -rc, "the helper does not answer");
	mounted_release(&at);
	return rc;
}

/* ---- background ---- */

static int open_log(const struct paths *paths)
{
	CLEAN_FREE char *path = xasprintf("%s/log", paths->state);
	CLEAN_FREE char *aside = xasprintf("%s/log.old", paths->state);
	struct stat st;
	if (!stat(path, &st) && st.st_size > LOG_MAX)
		rename(path, aside);
	return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* The tree can be used: lets go of the terminal and of the process that waits. */
static void on_usable(void *arg)
{
	struct mounting *m = arg;
	if (m->parent_fd < 0) {
		log_info("mounted at %s", m->dir);
		service_ready(&m->service, m->dir);
		return;
	}
	fd_close(&m->tell_fd);
	log_info("mounted at %s", m->dir);
	service_ready(&m->service, m->dir);
	ssize_t n = write(m->parent_fd, "+", 1);
	(void)n;
	fd_close(&m->parent_fd);
}

/* Forks. In the child returns -1; in the parent the exit code, once the child says that the tree is usable or ends. */
static int to_background(struct mounting *m)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) || (m->log_fd = open_log(&m->paths)) < 0) {
		fprintf(stderr, "berthfs: cannot write the log in %s: %s\n", m->paths.state, strerror(errno));
		return EX_CANTCREAT;
	}
	pid_t pid = fork();
	if (pid < 0) {
		fprintf(stderr, "berthfs: cannot fork: %s\n", strerror(errno));
		return EX_OSERR;
	}
	if (!pid) {
		close(fds[0]);
		m->parent_fd = fds[1];
		setsid();
		/* The gateway starts meanwhile, and outlives us: it must not hold the pipe of a shell that waits. */
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		m->tell_fd = fcntl(2, F_DUPFD_CLOEXEC, 3);
		dup2(null, 0);
		dup2(null, 1);
		dup2(m->log_fd, 2);
		fd_close(&null);
		return -1;
	}
	close(fds[1]);
	char c;
	int status = 0;
	if (read(fds[0], &c, 1) == 1)
		return 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status))
		return WEXITSTATUS(status) ? WEXITSTATUS(status) : EX_SOFTWARE;
	fprintf(stderr, "berthfs: the daemon was killed by signal %d; see %s/log\n", WTERMSIG(status), m->paths.state);
	return EX_SOFTWARE;
}

static void block_signals(void)
{
	sigset_t set;
	sigfillset(&set); /* threads inherit it; the loop reads what it wants from a signalfd */
	const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
	for (size_t i = 0; i < ARRAY_LEN(faults); i++)
		sigdelset(&set, faults[i]);
	sigprocmask(SIG_SETMASK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* ---- the whole ---- */

static int backend_exit_code(int rc)
{
	return rc == -EINVAL ? EX_CONFIG : rc == -EBUSY ? EX_UNAVAILABLE : EX_IOERR;
}

static void take_down(struct mounting *m, bool mounted)
{
	struct face *f = &m->face;
	record_remove(&m->paths); /* whoever looks sees: finishing */
	service_stopping(&m->service);
	if (mounted)
		fuse_session_unmount(f->se);
	if (f->backend)
		backend_stop(f->backend);
	face_release(f);
	if (f->se)
		fuse_session_destroy(f->se);
	poke_stop(&m->poke);
}

static int start_and_serve(struct mounting *m)
{
	struct err err = ERR_INIT;
	struct face *f = &m->face;
	bool mounted = false;
	int code = EX_OSERR;
	f->paths = &m->paths;
	f->mount = m->dir;
	f->uid = getuid();
	f->gid = getgid();
	f->allow_other = m->opt->allow_other;
	f->usable = on_usable;
	f->usable_arg = m;
	block_signals();
	int rc = face_init(f);
	if (rc) {
		err_sys(&err, -rc, "cannot start");
		goto out;
	}
	const struct backend_options options = {.paths = &m->paths,
						.notes = &f->notes,
						.mount = m->dir,
						.log_fd = m->log_fd > 2 ? m->log_fd : 0,
						.gateway = true};
	rc = backend_start(&options, &f->backend, &err);
	if (rc) {
		code = backend_exit_code(rc);
		goto out;
	}
	rc = face_load(f);
	if (rc) {
		err_sys(&err, -rc, "the sessions could not be read");
		goto out;
	}
	watchers_start(f, &m->poke);
	code = EX_CANTCREAT;
	if ((rc = check_projects(m, &err)))
		goto out;
	code = EX_OSERR;
	rc = mount_fuse(m, &err);
	mounted = f->se && fuse_session_fd(f->se) >= 0;
	if (!rc && (rc = face_run(f)))
		err_sys(&err, -rc, "the loop has failed");
out:
	if (rc)
		say(m, code, &err);
	take_down(m, mounted);
	return rc ? code : EX_OK;
}

int mount_main(const struct mount_options *opt)
{
	struct err err = ERR_INIT;
	struct mounting m = {.opt = opt, .instance = {-1, -1}, .log_fd = -1, .tell_fd = -1, .parent_fd = -1};
	if (paths_init(&m.paths, &err))
		return say(&m, EX_OSERR, &err);
	service_init(&m.service);
	int code = find_dir(&m, &err) ? say(&m, EX_NOINPUT, &err) : -1;
	if (code < 0 && !opt->foreground)
		code = to_background(&m);
	if (code < 0 && instance_claim(&m.paths, &m.instance, &err))
		code = say(&m, EX_UNAVAILABLE, &err);
	if (code < 0 && clear_stale(&m, &err))
		code = say(&m, err.code == EBUSY ? EX_UNAVAILABLE : EX_OSERR, &err);
	if (code < 0 && check_dir(&m, &err))
		code = say(&m, EX_CANTCREAT, &err);
	if (code < 0 && chdir("/"))
		code = EX_OSERR;
	if (code < 0 && poke_start(m.instance.helper_fd, m.log_fd < 0 ? 2 : m.log_fd, !opt->nowatch, &m.poke, &err))
		code = say(&m, EX_OSERR, &err);
	if (code < 0)
		code = start_and_serve(&m);
	instance_release(&m.instance);
	fd_close(&m.log_fd);
	free(m.dir);
	service_release(&m.service);
	paths_release(&m.paths);
	return code;
}
