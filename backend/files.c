/* Answers what is asked below files/. Pool threads; reads the database and the objects of a checkout, and never wakes a
 * sandbox. */
#include "files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/git/repo.h"
#include "contents.h"
#include "db.h"

#define KEEP_OPEN_MS 1000 /* a checkout may be replaced under the same path */

struct files {
	struct contents *contents;
};

struct files_reader {
	struct files *files;
	struct db *db;
	struct repo_tree *tree; /* or NULL */
	char *project;		/* what it is the tree of */
	char commit[COMMIT_TEXT];
	int64_t until_ms; /* CLOCK_MONOTONIC */
};

struct files *files_new(const struct paths *paths)
{
	struct files *f = xcalloc(1, sizeof *f);
	f->contents = contents_new(paths);
	return f;
}

void files_free(struct files *f)
{
	if (!f)
		return;
	contents_free(f->contents);
	free(f);
}

struct files_reader *files_reader_new(struct files *f, struct db *db)
{
	struct files_reader *reader = xcalloc(1, sizeof *reader);
	reader->files = f;
	reader->db = db;
	return reader;
}

static void close_tree(struct files_reader *reader)
{
	repo_tree_free(reader->tree);
	reader->tree = NULL;
	free(reader->project);
	reader->project = NULL;
}

void files_reader_free(struct files_reader *reader)
{
	if (!reader)
		return;
	close_tree(reader);
	free(reader);
}

/* What a session's files/ shows: the head of its last sync, before the first one the commit that it started from. */
struct shown {
	char *project;
	char commit[COMMIT_TEXT]; /* "": nothing is known yet */
	int64_t changed_ms;
};

static int find_shown(struct db *db, int64_t session, struct shown *out, struct err *err)
{
	struct rows r;
	*out = (struct shown){0};
	int rc = db_query(db, &r, err,
			  "SELECT project, CASE head WHEN '' THEN start_commit ELSE head END, coalesce((SELECT "
			  "changed_ms FROM texts WHERE session=id AND kind='commits'), created_ms) FROM sessions WHERE "
			  "id=? AND destroyed_ms IS NULL",
			  "i", session);
	if (!rc && rows_next(&r)) {
		out->project = xstrdup(row_text(&r, 0));
		if (row_len(&r, 1) == COMMIT_TEXT - 1)
			memcpy(out->commit, row_text(&r, 1), COMMIT_TEXT);
		out->changed_ms = row_int(&r, 2);
	}
	int end = rows_end(&r);
	rc = rc ? rc : end;
	return rc || out->project ? rc : err_set(err, ESHUTDOWN, "this session has ended");
}

static int open_tree(struct files_reader *reader, const struct shown *s, struct err *err)
{
	int64_t now = clock_mono_ms();
	if (reader->tree && now < reader->until_ms && !strcmp(reader->project, s->project) &&
	    !strcmp(reader->commit, s->commit))
		return 0;
	close_tree(reader);
	int rc = repo_tree_open(s->project, s->commit, &reader->tree, err);
	if (rc)
		return rc;
	reader->project = xstrdup(s->project);
	memcpy(reader->commit, s->commit, COMMIT_TEXT);
	reader->until_ms = now + KEEP_OPEN_MS;
	return 0;
}

/* ---- the three questions ---- */

static int find(struct files_reader *reader, struct request *r)
{
	struct repo_entry entry;
	int rc = repo_tree_find(reader->tree, r->name, &entry, &r->err);
	if (rc)
		return rc;
	r->file.mode = entry.mode;
	r->file.size = entry.size;
	memcpy(r->file.object, entry.object, sizeof r->file.object);
	return 0;
}

/* Names that no file system can have are possible in a tree that git has not made. */
static void add_entry(void *arg, const char *name, const struct repo_entry *entry)
{
	struct buf *out = arg;
	size_t n = strlen(name);
	if (!n || n > 255 || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return;
	buf_addf(out, "%o %s %s", entry->mode, entry->object, name);
	buf_addc(out, '\0');
}

static int list(struct files_reader *reader, struct request *r)
{
	return repo_tree_list(reader->tree, r->name, add_entry, &r->out, &r->err);
}

static int read_file(struct files_reader *reader, struct request *r)
{
	return contents_read(reader->files->contents, reader->project, reader->tree, r->name, FILES_MAX, r->offset,
			     r->size, &r->out, &r->err);
}

void files_answer(struct files_reader *reader, struct request *r)
{
	struct shown s;
	r->rc = find_shown(reader->db, r->session, &s, &r->err);
	r->file.changed_ms = s.changed_ms;
	if (!r->rc && !*s.commit) {
		if (r->kind != REQ_FILE_LIST || *r->name)
			r->rc = err_set(&r->err, ENOENT, "nothing is known of this session's files yet");
	} else if (!r->rc) {
		r->rc = open_tree(reader, &s, &r->err);
		if (!r->rc)
			r->rc = r->kind == REQ_FILE_FIND   ? find(reader, r)
				: r->kind == REQ_FILE_LIST ? list(reader, r)
							   : read_file(reader, r);
	}
	free(s.project);
}
