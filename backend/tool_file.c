/* The tools `read`, `write` and `edit`. Worker threads. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/base/hash.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "backend/parse/redact.h"
#include "gate.h"
#include "tool.h"

#define CHUNK	 (256 << 10) /* bytes asked for at once when lines are counted */
#define FILE_MAX (16 << 20)  /* bytes of a file that edit takes */

/* What a file call answers when the sandbox refused it; -ENOTCONN and the like go up. */
static int refused(int rc, const char *path, const struct err *why, struct tool_result *out, struct err *err)
{
	if (tool_env_lost(rc))
		return err_set(err, -rc, "%s", why->text);
	return tool_fail(out, "%s: %s", path, why->text);
}

/* ---- read ---- */

struct reading {
	uint64_t line, first, limit; /* the line that comes next, the first and number of lines wanted (from 1) */
	uint64_t shown;
	bool full, more; /* the limits are reached; something follows */
	struct buf raw;	 /* what is shown is raw[start, end); around it is what a secret may begin or end in */
	size_t start, end;
	size_t cut; /* bytes of the one line that was too long to be shown whole, 0: none was */
};

static void pass_line(struct reading *r, const char *p, size_t n)
{
	buf_add(&r->raw, n > REDACT_CONTEXT ? p + n - REDACT_CONTEXT : p, n > REDACT_CONTEXT ? REDACT_CONTEXT : n);
	if (r->raw.n > 4 * REDACT_CONTEXT)
		buf_drop(&r->raw, r->raw.n - REDACT_CONTEXT);
	r->start = r->end = r->raw.n;
}

static void show_line(struct reading *r, const char *p, size_t n)
{
	size_t keep = n > TOOL_BYTES ? TOOL_BYTES : n, around = n - keep;
	r->cut = keep < n ? n : 0;
	r->shown++;
	r->end = r->raw.n + keep;
	buf_add(&r->raw, p, keep + (around < REDACT_CONTEXT ? around : REDACT_CONTEXT));
}

/* Takes whole lines out of b; what is left is an unfinished one. */
static void take_lines(struct reading *r, struct buf *b, bool last)
{
	size_t at = 0;
	while (at < b->n && !r->full) {
		const char *nl = memchr(b->p + at, '\n', b->n - at);
		if (!nl && !last)
			break;
		size_t n = nl ? (size_t)(nl + 1 - (b->p + at)) : b->n - at;
		if (r->line < r->first) {
			pass_line(r, b->p + at, n);
		} else if (r->shown == r->limit || r->cut || (r->end - r->start + n > TOOL_BYTES && r->shown)) {
			r->full = r->more = true;
			break;
		} else {
			show_line(r, b->p + at, n);
		}
		r->line++;
		at += n;
	}
	buf_drop(b, at);
}

static void show(const struct reading *r, struct buf *out)
{
	CLEAN_BUF struct buf clear = BUF_INIT;
	redact(&clear, r->raw.p, r->raw.n, r->start, r->end);
	utf8_clean(out, buf_str(&clear), clear.n);
	if (r->cut)
		buf_addf(out, "\n[line %" PRIu64 " is %zu bytes long; only its begin is shown]\n", r->line - 1, r->cut);
}

static int read_lines(const struct tool_run *t, const char *path, struct reading *r, struct err *err)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	for (uint64_t off = 0; !r->full;) {
		size_t before = b.n;
		int rc = env_read(t->env, path, off, CHUNK, &b, err);
		if (rc)
			return rc;
		size_t got = b.n - before;
		off += got;
		if (memchr(b.p ? b.p + before : "", 0, got))
			return err_set(err, EILSEQ,
				       "this is no text file (NUL at byte %" PRIu64 "); look at it with bash",
				       off - got);
		take_lines(r, &b, got < CHUNK);
		if (b.n > FILE_MAX)
			return err_set(err, EFBIG, "line %" PRIu64 " is too long to be shown; look at it with bash",
				       r->line);
		if (got < CHUNK)
			break;
		if (atomic_load(t->cancel))
			return -ECANCELED;
	}
	return 0;
}

static bool whole_above_zero(const cJSON *args, const char *key, int64_t *out)
{
	const cJSON *v = json_get(args, key);
	if (!v || cJSON_IsNull(v))
		return true;
	return json_int(args, key, out) && *out > 0;
}

int tool_read(const struct tool_run *t, struct tool_result *out, struct err *err)
{
	const char *path = json_str(t->args, "path");
	int64_t offset = 1, limit = TOOL_LINES;
	struct err why = ERR_INIT;
	struct env_stat st = {0};
	if (!path || !*path)
		return tool_fail(out, "read needs a path");
	if (!whole_above_zero(t->args, "offset", &offset) || !whole_above_zero(t->args, "limit", &limit))
		return tool_fail(out, "offset and limit must be whole numbers above 0");
	if (limit > TOOL_LINES)
		limit = TOOL_LINES;
	if (gate_path(t->protected, path, &why))
		return tool_fail(out, "%s: %s", path, why.text);
	CLEAN_FREE char *full = tool_path(t, path);
	int rc = env_stat(t->env, full, &st, &why);
	free(st.real);
	if (!rc && !S_ISREG(st.mode))
		return tool_fail(out,
				 S_ISDIR(st.mode) ? "%s is a folder; list it with bash: ls" : "%s is no regular file",
				 path);
	struct reading r = {.line = 1, .first = (uint64_t)offset, .limit = (uint64_t)limit};
	rc = rc ? rc : read_lines(t, full, &r, &why);
	if (!rc)
		show(&r, &out->text);
	buf_release(&r.raw);
	if (rc)
		return refused(rc, path, &why, out, err);
	if (!r.shown && offset > 1)
		return tool_fail(out, "%s has only %" PRIu64 " lines", path, r.line - 1);
	if (r.more) {
		if (!buf_ends(&out->text, "\n"))
			buf_addc(&out->text, '\n');
		buf_addf(&out->text, "[more follows: go on with offset %" PRIu64 "]\n", r.line);
	}
	if (!out->text.n)
		buf_adds(&out->text, "(the file is empty)\n");
	return 0;
}

/* ---- write ---- */

int tool_write(const struct tool_run *t, struct tool_result *out, struct err *err)
{
	const char *path = json_str(t->args, "path"), *content = json_str(t->args, "content");
	struct err why = ERR_INIT;
	if (!path || !*path || !content)
		return tool_fail(out, "write needs a path and a content");
	if (gate_path(t->protected, path, &why))
		return tool_fail(out, "%s: %s", path, why.text);
	CLEAN_FREE char *full = tool_path(t, path);
	size_t n = strlen(content);
	int rc = env_write(t->env, full, content, n, ENV_WRITE_PARENTS, &why);
	if (rc)
		return refused(rc, path, &why, out, err);
	buf_addf(&out->text, "wrote %zu bytes to %s\n", n, path);
	return 0;
}

/* ---- edit ---- */

struct edit {
	size_t at, old_n;
	const char *new_text;
};

static int by_place(const void *a, const void *b)
{
	const struct edit *x = a, *y = b;
	return x->at < y->at ? -1 : x->at > y->at;
}

/* Finds the one place of each edit in the file as it is. */
static int find_edits(const cJSON *list, const struct buf *file, struct edit *e, struct err *err)
{
	size_t i = 0;
	const cJSON *item;
	cJSON_ArrayForEach(item, list)
	{
		const char *old = json_str(item, "oldText");
		e[i].new_text = json_str(item, "newText");
		if (!old || !e[i].new_text || !*old)
			return err_set(err, EINVAL, "edit %zu needs an oldText that is not empty and a newText", i + 1);
		e[i].old_n = strlen(old);
		const char *found = memmem(buf_str(file), file->n, old, e[i].old_n);
		if (!found)
			return err_set(err, EINVAL, "the oldText of edit %zu does not stand in the file; read it again",
				       i + 1);
		e[i].at = (size_t)(found - buf_str(file));
		if (memmem(found + 1, file->n - e[i].at - 1, old, e[i].old_n))
			return err_set(err, EINVAL, "the oldText of edit %zu stands more than once; make it longer",
				       i + 1);
		i++;
	}
	qsort(e, i, sizeof *e, by_place);
	for (size_t k = 1; k < i; k++)
		if (e[k - 1].at + e[k - 1].old_n > e[k].at)
			return err_set(err, EINVAL, "two edits overlap; make them one");
	return 0;
}

static int apply(const cJSON *list, const struct buf *file, struct buf *out, struct err *err)
{
	int n = cJSON_GetArraySize(list);
	if (!cJSON_IsArray(list) || n < 1)
		return err_set(err, EINVAL, "edit needs a list of edits");
	CLEAN_FREE struct edit *e = xcalloc((size_t)n, sizeof *e);
	int rc = find_edits(list, file, e, err);
	size_t at = 0;
	for (int i = 0; i < n && !rc; i++) {
		buf_add(out, buf_str(file) + at, e[i].at - at);
		buf_adds(out, e[i].new_text);
		at = e[i].at + e[i].old_n;
	}
	if (!rc)
		buf_add(out, buf_str(file) + at, file->n - at);
	return rc;
}

static int read_whole(const struct tool_run *t, const char *path, struct buf *out, struct err *err)
{
	for (uint64_t off = 0;;) {
		size_t before = out->n;
		int rc = env_read(t->env, path, off, CHUNK, out, err);
		if (rc)
			return rc;
		off += out->n - before;
		if (out->n > FILE_MAX)
			return err_set(err, EFBIG, "the file is too large to be edited here; use bash");
		if (out->n - before < CHUNK)
			return 0;
	}
}

/* Tells the file before an edit from the file after it; no security rests on it. */
static uint64_t fingerprint(const struct buf *b)
{
	return hash_add(HASH_BEGIN, b->p, b->n);
}

int tool_edit_intend(const struct tool_run *t, struct buf *note, struct err *err)
{
	const char *path = json_str(t->args, "path");
	CLEAN_BUF struct buf file = BUF_INIT;
	CLEAN_BUF struct buf result = BUF_INIT;
	if (!path || !*path || gate_path(t->protected, path, NULL))
		return 0;
	CLEAN_FREE char *full = tool_path(t, path);
	int rc = read_whole(t, full, &file, err);
	if (rc)
		return tool_env_lost(rc) ? rc : 0; /* the run itself says what is wrong */
	if (!apply(json_get(t->args, "edits"), &file, &result, NULL))
		buf_addf(note, "%016" PRIx64, fingerprint(&result));
	return 0;
}

int tool_edit(const struct tool_run *t, struct tool_result *out, struct err *err)
{
	const char *path = json_str(t->args, "path");
	struct err why = ERR_INIT;
	CLEAN_BUF struct buf file = BUF_INIT;
	CLEAN_BUF struct buf result = BUF_INIT;
	CLEAN_BUF struct buf seen = BUF_INIT;
	if (!path || !*path)
		return tool_fail(out, "edit needs a path");
	if (gate_path(t->protected, path, &why))
		return tool_fail(out, "%s: %s", path, why.text);
	CLEAN_FREE char *full = tool_path(t, path);
	int rc = read_whole(t, full, &file, &why);
	if (rc)
		return refused(rc, path, &why, out, err);
	buf_addf(&seen, "%016" PRIx64, fingerprint(&file));
	bool done = t->again && *t->note && !strcmp(buf_str(&seen), t->note);
	if (!done) {
		rc = apply(json_get(t->args, "edits"), &file, &result, &why);
		if (rc)
			return tool_fail(out, "%s: %s", path, why.text);
		rc = env_write(t->env, full, buf_str(&result), result.n, 0, &why);
		if (rc)
			return refused(rc, path, &why, out, err);
	}
	int n = cJSON_GetArraySize(json_get(t->args, "edits"));
	buf_addf(&out->text, "%d edit%s made in %s\n", n, n == 1 ? "" : "s", path);
	return 0;
}
