/* A ship to a pull request. Title and text come from the session: its only commit or its first message, its plan, its
 * commits. Worker threads. */
#include "ship_pr.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/git/repo.h"
#include "transcript.h"

#define TEXT_BYTES 65536 /* of a pull request's text, as forges take it */

char *ship_pr_branch(int64_t session, const char *head)
{
	return xasprintf("sandbox-%" PRId64 "-%.12s", session, head);
}

/* The subject of the only commit; NULL if there are more. A row of `commits`: SHORT  DATE  AUTHOR  SUBJECT. */
static char *only_subject(const struct buf *commits)
{
	const char *at = buf_str(commits), *end = strchr(at, '\n');
	if (!end || end[1])
		return NULL;
	for (int column = 0; column < 3 && at; column++)
		if ((at = strstr(at, "  ")))
			at += 2;
	return at && at < end ? xstrndup(at, (size_t)(end - at)) : NULL;
}

static int first_message(struct worker *w, char **out, struct err *err)
{
	struct rows r;
	int rc = db_query(w->db, &r, err, "SELECT text FROM messages WHERE session=? ORDER BY k LIMIT 1", "i", w->id);
	if (!rc && rows_next(&r)) {
		const char *text = row_text(&r, 0) + strspn(row_text(&r, 0), " \t\r\n");
		*out = xstrndup(text, strcspn(text, "\r\n"));
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

/* Title and text of the pull request. */
static int describe(struct worker *w, char **title, struct buf *body, struct err *err)
{
	CLEAN_BUF struct buf plan = BUF_INIT, commits = BUF_INIT;
	int rc = text_read(w->db, w->id, TEXT_PLAN, 0, TEXT_BYTES / 2, &plan, err);
	rc = rc ? rc : text_read(w->db, w->id, TEXT_COMMITS, 0, TEXT_BYTES / 4, &commits, err);
	if (rc)
		return rc;
	*title = only_subject(&commits);
	if (!*title)
		rc = first_message(w, title, err);
	if (!rc && (!*title || !**title)) {
		free(*title);
		*title = xstrdup(w->s->name);
	}
	if (plan.n)
		buf_addf(body, "%s\n", buf_str(&plan));
	buf_addf(body, "```\n%s```\n", buf_str(&commits));
	return rc;
}

int ship_pr_open(struct worker *w, const char *remote, const char *base, const char *head, char **link,
		 struct buf *words, struct err *err)
{
	CLEAN_FREE char *title = NULL;
	CLEAN_FREE char *branch = ship_pr_branch(w->id, head);
	CLEAN_BUF struct buf body = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = describe(w, &title, &body, err);
	if (rc)
		return rc;
	text_one_line(title, SIZE_MAX);
	struct repo_pr pr = {.remote = remote, .branch = branch, .base = base, .title = title, .body = buf_str(&body)};
	rc = repo_pr_open(w->s->project, &pr, link, &w->cancel, &why);
	bool no_gh = rc == -ENOENT;
	if (no_gh)
		rc = ship_forge_open(w, &pr, link, &why);
	if (!rc || rc == -ECANCELED)
		return rc;
	*link = w->offered ? xstrdup(w->offered) : NULL;
	if (no_gh && rc == -ENOENT)
		buf_addf(words, "%s is pushed, but gh is not installed, and %s: open the pull request by hand%s%s",
			 branch, why.text, *link ? " at " : "", *link ? *link : "");
	else
		buf_addf(words, "%s is pushed, but the pull request was not opened (%s): open it by hand%s%s", branch,
			 why.text, *link ? " at " : "", *link ? *link : "");
	return 0;
}
