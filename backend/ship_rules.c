/* The rules of a ship. Pure functions; any thread. */
#include "ship_rules.h"

#include <errno.h>
#include <git2.h>
#include <string.h>

#include "backend/base/mem.h"

static char *trimmed(const char *line)
{
	size_t n;
	line += strspn(line, " \t\r\n");
	for (n = strlen(line); n && strchr(" \t\r\n", line[n - 1]); n--)
		;
	return xstrndup(line, n);
}

int ship_parse(const char *line, enum ship_target *target, char **branch, struct err *err)
{
	CLEAN_FREE char *word = trimmed(line);
	*branch = NULL;
	*target = SHIP_TO_DEFAULT;
	if (!*word || !strcmp(word, "main"))
		return 0;
	if (!strcmp(word, "pr")) {
		*target = SHIP_TO_PR;
		return 0;
	}
	size_t verb = strcspn(word, " \t");
	if (verb != strlen("branch") || strncmp(word, "branch", verb))
		return err_set(err, EINVAL,
			       "ship does not know \"%.60s\"; known: an empty line or main, branch NAME, pr", word);
	const char *name = word + verb + strspn(word + verb, " \t");
	int valid = 0;
	CLEAN_FREE char *ref = xasprintf("refs/heads/%s", name);
	if (!*name || *name == '-' || git_reference_name_is_valid(&valid, ref) || !valid)
		return err_set(err, EINVAL, "\"%.60s\" is no name for a branch; write: branch NAME", name);
	*target = SHIP_TO_BRANCH;
	*branch = xstrdup(name);
	return 0;
}

void ship_prompt(struct buf *out, bool pr, const char *remote, const char *branch, const char *base)
{
	buf_addf(out,
		 "Your work is about to be %s branch %s of %s. The push is made outside of this sandbox, after "
		 "your "
		 "answer; make the work ready for it:\n\n"
		 "1. Commit everything that belongs to the work, and leave nothing uncommitted behind: `git status` "
		 "must be "
		 "clean, untracked files included.\n"
		 "2. Rebase onto refs/berthfs/base (`git rebase refs/berthfs/base`). That is %s as it is now, commit "
		 "%.12s.\n"
		 "3. Resolve conflicts so that both sides keep their meaning.\n"
		 "4. Run the project's tests and checks, and mend what the rebase broke. Commit that too.\n\n"
		 "Do not push, and do not add or change remotes. A command that takes longer than five minutes is "
		 "stopped.\n\n"
		 "The very last line of your answer, after the plan block, must be exactly\n\n"
		 "SHIP-READY\n\n"
		 "if all of this is done, or else\n\n"
		 "SHIP-BLOCKED: why it cannot be shipped, in one line\n",
		 pr ? "offered as a pull request for" : "pushed to", branch, remote, branch, base);
}

bool ship_allowed(const struct ship_facts *f, struct buf *outcome, struct buf *words)
{
	CLEAN_BUF struct buf dropped = BUF_INIT;
	if (!words)
		words = &dropped;
	if (*f->busy) {
		buf_adds(outcome, "check failed: unfinished ");
		buf_adds(outcome, f->busy);
		buf_addf(words, "a %s is still under way in the sandbox; ask for it to be finished, then ship again",
			 f->busy);
		return false;
	}
	if (f->uncommitted) {
		buf_adds(outcome, "check failed: uncommitted changes");
		buf_addf(words, "%zu file%s in the sandbox not committed; ask for a commit, then ship again",
			 f->uncommitted, f->uncommitted == 1 ? " is" : "s are");
		return false;
	}
	if (f->landed) {
		buf_addf(outcome, "already on %s", f->branch);
		return false;
	}
	if (!f->on_base) {
		buf_addf(outcome, "check failed: not rebased onto %s", f->branch);
		buf_addf(words, "the work does not contain the newest commit of %s; ship again", f->branch);
		return false;
	}
	for (size_t i = 0; i < f->n_checks; i++) {
		if (f->checks[i].state == CHECK_PASS)
			continue;
		buf_addf(outcome, "check failed: %s", f->checks[i].name);
		buf_addf(words, "the check %s says %s; read `checks`, then ship again", f->checks[i].name,
			 check_words[f->checks[i].state]);
		return false;
	}
	return true;
}
