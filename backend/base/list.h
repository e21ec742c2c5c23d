/* Intrusive doubly linked list. One thread. An initialised head points to itself. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *prev, *next;
};

#define list_entry(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define list_each(pos, head)	      for (struct list *pos = (head)->next; pos != (head); pos = pos->next)
/* Safe against removal of pos. */
#define list_each_safe(pos, head)                                                                                      \
	for (struct list *pos = (head)->next, *pos##_n = pos->next; pos != (head); pos = pos##_n, pos##_n = pos->next)

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}
static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}
static inline void list_append(struct list *head, struct list *item)
{
	item->prev = head->prev;
	item->next = head;
	head->prev->next = item;
	head->prev = item;
}
/* Removing twice is harmless: a removed item points to itself. */
static inline void list_remove(struct list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	list_init(item);
}
