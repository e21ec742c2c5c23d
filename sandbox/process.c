/* Processes that outlive this one. Any thread of a program with threads: between fork and exec only
 * async-signal-safe calls. */
#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/buf.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"

unsigned long long process_start(pid_t pid)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *path = xasprintf("/proc/%d/stat", (int)pid);
	if (file_read(path, &b, 4096, NULL))
		return 0;
	/* The name, field 2, may hold anything but ends at the last parenthesis; the state is field 3, the start time
	 * field 22. One that nobody has waited for yet has ended all the same. */
	char *at = strrchr(buf_str(&b), ')');
	if (at && (!strncmp(at, ") Z", 3) || !strncmp(at, ") X", 3)))
		return 0;
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

pid_t process_alive(const char *pid_file)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	int pid;
	unsigned long long start;
	if (file_read(pid_file, &b, 256, NULL) || sscanf(buf_str(&b), "%d %llu", &pid, &start) != 2 || pid <= 0)
		return 0;
	return start && process_start(pid) == start ? pid : 0;
}

/* What a program of ours needs; everything else of the caller's environment may be a secret. */
static bool kept(const char *entry)
{
	static const char *const names[] = {"PATH",   "HOME",	  "USER",   "LOGNAME",	    "LANG",
					    "LC_ALL", "LC_CTYPE", "TMPDIR", "BERTHFS_DEBUG"};
	size_t n = strcspn(entry, "=");
	if (!strncmp(entry, "XDG_", 4))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strlen(names[i]) == n && !strncmp(names[i], entry, n))
			return true;
	return false;
}

static char **environment(void)
{
	extern char **environ;
	size_t n = 0, m = 0;
	while (environ[n])
		n++;
	char **env = xcalloc(n + 1, sizeof *env);
	for (size_t i = 0; i < n; i++)
		if (kept(environ[i]))
			env[m++] = environ[i];
	return env;
}

/* In the first child: makes the second, which init adopts, and ends. */
static void become(const char *const *argv, char **env, int null, int log, int status)
{
	sigset_t none;
	sigemptyset(&none);
	setsid();
	if (fork())
		_exit(0);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	const int fds[] = {null, log, log, status};
	for (int i = 0; i < 4; i++)
		dup2(fds[i], i);
	close_range(4, ~0U, 0);
	if (!chdir("/"))
		execve(argv[0], (char *const *)(uintptr_t)argv, env);
	static const char words[] = "error cannot run the program again: was it moved?\n";
	ssize_t r = write(PROCESS_STATUS_FD, words, sizeof words - 1);
	(void)r;
	_exit(127);
}

static int high(int fd)
{
	int up = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);
	fd_close(&fd);
	return up;
}

int process_detach(const char *const *argv, const char *log_path, struct err *err)
{
	int pair[2];
	if (pipe2(pair, O_CLOEXEC))
		return err_sys(err, errno, "cannot start %s", argv[0]);
	CLEAN_FD int status = high(pair[1]);
	CLEAN_FD int result = pair[0];
	CLEAN_FD int null = high(open("/dev/null", O_RDWR | O_CLOEXEC));
	CLEAN_FD int log = high(open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
	CLEAN_FREE char **env = environment();
	if (log < 0)
		return err_sys(err, errno, "cannot write %s", log_path);
	pid_t pid = fork();
	if (pid == 0)
		become(argv, env, null, log, status);
	if (pid < 0)
		return err_sys(err, errno, "cannot start %s", argv[0]);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return take_fd(&result);
}

/* Who only looks whether the lock is free has the file open as well; the kernel tells by which descriptor it is held.
 */
static bool is_locked_by(const char *pid, const char *fd)
{
	CLEAN_FREE char *path = xasprintf("/proc/%s/fdinfo/%s", pid, fd);
	CLEAN_BUF struct buf b = BUF_INIT;
	return !file_read(path, &b, 65536, NULL) && strstr(buf_str(&b), "FLOCK");
}

/* Of the attributes that are known already: what a descriptor of a stranger leads to may be on a mount whose server
 * does not answer. */
static bool same_file(int dir, const char *fd, const struct stat *file)
{
	struct statx x;
	return !statx(dir, fd, AT_STATX_DONT_SYNC, STATX_INO, &x) && x.stx_ino == file->st_ino &&
	       makedev(x.stx_dev_major, x.stx_dev_minor) == file->st_dev;
}

static bool holds(const char *pid, const struct stat *file)
{
	CLEAN_FREE char *dir = xasprintf("/proc/%s/fd", pid);
	bool found = false;
	DIR *d = opendir(dir);
	for (struct dirent *e; d && !found && (e = readdir(d));)
		found = e->d_name[0] != '.' && is_locked_by(pid, e->d_name) && same_file(dirfd(d), e->d_name, file);
	if (d)
		closedir(d);
	return found;
}

int process_kill_holders(const char *path)
{
	struct stat file;
	int n = 0;
	DIR *d = stat(path, &file) ? NULL : opendir("/proc");
	for (struct dirent *e; d && (e = readdir(d));) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (pid > 1 && pid != getpid() && holds(e->d_name, &file))
			n += !kill(pid, SIGKILL);
	}
	if (d)
		closedir(d);
	return n;
}

bool process_report(const char *words, const char *more)
{
	CLEAN_FREE char *line = xasprintf("%s%s\n", words, more);
	bool told = !fd_write_full(PROCESS_STATUS_FD, line, strlen(line));
	close(PROCESS_STATUS_FD);
	return told;
}
