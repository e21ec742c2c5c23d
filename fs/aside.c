/* Backups and auto-saves of editors in closed directories. Loop thread only.
 *
 * Neovim does not save a file at all if it cannot make its backup NAME~ beside it, Emacs shows a warning if it cannot
 * make its auto-save file #NAME#, and what nano rescues as NAME.save when its terminal goes would be lost. So these,
 * and only of a file that may be written, are kept in memory; and Watchman's cookies, whose coming it has to see before
 * it answers any question about a tree. No listing shows them, nothing is done with them, and they cannot be renamed: a
 * file of the tree is still saved in place or not at all. Backups and cookies are for a moment and go after a while;
 * the others stay until they are removed, the session ends or the daemon does. */
#include "aside.h"

#include <errno.h>
#include <string.h>

#include "drop_box.h"
#include "node.h"
#include "refuse.h"

#define COOKIE	  ".watchman-cookie-"
#define BACKUP_MS 60000 /* far more than a save takes */

/* Is of[0..n) the name of a file that may be written; or all but its last character, if any_last? */
static bool is_of_file(enum place place, const char *of, size_t n, bool any_last)
{
	for (unsigned row = 1; row < tree_rows; row++) {
		const struct file *file = &tree[row];
		if (file->place != place || !file->name || file->kind == KIND_DIR || !file_writable(file))
			continue;
		if (strlen(file->name) == n && !memcmp(file->name, of, any_last ? n - 1 : n))
			return true;
	}
	return false;
}

bool aside_allowed(const struct spot *dir, const char *name)
{
	size_t n = strlen(name);
	enum place place = dir->file->inside;
	if (!strncmp(name, COOKIE, sizeof COOKIE - 1))
		return true;
	if (n > 1 && name[n - 1] == '~') /* vim and neovim take confiz~, confiy~... where config~ is there */
		return is_of_file(place, name, n - 1, true);
	if (n > 2 && name[0] == '#' && name[n - 1] == '#')
		return is_of_file(place, name + 1, n - 2, false);
	return n > 5 && !strcmp(name + n - 5, ".save") && is_of_file(place, name, n - 5, false);
}

struct draft *aside_find(const struct face *f, uint64_t dir, const char *name)
{
	list_each (pos, &f->asides) {
		struct draft *d = list_entry(pos, struct draft, link);
		if (d->beside == dir && !strcmp(d->name, name))
			return d;
	}
	return NULL;
}

static void backup_over(struct timer *t)
{
	struct draft *d = list_entry(t, struct draft, grace);
	if (draft_is_open(d))
		timer_set(d->f, t, BACKUP_MS, backup_over);
	else
		draft_unlist(d);
}

void aside_create(const struct spot *dir, fuse_req_t req, const char *name, int flags)
{
	struct face *f = dir->f;
	struct draft *d = aside_find(f, dir->ino, name);
	int rc = 0;
	if (d && flags & O_EXCL)
		rc = -EEXIST; /* made by another since the kernel looked */
	else if (!d && f->n_drafts >= DRAFTS_MAX)
		rc = refuse_at(dir, name, ENOSPC,
			       "too many drafts and backups are kept; remove some from sessions/new");
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	if (!d)
		d = draft_beside(dir, name);
	if (name[0] == '.' || name[strlen(name) - 1] == '~')
		timer_set(f, &d->grace, BACKUP_MS, backup_over);
	draft_open_new(d, req, flags);
}

bool aside_unlink(const struct spot *dir, fuse_req_t req, const char *name)
{
	struct draft *d = aside_find(dir->f, dir->ino, name);
	if (!d)
		return false;
	draft_unlist(d);
	fuse_reply_err(req, 0);
	return true;
}

void asides_session_left(struct face *f)
{
	struct spot at;
	list_each_safe (pos, &f->asides) {
		struct draft *d = list_entry(pos, struct draft, link);
		if (spot_of(f, d->beside, &at))
			draft_unlist(d);
	}
}

void asides_release(struct face *f)
{
	while (!list_empty(&f->asides))
		draft_unlist(list_entry(f->asides.next, struct draft, link));
}
