/* Processes that outlive their starter: what they inherit, and how they are told apart. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/process.h"

TEST(start_times)
{
	char path[] = "/tmp/test-process-XXXXXX";
	CLEAN_FD int fd = mkstemp(path);
	CHECK(fd >= 0);
	CHECK(process_start(getpid()) > 0);
	CHECK_INT(process_start(0x7ffffff0), 0);
	CLEAN_FREE char *self = xasprintf("%d %llu\n", (int)getpid(), process_start(getpid()));
	CLEAN_FREE char *other = xasprintf("%d %llu\n", (int)getpid(), process_start(getpid()) + 1);
	CHECK_INT(process_alive("/nonexistent"), 0);
	CHECK_INT(file_write(path, self, strlen(self), 0600, NULL), 0);
	CHECK_INT(process_alive(path), getpid());
	CHECK_INT(file_write(path, other, strlen(other), 0600, NULL), 0);
	CHECK_INT(process_alive(path), 0); /* the pid was given to another process */
	CHECK_INT(file_write(path, "nonsense", 8, 0600, NULL), 0);
	CHECK_INT(process_alive(path), 0);
	unlink(path);
}

/* Whoever should wait for it may be slow. */
TEST(ended_but_not_waited_for)
{
	char path[] = "/tmp/test-process-XXXXXX";
	CLEAN_FD int fd = mkstemp(path);
	siginfo_t info;
	int status;
	pid_t pid = fork();
	if (!pid)
		for (;;)
			pause();
	CHECK(fd >= 0 && pid > 0);
	CLEAN_FREE char *line = xasprintf("%d %llu\n", (int)pid, process_start(pid));
	CHECK_INT(file_write(path, line, strlen(line), 0600, NULL), 0);
	CHECK_INT(process_alive(path), pid);
	kill(pid, SIGKILL);
	CHECK_INT(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	CHECK_INT(process_alive(path), 0);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	unlink(path);
}

/* A child that begins with that and then stays as it is; 0: it could not. */
static pid_t stays(bool (*begin)(const char *path), const char *path)
{
	int ready[2], ok = 0;
	if (pipe(ready))
		return 0;
	pid_t pid = fork();
	if (!pid) {
		ok = begin(path);
		(void)!write(ready[1], &ok, sizeof ok);
		for (;;)
			pause();
	}
	if (read(ready[0], &ok, sizeof ok) != sizeof ok)
		ok = 0;
	close(ready[0]);
	close(ready[1]);
	if (ok)
		return pid;
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	return 0;
}

static bool opens(const char *path)
{
	return open(path, O_RDWR | O_CLOEXEC) >= 0;
}

static bool locks(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	return fd >= 0 && !flock(fd, LOCK_EX);
}

TEST(holders_of_a_lock)
{
	char path[] = "/tmp/test-process-XXXXXX", other[] = "/tmp/test-process-XXXXXX";
	CLEAN_FD int fd = mkstemp(path);
	CLEAN_FD int fd2 = mkstemp(other);
	int status = 0;
	CHECK(fd >= 0 && fd2 >= 0);
	pid_t looks = stays(opens, path), elsewhere = stays(locks, other);
	CHECK(looks > 0 && elsewhere > 0);
	CHECK_INT(process_kill_holders(path), 0);
	pid_t holder = stays(locks, path);
	CHECK(holder > 0);
	CHECK_INT(process_kill_holders(path), 1);
	CHECK(waitpid(holder, &status, 0) == holder && WIFSIGNALED(status));
	CHECK_INT(waitpid(looks, &status, WNOHANG), 0);
	CHECK_INT(waitpid(elsewhere, &status, WNOHANG), 0);
	kill(looks, SIGKILL);
	kill(elsewhere, SIGKILL);
	waitpid(looks, &status, 0);
	waitpid(elsewhere, &status, 0);
	unlink(path);
	unlink(other);
}

/* A descriptor on a mount that is never served. */
static bool mounts(const char *dir)
{
	char options[100];
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	return fuse >= 0 && !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("dead", dir, "fuse", MS_NOSUID | MS_NODEV, options) && open(dir, O_PATH | O_CLOEXEC) >= 0;
}

TEST(a_mount_that_does_not_answer)
{
	char path[] = "/tmp/test-process-XXXXXX", dir[] = "/tmp/test-process-XXXXXX";
	CLEAN_FD int fd = mkstemp(path);
	int status = -1;
	CHECK(fd >= 0 && mkdtemp(dir));
	pid_t dead = stays(mounts, dir), looks = dead ? fork() : 0;
	if (dead && !looks)
		_exit(process_kill_holders(path));
	if (dead) {
		for (int64_t end = clock_mono_ms() + 60000; clock_mono_ms() < end; clock_sleep_ms(10))
			if (waitpid(looks, &status, WNOHANG))
				break;
		CHECK_INT(status, 0);
		kill(looks, SIGKILL);
		kill(dead, SIGKILL); /* and the mount is gone */
		waitpid(dead, &status, 0);
	} else {
		printf("# no mount can be made here\n");
	}
	unlink(path);
	rmdir(dir);
}

/* The detached shell says all about itself on descriptor 3. */
TEST(detached_inherits_nothing)
{
	char log[] = "/tmp/test-process-XXXXXX";
	CLEAN_FD int made = mkstemp(log);
	CLEAN_FD int leaked = dup(made); /* not close-on-exec */
	CLEAN_BUF struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	CHECK(made >= 0 && leaked >= 0);
	setenv("SECRET_API_KEY", "sk-1", 1);
	setenv("XDG_TEST", "kept", 1);
	const char *argv[] = {"/bin/sh", "-c",
			      "{ env; ls -l /proc/$$/fd; echo \"session $(cut -d' ' -f6 /proc/$$/stat)\"; pwd; } >&3; "
			      "echo words; echo more >&2; exec 3>&-",
			      NULL};
	CLEAN_FD int fd = process_detach(argv, log, &err);
	CHECK(fd >= 0);
	CHECK_INT(fd_read_all(fd, &out, 1 << 20), 0);
	CHECK(strstr(buf_str(&out), "SECRET") == NULL);
	CHECK(strstr(buf_str(&out), "XDG_TEST=kept\n") != NULL);
	CHECK(strstr(buf_str(&out), "PATH=") != NULL);
	CHECK(strstr(buf_str(&out), " 0 -> /dev/null") != NULL);
	CHECK(strstr(buf_str(&out), " 4 -> ") == NULL);
	CHECK(buf_ends(&out, "\n/\n"));
	CLEAN_FREE char *ours = xasprintf("session %d\n", (int)getsid(0));
	CHECK(strstr(buf_str(&out), "session ") != NULL && strstr(buf_str(&out), ours) == NULL);
	/* the log has both streams, and nothing is left for us to wait for */
	CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
	buf_reset(&out);
	for (int i = 0; i < 500 && !strstr(buf_str(&out), "more\n"); i++) {
		buf_reset(&out);
		CHECK_INT(file_read(log, &out, 4096, NULL), 0);
		clock_sleep_ms(10);
	}
	CHECK_STR(buf_str(&out), "words\nmore\n");
	unlink(log);
}

TEST(missing_program_is_said)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	const char *argv[] = {"/nonexistent/program", NULL};
	struct err err = ERR_INIT;
	CLEAN_FD int fd = process_detach(argv, "/dev/null", &err);
	CHECK(fd >= 0);
	CHECK_INT(fd_read_all(fd, &out, 1 << 20), 0);
	CHECK(strstr(buf_str(&out), "error cannot run the program") == buf_str(&out));
	CHECK_INT(process_detach(argv, "/nonexistent/log", &err), -ENOENT);
}

CHECK_MAIN()
