/* The remote: which one, fetch, push and what its answers mean. Against real bare repositories. */
#include <errno.h>
#include <stdatomic.h>

#include "backend/git/repo.h"
#include "check.h"
#include "git_fixture.h"

static char *app;

TEST(begin)
{
	fixture_begin();
	CHECK_INT(repo_begin(NULL), 0);
	app = at("app");
}

TEST(which_remote)
{
	struct err e = ERR_INIT;
	char *remote = NULL;
	make_project();
	CHECK_INT(repo_default_remote(app, &remote, NULL), 0);
	CHECK_STR(remote, "origin");
	free(remote);
	sh("cd app; git remote add fork ../app.git; git config branch.main.remote fork");
	CHECK_INT(repo_default_remote(app, &remote, NULL), 0);
	CHECK_STR(remote, "fork");
	free(remote);
	sh("cd app; git config branch.main.remote .; git remote remove origin");
	CHECK_INT(repo_default_remote(app, &remote, NULL), 0);
	CHECK_STR(remote, "fork"); /* the only one */
	free(remote);
	sh("cd app; git remote add third ../app.git");
	CHECK_INT(repo_default_remote(app, &remote, &e), -ENOENT);
	CHECK(strstr(e.text, "2 remotes"));
	sh("cd app; git remote add origin ../app.git; git checkout -q --detach");
	CHECK_INT(repo_default_remote(app, &remote, NULL), 0);
	CHECK_STR(remote, "origin");
	free(remote);
	sh("cd app; for r in fork third origin; do git remote remove $r; done");
	CHECK_INT(repo_default_remote(app, &remote, &e), -ENOENT);
	CHECK(strstr(e.text, "no remote"));
}

TEST(default_branch)
{
	struct err e = ERR_INIT;
	char *branch = NULL;
	make_project();
	sh("cd app.git; git branch release/2; git symbolic-ref HEAD refs/heads/release/2");
	CHECK_INT(repo_remote_branch(app, "origin", &branch, NULL, NULL), 0);
	CHECK_STR(branch, "release/2");
	free(branch);
	sh("rm -rf app.git; git init -q --bare app.git");
	CHECK_INT(repo_remote_branch(app, "origin", &branch, NULL, &e), -ENOENT);
	CHECK(strstr(e.text, "no default branch"));
	sh("rm -rf app.git");
	CHECK_INT(repo_remote_branch(app, "origin", &branch, NULL, &e), -EHOSTUNREACH);
	CHECK(strstr(e.text, "app.git"));
}

TEST(fetch_base)
{
	struct err e = ERR_INIT;
	char commit[COMMIT_TEXT];
	make_project();
	/* settings that would move the user's refs */
	sh("cd app; git config remote.origin.fetch '+refs/*:refs/*'; git config fetch.prune true; git tag -f keep;"
	   "git for-each-ref >../refs; cd ..; git clone -q app.git other; cd other; git commit -q --allow-empty -m "
	   "theirs;"
	   "git tag theirs; git push -q origin main theirs");
	CHECK_INT(repo_fetch_base(app, "origin", "main", commit, NULL, NULL), 0);
	CHECK_STR(commit, sh("git -C app.git rev-parse main"));
	CHECK_STR(
		sh("cd app; git for-each-ref | grep -v refs/berthfs/ | diff - ../refs >&2; test ! -e .git/FETCH_HEAD"),
		"");
	/* rewound and forced by somebody: what is there now is the base */
	sh("cd other; git reset -q --hard HEAD~; git commit -q --allow-empty -m forced; git push -qf origin main");
	CHECK_INT(repo_fetch_base(app, "origin", "main", commit, NULL, NULL), 0);
	CHECK_STR(commit, sh("git -C app.git rev-parse main"));
	/* names that are in each other's way as folders */
	sh("cd app.git; git branch a/b main");
	CHECK_INT(repo_fetch_base(app, "origin", "a/b", commit, NULL, NULL), 0);
	sh("cd app.git; git branch -D a/b; git branch a main");
	CHECK_INT(repo_fetch_base(app, "origin", "a", commit, NULL, NULL), 0);
	CHECK_INT(repo_fetch_base(app, "origin", "none", commit, NULL, &e), -ENOENT);
	CHECK(strstr(e.text, "no branch none"));
	sh("rm -rf app.git");
	CHECK_INT(repo_fetch_base(app, "origin", "main", commit, NULL, &e), -EHOSTUNREACH);
}

static enum repo_push push(const char *commit, const char *branch, struct err *e)
{
	enum repo_push result = (enum repo_push)99;
	*e = ERR_INIT;
	int rc = repo_push(app, "origin", commit, branch, &result, NULL, NULL, e);
	if (rc)
		printf("# push: %d %s\n", rc, e->text);
	return rc ? (enum repo_push)99 : result;
}

/* A commit on top of main that no branch has. */
static const char *work(void)
{
	return sh("cd app; git commit-tree -p main -m 'work at %s' main^{tree}", sh("date +%%N"));
}

TEST(push_done)
{
	struct err e;
	make_project();
	const char *c = work();
	sh("cd app; git config push.followTags true; git tag -am note note %s; git config remote.origin.mirror true",
	   c);
	CHECK_INT(push(c, "main", &e), REPO_PUSHED);
	CHECK_STR(sh("git -C app.git rev-parse main"), c);
	CHECK_INT(push(c, "main", &e), REPO_PUSHED); /* again: it is there */
	CHECK_INT(push(c, "new/one", &e), REPO_PUSHED);
	CHECK_STR(sh("git -C app.git for-each-ref --format='%%(refname)'"), "refs/heads/main\nrefs/heads/new/one");
	CHECK_STR(sh("git -C app rev-parse main"), sh("git -C app rev-parse %s~", c));
}

TEST(push_moved)
{
	struct err e;
	make_project();
	const char *c = work();
	sh("git clone -q app.git other; cd other; git commit -q --allow-empty -m theirs; git push -q");
	const char *theirs = sh("git -C app.git rev-parse main");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_MOVED); /* their commit is not here: "fetch first" */
	CHECK_INT(e.code, 0);
	CHECK(strstr(e.text, "ship again"));
	sh("git -C app fetch -q");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_MOVED); /* it is here: "non-fast-forward" */
	sh("git -C app config remote.origin.push +refs/heads/main");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_MOVED);
	CHECK_STR(sh("git -C app.git rev-parse main"), theirs);
	/* the other push comes between the remote's look and its write */
	sh("cd app.git; mkdir -p hooks; git update-ref refs/keep main; git update-ref refs/heads/main main~;"
	   "printf '#!/bin/sh\\nunset GIT_QUARANTINE_PATH; git update-ref refs/heads/main refs/keep\\n' "
	   ">hooks/pre-receive;"
	   "chmod +x hooks/pre-receive");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_MOVED);
	CHECK_STR(sh("git -C app.git rev-parse main"), theirs);
}

TEST(push_refused)
{
	struct err e;
	make_project();
	const char *c = work();
	sh("cd app.git; mkdir -p hooks; printf '#!/bin/sh\\necho \"no entry: ticket missing\" >&2; exit 1\\n' "
	   ">hooks/pre-receive;"
	   "chmod +x hooks/pre-receive");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_REFUSED);
	CHECK_STR(e.text, "[remote rejected] (pre-receive hook declined): no entry: ticket missing");
	sh("cd app.git; mv hooks/pre-receive hooks/update");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_REFUSED);
	CHECK(strstr(e.text, "(hook declined): no entry"));
	sh("cd app.git; rm hooks/update");
	/* checked out over there */
	sh("rm -rf app.git; git clone -q app app.git");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_REFUSED);
	CHECK(strstr(e.text, "(branch is currently checked out)"));
	/* a hook of the user's own on this side */
	sh("rm -rf app.git; git clone -q --bare app app.git; cd app; mkdir -p .git/hooks;"
	   "printf '#!/bin/sh\\necho my rules; exit 1\\n' >.git/hooks/pre-push; chmod +x .git/hooks/pre-push");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_REFUSED);
	CHECK(strstr(e.text, "on this machine"));
	CHECK_STR(sh("git -C app.git rev-parse main"), sh("git -C app rev-parse main"));
}

TEST(push_hook_in_work_tree)
{
	struct err e;
	make_project();
	const char *c = work();
	sh("rm -f canary; cd app; git config core.hooksPath tools/hooks; mkdir -p tools/hooks;"
	   "for h in pre-push reference-transaction; do printf '#!/bin/sh\\n: >%s/canary; exit 1\\n' >tools/hooks/$h;"
	   "chmod +x tools/hooks/$h; done",
	   fixture_root);
	CHECK_INT(push(c, "main", &e), REPO_PUSHED);
	CHECK_STR(sh("ls canary 2>/dev/null || echo none"), "none");
	CHECK_STR(sh("git -C app.git rev-parse main"), c);
}

TEST(push_unreachable)
{
	struct err e;
	make_project();
	const char *c = work();
	sh("rm -rf app.git");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_UNREACHABLE);
	CHECK(strstr(e.text, "cannot be reached"));
	sh("cd app; git remote set-url origin https://ann:s3cret@localhost:1/x.git");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_UNREACHABLE);
	CHECK(!strstr(e.text, "s3cret"));
	sh("cd app; git remote set-url origin ssh://nobody@localhost:1/x.git; git config core.sshCommand 'ssh -F "
	   "/dev/null'");
	CHECK_INT(push(c, "main", &e), REPO_PUSH_UNREACHABLE);
}

TEST(push_cancelled)
{
	struct err e = ERR_INIT;
	atomic_bool cancel = true;
	enum repo_push result;
	make_project();
	const char *c = work();
	sh("cd app.git; mkdir -p hooks; printf '#!/bin/sh\\nsleep 30\\n' >hooks/pre-receive; chmod +x "
	   "hooks/pre-receive");
	CHECK_INT(repo_push(app, "origin", c, "main", &result, NULL, &cancel, &e), -ECANCELED);
}

TEST(remote_has)
{
	struct err e;
	make_project();
	const char *c = work();
	CHECK_INT(repo_remote_has(app, "origin", "main", c, NULL, NULL), 0);
	CHECK_INT(repo_remote_has(app, "origin", "none", c, NULL, NULL), 0);
	CHECK_INT(push(c, "main", &e), REPO_PUSHED);
	CHECK_INT(repo_remote_has(app, "origin", "main", c, NULL, NULL), 1);
	/* others have gone on from there */
	sh("rm -rf other; git clone -q app.git other; cd other; git commit -q --allow-empty -m theirs; git push -q");
	CHECK_INT(repo_remote_has(app, "origin", "main", c, NULL, NULL), 1);
	CHECK_INT(repo_remote_has(app, "origin", "main", work(), NULL, NULL), 0);
	/* pushes go elsewhere than fetches come from */
	sh("git clone -q --bare app push.git; git -C app config remote.origin.pushurl ../push.git");
	CHECK_INT(repo_remote_has(app, "origin", "main", c, NULL, NULL), 0);
	CHECK_INT(push(c, "main", &e), REPO_PUSHED);
	CHECK_INT(repo_remote_has(app, "origin", "main", c, NULL, NULL), 1);
	sh("rm -rf push.git");
	CHECK_INT(repo_remote_has(app, "origin", "main", c, NULL, &e), -EHOSTUNREACH);
}

TEST(end)
{
	free(app);
	repo_end();
}

CHECK_MAIN()
