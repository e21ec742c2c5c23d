/* Times of what the daemon does with a checkout, without a sandbox: git_ops CHECKOUT BASE BRANCH. Also whether small
 * bundles are made faster in process than by git. */
#include <git2.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/git/repo.h"

#define ROUNDS 5

static int64_t best_us, best_cpu_us;

#define TIME(call)                                                                                                     \
	do {                                                                                                           \
		best_us = best_cpu_us = INT64_MAX;                                                                     \
		for (int i_ = 0; i_ < ROUNDS; i_++) {                                                                  \
			int64_t from_ = clock_mono_us(), cpu_ = cpu_us();                                              \
			if (call) {                                                                                    \
				printf("# failed: %s: %s\n", #call, e.text);                                           \
				return 1;                                                                              \
			}                                                                                              \
			int64_t took_ = clock_mono_us() - from_;                                                       \
			cpu_ = cpu_us() - cpu_;                                                                        \
			best_us = took_ < best_us ? took_ : best_us;                                                   \
			best_cpu_us = cpu_ < best_cpu_us ? cpu_ : best_cpu_us;                                         \
		}                                                                                                      \
	} while (0)

/* Of this process and of the children that have ended. */
static int64_t cpu_us(void)
{
	int64_t sum = 0;
	for (int who = RUSAGE_CHILDREN; who <= RUSAGE_SELF; who++) {
		struct rusage u;
		getrusage(who, &u);
		sum += (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec +
		       u.ru_stime.tv_usec;
	}
	return sum;
}

static void say(const char *what, int64_t bar_ms)
{
	printf("%s: %.1f ms, %.1f ms of a processor", what, (double)best_us / 1000.0, (double)best_cpu_us / 1000.0);
	if (bar_ms)
		printf(", bar %" PRId64 " ms", bar_ms);
	putchar('\n');
}

/* The pack of a bundle as libgit2 makes it. */
static int pack_in_process(const char *path, const char *head, const char *not_head)
{
	git_repository *repo = NULL;
	git_packbuilder *pack = NULL;
	git_revwalk *walk = NULL;
	git_oid a, b;
	git_buf out = GIT_BUF_INIT;
	int rc = git_repository_open(&repo, path) || git_packbuilder_new(&pack, repo) || git_revwalk_new(&walk, repo) ||
		 git_oid_fromstr(&a, head) || git_oid_fromstr(&b, not_head) || git_revwalk_push(walk, &a) ||
		 git_revwalk_hide(walk, &b) || git_packbuilder_insert_walk(pack, walk) ||
		 git_packbuilder_write_buf(&out, pack);
	git_buf_dispose(&out);
	git_revwalk_free(walk);
	git_packbuilder_free(pack);
	git_repository_free(repo);
	return rc;
}

static int texts(const char *path, const char *base, const char *head, struct err *e)
{
	CLEAN_BUF struct buf diff = BUF_INIT, changes = BUF_INIT, commits = BUF_INIT;
	int rc = repo_diff(path, base, head, &diff, e);
	rc = rc ? rc : repo_changes(path, base, head, &changes, e);
	return rc ? rc : repo_commits(path, base, head, &commits, e);
}

static int diff_alone(const char *path, const char *base, const char *head, struct err *e)
{
	CLEAN_BUF struct buf diff = BUF_INIT;
	return repo_diff(path, base, head, &diff, e);
}

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;
	char base[COMMIT_TEXT], head[COMMIT_TEXT];
	if (argc != 4 || repo_begin(&e) || repo_branch_commit(argv[1], argv[2], base, &e) ||
	    repo_branch_commit(argv[1], argv[3], head, &e)) {
		printf("# %s\n", e.text);
		return 1;
	}
	const char *path = argv[1], *have[] = {base, NULL};
	CLEAN_FREE char *file = xasprintf("%s.bundle", path);
	TIME(repo_bundle_create(path, head, "HEAD", NULL, file, NULL, &e));
	say("bundle of everything, by git", 1000);
	TIME(repo_bundle_create(path, head, "HEAD", have, file, NULL, &e));
	say("bundle of the branch alone, by git", 0);
	TIME(pack_in_process(path, head, base));
	say("the same pack in process, by libgit2", 0);
	TIME(diff_alone(path, base, head, &e));
	say("diff", 300);
	TIME(texts(path, base, head, &e));
	say("diff, changes and commits", 0);
	unlink(file);
	repo_end();
	return 0;
}
