/* Keeps the `sandbox` file true while nothing else looks: a VM that died by itself is seen within seconds. */
#pragma once
#include "core.h"

struct watch;
int watch_start(struct backend *b, struct watch **out, struct err *err);
void watch_stop(struct watch *w);
/* leftovers.c; the watch thread. Calls each() for the entries of a folder that are a session's number with `end` behind
 * it. */
void watch_each(const char *dir, const char *end, void (*each)(void *arg, const char *path, int64_t id), void *arg);
/* The same thread, once. */
void leftovers_remove(struct backend *b, struct db *db);
