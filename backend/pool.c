/* Threads for requests that read. Two lanes: texts of the database never wait behind a slow checkout. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>

#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "clerk.h"
#include "transcript.h"

#define READERS 2 /* for REQ_READ: memory and page cache, rarely the disk */
#define CLERKS	3 /* for paths and git, which may hang on a slow disk */

struct pool {
	struct backend *b;
	struct queue reads, lookups;
	pthread_t threads[READERS + CLERKS];
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

int pool_start(struct backend *b, struct pool **out, struct err *err)
{
	struct pool *p = xcalloc(1, sizeof *p);
	p->b = b;
	int rc = queue_init(&p->reads);
	rc = rc ? rc : queue_init(&p->lookups);
	for (size_t i = 0; i < READERS + CLERKS && !rc; i++) {
		rc = -pthread_create(&p->threads[i], NULL, i < READERS ? reader_main : clerk_main, p);
		p->n += !rc;
	}
	*out = p;
	return rc ? err_sys(err, -rc, "cannot start the reader threads") : 0;
}

void pool_push(struct pool *p, struct request *r)
{
	queue_push(r->kind == REQ_READ ? &p->reads : &p->lookups, &r->node);
}

void pool_stop(struct pool *p)
{
	if (!p)
		return;
	queue_close(&p->reads);
	queue_close(&p->lookups);
	for (size_t i = 0; i < p->n; i++)
		pthread_join(p->threads[i], NULL);
	queue_release(&p->reads);
	queue_release(&p->lookups);
	free(p);
}
