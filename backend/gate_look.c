/* What the tree shows of the gateway: read whenever it says that something has changed, kept as one immutable view, and
 * published with the root view. Sizes in the tree are those of these texts, so they are true. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "gate_private.h"
#include "requests.h"

#define NANO 1e9 /* the gateway counts in nanodollars */

/* ---- small texts ---- */

/* The value of a `key value` line, malloc'd; "" without. */
static char *value_of(const char *text, const char *key)
{
	size_t n = strlen(key);
	for (const char *at = text; *at;) {
		size_t line = strcspn(at, "\n");
		if (!strncmp(at, key, n) && at[n] == ' ')
			return xstrndup(at + n + 1, line - n - 1);
		at += line + (at[line] == '\n');
	}
	return xstrdup("");
}

/* Time of the last change of a file of the gateway's; now, if it cannot be told. */
static int64_t file_ms(struct gate_link *l, const char *name)
{
	struct stat st;
	CLEAN_FREE char *path = xasprintf("%s/gateway/%s", l->b->paths->state, name);
	if (stat(path, &st))
		return clock_real_ms();
	return st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
}

/* session, kind, hash, seconds, tokens, nanodollars, network -> the same for people. */
static void token_rows(struct buf *out, const char *text)
{
	CLEAN_FREE char *copy = xstrdup(text);
	char *rest = copy, *save = NULL;
	for (char *line; (line = strsep(&rest, "\n"));) {
		char *word[7], age[CLOCK_TEXT];
		size_t n = 0;
		for (char *w = strtok_r(line, "\t", &save); w && n < 7; w = strtok_r(NULL, "\t", &save))
			word[n++] = w;
		if (n < 7)
			continue;
		buf_addf(out, "%s\t%s\t%s\t%s\t%s\t%.6f\t%s\n", word[0], word[1], word[2],
			 clock_age(strtoll(word[3], NULL, 10) * 1000, age), word[4],
			 (double)strtoll(word[5], NULL, 10) / NANO, word[6]);
	}
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct gateway_key *)a)->name, ((const struct gateway_key *)b)->name);
}

static void key_rows(struct gate_link *l, struct gateway_view *v, const char *text)
{
	CLEAN_FREE char *copy = xstrdup(text);
	char *rest = copy;
	for (char *line; (line = strsep(&rest, "\n"));) {
		char *space = strchr(line, ' ');
		if (!space)
			continue;
		*space = 0;
		CLEAN_FREE char *file = xasprintf("keys/%s", line);
		v->keys = xrealloc(v->keys, (v->n_keys + 1) * sizeof *v->keys);
		v->keys[v->n_keys++] =
			(struct gateway_key){xstrdup(line), xasprintf("%s\n", space + 1), file_ms(l, file)};
	}
	if (v->n_keys)
		qsort(v->keys, v->n_keys, sizeof *v->keys, by_name);
}

/* ---- views ---- */

static bool same(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

static bool same_keys(const struct gateway_view *a, const struct gateway_view *b)
{
	bool yes = a->n_keys == b->n_keys;
	for (size_t i = 0; yes && i < a->n_keys; i++)
		yes = same(a->keys[i].name, b->keys[i].name) && same(a->keys[i].fingerprint, b->keys[i].fingerprint);
	return yes;
}

/* Times of what has not changed stay; true if something has. */
static bool keep_times(struct gateway_view *v, const struct gateway_view *old)
{
	bool policy = same(v->policy, old->policy) && same(v->draft, old->draft), head = same(v->head, old->head),
	     tokens = same(v->tokens, old->tokens), ledger = v->ledger.size == old->ledger.size,
	     keys = same_keys(v, old) && old->keys_ms;
	if (policy && old->policy_ms)
		v->policy_ms = old->policy_ms;
	if (head && old->head_ms)
		v->head_ms = old->head_ms;
	if (tokens && old->tokens_ms)
		v->tokens_ms = old->tokens_ms;
	if (ledger && old->ledger.changed_ms)
		v->ledger.changed_ms = old->ledger.changed_ms;
	if (keys)
		v->keys_ms = old->keys_ms;
	for (size_t i = 0; keys && i < v->n_keys; i++)
		v->keys[i].changed_ms = old->keys[i].changed_ms;
	return !policy || !head || !tokens || !ledger || !keys || !same(v->state, old->state);
}

static struct gateway_view *copy_of(const struct gateway_view *from)
{
	struct gateway_view *v = gateway_view_new();
	v->policy = xstrdup(from->policy);
	v->head = xstrdup(from->head);
	v->tokens = xstrdup(from->tokens);
	v->ledger = from->ledger;
	v->policy_ms = from->policy_ms;
	v->head_ms = from->head_ms;
	v->tokens_ms = from->tokens_ms;
	v->keys_ms = from->keys_ms;
	v->n_keys = from->n_keys;
	v->keys = xcalloc(v->n_keys + 1, sizeof *v->keys);
	for (size_t i = 0; i < v->n_keys; i++)
		v->keys[i] = (struct gateway_key){xstrdup(from->keys[i].name), xstrdup(from->keys[i].fingerprint),
						  from->keys[i].changed_ms};
	return v;
}

/* Puts v in place of the one before (takes it); true if it is another one. l->lock is held. */
static bool replace(struct gate_link *l, struct gateway_view *v)
{
	v->draft = xstrdup(l->draft);
	if (!same(v->draft, l->view->draft))
		v->policy_ms = clock_real_ms();
	if (!keep_times(v, l->view)) {
		gateway_view_put(v);
		return false;
	}
	gateway_view_put(l->view);
	l->view = v;
	return true;
}

struct gateway_view *gate_view(struct backend *b)
{
	if (!b->link) {
		struct gateway_view *none = gateway_view_new();
		none->state = xstrdup("off");
		return none;
	}
	pthread_mutex_lock(&b->link->lock);
	struct gateway_view *v = gateway_view_get(b->link->view);
	pthread_mutex_unlock(&b->link->lock);
	return v;
}

void gate_show(struct gate_link *l)
{
	pthread_mutex_lock(&l->lock);
	struct gateway_view *v = copy_of(l->view);
	v->state = l->state == GATE_UP	   ? xstrdup(l->view->state)
		   : l->state == GATE_DOWN ? xasprintf("down: %s", l->why.text)
					   : xstrdup("starting");
	bool other = replace(l, v);
	pthread_mutex_unlock(&l->lock);
	if (other)
		store_post_urgent(l->b->store, publish_fn, NULL, NULL);
}

/* ---- a look ---- */

static char *state_words(struct gate_link *l, const char *status)
{
	CLEAN_FREE char *pid = value_of(status, "pid"), *keys = value_of(status, "keys"),
			*ledger = value_of(status, "ledger"), *running = value_of(status, "running");
	struct buf out = BUF_INIT;
	buf_addf(&out, "running pid %s, keys in %s, ledger %s", pid, keys, ledger);
	if (l->listen_words)
		buf_addf(&out, "; gateway.listen: %s", l->listen_words);
	return buf_take(&out);
}

/* For whoever waits for this round, the new root view has to stand before the answer. */
static void publish(struct gate_link *l)
{
	store_try(l->b->store, publish_fn, NULL, NULL);
}

int gate_look(struct gate_link *l, struct err *err)
{
	const struct paths *p = l->b->paths;
	CLEAN_BUF struct buf status = BUF_INIT, keys = BUF_INIT, policy = BUF_INIT, head = BUF_INIT, tokens = BUF_INIT,
			     rows = BUF_INIT, none = BUF_INIT;
	uint64_t size = 0;
	int rc = gate_reconcile(l, &tokens, err);
	if (rc || (rc = gateway_status(p, &status, err)) || (rc = gateway_key_list(p, &keys, err)) ||
	    (rc = gateway_policy_get(p, &policy, err)) || (rc = gateway_head(p, &head, err)) ||
	    (rc = gateway_ledger_read(p, 0, 0, &none, &size, err)))
		return rc;
	struct gateway_view *v = gateway_view_new();
	token_rows(&rows, buf_str(&tokens));
	key_rows(l, v, buf_str(&keys));
	v->state = state_words(l, buf_str(&status));
	v->policy = buf_take(&policy);
	v->head = buf_take(&head);
	v->tokens = buf_take(&rows);
	v->policy_ms = file_ms(l, "policy");
	v->keys_ms = file_ms(l, "keys");
	v->head_ms = v->tokens_ms = clock_real_ms();
	v->ledger = (struct text_info){size, clock_real_ms()};
	pthread_mutex_lock(&l->lock);
	bool other = replace(l, v);
	l->state = GATE_UP; /* before anybody is shown that it runs */
	l->why = ERR_INIT;
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
	if (other)
		publish(l);
	return 0;
}
