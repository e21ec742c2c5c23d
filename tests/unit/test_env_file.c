/* Files through env: read, write, replace, append, stat, whole files in and out. */
#include "backend/base/child.h"
#include "env_box.h"

static mode_t mode_of(const char *name)
{
	struct env_stat st = {0};
	if (env_stat(box.env, name, &st, NULL))
		return 0;
	free(st.real);
	return st.mode & 07777;
}

TEST(write_new_keeps_nothing_old)
{
	CHECK_INT(env_write(box.env, "w1", "hello", 5, 0, NULL), 0);
	has("w1", "hello", 5);
	CHECK_INT(mode_of("w1"), 0644);
	CHECK_INT(env_write(box.env, "w1", "", 0, 0, NULL), 0);
	has("w1", "", 0);
}

TEST(write_keeps_mode)
{
	CHECK_INT(run("w2", "echo old > w2; chmod 751 w2; ln -s w2 w2.link; ln w2 w2.hard"), 0);
	CHECK_INT(env_write(box.env, "w2.link", "new", 3, 0, NULL), 0);
	has("w2", "new", 3);
	CHECK_INT(mode_of("w2"), 0751);
	has("w2.hard", "old\n", 4); /* replaced, not overwritten */
	CHECK_INT(run("w3", "readlink w2.link; ls -a | grep -c '^[.]berthfs'"), 1);
	CHECK_STR(buf_str(&box.out), "w2\n0\n");
}

TEST(write_through_dangling_link)
{
	CHECK_INT(run("w4", "ln -s deep/er/file dangling"), 0);
	CHECK_INT(env_write(box.env, "dangling", "x", 1, 0, NULL), -ENOENT);
	CHECK_INT(env_write(box.env, "dangling", "x", 1, ENV_WRITE_PARENTS, NULL), 0);
	has("deep/er/file", "x", 1);
	CHECK_INT(run("w5", "ln -s loop2 loop1; ln -s loop1 loop2"), 0);
	CHECK_INT(env_write(box.env, "loop1", "x", 1, 0, NULL), -ELOOP);
}

TEST(parents_and_append)
{
	CHECK_INT(env_write(box.env, "x/y/z", "a", 1, 0, NULL), -ENOENT);
	CHECK_INT(env_write(box.env, "x/y/z", "a", 1, ENV_WRITE_PARENTS, NULL), 0);
	CHECK_INT(env_write(box.env, "x/y/z", "bc", 2, ENV_WRITE_APPEND, NULL), 0);
	has("x/y/z", "abc", 3);
	CHECK_INT(env_write(box.env, "x/new/z", "q", 1, ENV_WRITE_APPEND | ENV_WRITE_PARENTS, NULL), 0);
	has("x/new/z", "q", 1);
	CHECK_INT(env_write(box.env, "x/empty", "", 0, ENV_WRITE_APPEND, NULL), 0);
	has("x/empty", "", 0);
}

TEST(what_is_no_file)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	struct env_stat st;
	CHECK_INT(run("y1", "mkdir -p d; mkfifo fifo"), 0);
	CHECK_INT(env_write(box.env, "d", "x", 1, 0, NULL), -EISDIR);
	CHECK_INT(env_read(box.env, "d", 0, 10, &b, NULL), -EISDIR);
	CHECK_INT(env_read(box.env, "fifo", 0, 10, &b, NULL), -EINVAL);
	CHECK(env_write(box.env, "fifo", "x", 1, 0, NULL) < 0);
	CHECK_INT(env_read(box.env, "missing", 0, 10, &b, NULL), -ENOENT);
	CHECK_INT(env_read(box.env, "w1/x", 0, 10, &b, NULL), -ENOTDIR);
	CHECK_INT(env_stat(box.env, "missing", &st, NULL), -ENOENT);
	CHECK_INT(env_remove(box.env, "missing", NULL), 0);
	CHECK_INT(env_remove(box.env, "d", NULL), -EISDIR);
	CHECK_INT(env_read(box.env, "", 0, 10, &b, NULL), -ENOENT);
}

TEST(stat_through_links)
{
	struct env_stat st = {0};
	CHECK_INT(run("z1", "mkdir -p s/t; echo 12345 > s/t/f; ln -s s l1; ln -s l1/t/f l2"), 0);
	CHECK_INT(env_stat(box.env, "l1/../l2", &st, NULL), 0);
	CLEAN_FREE char *want = xasprintf("%s/s/t/f", env_home(box.env));
	CHECK_STR(st.real, want);
	CHECK_INT(st.size, 6);
	CHECK(S_ISREG(st.mode));
	CHECK(clock_real_ms() - st.mtime_ms < 60000 && st.mtime_ms <= clock_real_ms() + 2000);
	free(st.real);
}

TEST(names_and_bytes_that_are_no_text)
{
	static const char name[] = "n\xff\xfe\n'\" \xc3";
	char bytes[256];
	for (int i = 0; i < 256; i++)
		bytes[i] = (char)i;
	CHECK_INT(env_write(box.env, name, bytes, sizeof bytes, 0, NULL), 0);
	has(name, bytes, sizeof bytes);
	struct env_stat st = {0};
	CHECK_INT(env_stat(box.env, name, &st, NULL), 0);
	CHECK(st.real && buf_ends(&(struct buf){.p = st.real, .n = strlen(st.real)}, name));
	free(st.real);
	CHECK_INT(env_remove(box.env, name, NULL), 0);
	CHECK_INT(env_stat(box.env, name, &st, NULL), -ENOENT);
}

TEST(send_and_receive_20_mib)
{
	size_t n = 20 << 20;
	CLEAN_FREE unsigned char *data = xmalloc(n);
	uint64_t x = 88172645463325252ULL;
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		data[i] = (unsigned char)x;
	}
	CLEAN_FREE char *from = xasprintf("%s/from", box.root), *to = xasprintf("%s/to", box.root);
	CHECK_INT(file_write(from, data, n, 0600, NULL), 0);
	CHECK_INT(env_send_file(box.env, from, "in/big", NULL), 0);
	CHECK_INT(run("q1", "cksum < in/big"), 0);
	const char *argv[] = {"cksum", from, NULL};
	CLEAN_BUF struct buf here = BUF_INIT;
	CHECK_INT(child_run(&(struct child){.argv = argv, .out = &here}, NULL), 0);
	buf_cut(&box.out, box.out.n ? box.out.n - 1 : 0);
	CHECK(box.out.n > 8 && !strncmp(buf_str(&here), buf_str(&box.out), box.out.n));
	CHECK_INT(env_receive_file(box.env, "in/big", UINT64_MAX, to, NULL), 0);
	CLEAN_BUF struct buf b = BUF_INIT;
	CHECK_INT(file_read(to, &b, n + 1, NULL), 0);
	CHECK(b.n == n && !memcmp(b.p, data, n));
	CHECK_INT(env_receive_file(box.env, "missing", UINT64_MAX, to, NULL), -ENOENT);
	CHECK_INT(env_send_file(box.env, "/no/such/file", "in/x", NULL), -ENOENT);
	CHECK_INT(env_write(box.env, "in/big", data, 1000001, 0, NULL), 0);
	has("in/big", data, 1000001);
}
