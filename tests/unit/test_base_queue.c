/* The queue between threads: nothing lost, nothing doubled, each sender's items in order, no waiter left asleep. */
#include <poll.h>
#include <stdlib.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/queue.h"
#include "check.h"

enum { SENDERS = 6, ITEMS = 20000 };

struct item {
	struct queue_node node;
	int sender, number;
};

static bool readable(struct queue *q)
{
	struct pollfd p = {.fd = queue_fd(q), .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

TEST(one_thread)
{
	struct queue q;
	struct item a = {.number = 1}, b = {.number = 2}, c = {.number = 3};
	CHECK_INT(queue_init(&q), 0);
	CHECK(!queue_pop(&q) && !queue_pop_all(&q) && !readable(&q));
	queue_push(&q, &a.node);
	CHECK(readable(&q));
	queue_push(&q, &b.node);
	CHECK(queue_pop(&q) == &a.node);
	CHECK(readable(&q));
	CHECK(queue_wait(&q) == &b.node);
	CHECK(!readable(&q));
	queue_push(&q, &a.node);
	queue_push(&q, &b.node);
	queue_push(&q, &c.node);
	struct queue_node *all = queue_wait_all(&q);
	CHECK(all == &a.node && all->next == &b.node && all->next->next == &c.node && !c.node.next);
	CHECK(!readable(&q));
	queue_close(&q);
	CHECK(readable(&q));
	CHECK(!queue_wait(&q) && !queue_wait_all(&q));
	queue_push(&q, &a.node); /* kept also after the close */
	CHECK(queue_wait(&q) == &a.node);
	CHECK(!queue_wait(&q) && readable(&q));
	queue_release(&q);
}

static struct queue shared;

static void *send_all(void *arg)
{
	struct item *items = arg;
	for (int i = 0; i < ITEMS; i++)
		queue_push(&shared, &items[i].node);
	return NULL;
}

/* Takes items one by one, in chains, and by poll, in turn; checks each sender's order. */
static int take_all(int next[SENDERS])
{
	int taken = 0;
	for (int round = 0; taken < SENDERS * ITEMS; round++) {
		struct queue_node *n;
		if (round % 3 == 0) {
			n = queue_wait(&shared);
		} else if (round % 3 == 1) {
			n = queue_wait_all(&shared);
		} else {
			struct pollfd p = {.fd = queue_fd(&shared), .events = POLLIN};
			if (poll(&p, 1, 10000) != 1)
				return -1;
			n = queue_pop(&shared);
		}
		for (; n; taken++) {
			struct item *item = queue_entry(n, struct item, node);
			n = n->next;
			if (item->number != next[item->sender]++)
				return -1;
		}
	}
	return taken;
}

TEST(many_senders)
{
	pthread_t threads[SENDERS];
	struct item *items[SENDERS];
	int next[SENDERS] = {0};
	queue_init(&shared);
	for (int s = 0; s < SENDERS; s++) {
		items[s] = xcalloc(ITEMS, sizeof *items[s]);
		for (int i = 0; i < ITEMS; i++)
			items[s][i] = (struct item){.sender = s, .number = i};
		pthread_create(&threads[s], NULL, send_all, items[s]);
	}
	CHECK_INT(take_all(next), SENDERS * ITEMS);
	for (int s = 0; s < SENDERS; s++) {
		pthread_join(threads[s], NULL);
		CHECK_INT(next[s], ITEMS);
		free(items[s]);
	}
	CHECK(!readable(&shared));
	queue_release(&shared);
}

static void *wait_for_end(void *arg)
{
	return queue_wait(arg);
}

TEST(close_wakes_the_waiter)
{
	struct queue q;
	pthread_t t;
	void *got = &q;
	queue_init(&q);
	pthread_create(&t, NULL, wait_for_end, &q);
	clock_sleep_ms(20); /* mostly it sleeps by now; both orders have to work */
	queue_close(&q);
	pthread_join(t, &got);
	CHECK(!got);
	queue_release(&q);
}

CHECK_MAIN()
