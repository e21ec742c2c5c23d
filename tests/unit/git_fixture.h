/* Real repositories in a folder of their own, for tests. The user's own git settings are shut out. */
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/buf.h"
#include "backend/base/child.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"

static char fixture_root[64];

/* Runs a shell command in the fixture's folder; ends the test program if it fails. Returns its output, cut at its last
 * newline; valid until 64 calls later. */
__attribute__((format(printf, 1, 2))) static inline const char *sh(const char *fmt, ...)
{
	static struct buf outs[64];
	static int turn;
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *text = xvasprintf(fmt, ap);
	va_end(ap);
	struct buf *out = &outs[turn++ % 64];
	CLEAN_BUF struct buf said = BUF_INIT;
	buf_reset(out);
	const char *argv[] = {"sh", "-ec", text, NULL};
	struct child c = {.argv = argv, .cwd = fixture_root, .out = out, .errout = &said};
	int rc = child_run(&c, NULL);
	if (rc) {
		printf("# failed (%d): %s\n# %s\n", rc, text, buf_str(&said));
		fflush(stdout);
		exit(99);
	}
	while (out->n && out->p[out->n - 1] == '\n')
		buf_cut(out, out->n - 1);
	return buf_str(out);
}

static inline char *at(const char *name)
{
	return xasprintf("%s/%s", fixture_root, name);
}

static inline void fixture_end(void)
{
	if (*fixture_root)
		dir_remove(fixture_root, NULL);
}

static inline void fixture_begin(void)
{
	strcpy(fixture_root, "/tmp/berthfs-git-XXXXXX");
	if (!mkdtemp(fixture_root))
		exit(99);
	atexit(fixture_end);
	CLEAN_FREE char *config = at("gitconfig");
	setenv("HOME", fixture_root, 1);
	setenv("XDG_CONFIG_HOME", fixture_root, 1);
	setenv("GIT_CONFIG_GLOBAL", config, 1);
	setenv("GIT_CONFIG_NOSYSTEM", "1", 1);
	static const char *const foreign[] = {
		"GIT_DIR",	    "GIT_WORK_TREE",	  "GIT_INDEX_FILE",	"GIT_AUTHOR_NAME",
		"GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"};
	for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
		unsetenv(foreign[i]);
	sh("git config --global user.name 'Ann O'; git config --global user.email ann@example.org;"
	   "git config --global init.defaultBranch main; git config --global protocol.file.allow always");
}

/* A fresh checkout `app` of one commit beside a bare remote `app.git` that has the same. */
static inline void make_project(void)
{
	sh("rm -rf app app.git other box *.bundle; git init -q app; cd app; echo one >one.txt; mkdir dir; echo two "
	   ">dir/two.txt;"
	   "git add .; git commit -qm first; cd ..; git clone -q --bare app app.git; cd app; git remote add origin "
	   "../app.git;"
	   "git fetch -q; rm .git/FETCH_HEAD; git branch -q -u origin/main");
}

/* A clone `box` of the project as a sandbox would have it: no remote. */
static inline void make_box(void)
{
	sh("rm -rf box; git clone -q app box; cd box; git remote remove origin");
}
