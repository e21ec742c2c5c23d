/* The memory of a VM that stands still, and the file that it began from: what both hold is kept once. Any thread;
 * blocks. Must never let go of a page without having seen that its content is elsewhere, nor say that a memory is whole
 * before that has been looked at. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "ram.h"
#include "ram_file.h"

/* Pages that are in the file, at from, and not in the memory. */
struct lent {
	uint64_t at, n, from; /* bytes, multiples of RAM_PAGE */
};

void ram_lent_release(struct ram_lent *l)
{
	fd_close(&l->file);
	buf_release(&l->pages);
	*l = RAM_LENT_INIT;
}

uint64_t ram_lent_bytes(const struct ram_lent *l)
{
	uint64_t sum = 0;
	const struct lent *p = (const struct lent *)(const void *)l->pages.p;
	for (size_t i = 0; i < l->pages.n / sizeof *p; i++)
		sum += p[i].n;
	return sum;
}

/* ---- giving ---- */

struct giver {
	int ram;
	struct ram_lent *lent;
	struct ram_sum sum;
	uint64_t hole, hole_n; /* pages that are let go next */
	/* where in the file we are */
	const struct ram_extent *e, *end;
	uint64_t from; /* of e's first page */
	char *block;
	uint64_t block_at, block_n; /* what of the file is in it */
};

/* The file's page for this place in memory, which is behind that of the last call; *from: where it stands. NULL: it has
 * none, or it cannot be read. */
static const char *page_of(struct giver *g, uint64_t at, uint64_t *from)
{
	for (; g->e != g->end && g->e->at + g->e->n <= at; g->e++)
		g->from += g->e->n;
	if (g->e == g->end || g->e->at > at)
		return NULL;
	*from = g->from + (at - g->e->at);
	if (*from < g->block_at || *from + RAM_PAGE > g->block_at + g->block_n) {
		ssize_t n = pread(g->lent->file, g->block, RAM_BLOCK, (off_t)*from);
		g->block_at = *from;
		g->block_n = n > 0 ? (uint64_t)n : 0;
		if (g->block_n < RAM_PAGE)
			return NULL;
	}
	return g->block + (*from - g->block_at);
}

/* A page that stays though it could go costs memory and nothing else. */
static void let_go(struct giver *g)
{
	if (g->hole_n)
		fallocate(g->ram, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)g->hole, (off_t)g->hole_n);
	g->hole_n = 0;
}

static void give_page(struct giver *g, uint64_t at)
{
	if (g->hole + g->hole_n != at) {
		let_go(g);
		g->hole = at;
	}
	g->hole_n += RAM_PAGE;
}

static void note(struct giver *g, uint64_t at, uint64_t from, const char *page)
{
	struct buf *b = &g->lent->pages;
	struct lent *last = b->n ? (struct lent *)(void *)(b->p + b->n) - 1 : NULL;
	ram_sum_add(&g->sum, page, RAM_PAGE);
	if (last && last->at + last->n == at && last->from + last->n == from)
		last->n += RAM_PAGE;
	else
		buf_add(b, &(struct lent){at, RAM_PAGE, from}, sizeof(struct lent));
}

static void look_at(struct giver *g, const char *map, uint64_t at)
{
	uint64_t from;
	if (ram_is_zero(map + at)) { /* which a hole is, too */
		give_page(g, at);
		return;
	}
	const char *page = page_of(g, at, &from);
	if (!page || memcmp(page, map + at, RAM_PAGE) != 0)
		return;
	note(g, at, from, map + at);
	give_page(g, at);
}

static void give_all(struct giver *g, const char *map, uint64_t size, const atomic_bool *over)
{
	off_t at = 0, hole;
	while ((uint64_t)at < size && (at = lseek(g->ram, at, SEEK_DATA)) >= 0) {
		hole = lseek(g->ram, at, SEEK_HOLE);
		for (at &= -(off_t)RAM_PAGE; at < hole && (uint64_t)at < size; at += (off_t)RAM_PAGE) {
			if (at % (off_t)RAM_BLOCK == 0 && atomic_load(over))
				return;
			look_at(g, map, (uint64_t)at);
		}
	}
}

int ram_lend(int ram, const char *path, const atomic_bool *over, struct ram_lent *l, struct err *err)
{
	struct stat st, of;
	struct ram_head h = {.extents = 0};
	char key[RAM_KEY_MAX + 1];
	CLEAN_BUF struct buf rest = BUF_INIT;
	CLEAN_FREE char *block = xmalloc(RAM_BLOCK);
	struct giver g = {.ram = ram, .lent = l, .sum = RAM_SUM, .block = block, .from = RAM_PAGE};
	*l = RAM_LENT_INIT;
	if (fstat(ram, &st))
		return err_sys(err, errno, "cannot look at the memory of the VM");
	if (path)
		l->file = ram_read_head(path, &h, key, &rest, NULL);
	if (l->file >= 0 && !fstat(l->file, &of)) {
		l->size = of.st_size;
		l->written = of.st_mtim;
	} else { /* then all that can go is what holds nothing */
		h.extents = 0;
	}
	g.e = (const struct ram_extent *)(const void *)rest.p;
	g.end = g.e + h.extents / sizeof *g.e;
	const char *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, ram, 0);
	if (map == MAP_FAILED) {
		int e = errno;
		ram_lent_release(l);
		return err_sys(err, e, "cannot map the memory of the VM");
	}
	give_all(&g, map, (uint64_t)st.st_size, over);
	let_go(&g);
	l->sum = ram_sum_end(&g.sum);
	munmap((void *)(uintptr_t)map, (size_t)st.st_size);
	return 0;
}

/* ---- and back ---- */

/* In the kernel: half the time. */
static int send_pages(int ram, const struct ram_lent *l, const struct lent *p)
{
	off_t from = (off_t)p->from, end = (off_t)(p->from + p->n);
	if (lseek(ram, (off_t)p->at, SEEK_SET) < 0)
		return -errno;
	while (from < end) {
		ssize_t n = sendfile(ram, l->file, &from, (size_t)(end - from));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EBADMSG;
	}
	return 0;
}

/* With a look at each byte. */
static int copy_pages(int ram, const struct ram_lent *l, const struct lent *p, char *block, struct ram_sum *sum)
{
	for (uint64_t done = 0; done < p->n;) {
		size_t n = p->n - done < RAM_BLOCK ? (size_t)(p->n - done) : RAM_BLOCK;
		ssize_t got = pread(l->file, block, n, (off_t)(p->from + done));
		if (got < 0 && errno == EINTR)
			continue;
		n = got > 0 ? (size_t)got & ~(RAM_PAGE - 1) : 0; /* it may have been cut short */
		if (!n)
			return got < 0 ? -errno : -EBADMSG;
		ram_sum_add(sum, block, n);
		if (lseek(ram, (off_t)(p->at + done), SEEK_SET) < 0)
			return -errno;
		int rc = fd_write_full(ram, block, n);
		if (rc)
			return rc;
		done += n;
	}
	return 0;
}

static bool untouched(const struct ram_lent *l)
{
	struct stat st;
	return !fstat(l->file, &st) && st.st_size == l->size && st.st_mtim.tv_sec == l->written.tv_sec &&
	       st.st_mtim.tv_nsec == l->written.tv_nsec;
}

int ram_back(int ram, const struct ram_lent *l, struct err *err)
{
	struct ram_sum sum = RAM_SUM;
	CLEAN_FREE char *block = xmalloc(RAM_BLOCK);
	const struct lent *p = (const struct lent *)(const void *)l->pages.p, *end = p + l->pages.n / sizeof *p;
	if (p == end)
		return 0;
	bool fast = untouched(l);
	for (; p != end; p++) {
		int rc = fast ? send_pages(ram, l, p) : copy_pages(ram, l, p, block, &sum);
		if (rc)
			return err_sys(err, -rc,
				       "a part of the VM's memory cannot be fetched from the file that has it");
	}
	if (fast ? !untouched(l) : ram_sum_end(&sum) != l->sum)
		return err_set(err, EBADMSG, "the file that has a part of the VM's memory is another than it was");
	return 0;
}
