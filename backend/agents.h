/* The project's own instructions to agents: AGENTS.md, or CLAUDE.md where there is none. The root's is part of the
 * system prompt; a folder's is told, once in a session, with the first file below it that a tool reads or changes.
 * Worker threads. */
#pragma once
#include "engine.h"

/* The root's text; nothing if there is none. */
int agents_root(struct worker *w, struct buf *out, struct err *err);
/* path: of a file tool's call, as the model wrote it. Appends to out what the folders above it say and the session was
 * not told yet; told gets their paths, a line each, for agents_told() in the commit of the result. */
int agents_above(struct worker *w, const char *path, struct buf *out, struct buf *told, struct err *err);
/* Store thread: marks them as told. */
int agents_told(struct tx *tx, const struct session *s, const char *told, struct err *err);
