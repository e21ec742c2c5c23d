/* Protected files through env: every other name of one is refused, everything else is not. */
#include "env_box.h"

#define LIST ".env !.env.example .ssh/ /proc/*/environ"

static int try_read(const char *path, struct err *err)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	int rc = env_read(box.env, path, 0, 100, &b, err);
	if (!rc && !strncmp(buf_str(&b), "secret", 6))
		printf("# the secret is read by way of %s\n", path);
	return rc;
}

static void make(void)
{
	CHECK_INT(run("mk", "rm -rf g out; mkdir -p g/deep/er g/.ssh; cd g; echo secret > .env; echo sample > "
			    ".env.example; echo secret > .ssh/key;"
			    "echo plain > plain; ln plain plain2; ln -s .env link; ln -s link link2; ln -s . here; ln "
			    "-s .ssh dir; ln .env hard;"
			    "ln .ssh/key hard2; ln -s $PWD/.env abs; ln -s no-such-file nowhere; ln -s .env.new "
			    "to-new; mkdir .env.d"),
		  0);
}

TEST(reading_under_every_name)
{
	static const char *const paths[] = {
		"g/.env",  "g/deep/../.env", "g/link",	 "g/link2", "g/here/here/.env",	    "g/dir/key", "g/hard",
		"g/hard2", "g/abs",	     "g/./.env", "g//.env", "g/deep/er/../../link", "g/.ssh/key"};
	make();
	env_guard(box.env, LIST);
	CLEAN_FREE char *home = xstrdup(env_home(box.env));
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		struct err err = ERR_INIT;
		CLEAN_FREE char *root = xasprintf("/proc/self/root%s/%s", home, paths[i]);
		CLEAN_FREE char *thread = xasprintf("/proc/thread-self/root%s/%s", home, paths[i]);
		CHECK_INT(try_read(paths[i], &err), -EACCES);
		CHECK(strstr(err.text, "protected") != NULL);
		CHECK_INT(try_read(root, NULL), -EACCES);
		CHECK_INT(try_read(thread, NULL), -EACCES);
	}
	CHECK_INT(try_read("/proc/self/environ", NULL), -EACCES);
	static const char *const fine[] = {"g/.env.example", "g/plain", "g/plain2", "g/here/plain"};
	for (size_t i = 0; i < ARRAY_LEN(fine); i++)
		CHECK_INT(try_read(fine[i], NULL), 0);
	CHECK_INT(try_read("g/missing", NULL), -ENOENT);
	env_guard(box.env, NULL);
	CHECK_INT(try_read("g/hard", NULL), 0); /* the host itself may */
}

TEST(by_way_of_another_process)
{
	make();
	CHECK_INT(start(box.env, "bg", "cd g; exec 9< .env; echo $$ > pid; exec sleep 300", 0, NULL), 0);
	pid_t pid = pid_in("g/pid");
	CLEAN_FREE char *cwd = xasprintf("/proc/%d/cwd/.env", (int)pid), *fd = xasprintf("/proc/%d/fd/9", (int)pid),
			*root = xasprintf("/proc/%d/root%s/g/.env", (int)pid, env_home(box.env));
	env_guard(box.env, LIST);
	CHECK_INT(try_read(cwd, NULL), -EACCES);
	CHECK_INT(try_read(fd, NULL), -EACCES);
	CHECK_INT(try_read(root, NULL), -EACCES);
	env_guard(box.env, NULL);
	env_kill(box.env, "bg", NULL);
}

TEST(writing_under_every_name)
{
	static const char *const paths[] = {"g/.env",	 "g/link", "g/link2", "g/here/.env",   "g/dir/key",
					    "g/dir/new", "g/hard", "g/abs",   "g/deep/../.env"};
	make();
	env_guard(box.env, LIST);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		CHECK_INT(env_write(box.env, paths[i], "x", 1, ENV_WRITE_PARENTS, NULL), -EACCES);
		CHECK_INT(env_write(box.env, paths[i], "x", 1, ENV_WRITE_APPEND, NULL), -EACCES);
	}
	CHECK_INT(env_write(box.env, "g/sub/.env", "x", 1, ENV_WRITE_PARENTS, NULL), -EACCES);
	CHECK_INT(env_write(box.env, "g/plain2", "new", 3, 0, NULL), 0);
	CHECK_INT(env_write(box.env, "g/deep/new", "new", 3, 0, NULL), 0);
	env_guard(box.env, NULL);
	has("g/.env", "secret\n", 7);
	has("g/.ssh/key", "secret\n", 7);
	has("g/plain", "plain\n", 6);
	CHECK_INT(run("ls", "ls -aR g | grep -c berthfs-; ls g/sub/.env g/.ssh/new 2>&1 | grep -c -v 'No such'"), 1);
	CHECK_STR(buf_str(&box.out), "0\n0\n");
}

/* The walk for hard links is kept; a link that is made, or a protected name that is given, later must not profit. */
TEST(a_hard_link_made_after_the_walk)
{
	make();
	env_guard(box.env, LIST);
	CHECK_INT(try_read("g/plain2", NULL), 0);
	CHECK_INT(run("late", "sleep 0.2; cd g; ln .env late1; ln plain2 plain3; ln plain3 .ssh/plain"), 0);
	CHECK_INT(try_read("g/late1", NULL), -EACCES);
	CHECK_INT(try_read("g/plain3", NULL), -EACCES); /* it has a protected name now */
	CHECK_INT(run("less", "cd g; rm .ssh/plain"), 0);
	CHECK_INT(try_read("g/plain3", NULL), 0);
	env_guard(box.env, NULL);
}

TEST(many_links_are_read_quickly)
{
	CHECK_INT(run("many", "mkdir -p many/store; cd many; for i in $(seq 3000); do echo $i > store/$i; done; cp -l "
			      "store/* .; sleep 0.2"),
		  0);
	env_guard(box.env, LIST);
	int64_t from = clock_mono_ms();
	for (int i = 1; i <= 300; i++) {
		CLEAN_FREE char *path = xasprintf("many/%d", i);
		CHECK_INT(try_read(path, NULL), 0);
	}
	CHECK(clock_mono_ms() - from < 60000);
	env_guard(box.env, NULL);
}
