/* Programs that wait for the next turn of their session. Any thread; ending one waits for its process, which is killed.
 * That one has been idle for long is noticed by its own relay, not here: no thread waits for it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "claude.h"

struct claudes {
	pthread_mutex_t lock;
	struct claude *first;
};

struct claudes *claudes_new(void)
{
	struct claudes *k = xcalloc(1, sizeof *k);
	pthread_mutex_init(&k->lock, NULL);
	return k;
}

void claudes_free(struct claudes *k)
{
	if (!k)
		return;
	for (struct claude *c; (c = k->first);) {
		k->first = c->next;
		claude_free(c);
	}
	pthread_mutex_destroy(&k->lock);
	free(k);
}

/* Takes the session's out of the list. */
static struct claude *take_out(struct claudes *k, int64_t session)
{
	struct claude *found = NULL;
	pthread_mutex_lock(&k->lock);
	for (struct claude **at = &k->first; *at && !found; at = &(*at)->next)
		if ((*at)->session == session) {
			found = *at;
			*at = found->next;
			break;
		}
	pthread_mutex_unlock(&k->lock);
	return found;
}

struct claude *claudes_take(struct claudes *k, int64_t session, const char *key, const char *token)
{
	struct claude *c = take_out(k, session);
	if (c && (strcmp(c->key, key) || strcmp(c->token, token) || !claude_alive(c))) {
		claude_free(c);
		return NULL;
	}
	return c;
}

void claudes_drop(struct claudes *k, int64_t session)
{
	claude_free(take_out(k, session));
}

void claudes_put(struct claudes *k, struct claude *c, int most)
{
	struct claude *out = NULL;
	int n = 0;
	c->used_ms = clock_mono_ms();
	pthread_mutex_lock(&k->lock);
	c->next = k->first; /* the newest first */
	k->first = c;
	for (struct claude **at = &k->first; *at && !out; at = &(*at)->next)
		if (++n > most) {
			out = *at;
			*at = NULL;
			break;
		}
	pthread_mutex_unlock(&k->lock);
	for (struct claude *next; out; out = next) {
		next = out->next;
		claude_free(out);
	}
}
