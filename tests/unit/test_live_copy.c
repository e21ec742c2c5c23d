/* Copies of a sandbox's disk while its programs go on: files come and go in it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/driver.h"

#define KEPT   200 /* files that stay */
#define SHORT  50  /* that are there at a time and soon are not */
#define COPIES 6

static char folder[] = "/tmp/berthfs-copy-XXXXXX";
static atomic_bool over;

static char *at(const char *name, long n)
{
	return xasprintf("%s/%s%ld", folder, name, n);
}

static void make(const char *name, long n)
{
	CLEAN_FREE char *path = at(name, n);
	CHECK_INT(file_write(path, "x", 1, 0600, NULL), 0);
}

static void *come_and_go(void *arg)
{
	for (long i = 0; !atomic_load(&over); i++) {
		CLEAN_FREE char *path = at("tree/short-", i), *old = at("tree/short-", i - SHORT);
		close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		unlink(old);
	}
	return NULL;
}

TEST(what_goes_meanwhile_is_no_error)
{
	pthread_t t;
	CLEAN_FREE char *tree = xasprintf("%s/tree", folder), *copy = xasprintf("%s/copy", folder);
	CHECK_INT(dir_make(tree, 0700, NULL), 0);
	for (int i = 0; i < KEPT; i++)
		make("tree/kept-", i);
	pthread_create(&t, NULL, come_and_go, NULL);
	for (int c = 0; c < COPIES; c++) {
		struct err err = ERR_INIT;
		int there = 0;
		CHECK_INT(sandbox_copy_tree(tree, copy, NULL, &err), 0);
		CHECK_STR(err.text, "");
		for (int i = 0; i < KEPT; i++) {
			CLEAN_FREE char *path = at("copy/kept-", i);
			there += file_exists(path);
		}
		CHECK_INT(there, KEPT);
	}
	atomic_store(&over, true);
	pthread_join(t, NULL);
}

TEST(what_cannot_be_copied_is_one)
{
	struct err err = ERR_INIT;
	CLEAN_FREE char *none = xasprintf("%s/none", folder), *copy = xasprintf("%s/copy2", folder);
	CLEAN_FREE char *nowhere = xasprintf("%s/none/copy", folder), *tree = xasprintf("%s/tree", folder);
	CHECK_INT(sandbox_copy_tree(none, copy, NULL, &err), -ENOENT);
	err = ERR_INIT;
	CHECK_INT(sandbox_copy_tree(tree, nowhere, NULL, &err), -EIO);
	CHECK(strstr(err.text, "cannot copy") != NULL);
}

__attribute__((constructor(101))) static void setup(void)
{
	if (!mkdtemp(folder))
		abort();
}

__attribute__((destructor)) static void teardown(void)
{
	dir_remove(folder, NULL);
}

CHECK_MAIN()
