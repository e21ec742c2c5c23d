/* One SQLite connection with a statement cache. Belongs to the thread that opened it. */
#include "db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"

static const char schema[] =
#include "schema.sql.inc"
	;

#define CACHE 256 /* slots; there are about 90 statements */

struct db {
	sqlite3 *h;
	struct {
		const char *sql;
		sqlite3_stmt *stmt;
	} cache[CACHE];
};

int db_full(struct err *err)
{
	return err_set(err, ENOSPC,
		       "the disk of the database is full: free some space; nothing that was acknowledged is lost");
}

static int fail(struct db *db, struct err *err, const char *what)
{
	int x = sqlite3_extended_errcode(db->h);
	int code = (x & 0xff) == SQLITE_FULL || x == SQLITE_IOERR_WRITE || x == SQLITE_IOERR_SHMSIZE ? ENOSPC
		   : x == SQLITE_CONSTRAINT_UNIQUE || x == SQLITE_CONSTRAINT_PRIMARYKEY		     ? EEXIST
												     : EIO;
	if (code == ENOSPC)
		return db_full(err);
	return err_set(err, code, "database: %.60s: %s", what, sqlite3_errmsg(db->h));
}

static int exec(struct db *db, const char *sql, struct err *err)
{
	return sqlite3_exec(db->h, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(db, err, sql);
}

static int migrate(struct db *db, struct err *err)
{
	int64_t have = db_int(db, 0, "PRAGMA user_version", "");
	const char *at = schema;
	int last = 0;
	while ((at = strstr(at, "-- migration "))) {
		int n = atoi(at + strlen("-- migration "));
		const char *end = strstr(at + 1, "-- migration ");
		last = n;
		if (n > have) {
			CLEAN_BUF struct buf sql = BUF_INIT;
			buf_adds(&sql, "BEGIN IMMEDIATE;\n");
			buf_add(&sql, at, end ? (size_t)(end - at) : strlen(at));
			buf_addf(&sql, "\nPRAGMA user_version = %d;\nCOMMIT;", n);
			int rc = exec(db, buf_str(&sql), err);
			if (rc) {
				exec(db, "ROLLBACK", NULL);
				return err_prefix(err, "cannot make the tables (step %d)", n);
			}
		}
		at++;
	}
	if (have > last)
		return err_set(err, EINVAL,
			       "the database was written by a newer berthfs (version %d, this one knows %d): "
			       "install that one again",
			       (int)have, last);
	return 0;
}

/* Conversations are nobody else's, whatever the folder lets in; SQLite gives its other files the mode of the first. */
static void make_private(const char *path)
{
	CLEAN_FREE char *wal = xasprintf("%s-wal", path), *shm = xasprintf("%s-shm", path);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC,
		      0600); /* no connection of ours is open: none loses its locks */
	fd_close(&fd);
	chmod(path, 0600);
	chmod(wal, 0600);
	chmod(shm, 0600);
}

int db_open(const char *path, bool write, struct db **out, struct err *err)
{
	struct db *db = xcalloc(1, sizeof *db);
	if (write)
		make_private(path);
	int flags = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
	int rc = sqlite3_open_v2(path, &db->h, flags | SQLITE_OPEN_NOMUTEX, NULL);
	if (rc != SQLITE_OK) {
		rc = err_set(err, EIO, "cannot open the database %s: %s", path,
			     db->h ? sqlite3_errmsg(db->h) : "no memory");
		db_close(db);
		return rc;
	}
	sqlite3_extended_result_codes(db->h, 1);
	sqlite3_busy_timeout(db->h, 5000);
	rc = 0;
	/* the log may grow to 16 MiB: pages that are written again and again go to the database once */
	if (write)
		rc = exec(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000;", err);
	/* KiB: the one writer comes to the same pages again and again; readers are many */
	rc = rc ? rc : exec(db, write ? "PRAGMA cache_size=-16000" : "PRAGMA cache_size=-2000", err);
	rc = rc ? rc : exec(db, "PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0;", err);
	if (!rc && write)
		rc = migrate(db, err);
	if (rc) {
		db_close(db);
		return rc;
	}
	*out = db;
	return 0;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	for (size_t i = 0; i < CACHE; i++)
		sqlite3_finalize(db->cache[i].stmt);
	sqlite3_close(db->h);
	free(db);
}

static sqlite3_stmt *cached(struct db *db, const char *sql, struct err *err)
{
	size_t i = ((uintptr_t)sql >> 4) % CACHE, start = i;
	while (db->cache[i].sql && db->cache[i].sql != sql) {
		i = (i + 1) % CACHE;
		if (i == start)
			break;
	}
	if (db->cache[i].sql == sql)
		return db->cache[i].stmt;
	sqlite3_stmt *s;
	if (sqlite3_prepare_v3(db->h, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL) != SQLITE_OK) {
		fail(db, err, sql);
		return NULL;
	}
	sqlite3_finalize(db->cache[i].stmt); /* only when the table is full */
	db->cache[i].sql = sql;
	db->cache[i].stmt = s;
	return s;
}

static void bind(sqlite3_stmt *s, const char *types, va_list ap)
{
	if ((int)strlen(types) != sqlite3_bind_parameter_count(s))
		abort(); /* a mistake of ours, found by the first test that comes here */
	for (int i = 1; *types; types++, i++) {
		switch (*types) {
		case 'i': sqlite3_bind_int64(s, i, va_arg(ap, int64_t)); break;
		case 'f': sqlite3_bind_double(s, i, va_arg(ap, double)); break;
		case 't': sqlite3_bind_text(s, i, va_arg(ap, const char *), -1, SQLITE_TRANSIENT); break;
		default: abort(); /* a wrong letter is a mistake of ours */
		}
	}
}

int db_run(struct db *db, struct err *err, const char *sql, const char *types, ...)
{
	sqlite3_stmt *s = cached(db, sql, err);
	if (!s)
		return -EIO;
	va_list ap;
	va_start(ap, types);
	bind(s, types, ap);
	va_end(ap);
	int x = sqlite3_step(s);
	int rc = x == SQLITE_DONE || x == SQLITE_ROW ? 0 : fail(db, err, sql);
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
	return rc;
}

int64_t db_changes(struct db *db)
{
	return sqlite3_changes64(db->h);
}

bool db_in_transaction(struct db *db)
{
	return !sqlite3_get_autocommit(db->h);
}

static int query(struct db *db, struct rows *r, struct err *err, const char *sql, const char *types, va_list ap)
{
	*r = (struct rows){.db = db, .err = err, .stmt = cached(db, sql, err)};
	if (!r->stmt)
		return r->rc = -EIO;
	bind(r->stmt, types, ap);
	return 0;
}

int db_query(struct db *db, struct rows *r, struct err *err, const char *sql, const char *types, ...)
{
	va_list ap;
	va_start(ap, types);
	int rc = query(db, r, err, sql, types, ap);
	va_end(ap);
	return rc;
}

bool rows_next(struct rows *r)
{
	if (!r->stmt || r->rc)
		return false;
	int x = sqlite3_step(r->stmt);
	if (x == SQLITE_ROW)
		return true;
	if (x != SQLITE_DONE)
		r->rc = fail(r->db, r->err, sqlite3_sql(r->stmt));
	return false;
}

int rows_end(struct rows *r)
{
	if (r->stmt) {
		sqlite3_reset(r->stmt);
		sqlite3_clear_bindings(r->stmt);
	}
	r->stmt = NULL;
	return r->rc;
}

int64_t row_int(const struct rows *r, int col)
{
	return sqlite3_column_int64(r->stmt, col);
}

double row_real(const struct rows *r, int col)
{
	return sqlite3_column_double(r->stmt, col);
}

const char *row_text(const struct rows *r, int col)
{
	const char *s = (const char *)sqlite3_column_text(r->stmt, col);
	return s ? s : "";
}

size_t row_len(const struct rows *r, int col)
{
	return (size_t)sqlite3_column_bytes(r->stmt, col);
}

int64_t db_int(struct db *db, int64_t fallback, const char *sql, const char *types, ...)
{
	struct rows r;
	va_list ap;
	va_start(ap, types);
	query(db, &r, NULL, sql, types, ap);
	va_end(ap);
	int64_t v = rows_next(&r) ? row_int(&r, 0) : fallback;
	rows_end(&r);
	return v;
}
