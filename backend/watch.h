/* Keeps the `sandbox` file true while nothing else looks: a VM that died by itself is seen within seconds. */
#pragma once
#include "core.h"

struct watch;
int watch_start(struct backend *b, struct watch **out, struct err *err);
void watch_stop(struct watch *w);
/* leftovers.c; the watch thread, once. */
void leftovers_remove(struct backend *b, struct db *db);
