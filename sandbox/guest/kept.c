/* Outputs that were kept: a sandbox's disk is not filled with what nobody looks at any more. Any thread. */
#include "kept.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/mem.h"

struct kept {
	char *name;
	uint64_t size;
	struct timespec changed;
};

static int newest_first(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;
	if (x->changed.tv_sec != y->changed.tv_sec)
		return x->changed.tv_sec < y->changed.tv_sec ? 1 : -1;
	return x->changed.tv_nsec < y->changed.tv_nsec ? 1 : x->changed.tv_nsec > y->changed.tv_nsec ? -1 : 0;
}

void kept_prune(const char *folder)
{
	DIR *d = opendir(folder);
	struct kept *list = NULL;
	size_t n = 0;
	uint64_t sum = 0;
	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));) {
		struct stat st;
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		list = xrealloc(list, (n + 1) * sizeof *list);
		list[n++] = (struct kept){xstrdup(e->d_name), (uint64_t)st.st_blocks * 512, st.st_ctim};
	}
	if (n)
		qsort(list, n, sizeof *list, newest_first);
	for (size_t i = 0; i < n; i++) {
		sum += list[i].size;
		if (i && (i >= KEPT_FILES || sum > KEPT_BYTES))
			unlinkat(dirfd(d), list[i].name, 0);
		free(list[i].name);
	}
	free(list);
	closedir(d);
}
