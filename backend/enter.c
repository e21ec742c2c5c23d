/* What `berthfs ssh` and `berthfs connect` ask: which session a name means, and a way into its sandbox. In the process
 * of the command, without a daemon: reads the database, never writes it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "config.h"
#include "db.h"
#include "sandbox/sandbox.h"

#define SUFFIX ".berth" /* what host names in an ssh config end with */

void entrance_release(struct entrance *e)
{
	free(e->kind);
	free(e->size);
	free(e->name);
	free(e->clone);
	*e = (struct entrance){0};
}

/* 1: found. */
static int look(struct db *db, const char *name, struct entrance *e, struct err *err)
{
	struct rows r;
	int found = 0;
	int rc = db_query(
		db, &r, err,
		"SELECT id, name, sandbox, size, clone FROM sessions WHERE destroyed_ms IS NULL AND (name=?1 OR "
		"id=CAST(?1 AS INTEGER) AND ?1 NOT GLOB '*[^0-9]*') ORDER BY name=?1 DESC LIMIT 1",
		"t", name);
	if (!rc && rows_next(&r)) {
		*e = (struct entrance){.id = row_int(&r, 0),
				       .name = xstrdup(row_text(&r, 1)),
				       .kind = xstrdup(row_text(&r, 2)),
				       .size = xstrdup(row_text(&r, 3)),
				       .clone = xstrdup(row_text(&r, 4))};
		found = 1;
	}
	rc = rc ? rc : rows_end(&r);
	return rc ? rc : found;
}

/* Where there is no ssh server of ours, the way there is short enough to be said. */
static int possible(const struct entrance *e, struct err *err)
{
	struct err why = ERR_INIT;
	const char *host = strchr(e->kind, ':');
	int rc = sandbox_enter_possible(e->kind, &why);
	if (!rc)
		return 0;
	if (rc != -EOPNOTSUPP || !*e->clone || strpbrk(e->clone, "'\n"))
		return err_set(err, -rc, "%s", why.text);
	if (host)
		return err_set(err, -rc, "log in there yourself: ssh -t %s \"cd '%s' && exec \\$SHELL -l\"", host + 1,
			       e->clone);
	return err_set(err, -rc, "%s: cd '%s'", why.text, e->clone);
}

int backend_entrance(const struct paths *paths, const char *name, struct entrance *out, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/berthfs.db", paths->state);
	struct db *db;
	*out = (struct entrance){0};
	if (!file_exists(path))
		return err_set(err, ENOENT, "there is no database yet in %s", paths->state);
	int rc = db_open(path, false, &db, err);
	if (rc)
		return rc;
	size_t n = strlen(name), k = sizeof SUFFIX - 1;
	rc = look(db, name, out, err);
	if (!rc && n > k && !strcmp(name + n - k, SUFFIX)) {
		CLEAN_FREE char *bare = xstrndup(name, n - k);
		rc = look(db, bare, out, err);
	}
	db_close(db);
	if (!rc)
		return err_set(err, ENOENT, "there is no session \"%.64s\"", name);
	rc = rc > 0 ? possible(out, err) : rc;
	if (!rc)
		out->up = sandbox_state(paths, out->kind, out->id) == SANDBOX_RUNNING;
	else
		entrance_release(out);
	return rc;
}

int backend_enter_keys(const struct paths *paths, const struct entrance *e, const char *alias, char **folder,
		       struct err *err)
{
	CLEAN_FREE char *links = xasprintf("%s/ssh", paths->state);
	CLEAN_FREE char *link = xasprintf("%s/%s", links, alias);
	CLEAN_FREE char *tmp = xasprintf("%s/.%d", links, (int)getpid());
	CLEAN_FREE char *to = xasprintf("../sandboxes/%" PRId64 "/ssh", e->id);
	int rc = sandbox_keys(paths, e->id, folder, err);
	rc = rc ? rc : dir_make(links, 0700, err);
	if (rc)
		return rc;
	char old[64];
	ssize_t n = readlink(link, old, sizeof old);
	if (n == (ssize_t)strlen(to) && !memcmp(old, to, (size_t)n))
		return 0;
	unlink(tmp);
	return symlink(to, tmp) || rename(tmp, link) ? err_sys(err, errno, "cannot make %s", link) : 0;
}

/* As the user's config has it now; without a daemon it is read here. */
static struct config *read_config(const struct paths *paths)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	struct config *c = NULL;
	if (file_exists(paths->config))
		file_read(paths->config, &text, 1 << 20, NULL);
	if (config_parse(buf_str(&text), text.n, &c, NULL))
		config_parse("", 0, &c, NULL);
	return c;
}

int backend_enter(const struct paths *paths, const struct entrance *e, void (*progress)(void *arg, const char *line),
		  void *arg, struct err *err)
{
	/* the socket that the daemon gives it, too (gate_token.c): a running sandbox keeps its way out */
	CLEAN_FREE char *net = xasprintf("%s/gateway-%" PRId64 ".sock", paths->runtime, e->id);
	struct config *c = read_config(paths);
	struct sandbox_spec spec = {.paths = paths,
				    .kind = e->kind,
				    .id = e->id,
				    .name = e->name,
				    .size = e->size,
				    .boot_timeout_ms = c ? (int)config_int(c, CONFIG_BOOT_TIMEOUT) * 1000 : 60000,
				    .disk_mib = c ? (int)config_int(c, CONFIG_DISK) : 0,
				    .net = net,
				    .progress = progress,
				    .arg = arg};
	config_put(c);
	return sandbox_enter(&spec, err);
}
