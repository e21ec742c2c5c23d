/* The face's table of sessions and projects, kept by the backend's notes. Loop thread only; memory only. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "aside.h"
#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "changes.h"
#include "drop.h"
#include "face.h"
#include "handle.h"
#include "keys.h"
#include "ops.h"
#include "polls.h"
#include "refuse.h"
#include "watchers.h"

/* ---- sessions ---- */

size_t session_after(const struct face *f, int64_t id)
{
	size_t lo = 0, hi = f->n_sessions;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (f->sessions[mid]->id <= id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct session *session_by_id(const struct face *f, int64_t id)
{
	size_t i = session_after(f, id - 1);
	return i < f->n_sessions && f->sessions[i]->id == id ? f->sessions[i] : NULL;
}

struct session *session_by_name(const struct face *f, const char *name)
{
	size_t digits = strspn(name, "0123456789");
	if (!digits || name[digits] || name[0] == '0' || digits > 16) /* a name is never all digits */
		return map_get(&f->names, name);
	return session_by_id(f, strtoll(name, NULL, 10));
}

static struct session *session_add(struct face *f, struct view *view)
{
	struct session *s = xcalloc(1, sizeof *s);
	s->id = view->id;
	list_init(&s->nodes);
	list_init(&s->waits);
	list_init(&s->polls);
	if (f->n_sessions == f->cap_sessions) {
		f->cap_sessions = f->cap_sessions ? f->cap_sessions * 2 : 64;
		f->sessions = xrealloc(f->sessions, f->cap_sessions * sizeof *f->sessions);
	}
	size_t i = session_after(f, s->id); /* ids grow: the end, but while the database is read */
	memmove(f->sessions + i + 1, f->sessions + i, (f->n_sessions - i) * sizeof *f->sessions);
	f->sessions[i] = s;
	f->n_sessions++;
	return s;
}

static void session_free(struct session *s)
{
	while (!list_empty(&s->nodes)) /* the kernel may know them still */
		list_remove(s->nodes.next);
	ring_free(s->errors);
	view_put(s->view);
	free(s);
}

static void session_end(struct face *f, struct session *s)
{
	while (!list_empty(&s->waits))
		op_error(list_entry(s->waits.next, struct op, wait), -ESHUTDOWN);
	poll_end(&s->polls);
	watchers_died(f, s, rmdir_waits(f, s->id));
	drop_session_left(f, s->id);
	attach_session_ended(f, s->id);
	map_put(&f->names, s->view->name, NULL);
	size_t i = session_after(f, s->id) - 1;
	memmove(f->sessions + i, f->sessions + i + 1, (f->n_sessions - i - 1) * sizeof *f->sessions);
	f->n_sessions--;
	session_free(s);
	asides_session_left(f);
}

static void index_changed(struct face *f)
{
	f->version++;
	f->version_ms = clock_real_ms();
}

static void take_end(struct face *f, struct view *view)
{
	struct session *s = session_by_id(f, view->id);
	if (s) {
		index_changed(f);
		session_end(f, s);
		f->sessions_ms = f->version_ms;
		changes_of_sessions(f);
	}
	view_put(view);
}

static void take_name(struct face *f, struct session *s, const struct view *old, const struct view *view)
{
	if (old && !strcmp(old->name, view->name))
		return;
	if (old)
		drop_session_left(f, s->id);
	if (old && map_get(&f->names, old->name) == s)
		map_put(&f->names, old->name, NULL);
	map_put(&f->names, view->name, s);
	if (old)
		watchers_renamed(f, view->name);
	f->sessions_ms = f->ready ? clock_real_ms() : view->changed_ms;
}

void face_take_view(struct face *f, struct view *view)
{
	if (view->destroyed) {
		take_end(f, view);
		return;
	}
	struct session *s = session_by_id(f, view->id);
	struct view *old = s ? s->view : NULL;
	bool row = changes_index(old, view);
	if (!s)
		s = session_add(f, view);
	if (row)
		index_changed(f);
	take_name(f, s, old, view);
	s->view = view;
	if (old)
		changes_of_view(f, old, view);
	else
		watchers_born(f, s);
	if (!old || strcmp(old->name, view->name))
		changes_of_sessions(f);
	else if (row)
		changes_of_index(f);
	ops_wake(&s->waits); /* ops still compare with what they saw: the old view goes afterwards */
	poll_wake(&s->polls);
	if (old)
		view_put(old);
}

void face_forget_sessions(struct face *f)
{
	for (size_t i = 0; i < f->n_sessions; i++)
		session_free(f->sessions[i]);
	free(f->sessions);
	f->sessions = NULL;
	f->n_sessions = f->cap_sessions = 0;
	map_release(&f->names);
	for (size_t i = 0; i < f->n_project_names; i++)
		free(f->project_names[i]);
	free(f->project_names);
	keys_forget(f);
	if (f->root)
		root_view_put(f->root);
	f->root = NULL;
}

/* ---- the whole ---- */

static size_t project_index(const struct face *f, const char *name)
{
	size_t i = 0;
	while (i < f->n_project_names && strcmp(f->project_names[i], name))
		i++;
	return i;
}

void face_take_root(struct face *f, struct root_view *root)
{
	for (size_t i = 0; i < root->n_projects; i++) {
		size_t n = project_index(f, root->projects[i].name);
		if (n < f->n_project_names)
			continue;
		f->project_names = xrealloc(f->project_names, (n + 1) * sizeof *f->project_names);
		f->project_names[f->n_project_names++] = xstrdup(root->projects[i].name);
	}
	keys_take(f, root->gateway);
	struct root_view *old = f->root;
	if (changes_status(old, root))
		index_changed(f);
	f->root = root;
	if (old)
		changes_of_root(f, old, root);
	if (old)
		root_view_put(old);
	poll_wake(&f->polls);
}

const struct project_info *project_by_name(const struct face *f, const char *name)
{
	for (size_t i = 0; f->root && i < f->root->n_projects; i++)
		if (!strcmp(f->root->projects[i].name, name))
			return &f->root->projects[i];
	return NULL;
}

int64_t project_number(const struct face *f, const char *name)
{
	return project_by_name(f, name) ? (int64_t)project_index(f, name) + 1 : 0;
}

const struct project_info *project_by_number(const struct face *f, int64_t number)
{
	if (number < 1 || (size_t)number > f->n_project_names)
		return NULL;
	return project_by_name(f, f->project_names[number - 1]);
}
