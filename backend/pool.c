/* Threads for requests that read. Four lanes: texts of the database never wait behind a slow checkout, and neither
 * does what somebody writes behind a crawler of files/, nor where a writer stands behind what others have written: that
 * is waited for a moment only, and without it a session has no project. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>

#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "clerk.h"
#include "files.h"
#include "transcript.h"

#define READERS 2 /* for REQ_READ: memory and page cache, rarely the disk */
#define CLERKS	3 /* for paths and git, which may hang on a slow disk */
#define FILERS	2 /* for files/ */
#define LOOKERS 1 /* for REQ_CWD */

struct pool {
	struct backend *b;
	struct queue reads, lookups, filings, cwds;
	struct files *files;
	pthread_t threads[READERS + CLERKS + FILERS + LOOKERS];
	size_t n;
};

static void *reader_main(void *arg)
{
	struct pool *p = arg;
	struct db *db = NULL;
	struct queue_node *node;
	while ((node = queue_wait(&p->reads))) {
		struct request *r = queue_entry(node, struct request, node);
		r->rc = db ? 0 : db_open(p->b->db_path, false, &db, &r->err);
		if (!r->rc)
			r->rc = text_read(db, r->session, r->text_kind, r->offset, r->size, &r->out, &r->err);
		notes_done(p->b->notes, r);
	}
	db_close(db);
	return NULL;
}

static void *clerk_main(void *arg)
{
	struct pool *p = arg;
	struct db *db = NULL;
	struct queue_node *node;
	while ((node = queue_wait(&p->lookups))) {
		struct request *r = queue_entry(node, struct request, node);
		r->rc = db ? 0 : db_open(p->b->db_path, false, &db, &r->err);
		if (r->rc || !clerk_run(p->b, db, r))
			notes_done(p->b->notes, r);
	}
	db_close(db);
	return NULL;
}

static void *filer_main(void *arg)
{
	struct pool *p = arg;
	struct db *db = NULL;
	struct files_reader *reader = NULL;
	struct queue_node *node;
	while ((node = queue_wait(&p->filings))) {
		struct request *r = queue_entry(node, struct request, node);
		r->rc = db ? 0 : db_open(p->b->db_path, false, &db, &r->err);
		if (!r->rc) {
			reader = reader ? reader : files_reader_new(p->files, db);
			files_answer(reader, r);
		}
		notes_done(p->b->notes, r);
	}
	files_reader_free(reader);
	db_close(db);
	return NULL;
}

static void *looker_main(void *arg)
{
	struct pool *p = arg;
	struct queue_node *node;
	while ((node = queue_wait(&p->cwds))) {
		struct request *r = queue_entry(node, struct request, node);
		clerk_cwd(r);
		notes_done(p->b->notes, r);
	}
	return NULL;
}

static void *(*main_of(size_t i))(void *)
{
	if (i < READERS)
		return reader_main;
	return i < READERS + CLERKS ? clerk_main : i < READERS + CLERKS + FILERS ? filer_main : looker_main;
}

int pool_start(struct backend *b, struct pool **out, struct err *err)
{
	struct pool *p = xcalloc(1, sizeof *p);
	p->b = b;
	int rc = queue_init(&p->reads);
	rc = rc ? rc : queue_init(&p->lookups);
	rc = rc ? rc : queue_init(&p->filings);
	rc = rc ? rc : queue_init(&p->cwds);
	p->files = files_new(b->paths);
	for (size_t i = 0; i < ARRAY_LEN(p->threads) && !rc; i++) {
		rc = -pthread_create(&p->threads[i], NULL, main_of(i), p);
		p->n += !rc;
	}
	*out = p;
	return rc ? err_sys(err, -rc, "cannot start the reader threads") : 0;
}

void pool_push(struct pool *p, struct request *r)
{
	static const enum request_kind of_files[] = {REQ_FILE_FIND, REQ_FILE_LIST, REQ_FILE_READ};
	struct queue *lane = r->kind == REQ_READ ? &p->reads : r->kind == REQ_CWD ? &p->cwds : &p->lookups;
	for (size_t i = 0; i < ARRAY_LEN(of_files); i++)
		if (r->kind == of_files[i])
			lane = &p->filings;
	queue_push(lane, &r->node);
}

void pool_stop(struct pool *p)
{
	if (!p)
		return;
	queue_close(&p->reads);
	queue_close(&p->lookups);
	queue_close(&p->filings);
	queue_close(&p->cwds);
	for (size_t i = 0; i < p->n; i++)
		pthread_join(p->threads[i], NULL);
	queue_release(&p->reads);
	queue_release(&p->lookups);
	queue_release(&p->filings);
	queue_release(&p->cwds);
	files_free(p->files);
	free(p);
}
