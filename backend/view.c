/* Views: immutable, ref-counted pictures of sessions. Made on the store thread, read and dropped on any. */
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"

const char *const setting_names[SETTING_KINDS] = {"model", "network", "after-run", "ship", "approvals", "agent"};

struct live *live_make(int64_t run, bool running, const struct buf *text)
{
	struct live *l = xcalloc(1, sizeof *l);
	atomic_init(&l->refs, 1);
	l->run = run;
	l->running = running;
	if (text)
		buf_add(&l->text, text->p, text->n);
	return l;
}

static struct live *live_get(struct live *l)
{
	if (l)
		atomic_fetch_add(&l->refs, 1);
	return l;
}

void live_put(struct live *l)
{
	if (!l || atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	buf_release(&l->text);
	free(l);
}

static void texts(struct view *v, const struct session *s)
{
	v->text[TEXT_TRANSCRIPT] = (struct text_info){(uint64_t)s->md_size, s->transcript_ms};
	v->text[TEXT_JSONL] = (struct text_info){(uint64_t)s->json_size, s->transcript_ms};
	v->text[TEXT_PLAN] = (struct text_info){(uint64_t)s->plan_size,
						s->plan_ms > s->transcript_ms ? s->plan_ms : s->transcript_ms};
	v->text[TEXT_QUESTION] = (struct text_info){(uint64_t)s->question_size, s->transcript_ms};
	v->text[TEXT_ANSWER] = (struct text_info){(uint64_t)s->answer_size, s->transcript_ms};
	v->text[TEXT_CHECKS] = s->checks;
	v->text[TEXT_DIFF] = s->diff;
	v->text[TEXT_CHANGES] = s->changes;
	v->text[TEXT_COMMITS] = s->commits;
	v->text[TEXT_LOG] = (struct text_info){(uint64_t)s->log_size, s->log_ms};
	v->text[TEXT_USAGE] = (struct text_info){(uint64_t)s->usage_size, s->usage_ms};
	v->text[TEXT_QUEUE] = s->queue;
	for (int i = 0; i < TEXT_KINDS; i++)
		if (!v->text[i].changed_ms)
			v->text[i].changed_ms = s->created_ms;
}

static void values(struct view *v, const struct session *s)
{
	v->value[VALUE_STATUS] = session_status(s);
	v->uncommitted = xstrdup(s->state == STATE_IDLE ? s->uncommitted : "");
	v->value[VALUE_SANDBOX] = xstrdup(s->sandbox_state);
	v->value[VALUE_PROJECT] = xstrdup(s->project);
	v->value[VALUE_BRANCH] = xasprintf("sandbox/%" PRId64, s->id);
	v->value[VALUE_BASE] = xasprintf("%s %s", s->base_branch, s->base_commit);
	v->value[VALUE_SHIP] = xstrdup(s->ship_text);
	v->value_ms[VALUE_STATUS] = v->value_ms[VALUE_SANDBOX] = s->changed_ms;
	v->value_ms[VALUE_PROJECT] = v->value_ms[VALUE_BRANCH] = s->created_ms;
	v->value_ms[VALUE_BASE] = s->ship_ms ? s->ship_ms : s->created_ms;
	v->value_ms[VALUE_SHIP] = s->ship_ms ? s->ship_ms : s->created_ms;
	for (int i = 0; i < SETTING_KINDS; i++) {
		v->setting[i] = xstrdup(s->setting[i]);
		v->setting_ms[i] = s->settings_ms;
	}
}

struct view *view_make(const struct session *s)
{
	struct view *v = xcalloc(1, sizeof *v);
	atomic_init(&v->refs, 1);
	v->id = s->id;
	v->name = xstrdup(s->name);
	v->destroyed = s->destroyed_ms != 0;
	v->idle = session_idle(s);
	v->failed = s->state == STATE_FAILED;
	v->shipping = s->shipping;
	v->created_ms = s->created_ms;
	v->changed_ms = s->changed_ms;
	v->accepted = (uint64_t)s->accepted;
	v->unanswered = (uint64_t)s->unanswered;
	v->ships = (uint64_t)s->ships_done;
	v->version = s->version;
	v->live = live_get(s->live);
	v->n_attach = s->n_attach;
	if (s->n_attach) {
		v->attach = xmemdup(s->attach, s->n_attach * sizeof *s->attach);
		for (size_t i = 0; i < s->n_attach; i++)
			v->attach[i].name = xstrdup(s->attach[i].name);
	}
	v->approval = session_waits(s) ? (uint64_t)s->approval : 0;
	v->approval_text = v->approval ? xstrdup(s->approval_text) : NULL;
	v->approval_ms = s->approval_ms;
	v->grants = xstrdup(s->grants);
	texts(v, s);
	values(v, s);
	return v;
}

struct view *view_get(struct view *v)
{
	atomic_fetch_add(&v->refs, 1);
	return v;
}

void view_put(struct view *v)
{
	if (!v || atomic_fetch_sub(&v->refs, 1) != 1)
		return;
	for (int i = 0; i < VALUE_KINDS; i++)
		free(v->value[i]);
	for (int i = 0; i < SETTING_KINDS; i++)
		free(v->setting[i]);
	free(v->uncommitted);
	live_put(v->live);
	for (size_t i = 0; i < v->n_attach; i++)
		free(v->attach[i].name);
	free(v->attach);
	free(v->approval_text);
	free(v->grants);
	free(v->name);
	free(v);
}

struct root_view *root_view_get(struct root_view *v)
{
	atomic_fetch_add(&v->refs, 1);
	return v;
}

void root_view_put(struct root_view *v)
{
	if (!v || atomic_fetch_sub(&v->refs, 1) != 1)
		return;
	for (size_t i = 0; i < v->n_projects; i++) {
		free(v->projects[i].name);
		free(v->projects[i].path);
	}
	free(v->projects);
	for (size_t i = 0; i < v->n_templates; i++) {
		free(v->templates[i].name);
		free(v->templates[i].status);
	}
	free(v->templates);
	gateway_view_put(v->gateway);
	free(v->config);
	free(v->draft);
	free(v);
}

struct gateway_view *gateway_view_new(void)
{
	struct gateway_view *v = xcalloc(1, sizeof *v);
	atomic_init(&v->refs, 1);
	return v;
}

struct gateway_view *gateway_view_get(struct gateway_view *v)
{
	atomic_fetch_add(&v->refs, 1);
	return v;
}

void gateway_view_put(struct gateway_view *v)
{
	if (!v || atomic_fetch_sub(&v->refs, 1) != 1)
		return;
	for (size_t i = 0; i < v->n_keys; i++) {
		free(v->keys[i].name);
		free(v->keys[i].fingerprint);
	}
	free(v->keys);
	free(v->state);
	free(v->policy);
	free(v->draft);
	free(v->head);
	free(v->tokens);
	free(v);
}

struct request *request_new(enum request_kind kind, void (*done)(struct request *), void *arg)
{
	struct request *r = xcalloc(1, sizeof *r);
	r->kind = kind;
	r->done = done;
	r->arg = arg;
	return r;
}

void request_free(struct request *r)
{
	if (!r)
		return;
	free(r->name);
	free(r->project);
	free(r->cwd);
	if (r->kind == REQ_KEY && r->text.p)
		explicit_bzero(r->text.p, r->text.cap);
	buf_release(&r->text);
	buf_release(&r->out);
	free(r);
}

void note_free(struct note *n)
{
	view_put(n->view);
	root_view_put(n->root);
	free(n);
}
