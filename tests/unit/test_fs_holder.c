/* Does anybody still hold an open file? With real processes and an ordinary file, known by its inode number. */
#include "fs/holder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/clock.h"
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

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

TEST(opener_holds)
{
	struct file_held f = open_file();
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_YES);
	close(f.fd);
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_NO);
	writers_release(&f.w);
}

TEST(child_born_since_holds)
{
	struct file_held f = open_file();
	pid_t bystander = child(f.fd, false);
	pid_t pid = child(f.fd, true);
	close(f.fd);
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_YES);
	end(pid);
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_NO);
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
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_YES);
	kill(pid, SIGKILL);
	while (!kill(pid, 0) && holder_look(&f.w, getpid(), f.ino) == HELD_YES)
		clock_sleep_ms(1);
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_NO);
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
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_NO); /* the known gap */
	writers_note(&f.w, pid);
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_YES);
	end(pid);
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_NO);
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

/* The pid counter has wrapped, or so many were born that /proc is listed instead. */
TEST(wide_ranges)
{
	struct file_held f = open_file();
	pid_t pid = child(f.fd, true);
	close(f.fd);
	f.w.last_pid = 1; /* many */
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_YES);
	f.w.last_pid = 1 << 22; /* wrapped */
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_YES);
	end(pid);
	CHECK_INT(holder_look(&f.w, getpid(), f.ino), HELD_NO);
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
