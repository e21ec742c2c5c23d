/* The project's own instructions to agents. Worker threads, through the sandbox; agents_told() on the store thread. */
#include "agents.h"

#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "tool.h"

#define ROOT_MAX   (64 << 10) /* bytes of the root's file */
#define FOLDER_MAX (16 << 10) /* of a folder's */

static const char *const names[] = {"AGENTS.md", "CLAUDE.md"};

/* Folders of others' work: what stands there is no instruction of this project. */
static const char *const foreign[] = {".git", "node_modules", "vendor", "third_party", ".venv",
				      "venv", "target",	      "dist",	"build"};

/* The first of the names that is there. *name NULL if none is. */
static int read_first(struct worker *w, const char *folder, size_t max, struct buf *out, const char **name,
		      struct err *err)
{
	*name = NULL;
	for (size_t i = 0; i < ARRAY_LEN(names) && !*name; i++) {
		CLEAN_BUF struct buf raw = BUF_INIT;
		CLEAN_FREE char *path = xasprintf("%s/%s", folder, names[i]);
		int rc = env_read(w->env, path, 0, max, &raw, err);
		if (rc && tool_env_lost(rc))
			return rc;
		if (rc || utf8_blank(buf_str(&raw), raw.n))
			continue;
		*name = names[i];
		utf8_clean(out, buf_str(&raw), raw.n);
		if (raw.n == max)
			buf_addf(out, "\n[only the first %zu KiB are shown; read %s for the rest]\n", max >> 10,
				 names[i]);
	}
	return 0;
}

int agents_root(struct worker *w, struct buf *out, struct err *err)
{
	const char *name;
	return read_first(w, w->s->clone, ROOT_MAX, out, &name, err);
}

/* The path below the clone, without `.` and `..`; NULL if it leads out of it. malloc'd. */
static char *below_clone(const struct worker *w, const char *path)
{
	size_t n = strlen(w->s->clone);
	if (*path == '/' && (strncmp(path, w->s->clone, n) || path[n] != '/'))
		return NULL;
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *copy = xstrdup(*path == '/' ? path + n : path);
	char *rest = copy;
	for (char *part; (part = strsep(&rest, "/"));) {
		if (!*part || !strcmp(part, "."))
			continue;
		if (strcmp(part, "..")) {
			buf_addf(&out, "/%s", part);
			continue;
		}
		if (!out.n)
			return NULL;
		buf_cut(&out, (size_t)(strrchr(buf_str(&out), '/') - out.p));
	}
	return out.n ? buf_take(&out) : NULL;
}

static bool is_foreign(const char *part, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
		if (strlen(foreign[i]) == n && !memcmp(part, foreign[i], n))
			return true;
	return false;
}

/* Was this worker here before, or was the session told by an earlier one? Remembers it. */
static bool known(struct worker *w, const char *folder)
{
	CLEAN_FREE char *line = xasprintf("\n%s\n", folder);
	if (!w->looked.n)
		buf_addc(&w->looked, '\n');
	if (memmem(w->looked.p, w->looked.n, line, strlen(line)))
		return true;
	buf_adds(&w->looked, line + 1);
	return db_int(w->db, 0, "SELECT 1 FROM told WHERE session=? AND path=?", "it", w->id, folder);
}

static int one_folder(struct worker *w, const char *folder, const char *file, struct buf *out, struct buf *told,
		      struct err *err)
{
	const char *name;
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_FREE char *full = xasprintf("%s%s", w->s->clone, folder);
	int rc = read_first(w, full, FOLDER_MAX, &text, &name, err);
	if (rc || !name)
		return rc;
	buf_addf(told, "%s\n", folder);
	CLEAN_FREE char *itself = xasprintf("%s/%s", folder, name);
	if (!strcmp(itself, file)) /* it was just read */
		return 0;
	if (out->n && !buf_ends(out, "\n"))
		buf_addc(out, '\n');
	buf_addf(out, "[%s of this project holds for what is below it:]\n%s", itself + 1, buf_str(&text));
	buf_addf(out, "%s[end of %s]\n", buf_ends(out, "\n") ? "" : "\n", itself + 1);
	return 0;
}

int agents_above(struct worker *w, const char *path, struct buf *out, struct buf *told, struct err *err)
{
	int rc = 0;
	CLEAN_FREE char *file = path && !strchr(path, '\n') ? below_clone(w, path) : NULL;
	if (!file)
		return 0;
	size_t before = w->looked.n;
	for (char *part = file + 1, *slash; !rc && (slash = strchr(part, '/')); part = slash + 1) {
		if (is_foreign(part, (size_t)(slash - part)))
			return 0;
		CLEAN_FREE char *folder = xstrndup(file, (size_t)(slash - file));
		if (!known(w, folder))
			rc = one_folder(w, folder, file, out, told, err);
	}
	if (rc && before)
		buf_cut(&w->looked, before); /* it is looked at again with the next try */
	else if (rc)
		buf_reset(&w->looked);
	return rc;
}

int agents_told(struct tx *tx, const struct session *s, const char *told, struct err *err)
{
	int rc = 0;
	CLEAN_FREE char *copy = xstrdup(told);
	char *rest = copy;
	for (char *line; !rc && (line = strsep(&rest, "\n"));)
		if (*line)
			rc = db_run(tx->db, err, "INSERT OR IGNORE INTO told(session,path) VALUES(?,?)", "it", s->id,
				    line);
	return rc;
}
