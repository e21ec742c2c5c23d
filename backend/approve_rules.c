/* Which calls need a word. Pure; any thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "approve.h"
#include "backend/base/guard.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/parse/shell.h"
#include "tool.h"

#define WORDS_MAX 16

/* Asked for in these kinds of sandboxes whatever is set: they reach what only the user may reach. */
static const struct rule {
	const char *kind, *rule;
} always[] = {
	{"host", "bash git push"},     {"host", "bash git send-pack"}, {"host", "bash git remote-*"},
	{"host", "bash gh pr create"}, {"host", "bash gh pr merge"},   {"host", "bash gh release"},
};
static const char *const always_hosts[] = {"host"}; /* kinds in which ssh to a listed host is asked for */

struct found {
	char **rules;
	size_t n;
};

static void add(struct found *f, char *rule)
{
	for (size_t i = 0; i < f->n; i++)
		if (!strcmp(f->rules[i], rule)) {
			free(rule);
			return;
		}
	if (f->n < APPROVE_RULES_MAX)
		f->rules[f->n++] = rule;
	else
		free(rule); /* as many as can be told apart; the call is asked for all the same */
}

/* What cannot be told is allowed for exactly the same command alone. */
static void sighted(struct found *f, enum shell_sight s, const char *rule, const char *command)
{
	if (s == SHELL_YES)
		add(f, xstrdup(rule));
	else if (s == SHELL_UNSURE)
		add(f, xasprintf("bash = %s", command));
}

static void bash_rule(struct found *f, const char *rule, char *rest, const char *command)
{
	const char *words[WORDS_MAX];
	size_t n = 0;
	for (char *save = NULL, *w = strtok_r(rest, " \t", &save); w && n < WORDS_MAX; w = strtok_r(NULL, " \t", &save))
		words[n++] = w;
	sighted(f, shell_runs(command, words, n), rule, command);
}

/* One rule: TOOL, or TOOL and what it is given. */
static void one(struct found *f, const char *rule, const char *tool, const cJSON *args)
{
	CLEAN_FREE char *copy = xstrdup(rule);
	char *rest = copy + strcspn(copy, " \t");
	if (*rest)
		*rest++ = 0;
	rest = text_trim(rest);
	if (strcmp(copy, tool))
		return;
	const char *command = json_str(args, "command"), *path = json_str(args, "path");
	if (!*rest)
		add(f, xstrdup(rule));
	else if (!strcmp(tool, "bash"))
		bash_rule(f, rule, rest, command ? command : "");
	else if (path) {
		CLEAN_FREE char *full = xasprintf("%s%s", *path == '/' ? "" : "/", path);
		if (guard_match(rest, full, NULL, 0))
			add(f, xstrdup(rule));
	}
}

size_t approve_rules(const struct approve_how *how, const char *tool, const cJSON *args, char *rules[APPROVE_RULES_MAX])
{
	struct found f = {.rules = rules};
	const char *command = json_str(args, "command");
	for (size_t i = 0; i < ARRAY_LEN(always); i++)
		if (!strcmp(always[i].kind, how->kind))
			one(&f, always[i].rule, tool, args);
	for (size_t i = 0; i < ARRAY_LEN(always_hosts) && !strcmp(tool, "bash") && command; i++)
		if (!strcmp(always_hosts[i], how->kind))
			sighted(&f, shell_reaches(command, how->hosts), "bash ssh to a listed host", command);
	CLEAN_FREE char *ask = xstrdup(how->ask);
	for (char *save = NULL, *r = strtok_r(ask, ",", &save); r && how->on; r = strtok_r(NULL, ",", &save))
		if (*text_trim(r))
			one(&f, text_trim(r), tool, args);
	return f.n;
}

int approve_check_ask(const char *value, struct err *err)
{
	CLEAN_FREE char *copy = xstrdup(value);
	for (char *save = NULL, *r = strtok_r(copy, ",", &save); r; r = strtok_r(NULL, ",", &save)) {
		char *rule = text_trim(r), *rest = rule + strcspn(rule, " \t");
		bool bash = !strncmp(rule, "bash", 4);
		if (!*rule)
			continue;
		if (*rest)
			*rest++ = 0;
		if (!tool_find(rule))
			return err_set(
				err, EINVAL,
				"approvals.ask is a list of TOOL or TOOL PATTERN with commas, such as `write, bash "
				"git push`; \"%.40s\" is no tool",
				rule);
		int rc = *rest && !bash ? guard_check(text_trim(rest), err) : 0;
		if (rc)
			return rc;
	}
	return 0;
}
