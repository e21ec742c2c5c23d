/* Sync: brings the sandbox's HEAD into the user's checkout. Worker threads; blocks. What the sandbox says is taken as
 * a claim: the names are checked for their form, the objects by git, the branch's rule by repo_bundle_fetch(). */
#include "sync.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "env_git.h"

#define ASK_MS	   (5 * 60 * 1000)
#define PACK_MS	   (30 * 60 * 1000)
#define BUNDLE_MAX ((uint64_t)8 << 30) /* bytes taken from a sandbox at once */
#define ROOM	   ((uint64_t)4 << 20) /* and what has to be left on the disk then */
#define KNOWN_MAX  16

/* $1 clone, then commits to look for. Lines: head, base, busy, name, uncommitted, has. Names of files are quoted by git
 * where they are odd, so that each is a line. */
static const char look_script[] =
	"set -o pipefail\n"
	"cd -- \"$1\" 2>/dev/null || exit 3\n"
	"shift\n"
	"head=$(git rev-parse -q --verify 'HEAD^{commit}') || exit 4\n"
	"dir=$(git rev-parse --git-dir)\n"
	"echo \"head $head\"\n"
	"git -c core.quotePath=true status --porcelain --no-renames --untracked-files=normal |"
	" awk 'NR <= 5 { print \"name \" substr($0, 4) } END { print \"uncommitted \" NR }' || exit 5\n"
	"[ ! -e \"$dir/rebase-merge\" -a ! -e \"$dir/rebase-apply\" ] || echo busy rebase\n"
	"[ ! -e \"$dir/MERGE_HEAD\" ] || echo busy merge\n"
	"[ ! -e \"$dir/CHERRY_PICK_HEAD\" ] || echo busy cherry-pick\n"
	"[ ! -e \"$dir/REVERT_HEAD\" ] || echo busy revert\n"
	"base=$(git rev-parse -q --verify 'refs/berthfs/base^{commit}') && echo \"base $base\"\n"
	"for c; do git cat-file -e \"$c^{commit}\" 2>/dev/null && echo \"has $c\"; done\n"
	"exit 0\n";

/* $1 clone, $2 bundle, $3 how files of earlier attempts begin (a killed git leaves FILE.lock), then commits to leave
 * out */
static const char pack_script[] = "cd -- \"$1\" || exit 3\n"
				  "file=$2\n"
				  "rm -f -- \"$3\"*\n"
				  "shift 3\n"
				  "exec git bundle create -q \"$file\" HEAD --not \"$@\"\n";

struct look {
	const char *both[KNOWN_MAX + 1]; /* of the candidates, those that the sandbox has too */
	size_t n;
	char base[COMMIT_TEXT]; /* its refs/berthfs/base, or "" */
};

static int script(const struct sync_how *how, const char *step, const char *text, const char *const *args,
		  int timeout_ms, struct buf *out, struct err *err)
{
	struct env_git g = {.env = how->env,
			    .prefix = how->prefix,
			    .step = step,
			    .script = text,
			    .args = args,
			    .timeout_ms = timeout_ms,
			    .cancel = how->cancel};
	return env_git(&g, out, err);
}

static bool is_commit(const char *s)
{
	size_t n = strspn(s, "0123456789abcdef");
	return n == COMMIT_TEXT - 1 && !s[n];
}

/* Commits that the host has and the sandbox may have. */
static size_t candidates(const struct sync_how *how, const char **list)
{
	size_t n = 0;
	if (*how->old_head && repo_has(how->host_repo, how->old_head, NULL) == 1)
		list[n++] = how->old_head;
	for (size_t i = 0; how->known && how->known[i] && n < KNOWN_MAX; i++)
		if (is_commit(how->known[i]) && repo_has(how->host_repo, how->known[i], NULL) == 1)
			list[n++] = how->known[i];
	list[n] = NULL;
	return n;
}

/* One more of the uncommitted files, as long as there is room for it and the dots. */
static void add_name(const char *name, struct sync_result *out)
{
	CLEAN_BUF struct buf clean = BUF_INIT;
	utf8_clean(&clean, name, strlen(name));
	size_t n = strlen(out->names);
	if (n + clean.n + 8 > sizeof out->names)
		return;
	snprintf(out->names + n, sizeof out->names - n, "%s%s", n ? ", " : "", buf_str(&clean));
	out->named++;
}

static void read_line(const char *line, const char *const *asked, struct look *look, struct sync_result *out)
{
	if (!strncmp(line, "head ", 5) && is_commit(line + 5)) {
		memcpy(out->head, line + 5, COMMIT_TEXT);
	} else if (!strncmp(line, "uncommitted ", 12)) {
		out->uncommitted = (size_t)strtoull(line + 12, NULL, 10);
	} else if (!strncmp(line, "name ", 5)) {
		add_name(line + 5, out);
	} else if (!strncmp(line, "busy ", 5)) {
		snprintf(out->busy, sizeof out->busy, "%s", line + 5);
	} else if (!strncmp(line, "base ", 5) && is_commit(line + 5)) {
		memcpy(look->base, line + 5, COMMIT_TEXT);
	} else if (!strncmp(line, "has ", 4)) {
		for (size_t i = 0; asked[i]; i++)
			if (!strcmp(line + 4, asked[i]) && look->n < KNOWN_MAX - 1)
				look->both[look->n++] = asked[i];
	}
}

static int look_at_clone(const struct sync_how *how, struct look *look, struct sync_result *out, struct err *err)
{
	const char *args[KNOWN_MAX + 3] = {how->clone};
	CLEAN_BUF struct buf text = BUF_INIT;
	candidates(how, args + 1);
	int rc = script(how, "look", look_script, args, ASK_MS, &text, err);
	if (rc < 0)
		return rc;
	if (rc == 3)
		return err_set(err, ENOENT, "the clone %s is gone from the sandbox", how->clone);
	if (rc == 4)
		return err_set(err, ENOENT, "HEAD of the clone in the sandbox is no commit");
	char *save = NULL;
	for (char *line = text.n ? strtok_r(text.p, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
		read_line(line, args + 1, look, out);
	if (rc || !*out->head)
		return err_set(err, EIO,
			       "git cannot read the clone in the sandbox (exit code %d); see `git status` there", rc);
	if (*look->base && repo_has(how->host_repo, look->base, NULL) == 1)
		look->both[look->n++] = look->base;
	return 0;
}

/* What a sandbox sends must not take the room that the database needs. */
static int has_room(const char *folder, uint64_t size, struct err *err)
{
	struct statvfs v;
	if (statvfs(folder, &v))
		return err_sys(err, errno, "%s", folder);
	if ((uint64_t)v.f_bavail * v.f_frsize > size + ROOM)
		return 0;
	return err_set(err, ENOSPC,
		       "the sandbox's new commits are %" PRIu64 " MiB, and there is no room for them in %s", size >> 20,
		       folder);
}

/* Has git in the sandbox write a bundle to inside, and brings it to file. stem: how such names begin. */
static int fetch_file(const struct sync_how *how, const struct look *look, const char *stem, const char *inside,
		      const char *file, struct err *err)
{
	const char *args[KNOWN_MAX + 5] = {how->clone, inside, stem};
	CLEAN_BUF struct buf text = BUF_INIT;
	struct env_stat st = {0};
	for (size_t i = 0; i < look->n; i++)
		args[3 + i] = look->both[i];
	int rc = script(how, "pack", pack_script, args, PACK_MS, &text, err);
	if (rc > 0) {
		CLEAN_BUF struct buf words = BUF_INIT;
		utf8_clean(&words, buf_str(&text), text.n < 400 ? text.n : 400);
		return err_set(err, strstr(buf_str(&text), strerror(ENOSPC)) ? ENOSPC : EIO,
			       "the sandbox could not bundle its commits (exit code %d): %s", rc, buf_str(&words));
	}
	rc = rc ? rc : env_stat(how->env, inside, &st, err);
	free(st.real);
	if (!rc && st.size > BUNDLE_MAX)
		rc = err_set(err, EFBIG, "the sandbox's new commits are %" PRIu64 " MiB, more than is taken at once",
			     st.size >> 20);
	unlink(file);
	rc = rc ? rc : has_room(how->tmp_dir, st.size, err);
	return rc ? rc : env_receive_file(how->env, inside, st.size, file, err);
}

static int transfer(const struct sync_how *how, const struct look *look, struct sync_result *out, struct err *err)
{
	struct env_git name = {.env = how->env, .prefix = how->prefix, .step = "sync"};
	CLEAN_FREE char *stem = env_git_file(&name), *file = xasprintf("%s/%s-sync.bundle", how->tmp_dir, how->prefix);
	CLEAN_FREE char *inside = xasprintf("%s.%" PRIx64, stem, (uint64_t)clock_real_ms());
	struct repo_fetch_how fetch = {.head = out->head,
				       .branch = how->branch,
				       .replace = how->replace ? how->old_head : NULL,
				       .cancel = how->cancel};
	int rc = repo_has(how->host_repo, out->head, err);
	if (rc < 0)
		return rc;
	out->transferred = rc == 0;
	rc = 0;
	if (out->transferred) {
		rc = fetch_file(how, look, stem, inside, file, err);
		fetch.file = file;
	}
	rc = rc ? rc : repo_bundle_fetch(how->host_repo, &fetch, &out->fetch, &out->left);
	if (rc && out->left.code)
		err_set(err, out->left.code, "%s", out->left.text);
	if (out->transferred) {
		unlink(file);
		env_remove(how->env, inside, NULL);
	}
	return rc;
}

int sync_fetch(const struct sync_how *how, struct sync_result *out, struct err *err)
{
	int rc = -EBADMSG;
	/* A process in the background may commit between the two looks; then the second round finds a stable HEAD. */
	for (int i = 0; i < 2 && rc == -EBADMSG; i++) {
		struct look look = {.n = 0};
		*out = (struct sync_result){0};
		rc = look_at_clone(how, &look, out, err);
		rc = rc ? rc : transfer(how, &look, out, err);
	}
	return rc;
}
