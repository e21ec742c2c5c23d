/* Which files a new view changes. A view says all that there is to know of a session, and most of it stays from one to
 * the next; caches and watchers are to hear of the rest alone. Loop thread only; memory only. */
#include "changes.h"

#include <string.h>

#include "face.h"
#include "ino.h"
#include "keys.h"
#include "show.h"
#include "templates.h"
#include "watchers.h"

static bool same(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

static bool text_differs(const struct text_info *a, const struct text_info *b)
{
	return a->size != b->size || a->changed_ms != b->changed_ms;
}

static bool row_differs(const struct file *file, const struct view *a, const struct view *b)
{
	switch (file->kind) {
	case KIND_SNAPSHOT:
	case KIND_GROWING: return text_differs(&a->text[file->text], &b->text[file->text]);
	case KIND_DIR:
		if (file->inside == PLACE_APPROVALS)
			return a->approval != b->approval;
		if (file->inside == PLACE_FILES)
			return text_differs(&a->text[TEXT_COMMITS], &b->text[TEXT_COMMITS]);
		return a->changed_ms != b->changed_ms;
	case KIND_WAIT: return a->changed_ms != b->changed_ms;
	default: break;
	}
	if (file->show == show_value)
		return a->value_ms[file->value] != b->value_ms[file->value] ||
		       !same(a->value[file->value], b->value[file->value]);
	if (file->show == show_approval)
		return a->approval != b->approval;
	if (file->show == show_approvals && !same(a->grants, b->grants))
		return true;
	if (file->show == show_setting || file->show == show_approvals)
		return a->setting_ms[file->setting] != b->setting_ms[file->setting] ||
		       !same(a->setting[file->setting], b->setting[file->setting]);
	return false;
}

void changes_of_view(struct face *f, const struct view *old, const struct view *new)
{
	watchers_attach(f, old, new);
	if (old->approval != new->approval)
		watchers_approval(f, new, old->approval);
	for (unsigned row = 1; row < tree_rows; row++) {
		const struct file *file = &tree[row];
		bool of_session = file_of_session(file);
		if (of_session && row_differs(file, old, new))
			watchers_changed(f, ino_pack(new->id, row), file->kind != KIND_DIR && file->kind != KIND_WAIT);
	}
}

static void changed(struct face *f, const char *name, bool event)
{
	watchers_changed(f, ino_pack(0, tree_row(tree_find(PLACE_ROOT, name))), event);
}

bool changes_index(const struct view *old, const struct view *new)
{
	static const enum value_kind columns[] = {VALUE_STATUS, VALUE_PROJECT, VALUE_BRANCH};
	if (!old || !same(old->name, new->name) || old->created_ms != new->created_ms)
		return true;
	for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
		if (!same(old->value[columns[i]], new->value[columns[i]]))
			return true;
	return false;
}

void changes_of_index(struct face *f)
{
	changed(f, "index", true);
	changed(f, "status", true);
}

void changes_of_sessions(struct face *f)
{
	changed(f, "sessions", false);
	changes_of_index(f);
}

/* In what `status` tells of it. */
static bool gateway_differs(const struct gateway_view *a, const struct gateway_view *b)
{
	return a != b && (!a || !b || !same(a->state, b->state) || !a->draft != !b->draft);
}

bool changes_status(const struct root_view *old, const struct root_view *new)
{
	return !old || old->workers != new->workers || old->n_projects != new->n_projects ||
	       !old->draft != !new->draft || gateway_differs(old->gateway, new->gateway);
}

static void changed_in(struct face *f, enum place place, const char *name, bool event)
{
	watchers_changed(f, ino_pack(0, tree_row(tree_find(place, name))), event);
}

static const struct gateway_key *key_in(const struct gateway_view *v, const char *name)
{
	for (size_t i = 0; i < v->n_keys; i++)
		if (!strcmp(v->keys[i].name, name))
			return &v->keys[i];
	return NULL;
}

static void changes_of_gateway(struct face *f, const struct gateway_view *old, const struct gateway_view *new)
{
	if (old == new || !old || !new)
		return;
	if (text_differs(&old->ledger, &new->ledger))
		changed_in(f, PLACE_GATEWAY, "ledger", true);
	if (!same(old->head, new->head))
		changed_in(f, PLACE_GATEWAY, "head", true);
	if (!same(old->tokens, new->tokens))
		changed_in(f, PLACE_GATEWAY, "tokens", true);
	if (!same(old->policy, new->policy) || !same(old->draft, new->draft))
		changed_in(f, PLACE_GATEWAY, "policy", true);
	if (old->keys_ms != new->keys_ms)
		changed_in(f, PLACE_GATEWAY, "keys", false);
	unsigned row = tree_row(tree_unnamed(PLACE_KEYS, KIND_KEY));
	for (size_t i = 0; i < new->n_keys; i++) {
		const struct gateway_key *was = key_in(old, new->keys[i].name);
		if (!was || !same(was->fingerprint, new->keys[i].fingerprint))
			watchers_changed(f, ino_pack(key_number(f, new->keys[i].name), row), was != NULL);
	}
}

void changes_of_root(struct face *f, const struct root_view *old, const struct root_view *new)
{
	if (text_differs(&old->events, &new->events))
		changed(f, "events", true);
	if (old->config_ms != new->config_ms || !same(old->config, new->config) || !same(old->draft, new->draft))
		changed(f, "config", true);
	if (old->projects_ms != new->projects_ms)
		changed(f, "projects", false);
	if (changes_status(old, new))
		changed(f, "status", true);
	changes_of_gateway(f, old->gateway, new->gateway);
	changes_of_templates(f, old, new);
}

void changes_of_errors(struct face *f, int64_t session)
{
	changed(f, "error", true);
	if (session)
		watchers_changed(f, ino_pack(session, tree_row(tree_find(PLACE_SESSION, "error"))), true);
}
