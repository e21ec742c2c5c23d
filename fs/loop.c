/* The loop of the face: one thread reads requests of the kernel, notes of the backend, results of scans, and signals,
 * and never waits for anything but all of them at once. It must not call what can block: no database, no git, no
 * sandbox, no path. Its order matters in one place: after a RELEASE with something written nothing more is read from
 * the kernel until that is committed, so that whoever comes later finds it done. */
#include "loop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "aside.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "drop.h"
#include "files.h"
#include "handle.h"
#include "holder.h"
#include "node.h"
#include "refuse.h"
#include "seen.h"
#include "watchers.h"

#define BATCH	64    /* requests served before the other sources are looked at */
#define QUIT_MS 5000  /* what is under way at the end is waited for no longer */
#define LOAD_MS 60000 /* between two notes while the sessions are read */

int face_init(struct face *f)
{
	list_init(&f->handles);
	list_init(&f->listings);
	list_init(&f->drafts);
	list_init(&f->asides);
	list_init(&f->ops);
	list_init(&f->interrupted);
	list_init(&f->timers);
	list_init(&f->polls);
	f->started_ms = f->sessions_ms = f->drop_ms = f->version_ms = clock_real_ms();
	f->version = 1;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	f->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (f->signal_fd < 0)
		return -errno;
	int rc = queue_init(&f->notes);
	return rc ? rc : holder_start(&f->notes, &f->holder);
}

/* ---- notes ---- */

/* A failure that no request waits for: a sync, a check, a ship. */
static void take_failure(struct face *f, const struct note *n)
{
	const struct session *s = n->session ? session_by_id(f, n->session) : NULL;
	CLEAN_BUF struct buf path = BUF_INIT;
	if (s)
		buf_addf(&path, "sessions/%s%s", s->view->name, n->path[0] ? "/" : "");
	buf_adds(&path, n->path);
	refuse(f, n->session, path.n ? buf_str(&path) : NULL, &n->err);
}

static void take_note(struct face *f, struct note *n)
{
	switch (n->kind) {
	case NOTE_VIEW: face_take_view(f, take(n->view)); break;
	case NOTE_ROOT: face_take_root(f, take(n->root)); break;
	case NOTE_ERROR: take_failure(f, n); break;
	case NOTE_DONE: {
		struct request *r = take(n->request);
		r->done(r);
		request_free(r);
		break;
	}
	case NOTE_READY: f->ready = true; break;
	case NOTE_OTHER: complete_scanned((struct scan *)n); return; /* its first member */
	}
	note_free(n);
}

static void take_notes(struct face *f)
{
	struct queue_node *node = queue_pop_all(&f->notes);
	while (node) {
		struct queue_node *next = node->next;
		take_note(f, queue_entry(node, struct note, node));
		node = next;
	}
}

int face_load(struct face *f)
{
	struct pollfd p = {.fd = queue_fd(&f->notes), .events = POLLIN};
	while (!f->ready || !f->root) {
		int n = poll(&p, 1, LOAD_MS);
		if (n == 0)
			return -ETIMEDOUT;
		if (n < 0 && errno != EINTR)
			return -errno;
		take_notes(f);
	}
	return 0;
}

/* ---- requests ---- */

/* Returns how many there were. most: to look for one more costs a system call, and where one client asks one thing
 * after the other there is none. */
static int serve(struct face *f, struct fuse_buf *buf, int most)
{
	int served = 0;
	while (served < most && !f->barrier) {
		int n = fuse_session_receive_buf(f->se, buf);
		if (n == -EINTR)
			continue;
		if (n <= 0)
			break; /* nothing more, or unmounted: the session has exited then */
		served++;
		fuse_session_process_buf(f->se, buf);
		if (!list_empty(&f->interrupted))
			ops_interrupt(f);
	}
	return served;
}

/* ---- the end ---- */

static void begin_quit(struct face *f)
{
	if (f->quit)
		return;
	log_info("finishing");
	f->quit = true;
	watchers_stop(f);
	f->quit_until_ms = clock_mono_ms() + QUIT_MS;
	for (size_t i = 0; i < f->n_sessions; i++)
		while (!list_empty(&f->sessions[i]->waits))
			op_error(list_entry(f->sessions[i]->waits.next, struct op, wait), -ESHUTDOWN);
	complete_all(f);
}

static void take_signals(struct face *f)
{
	struct signalfd_siginfo info;
	while (read(f->signal_fd, &info, sizeof info) == sizeof info)
		begin_quit(f);
}

static bool is_committing(const struct face *f)
{
	list_each (pos, &f->handles)
		if (list_entry(pos, struct handle, link)->committing)
			return true;
	return false;
}

static bool has_finished(struct face *f)
{
	if (!f->quit)
		return false;
	return (list_empty(&f->ops) && !is_committing(f)) || clock_mono_ms() >= f->quit_until_ms;
}

/* ---- the loop ---- */

static int next_timeout(const struct face *f)
{
	int64_t now = clock_mono_ms();
	int ms = timers_next(f);
	const int64_t until[] = {f->barrier ? f->barrier_until_ms : 0, f->quit ? f->quit_until_ms : 0};
	for (size_t i = 0; i < ARRAY_LEN(until); i++) {
		if (!until[i])
			continue;
		int left = until[i] > now ? (int)(until[i] - now) : 0;
		ms = ms < 0 || left < ms ? left : ms;
	}
	return ms;
}

static void announce(struct face *f)
{
	if (f->announced || !f->connected)
		return;
	f->announced = true;
	if (f->usable)
		f->usable(f->usable_arg);
}

static void drop_barrier(struct face *f)
{
	log_warn("a commit takes long; requests are served again without waiting for it");
	f->barrier = 0;
	list_each (pos, &f->handles)
		list_entry(pos, struct handle, link)->released = false;
}

int face_run(struct face *f)
{
	struct fuse_buf buf = {0};
	int most = BATCH;
	unsigned turns = 0;
	int rc = fd_nonblock(fuse_session_fd(f->se));
	while (!rc) {
		if (fuse_session_exited(f->se))
			begin_quit(f); /* unmounted by somebody else */
		if (has_finished(f))
			break;
		if (f->barrier && clock_mono_ms() >= f->barrier_until_ms)
			drop_barrier(f);
		bool listen = !f->barrier && !fuse_session_exited(f->se);
		struct pollfd p[] = {
			{.fd = listen ? fuse_session_fd(f->se) : -1, .events = POLLIN},
			{.fd = queue_fd(&f->notes), .events = POLLIN},
			{.fd = f->signal_fd, .events = POLLIN},
			{.fd = watchers_fd_janitor(f), .events = POLLIN},
			{.fd = watchers_fd_poker(f), .events = POLLIN},
		};
		if (poll(p, ARRAY_LEN(p), next_timeout(f)) < 0 && errno != EINTR)
			rc = -errno;
		if (p[1].revents)
			take_notes(f);
		if (p[2].revents)
			take_signals(f);
		timers_fire(f);
		if (p[0].revents)
			most = serve(f, &buf, most) > 1 ? BATCH : ++turns % 8 ? 1 : 2;
		if (!list_empty(&f->interrupted)) /* also of those that were parked again above */
			ops_interrupt(f);
		watchers_run(f, p[3].revents, p[4].revents);
		announce(f);
	}
	watchers_stop(f);
	f->connected = false; /* nothing more is told to the kernel */
	ops_end(f, -ESHUTDOWN);
	free(buf.mem);
	return rc;
}

void face_release(struct face *f)
{
	holder_stop(f->holder);
	if (queue_fd(&f->notes) > 0)
		take_notes(f);
	while (!list_empty(&f->handles)) { /* the kernel has not released them: it was a lazy unmount */
		struct handle *h = list_entry(f->handles.next, struct handle, link);
		h->refs = 1;
		handle_put(h);
	}
	files_release(f);
	nodes_release(f);
	seen_release(f); /* those that are due stand in lists of the watchers */
	watchers_release(f);
	drafts_release(f);
	asides_release(f);
	face_forget_sessions(f);
	ring_free(f->errors);
	buf_release(&f->index.text);
	buf_release(&f->status.text);
	buf_release(&f->readme);
	fd_close(&f->signal_fd);
	queue_release(&f->notes);
}
