/* What the control socket tells, and takes for all sessions: keys, policy, settings; the ledger's lines, figures. The
 * loop's thread. A key's bytes are wiped as soon as key.c has them. */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "control.h"

/* ---- keys, policy ---- */

int on_key(struct control *c, struct buf *out, struct err *err)
{
	int rc = key_set(c->gw->keys, c->args[1], c->body, c->body_n, err);
	OPENSSL_cleanse(c->body, c->body_n);
	if (rc)
		return rc;
	char f[KEY_TEXT] = "";
	struct ledger_record *r = ledger_record_new("event");
	ledger_text(r, "what", key_fingerprint(c->gw->keys, c->args[1], f) ? "key written" : "key removed");
	ledger_text(r, "key", c->args[1]);
	ledger_text(r, "fingerprint", f);
	r->done = ledger_record_free;
	record_now(c->gw, r);
	return 0;
}

int on_keys(struct control *c, struct buf *out, struct err *err)
{
	key_list(c->gw->keys, out);
	return 0;
}

int on_policy_get(struct control *c, struct buf *out, struct err *err)
{
	buf_adds(out, c->gw->policy->text);
	return 0;
}

/* Read as a whole, kept in its file, then swapped: requests that run keep the one they began with. */
int on_policy_set(struct control *c, struct buf *out, struct err *err)
{
	struct policy *p = NULL;
	CLEAN_FREE char *path = xasprintf("%s/policy", c->gw->dir);
	int rc = policy_parse(c->body, c->body_n, &p, err);
	if (!rc)
		rc = file_write(path, c->body, c->body_n, 0600, err);
	if (rc) {
		policy_put(p);
		return rc;
	}
	policy_put(c->gw->policy);
	c->gw->policy = p;
	struct ledger_record *r = ledger_record_new("event");
	ledger_text(r, "what", "policy changed");
	ledger_int(r, "bytes", (int64_t)c->body_n);
	r->done = ledger_record_free;
	record_now(c->gw, r);
	return 0;
}

/* ---- what is going on ---- */

int on_hello(struct control *c, struct buf *out, struct err *err)
{
	buf_addf(out, "%s %d\n", BERTHFS_VERSION, (int)getpid());
	return 0;
}

static int count(const struct list *l)
{
	int n = 0;
	list_each (i, l)
		n++;
	return n;
}

int on_status(struct control *c, struct buf *out, struct err *err)
{
	struct gw *g = c->gw;
	struct ledger_head h;
	ledger_head(g->ledger, &h);
	buf_addf(out,
		 "pid %d\nversion %s\nage %lld\nserved %llu\ndenied %llu\nrunning %d\ntunnels %d\nconnections "
		 "%d\ntokens %d\n",
		 (int)getpid(), BERTHFS_VERSION, (long long)(clock_mono_ms() - g->started_ms) / 1000,
		 (unsigned long long)g->served, (unsigned long long)g->denied, count(&g->calls), count(&g->tunnels),
		 g->n_conns, count(&g->tokens.all));
	buf_addf(out, "keys %s\nledger %s\nrecords %llu\nunknown %d\n",
		 keys_secret(g->keys) ? "secret memory" : "locked memory", h.failing ? "failing" : "ok",
		 (unsigned long long)h.seq, g->unknown);
	for (size_t i = 0; i < g->registries.n; i++)
		buf_addf(out, "registry %s\n", g->registries.p[i]);
	return 0;
}

int on_head(struct control *c, struct buf *out, struct err *err)
{
	return ledger_head_text(c->gw->ledger, out, err);
}

/* offset max: the size of all, a line feed, bytes */
int on_ledger(struct control *c, struct buf *out, struct err *err)
{
	struct ledger_head h;
	unsigned long long max = strtoull(c->args[2], NULL, 10);
	ledger_head(c->gw->ledger, &h);
	buf_addf(out, "%llu\n", (unsigned long long)h.bytes);
	return ledger_read(c->gw->ledger, strtoull(c->args[1], NULL, 10), max < CONTROL_BODY ? max : CONTROL_BODY, out,
			   err);
}

int on_activity(struct control *c, struct buf *out, struct err *err)
{
	struct gw *g = c->gw;
	int running = 0;
	list_each (i, &g->calls)
		running += !strcmp(list_entry(i, struct call, link)->token->session, c->args[1]);
	list_each (j, &g->tunnels)
		running += !strcmp(egress_token(egress_of(j))->session, c->args[1]);
	int64_t last = meter_last(&g->meter, c->args[1]);
	buf_addf(out, "%d %lld\n", running, last < 0 ? -1LL : (long long)(clock_mono_ms() - last));
	return 0;
}

/* listen sync: what a daemon's settings say now; an address - is none */
int on_options(struct control *c, struct buf *out, struct err *err)
{
	bool none = !strcmp(c->args[1], "-");
	ledger_sync_each(c->gw->ledger, !strcmp(c->args[2], "each"));
	return listen_set(c->gw, none ? NULL : c->args[1], err);
}
