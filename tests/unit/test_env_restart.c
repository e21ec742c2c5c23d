/* What goes wrong around env: bad clients, dead peers, a killed tool daemon, down and up again. */
#include <sys/socket.h>

#include "env_box.h"

static int raw(void)
{
	CLEAN_FREE char *path = xasprintf("%s/%d.sock", box.paths.runtime, BOX_ID);
	return unix_connect(path, NULL);
}

TEST(garbage_and_early_ends)
{
	static const struct {
		const char *p;
		size_t n;
	} cases[] = {{"", 0},
		     {"too", 3},
		     {"nonsense\nnonsense", 17},
		     {"tool\n", 5},
		     {"tool\n\xff\xff\xff\xff", 9},
		     {"tool\n\0\0\0\x20\1\0\0", 12},		 /* ends in the middle of a frame */
		     {"tool\n\0\0\0\x09\1\0\0\0\1\0\0\0\0", 18}, /* a request without a number */
		     {"tool\n\0\0\0\x09\2\0\0\0\1\0\0\0\0", 18}, /* a result */
		     {"tool\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 32}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char room[512];
		int fd = raw();
		CHECK(fd >= 0);
		CHECK_INT(fd_write_full(fd, cases[i].p, cases[i].n), 0);
		shutdown(fd, SHUT_WR);
		while (read(fd, room, sizeof room) > 0) /* it always ends the connection */
			;
		close(fd);
	}
	CHECK_INT(run("r1", "echo fine"), 0);
}

TEST(replace_cut_off_leaves_the_old_file)
{
	CHECK_INT(env_write(box.env, "precious", "old", 3, 0, NULL), 0);
	struct env *other = open_env();
	CLEAN_FREE char *dir = xasprintf("%s/dir", box.root);
	CHECK_INT(dir_make(dir, 0755, NULL), 0);
	CHECK_INT(env_send_file(other, dir, "precious", NULL), -EISDIR); /* fails after it was begun */
	env_close(other);
	for (int64_t end = clock_mono_ms() + 60000; clock_mono_ms() < end; clock_sleep_ms(5)) {
		CHECK_INT(run("s1", "ls -a | grep -c '^[.]berthfs'; true"), 0);
		if (!strcmp(buf_str(&box.out), "0\n"))
			break;
	}
	CHECK_STR(buf_str(&box.out), "0\n");
	has("precious", "old", 3);
}

static void *silent_server(void *arg)
{
	int fd = accept(*(int *)arg, NULL, NULL);
	char c[64];
	while (read(fd, c, sizeof c) > 0)
		;
	close(fd);
	return NULL;
}

TEST(dead_peer)
{
	struct env *env = NULL;
	struct err err = ERR_INIT;
	CHECK_INT(env_open(&box.paths, box.kind, 999, NULL, &env, &err), -ENOTCONN);
	CHECK(!env && strstr(err.text, "not running"));
	/* one that hangs up in the middle of the greeting */
	CLEAN_FREE char *path = xasprintf("%s/998.sock", box.paths.runtime);
	int listen = unix_listen(path, 0600, NULL);
	pthread_t t;
	CHECK(listen >= 0);
	pthread_create(&t, NULL, silent_server, &listen);
	int probe = unix_connect(path, NULL);
	close(probe);
	pthread_join(t, NULL);
	close(listen);
	CHECK_INT(env_open(&box.paths, box.kind, 998, NULL, &env, &err), -ENOTCONN);
}

TEST(daemon_killed_and_started_again)
{
	CHECK_INT(start(box.env, "done", "echo out of it; exit 6", 0, NULL), 0);
	wait_job(box.env, "done");
	CHECK_INT(start(box.env, "cut", "echo begun; setsid sh -c 'echo $$ > cut.pid; sleep 300; :'", 0, NULL), 0);
	pid_t child = pid_in("cut.pid");
	CHECK(lives(child));
	struct env_job j = {0};
	CHECK_INT(env_poll(box.env, "cut", 0, 10000, &j, NULL), 0); /* its output has arrived */
	CHECK_INT(j.output, 6);
	pid_t old = daemon_pid();
	CHECK_INT(kill(old, SIGKILL), 0);
	CHECK(dies(old));
	struct err err = ERR_INIT;
	/* a daemon with threads may be one that has ended before they all have */
	for (int64_t end = clock_mono_ms() + 60000; box.dir && clock_mono_ms() < end; clock_sleep_ms(1))
		if (sandbox_state(&box.paths, box.kind, BOX_ID) == SANDBOX_DOWN)
			break;
	CHECK_INT(sandbox_state(&box.paths, box.kind, BOX_ID), SANDBOX_DOWN);
	CHECK_INT(up(), 0); /* waits for what dies of that end a moment later, as all that is inside of a container */
	CHECK_INT(env_poll(box.env, "done", 0, 0, &j, &err), -ENOTCONN);
	CHECK_INT(env_poll(box.env, "done", 0, 0, &j, &err), -ENOTCONN);
	CHECK(daemon_pid() != old);
	CHECK(!box.dir || dies(child)); /* it must not go on unseen */
	env_close(box.env);
	box.env = open_env();
	CHECK_INT(env_poll(box.env, "done", UINT64_MAX, 5000, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_EXITED);
	CHECK_INT(j.exit_code, 6);
	CHECK_INT(j.output, 10);
	CHECK_INT(env_poll(box.env, "cut", UINT64_MAX, 5000, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_LOST);
	CHECK_INT(start(box.env, "cut", "echo again", 0, NULL), 0); /* known: not run again */
	CLEAN_BUF struct buf b = BUF_INIT;
	CHECK_INT(env_output(box.env, "cut", 0, 100, &b, NULL), 0);
	CHECK(!box.dir || !strcmp(buf_str(&b), "begun\n")); /* a VM may take it along: nothing was synced */
	CHECK_INT(env_ack(box.env, "cut", false, NULL, NULL), 0);
	CHECK_INT(env_ack(box.env, "done", false, NULL, NULL), 0);
}

/* Each time it is a new one, also when the old one is still dying. */
TEST(killed_again_and_again)
{
	for (int i = 0; i < 8 && strcmp(box.kind, "vm") != 0 && !check_failed; i++) {
		CLEAN_FREE char *job = xasprintf("again.%d", i);
		pid_t old = daemon_pid();
		CHECK_INT(kill(old, SIGKILL), 0);
		CHECK(dies(old));
		CHECK_INT(up(), 0);
		CHECK(daemon_pid() != old);
		env_close(box.env);
		box.env = open_env();
		CHECK_INT(run(job, "sleep 0.05; echo fine"), 0);
	}
}

TEST(down_up_and_destroy)
{
	CHECK_INT(start(box.env, "server", "setsid sh -c 'echo $$ > srv.pid; sleep 300; :' & wait", 0, NULL), 0);
	pid_t server = pid_in("srv.pid"), tools = daemon_pid();
	CHECK_INT(sandbox_down(&box.paths, box.kind, BOX_ID, NULL), 0);
	CHECK(!alive(tools) && (!box.dir || !alive(server)));
	CHECK_INT(sandbox_state(&box.paths, box.kind, BOX_ID), SANDBOX_DOWN);
	CHECK_INT(sandbox_down(&box.paths, box.kind, BOX_ID, NULL), 0);
	env_close(box.env);
	CHECK_INT(up(), 0);
	box.env = open_env();
	struct env_job j = {0};
	CHECK_INT(env_poll(box.env, "server", 0, 0, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_LOST);
	has("precious", "old", 3); /* the disk stays */
	tools = daemon_pid();
	CHECK_INT(sandbox_destroy(&box.paths, box.kind, BOX_ID, NULL), 0);
	CHECK(!alive(tools));
	CHECK_INT(sandbox_state(&box.paths, box.kind, BOX_ID), SANDBOX_NONE);
	CHECK_INT(sandbox_destroy(&box.paths, box.kind, BOX_ID, NULL), 0);
	CHECK_INT(env_poll(box.env, "x", 0, 0, &j, NULL), -ENOTCONN);
}

TEST(kinds_and_sizes)
{
	struct err err = ERR_INIT;
	struct sandbox_size size;
	CHECK_INT(sandbox_possible(box.kind, &err), 0);
	CHECK_INT(sandbox_kind_check("ssh:box", &err), 0);
	CHECK_INT(sandbox_kind_check("ssh:-o", &err), -EINVAL);
	CHECK_INT(sandbox_kind_check("ssh:", &err), -EINVAL);
	CHECK_INT(sandbox_kind_check("ssh", &err), -EINVAL);
	CHECK_INT(sandbox_kind_check("dir:x", &err), -EOPNOTSUPP);
	CHECK_INT(sandbox_possible("nonsense", &err), -EOPNOTSUPP);
	CHECK(strstr(err.text, "nonsense"));
	CHECK_INT(sandbox_size("mini", &size), 0);
	CHECK(size.cpus == 1 && size.memory_mib <= 512);
	CHECK_INT(sandbox_size("large", &size), 0);
	CHECK(size.cpus <= sysconf(_SC_NPROCESSORS_ONLN));
	CHECK_INT(sandbox_size("huge", &size), -EINVAL);
}
