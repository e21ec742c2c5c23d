/* The user's checkout: discovery, HEAD, ancestry, texts, hooks. Against real repositories. */
#include "backend/git/repo.h"

#include <errno.h>

#include "backend/git/repo_private.h"
#include "check.h"
#include "git_fixture.h"

static int discover(const char *name, char **top, struct err *e)
{
	CLEAN_FREE char *path = at(name);
	*e = ERR_INIT;
	free(*top);
	*top = NULL;
	return repo_discover(path, top, e);
}

TEST(begin)
{
	fixture_begin();
	CHECK_INT(repo_begin(NULL), 0);
}

TEST(discovery)
{
	struct err e;
	CLEAN_FREE char *top = NULL;
	CLEAN_FREE char *app = at("app");
	make_project();
	CHECK_INT(discover("app", &top, &e), 0);
	CHECK_STR(top, app);
	CHECK_INT(discover("app/dir", &top, &e), 0);
	CHECK_STR(top, app);
	CHECK_INT(discover("app/dir/two.txt", &top, &e), 0);
	CHECK_STR(top, app);
	sh("ln -sfn app link; rm -rf empty plain; git init -q empty; mkdir plain");
	CHECK_INT(discover("link/dir", &top, &e), 0);
	CHECK_STR(top, app);
	CHECK_INT(discover("app.git", &top, &e), -ENOENT);
	CHECK(strstr(e.text, "bare"));
	CHECK_INT(discover("app/.git", &top, &e), -ENOENT);
	CHECK(strstr(e.text, "git folder"));
	CHECK_INT(discover("empty", &top, &e), -ENOENT);
	CHECK(strstr(e.text, "no commit yet"));
	CHECK_INT(discover("plain", &top, &e), -ENOENT);
	CHECK(strstr(e.text, "no git checkout"));
	CHECK_INT(discover("missing", &top, &e), -ENOENT);
}

TEST(discovery_of_odd_ones)
{
	struct err e;
	CLEAN_FREE char *top = NULL;
	CLEAN_FREE char *sub = at("app/lib"), *tree = at("tree"), *odd = at("a b\n\"c\" \xc3\xa4");
	make_project();
	sh("cd app; git submodule --quiet add ../app.git lib; git commit -qm lib; git worktree add -q ../tree -b side");
	CHECK_INT(discover("app/lib", &top, &e), 0);
	CHECK_STR(top, sub);
	CHECK_INT(discover("tree/dir", &top, &e), 0);
	CHECK_STR(top, tree);
	sh("git clone -q app 'a b\n\"c\" \xc3\xa4'");
	CHECK_INT(discover("a b\n\"c\" \xc3\xa4/dir", &top, &e), 0);
	CHECK_STR(top, odd);
	sh("rm -rf 'a b\n\"c\" \xc3\xa4' tree");
}

TEST(head)
{
	struct repo_head h;
	CLEAN_FREE char *app = at("app");
	make_project();
	sh("cd app; echo x >>one.txt; echo n >'new \n file'; mkdir d; echo 1 >d/1; echo 2 >d/2");
	CHECK_INT(repo_head(app, &h, NULL), 0);
	CHECK_STR(h.commit, sh("git -C app rev-parse HEAD"));
	CHECK_STR(h.branch, "main");
	CHECK_STR(h.name, "Ann O");
	CHECK_STR(h.email, "ann@example.org");
	CHECK_INT(h.uncommitted, 3);
	repo_head_release(&h);
	sh("cd app; git checkout -q --detach; git stash -qu");
	CHECK_INT(repo_head(app, &h, NULL), 0);
	CHECK(!h.branch);
	CHECK_INT(h.uncommitted, 0);
	repo_head_release(&h);
}

TEST(branches)
{
	CLEAN_FREE char *app = at("app");
	char commit[COMMIT_TEXT];
	struct err e = ERR_INIT;
	make_project();
	sh("cd app; git branch sandbox/3; git branch sandbox/5/x; git pack-refs --all");
	CHECK_INT(repo_branch_exists(app, "sandbox/3", NULL), 1);
	CHECK_INT(repo_branch_exists(app, "sandbox/4", NULL), 0);
	CHECK_INT(repo_branch_exists(app, "sandbox/5", NULL), 1);
	CHECK_INT(repo_branch_commit(app, "sandbox/3", commit, NULL), 0);
	CHECK_STR(commit, sh("git -C app rev-parse HEAD"));
	CHECK_INT(repo_branch_commit(app, "sandbox/4", commit, NULL), -ENOENT);
	sh("cd app; git branch -D sandbox/3 sandbox/5/x; git branch sandbox");
	CHECK_INT(repo_branch_exists(app, "sandbox/4", &e), -EEXIST);
	CHECK(strstr(e.text, "git branch -m sandbox"));
}

TEST(ancestry)
{
	CLEAN_FREE char *app = at("app");
	make_project();
	const char *first = sh("git -C app rev-parse HEAD");
	const char *second = sh("cd app; git commit -q --allow-empty -m second; git rev-parse HEAD");
	CHECK_INT(repo_is_ancestor(app, first, second, NULL), 1);
	CHECK_INT(repo_is_ancestor(app, second, second, NULL), 1);
	CHECK_INT(repo_is_ancestor(app, second, first, NULL), 0);
	CHECK_INT(repo_has(app, second, NULL), 1);
	CHECK_INT(repo_has(app, "0123456789012345678901234567890123456789", NULL), 0);
	CHECK_INT(repo_has(app, "main", NULL), -EINVAL);
	CHECK_INT(repo_is_ancestor(app, first, "0123456789012345678901234567890123456789", NULL), -ENOENT);
}

TEST(files_at_a_commit)
{
	CLEAN_FREE char *app = at("app");
	CLEAN_BUF struct buf b = BUF_INIT;
	make_project();
	const char *head = sh("cd app; ln -s one.txt link; git add link; git commit -qm link; git rev-parse HEAD");
	CHECK_INT(repo_file(app, head, "dir/two.txt", 100, &b, NULL), 0);
	CHECK_STR(buf_str(&b), "two\n");
	CHECK_INT(repo_file(app, head, "dir/two.txt", 3, &b, NULL), -EFBIG);
	CHECK_INT(repo_file(app, head, "dir/none", 100, &b, NULL), -ENOENT);
	CHECK_INT(repo_file(app, head, "dir", 100, &b, NULL), -EINVAL);
	CHECK_INT(repo_file(app, head, "link", 100, &b, NULL), -EINVAL);
}

TEST(not_carried)
{
	CLEAN_FREE char *app = at("app");
	CLEAN_BUF struct buf b = BUF_INIT;
	make_project();
	CHECK_INT(repo_not_carried(app, sh("git -C app rev-parse HEAD"), &b, NULL), 0);
	CHECK_STR(buf_str(&b), "");
	sh("cd app; git submodule --quiet add ../app.git lib; echo '*.bin filter=lfs diff=lfs' >dir/.gitattributes; "
	   "git add .;"
	   "git commit -qm lib");
	CHECK_INT(repo_not_carried(app, sh("git -C app rev-parse HEAD"), &b, NULL), 0);
	CHECK(strstr(buf_str(&b), "1 submodule (lib)"));
	CHECK(strstr(buf_str(&b), "LFS"));
}

/* The texts of a change with hard names: the patch must apply and give the same tree. */
TEST(texts)
{
	CLEAN_FREE char *app = at("app");
	CLEAN_BUF struct buf diff = BUF_INIT, changes = BUF_INIT, commits = BUF_INIT;
	make_project();
	const char *base = sh("git -C app rev-parse HEAD");
	const char *head =
		sh("cd app; echo more >>one.txt; git mv dir/two.txt 'dir/zw \xc3\xb6 lf'; printf 'a\\nb' >'new\nline';"
		   "printf 'q' >'quo\"te'; chmod +x one.txt; git add .; git commit -qm 'Second\tone' --author "
		   "'B\xc3\xb6 <b@x>'; git commit -q --allow-empty -m third; git rev-parse HEAD");
	CHECK_INT(repo_diff(app, base, head, &diff, NULL), 0);
	CHECK_INT(repo_changes(app, base, head, &changes, NULL), 0);
	CHECK_INT(repo_commits(app, base, head, &commits, NULL), 0);
	CLEAN_FREE char *file = at("d.patch");
	CHECK_INT(file_write(file, diff.p, diff.n, 0644, NULL), 0);
	CHECK_STR(sh("cd app; git checkout -q %s; git apply --index ../d.patch; git write-tree; git checkout -qf main",
		     base),
		  sh("git -C app rev-parse %s^{tree}", head));
	CHECK(strstr(buf_str(&changes), " dir/two.txt => dir/zw \xc3\xb6 lf | 0 \n"));
	CHECK(strstr(buf_str(&changes), " \"new\\nline\" | 2 ++ (new)\n"));
	CHECK(strstr(buf_str(&changes), " \"quo\\\"te\" | 1 + (new)\n"));
	CHECK(strstr(buf_str(&changes), " one.txt | 1 + (mode 755)\n"));
	CHECK(strstr(buf_str(&changes), " 4 files changed, 4 insertions(+), 0 deletions(-)\n"));
	CHECK_STR(sh("printf '%%s\\n' '%s' | sed 's/^[0-9a-f]*  ....-..-..T..:..:..Z  //'", buf_str(&commits)),
		  "Ann O  third\nB\xc3\xb6  Second one");
	buf_reset(&diff);
	buf_reset(&changes);
	CHECK_INT(repo_diff(app, head, head, &diff, NULL), 0);
	CHECK_INT(repo_changes(app, head, head, &changes, NULL), 0);
	CHECK_INT(diff.n + changes.n, 0);
	CHECK_INT(repo_diff(app, base, "0123456789012345678901234567890123456789", &diff, NULL), -ENOENT);
}

TEST(cut_texts)
{
	CLEAN_FREE char *app = at("app"), *file = at("d.patch");
	CLEAN_BUF struct buf diff = BUF_INIT, changes = BUF_INIT;
	make_project();
	const char *base = sh("git -C app rev-parse HEAD");
	const char *head = sh(
		"cd app; for i in 1 2 3; do seq $((i*1000000)) $((i*1000000+499999)) >big$i; done; printf '\\0' >b.bin;"
		"git add .; git commit -qm big; git rev-parse HEAD");
	CHECK_INT(repo_diff(app, base, head, &diff, NULL), 0);
	CHECK(diff.n <= REPO_TEXT_MAX + 200);
	CHECK(strstr(buf_str(&diff), "2 of 4 files shown; all: git diff"));
	CHECK_INT(file_write(file, diff.p, diff.n, 0644, NULL), 0);
	CHECK_STR(sh("cd app; git checkout -q %s; git apply ../d.patch --exclude=b.bin; ls big*; git clean -qfd; "
		     "git checkout -q main",
		     base),
		  "big1");
	CHECK_INT(repo_changes(app, base, head, &changes, NULL), 0);
	CHECK(strstr(buf_str(&changes), " b.bin | binary\n"));
	CHECK(strstr(buf_str(&changes), " big1 | 500000 +++"));
}

TEST(shallow_checkout)
{
	CLEAN_FREE char *thin = at("thin");
	CLEAN_BUF struct buf b = BUF_INIT, commits = BUF_INIT;
	make_project();
	sh("rm -rf thin; cd app; for i in 1 2 3 4; do git commit -q --allow-empty -m c$i; done; git push -q; cd ..;"
	   "git clone -q --depth 2 file://$PWD/app.git thin; cd thin; git commit -q --allow-empty -m mine");
	const char *old = sh("git -C thin rev-parse HEAD~2"), *head = sh("git -C thin rev-parse HEAD");
	CHECK_INT(repo_shallow(thin, &b, NULL), 0);
	CHECK(b.n == COMMIT_TEXT && !strncmp(b.p, sh("cat thin/.git/shallow"), COMMIT_TEXT - 1));
	CHECK_INT(repo_is_ancestor(thin, old, head, NULL), 1);
	CHECK_INT(repo_is_ancestor(thin, head, old, NULL), 0);
	CHECK_INT(repo_commits(thin, old, head, &commits, NULL), 0);
	CHECK(strstr(buf_str(&commits), "Ann O  mine\n"));
	CHECK(strstr(buf_str(&commits), "Ann O  c4\n"));
	CHECK(!strstr(buf_str(&commits), "  c3\n"));
}

/* Where hooks may stand, and whether they then may run. */
TEST(hook_places)
{
	static const struct {
		const char *setup;
		bool inside;
	} places[] = {
		{"", false},
		{"echo true >.git/hooks/pre-push; chmod +x .git/hooks/pre-push", false},
		{"rm -rf .git/hooks", false},
		{"git config core.hooksPath ../outside; mkdir -p ../outside", false},
		{"git config core.hooksPath \"$PWD/../outside\"; mkdir -p ../outside", false},
		{"git config core.hooksPath ~/outside; mkdir -p ../outside", false},
		{"mkdir hooks; git config core.hooksPath hooks", true},
		{"git config core.hooksPath hooks", true}, /* not there yet */
		{"mkdir hooks; git config core.hooksPath \"$PWD/hooks\"", true},
		{"mkdir hooks; ln -s \"$PWD/hooks\" ../way; git config core.hooksPath ../way", true},
		{"mkdir hooks; rm -rf .git/hooks; ln -s ../hooks .git/hooks", true},
		{"rm -rf .git/hooks; ln -s ../nowhere .git/hooks", true},
		{"mkdir hooks; echo true >hooks/p; mkdir -p .git/hooks; ln -s ../../hooks/p .git/hooks/pre-push", true},
		{"mkdir -p .git/hooks; ln -s ../../hooks/none .git/hooks/post-merge", true},
		{"mkdir -p .git/hooks; ln -s ../../hooks/none .git/hooks/commit-msg", false}, /* never run by us */
		{"git worktree add -q ../side -b side; git config core.hooksPath \"$PWD/../side/h\"; mkdir ../side/h",
		 true},
	};
	CLEAN_FREE char *app = at("app");
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		make_project();
		sh("rm -rf outside way side; cd app; git worktree prune; %s", places[i].setup);
		bool got = git_hooks_inside(app);
		if (got != places[i].inside)
			printf("# %s\n", places[i].setup);
		CHECK_INT(got, places[i].inside);
	}
	sh("rm -rf side way outside");
}

/* A daemon started by a git hook or alias must not take the repository from its environment. */
TEST(foreign_environment)
{
	CLEAN_FREE char *app = at("app"), *other = at("other/.git");
	struct repo_head h;
	make_project();
	sh("git init -q other; cd app; echo x >y");
	setenv("GIT_DIR", other, 1);
	setenv("GIT_INDEX_FILE", "/nonexistent", 1);
	CHECK_INT(repo_head(app, &h, NULL), 0);
	unsetenv("GIT_DIR");
	unsetenv("GIT_INDEX_FILE");
	CHECK_INT(h.uncommitted, 1);
	repo_head_release(&h);
}

TEST(words)
{
	static const char said[] =
		"remote: counting\rremote: Counting objects: 100% (3/3), done.\x1b[K\n"
		"remote: \nremote: no entry today        \x1b[K\nTo https://u:p@h/x\nhint: pull first\n"
		"error: failed to push some refs to 'https://ann:s3cret@host.example/x.git'\n"
		"fatal: unable to access 'https://tok@host/y@z': no\n";
	CLEAN_BUF struct buf in = BUF_INIT, out = BUF_INIT;
	buf_adds(&in, said);
	git_words(&out, &in);
	CHECK_STR(buf_str(&out), "no entry today; failed to push some refs to 'https://host.example/x.git'; "
				 "unable to access 'https://host/y@z': no");
}

TEST(end)
{
	repo_end();
}

CHECK_MAIN()
