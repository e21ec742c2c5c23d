/* What may be written to `ship`, and what stops a push. */
#include <errno.h>
#include <stdlib.h>

#include "backend/base/mem.h"
#include "backend/git/repo.h"
#include "backend/parse/blocks.h"
#include "backend/ship_pr.h"
#include "backend/ship_rules.h"
#include "check.h"

TEST(lines)
{
	static const struct {
		const char *line;
		int rc;
		enum ship_target target;
		const char *branch;
	} lines[] = {
		{"", 0, SHIP_TO_DEFAULT, NULL},
		{"\n", 0, SHIP_TO_DEFAULT, NULL},
		{"  main \r\n", 0, SHIP_TO_DEFAULT, NULL},
		{"pr", 0, SHIP_TO_PR, NULL},
		{"branch release/2.0\n", 0, SHIP_TO_BRANCH, "release/2.0"},
		{"branch\t main", 0, SHIP_TO_BRANCH, "main"},
		{"branch", -EINVAL, SHIP_TO_DEFAULT, NULL},
		{"branch a b", -EINVAL, SHIP_TO_DEFAULT, NULL},
		{"branch -f", -EINVAL, SHIP_TO_DEFAULT, NULL},
		{"branch +main", 0, SHIP_TO_BRANCH, "+main"}, /* odd, but a name: stands behind refs/heads/ */
		{"branch a:b", -EINVAL, SHIP_TO_DEFAULT, NULL},
		{"branch a..b", -EINVAL, SHIP_TO_DEFAULT, NULL},
		{"branch x.lock", -EINVAL, SHIP_TO_DEFAULT, NULL},
		{"master", -EINVAL, SHIP_TO_DEFAULT, NULL},
		{"branches x", -EINVAL, SHIP_TO_DEFAULT, NULL},
		{"now!", -EINVAL, SHIP_TO_DEFAULT, NULL},
	};
	CHECK_INT(repo_begin(NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		struct err e = ERR_INIT;
		enum ship_target target;
		char *branch;
		int rc = ship_parse(lines[i].line, &target, &branch, &e);
		if (rc != lines[i].rc)
			printf("# %s\n", lines[i].line);
		CHECK_INT(rc, lines[i].rc);
		CHECK_INT(!*e.text, !rc);
		if (!rc)
			CHECK_INT(target, lines[i].target);
		CHECK_STR(branch ? branch : "-", lines[i].branch ? lines[i].branch : "-");
		free(branch);
	}
}

TEST(forge_of_a_url)
{
	static const struct {
		const char *url, *host, *project; /* host NULL: it is none of a forge */
	} urls[] = {
		{"https://github.com/ann/app.git", "github.com", "ann/app"},
		{"https://GitHub.com/ann/app/", "github.com", "ann/app"},
		{"https://ann@git.example.org:8443/team/sub/app.git", "git.example.org", "team/sub/app"},
		{"ssh://git@github.com/ann/app.git", "github.com", "ann/app"},
		{"ssh://git@git.example.org:2222/ann/app", "git.example.org", "ann/app"},
		{"git@github.com:ann/app.git", "github.com", "ann/app"},
		{"github.com:ann/app", "github.com", "ann/app"},
		{"git://git.example.org/ann/app", "git.example.org", "ann/app"},
		{"/srv/git/app.git", NULL, NULL},
		{"../app.git", NULL, NULL},
		{"file:///srv/git/app.git", NULL, NULL},
		{"https://github.com", NULL, NULL},
		{"https://github.com/app", NULL, NULL},
		{"https:///ann/app", NULL, NULL},
		{"./x:y/z", NULL, NULL},
		{"", NULL, NULL},
	};
	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		CLEAN_FREE char *host = NULL;
		CLEAN_FREE char *project = NULL;
		int rc = ship_forge_parse(urls[i].url, &host, &project, NULL);
		if (rc != (urls[i].host ? 0 : -ENOENT))
			printf("# %s: %d\n", urls[i].url, rc);
		CHECK_INT(rc, urls[i].host ? 0 : -ENOENT);
		CHECK_STR(host ? host : "", urls[i].host ? urls[i].host : "");
		CHECK_STR(project ? project : "", urls[i].project ? urls[i].project : "");
	}
}

TEST(prompt)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	ship_prompt(&b, false, "origin", "main", "0123456789abcdef0123456789abcdef01234567");
	CHECK(strstr(buf_str(&b), "refs/berthfs/base"));
	CHECK(strstr(buf_str(&b), "\nSHIP-READY\n"));
	CHECK(strstr(buf_str(&b), "\nSHIP-BLOCKED: "));
	CHECK(strstr(buf_str(&b), "branch main of origin"));
}

TEST(allowed)
{
	struct check_result checks[] = {{.name = (char[]){"unit"}, .state = CHECK_PASS},
					{.name = (char[]){"lint"}, .state = CHECK_FAIL}};
	const struct {
		struct ship_facts f;
		const char *outcome; /* "": allowed */
	} cases[] = {
		{{.branch = "main", .busy = "", .on_base = true}, ""},
		{{.branch = "main", .busy = "", .on_base = true, .checks = checks, .n_checks = 1}, ""},
		{{.branch = "main", .busy = "", .on_base = true, .checks = checks, .n_checks = 2},
		 "check failed: lint"},
		{{.branch = "main", .busy = "", .on_base = false}, "check failed: not rebased onto main"},
		{{.branch = "main", .busy = "", .on_base = true, .landed = true}, "already on main"},
		{{.branch = "main", .busy = "", .on_base = false, .landed = true}, "already on main"},
		{{.branch = "main", .busy = "", .on_base = true, .landed = true, .uncommitted = 1},
		 "check failed: uncommitted changes"},
		{{.branch = "main", .busy = "rebase", .on_base = true}, "check failed: unfinished rebase"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		CLEAN_BUF struct buf outcome = BUF_INIT, words = BUF_INIT;
		bool yes = ship_allowed(&cases[i].f, &outcome, &words);
		CHECK_INT(yes, !*cases[i].outcome);
		CHECK_STR(buf_str(&outcome), cases[i].outcome);
		CHECK_INT(words.n != 0, !yes && strncmp(cases[i].outcome, "already", 7));
		buf_reset(&outcome);
		CHECK_INT(ship_allowed(&cases[i].f, &outcome, NULL), yes);
	}
}

CHECK_MAIN()
