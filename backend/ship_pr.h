/* A ship to a pull request: what is told of it, and how it is opened. Worker threads. */
#pragma once
#include "backend/git/repo.h"
#include "engine.h"

/* "sandbox-N-SHA": the branch that a session's work is pushed to; malloc'd. */
char *ship_pr_branch(int64_t session, const char *head);
/* After the push. *link (malloc'd, or NULL) is the pull request, or the page that opens one; words say what is left to
 * do by hand (empty: nothing). -ECANCELED, or 0: a branch that was pushed is a success. */
int ship_pr_open(struct worker *w, const char *remote, const char *base, const char *head, char **link,
		 struct buf *words, struct err *err);
/* Host and project of a remote's URL, malloc'd: "github.com", "ann/app". -ENOENT: it is none of a forge. */
int ship_forge_parse(const char *url, char **host, char **project, struct err *err);
/* The same as repo_pr_open() by way of the gateway. -ENOENT: it knows no forge or has no key for it, in words. */
int ship_forge_open(struct worker *w, const struct repo_pr *pr, char **link, struct err *err);
