/* Patterns of protected paths. */
#include "backend/base/guard.h"

#include <errno.h>

#include "backend/base/mem.h"
#include "backend/gate.h"
#include "check.h"

TEST(forms_of_patterns)
{
	static const struct {
		const char *list, *path;
		bool is;
	} t[] = {
		{"x", "/x", true},	    {"x", "/a/b/x", true},	   {"x", "/x/a", false},
		{"x", "/ax", false},	    {"x/", "/a/x/b/c", true},	   {"x/", "/a/x", true},
		{"x/", "/a/xb/c", false},   {"a/b", "/q/a/b", true},	   {"a/b", "/a/b/c", false},
		{"a/b/", "/a/b/c", true},   {"a/b/", "/a/c/b", false},	   {"/a/b", "/a/b", true},
		{"/a/b", "/q/a/b", false},  {"/a/b", "/a/b/c", false},	   {"/a/", "/a/b/c", true},
		{"*.k", "/a/x.k", true},    {"*", "/a/b", true},	   {"a*c", "/a/b/c", false},
		{"/p/*/e", "/p/1/e", true}, {"/p/*/e", "/p/1/2/e", false}, {"x !x", "/x", false},
		{"x !x x", "/x", true},	    {"!x", "/x", false},	   {"", "/x", false},
		{"x", "/", false},	    {"[ab]", "/b", true},	   {"a?", "/ab", true},
		{"x//", "//a//x//y", true},
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		if (guard_match(t[i].list, t[i].path, NULL, 0) != t[i].is) {
			printf("# %s on %s\n", t[i].list, t[i].path);
			CHECK(false);
		}
	char which[10];
	CHECK(guard_match("y x", "/a/x", which, sizeof which));
	CHECK_STR(which, "x");
}

TEST(the_default_list)
{
	static const char *const yes[] = {"/p/.env",
					  "/p/.env.local",
					  "/p/sub/.env.production",
					  "/h/.ssh/id_ed25519",
					  "/h/.ssh/config",
					  "/h/.aws/credentials",
					  "/h/.netrc",
					  "/p/.npmrc",
					  "/h/.docker/config.json",
					  "/h/.config/gh/hosts.yml",
					  "/h/.claude/.credentials.json",
					  "/h/.codex/auth.json",
					  "/proc/self/environ",
					  "/p/id_rsa",
					  "/p/server.p12"};
	static const char *const no[] = {
		"/p/.env.example", "/p/env",	   "/p/environment.ts", "/p/.github/config.yml", "/h/.ssh/id_rsa.pub",
		"/p/config.json",  "/p/auth.json", "/p/.envy/x",	"/p/.env/bin/python",	 "/proc/self/status",
		"/p/cert.pem"};
	for (size_t i = 0; i < ARRAY_LEN(yes); i++)
		if (!guard_match(gate_protected, yes[i], NULL, 0)) {
			printf("# %s is not protected\n", yes[i]);
			CHECK(false);
		}
	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		if (guard_match(gate_protected, no[i], NULL, 0)) {
			printf("# %s is protected\n", no[i]);
			CHECK(false);
		}
}

TEST(bad_lists)
{
	struct err err = ERR_INIT;
	char longer[400];
	memset(longer, 'x', sizeof longer);
	longer[399] = 0;
	CHECK_INT(guard_check(gate_protected, &err), 0);
	CHECK_INT(guard_check("", &err), 0);
	CHECK_INT(guard_check("a !", &err), -EINVAL);
	CHECK_INT(guard_check("/", &err), -EINVAL);
	CHECK_INT(guard_check(longer, &err), -EINVAL);
}

CHECK_MAIN()
