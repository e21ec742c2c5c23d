/* The store: the only thread that writes the database. Work reaches it as functions that run inside a transaction;
 * what waits at the same time shares one commit. After the commit views of the touched sessions are published, then
 * the waiters are answered, then the engine hears of the touched sessions. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "db.h"
#include "notes.h"

struct store;
struct session;

/* What a transaction function gets. It may use db and the functions below, and must not block. */
struct tx {
	struct store *store;
	struct db *db;
	int64_t now_ms;	   /* CLOCK_REALTIME of the batch */
	bool root_changed; /* set it to have a new root view published */
};

/* Returns 0 or -errno; on an error everything that it did is rolled back, its words go to the waiter. */
typedef int tx_fn(struct tx *tx, void *arg, struct err *err);

/* The session with this id, loaded if need be; NULL if there is none or it is destroyed. Marks it as touched: it is
 * saved after the function, its view is published after the commit. Valid inside the transaction only. */
struct session *tx_session(struct tx *tx, int64_t id);
/* The same for a session that the function has just inserted (session_insert). Takes ownership of s. */
void tx_adopt(struct tx *tx, struct session *s);
/* Appends a line to `events`. */
int tx_event(struct tx *tx, const struct session *s, const char *kind, const char *detail, struct err *err);
/* A failure in words for the `error` file of the session (0: of the whole). path: the file it belongs to. */
int tx_error(struct tx *tx, int64_t session, const char *path, const struct err *what, struct err *err);

/* Worker threads: runs fn and waits until it is committed. -ENOSPC is waited out (see store.c); other errors are given
 * back. */
int store_do(struct store *st, tx_fn *fn, void *arg, struct err *err);
/* The same for what a person waits for on a full disk too (stop, failures): it may use the reserve. */
int store_do_urgent(struct store *st, tx_fn *fn, void *arg, struct err *err);
/* As store_do(), but -ENOSPC is given back at once. */
int store_try(struct store *st, tx_fn *fn, void *arg, struct err *err);
/* Any thread, does not wait: done (may be NULL) is called on the store thread after the commit or the failure. */
void store_post(struct store *st, tx_fn *fn, void (*done)(void *arg, int rc, const struct err *err), void *arg);
void store_post_urgent(struct store *st, tx_fn *fn, void (*done)(void *arg, int rc, const struct err *err), void *arg);
/* The same for a request of a face: rc and err are filled, then it goes back to the face. fn gets the request. */
void store_request(struct store *st, tx_fn *fn, struct request *r);

struct store_options {
	const char *path; /* of the database */
	struct queue *notes;
	/* After each commit, for each touched session that has something to do, on the store thread; must not block. */
	void (*touched)(void *arg, int64_t session);
	/* A fresh root view without events and workers; called on the store thread. */
	struct root_view *(*root)(void *arg, struct tx *tx);
	void *arg;
};
/* Opens the database, loads all sessions and publishes their views, then starts the thread. */
int store_start(const struct store_options *opt, struct store **out, struct err *err);
/* Runs what is queued, then ends. */
void store_stop(struct store *st);
