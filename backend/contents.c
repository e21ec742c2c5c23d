/* A handful of unpacked files, the one that was not used for longest is dropped first. Two threads that want the same
 * one at once may both unpack it: they share nothing but the result. Any thread; the lock is never held while git
 * works. */
#include "contents.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"

#define IN_MEMORY ((uint64_t)8 << 20) /* larger ones go into a file */
#define KEPT	  4		      /* of each: 32 MiB of memory, 4 files */

struct content {
	int refs;
	char object[COMMIT_TEXT];
	uint64_t size;
	struct buf text;
	int fd; /* -1: in memory */
};

struct contents {
	const struct paths *paths;
	pthread_mutex_t lock;
	struct content *kept[2][KEPT]; /* in memory, in files; newest first */
};

struct contents *contents_new(const struct paths *paths)
{
	struct contents *c = xcalloc(1, sizeof *c);
	c->paths = paths;
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

/* With the lock, or where nobody else can have it. */
static void content_put(struct content *it)
{
	if (!it || --it->refs)
		return;
	buf_release(&it->text);
	fd_close(&it->fd);
	free(it);
}

void contents_free(struct contents *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < 2 * KEPT; i++)
		content_put(c->kept[i / KEPT][i % KEPT]);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void to_front(struct content **kept, size_t at)
{
	struct content *it = kept[at];
	memmove(kept + 1, kept, at * sizeof *kept);
	kept[0] = it;
}

static struct content *find(struct contents *c, const char *object)
{
	struct content *found = NULL;
	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < 2 * KEPT && !found; i++) {
		struct content **kept = c->kept[i / KEPT];
		if (kept[i % KEPT] && !strcmp(kept[i % KEPT]->object, object)) {
			to_front(kept, i % KEPT);
			found = kept[0];
			found->refs++;
		}
	}
	pthread_mutex_unlock(&c->lock);
	return found;
}

static void keep(struct contents *c, struct content *it)
{
	struct content **kept = c->kept[it->fd >= 0];
	pthread_mutex_lock(&c->lock);
	content_put(kept[KEPT - 1]);
	kept[KEPT - 1] = it;
	to_front(kept, KEPT - 1);
	it->refs++;
	pthread_mutex_unlock(&c->lock);
}

static void drop(struct contents *c, struct content *it)
{
	pthread_mutex_lock(&c->lock);
	content_put(it);
	pthread_mutex_unlock(&c->lock);
}

static int open_nameless(struct contents *c, struct err *err)
{
	int fd = open(c->paths->state, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
		return fd >= 0 ? fd : err_sys(err, errno, "cannot make a file for a large file of files/");
	CLEAN_FREE char *name = xasprintf("%s/files.XXXXXX", c->paths->state);
	fd = mkostemp(name, O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "cannot make a file for a large file of files/");
	unlink(name);
	return fd;
}

static int load(struct contents *c, const char *path, struct repo_tree *tree, const char *object, uint64_t max,
		struct content **out, struct err *err)
{
	struct content *it = xcalloc(1, sizeof *it);
	it->refs = 1;
	it->fd = -1;
	memcpy(it->object, object, sizeof it->object);
	int rc = repo_blob_size(tree, object, &it->size, err);
	if (!rc && it->size > max)
		rc = err_set(err, EFBIG,
			     "files over %llu MiB are not shown here: `git show sandbox/N:FILE` in the checkout",
			     (unsigned long long)(max >> 20));
	if (!rc && it->size > IN_MEMORY) {
		it->fd = open_nameless(c, err);
		rc = it->fd < 0 ? it->fd : repo_blob_to_fd(path, object, it->fd, err);
	} else if (!rc) {
		rc = repo_blob(tree, object, &it->text, err);
	}
	if (rc)
		content_put(it);
	else
		*out = it;
	return rc;
}

static int copy(const struct content *it, uint64_t offset, size_t n, struct buf *out, struct err *err)
{
	if (offset >= it->size)
		return 0;
	if (n > it->size - offset)
		n = (size_t)(it->size - offset);
	if (it->fd < 0) {
		buf_add(out, it->text.p + offset, n);
		return 0;
	}
	buf_reserve(out, n);
	ssize_t got = pread(it->fd, out->p + out->n, n, (off_t)offset);
	if (got < 0)
		return err_sys(err, errno, "cannot read a large file of files/");
	out->n += (size_t)got;
	return 0;
}

int contents_read(struct contents *c, const char *path, struct repo_tree *tree, const char *object, uint64_t max,
		  uint64_t offset, size_t n, struct buf *out, struct err *err)
{
	struct content *it = find(c, object);
	if (!it) {
		int rc = load(c, path, tree, object, max, &it, err);
		if (rc)
			return rc;
		keep(c, it);
	}
	int rc = copy(it, offset, n, out, err);
	drop(c, it);
	return rc;
}
