/* The one way work crosses threads. */
#include "queue.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fd.h"

int queue_init(struct queue *q)
{
	*q = (struct queue){.tail = &q->head, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	if (q->fd < 0)
		return -errno;
	pthread_mutex_init(&q->lock, NULL);
	return 0;
}

void queue_release(struct queue *q)
{
	fd_close(&q->fd);
	pthread_mutex_destroy(&q->lock);
}

static void signal_fd(struct queue *q)
{
	uint64_t one = 1;
	ssize_t r = write(q->fd, &one, sizeof one); /* full counter: it is readable already */
	(void)r;
}

static void clear_fd(struct queue *q)
{
	uint64_t n;
	ssize_t r = read(q->fd, &n, sizeof n);
	(void)r;
}

void queue_push(struct queue *q, struct queue_node *node)
{
	node->next = NULL;
	pthread_mutex_lock(&q->lock);
	bool was_empty = !q->head;
	*q->tail = node;
	q->tail = &node->next;
	if (was_empty)
		signal_fd(q);
	pthread_mutex_unlock(&q->lock);
}

void queue_push_all(struct queue *q, struct queue_node *first)
{
	struct queue_node *last = first;
	while (last->next)
		last = last->next;
	pthread_mutex_lock(&q->lock);
	bool was_empty = !q->head;
	*q->tail = first;
	q->tail = &last->next;
	pthread_mutex_unlock(&q->lock);
	if (was_empty) /* outside: who is woken takes the lock at once */
		signal_fd(q);
}

struct queue_node *queue_pop(struct queue *q)
{
	pthread_mutex_lock(&q->lock);
	struct queue_node *n = q->head;
	if (n) {
		q->head = n->next;
		if (!q->head) {
			q->tail = &q->head;
			if (!q->closed)
				clear_fd(q);
		}
		n->next = NULL;
	}
	pthread_mutex_unlock(&q->lock);
	return n;
}

struct queue_node *queue_pop_all(struct queue *q)
{
	pthread_mutex_lock(&q->lock);
	struct queue_node *n = q->head;
	q->head = NULL;
	q->tail = &q->head;
	if (!q->closed)
		clear_fd(q);
	pthread_mutex_unlock(&q->lock);
	return n;
}

/* Blocks until the eventfd is readable. Returns true if the queue is closed and empty. */
static bool wait_ready(struct queue *q)
{
	struct pollfd p = {.fd = q->fd, .events = POLLIN};
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	pthread_mutex_lock(&q->lock);
	bool end = q->closed && !q->head;
	if (!q->closed && !q->head) /* signalled for what has been taken already */
		clear_fd(q);
	pthread_mutex_unlock(&q->lock);
	return end;
}

struct queue_node *queue_wait_all(struct queue *q)
{
	for (;;) {
		struct queue_node *n = queue_pop_all(q);
		if (n || wait_ready(q))
			return n;
	}
}

struct queue_node *queue_wait(struct queue *q)
{
	for (;;) {
		struct queue_node *n = queue_pop(q);
		if (n || wait_ready(q))
			return n;
	}
}

void queue_close(struct queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->closed = true;
	signal_fd(q);
	pthread_mutex_unlock(&q->lock);
}

int queue_fd(const struct queue *q)
{
	return q->fd;
}
