/* Templates: sandboxes that were set up once, for one project at one commit, and saved; sessions start from them. Here
 * is the record of each and who uses it; template_build.c makes them.
 *
 * A template is `building`, `ready`, `failed` or `old`: no session starts from an old one, and it goes with the last
 * that does. Its folder is CACHE/templates/NUMBER/ID, NUMBER that of this state folder; see sandbox_save(). As
 * with any cache its files may be taken away: no session begins from what is gone. */
#pragma once
#include <stdatomic.h>

#include "core.h"
#include "session.h"

struct worker;
struct templates;

/* Ids of the sandboxes that templates are built in begin here, so that they are no session's. */
#define TEMPLATE_SANDBOX ((int64_t)1 << 40)

struct templates *templates_new(void);
void templates_free(struct templates *t);
/* Before any worker begins: builds that nobody waits for any more are put away, by a thread of its own. */
int templates_start(struct backend *b, struct err *err);
void templates_stop(struct templates *t); /* while the store still runs */

/* ---- worker threads; they block ---- */

/* The template that this session starts from, made first if there is none: *id, 0 for none (nothing is to be set up, or
 * its kind of sandbox cannot be saved). It counts as used by the session from then on. -ECANCELED: the session ends or
 * the daemon does; what has been done of a build is taken up by the next who asks. Other errors say why the setup
 * failed; a repeat tries again. */
int template_take(struct worker *w, int64_t *id, struct err *err);
/* For a session that begins as another: it uses the same. */
int template_share(struct worker *w, struct err *err);
/* Its folder, for sandbox_spec.template; malloc'd, NULL if the session starts from the base image. Any thread with a
 * connection. */
char *template_folder(const struct paths *paths, struct db *db, int64_t session);
/* Removes old templates that nobody uses any more, and what a killed daemon left of builds. */
void template_sweep(struct backend *b);

/* ---- transactions ---- */

int template_drop_fn(struct tx *tx, void *arg, struct err *err); /* arg: struct request; number: id */
int template_unuse(struct tx *tx, int64_t session, struct err *err);
/* What root_view shows. */
void template_views(struct db *db, struct root_view *v);
