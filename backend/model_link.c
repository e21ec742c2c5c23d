/* Starts the gateway when the first model request needs it, and keeps the tokens of this process's sessions in memory
 * alone. Worker threads. */
#include "model_link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/map.h"
#include "backend/base/mem.h"
#include "gateway/gateway.h"

struct model_link {
	pthread_mutex_t lock; /* one token is made at a time; held while the gateway is asked */
	struct map tokens;    /* session's number to its token */
};

struct model_link *model_link_new(void)
{
	struct model_link *l = xcalloc(1, sizeof *l);
	pthread_mutex_init(&l->lock, NULL);
	return l;
}

static void wipe(char *token)
{
	if (token)
		explicit_bzero(token, strlen(token));
	free(token);
}

void model_link_free(struct model_link *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->tokens.cap; i++)
		if (l->tokens.slots[i].key)
			wipe(l->tokens.slots[i].value);
	map_release(&l->tokens);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static int mint(struct backend *b, const struct session *s, const char *name, char *token, struct err *err)
{
	return gateway_token_mint(b->paths, "engine", name, s->project, s->setting[SETTING_NETWORK], NULL, token,
				  LINK_TOKEN, err);
}

int link_token(struct backend *b, const struct session *s, const atomic_bool *cancel, char **socket,
	       char token[LINK_TOKEN], struct err *err)
{
	CLEAN_FREE char *name = xasprintf("%" PRId64, s->id);
	struct model_link *l = b->link;
	struct gateway_options o = {0};
	struct err why = ERR_INIT;
	pthread_mutex_lock(&l->lock);
	int rc = gateway_start(b->paths, &o, &why); /* finds the one that runs */
	const char *have = map_get(&l->tokens, name);
	if (!rc && have) {
		snprintf(token, LINK_TOKEN, "%s", have);
	} else if (!rc) {
		rc = mint(b, s, name, token, &why);
		if (!rc)
			map_put(&l->tokens, name, xstrdup(token));
	}
	pthread_mutex_unlock(&l->lock);
	if (rc)
		return err_set(err, EAGAIN, "the gateway does not run: %s", why.text);
	*socket = gateway_socket(b->paths);
	return 0;
}

void link_token_forget(struct backend *b, int64_t session)
{
	CLEAN_FREE char *name = xasprintf("%" PRId64, session);
	pthread_mutex_lock(&b->link->lock);
	wipe(map_put(&b->link->tokens, name, NULL));
	pthread_mutex_unlock(&b->link->lock);
}
