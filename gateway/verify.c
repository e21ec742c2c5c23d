/* Checks a chain: numbers without gaps, each hash from the line's exact bytes and the hash before, checkpoints'
 * signatures, the checkpoint beside the database, and a head that the owner noted elsewhere. Reads only; knows no
 * gateway. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "ledger_private.h"

#define TIME_LEN 34 /* `"time":"2026-11-29T19:02:10.123Z",` */

struct run {
	struct ledger_check *c;
	struct buf *out;
	struct sha sha;
	struct sign_key *key; /* NULL until known */
	char id[20];
	bool have, trusted_start; /* a first record was seen; its own hash had to be taken as it stands */
	uint64_t seq, first;
	char hash[LEDGER_HEX + 1]; /* of the last record */
	uint64_t inner;		   /* while a file repeats records that were seen: its own number */
	char inner_hash[LEDGER_HEX + 1];
	uint64_t note_size; /* of the checkpoint beside the database; 0: none */
	char note_root[48];
	const char *before; /* the file that was checked before this one, or NULL */
	bool note_met, head_met;
	uint64_t head_at;
	bool bad;
};

__attribute__((format(printf, 2, 3))) static bool bad(struct run *r, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	buf_addv(r->out, fmt, ap);
	va_end(ap);
	buf_addc(r->out, '\n');
	r->bad = true;
	return false;
}

/* ---- one record ---- */

static bool start_record(struct run *r, const char *line)
{
	CLEAN_JSON cJSON *o = json_parse(line, strlen(line), NULL);
	const char *id = o ? json_str(o, "ledger") : NULL, *words = o ? json_str(o, "key") : NULL;
	if (!id || !words || strlen(id) >= sizeof r->id)
		return bad(r, "record 1: it does not name the chain and its key");
	snprintf(r->id, sizeof r->id, "%s", id);
	if (r->key && strcmp(sign_words(r->key), words))
		return bad(r, "record 1: the chain was begun with another key than the one that is known: all of it "
			      "was replaced");
	if (!r->key && sign_public(words, &r->key))
		return bad(r, "record 1: its key is none");
	return true;
}

static bool checkpoint_record(struct run *r, const char *line, const char *before)
{
	CLEAN_JSON cJSON *o = json_parse(line, strlen(line), NULL);
	const char *root = o ? json_str(o, "root") : NULL, *sig = o ? json_str(o, "signature") : NULL;
	int64_t size = 0;
	CLEAN_BUF struct buf text = BUF_INIT;
	char want[48];
	if (!root || !sig || !json_int(o, "size", &size) || (uint64_t)size != r->seq - 1)
		return bad(r, "record %llu: a checkpoint that does not speak of the records before it",
			   (unsigned long long)r->seq);
	checkpoint_text(&text, r->id, (uint64_t)size, before, want);
	if (strcmp(root, want))
		return bad(r, "record %llu: a checkpoint of other records", (unsigned long long)r->seq);
	if (!*r->id || !r->key)
		return true; /* a part of a chain without its first record, and no key at hand */
	if (!sign_check(r->key, text.p, text.n, sig))
		return bad(r, "record %llu: the checkpoint's signature is not by the chain's key",
			   (unsigned long long)r->seq);
	r->c->checkpoints++;
	return true;
}

/* The number that a line begins with; p moves behind its comma. 0: none. */
static uint64_t number_of(const char *line, size_t n, const char **p)
{
	uint64_t seq = 0;
	const char *end = line + n;
	if (n < 60 || memcmp(line, "{\"seq\":", 7))
		return 0;
	for (*p = line + 7; *p < end && **p >= '0' && **p <= '9'; ++*p)
		seq = seq * 10 + (uint64_t)(**p - '0');
	return *p < end && *(*p)++ == ',' ? seq : 0;
}

/* The record stands, byte for byte, in the file before. */
static bool stands_before(const struct run *r, const char *line, size_t n, const char *hash)
{
	struct stat st;
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_FD int fd = r->before ? open(r->before, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0 || fstat(fd, &st) || !st.st_size)
		return false;
	char *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return false;
	chain_export(&text, line, n, hash);
	bool found = memmem(map, (size_t)st.st_size, text.p, text.n) != NULL;
	munmap(map, (size_t)st.st_size);
	return found;
}

/* A record that an earlier file had, too: the first of them is compared, the others follow from it, and the runs have
 * to meet in the last one. */
static bool again(struct run *r, uint64_t seq, const char *line, size_t n, const char *hash)
{
	if (!r->inner && !stands_before(r, line, n, hash))
		return bad(r, "record %llu: it stands twice, and differs", (unsigned long long)seq);
	if (!r->inner)
		memcpy(r->inner_hash, hash, sizeof r->inner_hash);
	else
		chain_next(&r->sha, r->inner_hash, line, n);
	if ((r->inner && seq != r->inner + 1) || memcmp(r->inner_hash, hash, LEDGER_HEX) ||
	    (seq == r->seq && memcmp(r->hash, hash, LEDGER_HEX)))
		return bad(r, "record %llu: it stands twice, and differs", (unsigned long long)seq);
	r->inner = seq;
	return true;
}

/* line ends with a NUL. */
static bool record(struct run *r, const char *line, size_t n, const char *hash)
{
	const char *p;
	uint64_t seq = number_of(line, n, &p);
	char before[LEDGER_HEX + 1];
	if (!seq)
		return bad(r, "after record %llu: a line that is no record", (unsigned long long)r->seq);
	if (r->have && seq <= r->seq && r->inner != r->seq)
		return again(r, seq, line, n, hash);
	if (r->have && seq != r->seq + 1)
		return bad(r, "record %llu is followed by %llu: %s", (unsigned long long)r->seq,
			   (unsigned long long)seq, seq > r->seq ? "records are missing" : "the order was changed");
	if (!r->have) {
		r->first = seq;
		r->trusted_start = seq != 1;
		chain_zero(r->hash);
	}
	memcpy(before, r->hash, sizeof before);
	if (r->have || seq == 1)
		chain_next(&r->sha, r->hash, line, n);
	else
		memcpy(r->hash, hash, sizeof r->hash);
	r->have = true;
	r->seq = r->inner = seq;
	r->c->records++;
	if (memcmp(r->hash, hash, LEDGER_HEX))
		return bad(r, "record %llu: its hash does not fit: it, or the one before, was changed",
			   (unsigned long long)seq);
	if (r->c->expect_head && !memcmp(hash, r->c->expect_head, LEDGER_HEX)) {
		r->head_met = true;
		r->head_at = seq;
	}
	if (seq == r->note_size) {
		unsigned char raw[LEDGER_HEX / 2];
		char root[48];
		hex_to_bytes(hash, raw, sizeof raw);
		EVP_EncodeBlock((unsigned char *)root, raw, sizeof raw);
		r->note_met = !strcmp(root, r->note_root);
	}
	if (seq == 1)
		return start_record(r, line);
	if (line + n - p > TIME_LEN + 20 && !memcmp(p + TIME_LEN, "\"kind\":\"checkpoint\"", 19) && !r->trusted_start)
		return checkpoint_record(r, line, before);
	return true;
}

/* A file that repeats records has to reach the newest of them. */
static void file_end(struct run *r)
{
	if (!r->bad && r->inner && r->inner != r->seq)
		bad(r, "records up to %llu stand twice, and the second run ends before %llu",
		    (unsigned long long)r->inner, (unsigned long long)r->seq);
}

/* ---- where records are ---- */

static int check_file(struct run *r, const char *path, struct err *err)
{
	struct stat st;
	CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return err_sys(err, errno, "cannot read %s", path);
	if (!st.st_size)
		return bad(r, "%s is empty", path), 0;
	char *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return err_sys(err, errno, "cannot read %s", path);
	madvise(map, (size_t)st.st_size, MADV_SEQUENTIAL);
	CLEAN_BUF struct buf line = BUF_INIT;
	char hash[LEDGER_HEX + 1];
	const char *end = map + st.st_size;
	r->inner = 0;
	for (const char *p = map, *nl; p < end && !r->bad; p = nl + 1) {
		nl = memchr(p, '\n', (size_t)(end - p));
		if (!nl) {
			bad(r, "after record %llu: the last line is cut off after %zu bytes",
			    (unsigned long long)r->seq, (size_t)(end - p));
			break;
		}
		if (!chain_import(p, (size_t)(nl - p), &line, hash))
			bad(r, "after record %llu: a line that is no record", (unsigned long long)r->seq);
		else
			record(r, line.p, line.n, hash);
	}
	munmap(map, (size_t)st.st_size);
	file_end(r);
	return 0;
}

static int check_database(struct run *r, const char *path, struct err *err)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
	sqlite3_busy_timeout(db, 2000);
	if (!rc)
		sqlite3_exec(db, "PRAGMA mmap_size=2147418112", NULL, NULL, NULL);
	if (!rc)
		rc = sqlite3_prepare_v2(db, "SELECT line, hash FROM records ORDER BY seq", -1, &st, NULL);
	r->inner = 0;
	while (!rc && !r->bad && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *line = (const char *)sqlite3_column_text(st, 0),
			   *hash = (const char *)sqlite3_column_text(st, 1);
		size_t n = (size_t)sqlite3_column_bytes(st, 0);
		rc = 0;
		if (!line || !hash || strlen(hash) != LEDGER_HEX)
			bad(r, "after record %llu: a row that is no record", (unsigned long long)r->seq);
		else
			record(r, line, n, hash);
	}
	file_end(r);
	rc = rc == SQLITE_DONE || r->bad ? 0 : err_set(err, EIO, "cannot read %s: %s", path, sqlite3_errmsg(db));
	sqlite3_finalize(st);
	sqlite3_close(db);
	return rc;
}

static int is_segment(const struct dirent *e)
{
	size_t n = strlen(e->d_name);
	return n > 12 && !strncmp(e->d_name, "ledger-", 7) && !strcmp(e->d_name + n - 6, ".jsonl");
}

static int check_folder(struct run *r, const char *dir, struct err *err)
{
	struct dirent **names = NULL;
	CLEAN_FREE char *last = NULL;
	int n = scandir(dir, &names, is_segment, alphasort), rc = 0;
	if (n < 0)
		return err_sys(err, errno, "cannot read %s", dir);
	for (int i = 0; i < n; i++) {
		char *path = xasprintf("%s/%s", dir, names[i]->d_name);
		if (!rc && !r->bad)
			rc = check_file(r, path, err);
		free(names[i]);
		free(last);
		r->before = last = path;
	}
	free(names);
	CLEAN_FREE char *db = xasprintf("%s/ledger.db", dir);
	return rc || r->bad ? rc : check_database(r, db, err);
}

/* ---- what is held against it ---- */

static int load_key(struct run *r, struct err *err)
{
	CLEAN_FREE char *own = r->c->dir ? xasprintf("%s/ledger.pub", r->c->dir) : NULL;
	const char *path = r->c->key ? r->c->key : own;
	CLEAN_BUF struct buf text = BUF_INIT;
	if (!path)
		return 0;
	int rc = file_read(path, &text, 4096, err);
	if (rc)
		return r->c->key || rc != -ENOENT ? rc : 0;
	const char *words = strstr(buf_str(&text), "ssh-ed25519 ");
	if (!words || sign_public(words, &r->key))
		return err_set(err, EINVAL, "%s holds no ssh-ed25519 key", path);
	return 0;
}

/* The checkpoint that stands beside the database: cutting records off leaves it behind. */
static void load_note(struct run *r)
{
	CLEAN_FREE char *path = xasprintf("%s/checkpoint", r->c->dir);
	CLEAN_BUF struct buf text = BUF_INIT;
	unsigned long long size;
	if (!file_read(path, &text, 4096, NULL) &&
	    sscanf(buf_str(&text), "%*[^\n] %llu %47s", &size, r->note_root) == 2)
		r->note_size = size;
}

static void conclude(struct run *r)
{
	struct ledger_check *c = r->c;
	memcpy(c->head, r->hash, sizeof c->head);
	if (r->bad)
		return;
	if (!r->have) {
		bad(r, "there is no record");
		return;
	}
	if (c->dir && !c->file && r->first != 1)
		bad(r, "records 1 to %llu are missing", (unsigned long long)r->first - 1);
	if (r->note_size && !r->note_met)
		bad(r,
		    r->note_size > r->seq
			    ? "a checkpoint speaks of %llu records, but there are %llu: the end was cut off"
			    : "a checkpoint of %llu records does not fit to the %llu that are here: they were replaced",
		    (unsigned long long)r->note_size, (unsigned long long)r->seq);
	if (c->expect_head && !r->head_met)
		bad(r,
		    "the expected head is not in this chain of %llu records: its end was cut off, or it was replaced",
		    (unsigned long long)r->seq);
	if (r->bad)
		return;
	buf_addf(r->out, "ok records %llu to %llu hold together, %llu checkpoints\nhead %s\n",
		 (unsigned long long)r->first, (unsigned long long)r->seq, (unsigned long long)c->checkpoints, r->hash);
	if (r->trusted_start)
		buf_addf(r->out,
			 "note: record %llu is not the first of the chain; what was before it is not checked, nor are "
			 "signatures\n",
			 (unsigned long long)r->first);
	if (c->expect_head)
		buf_addf(r->out, "the expected head is record %llu\n", (unsigned long long)r->head_at);
	else
		buf_adds(
			r->out,
			"note: without a head that was noted elsewhere (--expect-head) it cannot be ruled out that the "
			"newest records were cut off\n");
}

int ledger_check(struct ledger_check *c, struct buf *out, struct err *err)
{
	struct run r = {.c = c, .out = out};
	int64_t from = clock_mono_us();
	if (c->expect_head &&
	    (strlen(c->expect_head) != LEDGER_HEX || strspn(c->expect_head, "0123456789abcdef") != LEDGER_HEX))
		return err_set(err, EINVAL, "a head is 64 hex digits");
	int rc = sha_init(&r.sha, err);
	if (!rc)
		rc = load_key(&r, err);
	if (!rc && c->dir && !c->file)
		load_note(&r);
	if (!rc) {
		size_t n = c->file ? strlen(c->file) : 0;
		rc = !c->file					? check_folder(&r, c->dir, err)
		     : n > 3 && !strcmp(c->file + n - 3, ".db") ? check_database(&r, c->file, err)
								: check_file(&r, c->file, err);
	}
	if (!rc)
		conclude(&r);
	sha_release(&r.sha);
	sign_free(r.key);
	c->seconds = (double)(clock_mono_us() - from) / 1e6;
	return rc ? rc : r.bad ? -EBADMSG : 0;
}
