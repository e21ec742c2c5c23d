/* Where the program Claude Code and its login are. Any thread. Must never read a login: whether the files are there is
 * all that is looked at. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "claude.h"

#define SCOPE "/node_modules/@anthropic-ai/"

void claude_place_release(struct claude_place *p)
{
	for (int i = 0; i < p->n_show; i++)
		free(p->show[i]);
	free(p->program);
	free(p->node);
	free(p->home);
	free(p->login);
	*p = (struct claude_place){0};
}

/* In the folders of list, which colons part; malloc'd, without links, or NULL. */
static char *find_in(const char *list, const char *name)
{
	CLEAN_FREE char *copy = xstrdup(list);
	char *rest = copy;
	for (char *dir; (dir = strsep(&rest, ":"));) {
		CLEAN_FREE char *path = xasprintf("%s/%s", dir, name);
		struct stat st;
		if (*dir == '/' && !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK))
			return realpath(path, NULL);
	}
	return NULL;
}

static char *find(const char *name, const char *home)
{
	const char *path = getenv("PATH");
	if (!strncmp(name, "~/", 2)) {
		CLEAN_FREE char *whole = xasprintf("%s%s", home, name + 1);
		return access(whole, X_OK) ? NULL : realpath(whole, NULL);
	}
	if (strchr(name, '/'))
		return access(name, X_OK) ? NULL : realpath(name, NULL);
	char *found = path ? find_in(path, name) : NULL;
	if (found)
		return found;
	/* where its own installer puts it; a daemon that systemd has started has no such PATH */
	CLEAN_FREE char *usual = xasprintf("%s/.local/bin:%s/.claude/local:/usr/local/bin", home, home);
	return find_in(usual, name);
}

static void show(struct claude_place *p, char *path)
{
	if (path && *path == '/' && strncmp(path, "/usr/", 5) && p->n_show < (int)ARRAY_LEN(p->show))
		p->show[p->n_show++] = path;
	else
		free(path);
}

/* A script of node needs node and its package; a program of its own only itself. */
static int needs(struct claude_place *p, struct err *err)
{
	char head[64] = "";
	FILE *f = fopen(p->program, "re");
	size_t n = f ? fread(head, 1, sizeof head - 1, f) : 0;
	if (f)
		fclose(f);
	if (!n)
		return err_set(err, ENOENT, "%s cannot be read", p->program);
	if (strncmp(head, "#!", 2)) {
		show(p, xstrdup(p->program));
		return 0;
	}
	const char *scope = strstr(p->program, SCOPE);
	head[strcspn(head, "\n")] = 0;
	show(p, scope ? xstrndup(p->program, (size_t)(scope - p->program) + strlen(SCOPE) - 1)
		      : xstrndup(p->program, (size_t)(strrchr(p->program, '/') - p->program)));
	if (!strstr(head, "node"))
		return 0;
	p->node = find("node", p->home);
	if (!p->node)
		return err_set(err, ENOENT, "%s is a script of node, and node is not found", p->program);
	show(p, xstrdup(p->node));
	return 0;
}

static bool there(const char *path)
{
	struct stat st;
	return !stat(path, &st) && S_ISREG(st.st_mode) && st.st_size > 0;
}

/* The program keeps it in one file; older ones, and logins with a key, in another. */
static void logins(struct claude_place *p)
{
	static const char *const files[] = {"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"};
	const char *dir = getenv("CLAUDE_CONFIG_DIR"), *token = getenv("CLAUDE_CODE_OAUTH_TOKEN");
	bool own = dir && *dir == '/';
	char *login = own ? xasprintf("%s/.credentials.json", dir) : xasprintf("%s/.claude/.credentials.json", p->home);
	p->signed_in = there(login) || (token && *token);
	if (!there(login)) {
		free(login);
		login = own ? xasprintf("%s/.claude.json", dir) : xasprintf("%s/.claude.json", p->home);
	}
	if (there(login))
		p->login = login;
	else
		free(login);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (getenv(files[i]) && there(getenv(files[i])))
			show(p, xstrdup(getenv(files[i])));
}

int claude_place(const char *program, struct claude_place *out, struct err *err)
{
	const char *home = getenv("HOME");
	*out = (struct claude_place){.home = xstrdup(home && *home == '/' ? home : "/nonexistent")};
	out->program = find(program, out->home);
	if (!out->program) {
		claude_place_release(out);
		return err_set(err, ENOENT,
			       "Claude Code is not installed here: \"%.80s\" is not found (its place can be told by "
			       "`claude-code.program = PATH` in config)",
			       program);
	}
	int rc = needs(out, err);
	if (rc) {
		claude_place_release(out);
		return rc;
	}
	logins(out);
	return 0;
}
