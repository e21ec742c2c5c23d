/* poll() on files: who is told when a text has changed. Loop thread only. */
#pragma once
#include <fuse_lowlevel.h>

struct handle;
struct list;

/* Answers a POLL; keeps ph (or NULL) until the file becomes ready. */
void poll_ask(struct handle *h, fuse_req_t req, struct fuse_pollhandle *ph);
void poll_wake(struct list *polls); /* something has changed: tells those whose file is ready now */
void poll_end(struct list *polls);  /* the session has ended: tells all */
