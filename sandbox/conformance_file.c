/* Cases of the conformance suite: files. The suite's only thread. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "conformance.h"

/* Bytes that no text is made of: a byte order mark, invalid UTF-8 before a line's end, a zero byte, an empty line, the
 * mark again later, no newline at the end. */
static const char odd[] = "\xef\xbb\xbf"
			  "one\n\xff\xfe\n\ntwo\0zero\n\xef\xbb\xbfthree";
#define ODD (sizeof odd - 1)

static int read_part(struct conf *c, const char *name, uint64_t offset, size_t max, struct buf *out)
{
	CLEAN_FREE char *path = conf_path(c, name);
	buf_reset(out);
	return env_read(c->env, path, offset, max, out, &c->err);
}

static int stat_of(struct conf *c, const char *name, struct env_stat *st)
{
	CLEAN_FREE char *path = conf_path(c, name);
	int rc = env_stat(c->env, path, st, &c->err);
	if (!rc)
		free(take(st->real));
	return rc;
}

static int write_to(struct conf *c, const char *name, const void *p, size_t n, int flags)
{
	CLEAN_FREE char *path = conf_path(c, name);
	return env_write(c->env, path, p, n, flags, &c->err);
}

static bool any_range(struct conf *c)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	REQUIRE(c, !write_to(c, "f", odd, ODD, 0));
	for (size_t at = 0; at <= ODD + 2; at += 3)
		for (size_t n = 0; n <= ODD; n += 7) {
			size_t there = at < ODD ? (n < ODD - at ? n : ODD - at) : 0;
			REQUIRE(c, !read_part(c, "f", at, n, &b));
			REQUIRE(c, b.n == there && (!there || !memcmp(b.p, odd + at, there)));
		}
	return true;
}

static bool bytes_are_kept(struct conf *c)
{
	CLEAN_BUF struct buf whole = BUF_INIT;
	CLEAN_BUF struct buf part = BUF_INIT;
	REQUIRE(c, !write_to(c, "f", odd, ODD, 0));
	for (size_t n = 1; n <= 5; n += 2) {
		buf_reset(&whole);
		do {
			REQUIRE(c, !read_part(c, "f", whole.n, n, &part));
			buf_add(&whole, part.p, part.n);
		} while (part.n == n);
		REQUIRE(c, whole.n == ODD && !memcmp(whole.p, odd, ODD));
	}
	REQUIRE(c, conf_sh(c, "wc -c <f | tr -d ' '; tail -c 5 f") == 0);
	CLEAN_FREE char *want = xasprintf("%zu\nthree", ODD);
	REQUIRE(c, !strcmp(buf_str(&c->out), want));
	return true;
}

/* A file that is replaced again and again, while it is copied out: a copy is one of the two, or fails. */
static bool copies_do_not_mix(struct conf *c)
{
	CLEAN_FREE char *job = conf_job(c);
	CLEAN_FREE char *path = conf_path(c, "f");
	CLEAN_FREE char *here = xasprintf("%s/copy", c->paths->state);
	const char *script = "head -c 300000 /dev/zero | tr '\\0' a >a; head -c 300000 /dev/zero | tr '\\0' b >b\n"
			     "while :; do cp a x; mv x f; cp b x; mv x f; : >ready; done";
	REQUIRE(c, !conf_start(c, job, script, CASE_MS));
	struct env_stat st;
	for (int64_t end = clock_mono_ms() + CASE_MS; stat_of(c, "ready", &st); clock_sleep_ms(5))
		REQUIRE(c, clock_mono_ms() < end);
	for (int i = 0; i < 3; i++) {
		CLEAN_BUF struct buf b = BUF_INIT;
		int rc = env_receive_file(c->env, path, 1 << 20, here, &c->err);
		REQUIRE(c, rc == 0 || rc == -EAGAIN);
		if (rc)
			continue;
		REQUIRE(c, !file_read(here, &b, 1 << 20, &c->err));
		REQUIRE(c, b.n == 300000 && (*b.p == 'a' || *b.p == 'b'));
		REQUIRE(c, strspn(b.p, *b.p == 'a' ? "a" : "b") == b.n);
	}
	unlink(here);
	return !env_kill(c->env, job, &c->err);
}

static bool no_files(struct conf *c)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	struct env_stat st;
	REQUIRE(c, conf_sh(c, "mkdir d; mkfifo p; echo x >f") == 0);
	REQUIRE(c, read_part(c, "d", 0, 10, &b) == -EISDIR);
	REQUIRE(c, read_part(c, "none", 0, 10, &b) == -ENOENT);
	REQUIRE(c, read_part(c, "f/below", 0, 10, &b) == -ENOTDIR);
	int64_t start = clock_mono_ms();
	REQUIRE(c, read_part(c, "p", 0, 10, &b) == -EINVAL); /* and does not wait for a writer */
	REQUIRE(c, clock_mono_ms() - start < CASE_MS / 2);
	REQUIRE(c, write_to(c, "d", "x", 1, 0) < 0);
	REQUIRE(c, write_to(c, "none/f", "x", 1, 0) == -ENOENT);
	REQUIRE(c, stat_of(c, "none", &st) == -ENOENT);
	REQUIRE(c, stat_of(c, "f/below", &st) == -ENOTDIR);
	return true;
}

static bool tells_of_files(struct conf *c)
{
	struct env_stat st;
	CLEAN_FREE char *path = conf_path(c, "f");
	REQUIRE(c, !write_to(c, "f", odd, ODD, 0));
	REQUIRE(c, conf_sh(c, "mkdir d; chmod 640 f; touch -d @1000000000 f; chmod 750 d") == 0);
	REQUIRE(c, !env_stat(c->env, path, &st, &c->err));
	bool same = !strcmp(st.real, path);
	free(st.real);
	REQUIRE(c, same && st.size == ODD && st.mtime_ms == 1000000000000 && st.mode == (S_IFREG | 0640));
	REQUIRE(c, !stat_of(c, "d", &st) && st.mode == (S_IFDIR | 0750));
	return true;
}

static bool whole_folders(struct conf *c)
{

	REQUIRE(c, conf_sh(c, "i=1000; while [ $i -lt 1100 ]; do : >$i; i=$((i+1)); done; ls -1") == 0);
	REQUIRE(c, c->out.n == 100 * 5 && !strncmp(c->out.p, "1000\n", 5) && buf_ends(&c->out, "\n1099\n"));
	struct env_stat st;
	REQUIRE(c, !stat_of(c, "1000", &st) && st.size == 0);
	REQUIRE(c, !stat_of(c, "1099", &st) && st.size == 0);
	return true;
}

static bool removing(struct conf *c)
{
	CLEAN_FREE char *path = conf_path(c, "f"), *folder = conf_path(c, "d");
	struct env_stat st;
	REQUIRE(c, conf_put(c, "f", "x") && conf_put(c, "d/inside", "x"));
	REQUIRE(c, !env_remove(c->env, path, &c->err));
	REQUIRE(c, stat_of(c, "f", &st) == -ENOENT);
	REQUIRE(c, !env_remove(c->env, path, &c->err)); /* missing is success */
	REQUIRE(c, env_remove(c->env, folder, &c->err) < 0);
	REQUIRE(c, !stat_of(c, "d/inside", &st));
	return true;
}

/* A program inside sees what this side does to a file that was not there when it began to look: it is made, written
 * anew, replaced by a rename, and removed. */
static bool seen_inside(struct conf *c)
{
	CLEAN_FREE char *job = conf_job(c);
	CLEAN_FREE char *path = conf_path(c, "deep/down/f");
	struct env_job j = {0};
	const char *script = "f=deep/down/f; mkfifo p; n() { l=; { read -r l <$f; } 2>/dev/null; [ \"$l\" = $1 ]; }\n"
			     "until n one; do read -t 0.01 x <>p; done; echo made\n"
			     "until n two; do read -t 0.01 x <>p; done; echo again\n"
			     "while [ -e $f ]; do read -t 0.01 x <>p; done; echo gone";
	static const char *const said[] = {"made\n", "made\nagain\n", "made\nagain\ngone\n"};
	REQUIRE(c, !conf_start(c, job, script, CASE_MS));
	for (int i = 0; i < 3; i++) {
		if (i < 2)
			REQUIRE(c, conf_put(c, "deep/down/f", i ? "two" : "one"));
		else
			REQUIRE(c, !env_remove(c->env, path, &c->err));
		for (int64_t end = clock_mono_ms() + CASE_MS; j.output < strlen(said[i]) && clock_mono_ms() < end;)
			REQUIRE(c, !env_poll(c->env, job, j.output, 1000, &j, &c->err));
		buf_reset(&c->out);
		REQUIRE(c, !env_output(c->env, job, 0, 100, &c->out, &c->err));
		REQUIRE(c, !strcmp(buf_str(&c->out), said[i]));
	}
	REQUIRE(c, !conf_wait(c, job, &j) && j.exit_code == 0);
	return !env_ack(c->env, job, false, NULL, &c->err);
}

/* What a command has done is there for the next request. */
static bool seen_outside(struct conf *c)
{
	REQUIRE(c, conf_sh(c, "mkdir -p a/b/c && echo 1 >a/b/c/f") == 0);
	REQUIRE(c, conf_holds(c, "a/b/c/f", "1\n", 2));
	REQUIRE(c, conf_sh(c, "echo 2 >a/b/c/f") == 0);
	REQUIRE(c, conf_holds(c, "a/b/c/f", "2\n", 2));
	REQUIRE(c, conf_sh(c, "echo 3 >x && mv x a/b/c/f") == 0);
	REQUIRE(c, conf_holds(c, "a/b/c/f", "3\n", 2));
	return true;
}

static bool parents_move(struct conf *c)
{
	struct env_stat st;
	REQUIRE(c, conf_put(c, "a/b/f", "old"));
	REQUIRE(c, conf_sh(c, "mv a away && mkdir -p a/b && printf new >a/b/f") == 0);
	REQUIRE(c, conf_holds(c, "a/b/f", "new", 3) && conf_holds(c, "away/b/f", "old", 3));
	REQUIRE(c, conf_put(c, "a/b/f", "newer"));
	REQUIRE(c, conf_holds(c, "away/b/f", "old", 3));
	REQUIRE(c, conf_sh(c, "rm -r a && ln -s away a") == 0);
	REQUIRE(c, conf_holds(c, "a/b/f", "old", 3));
	REQUIRE(c, conf_sh(c, "rm a") == 0 && stat_of(c, "a/b/f", &st) == -ENOENT);
	return true;
}

static bool links_to_files(struct conf *c)
{
	struct env_stat st;
	CLEAN_FREE char *link = conf_path(c, "link"), *target = conf_path(c, "t/file");
	REQUIRE(c, conf_sh(c, "mkdir t; printf one >t/file; ln -s t/file link; ln -s t dir") == 0);
	REQUIRE(c, conf_holds(c, "link", "one", 3) && conf_holds(c, "dir/file", "one", 3));
	REQUIRE(c, !env_stat(c->env, link, &st, &c->err));
	bool same = !strcmp(st.real, target) && S_ISREG(st.mode);
	free(st.real);
	REQUIRE(c, same);
	REQUIRE(c, conf_put(c, "link", "two")); /* goes through it */
	REQUIRE(c, conf_sh(c, "[ -L link ] && [ \"$(cat t/file)\" = two ] && printf three >t/file") == 0);
	REQUIRE(c, conf_holds(c, "link", "three", 5));
	return true;
}

static bool links_to_nothing(struct conf *c)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	struct env_stat st;
	REQUIRE(c, conf_sh(c, "ln -s l2 l1; ln -s l1 l2; ln -s none dangling") == 0);
	REQUIRE(c, read_part(c, "l1", 0, 10, &b) == -ELOOP && stat_of(c, "l1", &st) == -ELOOP);
	REQUIRE(c, write_to(c, "l1", "x", 1, 0) == -ELOOP);
	REQUIRE(c, read_part(c, "dangling", 0, 10, &b) == -ENOENT);
	REQUIRE(c, conf_put(c, "dangling", "x") && conf_holds(c, "none", "x", 1));
	CLEAN_FREE char *path = conf_path(c, "dangling");
	REQUIRE(c, !env_remove(c->env, path, &c->err)); /* the link, not what it leads to */
	REQUIRE(c, conf_holds(c, "none", "x", 1));
	return true;
}

static bool appending(struct conf *c)
{
	REQUIRE(c, !write_to(c, "a/b/log", "one\n", 4, ENV_WRITE_APPEND | ENV_WRITE_PARENTS));
	REQUIRE(c, !write_to(c, "a/b/log", "\xc3", 1, ENV_WRITE_APPEND));
	REQUIRE(c, !write_to(c, "a/b/log", "\xa4\n", 2, ENV_WRITE_APPEND | ENV_WRITE_PARENTS));
	REQUIRE(c, !write_to(c, "a/b/log", "", 0, ENV_WRITE_APPEND));
	REQUIRE(c, conf_holds(c, "a/b/log", "one\n\xc3\xa4\n", 7));
	REQUIRE(c, write_to(c, "x/y", "z", 1, ENV_WRITE_APPEND) == -ENOENT);
	REQUIRE(c, !write_to(c, "empty", "", 0, ENV_WRITE_APPEND) && conf_holds(c, "empty", "", 0));
	return true;
}

static bool cutting(struct conf *c)
{
	REQUIRE(c, conf_put(c, "f", "a long text with \xc3\xa4"));
	REQUIRE(c, !write_to(c, "f", "a long text with \xc3", 18, 0)); /* in the middle of a character */
	REQUIRE(c, conf_holds(c, "f", "a long text with \xc3", 18));
	REQUIRE(c, !write_to(c, "f", "", 0, 0) && conf_holds(c, "f", "", 0));
	REQUIRE(c, !write_to(c, "f", "\0\0\0\0", 4, 0) && conf_holds(c, "f", "\0\0\0\0", 4));
	return true;
}

/* Who reads while a file is replaced sees the old one or the new one; no temporary file stays; its mode does. */
static bool replacing(struct conf *c)
{
	CLEAN_FREE char *job = conf_job(c);
	CLEAN_BUF struct buf big = BUF_INIT;
	struct env_job j;
	for (int i = 0; i < 40000; i++)
		buf_adds(&big, "12345678\n");
	REQUIRE(c, !write_to(c, "f", big.p, big.n, 0));
	REQUIRE(c, conf_sh(c, "chmod 751 f; ln f other") == 0);
	REQUIRE(c,
		!conf_start(c, job,
			    "while [ ! -e stop ]; do n=$(wc -c <f); [ $n -eq 360000 ] || [ $n -eq 9 ] || echo $n; done",
			    CASE_MS));
	for (int i = 0; i < 4; i++)
		REQUIRE(c, !write_to(c, "f", big.p, i % 2 ? big.n : 9, 0));
	REQUIRE(c, conf_put(c, "stop", ""));
	REQUIRE(c, !conf_wait(c, job, &j) && j.output == 0 && j.exit_code == 0);
	REQUIRE(c, conf_sh(c, "ls -A; ls -l f | cut -c1-10; wc -c <other | tr -d ' '") == 0);
	REQUIRE(c, !strcmp(buf_str(&c->out), "f\nother\nstop\n-rwxr-x--x\n360000\n"));
	return !env_ack(c->env, job, false, NULL, &c->err);
}

static bool odd_names(struct conf *c)
{
	static const char *const names[] = {"-n",    "two words", "new\nline", "\xff\xfe",
					    "$(id)", "*",	  "'\"`;&|",   "\xc3\xa4"};
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct env_stat st;
		REQUIRE(c, conf_put(c, names[i], names[i]));
		REQUIRE(c, conf_holds(c, names[i], names[i], strlen(names[i])));
		REQUIRE(c, !stat_of(c, names[i], &st));
	}
	REQUIRE(c, conf_sh(c, "ls -A | wc -l | tr -d ' '") == 0 && !strcmp(buf_str(&c->out), "9\n"));
	return true;
}

static bool relative_paths(struct conf *c)
{
	CLEAN_FREE char *name = xasprintf(".berthfs-conformance-%d", (int)getpid());
	CLEAN_FREE char *full = xasprintf("%s/%s", env_home(c->env), name);
	CLEAN_FREE char *script = xasprintf("cat '%s'", full);
	CLEAN_BUF struct buf b = BUF_INIT;
	REQUIRE(c, !env_write(c->env, name, "home", 4, 0, &c->err));
	bool ok = !env_read(c->env, full, 0, 10, &b, &c->err) && !strcmp(buf_str(&b), "home") &&
		  conf_sh(c, script) == 0 && !strcmp(buf_str(&c->out), "home");
	REQUIRE(c, !env_remove(c->env, name, &c->err));
	REQUIRE(c, ok);
	return true;
}

static bool protected_files(struct conf *c)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	REQUIRE(c, conf_put(c, "d/.env", "secret") && conf_put(c, "d/free", "free"));
	REQUIRE(c, conf_sh(c, "ln -s d/.env link; ln -s d dir") == 0);
	env_guard(c->env, ".env");
	static const char *const ways[] = {"d/.env", "link", "dir/.env", "dir/../d/.env"};
	bool ok = !read_part(c, "d/free", 0, 10, &b);
	for (size_t i = 0; i < ARRAY_LEN(ways); i++)
		ok = ok && read_part(c, ways[i], 0, 10, &b) == -EACCES && write_to(c, ways[i], "x", 1, 0) == -EACCES &&
		     write_to(c, ways[i], "x", 1, ENV_WRITE_APPEND) == -EACCES;
	ok = ok && write_to(c, "new/.env", "x", 1, ENV_WRITE_PARENTS) == -EACCES;
	env_guard(c->env, NULL);
	REQUIRE(c, ok);
	REQUIRE(c, conf_holds(c, "d/.env", "secret", 6));
	return true;
}

/* Some MiB both ways, by requests and by files. */
static bool much_data(struct conf *c)
{
	size_t n = (2 << 20) + 12345;
	CLEAN_FREE char *data = xmalloc(n);
	CLEAN_FREE char *here = xasprintf("%s/data", c->paths->state), *path = conf_path(c, "sub/big");
	CLEAN_BUF struct buf b = BUF_INIT;
	for (size_t i = 0; i < n; i++)
		data[i] = (char)(i * 31 + (i >> 11));
	REQUIRE(c, !file_write(here, data, n, 0600, &c->err));
	REQUIRE(c, !env_send_file(c->env, here, path, &c->err));
	REQUIRE(c, !read_part(c, "sub/big", 0, n + 1, &b) && b.n == n && !memcmp(b.p, data, n));
	REQUIRE(c, !unlink(here));
	REQUIRE(c, env_receive_file(c->env, path, n - 1, here, &c->err) == -EFBIG && !file_exists(here));
	REQUIRE(c, !env_receive_file(c->env, path, n, here, &c->err));
	buf_reset(&b);
	REQUIRE(c, !file_read(here, &b, n + 1, &c->err) && b.n == n && !memcmp(b.p, data, n));
	return !unlink(here);
}

const struct conf_case conf_files[] = {
	{"read: any range, at the end and past it", any_range},
	{"read and write: bytes are kept as they are, in parts of any size", bytes_are_kept},
	{"copy: a file that is replaced meanwhile comes out whole or not at all", copies_do_not_mix},
	{"read and write: folders, pipes and missing files are refused at once", no_files},
	{"stat: size, mode, time, real path", tells_of_files},
	{"folders: every entry once", whole_folders},
	{"remove: a file, a missing one, no folder", removing},
	{"watch: a command sees a file made, rewritten, replaced and removed", seen_inside},
	{"watch: what a command has written is there for the next request", seen_outside},
	{"watch: folders that are moved, made again and replaced are followed", parents_move},
	{"links: to files and folders are followed both ways", links_to_files},
	{"links: loops, and links to nothing", links_to_nothing},
	{"append: makes parents, adds bytes, makes empty files", appending},
	{"write: cuts to the byte", cutting},
	{"write: replaces at once, keeps the mode, leaves nothing beside it", replacing},
	{"names: any bytes", odd_names},
	{"paths: relative ones start at the home", relative_paths},
	{"guard: protected files under any name", protected_files},
	{"data: 2 MiB by requests and by files, with a limit", much_data},
	{0},
};
