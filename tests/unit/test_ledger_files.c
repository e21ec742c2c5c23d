/* The ledger over its files: rotation keeps the chain, a torn tail is found, and so is tampering with what was rotated.
 */
#include "ledger_box.h"

/* Rotation: old records move to files, and the chain still is one. */
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

TEST(ledger_rotates)
{
	char *dir = fresh();
	struct box b;
	CLEAN_BUF struct buf out = BUF_INIT;
	CHECK_INT(open_box(&b, dir, 400, false), 0);
	int64_t rows = 9999;
	uint64_t written = 0;
	for (int64_t end = clock_mono_ms() + 20000; (written < 3000 || rows > 1200) && clock_mono_ms() < end;
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

/* The power fails: of the last commits only a part of the bytes is on the disk. What is left is a chain, it goes on,
 * and against a head that was noted before the loss is found. */
TEST(ledger_torn_tail)
{
	char *dir = fresh();
	CLEAN_FREE char *wal = xasprintf("%s/ledger.db-wal", dir), *copy = xasprintf("%s-copy", dir);
	CLEAN_FREE char *torn = xasprintf("%s/ledger.db-wal", copy);
	CLEAN_BUF struct buf out = BUF_INIT;
	struct ledger_head head;
	int pipes[2];
	CHECK_INT(pipe(pipes), 0);
	pid_t pid = fork();
	if (!pid) {
		struct box b;
		if (open_box(&b, dir, 0, false))
			_exit(1);
		for (int i = 0; i < 60; i++)
			put(&b, "decision", 0, true);
		ledger_head(b.l, &head);
		_exit(write(pipes[1], &head, sizeof head) != sizeof head); /* without closing it */
	}
	close(pipes[1]);
	CHECK_INT(read(pipes[0], &head, sizeof head), sizeof head);
	close(pipes[0]);
	waitpid(pid, NULL, 0);
	CLEAN_BUF struct buf bytes = BUF_INIT;
	CHECK_INT(file_read(wal, &bytes, 1 << 26, NULL), 0);
	CHECK(bytes.n > 100000);
	int shorter = 0;
	for (int i = 0; i < 24; i++) {
		const char *const argv[] = {"cp", "-r", dir, copy, NULL};
		CHECK_INT(child_run(&(struct child){.argv = argv}, NULL), 0);
		size_t cut = bytes.n - (size_t)i * i * 97 - (size_t)i;
		CLEAN_FREE char *part = xmemdup(bytes.p, bytes.n);
		if (i % 2) /* the place is there, its bytes are not */
			memset(part + cut, 0, bytes.n - cut);
		CHECK_INT(file_write(torn, part, i % 2 ? bytes.n : cut, 0600, NULL), 0);
		struct box b;
		CHECK_INT(open_box(&b, copy, 0, false), 0);
		struct ledger_head h;
		ledger_head(b.l, &h);
		CHECK(h.seq >= 2 && b.unknown >= 0);
		put(&b, "decision", 0, false);
		close_box(&b);
		CHECK_INT(check_dir(copy, NULL, &out), 0);
		bool lost = check_dir(copy, head.hash, &out) != 0;
		shorter += lost;
		CHECK(i || !lost);
		dir_remove(copy, NULL);
	}
	CHECK(shorter > 10);
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
		{"edit", "sed -i '50s/none/some/' \"$1\""},
		{"drop a line", "sed -i 50d \"$1\""},
		{"swap", "sed -i '50{h;d};51{G}' \"$1\""},
		/* its last record is the next file's first as well */
		{"cut the end", "sed -i '$d' \"$1\" && sed -i '$d' \"$1\""},
		{"cut in a line", "truncate -s -20 \"$1\""},
		{"remove the file", "rm \"$1\""},
		{"empty it", ": >\"$1\""},
		{"repeat it", "cat \"$1\" \"$1\" >\"$1.x\" && mv \"$1.x\" \"$1\""},
	};
	for (size_t i = 0; i < ARRAY_LEN(how); i++) {
		const char *const cp[] = {"cp", "-r", dir, copy, NULL};
		CHECK_INT(child_run(&(struct child){.argv = cp}, NULL), 0);
		CLEAN_FREE char *text = xasprintf("cd %s && set -- ledger-*.jsonl && shift && [ -s \"$1\" ] && %s",
						  copy, how[i].script);
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
