/* Which package sources make this machine, as apt itself reads them. No mirror is named here: a sandbox is installed
 * from where its machine is. Third parties' sources are left out, since one that is down would fail the build. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "image_job.h"

/* VALUE of "KEY=VALUE" or "KEY="VALUE"" in /etc/os-release; malloc'd or NULL. */
static char *os_release(const char *key)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	if (file_read("/etc/os-release", &b, 65536, NULL) && file_read("/usr/lib/os-release", &b, 65536, NULL))
		return NULL;
	CLEAN_FREE char *text = buf_take(&b);
	char *save = NULL;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		size_t n = strlen(key);
		if (strncmp(line, key, n) || line[n] != '=')
			continue;
		char *value = line + n + 1;
		value += *value == '"';
		return xstrndup(value, strcspn(value, "\""));
	}
	return NULL;
}

struct target {
	char *origin, *codename, *release, *file;
};

static bool split(char *line, struct target *t)
{
	char **fields[] = {&t->origin, &t->codename, &t->release, &t->file};
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		*fields[i] = line;
		line = line ? strchr(line, '|') : NULL;
		if (line)
			*line++ = 0;
	}
	if (!t->file)
		return false;
	char *colon = strrchr(t->file, ':'); /* FILE:LINE */
	if (colon)
		*colon = 0;
	return t->file[0] == '/';
}

static void add_file(char ***files, size_t *n, const char *file)
{
	for (size_t i = 0; i < *n; i++)
		if (!strcmp((*files)[i], file))
			return;
	*files = xrealloc(*files, (*n + 2) * sizeof **files);
	(*files)[(*n)++] = xstrdup(file);
	(*files)[*n] = NULL;
}

/* origin NULL: any. Returns how many targets fit; suite gets the first one's code name. */
static size_t choose(const char *text, const char *origin, const char *codename, char ***files, char **suite)
{
	CLEAN_FREE char *copy = xstrdup(text);
	char *save = NULL;
	size_t n = 0;
	bool found = false;
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		struct target t;
		if (!split(line, &t) || (origin && strcasecmp(t.origin, origin)))
			continue;
		/* Before the first `apt-get update` apt knows no code name and leaves the place as it was written. */
		const char *name = t.codename[0] && t.codename[0] != '$' ? t.codename : t.release;
		if (!*suite)
			*suite = xstrdup(name);
		if (codename && !found && !strcmp(name, codename)) {
			found = true;
			free(*suite);
			*suite = xstrdup(name);
		}
		add_file(files, &n, t.file);
	}
	return n;
}

void image_sources_free(char **sources)
{
	for (size_t i = 0; sources && sources[i]; i++)
		free(sources[i]);
	free(sources);
}

int image_sources(char **suite, char ***sources, struct err *err)
{
	static const char *const argv[] = {"apt-get",
					   "indextargets",
					   "--format",
					   "$(ORIGIN)|$(CODENAME)|$(RELEASE)|$(SOURCESENTRY)",
					   "Created-By: Packages",
					   NULL};
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *id = os_release("ID");
	CLEAN_FREE char *codename = os_release("VERSION_CODENAME");
	*suite = NULL;
	*sources = NULL;
	int rc = child_run(&(struct child){.argv = argv, .out = &out, .timeout_ms = 60000}, err);
	if (rc == -ENOENT)
		return err_set(err, ENOENT, "there is no apt here: base images are made on Debian");
	if (rc < 0)
		return rc;
	if (rc || (!choose(buf_str(&out), id, codename, sources, suite) &&
		   !choose(buf_str(&out), NULL, codename, sources, suite)))
		return err_set(err, ENOENT, "apt has no package sources: see /etc/apt/sources.list");
	return 0;
}
