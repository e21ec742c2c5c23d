/* A few threads for requests that read: large texts from the database, checkouts, paths. Each has its own read-only
 * database connection. Nothing here changes a session. */
#pragma once
#include "core.h"

int pool_start(struct backend *b, struct pool **out, struct err *err);
void pool_stop(struct pool *p); /* answers what waits with -ESHUTDOWN */
void pool_push(struct pool *p, struct request *r);
