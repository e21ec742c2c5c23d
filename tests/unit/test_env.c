/* Jobs through env: start, wait, output, kill, acknowledge. */
#include "env_box.h"

TEST(home_and_state)
{
	char words[64];
	struct env_stat st = {0};
	CHECK_INT(env_stat(box.env, "", &st, NULL), -ENOENT);
	CHECK_INT(env_stat(box.env, ".", &st, NULL), 0);
	CHECK_STR(st.real, env_home(box.env));
	CHECK(S_ISDIR(st.mode));
	free(st.real);
	CHECK_INT(sandbox_state(&box.paths, box.kind, BOX_ID), SANDBOX_RUNNING);
	sandbox_describe(&box.paths, box.kind, BOX_ID, SANDBOX_RUNNING, words);
	CHECK_STR(words, box.dir			 ? "dir running"
			 : strcmp(box.kind, "container") ? "vm running tcg"
							 : "container running");
	pid_t before = daemon_pid();
	CHECK_INT(up(), 0); /* takes over what runs */
	CHECK_INT(daemon_pid(), before);
}

TEST(exit_code_and_both_streams_in_order)
{
	CHECK_INT(run("a1", "echo one; echo two >&2; echo three; exit 5"), 5);
	CHECK_STR(buf_str(&box.out), "one\ntwo\nthree\n");
	CHECK_INT(run("a2", "kill -9 $$"), 137);
	CHECK_INT(run("a3", "exec 1>&- 2>&-; exit 3"), 3);
	CHECK_INT(run("a4", "read x; echo $?"), 0); /* standard input is at its end */
	CHECK_STR(buf_str(&box.out), "1\n");
}

TEST(reopened_streams)
{
	CHECK_INT(run("b1", "echo one; echo two > /dev/stderr; echo three | tee /dev/stderr; echo four > /dev/stdout"),
		  0);
	CHECK_STR(buf_str(&box.out), "one\ntwo\nthree\nthree\nfour\n");
}

TEST(environment_is_small_and_clean)
{
	setenv("BERTH_SECRET", "hunter2", 1);
	CHECK_INT(run("c1", "env; pwd"), 0);
	const char *s = buf_str(&box.out);
	CHECK(!strstr(s, "hunter2") && !strstr(s, "DAEMON_SECRET"));
	CHECK(strstr(s, "GIT_TERMINAL_PROMPT=0\n") && strstr(s, "PAGER=cat\n") && strstr(s, "NO_COLOR=1\n"));
	CLEAN_FREE char *home = xasprintf("HOME=%s\n", env_home(box.env));
	CLEAN_FREE char *cwd = xasprintf("\n%s\n", env_home(box.env));
	CHECK(strstr(s, home) && strstr(s, cwd));
}

TEST(argv_cwd_environ)
{
	CHECK_INT(run("d0", "mkdir -p sub"), 0);
	const char *argv[] = {"printf", "%s|", "$(touch x)", "`id`", "a b", "*", ";", "", NULL};
	const char *env[] = {"LANG=x", "FOO=bar baz", NULL};
	struct env_exec exec = {.job = "d1", .argv = argv, .cwd = "sub"};
	buf_reset(&box.out);
	CHECK_INT(env_run(box.env, &exec, NULL, 1000, &box.out, NULL), 0);
	CHECK_STR(buf_str(&box.out), "$(touch x)|`id`|a b|*|;||");
	const char *argv2[] = {"/bin/sh", "-c", "pwd | sed 's,.*/,,'; echo $FOO $LANG", NULL};
	exec = (struct env_exec){.job = "d2", .argv = argv2, .cwd = "sub", .environ = env};
	buf_reset(&box.out);
	CHECK_INT(env_run(box.env, &exec, NULL, 1000, &box.out, NULL), 0);
	CHECK_STR(buf_str(&box.out), "sub\nbar baz x\n");
}

TEST(unknown_program_and_bad_cwd)
{
	const char *nothing[] = {"no-such-program", NULL}, *path[] = {"/no/such/program", NULL}, *none[] = {NULL},
		   *data[] = {"/etc/passwd", NULL}, *ok[] = {"true", NULL};
	struct err err = ERR_INIT;
	struct env_job j;
	CHECK_INT(env_start(box.env, &(struct env_exec){.job = "e", .argv = nothing}, &err), -ENOENT);
	CHECK(strstr(err.text, "no-such-program"));
	CHECK_INT(env_start(box.env, &(struct env_exec){.job = "e", .argv = path}, &err), -ENOENT);
	CHECK_INT(env_start(box.env, &(struct env_exec){.job = "e", .argv = data}, &err), -EACCES);
	CHECK_INT(env_start(box.env, &(struct env_exec){.job = "e", .argv = none}, &err), -EINVAL);
	CHECK_INT(env_start(box.env, &(struct env_exec){.job = "e", .argv = ok, .cwd = "nowhere"}, &err), -ENOENT);
	CHECK_INT(env_start(box.env, &(struct env_exec){.job = "e", .argv = ok, .cwd = "/etc/passwd"}, &err), -ENOTDIR);
	CHECK_INT(env_start(box.env, &(struct env_exec){.job = "../e", .argv = ok}, &err), -EINVAL);
	CHECK_INT(env_start(box.env, &(struct env_exec){.job = "..", .argv = ok}, &err), -EINVAL);
	CHECK_INT(env_poll(box.env, "e", 0, 0, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_UNKNOWN);
	CHECK_INT(env_start(box.env, &(struct env_exec){.job = "e", .argv = ok}, &err), 0); /* the id is still free */
	CHECK_INT(wait_job(box.env, "e").exit_code, 0);
	CHECK_INT(env_ack(box.env, "e", false, NULL, NULL), 0);
}

TEST(start_twice_runs_once)
{
	CHECK_INT(start(box.env, "f", "echo x >> once; echo y", 0, NULL), 0);
	CHECK_INT(start(box.env, "f", "echo x >> once; echo y", 0, NULL), 0);
	CHECK_INT(wait_job(box.env, "f").state, ENV_JOB_EXITED);
	CHECK_INT(start(box.env, "f", "echo x >> once; echo y", 0, NULL), 0);
	struct env_job j = wait_job(box.env, "f");
	CHECK_INT(j.output, 2);
	CLEAN_BUF struct buf once = BUF_INIT;
	CHECK_INT(env_read(box.env, "once", 0, 100, &once, NULL), 0);
	CHECK_STR(buf_str(&once), "x\n");
	CHECK_INT(env_ack(box.env, "f", false, NULL, NULL), 0);
	CHECK_INT(env_ack(box.env, "f", false, NULL, NULL), 0);
	CHECK_INT(env_poll(box.env, "f", 0, 0, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_UNKNOWN);
}

TEST(background_child_holds_output)
{
	int64_t t = clock_mono_ms();
	CHECK_INT(run("g", "echo start; sleep 300 & echo $! > g.pid; echo end"), 0);
	CHECK(clock_mono_ms() - t < 60000);
	CHECK_STR(buf_str(&box.out), "start\nend\n");
	pid_t pid = pid_in("g.pid");
	CHECK(lives(pid));				 /* left alone */
	CHECK_INT(run("g2", "kill -9 $(cat g.pid)"), 0); /* not kill(): in a VM the number is another process here */
	CHECK(ends(pid));
}

TEST(background_child_goes_on_writing)
{
	CHECK_INT(start(box.env, "h", "(while [ ! -e h.stop ]; do echo tick; sleep 0.01; done; echo done > h.end) &", 0,
			NULL),
		  0);
	struct env_job j = wait_job(box.env, "h");
	CHECK_INT(j.state, ENV_JOB_EXITED);
	char *path = NULL;
	CHECK_INT(env_ack(box.env, "h", false, &path, NULL), 0);
	CHECK(!path);
	CHECK_INT(env_write(box.env, "h.stop", "", 0, 0, NULL), 0);
	pid_in("h.end"); /* it did not die of a closed pipe */
	CLEAN_BUF struct buf b = BUF_INIT;
	CHECK_INT(env_read(box.env, "h.end", 0, 100, &b, NULL), 0);
	CHECK_STR(buf_str(&b), "done\n");
}

TEST(kill_takes_the_whole_tree)
{
	CHECK_INT(start(box.env, "i",
			"sleep 300 & echo $! > i1; setsid sh -c 'echo $$ > i2; sleep 300; :' & "
			"(setsid sh -c 'echo $$ > i3; sleep 300; :' &) ; sleep 300; echo never",
			0, NULL),
		  0);
	pid_t a = pid_in("i1"), b = pid_in("i2"), c = pid_in("i3");
	CHECK(lives(a) && lives(b) && lives(c));
	CHECK_INT(env_kill(box.env, "i", NULL), 0);
	struct env_job j = wait_job(box.env, "i");
	CHECK_INT(j.state, ENV_JOB_EXITED);
	CHECK_INT(j.exit_code, 137);
	CHECK(j.killed && !j.timed_out);
	CHECK(ends(a) && ends(b) && ends(c));
	CHECK_INT(env_kill(box.env, "i", NULL), 0);
	CHECK_INT(env_kill(box.env, "unknown", NULL), 0);
	CHECK_INT(env_ack(box.env, "i", false, NULL, NULL), 0);
}

/* A start on a connection of its own, whose program cannot be run until somebody has closed it. */
struct slow_start {
	struct env *env;
	char id[16];
	int rc;
};

static void *start_slowly(void *arg)
{
	struct slow_start *s = arg;
	const char *argv[] = {"./slow", "300", NULL};
	s->rc = env_start(s->env, &(struct env_exec){.job = s->id, .argv = argv}, NULL);
	return NULL;
}

/* `stop` does not wait for a start. Who stops is heard whether the start is over, under way or not even read. */
TEST(kill_before_the_start_is_over)
{
	const char *argv[] = {"sleep", "300", NULL};
	CHECK_INT(env_kill(box.env, "early", NULL), 0);
	CHECK(env_start(box.env, &(struct env_exec){.job = "early", .argv = argv}, NULL) < 0);
	struct env_job j;
	CHECK_INT(env_poll(box.env, "early", 0, 0, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_UNKNOWN);
	if (!box.dir)
		return; /* the program is held open from here */
	CHECK_INT(run("slow0", "cp $(command -v sleep) slow"), 0);
	CLEAN_FREE char *path = xasprintf("%s/slow", env_home(box.env));
	struct slow_start s = {.env = open_env(), .rc = -1};
	for (int i = 0; s.rc && i < 50; i++) { /* a busy machine may look too late: then the start has failed */
		pthread_t t;
		int fd = open(path, O_WRONLY | O_CLOEXEC);
		CHECK(fd >= 0);
		snprintf(s.id, sizeof s.id, "slow-%d", i + 1);
		pthread_create(&t, NULL, start_slowly, &s);
		for (int look = 0; look < 1000; look++) {
			CHECK_INT(env_poll(box.env, s.id, 0, 0, &j, NULL), 0);
			if (j.state != ENV_JOB_UNKNOWN)
				break;
			clock_sleep_ms(1);
		}
		CHECK_INT(env_kill(box.env, s.id, NULL), 0);
		close(fd);
		pthread_join(t, NULL);
	}
	CHECK_INT(s.rc, 0);
	j = wait_job(box.env, s.id);
	CHECK_INT(j.state, ENV_JOB_EXITED);
	CHECK(j.killed);
	CHECK_INT(env_ack(box.env, s.id, false, NULL, NULL), 0);
	env_close(s.env);
}

TEST(timeout)
{
	int64_t t = clock_mono_ms();
	CHECK_INT(start(box.env, "j", "echo partial; setsid sleep 300 & sleep 300", 3000, NULL), 0);
	struct env_job j = wait_job(box.env, "j");
	CHECK(clock_mono_ms() - t < 90000 && clock_mono_ms() - t >= 2990);
	CHECK(j.timed_out && !j.killed);
	CHECK_INT(j.exit_code, 137);
	CHECK_INT(j.output, 8);
	CHECK_INT(env_ack(box.env, "j", false, NULL, NULL), 0);
	const char *argv[] = {"sleep", "300", NULL};
	CHECK_INT(
		env_run(box.env, &(struct env_exec){.job = "j2", .argv = argv, .timeout_ms = 100}, NULL, 0, NULL, NULL),
		-ETIMEDOUT);
	CHECK_INT(env_poll(box.env, "j2", 0, 0, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_UNKNOWN);
}

static void *cancel_soon(void *flag)
{
	if (pid_in("k.pid")) /* uses the test's env: the main thread has one of its own */
		atomic_store((atomic_bool *)flag, true);
	return NULL;
}

TEST(cancel)
{
	atomic_bool flag = false;
	pthread_t t;
	struct env *mine = open_env();
	const char *argv[] = {"/bin/sh", "-c", "echo so far; echo $$ > k.pid; sleep 300", NULL};
	struct err err = ERR_INIT;
	buf_reset(&box.out);
	pthread_create(&t, NULL, cancel_soon, &flag);
	int rc = env_run(mine, &(struct env_exec){.job = "k", .argv = argv}, &flag, 1000, &box.out, &err);
	pthread_join(t, NULL);
	CHECK_INT(rc, -ECANCELED);
	CHECK_STR(buf_str(&box.out), "so far\n");
	CHECK(ends(pid_in("k.pid")));
	env_close(mine);
}

/* A run whose start nobody answers. */
struct late {
	struct env *env;
	atomic_bool cancel;
	char id[16];
	int rc;
};

static void *run_late(void *arg)
{
	struct late *l = arg;
	const char *argv[] = {"./late", "300", NULL};
	l->rc = env_run(l->env, &(struct env_exec){.job = l->id, .argv = argv}, &l->cancel, 0, NULL, NULL);
	return NULL;
}

/* The sandbox stands still in the middle of a start. When it goes on, what was cancelled meanwhile does not. */
TEST(cancel_while_it_starts)
{
	struct late l = {.rc = -1};
	struct env_job j = {.state = ENV_JOB_UNKNOWN};
	if (!box.dir)
		return; /* its daemon is a process of ours, and can be frozen */
	CHECK_INT(run("late0", "cp $(command -v sleep) late"), 0);
	CLEAN_FREE char *path = xasprintf("%s/late", env_home(box.env));
	for (int i = 0; l.rc != -ECANCELED && i < 50;
	     i++) { /* a busy machine may look too late: then the start fails */
		pthread_t t;
		int fd = open(path, O_WRONLY | O_CLOEXEC);
		CHECK(fd >= 0);
		snprintf(l.id, sizeof l.id, "late-%d", i + 1);
		atomic_store(&l.cancel, false);
		CHECK_INT(env_open(&box.paths, box.kind, BOX_ID, &l.cancel, &l.env, NULL), 0);
		pthread_create(&t, NULL, run_late, &l);
		for (int look = 0; look < 1000; look++) {
			CHECK_INT(env_poll(box.env, l.id, 0, 0, &j, NULL), 0);
			if (j.state != ENV_JOB_UNKNOWN)
				break;
			clock_sleep_ms(1);
		}
		pid_t daemon = daemon_pid();
		CHECK_INT(kill(daemon, SIGSTOP), 0);
		close(fd);
		atomic_store(&l.cancel, true);
		clock_sleep_ms(1500); /* longer than an answer is waited for then */
		CHECK_INT(kill(daemon, SIGCONT), 0);
		pthread_join(t, NULL);
		env_close(l.env);
	}
	CHECK_INT(l.rc, -ECANCELED);
	CHECK(wait_job(box.env, l.id).state != ENV_JOB_RUNNING);
}

/* The daemon ends: what its next one will ask for goes on. */
TEST(cancel_because_of_the_end)
{
	atomic_bool on = true;
	const char *argv[] = {"/bin/sh", "-c", "sleep 300", NULL};
	struct env_exec exec = {.job = "goes-on", .argv = argv, .halt = &on};
	CHECK_INT(env_run(box.env, &exec, &on, 0, NULL, NULL), -ECANCELED);
	struct env_job j;
	CHECK_INT(env_poll(box.env, "goes-on", 0, 0, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_RUNNING);
	exec.halt = NULL;
	CHECK_INT(env_run(box.env, &exec, &on, 0, NULL, NULL), -ECANCELED);
	CHECK_INT(env_poll(box.env, "goes-on", 0, 0, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_UNKNOWN);
}

TEST(poll_returns_on_output)
{
	struct env_job j;
	CHECK_INT(start(box.env, "l", "while [ ! -e l.go ]; do sleep 0.01; done; echo hello; sleep 300", 0, NULL), 0);
	int64_t t = clock_mono_ms();
	CHECK_INT(env_poll(box.env, "l", 0, 200, &j, NULL), 0);
	CHECK(clock_mono_ms() - t >= 190);
	CHECK_INT(j.state, ENV_JOB_RUNNING);
	CHECK_INT(j.output, 0);
	CHECK_INT(env_write(box.env, "l.go", "", 0, 0, NULL), 0);
	CHECK_INT(env_poll(box.env, "l", 0, 20000, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_RUNNING);
	CHECK_INT(j.output, 6);
	CHECK_INT(env_ack(box.env, "l", false, NULL, NULL), -EBUSY);
	CHECK_INT(env_kill(box.env, "l", NULL), 0);
	CHECK(wait_job(box.env, "l").killed);
	CHECK_INT(env_ack(box.env, "l", false, NULL, NULL), 0);
}

TEST(keep_output)
{
	char *path = NULL, *again = NULL;
	CHECK_INT(start(box.env, "m", "echo kept", 0, NULL), 0);
	wait_job(box.env, "m");
	CHECK_INT(env_ack(box.env, "m", true, &path, NULL), 0);
	CLEAN_BUF struct buf b = BUF_INIT;
	CHECK(path && !env_read(box.env, path, 0, 100, &b, NULL));
	CHECK_STR(buf_str(&b), "kept\n");
	CHECK_INT(env_ack(box.env, "m", true, &again, NULL), 0); /* asked again after a crash */
	CHECK_STR(again, path);
	free(path);
	free(again);
}

TEST(big_output_in_windows)
{
	CHECK_INT(start(box.env, "n", "seq 1 3000000", 0, NULL), 0);
	struct env_job j = wait_job(box.env, "n");
	CHECK_INT(j.output, 22888896);
	CLEAN_BUF struct buf b = BUF_INIT;
	CHECK_INT(env_output(box.env, "n", 22888896 - 16, 1000, &b, NULL), 0);
	CHECK_STR(buf_str(&b), "2999999\n3000000\n");
	buf_reset(&b);
	CHECK_INT(env_output(box.env, "n", 0, 1 << 20, &b, NULL), 0);
	CHECK_INT(b.n, 1 << 20);
	CHECK(!memcmp(b.p, "1\n2\n3\n", 6));
	buf_reset(&b);
	CHECK_INT(env_output(box.env, "n", 99999999, 10, &b, NULL), 0);
	CHECK_INT(b.n, 0);
	CHECK_INT(env_output(box.env, "nobody", 0, 10, &b, NULL), -ENOENT);
	CHECK_INT(env_ack(box.env, "n", false, NULL, NULL), 0);
}

TEST(overflow)
{
	CHECK_INT(start(box.env, "o", "cat /dev/zero", 0, NULL), 0);
	struct env_job j = wait_job(box.env, "o");
	CHECK_INT(j.state, ENV_JOB_EXITED);
	CHECK(j.overflow && !j.killed);
	CHECK_INT(j.output, 256 << 20);
	CHECK_INT(env_ack(box.env, "o", false, NULL, NULL), 0);
}

static void *poller(void *arg)
{
	struct env_job j = {0};
	struct env *env = open_env();
	bool ok = env && !env_poll(env, "p", UINT64_MAX, 20000, &j, NULL) && j.state == ENV_JOB_EXITED &&
		  j.exit_code == 4;
	env_close(env);
	return ok ? arg : NULL;
}

TEST(twenty_polls_at_once)
{
	pthread_t t[20];
	CHECK_INT(start(box.env, "p", "while [ ! -e p.go ]; do sleep 0.01; done; exit 4", 0, NULL), 0);
	for (int i = 0; i < 20; i++)
		pthread_create(&t[i], NULL, poller, &box);
	CHECK_INT(run("p2", "echo not held up"), 0); /* a second client meanwhile */
	CHECK_INT(env_write(box.env, "p.go", "", 0, 0, NULL), 0);
	for (int i = 0; i < 20; i++) {
		void *ok = NULL;
		pthread_join(t[i], &ok);
		CHECK(ok != NULL);
	}
	CHECK_INT(env_ack(box.env, "p", false, NULL, NULL), 0);
}
