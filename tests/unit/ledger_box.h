/* A ledger in a folder of its own, for its tests. */
#pragma once
#include <errno.h>
#include <stdlib.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "gateway/ledger.h"
#include "gateway/ledger_private.h"

static inline char *fresh(void)
{
	CLEAN_FREE char *t = xasprintf("%s/ledger-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	return xstrdup(mkdtemp(t));
}

static inline void gone(char *dir)
{
	dir_remove(dir, NULL);
	free(dir);
}

struct box {
	struct queue done;
	struct ledger *l;
	int unknown;
	struct err err;
};

static inline int open_box(struct box *b, const char *dir, uint64_t segment, bool each)
{
	struct ledger_config c = {.dir = dir, .segment = segment, .sync_each = each, .checkpoint = 100};
	b->err = ERR_INIT;
	b->l = NULL;
	queue_init(&b->done);
	int rc = ledger_open(&c, &b->done, &b->l, &b->unknown, &b->err);
	if (rc)
		queue_release(&b->done);
	return rc;
}

static inline void close_box(struct box *b)
{
	ledger_close(b->l);
	for (struct queue_node *n; (n = queue_pop(&b->done));)
		ledger_record_free((struct ledger_record *)n);
	queue_release(&b->done);
}

static inline uint64_t put(struct box *b, const char *kind, uint64_t of, bool open)
{
	struct ledger_record *r = ledger_record_new(kind);
	r->of = of;
	r->open = open;
	if (!strcmp(kind, "decision"))
		ledger_text(r, "verdict", open ? "allowed" : "denied");
	if (of)
		ledger_int(r, "of", (int64_t)of);
	ledger_text(r, "session", "one\n\"\\\033");
	ledger_text(r, "rule", "none");
	ledger_int(r, "reserved", 123456789);
	struct err err = ERR_INIT;
	int rc = ledger_append_wait(b->l, r, &err);
	CHECK_INT(rc, 0);
	uint64_t seq = r->seq;
	ledger_record_free(r);
	return seq;
}

static inline void fill(const char *dir, int n)
{
	struct box b;
	CHECK_INT(open_box(&b, dir, 0, false), 0);
	for (int i = 0; i < n; i++)
		put(&b, "decision", 0, false);
	close_box(&b);
}

static inline int check_dir(const char *dir, const char *head, struct buf *out)
{
	struct ledger_check c = {.dir = dir, .expect_head = head};
	struct err err = ERR_INIT;
	buf_reset(out);
	int rc = ledger_check(&c, out, &err);
	if (rc && rc != -EBADMSG)
		printf("# %s\n", err.text);
	return rc;
}

static inline void run_sql(const char *dir, const char *text)
{
	sqlite3 *db;
	CLEAN_FREE char *path = xasprintf("%s/ledger.db", dir);
	CHECK_INT(sqlite3_open(path, &db), 0);
	char *words = NULL;
	CHECK_INT(sqlite3_exec(db, text, NULL, NULL, &words), 0);
	if (words)
		printf("# %s\n", words);
	sqlite3_free(words);
	sqlite3_close(db);
}
