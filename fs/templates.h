/* templates/: what is shown of saved sandboxes. Loop thread only; memory only. */
#pragma once
#include "tree.h"

struct face;

/* NULL: there is none (any more). */
const struct template_info *template_by_id(const struct face *f, int64_t id);
const struct template_info *template_by_name(const struct face *f, const char *name);
/* The first whose id is greater; NULL. */
const struct template_info *template_after(const struct face *f, int64_t id);
/* Is the number in the inode of such a row a template's id? */
bool file_of_template(const struct file *file);

void show_template_status(const struct spot *at, struct buf *out);
void show_template_size(const struct spot *at, struct buf *out);
int64_t changed_template(const struct spot *at);

/* Tells caches and watchers what is new. */
void changes_of_templates(struct face *f, const struct root_view *old, const struct root_view *new);
