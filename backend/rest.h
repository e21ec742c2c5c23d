/* Sandboxes at rest: paused, on disk, or down; and awake again. idle.h says when, this does it. */
#pragma once
#include "engine.h"

/* For a session whose state asks for no step: does what is due for its sandbox now. True: look at the session again.
 * It runs on the one worker thread that the session has, so nothing is ever asked of the sandbox meanwhile: a message
 * that comes in between is committed, and its run begins with waking the sandbox. */
bool rest_step(struct worker *w);
/* The thread that looks at sandboxes: gives each session a worker for which something is due. */
void rest_look(struct backend *b, struct db *db);
/* How often it shall do that, by the settings, ms. */
int64_t rest_look_ms(struct backend *b);
/* The daemon ends: what runs and is not needed is paused, since nobody will do it later. No worker is left. */
void rest_all(struct backend *b);

/* worker_env(): before a sandbox is woken that had a clone, and once env is open. The second runs `.agents/resume` of
 * the clone, if one is due; that goes wrong in words in the log, and in nothing else but -ECANCELED and a lost env. */
int rest_waking(struct worker *w, enum sandbox_state state, struct err *err);
int rest_awake(struct worker *w, struct err *err);

/* ---- store thread ---- */

/* The session has come to rest: its times begin. */
int rest_begin(struct tx *tx, const struct session *s, struct err *err);
/* Something else than this daemon has woken it. */
int rest_woken(struct tx *tx, const struct session *s, struct err *err);
