/* The table of what is found and what is run for it. Worker threads; must never run anything of the project's on the
 * host. */
#include "template_plan.h"

#include <errno.h>
#include <string.h>

#include "backend/base/mem.h"

/* What an installer makes is nobody's work: git need not be told by each project. */
#define HIDE(folder)                                                                                                   \
	"mkdir -p .git/info && { grep -qxF '/" folder "/' .git/info/exclude 2>/dev/null || "                           \
	"echo '/" folder "/' >>.git/info/exclude; }\n"

static const struct plan_step setup = {
	".agents/setup", "if [ -x .agents/setup ]; then exec ./.agents/setup; else exec bash .agents/setup; fi\n"};

/* pnpm comes by npm, in the version that the project names, else one that reads its lockfile. */
static const struct plan_step pnpm = {
	"pnpm install --frozen-lockfile",
	HIDE("node_modules") "if ! command -v pnpm >/dev/null; then\n"
			     "	v=$(sed -n 's/.*\"packageManager\" *: *\"pnpm@\\([0-9][0-9.]*\\).*/\\1/p' package.json "
			     "| head -n 1)\n"
			     "	if [ -z \"$v\" ]; then\n"
			     "		case $(sed -n 's/^lockfileVersion: *//p' pnpm-lock.yaml | tr -d \"'\\\"\") in\n"
			     "		5*) v=7 ;;\n"
			     "		6*) v=8 ;;\n"
			     "		*) v=10 ;;\n"
			     "		esac\n"
			     "	fi\n"
			     "	echo \"installing pnpm $v\"\n"
			     "	sudo -n -E npm install --global --no-fund --no-audit \"pnpm@$v\" || exit\n"
			     "fi\n"
			     "exec pnpm install --frozen-lockfile\n"};

static const struct plan_step npm = {"npm ci", HIDE("node_modules") "exec npm ci --no-fund --no-audit\n"};

static const struct plan_step cargo = {
	"cargo fetch",
	"if ! command -v cargo >/dev/null; then\n"
	"	echo 'there is no cargo in the sandbox: a script .agents/setup can install it; nothing is fetched'\n"
	"	exit 0\n"
	"fi\n"
	"exec cargo fetch --locked\n"};

static const struct plan_step python = {
	"python3 -m venv .venv, pip install",
	HIDE(".venv") "[ -x .venv/bin/pip ] || python3 -m venv .venv || exit\n"
		      "exec .venv/bin/pip install --disable-pip-version-check -r requirements.txt\n"};

/* One of a group; the first that is there. */
static const struct {
	int group;
	const char *file;
	const struct plan_step *step;
} lockfiles[] = {
	{1, "pnpm-lock.yaml", &pnpm}, {1, "package-lock.json", &npm},	{1, "npm-shrinkwrap.json", &npm},
	{2, "Cargo.lock", &cargo},    {3, "requirements.txt", &python},
};

static int is_file(struct repo_tree *t, const char *file, struct repo_entry *e, struct err *err)
{
	int rc = repo_tree_find(t, file, e, err);
	return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc ? rc : (e->mode & 0170000) == 0100000;
}

int plan_find(const char *project, const char *commit, struct plan *out, struct err *err)
{
	struct repo_tree *t = NULL;
	struct repo_entry e;
	*out = (struct plan){.n = 0};
	int rc = repo_tree_open(project, commit, &t, err);
	if (rc)
		return rc;
	rc = is_file(t, ".agents/setup", &e, err);
	if (rc > 0) {
		memcpy(out->setup, e.object, sizeof out->setup);
		out->steps[out->n++] = &setup;
	}
	int group = 0;
	for (size_t i = 0; !rc && i < ARRAY_LEN(lockfiles); i++) {
		if (lockfiles[i].group == group)
			continue;
		rc = is_file(t, lockfiles[i].file, &e, err);
		if (rc > 0) {
			out->steps[out->n++] = lockfiles[i].step;
			group = lockfiles[i].group;
			rc = 0;
		}
	}
	repo_tree_free(t);
	return rc < 0 ? rc : 0;
}
