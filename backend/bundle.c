/* Puts the project into a sandbox as bundles. Worker threads; blocks for as long as a large project takes.
 * Keeps no state; never gives the sandbox a remote, a credential or a path of the host. */
#include "bundle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/buf.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "backend/git/repo.h"
#include "env_git.h"

#define CLONE_MS (60 * 60 * 1000) /* indexing a large history under emulation takes many minutes */
#define ASK_MS	 (5 * 60 * 1000)
#define HAVE_MAX 32 /* commits of the sandbox that a bundle may build on */

/* $1 clone, $2 bundle, $3 branch, $4 commit, $5 name, $6 email, $7 shallow commits or "", $8 "sync" or "" */
static const char clone_script[] = "set -eu\n"
				   "trap 'rm -f -- \"$2\"' EXIT\n"
				   "[ ! -e \"$1/.git\" ] || exit 0\n"
				   "umask 022\n"
				   "new=$1.new\n"
				   "rm -rf -- \"$new\"\n"
				   "git init -q --template= -- \"$new\"\n"
				   "cd -- \"$new\"\n"
				   "mkdir -p .git/info .git/hooks\n"
				   "git config user.name \"$5\"\n"
				   "git config user.email \"$6\"\n"
				   "git config commit.gpgSign false\n"
				   "git config tag.gpgSign false\n"
				   "git symbolic-ref HEAD \"refs/heads/$3\"\n"
				   "[ -z \"$7\" ] || printf %s \"$7\" >.git/shallow\n"
				   "git -c protocol.file.allow=always fetch -q --no-tags --no-auto-maintenance "
				   "--no-write-fetch-head -- \"$2\" HEAD:refs/berthfs/base\n"
				   "git reset -q --hard \"$4\"\n"
				   "[ \"$(git rev-parse HEAD)\" = \"$4\" ]\n"
				   "[ -z \"$8\" ] || sync -f .\n"
				   "mv -T -- \"$new\" \"$1\"\n";

/* $1 clone, $2 branch, $3 commit, $4 name, $5 email, $6 "sync" or "" */
static const char move_script[] = "cd -- \"$1\" 2>/dev/null && [ -e .git ] || exit 3\n"
				  "git cat-file -e \"$3^{commit}\" 2>/dev/null || exit 9\n"
				  "set -eu\n"
				  "git config user.name \"$4\"\n"
				  "git config user.email \"$5\"\n"
				  "rm -f .git/index.lock\n"
				  "[ \"$(git rev-parse HEAD)\" = \"$3\" ] || git reset -q --hard \"$3\"\n"
				  "[ \"$(git symbolic-ref -q HEAD)\" = \"refs/heads/$2\" ] || git branch -q -M \"$2\"\n"
				  "git update-ref -m 'berthfs: base' " BASE_REF " \"$3\"\n"
				  "[ -z \"$6\" ] || sync -f .\n";

/* $1 clone: what it has, newest first */
static const char refs_script[] =
	"cd -- \"$1\" || exit 3\n"
	"git rev-parse -q --verify 'HEAD^{commit}'\n"
	"git for-each-ref --count=30 --sort=-committerdate --format='%(objectname)' refs/heads " BASE_REF
	" refs/berthfs\n"
	"exit 0\n";

/* $1 clone, $2 base commit: sets the ref if the commit is there */
static const char set_script[] = "cd -- \"$1\" || exit 3\n"
				 "git cat-file -e \"$2^{commit}\" 2>/dev/null || exit 9\n"
				 "git update-ref -m 'berthfs: base' " BASE_REF " \"$2\"\n";

/* $1 clone, $2 base commit, $3 bundle */
static const char take_script[] = "set -eu\n"
				  "trap 'rm -f -- \"$3\"' EXIT\n"
				  "cd -- \"$1\"\n"
				  "git -c protocol.file.allow=always fetch -q --no-tags --no-auto-maintenance "
				  "--no-write-fetch-head -- \"$3\" \"+" BASE_REF ":" BASE_REF "\"\n"
				  "[ \"$(git rev-parse " BASE_REF ")\" = \"$2\" ]\n";

static int script_failed(struct err *err, int code, const struct buf *out, const char *what)
{
	CLEAN_BUF struct buf words = BUF_INIT;
	utf8_clean(&words, buf_str(out), out->n < 400 ? out->n : 400);
	int number = strstr(buf_str(out), strerror(ENOSPC)) ? ENOSPC : EIO;
	return err_set(err, number, "%s (exit code %d): %s", what, code, words.n ? buf_str(&words) : "no words");
}

static void tell(const struct clone_how *how, const char *words)
{
	if (how->progress)
		how->progress(how->arg, words);
}

/* ---- the clone ---- */

static int send_history(const struct clone_how *how, const char *inside, struct err *err)
{
	CLEAN_FREE char *file = xasprintf("%s/%s-clone.bundle", how->tmp_dir, how->prefix);
	tell(how, "packing the project's history");
	int rc = repo_bundle_create(how->host_repo, how->commit, "HEAD", NULL, file, how->cancel, err);
	if (rc)
		return rc;
	tell(how, "sending the project to the sandbox");
	rc = env_send_file(how->env, file, inside, err);
	unlink(file);
	return rc;
}

/* True if an earlier daemon has started the script already: then its bundle is whole and is not sent again. */
static int under_way(const struct clone_how *how, bool *yes, struct err *err)
{
	char job[65];
	struct env_job state = {0};
	snprintf(job, sizeof job, "%.40s-clone", how->prefix);
	int rc = env_poll(how->env, job, UINT64_MAX, 0, &state, err);
	*yes = !rc && (state.state == ENV_JOB_RUNNING || state.state == ENV_JOB_EXITED);
	if (!rc && state.state == ENV_JOB_LOST)
		rc = env_ack(how->env, job, false, NULL, err);
	return rc;
}

static int run_clone(const struct clone_how *how, const char *inside, const char *shallow, struct err *err)
{
	const char *args[] = {how->clone,
			      inside,
			      how->branch ? how->branch : "work",
			      how->commit,
			      how->name ? how->name : "berthfs",
			      how->email ? how->email : "berthfs@localhost",
			      shallow,
			      how->durable ? "sync" : "",
			      NULL};
	struct env_git g = {.env = how->env,
			    .prefix = how->prefix,
			    .step = "clone",
			    .join = true,
			    .script = clone_script,
			    .args = args,
			    .timeout_ms = CLONE_MS,
			    .cancel = how->cancel,
			    .halt = how->halt};
	CLEAN_BUF struct buf out = BUF_INIT;
	tell(how, "cloning in the sandbox");
	int rc = env_git(&g, &out, err);
	return rc > 0 ? script_failed(err, rc, &out, "the project could not be cloned in the sandbox") : rc;
}

/* 1 if the clone is there: its last step is a rename, so it is whole. */
static int clone_there(const struct clone_how *how, struct err *err)
{
	CLEAN_FREE char *git = xasprintf("%s/.git", how->clone);
	struct env_stat st = {0};
	int rc = env_stat(how->env, git, &st, err);
	free(st.real);
	return rc == -ENOENT ? 0 : rc ? rc : 1;
}

int clone_into(const struct clone_how *how, struct err *err)
{
	CLEAN_BUF struct buf shallow = BUF_INIT;
	struct env_git name = {.env = how->env, .prefix = how->prefix, .step = "clone"};
	CLEAN_FREE char *inside = env_git_file(&name);
	for (int attempt = 0;; attempt++) {
		bool begun = false;
		int rc = clone_there(how, err);
		if (rc)
			return rc < 0 ? rc : env_remove(how->env, inside, err);
		rc = under_way(how, &begun, err);
		if (!rc && !begun && !shallow.n)
			rc = repo_shallow(how->host_repo, &shallow, err);
		if (!rc && !begun)
			rc = send_history(how, inside, err);
		rc = rc ? rc : run_clone(how, inside, buf_str(&shallow), err);
		if (!rc)
			return 0;
		/* a job of an earlier attempt may have failed for its own reasons (no space): one fresh try */
		if (!begun || attempt || rc == -ECANCELED || rc == -ENOTCONN)
			return rc;
	}
}

/* ---- a clone that a template has ---- */

static int run_move(const struct clone_how *how, struct buf *out, struct err *err)
{
	const char *args[] = {how->clone,
			      how->branch ? how->branch : "work",
			      how->commit,
			      how->name ? how->name : "berthfs",
			      how->email ? how->email : "berthfs@localhost",
			      how->durable ? "sync" : "",
			      NULL};
	struct env_git g = {.env = how->env,
			    .prefix = how->prefix,
			    .step = "move",
			    .script = move_script,
			    .args = args,
			    .timeout_ms = CLONE_MS,
			    .cancel = how->cancel};
	return env_git(&g, out, err);
}

int clone_move(const struct clone_how *how, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	int rc = run_move(how, &out, err);
	if (rc == 9) {
		struct base_how base = {.env = how->env,
					.host_repo = how->host_repo,
					.base = how->commit,
					.clone = how->clone,
					.tmp_dir = how->tmp_dir,
					.prefix = how->prefix,
					.cancel = how->cancel};
		tell(how, "sending what is new of the project to the sandbox");
		rc = base_into(&base, err);
		buf_reset(&out);
		rc = rc ? rc : run_move(how, &out, err);
	}
	if (rc == 3)
		return err_set(err, ENOENT, "there is no clone in the sandbox");
	return rc > 0 ? script_failed(err, rc, &out, "the clone could not be brought to the commit") : rc;
}

/* ---- the base of a ship ---- */

static int ask(const struct base_how *how, const char *step, const char *script, const char *const *args,
	       struct buf *out, struct err *err)
{
	struct env_git g = {.env = how->env,
			    .prefix = how->prefix,
			    .step = step,
			    .script = script,
			    .args = args,
			    .timeout_ms = ASK_MS,
			    .cancel = how->cancel};
	int rc = env_git(&g, out, err);
	return rc == 3 ? err_set(err, ENOENT, "the clone %s is gone from the sandbox", how->clone) : rc;
}

/* Commits that both sides have. What the sandbox names is looked up here before it is believed. */
static int common(const struct base_how *how, char have[HAVE_MAX][COMMIT_TEXT], const char **list, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	size_t n = 0;
	int rc = ask(how, "refs", refs_script, (const char *const[]){how->clone, NULL}, &out, err);
	if (rc < 0)
		return rc;
	char *save = NULL;
	for (char *line = out.n ? strtok_r(out.p, "\n", &save) : NULL; line && n < HAVE_MAX;
	     line = strtok_r(NULL, "\n", &save)) {
		if (strlen(line) != COMMIT_TEXT - 1 || repo_has(how->host_repo, line, NULL) != 1)
			continue;
		memcpy(have[n], line, COMMIT_TEXT);
		list[n] = have[n];
		n++;
	}
	list[n] = NULL;
	return 0;
}

static int send_base(const struct base_how *how, struct err *err)
{
	char have[HAVE_MAX][COMMIT_TEXT];
	const char *list[HAVE_MAX + 1];
	struct env_git name = {.env = how->env, .prefix = how->prefix, .step = "base"};
	CLEAN_FREE char *file = xasprintf("%s/%s-base.bundle", how->tmp_dir, how->prefix),
			*inside = env_git_file(&name);
	CLEAN_BUF struct buf out = BUF_INIT;
	int rc = common(how, have, list, err);
	rc = rc ? rc : repo_bundle_create(how->host_repo, how->base, BASE_REF, list, file, how->cancel, err);
	if (rc)
		return rc;
	rc = env_send_file(how->env, file, inside, err);
	unlink(file);
	if (rc)
		return rc;
	rc = ask(how, "take", take_script, (const char *const[]){how->clone, how->base, inside, NULL}, &out, err);
	return rc > 0 ? script_failed(err, rc, &out, "the base could not be put into the sandbox") : rc;
}

int base_into(const struct base_how *how, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	int rc = ask(how, "set", set_script, (const char *const[]){how->clone, how->base, NULL}, &out, err);
	if (rc == 9)
		return send_base(how, err);
	return rc > 0 ? script_failed(err, rc, &out, "the base could not be set in the sandbox") : rc;
}
