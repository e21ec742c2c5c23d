/* Reads the chain for those that look at it: by byte offset in its exported form, and its head as a text. One thread,
 * by a connection that cannot write. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "ledger_private.h"

/* Number of the record that holds the byte, by halving: offsets grow with the numbers. */
static int64_t seq_at(struct ledger *l, uint64_t offset)
{
	sqlite3_stmt *st;
	int64_t low = 0, high = 0;
	if (!sqlite3_prepare_v2(ledger_reader(l), "SELECT min(seq), max(seq) FROM records", -1, &st, NULL) &&
	    sqlite3_step(st) == SQLITE_ROW) {
		low = sqlite3_column_int64(st, 0);
		high = sqlite3_column_int64(st, 1);
	}
	sqlite3_finalize(st);
	if (sqlite3_prepare_v2(ledger_reader(l), "SELECT off FROM records WHERE seq=?", -1, &st, NULL))
		return 0;
	while (low < high) {
		int64_t mid = low + (high - low + 1) / 2;
		sqlite3_bind_int64(st, 1, mid);
		bool below = sqlite3_step(st) == SQLITE_ROW && (uint64_t)sqlite3_column_int64(st, 0) <= offset;
		sqlite3_reset(st);
		if (below)
			low = mid;
		else
			high = mid - 1;
	}
	sqlite3_finalize(st);
	return low;
}

static int read_records(struct ledger *l, uint64_t offset, size_t max, struct buf *out, struct err *err)
{
	sqlite3_stmt *st;
	size_t from = out->n;
	int64_t seq = seq_at(l, offset);
	if (sqlite3_prepare_v2(ledger_reader(l), "SELECT off, line, hash FROM records WHERE seq>=? ORDER BY seq", -1,
			       &st, NULL))
		return err_set(err, EIO, "the ledger cannot be read: %s", sqlite3_errmsg(ledger_reader(l)));
	sqlite3_bind_int64(st, 1, seq);
	while (out->n - from < max && sqlite3_step(st) == SQLITE_ROW) {
		size_t at = out->n;
		uint64_t off = (uint64_t)sqlite3_column_int64(st, 0);
		chain_export(out, (const char *)sqlite3_column_text(st, 1), (size_t)sqlite3_column_bytes(st, 1),
			     (const char *)sqlite3_column_text(st, 2));
		uint64_t skip = offset > off ? offset - off : 0;
		size_t n = out->n - at;
		skip = skip < n ? skip : n;
		memmove(out->p + at, out->p + at + skip, n - (size_t)skip);
		buf_cut(out, out->n - (size_t)skip);
	}
	sqlite3_finalize(st);
	buf_cut(out, from + max);
	return 0;
}

/* ---- what rotation has moved to files ----
 *
 * Each file ends with the record that the next one, or the database, begins with. */

/* Bytes of the last line of an open file. */
static uint64_t last_line(int fd, uint64_t size)
{
	char tail[8192]; /* a record is shorter: its texts are cut */
	size_t n = size < sizeof tail ? (size_t)size : sizeof tail, line = 1;
	if (!n || pread(fd, tail, n, (off_t)(size - n)) != (ssize_t)n)
		return 0;
	while (line < n && tail[n - line - 1] != '\n')
		line++;
	return line;
}

/* At most max bytes from offset on, of one file that begins at byte *at of the whole; *at becomes its end. */
static int read_file(const char *path, uint64_t *at, uint64_t offset, size_t max, struct buf *out)
{
	struct stat st;
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return -errno;
	uint64_t size = (uint64_t)st.st_size, begin = *at;
	*at = begin + size - last_line(fd, size);
	if (offset < begin || offset >= *at)
		return 0;
	size_t n = *at - offset < max ? (size_t)(*at - offset) : max;
	buf_reserve(out, n);
	ssize_t got = pread(fd, out->p + out->n, n, (off_t)(offset - begin));
	if (got < 0)
		return -errno;
	out->n += (size_t)got;
	out->p[out->n] = 0;
	return 0;
}

static int is_segment(const struct dirent *e)
{
	size_t n = strlen(e->d_name);
	return n > 13 && !strncmp(e->d_name, "ledger-", 7) && !strcmp(e->d_name + n - 6, ".jsonl");
}

/* Their names sort by the numbers of their records. */
static int read_segments(struct ledger *l, uint64_t offset, size_t max, struct buf *out, struct err *err)
{
	struct dirent **list;
	size_t from = out->n;
	uint64_t at = 0;
	int rc = 0, n = scandir(ledger_dir(l), &list, is_segment, alphasort);
	for (int i = 0; i < n; i++) {
		CLEAN_FREE char *path = xasprintf("%s/%s", ledger_dir(l), list[i]->d_name);
		size_t got = out->n - from;
		if (!rc && got < max)
			rc = read_file(path, &at, offset + got, max - got, out);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	return rc ? err_sys(err, -rc, "a rotated file of the ledger cannot be read") : 0;
}

/* Where the database's first record begins. */
static uint64_t first_off(struct ledger *l)
{
	sqlite3_stmt *st;
	uint64_t off = 0;
	if (!sqlite3_prepare_v2(ledger_reader(l), "SELECT off FROM records ORDER BY seq LIMIT 1", -1, &st, NULL) &&
	    sqlite3_step(st) == SQLITE_ROW)
		off = (uint64_t)sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return off;
}

int ledger_read(struct ledger *l, uint64_t offset, size_t max, struct buf *out, struct err *err)
{
	size_t from = out->n;
	int rc = 0;
	if (offset < first_off(l)) {
		rc = read_segments(l, offset, max, out, err);
		offset += out->n - from;
		max -= out->n - from;
	}
	/* Rotated meanwhile: the next read finds the rest in a file. */
	return rc || !max || offset < first_off(l) ? rc : read_records(l, offset, max, out, err);
}

int ledger_head_text(struct ledger *l, struct buf *out, struct err *err)
{
	struct ledger_head h;
	ledger_head(l, &h);
	buf_addf(out, "length %llu\nhead %s\n", (unsigned long long)h.seq, h.hash);
	if (h.failing)
		buf_adds(out, "failing the last write did not work: requests are denied\n");
	CLEAN_FREE char *path = xasprintf("%s/checkpoint", ledger_dir(l));
	CLEAN_BUF struct buf note = BUF_INIT;
	if (!file_read(path, &note, 4096, NULL))
		buf_addf(out, "checkpoint\n%s", buf_str(&note));
	return 0;
}
