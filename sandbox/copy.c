/* Copies of disks for the drivers. Blocks; worker threads only. Killed at any moment it leaves the old one or the new
 * one, and perhaps a folder or file NAME.copy that the next copy replaces. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "driver.h"

#define COPY_MS 600000 /* some GiB on a slow disk without shared blocks */
#define TRIES	5      /* of a tree in which files come and go */

/* cp's words, in the language C */
#define WORDS_MAX (1 << 20)
#define GONE	  ": No such file or directory"
#define REPLACED  "as it was replaced while being copied"

/* To the disk. The files of a folder one by one would take long, so that the whole file system is flushed there. */
static int flush(const char *path, struct err *err)
{
	struct stat st;
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || (S_ISDIR(st.st_mode) ? syncfs(fd) : fsync(fd)))
		return err_sys(err, errno, "cannot write %s to the disk", path);
	return 0;
}

int sandbox_move(const char *from, const char *to, struct err *err)
{
	if (!rename(from, to))
		return 0;
	if (errno != EXDEV)
		return err_sys(err, errno, "cannot make %s", to);
	int rc = sandbox_copy_tree(from, to, NULL, err);
	return rc == -ENOSPC ? err_set(err, ENOSPC, "there is no room for %s: free some space on that disk", to) : rc;
}

/* What cp says of a tree whose programs go on: a file was there when its folder was read, and then it was not (*gone),
 * or was another. False: there are other words among them, or there may be. */
static bool only_moved(const struct buf *words, bool *gone)
{
	*gone = true;
	if (!words->n || words->n >= WORDS_MAX)
		return false;
	CLEAN_FREE char *copy = xstrndup(words->p, words->n);
	char *rest = copy;
	for (char *line; (line = strsep(&rest, "\n"));) {
		size_t n = strlen(line), end = strlen(GONE);
		if (strstr(line, REPLACED))
			*gone = false;
		else if (n && (n < end || strcmp(line + n - end, GONE) || strstr(line, "cannot create")))
			return false;
	}
	return true;
}

static int run_cp(const char *from, const char *tmp, const atomic_bool *cancel, struct err *err)
{
	for (int i = 1;; i++) {
		CLEAN_BUF struct buf words = BUF_INIT;
		const char *argv[] = {"cp", "-a", "--reflink=auto", "--sparse=always", "--", from, tmp, NULL};
		struct child c = {.argv = argv,
				  .env = (const char *const[]){"LC_ALL=C", NULL}, /* its words are looked at */
				  .errout = &words,
				  .max = WORDS_MAX,
				  .timeout_ms = COPY_MS,
				  .cancel = cancel};
		bool gone;
		int rc = dir_remove(tmp, err);
		rc = rc ? rc : child_run(&c, err);
		if (rc <= 0)
			return rc;
		bool moved = only_moved(&words, &gone);
		if (moved && gone && file_exists(from))
			return 0; /* all that stayed is there, and what went is gone */
		if (!moved || i == TRIES)
			return err_set(err, strstr(buf_str(&words), strerror(ENOSPC)) ? ENOSPC : EIO,
				       "cannot copy %s: %s", from, buf_str(&words));
	}
}

int sandbox_copy_tree(const char *from, const char *to, const atomic_bool *cancel, struct err *err)
{
	CLEAN_FREE char *tmp = xasprintf("%s.copy", to);
	if (!file_exists(from))
		return err_set(err, ENOENT, "there is no %s to copy", from);
	int rc = run_cp(from, tmp, cancel, err);
	rc = rc ? rc : flush(tmp, err);
	if (!rc && renameat2(AT_FDCWD, tmp, AT_FDCWD, to, file_exists(to) ? RENAME_EXCHANGE : RENAME_NOREPLACE))
		rc = err_sys(err, errno, "cannot move the copy to %s", to);
	dir_remove(tmp, NULL); /* what stood there before, or what was not finished */
	return rc;
}
