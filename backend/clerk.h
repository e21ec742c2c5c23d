/* Requests that must look at paths and checkouts before they can be answered or committed. Pool threads. */
#pragma once
#include "core.h"

/* Fills r->rc, r->err and the answer. True: it was passed on to the store, which answers it. */
bool clerk_run(struct backend *b, struct db *db, struct request *r);
/* Answers a REQ_CWD: one look at a link, since its writer is held up for it. */
void clerk_cwd(struct request *r);
