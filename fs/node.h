/* Inodes that are remembered: of `input`, of drop files and of what is below files/. Loop thread only.
 *
 * Whether a message is complete is told by looking for its inode number under /proc/PID/fdinfo, so two open files
 * must not share one. A LOOKUP does not say what it is for; so the number belongs to the thread that asks, and that
 * thread gets a new one only while its previous one is open. (A new one at each LOOKUP makes vim believe that the file
 * was replaced between its stat and its open.) A node lives until the kernel forgets it.
 *
 * Numbers below files/ follow from what they stand for (files.h); they only have to be others than those. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/list.h"

struct face;
struct draft;
struct work;
struct work_file;

struct node {
	uint64_t ino;
	struct list link;    /* of its session or draft */
	int64_t session;     /* of an `input` or of files/; 0 for a drop file */
	struct draft *draft; /* a reference; NULL for all others */
	struct work *work;   /* files/ alone */
	int64_t attach;	     /* attach/ alone: number of a file that waits there */
	pid_t tid;	     /* the thread that it was made for */
	uint64_t lookups;    /* as the kernel counts them */
	unsigned opens;	     /* handles; they keep it too */
};

/* The node of a lookup by tid, from the list of nodes of a session's `input` or of a draft. The caller adds to
 * node.lookups once the reply is sure. */
struct node *node_for(struct face *f, struct list *nodes, int64_t session, struct draft *draft, pid_t tid);
/* The node of a path below a session's files/. */
struct node *node_of_work(struct face *f, int64_t session, const char *path, const struct work_file *file);
/* The node of a file that waits in attach/. */
struct node *node_of_attach(struct face *f, int64_t session, int64_t n);
uint64_t node_attach_ino(struct face *f, int64_t session, int64_t n);
/* The number that it most likely has: for listings. */
uint64_t node_work_ino(struct face *f, int64_t session, const char *path, const struct work_file *file);
struct node *node_find(const struct face *f, uint64_t ino); /* NULL if unknown */
void node_forget(struct face *f, struct node *node, uint64_t lookups);
void node_put_open(struct face *f, struct node *node); /* one handle less */
void nodes_release(struct face *f);
