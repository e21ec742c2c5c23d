/* What a line of bash runs: what is so is seen through every way of writing it, what cannot be told is said so. */
#include "backend/parse/shell.h"

#include "backend/base/buf.h"
#include "backend/base/mem.h"
#include "check.h"

static const char *const push[] = {"git", "push"};

static void expect(const char *line, enum shell_sight want, enum shell_sight got)
{
	static const char *const words[] = {"no", "unsure", "yes"};
	if (want != got)
		printf("# %s\n# is %s, not %s\n", line, words[got], words[want]);
	CHECK_INT(got, want);
}

TEST(a_push_is_seen)
{
	static const char *const lines[] = {
		"git push",
		"git push origin main",
		"git -C /some/where push",
		"git -c user.name=x --git-dir=/x/.git --work-tree /x push",
		"/usr/bin/git push",
		"cd x && git push",
		"true; git push; true",
		"make test || git push",
		"(git push)",
		"{ git push; }",
		"if make; then git push; fi",
		"while ! git push; do sleep 1; done",
		"for r in a b; do git push \"$r\"; done",
		"f() { git push; }; f",
		"function f { git push; }; f",
		"echo `git push`",
		"echo $(git push)",
		"echo \"$(git push)\"",
		"x=$(git push)",
		"A=b C=d git push",
		"env git push",
		"env -u X A=b git push",
		"sudo -u me git push",
		"nohup git push &",
		"timeout 10 git push",
		"timeout -k 5 10 git push",
		"nice -n 5 git push",
		"command git push",
		"exec git push",
		"sh -c 'git push'",
		"bash -ec \"git push origin main\"",
		"sh -c 'sh -c \"git push\"'",
		"eval git push",
		"eval 'git push'",
		"\\git push",
		"g\"i\"t pu'sh'",
		"git \\\n push",
		"git push > /dev/null 2>&1",
		"> log git push",
		"cat <(git push)",
		"ls | xargs git push",
		"find . -name x -exec git push \\;",
		"trap 'git push' EXIT",
		"# nothing\ngit push",
		"cat <<X\nhello\nX\ngit push",
		"cat <<-'X'\n\thello $(no)\n\tX\ngit push",
		"time git push",
		"! git push",
		"setsid -f git push",
		"busybox sh -c 'git push'",
	};
	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		expect(lines[i], SHELL_YES, shell_runs(lines[i], push, 2));
}

TEST(what_cannot_be_told_is_unsure)
{
	static const char *const lines[] = {
		"$GIT push",
		"g=git; $g push",
		"git $verb",
		"git \"$@\"",
		"$(echo git) push",
		"g?t push",
		"{git,push}",
		"eval \"$x\"",
		"sh deploy.sh",
		"bash < script",
		"curl example.org | sh",
		". ./env.sh",
		"source env.sh",
		"git p", /* an alias? */
		"git -c alias.x=push x",
		"git rebase -x 'git push' main",
		"git submodule foreach 'git push'",
		"git bisect run ./x",
		"python3 -c 'import os; os.system(\"git push\")'",
		"perl -e 'exec \"git\", \"push\"'",
		"ls | xargs git",
		"ls | parallel",
		"su -c 'git push'",
		"env -S 'git push'",
		"case x in a) git status;; esac",
		"cat <<X\n$(git push)\nX",
		"git push 'unfinished",
		"echo $(git status",
		"$'\\x67it' push",
		"flock -c 'git push' f",
	};
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		enum shell_sight s = shell_runs(lines[i], push, 2);
		expect(lines[i], SHELL_UNSURE, s == SHELL_YES ? SHELL_UNSURE : s); /* asked for either way */
	}
}

TEST(other_things_are_not_asked_for)
{
	static const char *const lines[] = {
		"",
		"ls -l",
		"git status",
		"git commit -m 'git push is next'",
		"git commit -am \"push it\"",
		"git log --oneline | head -5",
		"git stash push",
		"echo git push",
		"echo 'git push'",
		"grep -rn 'git push' .",
		"cat push",
		"npm test",
		"make -j4 && ./run",
		"for f in *.c; do wc -l \"$f\"; done",
		"if [ -f x ]; then cat x; else echo no; fi",
		"[[ a == b* ]] && echo yes",
		"echo $((1 + 2)) ${x:-y} $HOME",
		"x=1 y=2",
		"sh -c 'git status'",
		"env A=b make",
		"python3 -c 'print(1)'",
		"python3 test.py",
		"cat <<'X'\ngit push\nX",
		"find . -name '*.c' -exec grep -l push {} +",
		"command -v git",
		"# git push",
		"git fetch && git rebase origin/main",
	};
	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		expect(lines[i], SHELL_NO, shell_runs(lines[i], push, 2));
}

TEST(other_patterns)
{
	static const char *const rm[] = {"rm"}, *const rmrf[] = {"rm", "-rf"}, *const any[] = {"*"},
				 *const kube[] = {"kubectl", "delete"};
	expect("rm x", SHELL_YES, shell_runs("rm x", rm, 1));
	expect("rm x", SHELL_NO, shell_runs("rm x", rmrf, 2));
	expect("rm -rf x", SHELL_YES, shell_runs("sudo rm -rf x", rmrf, 2));
	expect("true", SHELL_YES, shell_runs("true", any, 1));
	expect("kubectl", SHELL_YES, shell_runs("kubectl -n x delete pod y", kube, 2));
	expect("kubectl", SHELL_UNSURE, shell_runs("kubectl $x pod y", kube, 2));
	CHECK_INT(shell_runs("anything", NULL, 0), SHELL_YES);
}

TEST(hosts)
{
	static const struct {
		const char *line;
		enum shell_sight want;
	} c[] = {{"ssh prod", SHELL_YES},
		 {"ssh -p 22 me@prod.example.org uptime", SHELL_YES},
		 {"scp x me@prod:/tmp", SHELL_YES},
		 {"rsync -a . prod:/srv/", SHELL_YES},
		 {"git push ssh://git@prod:2222/x.git main", SHELL_YES},
		 {"sh -c 'ssh prod'", SHELL_YES},
		 {"ssh $HOST", SHELL_UNSURE},
		 {"ssh other", SHELL_NO},
		 {"echo prod", SHELL_NO},
		 {"ping prod", SHELL_NO},
		 {"sh deploy.sh", SHELL_UNSURE}};
	for (size_t i = 0; i < ARRAY_LEN(c); i++)
		expect(c[i].line, c[i].want, shell_reaches(c[i].line, "prod *.example.org"));
	CHECK_INT(shell_reaches("ssh prod", ""), SHELL_NO);
}

/* Any bytes come to an end and leave nothing. */
TEST(noise)
{
	static const char alphabet[] = "git push'\"\\$(){}`|&;<>\n#=-cas e[]*?";
	unsigned seed = 1;
	for (int round = 0; round < 20000; round++) {
		char line[80];
		size_t n = 0;
		for (; n < sizeof line - 1 && n < (size_t)(round % 79) + 1; n++) {
			seed = seed * 1103515245 + 12345;
			line[n] = alphabet[(seed >> 8) % (sizeof alphabet - 1)];
		}
		line[n] = 0;
		shell_runs(line, push, 2);
		shell_reaches(line, "prod");
	}
	CLEAN_BUF struct buf deep = BUF_INIT;
	for (int i = 0; i < 100000; i++)
		buf_adds(&deep, "$(");
	CHECK_INT(shell_runs(buf_str(&deep), push, 2), SHELL_UNSURE);
	buf_reset(&deep);
	for (int i = 0; i < 5000; i++)
		buf_adds(&deep, "sudo ");
	shell_runs(buf_str(&deep), push, 2);
}

CHECK_MAIN()
