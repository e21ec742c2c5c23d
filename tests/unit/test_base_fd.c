/* Files, folders and unix sockets: whole or not at all, no link followed, no path too long. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"

static char root[] = "/tmp/berthfs-fd-XXXXXX";

static void put(const char *path, const char *text)
{
	CHECK_INT(file_write(path, text, strlen(text), 0600, NULL), 0);
}

TEST(read_and_write)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	put("a", "one\n");
	CHECK_INT(file_write("a", "two", 3, 0644, NULL), 0);
	CHECK_INT(file_read("a", &b, 100, NULL), 0);
	CHECK_STR(buf_str(&b), "two");
	struct stat st;
	stat("a", &st);
	CHECK_INT(st.st_mode & 07777, 0644);
	buf_reset(&b);
	CHECK_INT(file_read("a", &b, 3, NULL), 0);
	CHECK_INT(file_read("a", &b, 2, &err), -EFBIG);
	CHECK_INT(file_read("none", &b, 2, &err), -ENOENT);
	CHECK(strstr(err.text, "none"));
	CHECK_INT(file_write("no/folder", "x", 1, 0600, &err), -ENOENT);
	CHECK_INT(file_write(".", "x", 1, 0600, &err), -EBUSY);
	CHECK(file_exists("a") && !file_exists("none"));
}

static void *rewrite(void *arg)
{
	CLEAN_FREE char *text = xmalloc(50000);
	for (int i = 0; i < 100; i++) {
		memset(text, 'a' + i % 26, 50000);
		if (file_write("whole", text, 50000, 0600, NULL))
			return root;
	}
	return NULL;
}

/* A reader sees one whole version, whenever it looks. */
TEST(a_written_file_is_never_seen_in_part)
{
	pthread_t t;
	void *failed;
	put("whole", "");
	CHECK_INT(rewrite(NULL) != NULL, 0);
	pthread_create(&t, NULL, rewrite, NULL);
	for (int i = 0; i < 2000; i++) {
		CLEAN_BUF struct buf b = BUF_INIT;
		if (file_read("whole", &b, 1 << 20, NULL) || b.n != 50000 || b.p[0] != b.p[49999]) {
			CHECK(!"it is whole");
			break;
		}
	}
	pthread_join(t, &failed);
	CHECK(!failed);
}

/* Is a temporary file there? */
static bool left_over(void)
{
	bool found = false;
	DIR *d = opendir(".");
	for (struct dirent *e; (e = readdir(d));)
		found |= strstr(e->d_name, ".tmp-") != NULL;
	closedir(d);
	return found;
}

/* On a full disk the old text stays and no temporary file is left. */
TEST(a_write_that_fails_leaves_the_old_file)
{
	pid_t pid;
	int status;
	put("old", "old text");
	if (!(pid = fork())) {
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096});
		char big[8192] = {0};
		_exit(file_write("old", big, sizeof big, 0600, NULL) == -EFBIG ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	CHECK_INT(status, 0);
	CLEAN_BUF struct buf b = BUF_INIT;
	file_read("old", &b, 100, NULL);
	CHECK_STR(buf_str(&b), "old text");
	CHECK(!left_over());
}

TEST(folders)
{
	struct err err = ERR_INIT;
	struct stat st;
	CHECK_INT(dir_make("p/q/r", 0700, NULL), 0);
	CHECK_INT(dir_make("p/q/r", 0700, NULL), 0);
	stat("p/q/r", &st);
	CHECK_INT(st.st_mode & 0777, 0700);
	put("file", "x");
	CHECK_INT(dir_make("file/q", 0700, &err), -ENOTDIR);
	CHECK_INT(dir_remove("none", NULL), 0);
	CHECK_INT(dir_remove("file", NULL), 0);
	CHECK(!file_exists("file"));
}

/* Links in a tree are removed and what they point to stays. */
TEST(removing_a_tree_follows_no_link)
{
	dir_make("outside", 0700, NULL);
	put("outside/kept", "x");
	dir_make("tree/deep", 0700, NULL);
	CHECK_INT(symlink("../../outside", "tree/deep/link") | symlink("/", "tree/root") |
			  symlink("gone", "tree/dangling"),
		  0);
	CHECK_INT(mkfifo("tree/fifo", 0600), 0);
	CHECK_INT(symlink("outside", "way"), 0);
	CHECK_INT(dir_remove("tree", NULL), 0);
	CHECK_INT(dir_remove("way", NULL), 0);
	CHECK(!file_exists("tree") && file_exists("outside/kept") && access("way", F_OK));
}

/* Go's module cache and others make folders that nobody may write; root may always, so another user tries. */
TEST(removing_a_tree_opens_closed_folders)
{
	int status;
	pid_t pid = fork();
	if (!pid) {
		if (dir_make("closed", 0755, NULL) || chown("closed", 65534, 65534) || chmod(".", 0755))
			_exit(1);
		if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
			_exit(2);
		if (dir_make("closed/a/b", 0700, NULL) || file_write("closed/a/b/c", "x", 1, 0400, NULL))
			_exit(3);
		chmod("closed/a/b", 0);
		chmod("closed/a", 0500);
		/* its own parent belongs to somebody else: all below has to go all the same */
		_exit(dir_remove("closed/a", NULL) ? 4 : access("closed/a", F_OK) ? 0 : 5);
	}
	waitpid(pid, &status, 0);
	CHECK_INT(WEXITSTATUS(status), 0);
	CHECK_INT(dir_remove("closed", NULL), 0);
}

/* A mount inside is another file system: it is refused and not emptied. */
TEST(removing_a_tree_stays_in_its_file_system)
{
	int status;
	pid_t pid = fork();
	if (!pid) {
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
			_exit(99);
		dir_make("host/inner", 0700, NULL);
		if (mount("t", "host/inner", "tmpfs", 0, NULL))
			_exit(99);
		put("host/inner/kept", "x");
		_exit(dir_remove("host", NULL) == -EXDEV && file_exists("host/inner/kept") ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	if (WEXITSTATUS(status) == 99)
		printf("skip removing_a_tree_stays_in_its_file_system: no right to mount\n");
	else
		CHECK_INT(WEXITSTATUS(status), 0);
	dir_remove("host", NULL);
}

#define DEEP 5000

/* Each level has a file, some a folder or two that are met on the way down or on the way back. */
static bool make_deep(const char *name, int levels)
{
	int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < levels && fd >= 0; i++) {
		int next = mkdirat(fd, name, 0755) ? -1 : openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = next;
		int file = fd < 0 ? -1 : openat(fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (file < 0 || (i % 20 == 0 && (mkdirat(fd, "a-side", 0755) || mkdirat(fd, "z-side", 0755) ||
						 mkdirat(fd, "z-side/more", 0755))))
			return false;
		close(file);
		name = "deep";
	}
	close(fd);
	return fd >= 0;
}

static void *remove_deep(void *arg)
{
	struct err err = ERR_INIT;
	uint64_t bytes = 0;
	if (dir_bytes(arg, &bytes))
		return xstrdup("it is not added up");
	return dir_remove(arg, &err) ? xstrdup(err.text) : NULL;
}

TEST(adding_up_a_tree)
{
	uint64_t bytes = 1, more;
	dir_make("sum/a/b", 0700, NULL);
	dir_make("sum/c", 0, NULL);
	dir_make("outside", 0700, NULL);
	CHECK_INT(dir_bytes("sum", &bytes), 0);
	CLEAN_FREE char *text = xcalloc(1, 100000);
	memset(text, 'x', 100000);
	CHECK_INT(file_write("sum/a/b/file", text, 100000, 0600, NULL), 0);
	CHECK_INT(file_write("outside/file", text, 100000, 0600, NULL), 0);
	CHECK_INT(symlink("../outside", "sum/link"), 0);
	CHECK_INT(dir_bytes("sum", &more), 0);
	CHECK(more >= bytes + 100000 && more < bytes + 200000);
	CHECK_INT(dir_bytes("none", &more), -ENOENT);
	CHECK_INT(dir_bytes("sum/a/b/file", &more), -ENOTDIR);
	dir_remove("sum", NULL);
}

/* What a hostile program has left can be deeper than there are descriptors, and than a thread's stack. */
TEST(removing_a_tree_of_many_levels)
{
	int status;
	pid_t pid = fork();
	if (!pid) {
		pthread_t t;
		pthread_attr_t small;
		void *words = NULL;
		struct rlimit few = {64, 64};
		if (!make_deep("deepest", DEEP))
			_exit(1);
		setrlimit(RLIMIT_NOFILE, &few);
		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 256 << 10);
		if (pthread_create(&t, &small, remove_deep, (void *)(uintptr_t) "deepest") || pthread_join(t, &words))
			_exit(2);
		if (words)
			printf("# %s\n", (char *)words);
		_exit(words ? 3 : access("deepest", F_OK) ? 0 : 4);
	}
	waitpid(pid, &status, 0);
	CHECK_INT(status, 0);
}

/* A folder that is moved elsewhere while what lies in it is removed: nothing beside its new place is. */
struct mover {
	atomic_bool end;
	int moves;
};

static void *move_about(void *arg)
{
	struct mover *m = arg;
	CLEAN_BUF struct buf at = BUF_INIT;
	buf_adds(&at, "moved");
	for (int i = 0; i < 40; i++)
		buf_adds(&at, "/deep");
	while (!atomic_load(&m->end)) {
		m->moves += !rename(buf_str(&at), "elsewhere/here");
		m->moves += !rename("elsewhere/here", buf_str(&at));
		sched_yield();
	}
	return NULL;
}

TEST(removing_a_tree_whose_folders_move)
{
	struct mover m = {.moves = 0};
	dir_make("elsewhere", 0755, NULL);
	put("elsewhere/kept", "x");
	for (int i = 0; i < 5; i++) {
		pthread_t t;
		CHECK(make_deep("moved", 60));
		atomic_store(&m.end, false);
		pthread_create(&t, NULL, move_about, &m);
		for (int tries = 0; tries < 200 && file_exists("moved"); tries++)
			dir_remove("moved", NULL);
		atomic_store(&m.end, true);
		pthread_join(t, NULL);
		CHECK_INT(dir_remove("moved", NULL), 0);
		CHECK(file_exists("elsewhere/kept"));
		CHECK_INT(dir_remove("elsewhere/here", NULL), 0);
	}
	printf("# %d moves\n", m.moves);
	dir_remove("elsewhere", NULL);
}

static void echo_over(const char *path)
{
	struct err err = ERR_INIT;
	CLEAN_FD int l = unix_listen(path, 0600, &err);
	if (l < 0)
		printf("# %s\n", err.text);
	CHECK(l >= 0);
	struct stat st;
	CHECK(!stat(path, &st) && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0600);
	CLEAN_FD int c = unix_connect(path, &err);
	CHECK(c >= 0);
	CLEAN_FD int s = accept(l, NULL, NULL);
	uid_t uid = 1;
	pid_t pid = 0;
	CHECK_INT(unix_peer(s, &uid, &pid), 0);
	CHECK(uid == getuid() && pid == getpid());
	char got[5] = "";
	CHECK_INT(fd_write_full(c, "hello", 5), 0);
	CHECK_INT(fd_read_full(s, got, 5), 0);
	CHECK(!memcmp(got, "hello", 5));
	CHECK(fcntl(l, F_GETFD) & fcntl(c, F_GETFD) & FD_CLOEXEC);
	fd_close(&c);
	CHECK_INT(fd_read_full(s, got, 1), -EPIPE);
	CHECK_INT(fd_write_full(s, "x", 1) && fd_write_full(s, "x", 1), 1); /* an error, and no signal */
}

TEST(sockets)
{
	struct err err = ERR_INIT;
	echo_over("socket");
	echo_over("socket"); /* a stale one is replaced */
	CHECK_INT(unix_connect("socket", &err), -ECONNREFUSED);
	CHECK_INT(unix_connect("none", &err), -ENOENT);
	put("plain", "x");
	CHECK_INT(unix_listen("plain", 0600, &err), -EADDRINUSE); /* a file in the way is no stale socket */
	CHECK(file_exists("plain"));
}

TEST(sockets_with_long_paths)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	buf_adds(&b, root);
	for (int i = 0; i < 20; i++)
		buf_addf(&b, "/a-folder-with-a-long-name-%d", i);
	dir_make(buf_str(&b), 0700, NULL);
	buf_adds(&b, "/socket");
	CHECK(b.n > 500);
	echo_over(buf_str(&b));
	buf_cut(&b, b.n - 6);
	for (int i = 0; i < 30; i++)
		buf_adds(&b, "name");
	CHECK_INT(unix_listen(buf_str(&b), 0600, &err), -ENAMETOOLONG);
}

TEST(descriptors)
{
	int p[2], fd = -1;
	CLEAN_BUF struct buf b = BUF_INIT;
	fd_close(&fd);
	CHECK(!pipe(p));
	errno = EXDEV;
	fd = take_fd(&p[1]);
	CHECK(p[1] == -1 && fd >= 0);
	CHECK_INT(fd_write_full(fd, "abc", 3), 0);
	fd_close(&fd);
	CHECK(fd == -1 && errno != 0);
	CHECK_INT(fd_read_all(p[0], &b, 10), 0);
	CHECK_STR(buf_str(&b), "abc");
	CHECK_INT(fd_nonblock(p[0]), 0);
	CHECK(fcntl(p[0], F_GETFL) & O_NONBLOCK);
	fd_close(&p[0]);
	CHECK_INT(fd_nonblock(-1), -EBADF);
}

static int open_descriptors(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Two at once fit into the room that the kernel's alignment leaves for one. */
static ssize_t send_two(int fd, const int *two)
{
	char room[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8))) = {0};
	struct iovec v = {(char[]){"2"}, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(2 * sizeof(int))};
	memcpy(CMSG_DATA(c), two, 2 * sizeof(int));
	return sendmsg(fd, &m, 0);
}

TEST(descriptors_through_sockets)
{
	int s[2], p[2], got = -2;
	char word[8] = "";
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) && !pipe(p));
	CHECK_INT(unix_send(s[0], "alone", 5, -1, 0), 5);
	CHECK_INT(unix_receive(s[1], word, sizeof word, &got, MSG_DONTWAIT), 5);
	CHECK(!memcmp(word, "alone", 5) && got == -1);
	CHECK_INT(unix_send(s[0], "with", 4, p[1], 0), 4);
	CHECK_INT(unix_receive(s[1], word, sizeof word, &got, MSG_DONTWAIT), 4);
	CHECK(got >= 0 && got != p[1] && fcntl(got, F_GETFD) & FD_CLOEXEC);
	CHECK(write(got, "x", 1) == 1 && read(p[0], word, 1) == 1);
	fd_close(&got);

	int before = open_descriptors();
	CHECK_INT(send_two(s[0], p), 1);
	CHECK_INT(unix_receive(s[1], word, sizeof word, &got, MSG_DONTWAIT), 1);
	fd_close(&got);
	CHECK_INT(open_descriptors(), before);
	CHECK_INT(unix_receive(s[1], word, sizeof word, &got, MSG_DONTWAIT), -EAGAIN);
	CHECK_INT(got, -1);
	fd_close(&s[0]);
	CHECK_INT(unix_receive(s[1], word, sizeof word, &got, 0), 0);
	CHECK_INT(unix_send(s[1], "gone", 4, -1, 0), -EPIPE);
	fd_close(&s[1]);
	close(p[0]);
	close(p[1]);
}

TEST(lines_that_come_in_pieces)
{
	int s[2];
	char line[5] = "", rest[8];
	size_t n = 0;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s));
	CHECK(unix_peer_ours(s[0]));
	CHECK_INT(unix_line(s[1], line, 4, &n), 0);
	CHECK_INT(fd_write_full(s[0], "a", 1), 0);
	CHECK_INT(unix_line(s[1], line, 4, &n), 0);
	CHECK_INT(fd_write_full(s[0], "bc\nmore", 7), 0);
	CHECK_INT(unix_line(s[1], line, 4, &n), 1);
	CHECK_STR(line, "abc");
	CHECK(read(s[1], rest, sizeof rest) == 4 && !memcmp(rest, "more", 4));
	n = 0;
	CHECK_INT(fd_write_full(s[0], "abcd\n", 5), 0);
	CHECK_INT(unix_line(s[1], line, 4, &n), -EMSGSIZE);
	fd_close(&s[0]);
	n = 0;
	CHECK_INT(unix_line(s[1], line, 4, &n), -EPIPE);
	fd_close(&s[1]);
}

int run_tests(void);
#define main run_tests
CHECK_MAIN()
#undef main

int main(void)
{
	if (!mkdtemp(root) || chdir(root))
		return 1;
	int rc = run_tests();
	dir_remove(root, NULL);
	return rc;
}
