/* History as a file: bundles out of the checkout, and into its branches. Worker threads.
 *
 * A bundle that comes in was made in a sandbox and is not trusted: git checks every object before any becomes
 * reachable, the branch is named by us, and only one commit that was named before is looked at. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "repo_private.h"

/* Git holds the lock of a branch for milliseconds. One that is older was left by a daemon that was killed, and nobody
 * but us moves these branches. */
#define LOCK_STALE_MS 10000
#define LOCK_WAIT_MS  50
#define MOVE_TRIES    50
#define OURS	      "berthfs: " /* how our reflog entries begin */
#define BIG_FILE      "2m"
#define HEAD_MAX      65536   /* of a bundle from a sandbox: a few dozen lines */
#define OBJECTS_MAX   5000000 /* in it: git needs about 100 bytes of memory for each */
/* Of git while it unpacks: objects of a few bytes may say that they are gigabytes. Enough for OBJECTS_MAX and for files
 * up to git's own bound for files that it does not keep in memory (512 MiB) with the one that they differ from. */
#define UNPACK_MEMORY ((size_t)2048 << 20)
#define LOCK_TRY_MS   30000 /* a lock that holds for longer is told about */

/* ---- out ---- */

/* The head of a bundle file. `git bundle create` would write the same, but takes its names from refs, and none shall
 * be made in the user's checkout for this. */
static int head_text(const char *commit, const char *ref, const char *const *have, struct buf *out, struct buf *revs,
		     struct err *err)
{
	git_oid id;
	int rc = lg_oid(commit, &id, err);
	buf_adds(out, "# v2 git bundle\n");
	buf_addf(revs, "%s\n", commit);
	for (size_t i = 0; !rc && have && have[i]; i++) {
		rc = lg_oid(have[i], &id, err);
		buf_addf(out, "-%s \n", have[i]);
		buf_addf(revs, "^%s\n", have[i]);
	}
	buf_addf(out, "%s %s\n\n", commit, ref);
	return rc;
}

int repo_bundle_create(const char *path, const char *commit, const char *ref, const char *const *have, const char *file,
		       const atomic_bool *cancel, struct err *err)
{
	CLEAN_BUF struct buf head = BUF_INIT, revs = BUF_INIT, said = BUF_INIT;
	int rc = head_text(commit, ref, have, &head, &revs, err);
	if (rc)
		return rc;
	/* A git that outlived a killed daemon may still write to the old file: never share it. */
	unlink(file);
	CLEAN_FD int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, errno, "cannot write %s", file);
	rc = fd_write_full(fd, head.p, head.n);
	if (rc) {
		unlink(file);
		return err_sys(err, -rc, "cannot write %s", file);
	}
	/* A bundle lives for seconds: no time for deltas of large files, nor the memory to hold them whole. */
	const char *args[] = {"-c",
			      "core.bigFileThreshold=" BIG_FILE,
			      "-c",
			      "pack.compression=1",
			      "pack-objects",
			      "--revs",
			      "--stdout",
			      "--thin",
			      "--delta-base-offset",
			      "-q",
			      NULL};
	struct git_call c = {.path = path,
			     .args = args,
			     .in = revs.p,
			     .in_n = revs.n,
			     .errout = &said,
			     .out_fd = fd,
			     .timeout_ms = GIT_NETWORK_MS,
			     .cancel = cancel};
	rc = git_call(&c, err);
	if (rc > 0)
		rc = git_said(err, EIO, &said, "cannot pack the project's history (git fsck tells what is broken)");
	if (rc)
		unlink(file);
	return rc;
}

/* ---- in ---- */

/* The head of the pack at offset, where fd is left: "PACK", version, number of objects. */
static int check_pack(int fd, off_t offset, struct err *err)
{
	unsigned char p[12];
	if (pread(fd, p, sizeof p, offset) != sizeof p || memcmp(p, "PACK", 4) != 0)
		return err_set(err, EBADMSG, "what the sandbox sent has no commits in it");
	uint32_t n = (uint32_t)p[8] << 24 | (uint32_t)p[9] << 16 | (uint32_t)p[10] << 8 | p[11];
	if (n > OBJECTS_MAX)
		return err_set(err, EFBIG, "the sandbox's new commits are of %u objects; %d are the most", n,
			       OBJECTS_MAX);
	return lseek(fd, offset, SEEK_SET) < 0 ? err_sys(err, errno, "cannot read a bundle") : 0;
}

/* Reads the head of a bundle file: the signature, prerequisites that must be here, one tip or more, an empty line.
 * Leaves fd at the first byte of the pack. */
static int read_head(git_repository *repo, int fd, struct err *err)
{
	char text[HEAD_MAX + 1];
	ssize_t n = pread(fd, text, HEAD_MAX, 0);
	if (n < 0)
		return err_sys(err, errno, "cannot read what the sandbox sent");
	text[n] = 0;
	char *end = strstr(text, "\n\n"), *save = NULL;
	const char *line = end ? strtok_r(text, "\n", &save) : NULL;
	if (!line || strcmp(line, "# v2 git bundle"))
		return err_set(err, EBADMSG, "what the sandbox sent is no git bundle");
	for (end[1] = 0; (line = strtok_r(NULL, "\n", &save));) {
		git_commit *c = NULL;
		char hex[COMMIT_TEXT];
		if (*line != '-')
			continue;
		snprintf(hex, sizeof hex, "%s", line + 1);
		int rc = lg_commit(repo, hex, &c, NULL);
		git_commit_free(c);
		if (rc)
			return err_set(err, EBADMSG, "the sandbox's commits build on %.40s, which this checkout lacks",
				       hex);
	}
	return check_pack(fd, end + 2 - text, err);
}

/* Objects and nothing else: no ref, no FETCH_HEAD, no tag. `git fetch` would not do: before 2.46 it takes the objects
 * of a bundle unchecked. --strict is what it uses for a remote with fetch.fsckObjects: forged trees (.git in a path,
 * hostile .gitmodules) and missing links end it before the pack has its name. */
static int unpack(const char *path, const struct repo_fetch_how *how, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_BUF struct buf said = BUF_INIT, out = BUF_INIT;
	CLEAN_FD int fd = open(how->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return err_sys(err, errno, "cannot read %s", how->file);
	int rc = lg_open(path, &repo, err);
	rc = rc ? rc : read_head(repo, fd, err);
	if (rc)
		return rc;
	const char *args[] = {"index-pack", "--stdin", "--fix-thin", "--strict", NULL};
	struct git_call c = {.path = path,
			     .args = args,
			     .in_fd = fd,
			     .out = &out,
			     .errout = &said,
			     .timeout_ms = GIT_NETWORK_MS,
			     .memory = UNPACK_MEMORY,
			     .cancel = how->cancel};
	rc = git_call(&c, err);
	return rc > 0 ? git_said(err, EBADMSG, &said, "git does not take what the sandbox sent") : rc;
}

/* Everything that the commit needs is here: nothing may become reachable that a later gc or push would stumble over. */
static int whole(const char *path, const struct repo_fetch_how *how, struct err *err)
{
	CLEAN_BUF struct buf said = BUF_INIT;
	const char *args[] = {"rev-list", "--objects", "--quiet", how->head, "--not", "--all", NULL};
	struct git_call c = {
		.path = path, .args = args, .errout = &said, .timeout_ms = GIT_NETWORK_MS, .cancel = how->cancel};
	int rc = git_call(&c, err);
	return rc > 0 ? git_said(err, EBADMSG, &said, "the sandbox did not send all that its commits need") : rc;
}

/* Waits for the branch's lock, and breaks one that was left behind: it has stayed the same for so long. Its time tells
 * that sooner, but a clock may have been set back since. */
static int wait_for_lock(git_repository *repo, const char *ref, const atomic_bool *cancel, struct err *err)
{
	CLEAN_FREE char *lock = xasprintf("%s%s.lock", git_repository_commondir(repo), ref);
	int64_t start = clock_mono_ms(), seen = start;
	struct stat st, before = {0};
	for (int64_t now = start; !stat(lock, &st); now = clock_mono_ms()) {
		if (st.st_ino != before.st_ino)
			seen = now;
		before = st;
		if (clock_real_ms() - (int64_t)st.st_mtim.tv_sec * 1000 > LOCK_STALE_MS || now - seen > LOCK_STALE_MS)
			if (unlink(lock) && errno != ENOENT)
				return err_sys(err, errno, "a lock was left behind and cannot be removed: %s", lock);
		if (cancel && atomic_load(cancel))
			return err_set(err, ECANCELED, "stopped");
		if (now - start > LOCK_TRY_MS)
			return err_set(err, EBUSY, "another git holds %s; write `sync` to ctl to try again", lock);
		clock_sleep_ms(LOCK_WAIT_MS);
	}
	return 1;
}

static int has_commit(git_repository *repo, const char *hex, struct err *err)
{
	CLEAN_GIT(git_commit) *c = NULL;
	return lg_commit(repo, hex, &c, err);
}

/* The branch's place now, and what may be done about it. */
struct move {
	git_repository *repo;
	const char *path, *ref, *branch;
	const struct repo_fetch_how *how;
	git_oid head, now;
	bool there; /* the branch exists: now is its commit */
	char now_hex[COMMIT_TEXT];
};

static int leave(enum repo_fetch *result, enum repo_fetch what, struct err *err)
{
	*result = what;
	if (err)
		err->code = 0; /* words for a result, no failure */
	return 0;
}

/* The newest entry of its reflog is one of ours: nobody else has moved the branch since. */
static bool put_by_us(struct move *m)
{
	git_reflog *log = NULL;
	if (git_reflog_read(&log, m->repo, m->ref))
		return false;
	const git_reflog_entry *last = git_reflog_entry_byindex(log, 0);
	const char *words = last ? git_reflog_entry_message(last) : NULL;
	bool ours =
		words && !strncmp(words, OURS, strlen(OURS)) && git_oid_equal(git_reflog_entry_id_new(last), &m->now);
	git_reflog_free(log);
	return ours;
}

/* Sets *result if the branch has to stay where it is (or is there already); returns 1 then, 0 to go on. */
static int judge(struct move *m, enum repo_fetch *result, struct err *err)
{
	const char *want = m->how->replace;
	if (m->there && git_oid_equal(&m->now, &m->head)) {
		*result = REPO_UNCHANGED;
		return 1;
	}
	CLEAN_GIT(git_reference) *ref = NULL;
	if (m->there && !git_reference_lookup(&ref, m->repo, m->ref) && git_branch_is_checked_out(ref) == 1) {
		err_set(err, EBUSY,
			"%s is checked out in %s, so it stays as it is; check out another branch there, "
			"then write `sync` to ctl",
			m->branch, m->path);
		leave(result, REPO_CHECKED_OUT, err);
		return 1;
	}
	if (want && strcmp(m->there ? m->now_hex : "", want) && !(m->there && put_by_us(m))) {
		err_set(err, EBUSY,
			"%s has been moved by someone else (it is at %.10s now) and stays as it is; "
			"rename that branch, then write `sync` to ctl",
			m->branch, m->there ? m->now_hex : "none");
		leave(result, REPO_MOVED, err);
		return 1;
	}
	if (want || !m->there)
		return 0;
	int rc = lg_descends(m->repo, m->path, m->now_hex, m->how->head, err);
	if (rc == 1)
		return 0;
	if (rc < 0)
		return rc;
	err_set(err, EBUSY,
		"the sandbox's %.10s does not descend from %s (%.10s), which stays as it is; write `ship` to "
		"replace it, or rename that branch and write `sync` to ctl",
		m->how->head, m->branch, m->now_hex);
	leave(result, REPO_NOT_DESCENDANT, err);
	return 1;
}

/* Compare-and-swap by git: libgit2's creates a branch twice if two ask at once, and logs nothing where
 * core.logAllRefUpdates is false; here the old head must stay findable. 0 done, 1 try again, or -errno. */
static int swap(struct move *m, const char *words, struct err *err)
{
	static const char nothing[] = "0000000000000000000000000000000000000000";
	static const char *const lost[] = {"but expected", "already exists", "unable to resolve reference"};
	CLEAN_BUF struct buf said = BUF_INIT;
	const char *args[] = {
		"update-ref", "--create-reflog", "-m", words, m->ref, m->how->head, m->there ? m->now_hex : nothing,
		NULL};
	struct git_call c = {.path = m->path, .args = args, .errout = &said, .timeout_ms = GIT_LOCAL_MS};
	int rc = git_call(&c, err);
	if (rc <= 0)
		return rc;
	if (strstr(buf_str(&said), ".lock': File exists")) {
		return wait_for_lock(m->repo, m->ref, m->how->cancel, err);
	}
	for (size_t i = 0; i < ARRAY_LEN(lost); i++)
		if (strstr(buf_str(&said), lost[i]))
			return 1;
	return git_said(err, EIO, &said, m->branch);
}

/* One try: 0 done, 1 someone else was quicker or holds the lock (try again), or -errno. */
static int try_move(struct move *m, enum repo_fetch *result, struct err *err)
{
	static const char *const words[] = {[REPO_CREATED] = OURS "created from the sandbox",
					    [REPO_FORWARDED] = OURS "forwarded from the sandbox",
					    [REPO_REPLACED] = OURS "replaced from the sandbox by a ship"};
	int rc = git_reference_name_to_id(&m->now, m->repo, m->ref);
	if (rc && rc != GIT_ENOTFOUND)
		return lg_err(err, rc, m->branch);
	m->there = !rc;
	git_oid_tostr(m->now_hex, sizeof m->now_hex, &m->now);
	rc = judge(m, result, err);
	if (rc)
		return rc < 0 ? rc : 0;
	enum repo_fetch what = !m->there ? REPO_CREATED : m->how->replace ? REPO_REPLACED : REPO_FORWARDED;
	rc = swap(m, words[what], err);
	if (!rc)
		*result = what;
	return rc;
}

int repo_bundle_fetch(const char *path, const struct repo_fetch_how *how, enum repo_fetch *result, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_FREE char *ref = xasprintf("refs/heads/%s", how->branch);
	struct move m = {.path = path, .ref = ref, .branch = how->branch, .how = how};
	int rc = lg_oid(how->head, &m.head, err);
	rc = rc ? rc : repo_branch_exists(path, how->branch, err);
	if (rc < 0)
		return rc;
	rc = repo_has(path, how->head, err);
	if (rc == 0 && how->file)
		rc = unpack(path, how, err);
	if (rc < 0)
		return rc;
	rc = lg_open(path, &repo, err);
	rc = rc ? rc : has_commit(repo, how->head, err);
	if (rc == -ENOENT)
		return err_set(err, EBADMSG, "the sandbox did not send the commit %.10s that it named", how->head);
	rc = rc ? rc : whole(path, how, err);
	if (rc)
		return rc;
	m.repo = repo;
	for (int i = 0; i < MOVE_TRIES; i++)
		if ((rc = try_move(&m, result, err)) <= 0)
			return rc;
	return err_set(err, EBUSY, "%s is locked by another git; write `sync` to ctl to try again", how->branch);
}
