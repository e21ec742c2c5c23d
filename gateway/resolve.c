/* Resolver threads. A slow name server holds up other names at most, never the loop. */
#include "resolve.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "backend/base/mem.h"

static void look_up(struct resolve_job *job)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found = NULL;
	char port[8];
	snprintf(port, sizeof port, "%d", job->port);
	int rc = getaddrinfo(job->host, port, &hints, &found);
	for (struct addrinfo *a = found; !rc && a; a = a->ai_next) {
		if (job->n == RESOLVE_MAX) {
			job->n = -1; /* more than are looked at: none is trusted */
			break;
		}
		memcpy(&job->addresses[job->n++], a->ai_addr, a->ai_addrlen);
	}
	if (rc)
		job->n = -1;
	if (found)
		freeaddrinfo(found);
}

static void *resolver(void *arg)
{
	struct gw *g = arg;
	for (struct queue_node *n; (n = queue_wait(&g->names));) {
		look_up(queue_entry(n, struct resolve_job, node));
		queue_push(&g->resolved, n);
	}
	return NULL;
}

static void resolved_ready(struct source *s, uint32_t events)
{
	struct gw *g = (struct gw *)((char *)s - offsetof(struct gw, resolved_source));
	for (struct queue_node *n; (n = queue_pop(&g->resolved));) {
		struct resolve_job *job = queue_entry(n, struct resolve_job, node);
		job->done(job);
	}
}

int resolve_init(struct gw *g, struct err *err)
{
	int rc = queue_init(&g->names);
	if (!rc)
		rc = queue_init(&g->resolved);
	g->resolved_source = (struct source){.fd = queue_fd(&g->resolved), .ready = resolved_ready};
	if (!rc)
		rc = source_add(g, &g->resolved_source, EPOLLIN);
	for (; !rc && g->n_resolvers < (int)ARRAY_LEN(g->resolvers); g->n_resolvers += !rc)
		rc = -pthread_create(&g->resolvers[g->n_resolvers], NULL, resolver, g);
	return rc ? err_sys(err, -rc, "cannot start the resolvers") : 0;
}

void resolve_release(struct gw *g)
{
	queue_close(&g->names);
	for (int i = 0; i < g->n_resolvers; i++)
		pthread_join(g->resolvers[i], NULL);
	resolved_ready(&g->resolved_source, 0); /* their owners free them */
	queue_release(&g->names);
	queue_release(&g->resolved);
}

void resolve_start(struct gw *g, struct resolve_job *job)
{
	queue_push(&g->names, &job->node);
}
