/* Does anybody still hold an open file? With real processes and an ordinary file, known by its inode number. */
#include "fs/holder.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "check.h"

static char path[] = "/tmp/berthfs-holder-XXXXXX";

struct file_held {
	int fd;
	uint64_t ino;
	struct writers w;
};

static struct file_held open_file(void)
{
	struct file_held f = {.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
	struct stat st;
	fstat(f.fd, &st);
	f.ino = st.st_ino;
	writers_init(&f.w, getpid());
	return f;
}

/* A child that has closed the file, or holds it, until it is killed; ready when the pipe says so. */
static pid_t child(int fd, bool holds)
{
	int p[2];
	char c;
	if (pipe(p))
		return -1;
	pid_t pid = fork();
	if (!pid) {
		if (!holds)
			close(fd);
		if (write(p[1], "x", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	CHECK(read(p[0], &c, 1) == 1);
	close(p[0]);
	close(p[1]);
	return pid;
}

/* On a machine where new processes keep coming it cannot be told at times. */
static enum held look(const struct file_held *f)
{
	enum held held = HELD_UNKNOWN;
	for (int i = 0; i < 20 && held == HELD_UNKNOWN; i++)
		held = holder_look(&f->w, getpid(), f->ino);
	return held;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

TEST(opener_holds)
{
	struct file_held f = open_file();
	CHECK_INT(look(&f), HELD_YES);
	close(f.fd);
	CHECK_INT(look(&f), HELD_NO);
	writers_release(&f.w);
}

TEST(child_born_since_holds)
{
	struct file_held f = open_file();
	pid_t bystander = child(f.fd, false);
	pid_t pid = child(f.fd, true);
	close(f.fd);
	CHECK_INT(look(&f), HELD_YES);
	end(pid);
	CHECK_INT(look(&f), HELD_NO);
	end(bystander);
	writers_release(&f.w);
}

TEST(grandchild_of_a_dead_child_holds)
{
	struct file_held f = open_file();
	int p[2];
	pid_t pid;
	CHECK_INT(pipe(p), 0);
	pid_t middle = fork();
	if (!middle) {
		pid_t last = child(f.fd, true);
		_exit(write(p[1], &last, sizeof last) != sizeof last);
	}
	CHECK(read(p[0], &pid, sizeof pid) == sizeof pid);
	waitpid(middle, NULL, 0);
	close(f.fd);
	CHECK_INT(look(&f), HELD_YES);
	kill(pid, SIGKILL);
	while (!kill(pid, 0) && look(&f) == HELD_YES)
		clock_sleep_ms(1);
	CHECK_INT(look(&f), HELD_NO);
	close(p[0]);
	close(p[1]);
	writers_release(&f.w);
}

TEST(writer_from_before_is_known_when_it_writes)
{
	struct file_held f = {.fd = -1};
	int go[2], ready[2];
	char c;
	CHECK(!pipe(go) && !pipe(ready));
	pid_t pid = fork(); /* born before the open: only its write tells of it */
	if (!pid) {
		if (write(ready[1], "x", 1) == 1 && read(go[0], &c, 1) == 1 && open(path, O_RDWR) >= 0 &&
		    write(ready[1], "x", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	CHECK(read(ready[0], &c, 1) == 1); /* also the threads that a sanitizer gives it are there now */
	f = open_file();
	CHECK(write(go[1], "x", 1) == 1);
	CHECK(read(ready[0], &c, 1) == 1);
	close(f.fd);
	CHECK_INT(look(&f), HELD_NO); /* the known gap */
	writers_note(&f.w, pid);
	CHECK_INT(look(&f), HELD_YES);
	end(pid);
	CHECK_INT(look(&f), HELD_NO);
	writers_release(&f.w);
}

TEST(what_cannot_be_told)
{
	struct file_held f = open_file();
	CHECK_INT(holder_look(&f.w, 0, f.ino), HELD_UNKNOWN);
	writers_note(&f.w, 0); /* a writer in another pid namespace */
	close(f.fd);
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_UNKNOWN);
	writers_release(&f.w);
}

/* What an ordinary user's daemon tells, of a file that nobody holds, while a process of root's that was born since the
 * open sleeps for so long; its parent is an ancestor of ours. And in how many milliseconds. */
static enum held beside(int ms, bool hasty, int64_t *took)
{
	int ready[2], go[2], result[2];
	struct {
		enum held held;
		int64_t ms;
	} got = {HELD_YES, -1};
	char c;
	CHECK(!pipe(ready) && !pipe(go) && !pipe(result));
	pid_t user = fork();
	if (!user) {
		if (setgid(65534) || setuid(65534))
			_exit(1);
		clock_sleep_ms(20); /* births are told in ticks of 10 ms */
		struct file_held f = {.ino = 12345678901};
		writers_init(&f.w, getpid());
		f.w.hasty = hasty;
		if (write(ready[1], "x", 1) != 1 || read(go[0], &c, 1) != 1)
			_exit(1);
		int64_t from = clock_mono_ms();
		got.held = holder_look(&f.w, getpid(), f.ino);
		got.ms = clock_mono_ms() - from;
		_exit(write(result[1], &got, sizeof got) != sizeof got);
	}
	CHECK(read(ready[0], &c, 1) == 1);
	clock_sleep_ms(20);
	pid_t root = fork();
	if (!root) {
		clock_sleep_ms(ms);
		_exit(0);
	}
	signal(SIGCHLD, SIG_IGN); /* nobody has to be waited for: that one is gone when it ends */
	CHECK(write(go[1], "x", 1) == 1);
	CHECK(read(result[0], &got, sizeof got) == sizeof got);
	kill(root, SIGKILL);
	signal(SIGCHLD, SIG_DFL);
	waitpid(root, NULL, 0);
	waitpid(user, NULL, 0);
	const int fds[] = {ready[0], ready[1], go[0], go[1], result[0], result[1]};
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
	*took = got.ms;
	return got.held;
}

#define CANNOT 99

static _Noreturn void be_init(void)
{
	int64_t ms;
	if (mount("proc", "/proc", "proc", 0, NULL))
		_exit(CANNOT);
	int tries = 0; /* on a busy machine it may take its time to end */
	while (beside(100, false, &ms) != HELD_NO)
		if (++tries == 20)
			_exit(2);
	if (beside(100000, false, &ms) != HELD_UNKNOWN || ms < STRANGER_MS)
		_exit(3);
	_exit(beside(100000, true, &ms) == HELD_UNKNOWN ? 0 : 4);
}

TEST(strangers_are_waited_for_a_moment)
{
	int status;
	pid_t box = fork();
	if (!box) { /* in a pid namespace: who is born on the rest of the machine would be waited for, too */
		if (unshare(CLONE_NEWPID | CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
			_exit(CANNOT);
		pid_t init = fork();
		if (!init)
			be_init();
		_exit(waitpid(init, &status, 0) == init && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	CHECK_INT(waitpid(box, &status, 0), box);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != CANNOT)
		CHECK_INT(status, 0);
}

/* The pid counter has wrapped, or so many were born that /proc is listed instead. */
TEST(wide_ranges)
{
	struct file_held f = open_file();
	pid_t pid = child(f.fd, true);
	close(f.fd);
	f.w.last_pid = 1; /* many */
	CHECK_INT(look(&f), HELD_YES);
	f.w.last_pid = 1 << 22; /* wrapped */
	CHECK_INT(look(&f), HELD_YES);
	end(pid);
	CHECK_INT(look(&f), HELD_NO);
	writers_release(&f.w);
}

TEST(writers_are_counted_once_and_limited)
{
	struct writers w;
	writers_init(&w, getpid());
	for (int i = 0; i < 3; i++)
		writers_note(&w, getpid());
	CHECK_INT(w.n, 1);
	for (int i = 0; i < 100; i++)
		writers_note(&w, 4000000 + i); /* past the largest pid: none of them is there */
	CHECK(w.foreign);
	writers_release(&w);
}

__attribute__((constructor(101))) static void begin(void)
{
	int fd = mkstemp(path);
	if (fd >= 0)
		close(fd);
}

__attribute__((destructor)) static void tidy(void)
{
	unlink(path);
}

CHECK_MAIN()
