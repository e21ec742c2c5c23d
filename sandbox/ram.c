/* Files with the memory of a VM: finding it, writing and reading it. Any thread; blocks for as long as the disk needs.
 * Must never believe a length of a file before its sum has been compared, and never leave half a file. */
#include "ram.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "ram_file.h"

#define STATE_MAX  (64UL << 20) /* the devices of a microvm need some 100 KiB */
#define DEPTH	   4		/* of processes below the jail */
#define MEMFD_NAME "/memfd:memory-backend-memfd"
#define MAGIC	   "berthfs-memory1"

/* ---- finding it ---- */

static int memfd_of(int pid, struct ram_owner *owner)
{
	CLEAN_FD int process = owner ? pidfd_open(pid, 0) : -1;
	CLEAN_FREE char *dir = xasprintf("/proc/%d/fd", pid);
	DIR *d = opendir(dir);
	int found = -ENOENT;
	for (struct dirent *e; d && found == -ENOENT && (e = readdir(d));) {
		char target[128] = "";
		if (readlinkat(dirfd(d), e->d_name, target, sizeof target - 1) <= 0 ||
		    strncmp(target, MEMFD_NAME, sizeof MEMFD_NAME - 1) != 0)
			continue;
		found = openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC);
		found = found < 0 ? -errno : found;
	}
	if (d)
		closedir(d);
	if (found < 0 || !owner)
		return found;
	if (pidfd_send_signal(process, 0, NULL, 0)) { /* it was that process all the time only if it still lives */
		close(found);
		return -ESRCH;
	}
	*owner = (struct ram_owner){pid, take_fd(&process)};
	return found;
}

static int find_below(int pid, int depth, struct ram_owner *owner)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *path = xasprintf("/proc/%d/task/%d/children", pid, pid);
	int found = memfd_of(pid, owner);
	if (found >= 0 || !depth || file_read(path, &b, 65536, NULL))
		return found;
	char *save = NULL;
	for (char *w = b.n ? strtok_r(b.p, " ", &save) : NULL; w && found < 0; w = strtok_r(NULL, " ", &save))
		found = find_below(atoi(w), depth - 1, owner);
	return found;
}

int ram_find(pid_t above, struct ram_owner *owner, struct err *err)
{
	int fd = find_below((int)above, DEPTH, owner);
	return fd >= 0 ? fd : err_sys(err, -fd, "the memory of the VM cannot be reached");
}

/* ---- sums: against damage, not against an enemy, and as fast as memory ---- */

void ram_sum_add(struct ram_sum *s, const void *data, size_t n)
{
	const unsigned char *p = data;
	for (; n; n -= 32, p += 32)
		for (int i = 0; i < 4; i++) {
			uint64_t word;
			memcpy(&word, p + 8 * i, 8);
			uint64_t x = s->lane[i] + word * 0xc2b2ae3d27d4eb4fULL;
			s->lane[i] = (x << 31 | x >> 33) * 0x9e3779b185ebca87ULL;
		}
}

uint64_t ram_sum_end(const struct ram_sum *s)
{
	uint64_t x = 0;
	for (int i = 0; i < 4; i++)
		x = (x ^ s->lane[i]) * 0x9fb21c651e98df25ULL ^ s->lane[i] >> 29;
	return x;
}

/* All but the guest's pages: that of head and key (whose place for this sum is taken as 0), extents, state. */
static uint64_t sum_rest(const char page[RAM_PAGE], struct buf *rest)
{
	struct ram_sum s = RAM_SUM;
	char copy[RAM_PAGE];
	size_t n = rest->n;
	memcpy(copy, page, RAM_PAGE);
	memset(copy + offsetof(struct ram_head, rest_sum), 0, sizeof(uint64_t));
	ram_sum_add(&s, copy, RAM_PAGE);
	while (rest->n % 32)
		buf_addc(rest, 0);
	ram_sum_add(&s, rest->p, rest->n);
	buf_cut(rest, n);
	return ram_sum_end(&s);
}

/* ---- writing ---- */

struct writer {
	int fd;
	const char *path;
	char *block;
	size_t n; /* in block */
	uint64_t written;
	struct ram_sum sum;
	struct buf extents;
};

static int write_block(struct writer *w, struct err *err)
{
	ram_sum_add(&w->sum, w->block, w->n);
	int rc = fd_write_full(w->fd, w->block, w->n);
	w->written += w->n;
	w->n = 0;
	return rc ? err_sys(err, -rc, "cannot write %s", w->path) : 0;
}

bool ram_is_zero(const char *page)
{
	return !page[0] && !memcmp(page, page + 1, RAM_PAGE - 1);
}

static int put_page(struct writer *w, const char *ram, uint64_t at, struct err *err)
{
	if (ram_is_zero(ram + at))
		return 0;
	struct ram_extent *last = w->extents.n ? (struct ram_extent *)(void *)(w->extents.p + w->extents.n) - 1 : NULL;
	if (last && last->at + last->n == at)
		last->n += RAM_PAGE;
	else
		buf_add(&w->extents, &(struct ram_extent){at, RAM_PAGE}, sizeof(struct ram_extent));
	memcpy(w->block + w->n, ram + at, RAM_PAGE);
	w->n += RAM_PAGE;
	return w->n == RAM_BLOCK ? write_block(w, err) : 0;
}

/* What the guest has never touched is a hole, and is not read: that would fill it. */
static int write_pages(struct writer *w, int ram, const char *map, uint64_t size, struct err *err)
{
	int rc = 0;
	off_t at = 0, hole;
	while (!rc && (uint64_t)at < size && (at = lseek(ram, at, SEEK_DATA)) >= 0) {
		hole = lseek(ram, at, SEEK_HOLE);
		for (at &= -(off_t)RAM_PAGE; !rc && at < hole && (uint64_t)at < size; at += (off_t)RAM_PAGE)
			rc = put_page(w, map, (uint64_t)at, err);
	}
	if (!rc && at < 0 && errno != ENXIO)
		rc = err_sys(err, errno, "cannot read the memory of the VM");
	return !rc && w->n ? write_block(w, err) : rc;
}

static int write_rest(struct writer *w, int state, const char *key, uint64_t size, struct err *err)
{
	CLEAN_BUF struct buf rest = BUF_INIT;
	char page[RAM_PAGE] = {0};
	struct ram_head h = {.magic = MAGIC, .ram = size, .data = w->written, .data_sum = ram_sum_end(&w->sum)};
	h.extents = w->extents.n;
	h.key = strlen(key);
	if (h.key > RAM_KEY_MAX)
		return err_set(err, EINVAL, "the key of a VM's memory is too long");
	buf_add(&rest, w->extents.p, w->extents.n);
	int rc = lseek(state, 0, SEEK_SET) < 0 ? -errno : fd_read_all(state, &rest, STATE_MAX + rest.n);
	if (rc)
		return err_sys(err, -rc, "cannot read the state of the VM's devices");
	h.state = rest.n - h.extents;
	memcpy(page, &h, sizeof h);
	memcpy(page + sizeof h, key, h.key);
	h.rest_sum = sum_rest(page, &rest);
	memcpy(page, &h, sizeof h);
	rc = fd_write_full(w->fd, rest.p, rest.n);
	if (!rc && pwrite(w->fd, page, sizeof page, 0) != (ssize_t)sizeof page)
		rc = -EIO;
	return rc ? err_sys(err, -rc, "cannot write %s", w->path) : 0;
}

int ram_save(int ram, int state, const char *key, const char *path, struct err *err)
{
	struct stat st;
	struct writer w = {.path = path, .sum = RAM_SUM};
	if (fstat(ram, &st))
		return err_sys(err, errno, "cannot look at the memory of the VM");
	const char *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, ram, 0);
	if (map == MAP_FAILED)
		return err_sys(err, errno, "cannot map the memory of the VM");
	CLEAN_FD int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	CLEAN_FREE char *block = xmalloc(RAM_BLOCK);
	w.fd = fd;
	w.block = block;
	int rc = fd < 0 || lseek(fd, RAM_PAGE, SEEK_SET) < 0 ? err_sys(err, errno, "cannot make %s", path) : 0;
	if (!rc)
		rc = write_pages(&w, ram, map, (uint64_t)st.st_size, err);
	if (!rc)
		rc = write_rest(&w, state, key, (uint64_t)st.st_size, err);
	if (!rc && fsync(fd))
		rc = err_sys(err, errno, "cannot write %s", path);
	if (rc && fd >= 0)
		unlink(path);
	munmap((void *)(uintptr_t)map, (size_t)st.st_size);
	buf_release(&w.extents);
	return rc;
}

/* ---- reading ---- */

static int damaged(const char *path, struct err *err)
{
	return err_set(err, EBADMSG, "%s is damaged", path);
}

int ram_read_head(const char *path, struct ram_head *h, char key[RAM_KEY_MAX + 1], struct buf *rest, struct err *err)
{
	struct stat st;
	char page[RAM_PAGE];
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st))
		return err_sys(err, errno, "cannot read %s", path);
	if (pread(fd, page, sizeof page, 0) != (ssize_t)sizeof page)
		return damaged(path, err);
	memcpy(h, page, sizeof *h);
	uint64_t size = (uint64_t)st.st_size;
	if (memcmp(h->magic, MAGIC, sizeof MAGIC) != 0 || h->key > RAM_KEY_MAX || h->state > STATE_MAX ||
	    h->data > size || h->extents > size || h->extents % sizeof(struct ram_extent) || h->data % RAM_PAGE ||
	    RAM_PAGE + h->data + h->extents + h->state != size)
		return damaged(path, err);
	memcpy(key, page + sizeof *h, h->key);
	key[h->key] = 0;
	size_t n = (size_t)(h->extents + h->state);
	buf_reserve(rest, n + 32);
	if (lseek(fd, (off_t)(RAM_PAGE + h->data), SEEK_SET) < 0 || fd_read_full(fd, rest->p, n))
		return damaged(path, err);
	rest->n = n;
	return sum_rest(page, rest) == h->rest_sum ? take_fd(&fd) : damaged(path, err);
}

int ram_key(const char *path, struct buf *key, struct err *err)
{
	struct ram_head h;
	char text[RAM_KEY_MAX + 1];
	CLEAN_BUF struct buf rest = BUF_INIT;
	CLEAN_FD int fd = ram_read_head(path, &h, text, &rest, err);
	if (fd < 0)
		return fd;
	buf_adds(key, text);
	return 0;
}

/* One block of the file to where it belongs. *e: the extent that goes on, *done: how much of it is there. */
static bool scatter(const struct ram_head *h, const struct ram_extent **e, const struct ram_extent *end, uint64_t *done,
		    const char *block, size_t n, char *map)
{
	while (n) {
		if (*e == end || (*e)->at >= h->ram || (*e)->n > h->ram - (*e)->at)
			return false;
		size_t part = (*e)->n - *done < n ? (size_t)((*e)->n - *done) : n;
		memcpy(map + (*e)->at + *done, block, part);
		block += part;
		n -= part;
		*done += part;
		if (*done == (*e)->n) {
			*done = 0;
			++*e;
		}
	}
	return true;
}

static bool read_pages(int fd, const struct ram_head *h, const struct ram_extent *e, char *map)
{
	struct ram_sum sum = RAM_SUM;
	CLEAN_FREE char *block = xmalloc(RAM_BLOCK);
	const struct ram_extent *end = e + h->extents / sizeof *e;
	uint64_t done = 0;
	if (lseek(fd, RAM_PAGE, SEEK_SET) < 0)
		return false;
	for (uint64_t left = h->data; left;) {
		size_t n = left < RAM_BLOCK ? (size_t)left : RAM_BLOCK;
		if (fd_read_full(fd, block, n) || !scatter(h, &e, end, &done, block, n, map))
			return false;
		ram_sum_add(&sum, block, n);
		left -= n;
	}
	return e == end && ram_sum_end(&sum) == h->data_sum;
}

int ram_load(const char *path, int ram, int state, struct err *err)
{
	struct ram_head h;
	struct stat st;
	char key[RAM_KEY_MAX + 1];
	CLEAN_BUF struct buf rest = BUF_INIT;
	CLEAN_FD int fd = ram_read_head(path, &h, key, &rest, err);
	if (fd < 0)
		return fd;
	if (fstat(ram, &st) || (uint64_t)st.st_size != h.ram)
		return err_set(err, EINVAL, "%s is of a VM with another size of memory", path);
	char *map = mmap(NULL, (size_t)h.ram, PROT_READ | PROT_WRITE, MAP_SHARED, ram, 0);
	if (map == MAP_FAILED)
		return err_sys(err, errno, "cannot map the memory of the VM");
	posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	bool whole = read_pages(fd, &h, (const struct ram_extent *)(const void *)rest.p, map);
	munmap(map, (size_t)h.ram);
	if (!whole)
		return damaged(path, err);
	int rc = fd_write_full(state, rest.p + h.extents, (size_t)h.state);
	if (!rc && lseek(state, 0, SEEK_SET) < 0)
		rc = -errno;
	return rc ? err_sys(err, -rc, "cannot pass on the state of the VM's devices") : 0;
}
