/* The drop box: text of drafts, and how one becomes a session. Loop thread only.
 *
 * A draft is a file in memory with offsets that mean something, since editors rewrite theirs in place. While it is
 * written the backend judges it, so that an unknown key or project is an error of that write; when it is complete
 * (complete.c) the session is made. A draft that is refused stays with its text: nothing that was written is lost. */
#include "drop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "drop_box.h"
#include "names.h"
#include "node.h"
#include "refuse.h"

/* ---- writing ---- */

static size_t body_of(const struct draft *d)
{
	return front_body(d->text.p, d->text.n);
}

/* 0 if n bytes fit in at pos, else -errno after the refusal. */
static int check_room(const struct draft *d, const struct spot *at, size_t n, size_t pos)
{
	const struct face *f = d->f;
	if (draft_is_attach(d))
		return attach_room(d, at, n, pos);
	size_t end = pos + n;
	size_t more = end > d->text.n ? end - d->text.n : 0;
	if (more > BOX_MAX - f->draft_bytes)
		return refuse_at(at, NULL, ENOSPC,
				 "the drop box is full: all drafts together are at most 64 MiB; "
				 "remove some from sessions/new");
	if (d->scratch)
		return end <= SCRATCH_MAX ? 0 : refuse_at(at, NULL, EFBIG, "a scratch file is at most 4 MiB");
	size_t body = body_of(d);
	if (body > FRONT_MAX || end > body + MESSAGE_MAX)
		return refuse_at(at, NULL, EFBIG,
				 "a message is at most 1 MiB; no session was made. Put long material in "
				 "a file of the project and name it in the message");
	return 0;
}

static void put_text(struct draft *d, const char *p, size_t n, size_t pos)
{
	size_t old = d->text.n;
	while (d->text.n < pos) /* a hole; only scratch files have them for long */
		buf_addc(&d->text, 0);
	size_t over = pos < d->text.n ? d->text.n - pos : 0;
	if (over > n)
		over = n;
	if (over)
		memcpy(d->text.p + pos, p, over);
	buf_add(&d->text, p + over, n - over);
	d->f->draft_bytes += d->text.n - old;
	d->changed_ms = clock_real_ms();
	if (pos < d->checked)
		d->checked = 0;
	if (pos < d->judged_n) {
		d->judged_n = 0;
		d->judged = false;
	}
}

static int check_text(struct draft *d, const struct spot *at)
{
	bool cut = false;
	size_t left = d->text.n - d->checked;
	size_t good = utf8_prefix(d->text.p + d->checked, left, &cut);
	d->checked += good;
	if (good == left || cut)
		return 0;
	return refuse_at(at, NULL, EILSEQ, "byte %zu is not UTF-8 text%s; no session was made", d->checked + 1,
			 d->text.p[d->checked] ? "" : " (a NUL)");
}

/* Is there something new that the backend can judge? */
static bool worth_judging(const struct draft *d)
{
	if (d->scratch || d->judged || draft_is_attach(d))
		return false;
	switch (front_of(d->text.p, d->text.n)) {
	case FRONT_UNDECIDED: return false;
	case FRONT_OPEN: return memrchr(d->text.p + d->judged_n, '\n', d->text.n - d->judged_n);
	case FRONT_NONE:
	case FRONT_FINISHED: return true;
	}
	return false;
}

const char *project_name(const struct face *f, int64_t number)
{
	const struct project_info *project = number ? project_by_number(f, number) : NULL;
	return project ? project->name : NULL;
}

static void draft_judged(struct op *op, struct request *r)
{
	struct draft *d = op->h->draft;
	int rc = op_refused(op, r);
	if (rc) {
		op->h->msg.failed = rc;
		handle_write_refused(op->h);
		op_error(op, rc);
		return;
	}
	if (r->text.n <= d->text.n) {
		enum front front = front_of(r->text.p, r->text.n);
		d->judged_n = r->text.n;
		d->judged = front == FRONT_NONE || front == FRONT_FINISHED;
	}
	op_wrote(op);
}

static void write_draft(struct handle *h, fuse_req_t req, const char *p, size_t n, off_t off)
{
	struct draft *d = h->draft;
	struct spot at;
	int rc = handle_spot(h, &at);
	if (!rc && (d->session || d->creating))
		rc = refuse_at(&at, NULL, EEXIST, "session %s exists now; write to sessions/%s/input", d->name,
			       d->name);
	size_t pos = handle_write_at(h, &d->text, p, n, off);
	bool kept = !rc && !(rc = check_room(d, &at, n, pos));
	if (kept) {
		put_text(d, p, n, pos);
		rc = draft_is_attach(d) ? attach_written(d, &at) : d->scratch ? 0 : check_text(d, &at);
		h->dirty = true;
		h->by_cursor = (h->flags & O_ACCMODE) == O_RDWR && !d->scratch && !draft_is_attach(d);
		h->cursor = 0;
		complete_wrote(h, req);
	}
	h->msg.failed = h->msg.failed ? h->msg.failed : rc;
	if (h->msg.failed) {
		if (kept)
			handle_write_refused(h);
		fuse_reply_err(req, -h->msg.failed);
		return;
	}
	if (!worth_judging(d)) {
		fuse_reply_write(req, n);
		return;
	}
	struct request *r = request_new(REQ_DRAFT, NULL, NULL);
	buf_add(&r->text, d->text.p, d->text.n);
	r->project = xstrdup(project_name(h->f, d->project));
	r->cwd = xstrdup(d->cwd);
	struct op *op = op_park(h->f, req, h, OP_CHANGE, PARK_MS);
	op->path = spot_path(&at, NULL);
	op->size = n;
	op->late = op_wrote; /* it is judged again when it is complete */
	op_ask(op, r, draft_judged);
}

static int truncate_draft(struct draft *d, const struct spot *at, off_t size)
{
	if (d->session || d->creating)
		return 0;
	if ((size_t)size > d->text.n) {
		int rc = check_room(d, at, 0, (size_t)size);
		if (!rc)
			put_text(d, NULL, 0, (size_t)size);
		return rc;
	}
	d->f->draft_bytes -= d->text.n - (size_t)size;
	buf_cut(&d->text, (size_t)size);
	d->checked = d->judged_n = 0;
	d->judged = false;
	d->changed_ms = clock_real_ms();
	return 0;
}

static int truncate_handle(struct handle *h, off_t size)
{
	struct spot at;
	int rc = handle_spot(h, &at);
	rc = rc ? rc : truncate_draft(h->draft, &at, size);
	if (rc)
		return rc;
	h->msg.failed = 0;
	handle_cut(h);
	if (!h->draft->text.n)
		h->dirty = false;
	return 0;
}

int drop_truncate(const struct spot *at, off_t size)
{
	return truncate_draft(at->node->draft, at, size);
}

/* ---- opening ---- */

static void opened(struct op *op)
{
	struct handle *h = op->h;
	handle_opened(h, op_take(op), NULL);
}

void draft_stands(struct draft *d, struct request *r)
{
	if (!r->name)
		return;
	free(d->cwd);
	d->cwd = take(r->name);
}

static void opened_with_cwd(struct op *op, struct request *r)
{
	draft_stands(op->h->draft, r);
	if (op->req)
		opened(op);
}

static int open_draft(struct handle *h, fuse_req_t req)
{
	struct draft *d = h->draft;
	struct spot at;
	bool reads = !handle_may_write(h);
	if ((!reads || h->flags & O_TRUNC) && !handle_spot(h, &at) && (d->session || d->creating))
		return refuse_at(&at, NULL, EEXIST, "session %s exists; write to sessions/%s/input", d->name, d->name);
	if (reads)
		return 0;
	pid_t pid = fuse_req_ctx(req)->pid;
	writers_init(&h->writers, pid);
	if (d->project || d->beside || pid <= 0)
		return 0;
	struct op *op = op_park(h->f, req, h, OP_CHANGE, PARK_MS);
	op->late = opened; /* without: the project of who wrote before, or the default one */
	struct request *r = request_new(REQ_CWD, NULL, NULL);
	r->pid = pid;
	op_ask(op, r, opened_with_cwd);
	return OPEN_PARKED;
}

/* ---- reading ---- */

/* After a write, a read on the same descriptor gives the id of the session that it made; else the text. */
static void read_draft(struct handle *h, fuse_req_t req, size_t size, off_t off)
{
	struct draft *d = h->draft;
	if (h->by_cursor && !d->session && h->f->quit) { /* the text would be taken for an id */
		fuse_reply_err(req, ESHUTDOWN);
		return;
	}
	if (!h->by_cursor || !h->cursor) {
		buf_reset(&h->snap);
		if (h->by_cursor && d->session)
			buf_addf(&h->snap, "%lld\n", (long long)d->session);
		else
			buf_add(&h->snap, d->text.p, d->text.n);
	}
	handle_read_text(h, req, size, off);
}

/* ---- becoming a session ---- */

bool draft_is_written(const struct draft *d, const struct handle *except)
{
	list_each (pos, &d->f->handles) {
		const struct handle *h = list_entry(pos, struct handle, link);
		if (h->draft == d && h != except && (h->dirty || h->committing))
			return true;
	}
	return false;
}

struct request *draft_request(struct draft *d, const char *name, int64_t project, const char *path, int *rc)
{
	struct err err = ERR_INIT;
	size_t body = body_of(d);
	struct buf text = {.p = d->text.p, .n = d->text.n};
	struct buf message = {.p = d->text.p + body, .n = d->text.n - body};
	*rc = 0;
	if (!utf8_valid(text.p, text.n))
		*rc = err_set(&err, EILSEQ, "the text is not UTF-8 or ends inside a character; no session was made");
	else if (utf8_blank(message.p, message.n))
		*rc = err_set(&err, EINVAL, "there is no message%s; no session was made",
			      body ? " after the front matter" : ", only white space");
	if (*rc) {
		refuse(d->f, 0, path, &err);
		return NULL;
	}
	struct request *r = request_new(REQ_CREATE, NULL, NULL);
	r->name = xstrdup(name);
	r->project = xstrdup(project_name(d->f, project));
	r->cwd = xstrdup(d->cwd);
	buf_add(&r->text, text.p, text.n);
	d->creating = true;
	return r;
}

static struct request *commit_draft(struct handle *h)
{
	struct draft *d = h->draft;
	if (h->msg.failed) {
		h->last_rc = h->msg.failed;
		if (draft_is_attach(d)) /* what is not whole is of no use */
			draft_unlist(d);
		return NULL;
	}
	if (d->scratch || d->session || d->creating || !d->listed || draft_is_written(d, h))
		return NULL;
	if (draft_is_attach(d))
		return attach_request(d);
	if (d->by_rename && !h->asked)
		return NULL;
	CLEAN_FREE char *path = handle_path(h);
	return draft_request(d, d->name, d->project, path, &h->last_rc);
}

static int committed_draft(struct handle *h, struct request *r)
{
	struct draft *d = h->draft;
	d->creating = false;
	if (draft_is_attach(d)) {
		CLEAN_FREE char *name = handle_path(h);
		draft_unlist(d); /* the view has it now, or nobody */
		return r->rc ? refuse_rc(h->f, r->session, name, r->rc, &r->err) : 0;
	}
	if (!r->rc) {
		draft_done(d, r->session);
		return 0;
	}
	CLEAN_FREE char *path = handle_path(h);
	return refuse_rc(h->f, 0, path, r->rc, &r->err);
}

const struct handle_kind draft_kind = {
	open_draft, read_draft, write_draft, truncate_handle, commit_draft, committed_draft,
};
