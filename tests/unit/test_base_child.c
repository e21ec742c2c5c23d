/* Running programs: their output, their end, and all the ways in which they do not end. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"

static struct buf out, errout;

/* c with its program replaced by `sh -c text`; both outputs are collected unless c says otherwise. */
static int run(const char *text, struct child c)
{
	const char *argv[] = {"/bin/sh", "-c", text, NULL};
	buf_reset(&out);
	buf_reset(&errout);
	c.argv = argv;
	if (!c.out)
		c.out = &out;
	if (!c.errout)
		c.errout = &errout;
	return child_run(&c, NULL);
}

TEST(output_and_exit_codes)
{
	CHECK_INT(run("echo out; echo err >&2; exit 7", (struct child){0}), 7);
	CHECK_STR(buf_str(&out), "out\n");
	CHECK_STR(buf_str(&errout), "err\n");
	CHECK_INT(run("true", (struct child){0}), 0);
	CHECK_INT(run("echo a; echo b >&2; echo c", (struct child){.errout = &out}), 0);
	CHECK_STR(buf_str(&out), "a\nb\nc\n");
	CHECK_INT(run("pwd", (struct child){.cwd = "/usr"}), 0);
	CHECK_STR(buf_str(&out), "/usr\n");
}

TEST(signals)
{
	CHECK_INT(run("kill -9 $$", (struct child){0}), 128 + 9);
	CHECK_INT(run("kill -15 $$", (struct child){0}), 128 + 15);
	/* what we ignore or block, the program does not inherit */
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	CHECK_INT(run("kill -13 $$", (struct child){0}), 128 + 13);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

TEST(programs_that_cannot_run)
{
	struct err err = ERR_INIT;
	const char *missing[] = {"berthfs-no-such-program", NULL}, *folder[] = {"/usr", NULL}, *good[] = {"true", NULL};
	CHECK_INT(child_run(&(struct child){.argv = missing}, &err), -ENOENT);
	CHECK(strstr(err.text, "berthfs-no-such-program"));
	CHECK_INT(child_run(&(struct child){.argv = folder}, &err), -EACCES);
	CHECK_INT(child_run(&(struct child){.argv = good, .cwd = "/no/such"}, &err), -ENOENT);
	CHECK(child_found("sh") && !child_found("berthfs-no-such-program"));
}

TEST(environment_and_descriptors)
{
	const char *env[] = {"BERTH_NEW=1", "BERTH_OLD=changed", "BERTH_GONE", NULL};
	setenv("BERTH_OLD", "old", 1);
	setenv("BERTH_GONE", "here", 1);
	setenv("BERTH_OLDER", "kept", 1);
	int leak = fcntl(0, F_DUPFD, 20); /* a descriptor that is not close-on-exec */
	CHECK_INT(run("echo $BERTH_NEW $BERTH_OLD ${BERTH_GONE-unset} $BERTH_OLDER; ls /proc/self/fd | wc -l; cat",
		      (struct child){.env = env}),
		  0);
	CHECK_STR(buf_str(&out), "1 changed unset kept\n4\n"); /* 0, 1, 2 and the one that ls reads the folder by */
	close(leak);
}

TEST(input)
{
	CLEAN_FREE char *big = xmalloc(3 << 20);
	memset(big, 'x', 3 << 20);
	CHECK_INT(run("wc -c", (struct child){.in = big, .in_n = 3 << 20}), 0);
	CHECK_STR(buf_str(&out), "3145728\n");
	CHECK_INT(run("cat", (struct child){.in = "", .in_n = 0}), 0);
	CHECK_STR(buf_str(&out), "");
	CHECK_INT(run("cat; cat >&2", (struct child){.in = big, .in_n = 1 << 20}),
		  0); /* output fills while input goes on */
	CHECK_INT(out.n, 1 << 20);
	CHECK_INT(run("exit 3", (struct child){.in = big, .in_n = 3 << 20}), 3); /* nobody reads it */
	CHECK_INT(run("exec <&-; echo still; exit 4", (struct child){.in = big, .in_n = 3 << 20}), 4);
	CHECK_STR(buf_str(&out), "still\n");
}

TEST(given_descriptors)
{
	FILE *f = tmpfile(), *to = tmpfile();
	fputs("skipped\nread\n", f);
	fflush(f);
	lseek(fileno(f), 8, SEEK_SET);
	CHECK_INT(run("cat", (struct child){.in_fd = fileno(f), .out_fd = fileno(to)}), 0);
	CHECK_STR(buf_str(&out), "");
	char text[20] = "";
	CHECK_INT(pread(fileno(to), text, 19, 0), 5);
	CHECK_STR(text, "read\n");
	fclose(f);
	fclose(to);
}

TEST(much_output_is_cut)
{
	CHECK_INT(run("head -c 3000000 /dev/zero | tr '\\0' x; head -c 500000 /dev/zero >&2",
		      (struct child){.max = 1000}),
		  0);
	CHECK_INT(out.n, 1000);
	CHECK_INT(errout.n, 1000);
	CHECK_INT(run("head -c 3000000 /dev/zero", (struct child){0}), 0);
	CHECK_INT(out.n, 3000000);
}

TEST(a_program_that_does_not_end)
{
	struct err err = ERR_INIT;
	int64_t from = clock_mono_ms();
	const char *argv[] = {"/bin/sh", "-c", "echo begun; sleep 100 & sleep 100", NULL};
	buf_reset(&out);
	CHECK_INT(child_run(&(struct child){.argv = argv, .out = &out, .timeout_ms = 2000}, &err), -ETIMEDOUT);
	CHECK(clock_mono_ms() - from >= 2000 && clock_mono_ms() - from < 60000);
	CHECK_STR(buf_str(&out), "begun\n");
	CHECK(strstr(err.text, "/bin/sh"));
	/* one that never stops writing */
	CHECK_INT(run("yes", (struct child){.timeout_ms = 200, .max = 10}), -ETIMEDOUT);
	/* the time runs also for one that closed its output */
	CHECK_INT(run("exec >&- 2>&-; exec sleep 100", (struct child){.timeout_ms = 200}), -ETIMEDOUT);
}

/* The whole group goes: no grandchild of a program that was killed writes any more. */
TEST(killed_with_its_children)
{
	char file[] = "/tmp/berthfs-child-XXXXXX";
	CLEAN_FD int fd = mkstemp(file);
	CLEAN_FREE char *text = xasprintf("(while :; do echo x >>%s; sleep 0.01; done) & wait", file);
	CHECK_INT(run(text, (struct child){.timeout_ms = 2000}), -ETIMEDOUT);
	off_t size = lseek(fd, 0, SEEK_END), before = -1;
	CHECK(size > 0);
	for (int i = 0; i < 100 && size != before; i++) { /* one that is killed in a write finishes that */
		before = size;
		clock_sleep_ms(100);
		size = lseek(fd, 0, SEEK_END);
	}
	CHECK_INT(size, before);
	unlink(file);
}

static atomic_bool cancelled;

static void *cancel_soon(void *arg)
{
	clock_sleep_ms(100);
	atomic_store(&cancelled, true);
	return NULL;
}

TEST(cancel)
{
	pthread_t t;
	int64_t from = clock_mono_ms();
	pthread_create(&t, NULL, cancel_soon, NULL);
	CHECK_INT(run("sleep 100", (struct child){.cancel = &cancelled}), -ECANCELED);
	CHECK(clock_mono_ms() - from < 60000);
	pthread_join(t, NULL);
}

/* A daemon that the program leaves behind holds its output: the program has ended all the same. */
TEST(a_grandchild_that_holds_the_output)
{
	int64_t from = clock_mono_ms();
	CHECK_INT(run("sleep 100 & echo pid $!; exit 5", (struct child){0}), 5);
	CHECK(clock_mono_ms() - from < 60000);
	CHECK(!strncmp(buf_str(&out), "pid ", 4));
	kill(atoi(buf_str(&out) + 4), SIGKILL);
	from = clock_mono_ms();
	CHECK_INT(run("yes & echo $! >&2", (struct child){.max = 100}), 0); /* and one that writes on and on */
	CHECK(clock_mono_ms() - from < 60000);
	kill(atoi(buf_str(&errout)), SIGKILL);
}

static void on_line(void *arg, const char *line)
{
	buf_addf(arg, "[%s]", line);
}

TEST(lines)
{
	CLEAN_BUF struct buf got = BUF_INIT;
	CHECK_INT(run("printf 'one\\ntwo\\r50%%\\r\\n\\nend'", (struct child){.line = on_line, .arg = &got}), 0);
	CHECK_STR(buf_str(&got), "[one][two][50%][end]");
	CHECK_STR(buf_str(&out), "one\ntwo\r50%\r\n\nend");
}

/* As many at once as there are workers: none gets another's descriptors. */
static void *run_many(void *arg)
{
	for (int i = 0; i < 20; i++) {
		CLEAN_BUF struct buf b = BUF_INIT;
		CLEAN_FREE char *text = xasprintf("%p-%d", arg, i);
		const char *argv[] = {"cat", NULL};
		if (child_run(
			    &(struct child){
				    .argv = argv, .in = text, .in_n = strlen(text), .out = &b, .timeout_ms = 120000},
			    NULL) ||
		    strcmp(buf_str(&b), text))
			return arg;
	}
	return NULL;
}

TEST(many_at_once)
{
	pthread_t t[8];
	char names[ARRAY_LEN(t)];
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		pthread_create(&t[i], NULL, run_many, &names[i]);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		void *failed;
		pthread_join(t[i], &failed);
		CHECK(!failed);
	}
}

int run_tests(void);
#define main run_tests
TEST(memory_is_limited)
{
	const char *argv[] = {"head", "-c", "1", "/dev/zero", NULL};
	const char *big[] = {"sh", "-c", "x=$(head -c 300000000 /dev/zero | tr '\\\\0' x); echo ${#x}", NULL};
	CLEAN_BUF struct buf said = BUF_INIT;
	struct child small = {.argv = argv, .memory = 100 << 20}, c = {.argv = big, .memory = 100 << 20, .out = &said};
	CHECK_INT(child_run(&small, NULL), 0);
	CHECK(child_run(&c, NULL) != 0 || strcmp(buf_str(&said), "300000000\n"));
}

static int runs_with(const char *mark, bool end)
{
	int n = 0;
	DIR *d = opendir("/proc");
	for (struct dirent *e; d && (e = readdir(d));) {
		CLEAN_FREE char *path = xasprintf("/proc/%s/cmdline", e->d_name);
		CLEAN_BUF struct buf b = BUF_INIT;
		if (atoi(e->d_name) <= 0 || file_read(path, &b, 65536, NULL) || !memmem(b.p, b.n, mark, strlen(mark)))
			continue;
		n++;
		if (end)
			kill(atoi(e->d_name), SIGKILL);
	}
	if (d)
		closedir(d);
	return n;
}

/* However little of it there is yet. */
TEST(a_jail_is_killed_whole)
{
	CLEAN_FREE char *mark = xasprintf("7%d%03d", (int)getpid(), (int)(clock_mono_ms() % 1000));
	const char *const argv[] = {
		"bwrap", "--unshare-user", "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/", "sleep", mark,
		NULL};
	for (int i = 0; i < 150; i++) {
		int status;
		pid_t pid = fork();
		if (!pid) {
			execvp(argv[0], (char *const *)(uintptr_t)argv);
			_exit(127);
		}
		nanosleep(&(struct timespec){.tv_nsec = i * 100000L}, NULL);
		child_kill_jail(pid);
		CHECK_INT(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	for (int64_t end = clock_mono_ms() + 60000; runs_with(mark, false) && clock_mono_ms() < end;)
		clock_sleep_ms(10);
	CHECK_INT(runs_with(mark, true), 0);
}

CHECK_MAIN()
#undef main

int main(void)
{
	signal(SIGPIPE, SIG_IGN); /* as the daemon does */
	int rc = run_tests();
	buf_release(&out);
	buf_release(&errout);
	return rc;
}
