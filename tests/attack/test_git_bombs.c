/* Commits that are small to send and endless to look at. What a sandbox commits is shown and judged on the host, which
 * must come to an end with it and need little memory. */
#include <errno.h>
#include <git2.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/git/repo.h"
#include "tests/unit/check.h"
#include "tests/unit/git_fixture.h"

#define CPU_S	   20	  /* of the processor: others may use it, too */
#define TIME_MS	   200000 /* in which it has to come back, used or not */
#define LOCK_MS	   60000
#define MEMORY_MIB 600

static char *app;

/* Runs fn in a child with little memory and time. True if it came back with 0. */
static bool bounded(int (*fn)(const char *base, const char *head), const char *base, const char *head)
{
	int64_t end = clock_mono_ms() + TIME_MS;
	int status = -1;
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		setrlimit(RLIMIT_CPU, &(struct rlimit){CPU_S, CPU_S});
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		struct rlimit r = {(rlim_t)MEMORY_MIB << 20, (rlim_t)MEMORY_MIB << 20};
		setrlimit(RLIMIT_AS, &r);
#endif
		_exit(fn(base, head) ? 1 : 0);
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_mono_ms() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			printf("# it does not come to an end\n");
			return false;
		}
		clock_sleep_ms(5);
	}
	if (status)
		printf("# wait status %#x\n", status);
	return status == 0;
}

/* 0, or words on standard output. */
static int show(const char *base, const char *head)
{
	CLEAN_BUF struct buf diff = BUF_INIT, changes = BUF_INIT, commits = BUF_INIT;
	struct err err = ERR_INIT;
	int rc = repo_diff(app, base, head, &diff, &err);
	rc = rc ? rc : repo_changes(app, base, head, &changes, &err);
	rc = rc ? rc : repo_commits(app, base, head, &commits, &err);
	if (rc)
		printf("# %s\n", err.text);
	fflush(stdout);
	return rc || diff.n > REPO_TEXT_MAX + 1000 || changes.n > REPO_TEXT_MAX + 1000 || !changes.n;
}

static int look(const char *base, const char *head)
{
	CLEAN_BUF struct buf words = BUF_INIT;
	struct err err = ERR_INIT;
	int rc = repo_not_carried(app, head, &words, &err);
	printf("# %d %s%s\n", rc, err.text, buf_str(&words));
	fflush(stdout);
	return 0; /* what it says is its own; that it ends is what counts */
}

static int merge(const char *base, const char *head)
{
	struct err err = ERR_INIT;
	enum repo_merge result = REPO_MERGE_DONE;
	int rc = repo_merge_ff(app, "sandbox/1", &result, &err);
	return rc || result != REPO_MERGE_REFUSED;
}

/* A commit of this tree upon HEAD. */
static const char *commit_of(const char *tree)
{
	return sh("cd app; git commit-tree -p HEAD -m bomb %s", tree);
}

TEST(many_files_of_few_objects)
{
	make_project();
	const char *base = sh("git -C app rev-parse HEAD");
	const char *tree = sh("cd app; b=$(echo x | git hash-object -w --stdin); k=blob m=100644;"
			      "for level in 1 2 3 4 5 6 7 8 9 10; do b=$(for i in 0 1 2 3 4 5 6 7 8 9; do "
			      "printf '%%s %%s %%s\\tf%%s\\n' $m $k $b $i; done | git mktree); k=tree m=040000; done;"
			      "echo $b");
	const char *head = commit_of(tree);
	CHECK(bounded(show, base, head));
	CHECK(bounded(look, base, head));
	sh("git -C app branch -f sandbox/1 %s", head);
	CHECK(bounded(merge, base, head));
	const char *back = sh("cd app; git commit-tree -p %s -m gone %s^{tree}", head, base);
	CHECK(bounded(show, head, back));
}

/* Folders in folders, with one file at the bottom. */
static void deep_tree(int depth, char hex[COMMIT_TEXT])
{
	git_repository *repo = NULL;
	git_oid id;
	git_repository_open(&repo, app);
	git_blob_create_from_buffer(&id, repo, "x\n", 2);
	for (int i = 0; i < depth; i++) {
		git_treebuilder *b = NULL;
		git_treebuilder_new(&b, repo, NULL);
		git_treebuilder_insert(NULL, b, "d", &id, i ? GIT_FILEMODE_TREE : GIT_FILEMODE_BLOB);
		git_treebuilder_write(&id, b);
		git_treebuilder_free(b);
	}
	git_repository_free(repo);
	git_oid_tostr(hex, COMMIT_TEXT, &id);
}

TEST(deep_folders)
{
	char tree[COMMIT_TEXT];
	make_project();
	const char *base = sh("git -C app rev-parse HEAD");
	deep_tree(20000, tree);
	const char *head = commit_of(tree);
	CHECK(bounded(show, base, head));
	CHECK(bounded(look, base, head));
}

TEST(large_files_of_nothing)
{
	make_project();
	const char *base = sh("cd app; truncate -s 400M z; git -c core.compression=1 add .; git commit -qm zeros; "
			      "git rev-parse HEAD");
	const char *head = sh("cd app; mkdir d; git mv z d/y; echo y >>d/y; git -c core.compression=1 add .; "
			      "git commit -qm moved; git rev-parse HEAD");
	CHECK(bounded(show, base, head));
}

static void *move_branch(void *arg)
{
	struct repo_fetch_how how = {.head = arg, .branch = "sandbox/1"};
	enum repo_fetch result;
	struct err err = ERR_INIT;
	int rc = repo_bundle_fetch(app, &how, &result, &err);
	if (rc)
		printf("# %s\n", err.text);
	return (void *)(intptr_t)rc;
}

TEST(a_lock_from_the_future)
{
	make_project();
	const char *head = sh("cd app; git commit -q --allow-empty -m more; git rev-parse HEAD");
	sh("cd app; mkdir -p .git/refs/heads/sandbox; touch -d 2100-01-01 .git/refs/heads/sandbox/1.lock");
	void *rc = NULL;
	int64_t start = clock_mono_ms();
	pthread_t t;
	pthread_create(&t, NULL, move_branch, (void *)(uintptr_t)head);
	pthread_join(t, &rc);
	CHECK_INT((intptr_t)rc, 0);
	CHECK(clock_mono_ms() - start < LOCK_MS);
	CHECK_STR(sh("git -C app rev-parse sandbox/1"), head);
}

TEST(a_lock_that_cannot_be_removed)
{
	const char *head = sh("cd app; git commit -q --allow-empty -m again; git rev-parse HEAD");
	sh("cd app; mkdir .git/refs/heads/sandbox/1.lock");
	int64_t start = clock_mono_ms();
	CHECK((intptr_t)move_branch((void *)(uintptr_t)head) < 0);
	CHECK(clock_mono_ms() - start < LOCK_MS);
	sh("rmdir app/.git/refs/heads/sandbox/1.lock");
}

TEST(a_pack_of_too_many_objects)
{
	const char *head = sh("git -C app rev-parse HEAD");
	sh("printf '# v2 git bundle\\n%s HEAD\\n\\nPACK\\0\\0\\0\\2\\377\\377\\377\\377' >big.bundle", head);
	CLEAN_FREE char *file = at("big.bundle");
	struct repo_fetch_how how = {
		.file = file, .head = "0123456789012345678901234567890123456789", .branch = "sandbox/2"};
	enum repo_fetch result;
	struct err err = ERR_INIT;
	CHECK_INT(repo_bundle_fetch(app, &how, &result, &err), -EFBIG);
}

/* A few kilobytes that are 8 GiB to whoever puts a delta and its base together. */
TEST(deltas_of_gigabytes)
{
	static const char bomb[] =
		"import hashlib, struct, sys, zlib\n"
		"def head(t, n):\n"
		"    b = (t << 4) | (n & 15); n >>= 4; o = b''\n"
		"    while n: o += bytes([b | 128]); b = n & 127; n >>= 7\n"
		"    return o + bytes([b])\n"
		"def var(n):\n"
		"    o = b''\n"
		"    while n > 127: o += bytes([n & 127 | 128]); n >>= 7\n"
		"    return o + bytes([n])\n"
		"base = bytes(0xffffff)\n"
		"sha = hashlib.sha1(b'blob %d\\0' % len(base) + base).digest()\n"
		"n = 512\n"
		"delta = var(len(base)) + var(n * len(base)) + bytes([0xf0, 255, 255, 255]) * n\n"
		"p = b'PACK' + struct.pack('>II', 2, 2)\n"
		"p += head(3, len(base)) + zlib.compress(base)\n"
		"p += head(7, len(delta)) + sha + zlib.compress(delta)\n"
		"p += hashlib.sha1(p).digest()\n"
		"sys.stdout.buffer.write(b'# v2 git bundle\\n' + sys.argv[1].encode() + b' HEAD\\n\\n' + p)\n";
	if (!child_found("python3")) {
		printf("# no python3 to make the pack\n");
		return;
	}
	CLEAN_FREE char *script = at("bomb.py"), *file = at("delta.bundle");
	file_write(script, bomb, strlen(bomb), 0600, NULL);
	const char *head = sh("git -C app rev-parse HEAD");
	sh("python3 bomb.py %s >delta.bundle", head);
	struct repo_fetch_how how = {
		.file = file, .head = "0123456789012345678901234567890123456789", .branch = "sandbox/4"};
	enum repo_fetch result;
	struct err err = ERR_INIT;
	struct rusage use;
	int64_t start = clock_mono_ms();
	CHECK(repo_bundle_fetch(app, &how, &result, &err) < 0);
	printf("# %s\n", err.text);
	CHECK(strstr(err.text, "git does not take what the sandbox sent") != NULL);
	CHECK(clock_mono_ms() - start < TIME_MS);
	getrusage(RUSAGE_CHILDREN, &use);
	CHECK(use.ru_maxrss < 2200L << 10); /* KiB */
}

__attribute__((constructor(101))) static void setup(void)
{
	fixture_begin();
	repo_begin(NULL);
	app = at("app");
}

CHECK_MAIN()
