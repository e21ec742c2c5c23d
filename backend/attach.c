/* Files that go with messages: kept, taken by a message, brought to the sandbox and to the model. */
#include "attach.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "backend/parse/image.h"
#include "context.h"
#include "killpoint.h"
#include "tool.h"

#define PIXELS_MAX   8000	/* of a side; providers refuse more, and with it the whole request */
#define IMAGES_BYTES (18 << 20) /* of all images of a request: with base64 24 MiB of the 30 that providers take */
#define IMAGE_TOKENS 1600	/* that an image costs, at most: larger ones are scaled down by the provider */
#define IMAGES_MAX   20		/* in a request; more than that have a lower limit of pixels */

char *attach_folder(const struct paths *paths, int64_t session)
{
	return xasprintf("%s/attach/%" PRId64, paths->state, session);
}

static char *host_path(const struct paths *paths, int64_t session, const char *file)
{
	CLEAN_FREE char *folder = attach_folder(paths, session);
	return xasprintf("%s/%s", folder, file);
}

/* ---- adding ---- */

struct adding {
	struct backend *b;
	struct request *r;
	char *file;
	const char *media, *note;
};

static int add_fn(struct tx *tx, void *arg, struct err *err)
{
	struct adding *a = arg;
	struct session *s = tx_session(tx, a->r->session);
	if (!s)
		return err_set(err, ESHUTDOWN, "this session has ended");
	if (db_int(tx->db, 0, "SELECT 1 FROM attachments WHERE session=? AND state='waiting' AND name=?", "it", s->id,
		   a->r->name))
		return err_set(err, EEXIST, "%s is attached already; rm it first", a->r->name);
	int64_t size = (int64_t)a->r->text.n;
	if (s->n_attach >= ATTACH_MAX)
		return err_set(err, EDQUOT, "%d files wait already; send a message, or rm some", ATTACH_MAX);
	a->r->number = (uint64_t)++s->attached;
	int rc = db_run(tx->db, err,
			"INSERT INTO attachments(session,n,at_ms,name,media,note,size,file,state,message) "
			"VALUES(?,?,?,?,?,?,?,?,'waiting',0)",
			"iiitttit", s->id, s->attached, tx->now_ms, a->r->name, a->media, a->note, size, a->file);
	rc = rc ? rc : attach_load(tx->db, s, err);
	return rc ? rc : tx_event(tx, s, "attached", a->r->name, err);
}

static void added(void *arg, int rc, const struct err *err)
{
	struct adding *a = arg;
	if (rc) {
		CLEAN_FREE char *path = host_path(a->b->paths, a->r->session, a->file);
		unlink(path); /* one file on a local disk: this does not wait */
	} else {
		killpoint("attach.commit");
	}
	a->r->rc = rc;
	a->r->err = *err;
	notes_done(a->b->notes, a->r);
	free(a->file);
	free(a);
}

/* What it is: an image that models take, or a file. */
static void judge(struct adding *a)
{
	unsigned w, h;
	const struct buf *data = &a->r->text;
	const char *media = image_media(buf_str(data), data->n);
	a->media = a->note = "";
	if (media && data->n > ATTACH_IMAGE_MAX)
		a->note = "too large to be shown to the model as an image";
	else if (media && !image_size(buf_str(data), data->n, &w, &h))
		a->note = "it looks like an image, but it is broken";
	else if (media && (w > PIXELS_MAX || h > PIXELS_MAX))
		a->note = "it has too many pixels to be shown to the model as an image";
	else if (media)
		a->media = media;
}

static int check_name(const char *name, struct err *err)
{
	size_t n = strlen(name);
	if (!n || n > 255 || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return err_set(err, EINVAL, "\"%.60s\" is no name of a file", name);
	if (!utf8_valid(name, n))
		return err_set(err, EILSEQ, "a name is UTF-8 text");
	for (const char *c = name; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return err_set(err, EINVAL, "a name has no control characters");
	return 0;
}

bool attach_add(struct backend *b, struct request *r)
{
	static atomic_uint serial;
	CLEAN_FREE char *folder = attach_folder(b->paths, r->session);
	r->rc = check_name(r->name, &r->err);
	if (!r->rc && r->text.n > ATTACH_FILE_MAX)
		r->rc = err_set(&r->err, EFBIG, "a file has at most %d MiB", ATTACH_FILE_MAX >> 20);
	if (!r->rc)
		r->rc = dir_make(folder, 0700, &r->err);
	if (r->rc)
		return false;
	struct adding *a = xcalloc(1, sizeof *a);
	*a = (struct adding){.b = b, .r = r};
	a->file = xasprintf("%" PRIx64 "-%x", (uint64_t)clock_real_ms(), atomic_fetch_add(&serial, 1));
	judge(a);
	CLEAN_FREE char *path = xasprintf("%s/%s", folder, a->file);
	r->rc = file_write(path, buf_str(&r->text), r->text.n, 0600, &r->err);
	if (r->rc) {
		free(a->file);
		free(a);
		return false;
	}
	killpoint("attach.written");
	store_post(b->store, add_fn, added, a);
	return true;
}

/* ---- looking and taking back ---- */

/* The file of a row; NULL if there is none. malloc'd. */
static char *file_of(struct backend *b, struct db *db, int64_t session, int64_t n)
{
	struct rows r;
	char *path = NULL;
	int rc = db_query(db, &r, NULL, "SELECT file FROM attachments WHERE session=? AND n=?", "ii", session, n);
	if (!rc && rows_next(&r))
		path = host_path(b->paths, session, row_text(&r, 0));
	rows_end(&r);
	return path;
}

void attach_read(struct backend *b, struct db *db, struct request *r)
{
	CLEAN_FREE char *path = file_of(b, db, r->session, (int64_t)r->number);
	CLEAN_FD int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0) {
		r->rc = err_set(&r->err, ENOENT, "it is not there any more");
		return;
	}
	buf_reserve(&r->out, r->size);
	ssize_t n = pread(fd, r->out.p, r->size, (off_t)r->offset);
	r->rc = n < 0 ? err_sys(&r->err, errno, "cannot read it") : 0;
	r->out.n = n > 0 ? (size_t)n : 0;
}

static int remove_fn(struct tx *tx, void *arg, struct err *err)
{
	struct request *r = arg;
	struct session *s = tx_session(tx, r->session);
	if (!s)
		return err_set(err, ESHUTDOWN, "this session has ended");
	int rc = db_run(tx->db, err,
			"UPDATE attachments SET state='withdrawn' WHERE session=? AND n=? AND state='waiting'", "ii",
			s->id, (int64_t)r->number);
	if (!rc && !db_changes(tx->db))
		return err_set(err, ENOENT, "it has gone with a message");
	return rc ? rc : attach_load(tx->db, s, err);
}

void attach_remove(struct backend *b, struct db *db, struct request *r)
{
	CLEAN_FREE char *path = file_of(b, db, r->session, (int64_t)r->number);
	r->rc = store_try(b->store, remove_fn, r, &r->err);
	if (!r->rc && path)
		unlink(path);
}

/* ---- with a message ---- */

int attach_take(struct tx *tx, struct session *s, int64_t k, struct err *err)
{
	if (!s->n_attach)
		return 0;
	int rc = db_run(tx->db, err,
			"UPDATE attachments SET state=CASE media WHEN '' THEN 'sent' ELSE 'there' END, message=? WHERE "
			"session=? AND state='waiting'",
			"ii", k, s->id);
	return rc ? rc : attach_load(tx->db, s, err);
}

int attach_give_back(struct tx *tx, struct session *s, int64_t k, struct err *err)
{
	if (!s->attached)
		return 0;
	int rc = db_run(tx->db, err,
			"UPDATE attachments SET state='waiting', message=0 WHERE session=? AND message=? AND state IN "
			"('sent','there')",
			"ii", s->id, k);
	return rc ? rc : attach_load(tx->db, s, err);
}

bool attach_missing(struct tx *tx, const struct session *s, int64_t k)
{
	return s->attached &&
	       db_int(tx->db, 0, "SELECT 1 FROM attachments WHERE session=? AND message=? AND state='sent'", "ii",
		      s->id, k);
}

static char *inside(const char *home, int64_t n, const char *name)
{
	return xasprintf("%s/attach/%" PRId64 "/%s", home, n, name);
}

/* The home of the sandbox: the clone lies in it. malloc'd. */
static char *home_of(const struct session *s)
{
	const char *slash = strrchr(s->clone, '/');
	return xstrndup(s->clone, slash ? (size_t)(slash - s->clone) : strlen(s->clone));
}

int attach_entry(struct tx *tx, const struct session *s, int64_t k, struct buf *fields, struct buf *md, struct err *err)
{
	struct rows r;
	int n = 0;
	if (!s->attached)
		return 0;
	CLEAN_FREE char *home = home_of(s);
	int rc = db_query(
		tx->db, &r, err,
		"SELECT n, name, media, note, size, file FROM attachments WHERE session=? AND message=? ORDER BY "
		"n",
		"ii", s->id, k);
	for (; !rc && rows_next(&r); n++) {
		const char *name = row_text(&r, 1), *media = row_text(&r, 2), *note = row_text(&r, 3);
		CLEAN_FREE char *path = inside(home, row_int(&r, 0), name);
		buf_adds(fields, n ? ",{\"name\":" : ",\"attached\":[{\"name\":");
		json_quote(fields, name, strlen(name));
		buf_addf(fields, ",\"size\":%" PRId64 ",\"media\":\"%s\",\"file\":\"%s\"", row_int(&r, 4), media,
			 row_text(&r, 5));
		if (!*media) {
			buf_adds(fields, ",\"path\":");
			json_quote(fields, path, strlen(path));
		}
		if (*note)
			buf_addf(fields, ",\"note\":\"%s\"", note);
		buf_addc(fields, '}');
		buf_addf(md, "\n[attached: %s, %s%s%s%s%s]\n", name, *media ? media : "file ", *media ? "" : path,
			 *note ? " (" : "", note, *note ? ")" : "");
	}
	if (n)
		buf_addc(fields, ']');
	int end = rows_end(&r);
	return rc ? rc : end;
}

int attach_load(struct db *db, struct session *s, struct err *err)
{
	struct rows r;
	for (size_t i = 0; i < s->n_attach; i++)
		free(s->attach[i].name);
	free(s->attach);
	s->attach = NULL;
	s->n_attach = 0;
	if (!s->attached)
		return 0;
	int rc = db_query(db, &r, err,
			  "SELECT n, name, size, at_ms FROM attachments WHERE session=? AND state='waiting' ORDER BY n",
			  "i", s->id);
	while (!rc && rows_next(&r)) {
		s->attach = xrealloc(s->attach, (s->n_attach + 1) * sizeof *s->attach);
		s->attach[s->n_attach++] = (struct attach_info){(uint64_t)row_int(&r, 0), xstrdup(row_text(&r, 1)),
								(uint64_t)row_int(&r, 2), row_int(&r, 3)};
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

/* ---- into the sandbox ---- */

static int delivered_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	return db_run(tx->db, err, "UPDATE attachments SET state='there' WHERE session=? AND n=? AND state='sent'",
		      "ii", s->id, *(int64_t *)arg);
}

static int deliver(struct worker *w, int64_t n, const char *name, const char *file, struct err *err)
{
	CLEAN_FREE char *home = home_of(w->s);
	CLEAN_FREE char *to = inside(home, n, name), *from = host_path(w->b->paths, w->id, file);
	int rc = worker_env(w, err);
	/* an empty file first: it makes the folders on the way */
	rc = rc ? rc : env_write(w->env, to, "", 0, ENV_WRITE_PARENTS, err);
	rc = rc ? rc : env_send_file(w->env, from, to, err);
	if (rc)
		return err_prefix(err, "the attached %s cannot be brought into the sandbox", name);
	killpoint("attach.there");
	return worker_commit(w, delivered_fn, &n, err);
}

int attach_deliver(struct worker *w, struct err *err)
{
	while (w->s->attached) {
		struct rows r;
		int64_t n = 0;
		int rc = db_query(
			w->db, &r, err,
			"SELECT n, name, file FROM attachments WHERE session=? AND state='sent' ORDER BY n LIMIT 1",
			"i", w->id);
		if (!rc && rows_next(&r))
			n = row_int(&r, 0);
		CLEAN_FREE char *name = n ? xstrdup(row_text(&r, 1)) : NULL;
		CLEAN_FREE char *file = n ? xstrdup(row_text(&r, 2)) : NULL;
		int end = rows_end(&r);
		rc = rc ? rc : end;
		if (rc || !n)
			return rc;
		rc = deliver(w, n, name, file, err);
		if (rc && tool_env_lost(rc) && rc != -ECANCELED)
			worker_env_drop(w);
		if (rc)
			return rc;
	}
	return 0;
}

void attach_forget(struct worker *w)
{
	CLEAN_FREE char *folder = attach_folder(w->b->paths, w->id);
	dir_remove(folder, NULL);
}

/* ---- to the model ---- */

void attach_images(struct worker *w, struct context *c, int64_t window)
{
	size_t bytes = 0, n = 0;
	int64_t by_tokens = window ? window / 4 / IMAGE_TOKENS : IMAGES_MAX;
	size_t most = by_tokens < IMAGES_MAX ? (size_t)by_tokens : IMAGES_MAX;
	for (size_t i = c->n; i-- > 0;) {
		struct item *item = &c->items[i];
		for (size_t k = item->n_images; k-- > 0;) {
			struct item_image *image = &item->images[k];
			CLEAN_FREE char *path = host_path(w->b->paths, w->id, image->file);
			struct err why = ERR_INIT;
			bool fits = n < most && bytes + image->size <= IMAGES_BYTES;
			int rc = fits ? file_read(path, &image->data, ATTACH_IMAGE_MAX, &why) : -EFBIG;
			if (!rc && image->data.n) {
				bytes += image->data.n;
				n++;
				continue;
			}
			buf_reset(&image->data);
			context_image_lost(
				item, k,
				fits ? "it cannot be read any more"
				     : "the request would be too large with it; attach it again if you need it");
		}
	}
}
