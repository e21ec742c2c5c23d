/* A session's work as text: unified diff, diffstat, log. libgit2 only; no filter, diff driver or pager of anybody runs.
 * Worker threads. */
#include <errno.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "repo_private.h"

#define BINARY_OVER  (8 << 20)	 /* files over this are shown as binary: their diff is of no use to a person */
#define HEAVY	     (512 << 20) /* bytes that differ in all; over it only files of LIGHT bytes are compared */
#define LIGHT	     (64 << 10)
#define RENAME_LIMIT 1000 /* similarity is looked for among so many files; git's own default */
#define BAR_MAX	     40	  /* width of the +++--- in the diffstat */

/* 1 and a line in text: there is more than can be looked at, and *out stays NULL. */
static int make_diff(git_repository *repo, const char *base, const char *head, git_diff **out, struct buf *text,
		     struct err *err)
{
	CLEAN_GIT(git_commit) *a = NULL;
	CLEAN_GIT(git_commit) *b = NULL;
	CLEAN_GIT(git_tree) *ta = NULL;
	CLEAN_GIT(git_tree) *tb = NULL;
	int rc = lg_commit(repo, base, &a, err);
	rc = rc ? rc : lg_commit(repo, head, &b, err);
	if (!rc && ((rc = git_commit_tree(&ta, a)) || (rc = git_commit_tree(&tb, b))))
		rc = lg_err(err, rc, "cannot compare two commits");
	struct lg_weight weight;
	rc = rc ? rc : lg_weigh(repo, ta, tb, &weight, err);
	if (rc > 0)
		buf_addf(text,
			 "# more than %d files differ, or folders are nested too deeply: git diff --stat %.12s %.12s\n",
			 LG_FILES_MAX, base, head);
	if (rc)
		return rc;
	git_diff_options opt = GIT_DIFF_OPTIONS_INIT;
	git_diff_find_options find = GIT_DIFF_FIND_OPTIONS_INIT;
	opt.max_size = weight.bytes > HEAVY ? LIGHT : BINARY_OVER;
	find.flags = GIT_DIFF_FIND_RENAMES;
	find.rename_limit = RENAME_LIMIT;
	rc = git_diff_tree_to_tree(out, repo, ta, tb, &opt);
	/* it reads every file whole, however large */
	if (!rc && weight.bytes <= HEAVY / 4)
		rc = git_diff_find_similar(*out, &find);
	if (rc)
		return lg_err(err, rc, "cannot compare two commits");
	return 0;
}

/* ---- diff ---- */

struct printing {
	struct buf *out;
	size_t start, limit; /* the text's first byte; where it must end */
	size_t file, files;  /* first byte of the file that is being printed; files begun */
	bool full;
};

static int print_line(const git_diff_delta *delta, const git_diff_hunk *hunk, const git_diff_line *line, void *arg)
{
	struct printing *p = arg;
	if (line->origin == GIT_DIFF_LINE_FILE_HDR) {
		p->file = p->out->n;
		p->files++;
	}
	if (p->out->n + line->content_len + 1 > p->limit) {
		p->full = true;
		return GIT_EUSER;
	}
	if (line->origin == '+' || line->origin == '-' || line->origin == ' ')
		buf_addc(p->out, line->origin);
	buf_add(p->out, line->content, line->content_len);
	return 0;
}

int repo_diff(const char *path, const char *base, const char *head, struct buf *out, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_GIT(git_diff) *diff = NULL;
	int rc = lg_open(path, &repo, err);
	rc = rc ? rc : make_diff(repo, base, head, &diff, out, err);
	if (rc)
		return rc < 0 ? rc : 0;
	struct printing p = {.out = out, .start = out->n, .limit = out->n + REPO_TEXT_MAX};
	rc = git_diff_print(diff, GIT_DIFF_FORMAT_PATCH, print_line, &p);
	if (rc && !p.full)
		return lg_err(err, rc, "cannot show the diff");
	if (!p.full)
		return 0;
	/* Whole files only, so that what is shown still applies as a patch. */
	buf_cut(out, p.file);
	buf_addf(out, "# cut after %d MiB: %zu of %zu files shown; all: git diff %.12s %.12s\n", REPO_TEXT_MAX >> 20,
		 p.files - 1, git_diff_num_deltas(diff), base, head);
	return 0;
}

/* ---- diffstat ---- */

/* A path on one line: as it is if it is plain UTF-8, else quoted the way git does it. */
static void add_path(struct buf *out, const char *s)
{
	static const char plain[] = "\a\b\t\n\v\f\r\"\\", letter[] = "abtnvfr\"\\";
	size_t n = strlen(s);
	bool odd = !utf8_valid(s, n);
	for (size_t i = 0; i < n; i++)
		odd |= (unsigned char)s[i] < ' ' || s[i] == 0x7f || s[i] == '"' || s[i] == '\\';
	if (!odd) {
		buf_add(out, s, n);
		return;
	}
	buf_addc(out, '"');
	for (size_t i = 0; i < n; i++) {
		const char *at = strchr(plain, s[i]);
		if (at)
			buf_addf(out, "\\%c", letter[at - plain]);
		else if ((unsigned char)s[i] < ' ' || (unsigned char)s[i] >= 0x7f)
			buf_addf(out, "\\%03o", (unsigned char)s[i]);
		else
			buf_addc(out, s[i]);
	}
	buf_addc(out, '"');
}

static void add_bar(struct buf *out, size_t plus, size_t minus, size_t most)
{
	size_t scale = most > BAR_MAX ? most : BAR_MAX;
	size_t p = (plus * BAR_MAX + scale - 1) / scale, m = (minus * BAR_MAX + scale - 1) / scale;
	for (size_t i = 0; i < p; i++)
		buf_addc(out, '+');
	for (size_t i = 0; i < m; i++)
		buf_addc(out, '-');
}

struct file_stat {
	size_t plus, minus;
	bool binary;
};

static int count_files(git_diff *diff, struct file_stat *stat, size_t *most, struct err *err)
{
	size_t n = git_diff_num_deltas(diff);
	for (size_t i = 0; i < n; i++) {
		CLEAN_GIT(git_patch) *patch = NULL;
		int rc = git_patch_from_diff(&patch, diff, i);
		if (rc)
			return lg_err(err, rc, "cannot count the changes");
		if (patch && (rc = git_patch_line_stats(NULL, &stat[i].plus, &stat[i].minus, patch)))
			return lg_err(err, rc, "cannot count the changes");
		/* a file's flag is only known once its patch is made */
		stat[i].binary = patch && git_patch_get_delta(patch)->flags & GIT_DIFF_FLAG_BINARY;
		if (stat[i].plus + stat[i].minus > *most)
			*most = stat[i].plus + stat[i].minus;
	}
	return 0;
}

static void add_stat_line(struct buf *out, const git_diff_delta *d, const struct file_stat *s, size_t most)
{
	buf_addc(out, ' ');
	if (d->status == GIT_DELTA_RENAMED) {
		add_path(out, d->old_file.path);
		buf_adds(out, " => ");
	}
	add_path(out, d->status == GIT_DELTA_DELETED ? d->old_file.path : d->new_file.path);
	if (s->binary) {
		buf_adds(out, " | binary\n");
		return;
	}
	buf_addf(out, " | %zu ", s->plus + s->minus);
	add_bar(out, s->plus, s->minus, most);
	if (d->status == GIT_DELTA_ADDED)
		buf_adds(out, " (new)");
	else if (d->status == GIT_DELTA_DELETED)
		buf_adds(out, " (gone)");
	else if (d->old_file.mode != d->new_file.mode)
		buf_addf(out, " (mode %o)", d->new_file.mode & 07777);
	buf_addc(out, '\n');
}

int repo_changes(const char *path, const char *base, const char *head, struct buf *out, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_GIT(git_diff) *diff = NULL;
	int rc = lg_open(path, &repo, err);
	rc = rc ? rc : make_diff(repo, base, head, &diff, out, err);
	if (rc)
		return rc < 0 ? rc : 0;
	size_t n = git_diff_num_deltas(diff), most = 0, plus = 0, minus = 0, end = out->n + REPO_TEXT_MAX, shown = 0;
	if (!n)
		return 0;
	CLEAN_FREE struct file_stat *stat = xcalloc(n, sizeof *stat);
	rc = count_files(diff, stat, &most, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++) {
		plus += stat[i].plus;
		minus += stat[i].minus;
		if (out->n < end) {
			add_stat_line(out, git_diff_get_delta(diff, i), &stat[i], most);
			shown++;
		}
	}
	if (shown < n)
		buf_addf(out, " (cut: %zu more files)\n", n - shown);
	buf_addf(out, " %zu file%s changed, %zu insertion%s(+), %zu deletion%s(-)\n", n, n == 1 ? "" : "s", plus,
		 plus == 1 ? "" : "s", minus, minus == 1 ? "" : "s");
	return 0;
}

/* ---- log ---- */

static void add_clean(struct buf *out, const char *s)
{
	CLEAN_BUF struct buf clean = BUF_INIT;
	utf8_clean(&clean, s, strlen(s));
	for (size_t i = 0; i < clean.n; i++)
		if (clean.p[i] == '\n' || clean.p[i] == '\t')
			clean.p[i] = ' ';
	buf_add(out, buf_str(&clean), clean.n);
}

static int add_commit(git_repository *repo, const git_oid *id, struct buf *out)
{
	CLEAN_GIT(git_commit) *c = NULL;
	git_buf brief = GIT_BUF_INIT;
	char date[CLOCK_TEXT];
	int rc = git_commit_lookup(&c, repo, id);
	if (rc || (rc = git_object_short_id(&brief, (git_object *)c)))
		return rc;
	const char *subject = git_commit_summary(c);
	buf_addf(out, "%s  %s  ", brief.ptr, clock_rfc3339(git_commit_time(c) * 1000, date));
	git_buf_dispose(&brief);
	add_clean(out, git_commit_author(c)->name);
	buf_adds(out, "  ");
	add_clean(out, subject ? subject : "");
	buf_addc(out, '\n');
	return 0;
}

/* The same lines by git, for shallow clones: libgit2 stumbles over the parents that are not there. */
static int shallow_commits(const char *path, const char *base, const char *head, struct buf *out, struct err *err)
{
	CLEAN_BUF struct buf said = BUF_INIT, text = BUF_INIT;
	CLEAN_FREE char *not_base = xasprintf("^%s", base);
	const char *args[] = {"log",
			      "--topo-order",
			      "--no-show-signature",
			      "--date=format-local:%Y-%m-%dT%H:%M:%SZ",
			      "--format=%h  %cd  %aN  %s",
			      head,
			      not_base,
			      "--",
			      NULL};
	const char *env[] = {"TZ=UTC", NULL};
	struct git_call c = {
		.path = path, .args = args, .env = env, .out = &text, .errout = &said, .timeout_ms = GIT_LOCAL_MS};
	int rc = git_call(&c, err);
	if (rc)
		return rc < 0 ? rc : git_said(err, EIO, &said, "cannot list the commits");
	bool cut = text.n > REPO_TEXT_MAX;
	if (cut) {
		buf_cut(&text, REPO_TEXT_MAX);
		buf_cut(&text, (size_t)((char *)memrchr(text.p, '\n', text.n) + 1 - text.p));
	}
	utf8_clean(out, buf_str(&text), text.n);
	if (cut)
		buf_adds(out, "(cut: more, older commits)\n");
	return 0;
}

int repo_commits(const char *path, const char *base, const char *head, struct buf *out, struct err *err)
{
	CLEAN_GIT(git_repository) *repo = NULL;
	CLEAN_GIT(git_commit) *a = NULL;
	CLEAN_GIT(git_commit) *b = NULL;
	CLEAN_GIT(git_revwalk) *walk = NULL;
	int rc = lg_open(path, &repo, err);
	rc = rc ? rc : lg_commit(repo, base, &a, err);
	rc = rc ? rc : lg_commit(repo, head, &b, err);
	if (rc)
		return rc;
	if (git_repository_is_shallow(repo))
		return shallow_commits(path, base, head, out, err);
	if ((rc = git_revwalk_new(&walk, repo)) ||
	    (rc = git_revwalk_sorting(walk, GIT_SORT_TOPOLOGICAL | GIT_SORT_TIME)) ||
	    (rc = git_revwalk_push(walk, git_commit_id(b))) || (rc = git_revwalk_hide(walk, git_commit_id(a))))
		return lg_err(err, rc, "cannot list the commits");
	size_t end = out->n + REPO_TEXT_MAX, more = 0;
	git_oid id;
	while (!(rc = git_revwalk_next(&id, walk))) {
		if (out->n >= end)
			more++;
		else if ((rc = add_commit(repo, &id, out)))
			return lg_err(err, rc, "cannot read a commit");
	}
	if (more)
		buf_addf(out, "(cut: %zu older commits)\n", more);
	return rc == GIT_ITEROVER ? 0 : lg_err(err, rc, "cannot list the commits");
}
