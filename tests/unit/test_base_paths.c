/* Where an instance keeps its things, for every kind of environment. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/paths.h"
#include "check.h"

static char root[] = "/tmp/berthfs-paths-XXXXXX";

static void no_environment(void)
{
	static const char *const names[] = {"XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME",
					    "HOME"};
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		unsetenv(names[i]);
}

static void set(const char *name, const char *below)
{
	CLEAN_FREE char *path = xasprintf("%s/%s", root, below);
	setenv(name, path, 1);
}

/* Is path what stands below the test's folder, and a folder of the user alone? */
static bool is(const char *path, const char *below, bool folder)
{
	struct stat st;
	CLEAN_FREE char *want = xasprintf("%s/%s", root, below);
	if (strcmp(path, want))
		printf("# %s, not %s\n", path, want);
	return !strcmp(path, want) &&
	       (!folder || (!stat(path, &st) && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0700));
}

TEST(home_alone)
{
	struct paths p;
	no_environment();
	set("HOME", "h1");
	CHECK_INT(paths_init(&p, NULL), 0);
	CHECK(is(p.state, "h1/.local/state/berthfs", true));
	CHECK(is(p.cache, "h1/.cache/berthfs", true));
	CHECK(is(p.runtime, "h1/.local/state/berthfs/run", true));
	CHECK(is(p.config, "h1/.config/berthfs/config", false));
	CHECK(!file_exists(p.config));
	CHECK(p.self[0] == '/' && strstr(p.self, "test_base_paths"));
	paths_release(&p);
}

TEST(the_four_folders)
{
	struct paths p;
	no_environment();
	set("XDG_STATE_HOME", "s");
	set("XDG_CACHE_HOME", "c");
	set("XDG_RUNTIME_DIR", "r");
	set("XDG_CONFIG_HOME", "f");
	set("HOME", "h2");
	CHECK_INT(paths_init(&p, NULL), 0);
	CHECK(is(p.state, "s/berthfs", true) && is(p.cache, "c/berthfs", true) && is(p.runtime, "r/berthfs", true));
	CHECK(is(p.config, "f/berthfs/config", false));
	paths_release(&p);
	CHECK_INT(paths_init(&p, NULL), 0); /* again: they are there */
	paths_release(&p);
}

TEST(relative_values_are_ignored)
{
	struct paths p;
	no_environment();
	set("HOME", "h3");
	setenv("XDG_STATE_HOME", "relative", 1);
	setenv("XDG_CACHE_HOME", "", 1);
	setenv("XDG_RUNTIME_DIR", "./run", 1);
	setenv("XDG_CONFIG_HOME", "~/config", 1);
	CHECK_INT(paths_init(&p, NULL), 0);
	CHECK(is(p.state, "h3/.local/state/berthfs", true) && is(p.cache, "h3/.cache/berthfs", true));
	CHECK(is(p.runtime, "h3/.local/state/berthfs/run", true) && is(p.config, "h3/.config/berthfs/config", false));
	CHECK(!file_exists("relative"));
	paths_release(&p);
}

/* Mount units run without HOME: the password file has it. With the four folders set it is not needed at all. */
TEST(no_home)
{
	struct paths p;
	no_environment();
	set("XDG_STATE_HOME", "n/s");
	set("XDG_CACHE_HOME", "n/c");
	set("XDG_CONFIG_HOME", "n/f");
	CHECK_INT(paths_init(&p, NULL), 0);
	CHECK(is(p.state, "n/s/berthfs", true) && is(p.runtime, "n/s/berthfs/run", true));
	paths_release(&p);
}

TEST(a_file_in_the_way)
{
	struct err err = ERR_INIT;
	struct paths p;
	no_environment();
	set("HOME", "h5");
	CLEAN_FREE char *file = xasprintf("%s/file", root), *below = xasprintf("%s/file/state", root);
	file_write(file, "x", 1, 0600, NULL);
	setenv("XDG_STATE_HOME", below, 1);
	CHECK_INT(paths_init(&p, &err), -ENOTDIR);
	CHECK(strstr(err.text, below));
	CHECK(!p.state && !p.cache);
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
