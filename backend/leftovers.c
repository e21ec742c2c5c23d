/* What an earlier daemon has left: sandboxes and attached files of sessions that have ended, and sockets of sandboxes
 * that do not run. Watch thread, once at the start. Must never touch what belongs to a session that lives, nor what it
 * cannot tell: a folder that this database has never known is left alone, and said. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "sandbox/sandbox.h"
#include "template.h"
#include "watch.h"

/* The number that a name begins with, if `end` follows it; 0: none. */
static int64_t number_of(const char *name, const char *end)
{
	char *rest;
	int64_t n = *name >= '1' && *name <= '9' ? strtoll(name, &rest, 10) : 0;
	return n > 0 && n < TEMPLATE_SANDBOX && !strcmp(rest, end) ? n
								   : 0; /* a template's are looked after by its own */
}

struct look {
	struct backend *b;
	struct db *db;
};

enum owner { OWNER_UNKNOWN, OWNER_LIVES, OWNER_ENDED };

/* Whose it is. *kind: malloc'd, of a session that has ended. */
static enum owner owner_of(struct db *db, int64_t id, char **kind)
{
	struct rows r;
	enum owner owner = OWNER_UNKNOWN;
	int rc = db_query(db, &r, NULL,
			  "SELECT destroyed_ms IS NOT NULL AND state<>'destroying', sandbox FROM sessions WHERE id=?",
			  "i", id);
	if (rc)
		owner = OWNER_LIVES; /* nothing is known, so nothing is touched */
	else if (rows_next(&r))
		owner = row_int(&r, 0) ? OWNER_ENDED : OWNER_LIVES;
	if (owner == OWNER_ENDED)
		*kind = xstrdup(row_text(&r, 1));
	rows_end(&r);
	return owner;
}

static void unknown(struct backend *b, const char *path)
{
	struct err err = ERR_INIT;
	err_set(&err, ENOENT,
		"%s belongs to no session of this database; it is left alone: remove it if it is of no use", path);
	notes_error(b->notes, 0, "sessions", &err, clock_real_ms());
}

static void look_at_sandbox(void *arg, const char *path, int64_t id)
{
	const struct look *l = arg;
	struct err err = ERR_INIT;
	CLEAN_FREE char *kind = NULL;
	enum owner owner = owner_of(l->db, id, &kind);
	if (owner == OWNER_UNKNOWN)
		unknown(l->b, path);
	if (owner != OWNER_ENDED)
		return;
	log_info("the sandbox of session %" PRId64 ", which has ended, was left behind: it is removed", id);
	if (sandbox_destroy(l->b->paths, kind, id, &err))
		notes_error(l->b->notes, 0, "sessions", &err, clock_real_ms());
}

static void look_at_attached(void *arg, const char *path, int64_t id)
{
	const struct look *l = arg;
	CLEAN_FREE char *kind = NULL;
	if (owner_of(l->db, id, &kind) == OWNER_ENDED)
		dir_remove(path, NULL);
}

/* A socket that nobody listens on. That of a session that lives may be one that is just being made. */
static void look_at_socket(void *arg, const char *path, int64_t id)
{
	const struct look *l = arg;
	struct stat st;
	CLEAN_FREE char *kind = NULL;
	if (lstat(path, &st) || !S_ISSOCK(st.st_mode) || owner_of(l->db, id, &kind) == OWNER_LIVES)
		return;
	int fd = unix_connect_now(path, NULL);
	if (fd == -ECONNREFUSED)
		unlink(path);
	fd_close(&fd);
}

void watch_each(const char *dir, const char *end, void (*each)(void *arg, const char *path, int64_t id), void *arg)
{
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));) {
		int64_t id = number_of(e->d_name, end);
		CLEAN_FREE char *path = id ? xasprintf("%s/%s", dir, e->d_name) : NULL;
		if (path)
			each(arg, path, id);
	}
	if (d)
		closedir(d);
}

void leftovers_remove(struct backend *b, struct db *db)
{
	CLEAN_FREE char *sandboxes = xasprintf("%s/sandboxes", b->paths->state);
	CLEAN_FREE char *attached = xasprintf("%s/attach", b->paths->state);
	struct look l = {b, db};
	watch_each(sandboxes, "", look_at_sandbox, &l);
	watch_each(attached, "", look_at_attached, &l);
	watch_each(b->paths->runtime, ".sock", look_at_socket, &l);
}
