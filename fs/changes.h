/* Which files a new view changes. Loop thread only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct face;
struct session;
struct view;
struct root_view;

/* Tells watchers.h of every file and directory of the session that differs between its views. */
void changes_of_view(struct face *f, const struct view *old, const struct view *new);
void changes_of_root(struct face *f, const struct root_view *old, const struct root_view *new);
/* `index` and `status` of the whole may come out different, and so may the listing of sessions/. */
void changes_of_index(struct face *f);
void changes_of_sessions(struct face *f);
/* Does the session's row in `index`, or its part of `status`, differ? old may be NULL. */
bool changes_index(const struct view *old, const struct view *new);
bool changes_status(const struct root_view *old, const struct root_view *new);
/* The `error` of a session, or of the whole (0), has a new line or has been cleared. */
void changes_of_errors(struct face *f, int64_t session);
