/* Reads the chain for those that look at it: by byte offset in its exported form, and its head as a text. One thread,
 * by a connection that cannot write. */
#include <errno.h>
#include <string.h>

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

int ledger_read(struct ledger *l, uint64_t offset, size_t max, struct buf *out, struct err *err)
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
