/* What rotation moves to files: read as one with the rest, and every way of tampering with it is found. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "ledger_box.h"

static int segments(const char *dir)
{
	CLEAN_FREE char *pattern = xasprintf("%s/ledger-*.jsonl", dir);
	glob_t g;
	int n = glob(pattern, 0, NULL, &g) ? 0 : (int)g.gl_pathc;
	globfree(&g);
	return n;
}

/* Read by any pieces it is one chain of lines from number 1 on, of the size that is told, wherever they are kept. */
static void read_whole(struct box *b)
{
	struct ledger_head h;
	CLEAN_BUF struct buf whole = BUF_INIT;
	ledger_head(b->l, &h);
	for (size_t piece = 1; whole.n < h.bytes; piece = piece * 3 % 70001 + 1) {
		size_t before = whole.n;
		CHECK_INT(ledger_read(b->l, before, piece, &whole, NULL), 0);
		if (whole.n == before || check_failed)
			break;
	}
	CHECK_INT(whole.n, h.bytes);
	uint64_t seq = 0;
	for (const char *p = buf_str(&whole); *p && !check_failed; p = strchr(p, '\n') + 1) {
		char want[40];
		snprintf(want, sizeof want, "{\"seq\":%llu,", (unsigned long long)++seq);
		CHECK(!strncmp(p, want, strlen(want)) && strchr(p, '\n'));
	}
	CHECK_INT(seq, h.seq);
}

static int64_t size_of(const char *dir, const char *name)
{
	CLEAN_FREE char *path = xasprintf("%s/%s", dir, name);
	struct stat st;
	return stat(path, &st) ? -1 : st.st_size;
}

/* A long log is copied into the database, and begins anew; it is not copied again for the size that its file keeps. */
TEST(ledger_log_begins_anew)
{
	char *dir = fresh();
	struct box b;
	int64_t copied;
	CHECK_INT(open_box(&b, dir, 0, false), 0);
	while (atomic_load(&b.l->sync.pages) < 2048 && !check_failed)
		put(&b, "decision", 0, false);
	for (int64_t end = clock_mono_ms() + 60000;
	     (size_of(dir, "ledger.db") < 100000 || atomic_load(&b.l->sync.busy)) && clock_mono_ms() < end;)
		clock_sleep_ms(5);
	copied = size_of(dir, "ledger.db");
	CHECK(copied >= 100000);
	CHECK(size_of(dir, "ledger.db-wal") > 2048 * 4096);
	put(&b, "decision", 0, false);
	CHECK(atomic_load(&b.l->sync.pages) < 100);
	for (int i = 0; i < 100 && !check_failed; i++)
		put(&b, "decision", 0, false);
	clock_sleep_ms(100);
	CHECK_INT(size_of(dir, "ledger.db"), copied);
	CHECK(size_of(dir, "ledger.db-wal") > 2048 * 4096);
	close_box(&b);
	gone(dir);
}

/* Nor does it need a pause of those who write for that. Its file is longer than what is in it, and holds after a crash.
 */
TEST(ledger_log_begins_anew_without_a_pause)
{
	char *dir = fresh();
	struct box b;
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *copy = xasprintf("%s-copy", dir);
	CLEAN_FREE char *script =
		xasprintf("mkdir %s && cd %s && cp ledger.db ledger.db-wal ledger.key ledger.pub %s", copy, dir, copy);
	const char *const cp[] = {"sh", "-c", script, NULL};
	int anew = 0, before = 0, longer = 0;
	struct ledger_head h = {0};
	CHECK_INT(open_box(&b, dir, 0, false), 0);
	for (int64_t end = clock_mono_ms() + 120000; !anew && clock_mono_ms() < end && !check_failed;) {
		struct ledger_record *r = ledger_record_new("decision");
		CHECK_INT(ledger_write(b.l, r) ? 0 : ledger_append_wait(b.l, r, &b.err), 0);
		ledger_record_free(r);
		int pages = atomic_load(&b.l->sync.pages);
		anew += pages < before;
		before = pages;
		if (pages >= 300 && !h.seq) { /* nobody writes now: it is as a crash would leave it */
			while (!(longer = size_of(dir, "ledger.db-wal") > 400 * 4096) && clock_mono_ms() < end)
				clock_sleep_ms(5);
			CHECK_INT(child_run(&(struct child){.argv = cp}, NULL), 0);
			ledger_head(b.l, &h);
		}
	}
	CHECK(anew && longer);
	close_box(&b);
	CHECK_INT(check_dir(dir, NULL, &out), 0);
	CHECK_INT(open_box(&b, copy, 0, false), 0);
	struct ledger_head again;
	ledger_head(b.l, &again);
	CHECK(again.seq >= h.seq && h.seq > 100);
	close_box(&b);
	CHECK_INT(check_dir(copy, NULL, &out), 0);
	dir_remove(copy, NULL);
	gone(dir);
}

/* Bytes of what comes out of the pipe until its writer closes it. */
static size_t drain(int fd)
{
	char piece[65536];
	size_t all = 0;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	for (ssize_t n; poll(&p, 1, 20000) == 1 && (n = read(fd, piece, sizeof piece)) > 0;)
		all += (size_t)n;
	return all;
}

/* A segment takes long, here as long as nobody reads it: records are on the disk as soon as ever. */
TEST(ledger_syncs_beside_a_segment)
{
	char *dir = fresh();
	struct box b;
	uint64_t seq = 0;
	CLEAN_FREE char *pipe = xasprintf("%s/segment.tmp", dir);
	CHECK_INT(open_box(&b, dir, 200, false), 0);
	CHECK_INT(mkfifo(pipe, 0600), 0);
	for (int i = 0; i < 300 && !check_failed; i++)
		seq = put(&b, "decision", 0, false);
	for (int64_t end = clock_mono_ms() + 60000; atomic_load(&b.l->sync.synced) < seq && clock_mono_ms() < end;)
		clock_sleep_ms(5);
	CHECK(atomic_load(&b.l->sync.synced) >= seq);
	CHECK_INT(segments(dir), 0);
	int fd = open(pipe, O_RDONLY | O_CLOEXEC); /* and its writer goes on */
	CHECK(drain(fd) > 10000);
	close(fd);
	close_box(&b);
	gone(dir);
}

TEST(ledger_rotates)
{
	char *dir = fresh();
	struct box b;
	CLEAN_BUF struct buf out = BUF_INIT;
	CHECK_INT(open_box(&b, dir, 400, false), 0);
	int64_t rows = 9999;
	uint64_t written = 0;
	for (int64_t end = clock_mono_ms() + 120000; (written < 3000 || rows > 1200) && clock_mono_ms() < end;
	     written++) {
		put(&b, "decision", 0, false);
		sqlite3_stmt *st;
		sqlite3_prepare_v2(ledger_reader(b.l), "SELECT count(*) FROM records", -1, &st, NULL);
		if (sqlite3_step(st) == SQLITE_ROW)
			rows = sqlite3_column_int64(st, 0);
		sqlite3_finalize(st);
	}
	CHECK(rows <= 1200);
	read_whole(&b);
	close_box(&b);
	struct ledger_check c = {.dir = dir};
	CHECK_INT(ledger_check(&c, &out, NULL), 0);
	CHECK(c.records > written);
	fill(dir, 5); /* a later start knows the chain's name, whose first record is in a file now */
	buf_reset(&out);
	CHECK_INT(ledger_check(&c, &out, NULL), 0);
	CHECK(strstr(buf_str(&out), "ok records 1 to") != NULL);
	gone(dir);
}

/* What rotation has moved to files is as much of the chain as the rest. */
TEST(ledger_rotated_tampering)
{
	char *dir = fresh();
	struct box b;
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *copy = xasprintf("%s-copy", dir);
	CHECK_INT(open_box(&b, dir, 400, false), 0);
	for (int64_t end = clock_mono_ms() + 60000; segments(dir) < 3 && clock_mono_ms() < end;)
		put(&b, "decision", 0, false);
	close_box(&b);
	CHECK(segments(dir) >= 3);
	CHECK_INT(check_dir(dir, NULL, &out), 0);
	static const struct {
		const char *name, *script; /* $1: the second file */
	} how[] = {
		/* some lines, for one may be a checkpoint, which has no such word */
		{"edit", "sed -i '50,52s/none/some/' \"$1\""},
		{"drop a line", "sed -i 50d \"$1\""},
		{"swap", "sed -i '50{h;d};51{G}' \"$1\""},
		/* its last record is the next file's first as well */
		{"cut the end", "sed -i '$d' \"$1\" && sed -i '$d' \"$1\""},
		{"cut in a line", "truncate -s -20 \"$1\""},
		{"remove the file", "rm \"$1\""},
		{"empty it", ": >\"$1\""},
		/* it is the last one of the file before as well, and this one is shown */
		{"edit the first line", "sed -i '1s/\"time\":\"2/\"time\":\"3/' \"$1\""},
		{"a file of an edited record beside it",
		 "sed -n '50s/\"time\":\"2/\"time\":\"3/p' \"$1\" >\"${1%.jsonl}x.jsonl\""},
		{"a file of some of its records beside it", "sed -n 50,60p \"$1\" >\"${1%.jsonl}x.jsonl\""},
		{"repeat it", "cat \"$1\" \"$1\" >\"$1.x\" && mv \"$1.x\" \"$1\""},
	};
	for (size_t i = 0; i < ARRAY_LEN(how); i++) {
		const char *const cp[] = {"cp", "-r", dir, copy, NULL};
		CHECK_INT(child_run(&(struct child){.argv = cp}, NULL), 0);
		CLEAN_FREE char *text = xasprintf("cd %s && set -- ledger-*.jsonl && shift && [ -s \"$1\" ] && %s && "
						  "! diff -rq . %s >/dev/null",
						  copy, how[i].script, dir);
		const char *const argv[] = {"sh", "-c", text, NULL};
		CHECK_INT(child_run(&(struct child){.argv = argv}, NULL), 0);
		if (check_dir(copy, NULL, &out) != -EBADMSG) {
			printf("# %s: %s\n", how[i].name, buf_str(&out));
			CHECK(!"found");
		}
		dir_remove(copy, NULL);
	}
	gone(dir);
}

CHECK_MAIN()
