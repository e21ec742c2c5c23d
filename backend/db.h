/* One SQLite connection with a statement cache. A connection belongs to one thread. */
#pragma once
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

struct db;

/* Opens PATH. write: makes it if missing, WAL with synchronous=FULL, runs the migrations; else read-only. */
int db_open(const char *path, bool write, struct db **out, struct err *err);
void db_close(struct db *db);

/* Runs one statement. types has a letter for each `?`: i (int64_t), t (const char *, NULL allowed), f (double).
 * sql must be a string literal: its address is the key of the statement cache. -ENOSPC for a full disk, -EEXIST for a
 * broken UNIQUE or primary key, -EIO otherwise. */
int db_run(struct db *db, struct err *err, const char *sql, const char *types, ...);
int db_full(struct err *err); /* -ENOSPC with the words for a full disk */
int64_t db_changes(struct db *db);
bool db_in_transaction(struct db *db); /* false after an error that undid the whole */

/* A query: `struct rows r; rc = db_query(...); while (!rc && rows_next(&r)) ...; rc = rows_end(&r)`. rows_end() must be
 * called; it gives 0 or the error that ended the rows. Column texts are valid until the next rows_next(). */
struct rows {
	sqlite3_stmt *stmt;
	struct db *db;
	int rc;
	struct err *err;
};
int db_query(struct db *db, struct rows *r, struct err *err, const char *sql, const char *types, ...);
bool rows_next(struct rows *r);
int rows_end(struct rows *r);
int64_t row_int(const struct rows *r, int col);
double row_real(const struct rows *r, int col);
const char *row_text(const struct rows *r, int col); /* "" for NULL */
size_t row_len(const struct rows *r, int col);	     /* bytes of a text */

/* A single integer (the first column of the first row), or fallback when there is no row. */
int64_t db_int(struct db *db, int64_t fallback, const char *sql, const char *types, ...);
