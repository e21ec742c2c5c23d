/* What the command line asks without a daemon: a session's transcript, and a look at this machine. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "backend/base/child.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "config.h"
#include "db.h"
#include "model.h"
#include "transcript.h"

#define PIECE (256 << 10) /* bytes read and written at a time */

int backend_show(const struct paths *paths, const char *name, int fd, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/berthfs.db", paths->state);
	struct db *db;
	if (!file_exists(path))
		return err_set(err, ENOENT, "there is no database yet in %s", paths->state);
	int rc = db_open(path, false, &db, err);
	if (rc)
		return rc;
	int64_t id =
		db_int(db, 0,
		       "SELECT id FROM sessions WHERE name=?1 OR id=CAST(?1 AS INTEGER) AND ?1 NOT GLOB '*[^0-9]*' "
		       "ORDER BY destroyed_ms IS NULL DESC, id DESC LIMIT 1",
		       "t", name);
	if (!id)
		rc = err_set(err, ENOENT, "there is and was no session \"%.64s\"", name);
	for (uint64_t at = 0; !rc;) {
		CLEAN_BUF struct buf piece = BUF_INIT;
		rc = text_read(db, id, TEXT_TRANSCRIPT, at, PIECE, &piece, err);
		if (rc || !piece.n)
			break;
		rc = fd_write_full(fd, piece.p, piece.n);
		if (rc)
			err_sys(err, -rc, "cannot write the transcript");
		at += piece.n;
	}
	db_close(db);
	return rc;
}

static void look_git(void (*line)(void *arg, bool ok, const char *name, const char *words), void *arg)
{
	const char *argv[] = {"git", "--version", NULL};
	CLEAN_BUF struct buf out = BUF_INIT;
	struct child c = {.argv = argv, .out = &out, .timeout_ms = 10000};
	struct err err = ERR_INIT;
	if (child_run(&c, &err))
		line(arg, false, "git", err.code ? err.text : "git does not work: install the package git");
	else
		line(arg, true, "git", text_trim(out.p));
}

void backend_doctor(const struct paths *paths, void (*line)(void *arg, bool ok, const char *name, const char *words),
		    void *arg)
{
	struct err err = ERR_INIT;
	struct config *c = NULL;
	CLEAN_BUF struct buf text = BUF_INIT;
	look_git(line, arg);
	if (!file_exists(paths->config)) {
		line(arg, true, "config", "none yet: the first mount writes one with every default");
		return;
	}
	int rc = file_read(paths->config, &text, 1 << 20, &err);
	rc = rc ? rc : config_parse(buf_str(&text), text.n, &c, &err);
	line(arg, !rc, "config", rc ? err.text : paths->config);
	if (c && !*c->value[CONFIG_MODEL])
		line(arg, false, "model",
		     "none is set: Claude Code serves if it is logged in, else the first provider with a key; berthfs "
		     "models lists what can be used");
	else if (c) {
		const char *model = c->value[CONFIG_MODEL];
		bool later = !strncmp(model, "script:", 7) && model[7] != '/'; /* relative to a project */
		bool ok = later || !model_check(c, model, "", &err);
		line(arg, ok, "model", ok ? model : err.text);
	}
	config_put(c);
}
