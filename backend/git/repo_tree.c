/* The tree of one commit, read entry by entry. libgit2 only, but for large blobs, which git itself writes to a file:
 * libgit2 would hold them in memory. Worker threads. */
#include <errno.h>
#include <string.h>

#include "backend/base/mem.h"
#include "repo_private.h"

struct repo_tree {
	git_repository *repo;
	git_odb *odb;
	git_tree *top;
};

LG_CLEANER(git_object, git_object_free)

void repo_tree_free(struct repo_tree *t)
{
	if (!t)
		return;
	git_tree_free(t->top);
	git_odb_free(t->odb);
	git_repository_free(t->repo);
	free(t);
}

int repo_tree_open(const char *path, const char *commit, struct repo_tree **out, struct err *err)
{
	CLEAN_GIT(git_commit) *c = NULL;
	struct repo_tree *t = xcalloc(1, sizeof *t);
	int rc = lg_open(path, &t->repo, err);
	rc = rc ? rc : lg_commit(t->repo, commit, &c, err);
	if (!rc && ((rc = git_repository_odb(&t->odb, t->repo)) || (rc = git_commit_tree(&t->top, c))))
		rc = lg_err(err, rc, "cannot read the files of a commit");
	if (rc)
		repo_tree_free(t);
	else
		*out = t;
	return rc;
}

static void fill(const git_tree_entry *e, struct repo_entry *out)
{
	out->mode = git_tree_entry_filemode(e);
	git_oid_tostr(out->object, sizeof out->object, git_tree_entry_id(e));
}

static int find_entry(struct repo_tree *t, const char *file, git_tree_entry **out, struct err *err)
{
	int rc = git_tree_entry_bypath(out, t->top, file);
	if (rc == GIT_ENOTFOUND)
		return err_set(err, ENOENT, "there is no file %.200s in this commit", file);
	return rc ? lg_err(err, rc, "cannot look up a file of a commit") : 0;
}

int repo_tree_find(struct repo_tree *t, const char *file, struct repo_entry *out, struct err *err)
{
	CLEAN_GIT(git_tree_entry) *e = NULL;
	git_object_t type;
	size_t size;
	*out = (struct repo_entry){.mode = GIT_FILEMODE_TREE};
	if (!*file) {
		git_oid_tostr(out->object, sizeof out->object, git_tree_id(t->top));
		return 0;
	}
	int rc = find_entry(t, file, &e, err);
	if (rc)
		return rc;
	fill(e, out);
	if (out->mode == GIT_FILEMODE_TREE || out->mode == GIT_FILEMODE_COMMIT)
		return 0;
	if ((rc = git_odb_read_header(&size, &type, t->odb, git_tree_entry_id(e))))
		return lg_err(err, rc, "cannot read the size of a file");
	out->size = size;
	return 0;
}

int repo_tree_list(struct repo_tree *t, const char *dir,
		   void (*each)(void *arg, const char *name, const struct repo_entry *entry), void *arg,
		   struct err *err)
{
	CLEAN_GIT(git_tree_entry) *e = NULL;
	CLEAN_GIT(git_tree) *below = NULL;
	int rc = *dir ? find_entry(t, dir, &e, err) : 0;
	if (rc)
		return rc;
	if (e && git_tree_entry_filemode(e) == GIT_FILEMODE_COMMIT)
		return 0; /* a submodule: its files are not in this repository */
	if (e && git_tree_entry_filemode(e) != GIT_FILEMODE_TREE)
		return err_set(err, ENOTDIR, "%.200s is no folder in this commit", dir);
	if (e && (rc = git_tree_lookup(&below, t->repo, git_tree_entry_id(e))))
		return lg_err(err, rc, "cannot read a folder of a commit");
	const git_tree *tree = below ? below : t->top;
	for (size_t i = 0, n = git_tree_entrycount(tree); i < n; i++) {
		const git_tree_entry *entry = git_tree_entry_byindex(tree, i);
		struct repo_entry info = {0};
		fill(entry, &info);
		each(arg, git_tree_entry_name(entry), &info);
	}
	return 0;
}

int repo_blob(struct repo_tree *t, const char *object, struct buf *out, struct err *err)
{
	CLEAN_GIT(git_blob) *blob = NULL;
	git_oid id;
	int rc = lg_oid(object, &id, err);
	if (rc)
		return rc;
	if ((rc = git_blob_lookup(&blob, t->repo, &id)))
		return lg_err(err, rc, "cannot read a file of a commit");
	buf_add(out, git_blob_rawcontent(blob), (size_t)git_blob_rawsize(blob));
	return 0;
}

int repo_blob_size(struct repo_tree *t, const char *object, uint64_t *size, struct err *err)
{
	git_oid id;
	git_object_t type;
	size_t n;
	int rc = lg_oid(object, &id, err);
	if (rc)
		return rc;
	if ((rc = git_odb_read_header(&n, &type, t->odb, &id)))
		return lg_err(err, rc, "cannot read the size of a file");
	*size = n;
	return type == GIT_OBJECT_BLOB ? 0 : err_set(err, EISDIR, "%s is no file", object);
}

int repo_blob_to_fd(const char *path, const char *object, int fd, struct err *err)
{
	CLEAN_BUF struct buf said = BUF_INIT;
	const char *args[] = {"cat-file", "blob", object, NULL};
	struct git_call c = {.path = path, .args = args, .errout = &said, .out_fd = fd, .timeout_ms = GIT_LOCAL_MS};
	int rc = git_call(&c, err);
	return rc > 0 ? git_said(err, EIO, &said, "cannot read a file of a commit") : rc;
}
