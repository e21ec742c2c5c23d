/* A backend for trying the face alone: sessions live in memory, nothing runs, and every kind of request can be told to
 * be slow or to fail, which the real one is only by accident. Linked with fs/ it makes `berthfs-fake`.
 *
 * The file `fake` of the state folder is read at each request: lines `KIND MS RC` (kinds: see told_kinds): that request
 * is answered after MS milliseconds with -RC. A line `sessions N 0` there before the start makes N sessions; `changes N
 * K` makes N changes a second, in turn to the first K of them, and fewer where the face cannot follow. `grow` written
 * to `ctl` is one such change: ten bytes more of transcript and plan, and another status. Accepted messages are
 * appended to the file `messages` there, one JSON object a line. One worker thread; slow answers have a thread each. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"

#define SESSIONS 20000
#define BEHIND	 200 /* notes that the face has not read: then changes wait, or a slow machine would serve no request */

struct backend {
	const struct paths *paths;
	struct queue *notes, requests;
	pthread_t thread, churn;
	int churn_rate; /* changes a second, */
	int churned;	/* to so many sessions */
	pthread_mutex_t lock;
	atomic_int slow; /* answers that are still to come */
	atomic_bool stopping;
	struct fake {
		char *name;
		struct buf text;
		uint64_t accepted, version;
		unsigned grown;
		int64_t created_ms, text_ms, status_ms;
	} session[SESSIONS];
	int64_t last;
	char *config;
};

static atomic_int unread; /* notes */

const char *const setting_names[SETTING_KINDS] = {"model", "network", "after-run", "ship", "approvals", "agent"};

/* ---- views ---- */

struct view *view_get(struct view *v)
{
	atomic_fetch_add(&v->refs, 1);
	return v;
}

void view_put(struct view *v)
{
	if (!v || atomic_fetch_sub(&v->refs, 1) != 1)
		return;
	free(v->name);
	for (int i = 0; i < VALUE_KINDS; i++)
		free(v->value[i]);
	for (int i = 0; i < SETTING_KINDS; i++)
		free(v->setting[i]);
	free(v);
}

struct root_view *root_view_get(struct root_view *v)
{
	atomic_fetch_add(&v->refs, 1);
	return v;
}

void root_view_put(struct root_view *v)
{
	if (!v || atomic_fetch_sub(&v->refs, 1) != 1)
		return;
	free(v->config);
	free(v);
}

void note_free(struct note *n)
{
	atomic_fetch_sub(&unread, 1);
	view_put(n->view);
	root_view_put(n->root);
	free(n);
}

struct request *request_new(enum request_kind kind, void (*done)(struct request *), void *arg)
{
	struct request *r = xcalloc(1, sizeof *r);
	r->kind = kind;
	r->done = done;
	r->arg = arg;
	return r;
}

void request_free(struct request *r)
{
	free(r->name);
	free(r->project);
	free(r->cwd);
	buf_release(&r->text);
	buf_release(&r->out);
	free(r);
}

static struct note *note_new(enum note_kind kind)
{
	struct note *n = xcalloc(1, sizeof *n);
	n->kind = kind;
	atomic_fetch_add(&unread, 1);
	return n;
}

static void tell(struct backend *b, int64_t id, bool destroyed)
{
	struct fake *s = &b->session[id];
	struct note *n = note_new(NOTE_VIEW);
	struct view *v = n->view = xcalloc(1, sizeof *v);
	*v = (struct view){
		.refs = 1,
		.id = id,
		.name = xstrdup(s->name),
		.destroyed = destroyed,
		.created_ms = s->created_ms,
		.changed_ms = clock_real_ms(),
		.accepted = s->accepted,
		.unanswered = s->accepted ? 1 : 0, /* nobody answers */
		.version = ++s->version,
		.value = {xstrdup("running"), xstrdup("none"), xstrdup("/tmp"), xstrdup("sandbox/0"), NULL,
			  xstrdup("none")},
	};
	for (int i = 0; i < SETTING_KINDS; i++)
		v->setting[i] = xstrdup("default");
	if (s->grown) {
		free(v->value[VALUE_STATUS]);
		v->value[VALUE_STATUS] = xasprintf("running %u", s->grown);
	}
	v->value_ms[VALUE_STATUS] = s->status_ms;
	v->text[TEXT_TRANSCRIPT] = v->text[TEXT_PLAN] = (struct text_info){s->text.n, s->text_ms};
	queue_push(b->notes, &n->node);
}

static void tell_root(struct backend *b)
{
	struct note *n = note_new(NOTE_ROOT);
	n->root = xcalloc(1, sizeof *n->root);
	*n->root = (struct root_view){.refs = 1, .config = xstrdup(b->config), .started_ms = clock_real_ms()};
	queue_push(b->notes, &n->node);
}

/* ---- requests ---- */

static struct fake fake_new(char *name, const char *text)
{
	int64_t now = clock_real_ms();
	struct fake s = {.name = name, .created_ms = now, .text_ms = now, .status_ms = now};
	buf_adds(&s.text, text);
	return s;
}

static int grow(struct backend *b, int64_t id, bool status)
{
	struct fake *s = &b->session[id];
	buf_adds(&s->text, "123456789\n");
	s->text_ms = clock_real_ms();
	if (status) {
		s->grown++;
		s->status_ms = s->text_ms;
	}
	tell(b, id, false);
	return 0;
}

static int accept_message(struct backend *b, struct request *r)
{
	struct fake *s = &b->session[r->session];
	CLEAN_FREE char *path = xasprintf("%s/messages", b->paths->state);
	CLEAN_BUF struct buf line = BUF_INIT;
	r->number = ++s->accepted;
	buf_addf(&line, "{\"session\":%" PRId64 ",\"k\":%" PRIu64 ",\"text\":", r->session, r->number);
	json_quote(&line, r->text.p, r->text.n);
	buf_adds(&line, "}\n");
	CLEAN_FD int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	buf_add(&s->text, r->text.p, r->text.n);
	s->text_ms = clock_real_ms();
	tell(b, r->session, false);
	return fd_write_full(fd, line.p, line.n);
}

static int create(struct backend *b, struct request *r)
{
	r->session = ++b->last;
	b->session[r->session] = fake_new(xstrdup(r->name), "");
	return accept_message(b, r);
}

static int read_text(struct backend *b, struct request *r)
{
	const struct buf *text = &b->session[r->session].text; /* of session 0: empty */
	size_t n = text->n, at = r->offset < n ? (size_t)r->offset : n;
	buf_add(&r->out, text->p + at, n - at < r->size ? n - at : r->size);
	return 0;
}

static int answer(struct backend *b, struct request *r)
{
	switch (r->kind) {
	case REQ_READ: return read_text(b, r);
	case REQ_CREATE: return create(b, r);
	case REQ_MESSAGE: return accept_message(b, r);
	case REQ_CTL:
		if (!strncmp(buf_str(&r->text), "grow", 4))
			return grow(b, r->session, true);
		if (!strncmp(buf_str(&r->text), "end", 3)) /* as `destroy` does, which is no removal by the kernel */
			tell(b, r->session, true);
		else
			tell(b, r->session, false);
		return 0;
	case REQ_RENAME:
		free(b->session[r->session].name);
		b->session[r->session].name = xstrdup(r->name);
		tell(b, r->session, false);
		return 0;
	case REQ_DESTROY: tell(b, r->session, true); return 0;
	default: return 0;
	}
}

static void finish(struct backend *b, struct request *r, int rc)
{
	pthread_mutex_lock(&b->lock);
	if (rc)
		err_set(&r->err, -rc, "told to fail");
	r->rc = rc ? rc : answer(b, r);
	struct note *n = note_new(NOTE_DONE);
	n->request = r;
	queue_push(b->notes, &n->node);
	pthread_mutex_unlock(&b->lock);
}

struct slow {
	struct backend *b;
	struct request *r;
	int ms, rc;
};

static void *run_slow(void *arg)
{
	struct slow *s = arg;
	for (int64_t end = clock_mono_ms() + s->ms; clock_mono_ms() < end && !atomic_load(&s->b->stopping);)
		clock_sleep_ms(10);
	finish(s->b, s->r, s->rc);
	atomic_fetch_sub(&s->b->slow, 1);
	free(s);
	return NULL;
}

static const char *const told_kinds[] = {
	[REQ_READ] = "read",	   [REQ_CWD] = "cwd", [REQ_DRAFT] = "draft",   [REQ_CREATE] = "create",
	[REQ_MESSAGE] = "message", [REQ_CTL] = "ctl", [REQ_RENAME] = "rename", [REQ_DESTROY] = "destroy"};

static void told(struct backend *b, const char *kind, int *ms, int *rc)
{
	CLEAN_FREE char *path = xasprintf("%s/fake", b->paths->state);
	CLEAN_BUF struct buf text = BUF_INIT;
	char k[16];
	int m, e;
	*ms = *rc = 0;
	if (!kind || file_read(path, &text, 65536, NULL))
		return;
	char *at = text.p;
	for (char *line; (line = strsep(&at, "\n"));)
		if (sscanf(line, "%15s %d %d", k, &m, &e) == 3 && !strcmp(k, kind)) {
			*ms = m;
			*rc = -e;
		}
}

static void *work(void *arg)
{
	struct backend *b = arg;
	for (struct queue_node *node; (node = queue_wait(&b->requests));) {
		struct request *r = queue_entry(node, struct request, node);
		int ms, rc;
		told(b, r->kind < ARRAY_LEN(told_kinds) ? told_kinds[r->kind] : NULL, &ms, &rc);
		if (!ms) {
			finish(b, r, rc);
			continue;
		}
		struct slow *s = xcalloc(1, sizeof *s);
		*s = (struct slow){b, r, ms, rc};
		atomic_fetch_add(&b->slow, 1);
		pthread_t t;
		pthread_create(&t, NULL, run_slow, s);
		pthread_detach(t);
	}
	return NULL;
}

static void *churn(void *arg)
{
	struct backend *b = arg;
	int64_t from = clock_mono_ms(), done = 0;
	while (!atomic_load(&b->stopping)) {
		int64_t due = (clock_mono_ms() - from) * b->churn_rate / 1000;
		for (; done < due && atomic_load(&unread) < BEHIND && !atomic_load(&b->stopping); done++) {
			pthread_mutex_lock(&b->lock);
			grow(b, 1 + done % b->churned, false);
			pthread_mutex_unlock(&b->lock);
		}
		if (done < due) /* what could not be done in time is left out */
			from = clock_mono_ms() - done * 1000 / b->churn_rate;
		clock_sleep_ms(1);
	}
	return NULL;
}

/* ---- the rest of the border ---- */

int backend_start(const struct backend_options *opt, struct backend **out, struct err *err)
{
	struct backend *b = xcalloc(1, sizeof *b);
	b->paths = opt->paths;
	b->notes = opt->notes;
	b->config = xstrdup("# fake\n");
	pthread_mutex_init(&b->lock, NULL);
	queue_init(&b->requests);
	tell_root(b);
	int n, rc;
	told(b, "sessions", &n, &rc);
	for (int i = 0; i == 0 || i < n; i++) {
		b->session[++b->last] = fake_new(i ? xasprintf("s-%d", i) : xstrdup("s"), "hello\n");
		tell(b, b->last, false);
	}
	queue_push(b->notes, &note_new(NOTE_READY)->node);
	pthread_create(&b->thread, NULL, work, b);
	told(b, "changes", &b->churn_rate, &b->churned);
	b->churned = b->churned ? -b->churned : 1;
	if (b->churn_rate)
		pthread_create(&b->churn, NULL, churn, b);
	*out = b;
	return 0;
}

void backend_submit(struct backend *b, struct request *r)
{
	queue_push(&b->requests, &r->node);
}

void backend_stop(struct backend *b)
{
	queue_close(&b->requests);
	pthread_join(b->thread, NULL);
	atomic_store(&b->stopping, true);
	if (b->churn_rate)
		pthread_join(b->churn, NULL);
	while (atomic_load(&b->slow))
		clock_sleep_ms(1);
	for (int64_t i = 1; i <= b->last; i++) {
		free(b->session[i].name);
		buf_release(&b->session[i].text);
	}
	free(b->config);
	queue_release(&b->requests);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

int key_name_check(const char *name, struct err *err)
{
	return 0;
}

int name_check(const char *name, struct err *err)
{
	return strcmp(name, "bad") ? 0 : err_set(err, EINVAL, "a bad name");
}

int backend_show(const struct paths *paths, const char *name, int fd, struct err *err)
{
	return err_set(err, ENOENT, "the fake keeps nothing");
}

int backend_entrance(const struct paths *paths, const char *name, struct entrance *out, struct err *err)
{
	*out = (struct entrance){0};
	return err_set(err, ENOENT, "the fake has no sandboxes");
}

void entrance_release(struct entrance *e)
{
}

int backend_enter_keys(const struct paths *paths, const struct entrance *e, const char *alias, char **folder,
		       struct err *err)
{
	return err_set(err, ENOENT, "the fake has no sandboxes");
}

int backend_enter(const struct paths *paths, const struct entrance *e, void (*progress)(void *arg, const char *line),
		  void *arg, struct err *err)
{
	return err_set(err, ENOENT, "the fake has no sandboxes");
}

void backend_doctor(const struct paths *paths, void (*line)(void *arg, bool ok, const char *name, const char *words),
		    void *arg)
{
	line(arg, true, "fake", "always well");
}

void ctl_verbs(struct buf *out)
{
	buf_adds(out, "stop            end the run\n");
}

int backend_models(const struct paths *paths, void (*line)(void *arg, bool ok, const char *name, const char *words),
		   void *arg, struct err *err)
{
	return 0;
}

int backend_claude_main(int argc, char **argv)
{
	return 1;
}

bool attach_is_image(const void *p, size_t n)
{
	return false;
}
