/* Sessions' tokens: two a session, one for its engine and one for its sandbox. They are made where they are needed, and
 * taken back by comparing what the gateway has with what the database says of sessions: so whatever dies at whatever
 * moment, none outlives its session, or a sandbox that has gone down. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/hash.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "engine.h"
#include "gate_private.h"
#include "sandbox/sandbox.h"
#include "template.h"

#define PROJECT_MAX 120 /* bytes of a project's name in a token; the gateway takes 128 */

/* ---- making them ---- */

/* The path, or for one that is too long or has odd bytes its end with a sum of the whole: limits are counted by it. */
static char *project_name(const char *path)
{
	size_t n = strlen(path), plain = 0;
	while (plain < n && (unsigned char)path[plain] > 0x20 && path[plain] != 0x7f)
		plain++;
	if (plain == n && n <= PROJECT_MAX)
		return xstrdup(path);
	char *name = xasprintf("%s#%016" PRIx64, n > 80 ? path + n - 80 : path, hash_add(HASH_BEGIN, path, n));
	for (char *p = name; *p; p++)
		if ((unsigned char)*p <= 0x20 || *p == 0x7f)
			*p = '_';
	return name;
}

static int mint(struct gate_link *l, const struct session *s, const char *kind, const char *socket, char *token,
		struct err *err)
{
	char number[24];
	CLEAN_FREE char *project = project_name(s->project);
	snprintf(number, sizeof number, "%" PRId64, s->id);
	return gateway_token_mint(l->b->paths, kind, number, project, s->setting[SETTING_NETWORK], socket, token,
				  GATE_TOKEN, err);
}

int gate_token(struct backend *b, const struct session *s, const atomic_bool *cancel, char **socket,
	       char token[GATE_TOKEN], struct err *err)
{
	struct gate_link *l = b->link;
	char number[24];
	if (!l)
		return err_set(err, EAGAIN, "there is no gateway in this process");
	int rc = gate_wait_up(l, cancel, err);
	if (rc)
		return rc;
	snprintf(number, sizeof number, "%" PRId64, s->id);
	pthread_mutex_lock(&l->minting);
	char *kept = map_get(&l->engine, number);
	if (kept) {
		snprintf(token, GATE_TOKEN, "%s", kept);
	} else {
		rc = mint(l, s, "engine", NULL, token, err);
		if (!rc)
			map_put(&l->engine, number, xstrdup(token));
	}
	pthread_mutex_unlock(&l->minting);
	if (!rc)
		*socket = gateway_socket(b->paths);
	return rc;
}

/* l->minting is held. */
static void forget(struct gate_link *l, const char *number)
{
	char *kept = map_get(&l->engine, number);
	if (!kept)
		return;
	map_put(&l->engine, number, NULL);
	explicit_bzero(kept, strlen(kept));
	free(kept);
}

void gate_token_forget(struct backend *b, int64_t session)
{
	char number[24];
	if (!b->link)
		return;
	snprintf(number, sizeof number, "%" PRId64, session);
	pthread_mutex_lock(&b->link->minting);
	forget(b->link, number);
	pthread_mutex_unlock(&b->link->minting);
}

void gate_tokens_release(struct gate_link *l)
{
	for (size_t i = 0; i < l->engine.cap; i++)
		if (l->engine.slots[i].key)
			free(l->engine.slots[i].value);
	map_release(&l->engine);
	map_release(&l->sandboxes);
}

/* ---- the sandbox's ---- */

char *gate_sandbox_socket(struct backend *b, int64_t session)
{
	return b->link ? xasprintf("%s/gateway-%" PRId64 ".sock", b->paths->runtime, session) : NULL;
}

static int tell_life(struct gate_link *l, const char *session)
{
	CLEAN_FREE char *path = sandbox_life(l->b->paths, strtoll(session, NULL, 10));
	return gateway_life_set(l->b->paths, session, path, NULL);
}

int gate_mint_sandbox(struct gate_link *l, const struct session *s, const char *socket, char *token, struct err *err)
{
	char number[24];
	snprintf(number, sizeof number, "%" PRId64, s->id);
	pthread_mutex_lock(&l->minting);
	int rc = mint(l, s, "sandbox", socket, token, err);
	if (!rc) {
		map_put(&l->sandboxes, number, l);
		tell_life(l, number);
	}
	pthread_mutex_unlock(&l->minting);
	gate_want(l); /* gateway/tokens tells of it */
	return rc;
}

int gate_sandbox_revoke(struct backend *b, int64_t session, struct err *err)
{
	struct gate_link *l = b->link;
	char number[24];
	if (!l)
		return 0;
	snprintf(number, sizeof number, "%" PRId64, session);
	pthread_mutex_lock(&l->minting);
	map_put(&l->sandboxes, number,
		NULL); /* what still has it in its environment gets a new one with the next call */
	int rc = gateway_token_revoke(b->paths, "sandbox", number, err);
	pthread_mutex_unlock(&l->minting);
	gate_want(l); /* gateway/tokens tells of it; or it is done when the gateway is back */
	return rc ? err_set(err, EAGAIN, "the gateway does not run") : 0;
}

/* ---- bringing them into line ---- */

struct row { /* of gateway_tokens() */
	char *session, *kind, *network;
};

static bool parse_row(char *line, struct row *r)
{
	char *word[7] = {NULL};
	size_t n = 0;
	for (char *w; n < 7 && (w = strsep(&line, "\t"));)
		word[n++] = w;
	*r = (struct row){word[0], word[1], word[6]};
	return n == 7 && strspn(word[0], "0123456789") == strlen(word[0]) && *word[0];
}

/* What the database says of a session, in one look. */
struct truth {
	bool known, up;
	char network[32];
};

/* A template's sandbox has its token while it is built. */
static int look_up_template(struct gate_link *l, int64_t id, struct truth *t)
{
	t->known = t->up = db_int(l->db, 0, "SELECT 1 FROM templates WHERE id=? AND state='building'", "i", id);
	snprintf(t->network, sizeof t->network, "registries");
	return 0;
}

static int look_up(struct gate_link *l, const char *session, struct truth *t)
{
	struct rows r;
	*t = (struct truth){0};
	if (strtoll(session, NULL, 10) >= TEMPLATE_SANDBOX)
		return look_up_template(l, strtoll(session, NULL, 10) - TEMPLATE_SANDBOX, t);
	int rc = db_query(l->db, &r, NULL,
			  "SELECT sandbox_state LIKE '% running%' OR sandbox_state LIKE '% paused%', network, "
			  "sandbox FROM sessions WHERE id=? AND destroyed_ms IS NULL",
			  "i", (int64_t)strtoll(session, NULL, 10));
	if (!rc && rows_next(&r)) {
		t->known = true;
		/* Two have to agree before a token is taken from a sandbox. */
		enum sandbox_state state = sandbox_state(l->b->paths, row_text(&r, 2), strtoll(session, NULL, 10));
		t->up = row_int(&r, 0) || state == SANDBOX_RUNNING || state == SANDBOX_PAUSED;
		snprintf(t->network, sizeof t->network, "%s", row_text(&r, 1));
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

/* 1: changed, 0: right as it is, -errno */
static int put_right(struct gate_link *l, const struct row *r)
{
	struct truth t;
	const struct paths *p = l->b->paths;
	int rc = look_up(l, r->session, &t);
	if (rc)
		return rc;
	bool sandbox = !strcmp(r->kind, "sandbox");
	if (!t.known) {
		forget(l, r->session);
		rc = gateway_token_revoke(p, "all", r->session, NULL);
	} else if (sandbox && !t.up) {
		rc = gateway_token_revoke(p, "sandbox", r->session, NULL);
	} else if (sandbox && strcmp(r->network, t.network)) {
		rc = gateway_network_set(p, r->session, t.network, NULL);
	} else {
		return sandbox && l->tell_lives ? tell_life(l, r->session) : 0;
	}
	return rc ? rc : 1;
}

/* Tokens that the gateway does not have any more (its ledger was moved away) are forgotten here, too. */
static void forget_lost(struct gate_link *l, const struct map *listed)
{
	for (size_t i = 0; i < l->engine.cap; i++) {
		struct map_slot *s = &l->engine.slots[i];
		if (!s->key || !s->value || map_get(listed, s->key))
			continue;
		CLEAN_FREE char *number = xstrdup(s->key);
		forget(l, number);
		i = (size_t)-1; /* slots have moved */
	}
}

/* One pass over what the gateway lists; true if something was changed. l->minting is held. */
static bool pass(struct gate_link *l, const char *tokens)
{
	CLEAN_FREE char *copy = xstrdup(tokens);
	struct map engines = {0};
	struct row r;
	bool changed = false;
	char *rest = copy;
	map_release(&l->sandboxes);
	for (char *line; (line = strsep(&rest, "\n"));) {
		if (!parse_row(line, &r))
			continue;
		changed |= put_right(l, &r) > 0;
		map_put(strcmp(r.kind, "engine") ? &l->sandboxes : &engines, r.session, l);
	}
	forget_lost(l, &engines);
	map_release(&engines);
	return changed;
}

int gate_reconcile(struct gate_link *l, struct buf *tokens, struct err *err)
{
	pthread_mutex_lock(&l->minting); /* nothing is made meanwhile: what is listed is what there is */
	int rc = gateway_tokens(l->b->paths, tokens, err);
	if (!rc && pass(l, buf_str(tokens))) {
		buf_reset(tokens);
		rc = gateway_tokens(l->b->paths, tokens, err);
		if (!rc)
			pass(l, buf_str(tokens));
	}
	l->tell_lives = l->tell_lives && rc;
	pthread_mutex_unlock(&l->minting);
	return rc;
}
