/* What a checkout is and holds: discovery, HEAD, branches, ancestry, files. Reads only. Worker threads; keeps no state.
 */
#include "repo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "repo_private.h"

/* Formats that change nothing for what we read: missing objects of a partial clone are fetched by git itself, and
 * per-worktree settings matter to the work tree only, which libgit2 never touches here. */
static const char *known_extensions[] = {"partialclone", "worktreeconfig", "preciousobjects"};

int repo_begin(struct err *err)
{
	if (git_libgit2_init() < 0)
		return lg_err(err, GIT_ERROR, "cannot start libgit2");
	git_libgit2_opts(GIT_OPT_SET_EXTENSIONS, known_extensions, ARRAY_LEN(known_extensions));
	/* Whom to trust is git's to judge (safe.directory): repo_discover() asks it, and libgit2 runs nothing. */
	git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0);
	return 0;
}

void repo_end(void)
{
	git_libgit2_shutdown();
}

/* ---- helpers over libgit2 ---- */

int lg_err(struct err *err, int rc, const char *what)
{
	const git_error *last = git_error_last();
	int code = rc == GIT_ENOTFOUND ? ENOENT : rc == GIT_EEXISTS ? EEXIST : rc == GIT_ELOCKED ? EBUSY : EIO;
	if (last && strstr(last->message, strerror(ENOSPC)))
		code = ENOSPC;
	return err_set(err, code, "%s: %s", what, last && last->message ? last->message : "unknown reason");
}

int lg_open(const char *path, git_repository **out, struct err *err)
{
	int rc = git_repository_open(out, path);
	if (!rc)
		return 0;
	CLEAN_FREE char *what = xasprintf("cannot read the checkout %s", path);
	return lg_err(err, rc, what);
}

int lg_oid(const char *hex, git_oid *out, struct err *err)
{
	if (strlen(hex) != GIT_OID_HEXSZ || git_oid_fromstr(out, hex))
		return err_set(err, EINVAL, "%.60s is no commit name", hex);
	return 0;
}

int lg_commit(git_repository *repo, const char *hex, git_commit **out, struct err *err)
{
	git_oid id;
	int rc = lg_oid(hex, &id, err);
	if (rc)
		return rc;
	rc = git_commit_lookup(out, repo, &id);
	if (rc == GIT_ENOTFOUND)
		return err_set(err, ENOENT, "commit %s is not in %s", hex, git_repository_path(repo));
	return rc ? lg_err(err, rc, "cannot read a commit") : 0;
}

/* libgit2 walks past the cut of a shallow clone and finds nothing there; git knows where to stop. */
int lg_descends(git_repository *repo, const char *path, const char *older, const char *newer, struct err *err)
{
	git_oid a, b;
	int rc = lg_oid(older, &a, err);
	rc = rc ? rc : lg_oid(newer, &b, err);
	if (rc)
		return rc;
	if (git_oid_equal(&a, &b))
		return 1;
	if (!git_repository_is_shallow(repo)) {
		rc = git_graph_descendant_of(repo, &b, &a);
		return rc < 0 ? lg_err(err, rc, "cannot compare two commits") : rc;
	}
	CLEAN_BUF struct buf said = BUF_INIT;
	const char *args[] = {"merge-base", "--is-ancestor", older, newer, NULL};
	struct git_call c = {.path = path, .args = args, .errout = &said, .timeout_ms = GIT_LOCAL_MS};
	rc = git_call(&c, err);
	return rc < 0 ? rc : rc > 1 ? git_said(err, EIO, &said, "cannot compare two commits") : !rc;
}

/* ---- discovery ---- */

static int no_checkout(const char *path, const struct buf *out, const struct buf *said, struct err *err)
{
	const char *words = buf_str(said);
	if (strstr(words, "dubious ownership"))
		return err_set(err, EACCES,
			       "git does not trust %s, which belongs to another user; if you do: "
			       "git config --global --add safe.directory %s",
			       path, path);
	if (!strncmp(buf_str(out), "true", 4))
		return err_set(err, ENOENT, "%s is a bare repository; a session needs a checkout (git clone %s)", path,
			       path);
	if (strstr(words, "must be run in a work tree"))
		return err_set(err, ENOENT, "%s lies in a git folder; name the checkout above it", path);
	if (strstr(words, "not a git repository"))
		return err_set(err, ENOENT,
			       "%s is no git checkout; name one, or make it one with git init and a commit", path);
	if (strstr(words, "extension") || strstr(words, "version"))
		return git_said(err, EOPNOTSUPP, said, "this repository has a format that is not supported");
	return git_said(err, ENOENT, said, path);
}

static char *folder_of(const char *path, struct err *err)
{
	struct stat st;
	if (stat(path, &st)) {
		err_sys(err, errno, "%s", path);
		return NULL;
	}
	char *dir = realpath(path, NULL);
	if (!dir) {
		err_sys(err, errno, "%s", path);
		return NULL;
	}
	if (!S_ISDIR(st.st_mode)) {
		char *slash = strrchr(dir, '/');
		slash[slash == dir] = 0;
	}
	return dir;
}

/* Refuses what could not be worked with later: no commit, or a format that libgit2 cannot read. */
static int usable(const char *top, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	int rc = git_repository_open(&repo, top);
	if (rc) {
		rc = lg_err(err, rc, top);
		if (err)
			err->code = EOPNOTSUPP;
		return rc == -ENOSPC ? rc : -EOPNOTSUPP;
	}
	rc = git_repository_head_unborn(repo);
	if (rc == 1)
		return err_set(err, ENOENT, "%s has no commit yet; a session starts from one: git commit first", top);
	return rc < 0 ? lg_err(err, rc, top) : 0;
}

int repo_discover(const char *path, char **top, struct err *err)
{
	CLEAN_FREE char *dir = folder_of(path, err);
	if (!dir)
		return -(err && err->code ? err->code : ENOENT);
	CLEAN_BUF struct buf out = BUF_INIT, said = BUF_INIT;
	const char *args[] = {"rev-parse", "--is-bare-repository", "--show-toplevel", NULL};
	struct git_call c = {.path = dir, .args = args, .out = &out, .errout = &said, .timeout_ms = GIT_LOCAL_MS};
	int rc = git_call(&c, err);
	if (rc < 0)
		return rc;
	/* a path may hold newlines: all between the first line and the last newline is the path */
	const char *at = strchr(buf_str(&out), '\n');
	if (rc > 0 || !at || !at[1])
		return no_checkout(path, &out, &said, err);
	CLEAN_FREE char *found = xstrndup(at + 1, strlen(at + 1) - 1);
	rc = usable(found, err);
	if (!rc)
		*top = take(found);
	return rc;
}

/* ---- HEAD ---- */

/* "Ann O <ann@x> 1700000000 +0100" as git itself would write it now. Without a usable identity both stay NULL. */
static void identity(const char *path, struct repo_head *h)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	if (git_must(path, (const char *const[]){"var", "GIT_AUTHOR_IDENT", NULL}, &out, "", NULL))
		return;
	const char *open = strstr(buf_str(&out), " <"), *shut = open ? strchr(open, '>') : NULL;
	if (!shut)
		return;
	h->name = xstrndup(out.p, (size_t)(open - out.p));
	h->email = xstrndup(open + 2, (size_t)(shut - open - 2));
}

static int count_uncommitted(const char *path, size_t *n, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	const char *args[] = {
		"status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=dirty",
		NULL};
	int rc = git_must(path, args, &out, "cannot tell what is uncommitted", err);
	*n = 0;
	for (size_t i = 0; i < out.n; i++)
		*n += out.p[i] == 0;
	return rc;
}

int repo_tip(const char *path, struct repo_head *out, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_GIT(git_reference) *head = NULL;
	*out = (struct repo_head){0};
	int rc = lg_open(path, &repo, err);
	if (rc)
		return rc;
	rc = git_repository_head(&head, repo);
	if (rc)
		return rc == GIT_EUNBORNBRANCH ? err_set(err, ENOENT, "%s has no commit yet", path)
					       : lg_err(err, rc, path);
	git_oid_tostr(out->commit, sizeof out->commit, git_reference_target(head));
	if (git_reference_is_branch(head))
		out->branch = xstrdup(git_reference_shorthand(head));
	return 0;
}

int repo_head(const char *path, struct repo_head *out, struct err *err)
{
	int rc = repo_tip(path, out, err);
	if (rc)
		return rc;
	identity(path, out);
	rc = count_uncommitted(path, &out->uncommitted, err);
	if (rc)
		repo_head_release(out);
	return rc;
}

void repo_head_release(struct repo_head *h)
{
	free(h->branch);
	free(h->name);
	free(h->email);
	*h = (struct repo_head){0};
}

/* ---- what does not come along ---- */

#define FILES_MAX 2000000 /* looked at; no project has more, a hostile commit may */

struct carried {
	git_repository *repo;
	size_t modules, lfs, files;
	char first[200]; /* path of the first submodule */
};

static bool blob_has(git_repository *repo, const git_oid *id, const char *text)
{
	CLEAN_GIT(git_blob) *blob = NULL;
	if (git_blob_lookup(&blob, repo, id))
		return false;
	return memmem(git_blob_rawcontent(blob), (size_t)git_blob_rawsize(blob), text, strlen(text)) != NULL;
}

static int look_at_entry(const char *root, const git_tree_entry *entry, void *arg)
{
	struct carried *c = arg;
	const char *name = git_tree_entry_name(entry);
	int depth = 0;
	for (const char *s = root; (s = strchr(s, '/')); s++)
		depth++;
	if (++c->files > FILES_MAX)
		return GIT_EUSER;
	if (depth > LG_DEPTH_MAX)
		return 1; /* not into it */
	if (git_tree_entry_type(entry) == GIT_OBJECT_COMMIT) {
		if (!c->modules++)
			snprintf(c->first, sizeof c->first, "%s%s", root, name);
	} else if (!strcmp(name, ".gitattributes") && blob_has(c->repo, git_tree_entry_id(entry), "filter=lfs")) {
		c->lfs++;
	}
	return 0;
}

int repo_not_carried(const char *path, const char *commit, struct buf *out, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_GIT(git_commit) *c = NULL;
	CLEAN_GIT(git_tree) *tree = NULL;
	int rc = lg_open(path, &repo, err);
	rc = rc ? rc : lg_commit(repo, commit, &c, err);
	if (rc)
		return rc;
	struct carried found = {.repo = repo};
	if ((rc = git_commit_tree(&tree, c)) ||
	    ((rc = git_tree_walk(tree, GIT_TREEWALK_PRE, look_at_entry, &found)) && rc != GIT_EUSER))
		return lg_err(err, rc, "cannot read the commit's files");
	if (found.modules)
		buf_addf(out, "%zu submodule%s (%s%s): the sandbox has empty folders there\n", found.modules,
			 found.modules == 1 ? "" : "s", found.first, found.modules == 1 ? "" : ", ...");
	if (found.lfs)
		buf_adds(out, "files in Git LFS: the sandbox has their pointers, not their contents\n");
	return 0;
}

int repo_shallow(const char *path, struct buf *out, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	int rc = lg_open(path, &repo, err);
	if (rc || !git_repository_is_shallow(repo))
		return rc;
	CLEAN_FREE char *file = xasprintf("%sshallow", git_repository_commondir(repo));
	return file_read(file, out, REPO_TEXT_MAX, err);
}

/* ---- branches and commits ---- */

static char *branch_ref(const char *branch)
{
	return xasprintf("refs/heads/%s", branch);
}

static bool ref_there(git_repository *repo, const char *name)
{
	CLEAN_GIT(git_reference) *ref = NULL;
	return !git_reference_lookup(&ref, repo, name);
}

/* 1 if a ref lies below name/. */
static int ref_below(git_repository *repo, const char *name, struct err *err)
{
	CLEAN_FREE char *glob = xasprintf("%s/*", name);
	git_reference_iterator *it = NULL;
	const char *found;
	int rc = git_reference_iterator_glob_new(&it, repo, glob);
	if (rc)
		return lg_err(err, rc, "cannot list the branches");
	rc = git_reference_next_name(&found, it);
	git_reference_iterator_free(it);
	return rc == GIT_ITEROVER ? 0 : rc ? lg_err(err, rc, "cannot list the branches") : 1;
}

int repo_branch_exists(const char *path, const char *branch, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	int rc = lg_open(path, &repo, err);
	if (rc)
		return rc;
	CLEAN_FREE char *name = branch_ref(branch);
	for (char *s = name + strlen("refs/heads/"); (s = strchr(s, '/')); s++) {
		*s = 0;
		bool there = ref_there(repo, name);
		if (there)
			return err_set(err, EEXIST,
				       "%s has a branch %s, so git cannot make %s; rename that branch (git branch -m "
				       "%s OTHER)",
				       path, name + strlen("refs/heads/"), branch, name + strlen("refs/heads/"));
		*s = '/';
	}
	return ref_there(repo, name) ? 1 : ref_below(repo, name, err);
}

int repo_branch_commit(const char *path, const char *branch, char commit[COMMIT_TEXT], struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	int rc = lg_open(path, &repo, err);
	if (rc)
		return rc;
	CLEAN_FREE char *name = branch_ref(branch);
	git_oid id;
	rc = git_reference_name_to_id(&id, repo, name);
	if (rc == GIT_ENOTFOUND)
		return err_set(err, ENOENT, "%s has no branch %s", path, branch);
	if (rc)
		return lg_err(err, rc, branch);
	git_oid_tostr(commit, COMMIT_TEXT, &id);
	return 0;
}

int repo_has(const char *path, const char *commit, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_GIT(git_commit) *c = NULL;
	int rc = lg_open(path, &repo, err);
	rc = rc ? rc : lg_commit(repo, commit, &c, err);
	if (rc == -ENOENT && err)
		*err = ERR_INIT;
	return rc == -ENOENT ? 0 : rc ? rc : 1;
}

int repo_is_ancestor(const char *path, const char *older, const char *newer, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_GIT(git_commit) *a = NULL;
	CLEAN_GIT(git_commit) *b = NULL;
	int rc = lg_open(path, &repo, err);
	rc = rc ? rc : lg_commit(repo, older, &a, err);
	rc = rc ? rc : lg_commit(repo, newer, &b, err);
	if (rc)
		return rc;
	return lg_descends(repo, path, older, newer, err);
}

int repo_file(const char *path, const char *commit, const char *file, size_t max, struct buf *out, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_GIT(git_commit) *c = NULL;
	CLEAN_GIT(git_tree) *tree = NULL;
	CLEAN_GIT(git_tree_entry) *entry = NULL;
	CLEAN_GIT(git_blob) *blob = NULL;
	int rc = lg_open(path, &repo, err);
	rc = rc ? rc : lg_commit(repo, commit, &c, err);
	if (rc)
		return rc;
	if ((rc = git_commit_tree(&tree, c)) || (rc = git_tree_entry_bypath(&entry, tree, file)))
		return lg_err(err, rc, file);
	git_filemode_t mode = git_tree_entry_filemode(entry);
	if (mode != GIT_FILEMODE_BLOB && mode != GIT_FILEMODE_BLOB_EXECUTABLE)
		return err_set(err, EINVAL, "%s is no plain file in commit %.10s", file, commit);
	if ((rc = git_blob_lookup(&blob, repo, git_tree_entry_id(entry))))
		return lg_err(err, rc, file);
	if ((uint64_t)git_blob_rawsize(blob) > max)
		return err_set(err, EFBIG, "%s is larger than %zu bytes", file, max);
	buf_add(out, git_blob_rawcontent(blob), (size_t)git_blob_rawsize(blob));
	return 0;
}
