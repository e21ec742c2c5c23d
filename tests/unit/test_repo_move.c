/* What moves: bundles out of and into the checkout, its session branches, and the merge after a run. */
#include <errno.h>
#include <pthread.h>

#include "backend/git/repo.h"
#include "check.h"
#include "git_fixture.h"

static char *app, *file;

TEST(begin)
{
	fixture_begin();
	CHECK_INT(repo_begin(NULL), 0);
	app = at("app");
	file = at("t.bundle");
}

/* A commit in the box, bundled as a sandbox does it. */
static const char *box_commit(const char *setup, const char * not )
{
	return sh("cd box; %s; git add -A; git commit -q --allow-empty -m work; git bundle create -q ../t.bundle HEAD "
		  "--not %s;"
		  "git rev-parse HEAD",
		  setup, not );
}

static enum repo_fetch fetch(const char *head, const char *replace, struct err *e)
{
	struct repo_fetch_how how = {.file = file, .head = head, .branch = "sandbox/3", .replace = replace};
	enum repo_fetch result = (enum repo_fetch)99;
	*e = ERR_INIT;
	int rc = repo_bundle_fetch(app, &how, &result, e);
	if (rc)
		printf("# fetch: %d %s\n", rc, e->text);
	return rc ? (enum repo_fetch)(100 - rc) : result;
}

static const char *tip(void)
{
	return sh("git -C app rev-parse -q --verify refs/heads/sandbox/3 || echo none");
}

TEST(bundle_out_whole)
{
	make_project();
	const char *first = sh("git -C app rev-parse HEAD");
	sh("cd app; git commit -q --allow-empty -m later; git pack-refs --all; git for-each-ref >../refs");
	CHECK_INT(repo_bundle_create(app, first, "HEAD", NULL, file, NULL, NULL), 0);
	CHECK_STR(sh("git bundle list-heads t.bundle"), sh("echo %s HEAD", first));
	CHECK_STR(sh("git clone -q t.bundle c; git -C c fsck --strict; git -C c rev-parse HEAD; rm -rf c"), first);
	CHECK_STR(sh("cd app; git for-each-ref | cmp - ../refs"), ""); /* no ref was made for it */
	CHECK_INT(repo_bundle_create(app, "0123456789012345678901234567890123456789", "HEAD", NULL, file, NULL, NULL),
		  -EIO);
	CHECK(!file_exists(file));
	CHECK_INT(repo_bundle_create(app, first, "HEAD", NULL, "/proc/nope", NULL, NULL), -ENOENT);
}

TEST(bundle_out_thin)
{
	make_project();
	make_box();
	const char *first = sh("git -C app rev-parse HEAD");
	const char *base =
		sh("cd app; seq 100000 >big; git add big; git commit -qm big; echo 100001 >>big; git commit -qam more;"
		   "git rev-parse HEAD");
	const char *mid = sh("git -C app rev-parse HEAD~");
	CHECK_INT(repo_bundle_create(app, base, "refs/berthfs/base", (const char *const[]){first, NULL}, file, NULL,
				     NULL),
		  0);
	CHECK_STR(sh("cd box; git fetch -q ../t.bundle refs/berthfs/base:refs/berthfs/base; git rev-parse "
		     "refs/berthfs/base"),
		  base);
	CHECK_INT(
		repo_bundle_create(app, base, "refs/berthfs/base", (const char *const[]){mid, NULL}, file, NULL, NULL),
		0);
	CHECK(atoi(sh("stat -c %%s t.bundle")) < 2000); /* against the big blob that the reader has */
}

TEST(bundle_out_shallow)
{
	make_project();
	sh("rm -rf thin c; cd app; for i in 1 2 3 4; do echo $i >f; git add f; git commit -qm c$i; done; git push -q; "
	   "cd ..;"
	   "git clone -q --depth 2 file://$PWD/app.git thin");
	CLEAN_FREE char *thin = at("thin");
	const char *head = sh("git -C thin rev-parse HEAD");
	CHECK_INT(repo_bundle_create(thin, head, "HEAD", NULL, file, NULL, NULL), 0);
	sh("git init -q c; cp thin/.git/shallow c/.git; cd c; git fetch -q ../t.bundle HEAD:refs/heads/x; git checkout "
	   "-q x;"
	   "git fsck --strict");
	CHECK_STR(sh("cd c; git rev-list --count HEAD; cat f"), "2\n4");
	/* and back from the shallow clone */
	const char *work = sh("cd c; echo 5 >f; git commit -qam five; git bundle create -q ../t.bundle HEAD --not %s;"
			      "git rev-parse HEAD",
			      head);
	struct repo_fetch_how how = {.file = file, .head = work, .branch = "sandbox/3"};
	enum repo_fetch result;
	CHECK_INT(repo_bundle_fetch(thin, &how, &result, NULL), 0);
	CHECK_INT(result, REPO_CREATED);
	sh("rm -rf thin c");
}

TEST(in_created_forwarded_unchanged)
{
	struct err e;
	make_project();
	make_box();
	sh("cd app; echo dirty >>one.txt; git rev-parse HEAD >../before; git status --porcelain >>../before; ls -A "
	   ".git >../dir");
	const char *a = box_commit("echo a >a", "HEAD~");
	CHECK_INT(fetch(a, NULL, &e), REPO_CREATED);
	CHECK_STR(tip(), a);
	CHECK_INT(fetch(a, NULL, &e), REPO_UNCHANGED);
	const char *b = box_commit("echo b >b", a);
	CHECK_INT(fetch(b, NULL, &e), REPO_FORWARDED);
	CHECK_STR(tip(), b);
	CHECK_STR(sh("cd app; git rev-parse HEAD; git status --porcelain"), sh("cat before"));
	CHECK_STR(sh("ls -A app/.git"), sh("cat dir")); /* no FETCH_HEAD or other trace beside */
	CHECK_STR(sh("git -C app log -g --format=%%gs sandbox/3"),
		  "berthfs: forwarded from the sandbox\nberthfs: created from the sandbox");
	CHECK_STR(sh("git -C app for-each-ref --format='%%(refname)' | sort"),
		  "refs/heads/main\nrefs/heads/sandbox/3\nrefs/remotes/origin/main");
	sh("git -C app fsck --strict");
	/* the user deleted the branch: it comes back */
	sh("git -C app branch -qD sandbox/3");
	CHECK_INT(fetch(b, NULL, &e), REPO_CREATED);
}

TEST(in_not_descendant_and_replace)
{
	struct err e;
	make_project();
	make_box();
	const char *a = box_commit("echo a >a", "HEAD~");
	CHECK_INT(fetch(a, NULL, &e), REPO_CREATED);
	const char *b = box_commit("git reset -q --hard HEAD~; echo b >b", "HEAD~");
	CHECK_INT(fetch(b, NULL, &e), REPO_NOT_DESCENDANT);
	CHECK_INT(e.code, 0);
	CHECK(strstr(e.text, "does not descend"));
	CHECK_STR(tip(), a);
	CHECK_STR(sh("git -C app cat-file -t %s", b), "commit"); /* the objects have landed all the same */
	/* a ship may replace it, but not what somebody else has put there */
	sh("git -C app branch -f sandbox/3 main");
	CHECK_INT(fetch(b, a, &e), REPO_MOVED);
	CHECK_INT(e.code, 0);
	CHECK_INT(fetch(b, "", &e), REPO_MOVED);
	CHECK_STR(tip(), sh("git -C app rev-parse main"));
	sh("git -C app branch -f sandbox/3 %s", a);
	sh("git -C app config core.logAllRefUpdates false");
	CHECK_INT(fetch(b, a, &e), REPO_REPLACED);
	CHECK_STR(tip(), b);
	CHECK_STR(sh("git -C app rev-parse 'sandbox/3@{1}'"), a);
	CHECK_INT(fetch(b, a, &e), REPO_UNCHANGED); /* a repeat after a crash */
	/* what we put there ourselves may be replaced also if the caller died before it could note it */
	const char *c = box_commit("git reset -q --hard HEAD~; echo c >c", "HEAD~");
	CHECK_INT(fetch(c, a, &e), REPO_REPLACED);
	CHECK_INT(fetch(b, c, &e), REPO_REPLACED);
	/* back to an ancestor is no fast-forward either */
	CHECK_INT(fetch(sh("git -C app rev-parse main"), NULL, &e), REPO_NOT_DESCENDANT);
	sh("git -C app branch -qD sandbox/3");
	CHECK_INT(fetch(b, a, &e), REPO_MOVED);
	CHECK_INT(fetch(b, "", &e), REPO_CREATED);
}

TEST(in_checked_out)
{
	struct err e;
	make_project();
	make_box();
	const char *a = box_commit("echo a >a", "HEAD~");
	CHECK_INT(fetch(a, NULL, &e), REPO_CREATED);
	sh("git -C app checkout -q sandbox/3");
	const char *b = box_commit("echo b >b", a);
	CHECK_INT(fetch(b, NULL, &e), REPO_CHECKED_OUT);
	CHECK(strstr(e.text, "checked out"));
	CHECK_STR(tip(), a);
	CHECK_INT(fetch(b, a, &e), REPO_CHECKED_OUT);
	sh("cd app; git checkout -q main; git worktree add -q ../side sandbox/3");
	CHECK_INT(fetch(b, NULL, &e), REPO_CHECKED_OUT);
	sh("cd app; git worktree remove ../side");
	CHECK_INT(fetch(b, NULL, &e), REPO_FORWARDED);
	CHECK_STR(sh("cd app; git status --porcelain"), "");
}

TEST(in_bad_bundles)
{
	struct err e;
	make_project();
	make_box();
	const char *a = box_commit("echo a >a", "HEAD~"), *no = "0123456789012345678901234567890123456789";
	CHECK_INT(fetch(no, NULL, &e), 100 + EBADMSG);
	CHECK(strstr(e.text, "did not send"));
	CHECK_INT(fetch("HEAD", NULL, &e), 100 + EINVAL);
	sh("truncate -s -10 t.bundle; cd app; git gc -q --prune=now");
	CHECK_INT(fetch(a, NULL, &e), 100 + EBADMSG);
	sh("echo junk >t.bundle");
	CHECK_INT(fetch(a, NULL, &e), 100 + EBADMSG);
	sh("rm t.bundle");
	CHECK_INT(fetch(a, NULL, &e), 100 + ENOENT);
	/* a prerequisite that only the box has */
	const char *b = box_commit("echo b >b", a);
	CHECK_INT(fetch(b, NULL, &e), 100 + EBADMSG);
	CHECK(strstr(e.text, "lacks"));
	CHECK_STR(tip(), "none");
	/* a tree that would write into .git of whoever checks it out: made by hand, since git itself does not */
	const char *evil = sh("cd box; b=$(echo x | git hash-object -w --stdin);"
			      "t=$(printf '100644 blob %%s\\thooks\\n' $b | git mktree);"
			      "t=$(printf '040000 tree %%s\\t.GIT\\n' $t | git mktree);"
			      "c=$(git commit-tree -m evil $t); git update-ref --no-deref HEAD $c;"
			      "git bundle create -q ../t.bundle HEAD; echo $c");
	CHECK_INT(fetch(evil, NULL, &e), 100 + EBADMSG);
	CHECK(strstr(e.text, "does not take"));
	CHECK_STR(tip(), "none");
	sh("! git -C app cat-file -e %s", evil);
}

TEST(in_name_taken)
{
	struct err e;
	make_project();
	make_box();
	sh("git -C app branch sandbox");
	CHECK_INT(fetch(box_commit("echo a >a", "HEAD~"), NULL, &e), 100 + EEXIST);
	CHECK(strstr(e.text, "git branch -m sandbox"));
}

static void *pusher(void *arg)
{
	struct repo_fetch_how how = {.head = arg, .branch = "sandbox/3"};
	enum repo_fetch result = (enum repo_fetch)99;
	struct err e = ERR_INIT;
	int rc = repo_bundle_fetch(app, &how, &result, &e);
	if (rc)
		printf("# %d %s\n", rc, e.text);
	return (void *)(intptr_t)(rc ? 99 : (int)result);
}

/* Several want the branch at once, none descends from another: exactly one gets it. */
TEST(in_race)
{
	enum { N = 8 };
	char heads[N][COMMIT_TEXT];
	make_project();
	for (int i = 0; i < N; i++)
		memcpy(heads[i], sh("cd app; git commit-tree -p HEAD -m c%d HEAD^{tree}", i), COMMIT_TEXT);
	for (int round = 0; round < 25; round++) {
		pthread_t t[N];
		int created = 0, left = 0;
		for (int i = 0; i < N; i++)
			pthread_create(&t[i], NULL, pusher, heads[i]);
		for (int i = 0; i < N; i++) {
			void *r;
			pthread_join(t[i], &r);
			created += (intptr_t)r == REPO_CREATED;
			left += (intptr_t)r == REPO_NOT_DESCENDANT;
		}
		CHECK_INT(created, 1);
		CHECK_INT(left, N - 1);
		sh("git -C app branch -qD sandbox/3");
	}
}

/* A daemon killed while it held the branch's lock leaves the lock; the branch is ours, so the next one breaks it. */
TEST(in_stale_lock)
{
	struct err e;
	make_project();
	make_box();
	const char *a = box_commit("echo a >a", "HEAD~");
	sh("mkdir -p app/.git/refs/heads/sandbox; : >app/.git/refs/heads/sandbox/3.lock;"
	   "touch -d '1 minute ago' app/.git/refs/heads/sandbox/3.lock");
	CHECK_INT(fetch(a, NULL, &e), REPO_CREATED);
	CHECK_STR(tip(), a);
}

/* ---- merge ---- */

static enum repo_merge merge(struct err *e)
{
	enum repo_merge result = (enum repo_merge)99;
	*e = ERR_INIT;
	int rc = repo_merge_ff(app, "sandbox/3", &result, e);
	if (rc)
		printf("# merge: %d %s\n", rc, e->text);
	return rc ? (enum repo_merge)99 : result;
}

/* main at one commit, sandbox/3 one ahead with `change` made. */
static void ahead(const char *change)
{
	make_project();
	sh("cd app; git checkout -q -b sandbox/3; %s; git add -A -f; git commit -qm work; git checkout -q main",
	   change);
}

TEST(merge_done)
{
	struct err e;
	ahead("echo more >>one.txt; git mv dir/two.txt 'zw \xc3\xb6'; echo new >new");
	sh("cd app; echo mine >untracked");
	CHECK_INT(merge(&e), REPO_MERGE_DONE);
	CHECK_STR(sh("cd app; git rev-parse main"), tip());
	CHECK_STR(
		sh("cd app; git symbolic-ref HEAD; git status --porcelain; cat new; git log -g -1 --format=%%gs main"),
		"refs/heads/main\n?? untracked\nnew\nberthfs: merge sandbox/3: Fast-forward");
	CHECK_INT(merge(&e), REPO_MERGE_NOTHING);
	sh("cd app; git commit -q --allow-empty -m later");
	CHECK_INT(merge(&e), REPO_MERGE_NOTHING);
}

TEST(merge_keeps_other_changes)
{
	struct err e;
	ahead("echo new >new");
	sh("cd app; echo dirty >>one.txt; echo staged >dir/two.txt; git add dir");
	CHECK_INT(merge(&e), REPO_MERGE_DONE);
	CHECK_STR(sh("cd app; git status --porcelain; tail -n1 one.txt"), "M  dir/two.txt\n M one.txt\ndirty");
}

TEST(merge_refusals)
{
	static const struct {
		const char *change, *mine, *words;
	} cases[] = {
		{"echo x >>one.txt", "echo dirty >>one.txt", "your uncommitted one.txt"},
		{"echo x >>one.txt", "echo staged >>one.txt; git add one.txt", "your uncommitted one.txt"},
		{"echo x >>one.txt", "echo x >>one.txt; git add one.txt",
		 "your uncommitted one.txt"}, /* the same change */
		{"git rm -q one.txt", "echo dirty >>one.txt", "your uncommitted one.txt"},
		{"echo x >>one.txt", "rm one.txt", "your uncommitted one.txt"},
		{"git mv one.txt two", "echo dirty >>one.txt", "your uncommitted one.txt"},
		{"echo x >new", "echo mine >new", "your uncommitted new"},
		{"mkdir n; echo x >n/f", "mkdir n; echo mine >n/f", "your uncommitted n/f"},
		{"echo x >'a \"b\nc'", "echo mine >'a \"b\nc'", "your uncommitted a \"b"},
		{"echo x >secret", "echo secret >.git/info/exclude; echo mine >secret", "your uncommitted secret"},
		{"mkdir n; echo x >n/f", "echo mine >n", "cannot be fast-forwarded"},
		{"mkdir n; echo x >n/f", "echo n >.git/info/exclude; echo mine >n", "cannot be fast-forwarded"},
		{"echo x >n", "mkdir n; echo mine >n/f", "cannot be fast-forwarded"},
		{"echo x >new", "git checkout -q --detach", "detached HEAD"},
		{"echo x >new", "git commit -q --allow-empty -m mine", "has commits that sandbox/3 lacks"},
		{"echo x >new", "git rev-parse HEAD >.git/MERGE_HEAD", "under way"},
		{"echo x >new", ": >.git/index.lock", "index.lock"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e;
		ahead(cases[i].change);
		sh("cd app; %s; git rev-parse HEAD >../before; GIT_OPTIONAL_LOCKS=0 git status --porcelain -z "
		   "--ignored >>../before;"
		   "find . -path ./.git -prune -o -type f -exec cat {} + >>../before",
		   cases[i].mine);
		enum repo_merge result = merge(&e);
		if (result != REPO_MERGE_REFUSED || !strstr(e.text, cases[i].words))
			printf("# case %zu (%s / %s): %d %s\n", i, cases[i].change, cases[i].mine, result, e.text);
		CHECK_INT(result, REPO_MERGE_REFUSED);
		CHECK_INT(e.code, 0);
		CHECK(strstr(e.text, cases[i].words));
		sh("cd app; { git rev-parse HEAD; GIT_OPTIONAL_LOCKS=0 git status --porcelain -z --ignored;"
		   "find . -path ./.git -prune -o -type f -exec cat {} +; } | cmp - ../before");
	}
}

/* Git was told not to look at a file: it would write over what is there. */
TEST(merge_hidden)
{
	static const char *const ways[] = {"--assume-unchanged", "--skip-worktree"};
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		struct err e;
		ahead("echo x >>one.txt; echo y >>dir/two.txt");
		sh("cd app; git update-index %s one.txt; echo mine >one.txt", ways[i]);
		CHECK_INT(merge(&e), REPO_MERGE_REFUSED);
		CHECK(strstr(e.text, "your uncommitted one.txt"));
		CHECK_STR(sh("cat app/one.txt"), "mine");
		/* not in the work tree at all, as in a sparse checkout */
		if (i == 1) {
			sh("rm app/one.txt");
			CHECK_INT(merge(&e), REPO_MERGE_DONE);
			CHECK_STR(sh("cd app; git status --porcelain; tail -n1 dir/two.txt"), "y");
		}
	}
}

/* A commit must not become settings of git on this machine, nor a program that git runs. */
TEST(merge_settings_from_commits)
{
	static const struct {
		const char *change, *mine, *words; /* words NULL: it is merged */
	} cases[] = {
		{"echo x >c", "git config include.path ../c", "c, which git on this machine would take settings"},
		{"echo x >c", "git config include.path \"$PWD/c\"", "they change c"},
		{"echo x >c", "git config includeIf.gitdir:/nowhere/.path ../c", "they change c"},
		{"echo x >c", "git config --global include.path \"$PWD/dir/../c\"", "they change c"},
		{"mkdir -p d; echo x >d/c", "git config include.path ../d/c", "they change d/c"},
		{"echo '[user]' >dir/c", "ln -s \"$PWD\" ../way; git config include.path ../../way/dir/c", "dir/c"},
		{"echo '#' >>dir/two.txt",
		 "git config include.path ../c; printf '[include]\n\tpath = dir/two.txt\n' >c",
		 "they change dir/two.txt"}, /* by way of another */
		{"echo x >c", "git config include.path ../one", NULL},
		{"echo x >c", "git config include.path ../../outside", NULL},
		{"echo x >c", "git config filter.f.smudge 'sh one.txt %f'", "git on this machine runs one.txt"},
		{"echo x >c", "git config filter.f.clean ./one.txt", "runs one.txt (filter.f.clean)"},
		{"echo x >c", "git config filter.f.process 'sh \"$(git rev-parse --show-toplevel)\"/one.txt'",
		 "runs --show"},
		{"echo x >c", "git config filter.f.process 'git-lfs filter-process'", NULL},
		{"echo x >c", "git config filter.f.clean 'sed s/one.x/two/'", NULL},
		{"echo x >c", "git config core.fsmonitor \"$PWD/c\"", "they change c|runs c"},
		{"echo x >c", "git config core.fsmonitor .git/hooks/monitor", NULL},
		{"echo x >c", "git config core.sshCommand 'ssh -F dir/two.txt'", "runs dir/two.txt (core.sshcommand)"},
		{"echo x >c", "git config credential.https://x.helper '!sh one.txt'", "credential.https://x.helper"},
		{"echo x >c", "git config diff.d.textconv ./one.txt", NULL},
		{"echo x >>one.txt", "git config diff.d.textconv ./one.txt", "runs one.txt (diff.d.textconv)"},
		{"echo x >c", "git config alias.x '!sh c'", "runs c (alias.x)"},
		{"echo x >main", "git config alias.x 'log main'", NULL},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e;
		ahead(cases[i].change);
		sh("cp gitconfig gitconfig.old; rm -f way; cd app; %s", cases[i].mine);
		enum repo_merge result = merge(&e), wanted = cases[i].words ? REPO_MERGE_REFUSED : REPO_MERGE_DONE;
		CLEAN_FREE char *words = xstrdup(cases[i].words ? cases[i].words : "");
		char *other = strchr(words, '|');
		if (other)
			*other++ = 0;
		if (result != wanted || !(strstr(e.text, words) || (other && strstr(e.text, other)))) {
			printf("# case %zu (%s): %d %s\n", i, cases[i].mine, result, e.text);
			check_failed = 1;
		}
		if (wanted == REPO_MERGE_REFUSED)
			CHECK(strstr(e.text, "git merge sandbox/3"));
		sh("mv gitconfig.old gitconfig; rm -f way");
	}
}

/* A file of the work tree that is git's settings as well: who writes commits would write settings. */
TEST(merge_refuses_to_bring_settings)
{
	static const struct {
		const char *set;
		bool refused;
	} cases[] = {
		{"git config include.path ../.gitconfig", true},
		{"git config include.path ../missing/dir/conf", false}, /* until a commit brings it */
		{"git config 'includeIf.onbranch:elsewhere.path' ../.gitconfig", true},
		{"git config include.path \"$PWD/.gitconfig\"", true},
		{"git config include.path \"$PWD/x/../.gitconfig\"", true},
		{"ln -s ../.gitconfig .git/link; git config include.path link", true},
		{"echo '[include] path = ../.gitconfig' >.git/outer; git config include.path outer", true},
		{"git config --global include.path \"$PWD/.gitconfig\"", true},
		{"git config include.path ../../elsewhere", false},
		{"git config include.path other; : >.git/other", false},
		{"true", false},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e;
		ahead("echo '[core] x = y' >.gitconfig");
		sh("cd app; : >../elsewhere; %s", cases[i].set);
		enum repo_merge got = merge(&e);
		if (cases[i].refused != (got == REPO_MERGE_REFUSED))
			printf("# %s: %s\n", cases[i].set, e.text);
		CHECK_INT(got, cases[i].refused ? REPO_MERGE_REFUSED : REPO_MERGE_DONE);
		if (cases[i].refused)
			CHECK(got != REPO_MERGE_REFUSED || strstr(e.text, ".gitconfig") != NULL);
		sh("git config --global --unset-all include.path || true");
	}
}

/* The user's settings must not turn it into anything but a fast-forward. */
TEST(merge_settings)
{
	static const char *const settings[] = {
		"[branch \"main\"]\n\tmergeOptions = --no-ff\n",
		"[branch \"main\"]\n\tmergeOptions = --squash\n",
		"[merge]\n\tff = false\n",
		"[merge]\n\tautoStash = true\n",
		"[submodule]\n\trecurse = true\n",
	};
	for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
		struct err e;
		ahead("echo x >new");
		sh("cd app; cat >>.git/config <<'E'\n%s\nE\n", settings[i]);
		CHECK_INT(merge(&e), REPO_MERGE_DONE);
		CHECK_STR(sh("git -C app rev-parse main"), tip());
	}
}

TEST(merge_hooks)
{
	struct err e;
	/* the new commit brings the hook, and the user once said that hooks live in the work tree */
	ahead("mkdir hooks; printf '#!/bin/sh\\n: >../canary\\n' >hooks/post-merge; chmod +x hooks/post-merge;"
	      "cp hooks/post-merge hooks/reference-transaction; cp hooks/post-merge hooks/post-index-change");
	sh("rm -f canary; cd app; git config core.hooksPath hooks; rm -f ../canary");
	CHECK_INT(merge(&e), REPO_MERGE_DONE);
	CHECK_STR(sh("ls canary 2>/dev/null || test -x app/hooks/post-merge"), "");
	/* one of the user's own still runs */
	ahead("echo x >new");
	sh("rm -f canary; cd app; mkdir -p .git/hooks; printf '#!/bin/sh\\n: >../canary\\n' >.git/hooks/post-merge;"
	   "chmod +x .git/hooks/post-merge");
	CHECK_INT(merge(&e), REPO_MERGE_DONE);
	CHECK_STR(sh("ls canary"), "canary");
}

TEST(end)
{
	free(app);
	free(file);
	repo_end();
}

CHECK_MAIN()
