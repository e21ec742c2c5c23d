/* The project into a sandbox and its work back: clone, base, sync, checks. Against a real sandbox and real
 * repositories. */
#include "backend/bundle.h"
#include "backend/checks.h"
#include "backend/git/repo.h"
#include "backend/sync.h"
#include "env_box.h"
#include "git_fixture.h"

/* What stands in the sandbox's home beside the clone, and the clone. A home has dot files of its own. */
#define HOME_LIST "ls -A .. | grep -v '^[.][bp][ar]'"

static char *app, *copy;
static int attempt;

TEST(begin)
{
	fixture_begin();
	CHECK_INT(repo_begin(NULL), 0);
	app = at("app");
	copy = xasprintf("%s/app", env_home(box.env));
}

/* A script in the clone; its output without the last newline, valid until eight calls later. */
__attribute__((format(printf, 1, 2))) static const char *in_box(const char *fmt, ...)
{
	static char *outs[8];
	static int turn;
	char job[32];
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *text = xvasprintf(fmt, ap);
	va_end(ap);
	CLEAN_FREE char *script = xasprintf("set -e; cd app 2>/dev/null || :; { %s\n} 2>&1", text);
	snprintf(job, sizeof job, "t%d", ++attempt);
	int rc = run(job, script);
	if (rc) {
		printf("# in the sandbox (%d): %s\n# %s\n", rc, text, buf_str(&box.out));
		check_failed = 1;
	}
	char **out = &outs[turn++ % 8];
	free(*out);
	*out = xstrdup(buf_str(&box.out));
	for (size_t n = strlen(*out); n && (*out)[n - 1] == '\n';)
		(*out)[--n] = 0;
	return *out;
}

static int clone_commit(const char *commit, const char *branch, const char *prefix, struct err *e)
{
	struct clone_how how = {.env = box.env,
				.host_repo = app,
				.commit = commit,
				.branch = branch,
				.name = "Ann O'x",
				.email = "ann@example.org",
				.clone = copy,
				.tmp_dir = fixture_root,
				.prefix = prefix};
	*e = ERR_INIT;
	int rc = clone_into(&how, e);
	if (rc)
		printf("# clone: %d %s\n", rc, e->text);
	return rc;
}

/* A fresh project and its clone in the sandbox. */
static void fresh(void)
{
	struct err e;
	char prefix[32];
	make_project();
	in_box("cd ..; rm -rf app app.new .berthfs-*");
	snprintf(prefix, sizeof prefix, "c%d", ++attempt);
	CHECK_INT(clone_commit(sh("git -C app rev-parse HEAD"), "main", prefix, &e), 0);
}

TEST(clone_is_a_clone)
{
	struct err e;
	make_project();
	const char *first = sh("git -C app rev-parse HEAD");
	sh("cd app; git config user.email other@example.org; git commit -q --allow-empty -m later; echo dirty "
	   ">>one.txt");
	CHECK_INT(clone_commit(first, "feature/x", "s1", &e), 0);
	CHECK_STR(in_box("git rev-parse HEAD refs/berthfs/base"), sh("echo %s; echo %s", first, first));
	CHECK_STR(in_box("git symbolic-ref HEAD; git status --porcelain; git remote; cat one.txt; git for-each-ref "
			 "--format='%%(refname)'"),
		  "refs/heads/feature/x\none\nrefs/berthfs/base\nrefs/heads/feature/x");
	CHECK_STR(in_box("git config user.name; git config user.email; git log -1 --format=%%an"),
		  "Ann O'x\nann@example.org\nAnn O");
	CHECK_STR(in_box(HOME_LIST), "app");
	CHECK_STR(in_box("git fsck --strict"), "");
	CHECK_STR(sh("ls *.bundle 2>/dev/null || :"), "");
	/* again: nothing happens to what is there */
	in_box("echo mine >>one.txt");
	CHECK_INT(clone_commit(first, "main", "s1", &e), 0);
	CHECK_STR(in_box("tail -n1 one.txt; git symbolic-ref --short HEAD"), "mine\nfeature/x");
	in_box("cd ..; rm -rf app");
	CHECK_INT(clone_commit(first, NULL, "s2", &e), 0); /* the user's HEAD was detached */
	CHECK_STR(in_box("git symbolic-ref --short HEAD"), "work");
}

/* What a kill at some point leaves behind must not matter. */
TEST(clone_after_a_kill)
{
	struct err e;
	make_project();
	const char *first = sh("git -C app rev-parse HEAD");
	in_box("cd ..; rm -rf app; mkdir app.new; echo junk >app.new/.git; echo part >.berthfs-k1-clone.bundle");
	CHECK_INT(clone_commit(first, "main", "k1", &e), 0);
	CHECK_STR(in_box("git rev-parse HEAD; " HOME_LIST), sh("echo %s; echo app", first));
	/* renamed, but the bundle is still there */
	in_box("echo part >../.berthfs-k1-clone.bundle");
	CHECK_INT(clone_commit(first, "main", "k1", &e), 0);
	CHECK_STR(in_box(HOME_LIST "; git status --porcelain"), "app");
	/* the script of an earlier daemon has failed and nobody has looked yet: one fresh try */
	in_box("cd ..; rm -rf app");
	CHECK_INT(start(box.env, "k2-clone", "exit 7", 0, NULL), 0);
	CHECK_INT(wait_job(box.env, "k2-clone").exit_code, 7);
	CHECK_INT(clone_commit(first, "main", "k2", &e), 0);
	CHECK_STR(in_box("git rev-parse HEAD"), first);
	/* the script of an earlier daemon still runs: it is joined */
	in_box("cd ..; rm -rf app");
	CHECK_INT(start(box.env, "k3-clone",
			"while [ ! -e go ]; do sleep 0.01; done; git init -q a; echo joined >a/.git/joined; mv a app",
			0, NULL),
		  0);
	in_box(": >go");
	CHECK_INT(clone_commit(first, "main", "k3", &e), 0);
	CHECK_STR(in_box("cat .git/joined; rm -f ../go"), "joined");
}

TEST(clone_of_a_shallow_checkout)
{
	struct err e;
	make_project();
	sh("cd app; for i in 1 2 3; do echo $i >f; git add f; git commit -qm c$i; done; git push -q; cd ..; rm -rf app;"
	   "git clone -q --depth 1 file://$PWD/app.git app");
	in_box("cd ..; rm -rf app");
	CHECK_INT(clone_commit(sh("git -C app rev-parse HEAD"), "main", "s3", &e), 0);
	CHECK_STR(in_box("git rev-list --count HEAD; cat f; git fsck --strict"), "1\n3");
}

TEST(clone_fails_in_words)
{
	struct err e;
	make_project();
	in_box("cd ..; rm -rf app");
	CHECK(clone_commit("0123456789012345678901234567890123456789", "main", "s4", &e) < 0);
	CHECK(strstr(e.text, "pack"));
	CHECK(clone_commit(sh("git -C app rev-parse HEAD"), "bad..name", "s5", &e) < 0);
	CHECK(strstr(e.text, "could not be cloned"));
	CHECK_STR(in_box("cd ..; ls -d app 2>/dev/null || echo none"), "none");
}

/* ---- base ---- */

static int base(const char *commit)
{
	struct err e = ERR_INIT;
	char prefix[32];
	snprintf(prefix, sizeof prefix, "b%d", ++attempt);
	struct base_how how = {.env = box.env,
			       .host_repo = app,
			       .base = commit,
			       .clone = copy,
			       .tmp_dir = fixture_root,
			       .prefix = prefix};
	int rc = base_into(&how, &e);
	if (rc)
		printf("# base: %d %s\n", rc, e.text);
	return rc;
}

TEST(base_comes_in)
{
	fresh();
	const char *theirs = sh("cd app; echo theirs >theirs; git add .; git commit -qm theirs; git rev-parse HEAD");
	in_box("echo mine >mine; git add .; git commit -qm mine");
	CHECK_INT(base(theirs), 0);
	CHECK_STR(in_box("git rev-parse refs/berthfs/base"), theirs);
	CHECK_STR(in_box("git rebase -q refs/berthfs/base; cat theirs mine; git rev-parse HEAD~"),
		  sh("echo theirs; echo mine; echo %s", theirs));
	CHECK_INT(base(theirs), 0);
	CHECK_INT(base(sh("git -C app rev-parse main~")), 0); /* it may also go back */
	CHECK_STR(in_box("git rev-parse refs/berthfs/base"), sh("git -C app rev-parse main~"));
	/* the base was rewritten upstream, and the sandbox has lost its ref */
	const char *forced = sh(
		"cd app; git reset -q --hard HEAD~; echo f >f; git add .; git commit -qm forced; git rev-parse HEAD");
	in_box("git update-ref -d refs/berthfs/base");
	CHECK_INT(base(forced), 0);
	CHECK_STR(in_box("git rev-parse refs/berthfs/base; " HOME_LIST "; git fsck --strict"),
		  sh("echo %s; echo app", forced));
	in_box("cd ..; rm -rf app");
	CHECK_INT(base(forced), -ENOENT);
}

/* ---- sync ---- */

static struct sync_result got;

static int sync_work(const char *old_head, bool replace)
{
	struct err e = ERR_INIT;
	char prefix[32];
	snprintf(prefix, sizeof prefix, "y%d", ++attempt);
	struct sync_how how = {.env = box.env,
			       .clone = copy,
			       .host_repo = app,
			       .tmp_dir = fixture_root,
			       .prefix = prefix,
			       .branch = "sandbox/7",
			       .old_head = old_head,
			       .replace = replace};
	int rc = sync_fetch(&how, &got, &e);
	if (rc)
		printf("# sync: %d %s\n", rc, e.text);
	return rc;
}

static const char *tip(void)
{
	return sh("git -C app rev-parse -q --verify refs/heads/sandbox/7 || echo none");
}

TEST(sync_course)
{
	char old[COMMIT_TEXT];
	fresh();
	CHECK_INT(sync_work("", false), 0); /* nothing done yet: the branch is made at the start */
	CHECK_INT(got.fetch, REPO_CREATED);
	CHECK(!got.transferred);
	CHECK_STR(tip(), sh("git -C app rev-parse main"));
	in_box("echo a >a; git add a; git commit -qm a; echo b >b; echo more >>one.txt; mkdir new; echo 1 >new/1; echo "
	       "2 >new/2");
	CHECK_INT(sync_work(got.head, false), 0);
	CHECK_INT(got.fetch, REPO_FORWARDED);
	CHECK(got.transferred);
	CHECK_INT(got.uncommitted, 3);
	CHECK_STR(got.busy, "");
	CHECK_STR(got.head, in_box("git rev-parse HEAD"));
	CHECK_STR(tip(), got.head);
	CHECK_STR(sh("git -C app show sandbox/7:a"), "a");
	memcpy(old, got.head, COMMIT_TEXT);
	CHECK_INT(sync_work(old, false), 0);
	CHECK_INT(got.fetch, REPO_UNCHANGED);
	CHECK(!got.transferred);
	/* a rewrite is left alone, its objects come all the same; a ship takes it */
	in_box("git commit -q --amend -m rewritten");
	CHECK_INT(sync_work(old, false), 0);
	CHECK_INT(got.fetch, REPO_NOT_DESCENDANT);
	CHECK(strstr(got.left.text, "does not descend"));
	CHECK_STR(tip(), old);
	CHECK_INT(sync_work(got.head, true), 0); /* the caller's last known head is the rewritten one by now */
	CHECK_INT(got.fetch, REPO_REPLACED);
	CHECK_STR(tip(), in_box("git rev-parse HEAD"));
	CHECK_STR(sh("git -C app rev-parse 'sandbox/7@{1}'"), old);
	CHECK_STR(sh("ls *.bundle 2>/dev/null || :"), "");
	CHECK_STR(in_box(HOME_LIST), "app");
	sh("git -C app fsck --strict");
}

TEST(sync_sends_little)
{
	fresh();
	const char *theirs =
		sh("cd app; head -c 3000000 /dev/urandom >big; git add .; git commit -qm big; git rev-parse HEAD");
	in_box("echo mine >mine; git add .; git commit -qm mine");
	CHECK_INT(base(theirs), 0);
	in_box("git rebase -q refs/berthfs/base");
	/* a full disk for anything that is not small: what the host has must not come back */
	sh("find app/.git/objects -name '*.pack' | sort >before");
	CHECK_INT(sync_work("", true), 0);
	CHECK_INT(got.fetch, REPO_CREATED);
	CHECK(atoi(sh("find app/.git/objects -name '*.pack' | sort | comm -13 before - | xargs stat -c %%s")) < 10000);
}

TEST(sync_states)
{
	fresh();
	in_box("git checkout -q -b other; echo x >one.txt; git commit -qam x; git checkout -q main; echo y >one.txt; "
	       "git commit -qam y;"
	       "git rebase other || :");
	CHECK_INT(sync_work("", false), 0);
	CHECK_STR(got.busy, "rebase");
	CHECK(got.uncommitted > 0);
	in_box("git rebase --abort; git merge other || :");
	CHECK_INT(sync_work(got.head, false), 0);
	CHECK_STR(got.busy, "merge");
	in_box("git merge --abort; git cherry-pick other || :");
	CHECK_INT(sync_work(got.head, false), 0);
	CHECK_STR(got.busy, "cherry-pick");
	in_box("git cherry-pick --abort; git checkout -q --detach; git commit -q --allow-empty -m detached");
	CHECK_INT(sync_work(got.head, true), 0);
	CHECK_STR(got.busy, "");
	CHECK_STR(tip(), in_box("git rev-parse HEAD"));
	/* unrelated history, nothing in common */
	in_box("git checkout -q --orphan alone; git commit -qm alone; git update-ref -d refs/berthfs/base");
	CHECK_INT(sync_work(got.head, true), 0);
	CHECK_INT(got.fetch, REPO_REPLACED);
	CHECK_STR(tip(), in_box("git rev-parse HEAD"));
	in_box("git checkout -q --orphan unborn");
	CHECK_INT(sync_work(got.head, false), -ENOENT);
	in_box("git checkout -qf main; echo junk >.git/index");
	CHECK_INT(sync_work(got.head, false), -EIO);
	in_box("cd ..; rm -rf app");
	CHECK_INT(sync_work(got.head, false), -ENOENT);
}

TEST(sync_uncommitted)
{
	fresh();
	CHECK_INT(sync_work("", false), 0);
	CHECK_INT(got.uncommitted, 0);
	CHECK_STR(got.names, "");
	in_box("echo x >>one.txt; git rm -q dir/two.txt; mkdir d; echo 1 >d/1; echo 2 >d/2; echo 3 >'new\nline';"
	       "printf x >$(printf 'latin\344')");
	CHECK_INT(sync_work("", false), 0);
	CHECK_INT(got.uncommitted, 5);
	CHECK_INT(got.named, 5);
	CHECK_STR(got.names, "dir/two.txt, one.txt, d/, \"latin\\344\", \"new\\nline\"");
	in_box("for i in $(seq 300); do echo >a$i; done; echo >$(printf %%0250d 1)");
	CHECK_INT(sync_work("", false), 0);
	CHECK_INT(got.uncommitted, 306);
	CHECK(got.named > 2 && got.named <= 5);
}

TEST(sync_after_a_kill)
{
	fresh();
	in_box("echo a >a; git add a; git commit -qm a; : >../.berthfs-y-sync.bundle.1.lock");
	/* the daemon died between the fetch and its own commit: the same again is no change */
	CHECK_INT(sync_work("", false), 0);
	CHECK_INT(got.fetch, REPO_CREATED);
	CHECK_INT(sync_work("", false), 0);
	CHECK_INT(got.fetch, REPO_UNCHANGED);
	in_box("git commit -q --amend -m other");
	CHECK_INT(sync_work("", true), 0);
	CHECK_INT(got.fetch, REPO_REPLACED);
	in_box("rm -f ../.berthfs-y-sync.bundle.1.lock");
}

/* ---- checks ---- */

static struct check_result *results;
static size_t n_results;

static int check(const char *prefix, const char *json, const atomic_bool *cancel, const atomic_bool *halt)
{
	struct project p;
	struct err e = ERR_INIT;
	checks_free(results, n_results);
	results = NULL;
	n_results = 0;
	CHECK_INT(project_parse(json, strlen(json), &p, &e), 0);
	struct checks_how how = {.env = box.env,
				 .clone = copy,
				 .project = &p,
				 .prefix = prefix,
				 .timeout_ms = 60000,
				 .cancel = cancel,
				 .halt = halt};
	int rc = checks_run(&how, &results, &n_results, &e);
	if (rc)
		printf("# checks: %d %s\n", rc, e.text);
	project_release(&p);
	return rc;
}

TEST(checks_of_a_commit)
{
	struct project p;
	struct err e = ERR_INIT;
	make_project();
	CHECK_INT(checks_load(app, sh("git -C app rev-parse HEAD"), &p, &e), 0);
	CHECK_INT(p.n_checks, 0);
	const char *with = sh("cd app; mkdir .agents; echo '{\"checks\":[{\"name\":\"t\",\"command\":\"true\"}]}' "
			      ">.agents/project.json;"
			      "git add .; git commit -qm c; git rev-parse HEAD");
	const char *bad = sh("cd app; echo '{' >.agents/project.json; git commit -qam c; git rev-parse HEAD");
	const char *link = sh("cd app; ln -sf /etc/passwd .agents/project.json; git commit -qam c; git rev-parse HEAD");
	sh("cd app; rm .agents/project.json");
	CHECK_INT(checks_load(app, with, &p, &e), 0);
	CHECK_INT(p.n_checks, 1);
	project_release(&p);
	CHECK_INT(checks_load(app, bad, &p, &e), -EINVAL);
	CHECK(strstr(e.text, "project.json"));
	CHECK_INT(checks_load(app, link, &p, &e), -EINVAL);
	CHECK(checks_load(app, "0123456789012345678901234567890123456789", &p, &e) < 0);
}

TEST(checks_results)
{
	fresh();
	CHECK_INT(check("r1",
			"{\"checks\":[{\"name\":\"good\",\"command\":\"test -e one.txt; echo fine\"},"
			"{\"name\":\"bad\",\"command\":\"echo out; echo err >&2; printf 'x\\\\377'; exit 3\"},"
			"{\"name\":\"slow\",\"command\":\"echo begun; sleep 300\",\"timeout\":3},"
			"{\"name\":\"killed\",\"command\":\"kill -9 $$\"},"
			"{\"name\":\"much\",\"command\":\"seq 1 200000; exit 1\"},"
			"{\"name\":\"lines\",\"command\":\"true\\ntest -z \\\"$X\\\"\"}]}",
			NULL, NULL),
		  0);
	CHECK_INT(n_results, 6);
	CHECK_STR(results[0].name, "good");
	CHECK_INT(results[0].state, CHECK_PASS);
	CHECK_INT(results[0].output.n, 0);
	CHECK_INT(results[1].state, CHECK_FAIL);
	CHECK_STR(buf_str(&results[1].output), "out\nerr\nx\xef\xbf\xbd\n(exit code 3)\n");
	CHECK_INT(results[2].state, CHECK_ERROR);
	CHECK(results[2].ms >= 2900 && results[2].ms < 60000);
	CHECK_STR(buf_str(&results[2].output), "begun\n(killed: it did not end within 3 s)\n");
	CHECK_INT(results[3].state, CHECK_FAIL);
	CHECK_STR(buf_str(&results[3].output), "(exit code 137)\n");
	CHECK_INT(results[4].state, CHECK_FAIL);
	CHECK(results[4].output.n <= CHECK_OUTPUT_MAX + 100 && results[4].output.n > CHECK_OUTPUT_MAX - 100);
	CHECK(!strncmp(buf_str(&results[4].output), "(only the end: ", 15));
	CHECK(strstr(buf_str(&results[4].output), "\n199999\n200000\n(exit code 1)\n"));
	CHECK_INT(results[5].state, CHECK_PASS);
	checks_forget(box.env, "r1", 6);
	struct env_job j;
	CHECK_INT(env_poll(box.env, "r1-1", 0, 0, &j, NULL), 0);
	CHECK_INT(j.state, ENV_JOB_UNKNOWN);
}

/* A restarted daemon collects what ended and joins what runs. */
TEST(checks_run_once)
{
	static const char json[] =
		"{\"checks\":[{\"name\":\"a\",\"command\":\"echo a >>../ran\"},"
		"{\"name\":\"b\",\"command\":\"echo b >>../ran; while [ ! -e ../go ]; do sleep 0.05; done; exit 4\"}]}";
	atomic_bool cancel = true, halt = true;
	fresh();
	in_box("rm -f ../ran ../go");
	CHECK_INT(check("o1", json, &cancel, &halt), -ECANCELED); /* the daemon ends while b runs: b goes on */
	for (int i = 0; i < 200 && strcmp(in_box("cat ../ran 2>/dev/null || :"), "a\nb"); i++)
		check("o1", json, &cancel, &halt);
	in_box(": >../go");
	cancel = halt = false;
	CHECK_INT(check("o1", json, &cancel, &halt), 0);
	CHECK_INT(results[0].state, CHECK_PASS);
	CHECK_INT(results[1].state, CHECK_FAIL);
	CHECK_STR(in_box("cat ../ran"), "a\nb");
	CHECK_INT(check("o1", json, &cancel, &halt), 0); /* not forgotten yet: the same results */
	CHECK_STR(in_box("cat ../ran"), "a\nb");
	checks_forget(box.env, "o1", 2);
	in_box("rm -f ../ran ../go");
}

TEST(checks_stopped)
{
	struct env_job j = {0};
	atomic_bool cancel = true;
	fresh();
	CHECK_INT(check("p1", "{\"checks\":[{\"name\":\"a\",\"command\":\"sleep 300\"}]}", &cancel, NULL), -ECANCELED);
	j = wait_job(box.env, "p1-1");
	CHECK_INT(j.state, ENV_JOB_EXITED);
	CHECK(j.killed);
	checks_forget(box.env, "p1", 1);
}

TEST(checks_cannot_start)
{
	fresh();
	in_box("cd ..; rm -rf app");
	CHECK_INT(check("q1", "{\"checks\":[{\"name\":\"a\",\"command\":\"true\"}]}", NULL, NULL), 0);
	CHECK_INT(results[0].state, CHECK_ERROR);
	CHECK(strstr(buf_str(&results[0].output), "could not be started"));
}

TEST(end)
{
	checks_free(results, n_results);
	free(app);
	free(copy);
	repo_end();
}
