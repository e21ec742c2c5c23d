/* The one way work crosses threads: a mutex-guarded FIFO of intrusive nodes with an eventfd.
 * Any thread pushes; one thread pops, either by poll() on queue_fd() or by queue_wait().
 * A pushed item belongs to the receiver. */
#pragma once
#include <pthread.h>
#include <stdbool.h>

struct queue_node {
	struct queue_node *next;
};

struct queue {
	pthread_mutex_t lock;
	struct queue_node *head, **tail;
	int fd; /* eventfd, readable while the queue is not empty */
	bool closed;
};

#define queue_entry(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

int queue_init(struct queue *q);     /* 0 or -errno */
void queue_release(struct queue *q); /* the queue must be empty; no other user left */
void queue_push(struct queue *q, struct queue_node *node);
/* A whole chain, in order. The signal may come after its receiver has taken it: one who polls has to use
 * queue_pop_all().
 */
void queue_push_all(struct queue *q, struct queue_node *first);
struct queue_node *queue_pop(struct queue *q);	   /* NULL if empty; never blocks */
struct queue_node *queue_pop_all(struct queue *q); /* the whole chain in order, or NULL */
/* Blocks until an item is there (returned as queue_pop_all) or the queue is closed and empty (NULL). */
struct queue_node *queue_wait_all(struct queue *q);
struct queue_node *queue_wait(struct queue *q); /* the same, one item */
void queue_close(struct queue *q);		/* wakes waiters; later pushes are still kept */
int queue_fd(const struct queue *q);
