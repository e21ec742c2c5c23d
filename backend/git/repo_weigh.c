/* How much there is to look at, before it is looked at. A commit of a few kilobytes can name more files than there is
 * memory for, since a folder may stand in a tree many times. libgit2 only; worker threads. */
#include <errno.h>
#include <string.h>

#include "repo_private.h"

struct weighing {
	git_repository *repo;
	git_odb *odb;
	struct lg_weight *weight;
};

static int walk(struct weighing *w, const git_tree *a, const git_tree *b, int depth);

/* Adds what one side has at a place, or the difference of two folders. 1: too much. */
static int add(struct weighing *w, const git_tree_entry *a, const git_tree_entry *b, int depth)
{
	const git_tree_entry *sides[] = {a, b};
	git_tree *trees[2] = {NULL, NULL};
	int rc = 0;
	for (int i = 0; i < 2 && !rc; i++) {
		git_object_t type = sides[i] ? git_tree_entry_type(sides[i]) : GIT_OBJECT_INVALID;
		size_t size = 0;
		git_object_t found;
		if (type == GIT_OBJECT_TREE)
			rc = git_tree_lookup(&trees[i], w->repo, git_tree_entry_id(sides[i]));
		else if (sides[i])
			rc = ++w->weight->files > LG_FILES_MAX;
		if (!rc && type == GIT_OBJECT_BLOB &&
		    !git_odb_read_header(&size, &found, w->odb, git_tree_entry_id(sides[i])))
			w->weight->bytes += size;
	}
	if (!rc && (trees[0] || trees[1]))
		rc = walk(w, trees[0], trees[1], depth + 1);
	git_tree_free(trees[0]);
	git_tree_free(trees[1]);
	return rc;
}

/* Both in git's order: what stands on one side alone is added as such. A file and a folder of one name are not paired,
 * which weighs no less. */
static int walk(struct weighing *w, const git_tree *a, const git_tree *b, int depth)
{
	size_t i = 0, j = 0, n = a ? git_tree_entrycount(a) : 0, m = b ? git_tree_entrycount(b) : 0;
	int rc = depth > LG_DEPTH_MAX;
	while (!rc && (i < n || j < m)) {
		const git_tree_entry *x = i < n ? git_tree_entry_byindex(a, i) : NULL;
		const git_tree_entry *y = j < m ? git_tree_entry_byindex(b, j) : NULL;
		int order = !x ? 1 : !y ? -1 : git_tree_entry_cmp(x, y);
		i += order <= 0;
		j += order >= 0;
		if (order == 0 && git_oid_equal(git_tree_entry_id(x), git_tree_entry_id(y)))
			continue;
		rc = add(w, order <= 0 ? x : NULL, order >= 0 ? y : NULL, depth);
	}
	return rc;
}

int lg_weigh(git_repository *repo, const git_tree *a, const git_tree *b, struct lg_weight *out, struct err *err)
{
	struct weighing w = {.repo = repo, .weight = out};
	*out = (struct lg_weight){0};
	int rc = git_repository_odb(&w.odb, repo);
	if (!rc)
		rc = walk(&w, a, b, 0);
	git_odb_free(w.odb);
	return rc < 0 ? lg_err(err, rc, "cannot read a commit's files") : rc;
}
