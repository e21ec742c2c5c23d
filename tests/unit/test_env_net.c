/* The way from inside a sandbox to the gateway, and the base environment of its jobs. The gateway here is a thread that
 * does what a client's first byte says. */
#include <sys/socket.h>

#include "backend/base/child.h"
#include "env_box.h"

#define BIG (3 << 20)

static struct {
	char *path;
	int listener;
	atomic_int open, most, all;
} peer;

/* What follows the first byte: `e` is sent back; `c` is counted to its end, and the number sent; `b` BIG bytes are sent
 * at once; `s` silence until the client has left, then a file says so. */
static void *serve_one(void *arg)
{
	int fd = (int)(intptr_t)arg;
	CLEAN_FREE char *room = xmalloc(65536);
	char what = 0;
	size_t sum = 0;
	ssize_t n = read(fd, &what, 1);
	while (what != 'b' && (n = read(fd, room, 65536)) > 0) {
		sum += (size_t)n;
		if (what == 'e' && fd_write_full(fd, room, (size_t)n))
			break;
	}
	if (what == 'c') {
		CLEAN_FREE char *line = xasprintf("%zu", sum);
		fd_write_full(fd, line, strlen(line));
	} else if (what == 'b') {
		memset(room, 'b', 65536);
		for (sum = 0; sum < BIG && !fd_write_full(fd, room, 65536);)
			sum += 65536;
	} else if (what == 's') {
		CLEAN_FREE char *note = xasprintf("%s/left", box.root);
		file_write(note, "", 0, 0600, NULL);
	}
	close(fd);
	atomic_fetch_sub(&peer.open, 1);
	return NULL;
}

static void *serve(void *arg)
{
	int listener = (int)(intptr_t)arg;
	for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
		pthread_t t;
		int now = atomic_fetch_add(&peer.open, 1) + 1;
		atomic_fetch_add(&peer.all, 1);
		if (now > atomic_load(&peer.most))
			atomic_store(&peer.most, now);
		pthread_create(&t, NULL, serve_one, (void *)(intptr_t)fd);
		pthread_detach(t);
	}
	return NULL;
}

static void peer_start(const char *name)
{
	pthread_t t;
	free(peer.path);
	peer.path = xasprintf("%s/%s", box.root, name);
	peer.listener = unix_listen(peer.path, 0600, NULL);
	CHECK(peer.listener >= 0);
	pthread_create(&t, NULL, serve, (void *)(intptr_t)peer.listener);
	pthread_detach(t);
}

static int up_with(const char *net)
{
	struct err err = ERR_INIT;
	struct sandbox_spec spec = {.paths = &box.paths,
				    .kind = box.kind,
				    .id = BOX_ID,
				    .name = "t",
				    .size = "mini",
				    .net = net,
				    .boot_timeout_ms = 120000};
	int rc = sandbox_up(&spec, &err);
	if (rc)
		printf("# %s\n", err.text);
	return rc;
}

static const char client[] = "import os, socket, sys, threading\n"
			     "def dial(what):\n"
			     "    s = socket.create_connection(('127.0.0.1', int(os.environ['PORT'])), 60)\n"
			     "    s.settimeout(60)\n"
			     "    s.sendall(what)\n"
			     "    return s\n"
			     "def rest(s):\n"
			     "    n = 0\n"
			     "    while (d := s.recv(65536)):\n"
			     "        n += len(d)\n"
			     "    return n\n";

/* Runs Python with that in front; the output in box.out. */
static int python(const char *job, const char *text)
{
	const char *url = env_gateway_url(box.env);
	CHECK(url != NULL);
	CLEAN_FREE char *port = xasprintf("PORT=%s", url ? strrchr(url, ':') + 1 : "1");
	CLEAN_FREE char *all = xasprintf("%s%s", client, text);
	struct err err = ERR_INIT;
	struct env_exec exec = {.job = job,
				.argv = (const char *const[]){"python3", "-c", all, NULL},
				.environ = (const char *const[]){port, NULL},
				.timeout_ms = 100000};
	buf_reset(&box.out);
	int rc = env_run(box.env, &exec, NULL, 1 << 20, &box.out, &err);
	if (rc)
		printf("# %d %s %s\n", rc, err.text, buf_str(&box.out));
	return rc;
}

TEST(says_where_the_gateway_is)
{
	const char *url = env_gateway_url(box.env);
	CHECK(url && !strncmp(url, "http://127.0.0.1:", 17));
	if (!box.dir)
		CHECK_STR(url, "http://127.0.0.1:8080");
}

TEST(without_a_socket_connections_are_closed)
{
	CHECK_INT(python("n0", "s = dial(b'')\n"
			       "try:\n"
			       "    print('end', s.recv(1))\n"
			       "except ConnectionResetError:\n"
			       "    print('end', b'')\n"),
		  0);
	CHECK_STR(buf_str(&box.out), "end b''\n");
}

TEST(a_running_sandbox_gets_one)
{
	peer_start("gw.sock");
	CHECK_INT(up_with("relative"), -EINVAL);
	CHECK_INT(up_with(peer.path), 0);
	CHECK_INT(python("a1", "s = dial(b'e')\ns.sendall(b'hello')\nprint(s.recv(100))\n"), 0);
	CHECK_STR(buf_str(&box.out), "b'hello'\n");
}

TEST(half_close_both_ways)
{
	CHECK_INT(python("h1", "s = dial(b'c')\ns.sendall(b'12345')\ns.shutdown(1)\nprint(s.recv(100), s.recv(1))\n"),
		  0);
	CHECK_STR(buf_str(&box.out), "b'5' b''\n");
	/* the other end first: what it has sent comes whole, then its end */
	CHECK_INT(python("h2", "s = dial(b'b')\nprint(rest(s))\n"), 0);
	CLEAN_FREE char *want = xasprintf("%d\n", BIG);
	CHECK_STR(buf_str(&box.out), want);
}

TEST(much_both_ways_at_once)
{
	CHECK_INT(python("m1", "import hashlib\n"
			       "s = dial(b'e')\n"
			       "data = os.urandom(3 << 20)\n"
			       "def send():\n"
			       "    s.sendall(data)\n"
			       "    s.shutdown(1)\n"
			       "t = threading.Thread(target=send)\n"
			       "t.start()\n"
			       "got = b''\n"
			       "while (d := s.recv(65536)):\n"
			       "    got += d\n"
			       "t.join()\n"
			       "print(got == data)\n"),
		  0);
	CHECK_STR(buf_str(&box.out), "True\n");
}

TEST(a_client_that_leaves_is_told)
{
	CLEAN_FREE char *note = xasprintf("%s/left", box.root);
	CHECK_INT(python("l1", "s = dial(b's')\nos.kill(os.getpid(), 9)\n"), 137);
	int64_t end = clock_mono_ms() + 60000;
	while (!file_exists(note) && clock_mono_ms() < end)
		clock_sleep_ms(5);
	CHECK(file_exists(note));
}

/* More than are relayed at once: the others wait for their turn, and tools are served meanwhile. */
TEST(crowd_waits_for_its_turn)
{
	int64_t end = clock_mono_ms() + 60000;
	while (atomic_load(&peer.open) && clock_mono_ms() < end)
		clock_sleep_ms(5);
	atomic_store(&peer.most, 0);
	CHECK_INT(env_write(box.env, "crowd.py", client, sizeof client - 1, 0, NULL), 0);
	static const char more[] = "import time\n"
				   "all = []\n"
				   "for i in range(300):\n"
				   "    all.append(dial(b'e%d' % i))\n"
				   "open('full', 'w').write('1\\n')\n"
				   "while not os.path.exists('go'):\n"
				   "    time.sleep(0.01)\n"
				   "n = 0\n"
				   "for i, s in enumerate(all):\n"
				   "    n += s.recv(100) == b'%d' % i\n"
				   "    s.close()\n"
				   "print(n)\n";
	CHECK_INT(env_write(box.env, "crowd.py", more, sizeof more - 1, ENV_WRITE_APPEND, NULL), 0);
	CLEAN_FREE char *line = xasprintf("PORT=%s exec python3 crowd.py", strrchr(env_gateway_url(box.env), ':') + 1);
	CHECK_INT(start(box.env, "crowd", line, 120000, NULL), 0);
	CHECK_INT(pid_in("full"), 1);
	while (atomic_load(&peer.open) < 256 && clock_mono_ms() < end + 60000)
		clock_sleep_ms(5);
	CHECK_INT(run("crowd2", "echo not held up"), 0);
	/* looked at while all hold on: later this end may hear of one's end after another has begun */
	CHECK_INT(atomic_load(&peer.most), 256);
	CHECK_INT(env_write(box.env, "go", "", 0, 0, NULL), 0);
	struct env_job j = wait_job(box.env, "crowd");
	CHECK_INT(j.exit_code, 0);
	buf_reset(&box.out);
	CHECK_INT(env_output(box.env, "crowd", 0, 1000, &box.out, NULL), 0);
	CHECK_STR(buf_str(&box.out), "300\n");
	CHECK_INT(env_ack(box.env, "crowd", false, NULL, NULL), 0);
}

/* The gateway may be started anew, at another place: what is new goes there. */
TEST(socket_that_comes_back_or_moves)
{
	shutdown(peer.listener, SHUT_RDWR);
	close(peer.listener);
	unlink(peer.path);
	CHECK_INT(python("s1", "s = dial(b'')\n"
			       "try:\n"
			       "    print(s.recv(1))\n"
			       "except ConnectionResetError:\n"
			       "    print(b'')\n"),
		  0);
	CHECK_STR(buf_str(&box.out), "b''\n");
	peer_start("gw.sock");
	CHECK_INT(python("s2", "s = dial(b'eback')\nprint(s.recv(100))\n"), 0);
	CHECK_STR(buf_str(&box.out), "b'back'\n");
	int before = atomic_load(&peer.all);
	peer_start("other.sock");
	CHECK_INT(up_with(peer.path), 0);
	CHECK_INT(python("s3", "s = dial(b'emoved')\nprint(s.recv(100))\n"), 0);
	CHECK_STR(buf_str(&box.out), "b'moved'\n");
	CHECK_INT(atomic_load(&peer.all), before + 1);
}

/* ---- the base environment ---- */

static bool has_environ(void)
{
	bool has = false;
	CHECK_INT(env_has_environ(box.env, &has, NULL), 0);
	return has;
}

TEST(base_environment)
{
	struct err err = ERR_INIT;
	CHECK(!has_environ());
	CHECK_INT(env_set_environ(box.env, (const char *const[]){"A=one two", "LANG=C", "B=", NULL}, &err), 0);
	CHECK(has_environ());
	CHECK_INT(run("e1", "echo \"$A|$LANG|${B-unset}\""), 0);
	CHECK_STR(buf_str(&box.out), "one two|C|\n");
	env_close(box.env); /* it is the sandbox's, not the connection's */
	box.env = open_env();
	CHECK(has_environ());
	const char *argv[] = {"/bin/sh", "-c", "echo \"$A|$LANG\"; env | grep -c ^A=", NULL};
	struct env_exec exec = {.job = "e2", .argv = argv, .environ = (const char *const[]){"A=mine", NULL}};
	buf_reset(&box.out);
	CHECK_INT(env_run(box.env, &exec, NULL, 1000, &box.out, NULL), 0);
	CHECK_STR(buf_str(&box.out), "mine|C\n1\n");
	CHECK_INT(env_set_environ(box.env, (const char *const[]){"C=3", NULL}, &err), 0);
	CHECK_INT(run("e3", "echo \"${A-unset}|$C\""), 0);
	CHECK_STR(buf_str(&box.out), "unset|3\n");
}

TEST(bad_base_environment_changes_nothing)
{
	struct err err = ERR_INIT;
	const char *many[300];
	for (int i = 0; i < 299; i++)
		many[i] = "X=1";
	many[299] = NULL;
	CLEAN_FREE char *large = xmalloc(70000);
	memset(large, 'x', 69999);
	large[0] = 'L';
	large[1] = '=';
	large[69999] = 0;
	CHECK_INT(env_set_environ(box.env, (const char *const[]){"novalue", NULL}, &err), -EINVAL);
	CHECK_INT(env_set_environ(box.env, (const char *const[]){"=x", NULL}, &err), -EINVAL);
	CHECK_INT(env_set_environ(box.env, many, &err), -EINVAL);
	CHECK_INT(env_set_environ(box.env, (const char *const[]){large, NULL}, &err), -EINVAL);
	CHECK_INT(run("f1", "echo $C"), 0);
	CHECK_STR(buf_str(&box.out), "3\n");
	CHECK_INT(env_set_environ(box.env, NULL, &err), 0);
	CHECK(has_environ());
	CHECK_INT(run("f2", "echo \"${C-unset}\""), 0);
	CHECK_STR(buf_str(&box.out), "unset\n");
}

TEST(power_off_forgets_it)
{
	CHECK_INT(env_set_environ(box.env, (const char *const[]){"TOKEN=secret-of-the-session", NULL}, NULL), 0);
	env_close(box.env);
	box.env = NULL;
	CHECK_INT(sandbox_down(&box.paths, box.kind, BOX_ID, NULL), 0);
	CLEAN_BUF struct buf out = BUF_INIT;
	const char *argv[] = {"grep", "-rl", "secret-of-the-session", box.paths.state, NULL};
	CHECK_INT(child_run(&(struct child){.argv = argv, .out = &out, .timeout_ms = 60000}, NULL), 1);
	CHECK_INT(up_with(peer.path), 0);
	box.env = open_env();
	CHECK(box.env && !has_environ());
	CHECK_INT(python("g1", "s = dial(b'ehello')\nprint(s.recv(100))\n"), 0);
	CHECK_STR(buf_str(&box.out), "b'hello'\n");
}
