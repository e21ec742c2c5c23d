/* See templates.h. */
#include "templates.h"

#include <inttypes.h>
#include <string.h>

#include "backend/base/mem.h"
#include "face.h"
#include "ino.h"
#include "watchers.h"

static const struct template_info *find(const struct root_view *v, int64_t id)
{
	for (size_t i = 0; v && i < v->n_templates; i++)
		if (v->templates[i].id == id)
			return &v->templates[i];
	return NULL;
}

const struct template_info *template_by_id(const struct face *f, int64_t id)
{
	return find(f->root, id);
}

const struct template_info *template_by_name(const struct face *f, const char *name)
{
	for (size_t i = 0; f->root && i < f->root->n_templates; i++)
		if (!strcmp(f->root->templates[i].name, name))
			return &f->root->templates[i];
	return NULL;
}

const struct template_info *template_after(const struct face *f, int64_t id)
{
	for (size_t i = 0; f->root && i < f->root->n_templates; i++) /* sorted */
		if (f->root->templates[i].id > id)
			return &f->root->templates[i];
	return NULL;
}

bool file_of_template(const struct file *file)
{
	return file->place == PLACE_TEMPLATE || file->place == PLACE_TEMPLATES;
}

void show_template_status(const struct spot *at, struct buf *out)
{
	const struct template_info *t = template_by_id(at->f, at->number);
	if (t)
		buf_addf(out, "%s\n", t->status);
}

void show_template_size(const struct spot *at, struct buf *out)
{
	const struct template_info *t = template_by_id(at->f, at->number);
	if (t)
		buf_addf(out, "%" PRIu64 "\n", t->size);
}

int64_t changed_template(const struct spot *at)
{
	const struct template_info *t = template_by_id(at->f, at->number);
	return t ? t->changed_ms : at->f->started_ms;
}

static void changed(struct face *f, int64_t id, const char *name, bool event)
{
	const struct file *file = name ? tree_find(PLACE_TEMPLATE, name) : tree_unnamed(PLACE_TEMPLATES, KIND_DIR);
	watchers_changed(f, ino_pack(id, tree_row(file)), event);
}

static void gone(struct face *f, int64_t id)
{
	static const char *const names[] = {NULL, "status", "log", "size"};
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		changed(f, id, names[i], false);
}

void changes_of_templates(struct face *f, const struct root_view *old, const struct root_view *new)
{
	bool list = false;
	for (size_t i = 0; i < old->n_templates; i++)
		if (!find(new, old->templates[i].id)) {
			gone(f, old->templates[i].id);
			watchers_template(f, &old->templates[i], false);
			list = true;
		}
	for (size_t i = 0; i < new->n_templates; i++) {
		const struct template_info *t = &new->templates[i], *was = find(old, t->id);
		if (!was) {
			list = true;
			watchers_template(f, t, true);
			continue;
		}
		if (strcmp(was->status, t->status)) {
			changed(f, t->id, NULL, false);
			changed(f, t->id, "status", true);
		}
		if (was->size != t->size)
			changed(f, t->id, "size", true);
		if (was->log.size != t->log.size)
			changed(f, t->id, "log", true);
	}
	if (list)
		watchers_changed(f, ino_pack(0, tree_row(tree_find(PLACE_ROOT, "templates"))), false);
}
