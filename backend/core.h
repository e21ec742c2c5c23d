/* The one context of backend/: what its threads share. Internal to this folder. */
#pragma once
#include <pthread.h>

#include "backend.h"
#include "config.h"
#include "store.h"

struct engine;
struct pool;
struct watch;
struct gate_link;
struct templates;
struct claudes;

struct backend {
	const struct paths *paths;
	struct queue *notes;
	char *mount;
	char *db_path;
	struct store *store;
	struct engine *engine;
	struct pool *pool;
	struct watch *watch;
	struct templates *templates;
	struct gate_link *link;	 /* to the gateway; NULL: there is none */
	struct claudes *claudes; /* programs that serve a model and wait for a next turn */
	int64_t started_ms;

	pthread_mutex_t lock; /* guards the three below; held for pointer work only */
	struct config *config;
	int64_t config_ms, draft_ms; /* last changes of the config and of config_draft */
	char *config_draft;	     /* a written config that does not hold, or NULL */
};

/* The configuration in force; the caller puts it. Any thread. */
struct config *backend_config(struct backend *b);
/* Puts a new one in force (takes c; NULL: the old one stays) and keeps a draft that does not hold (NULL: none). */
void backend_set_config(struct backend *b, struct config *c, const char *draft);
