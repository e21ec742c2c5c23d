/* The gateway's life: started, watched by an open line to it, started again when it has died, told of settings, and at
 * the end left running if a sandbox needs it. One thread of its own, which may block for as long as the gateway's
 * client does; others wait for it only where gate_link.h says so. It must never hold a key or a lock while it blocks.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "gate_private.h"
#include "sandbox/sandbox.h"
#include "template.h"

#define GAP_MS	   100	 /* between two looks at a busy gateway */
#define AGES_MS	   60000 /* ages in `tokens` are told in minutes */
#define STEADY_MS  30000 /* up for so long: the next failure is the first one again */
#define BACKOFF_MS 10000 /* the longest wait between two tries */
#define WAIT_MS	   10000 /* for a gateway that starts */
#define SILENT_MAX 2	 /* looks in a row without an answer (10 s each) */

bool gate_stopping(struct gate_link *l)
{
	pthread_mutex_lock(&l->lock);
	bool stop = l->stop;
	pthread_mutex_unlock(&l->lock);
	return stop;
}

static void wake(struct gate_link *l)
{
	uint64_t one = 1;
	ssize_t n = write(l->wake, &one, sizeof one);
	(void)n;
}

void gate_want(struct gate_link *l)
{
	pthread_mutex_lock(&l->lock);
	l->wanted++;
	pthread_mutex_unlock(&l->lock);
	wake(l);
}

void gate_kick(struct backend *b)
{
	if (b->link)
		gate_want(b->link);
}

/* ---- its state ---- */

struct telling {
	char text[600];
};

static int tell_fn(struct tx *tx, void *arg, struct err *err)
{
	return tx_event(tx, NULL, "gateway", ((struct telling *)arg)->text, err);
}

static void told(void *arg, int rc, const struct err *err)
{
	free(arg);
}

/* A line of `events`. */
static void tell(struct gate_link *l, const char *fmt, const char *words)
{
	struct telling *t = xcalloc(1, sizeof *t);
	snprintf(t->text, sizeof t->text, fmt, words);
	log_debug("gateway: %s", t->text); /* no information: the terminal of `berthfs mount` is still there */
	store_post(l->b->store, tell_fn, told, t);
}

static void enter(struct gate_link *l, enum gate_state state, const struct err *why)
{
	pthread_mutex_lock(&l->lock);
	l->state = state;
	l->why = why ? *why : ERR_INIT;
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
	if (state != GATE_UP)
		gate_show(l);
}

static void fail(struct gate_link *l, const struct err *why)
{
	int64_t wait = l->tries > 6 ? BACKOFF_MS : 100 << l->tries;
	bool news = l->state != GATE_DOWN || strcmp(l->why.text, why->text); /* this thread alone writes them */
	l->tries++;
	l->next_try_ms = clock_mono_ms() + wait;
	enter(l, GATE_DOWN, why);
	if (!news)
		return;
	tell(l, "does not run: %s", why->text);
	notes_error(l->b->notes, 0, "status", why, clock_real_ms());
}

/* The line has ended, or what came by it makes no sense: whatever was under way is answered by nobody. */
static void lost(struct gate_link *l)
{
	fd_close(&l->line);
	l->told = false;
	if (clock_mono_ms() - l->up_ms > STEADY_MS)
		l->tries = 0;
	struct err why = ERR_INIT;
	err_set(&why, EAGAIN, "the gateway has ended; it is started again");
	l->next_try_ms = clock_mono_ms() + (l->tries ? 100 << (l->tries < 7 ? l->tries : 7) : 0);
	l->tries++;
	enter(l, GATE_STARTING, &why);
	tell(l, "%s", "has ended; starting it again");
}

/* Takes what the line says; false when it has ended. */
static bool read_line(struct gate_link *l)
{
	char text[64];
	ssize_t n;
	while ((n = recv(l->line, text, sizeof text, MSG_DONTWAIT)) > 0)
		;
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* One that does not answer, or cannot be reached any more because its sockets were removed, and does not end either,
 * would be in the way of the next one for ever. */
static void end_useless(struct gate_link *l, int rc, const struct err *why)
{
	uid_t uid;
	pid_t pid;
	bool lives = read_line(l); /* our line to it: then the pid is right, too */
	if (lives && !unix_peer(l->line, &uid, &pid) && pid > 1) {
		tell(l, "is of no use any more and is ended: %s", why->text);
		kill(pid, rc == -ETIMEDOUT ? SIGKILL : SIGTERM);
	}
	l->silent = 0;
	lost(l);
}

static void bring_up(struct gate_link *l)
{
	struct err why = ERR_INIT;
	struct config *c = backend_config(l->b);
	struct gateway_options o = {.sync_each = !strcmp(c->value[CONFIG_LEDGER_SYNC], "each"), .log_fd = l->log_fd};
	config_put(c);
	bool there = gateway_running(l->b->paths);
	int rc = gateway_start(l->b->paths, &o, &why);
	if (!rc) {
		l->line = gateway_attach(l->b->paths, &why);
		rc = l->line < 0 ? l->line : 0;
	}
	if (rc) {
		fail(l, &why);
		return;
	}
	l->up_ms = clock_mono_ms();
	l->tell_lives = true;
	tell(l, "%s", there ? "taken over" : "started");
}

/* gateway.listen and ledger.sync. An address that cannot be listened on is no reason to be without a gateway. */
static void tell_options(struct gate_link *l)
{
	struct err why = ERR_INIT;
	struct config *c = backend_config(l->b);
	const char *address = c->value[CONFIG_GATEWAY_LISTEN];
	struct gateway_options o = {.listen = strcmp(address, "off") ? address : NULL,
				    .sync_each = !strcmp(c->value[CONFIG_LEDGER_SYNC], "each")};
	if (l->told && l->sync_each == o.sync_each && !strcmp(l->listen, address)) {
		config_put(c);
		return;
	}
	int rc = gateway_options_set(l->b->paths, &o, &why);
	free(l->listen);
	free(l->listen_words);
	l->listen = xstrdup(address);
	l->listen_words = rc ? xstrdup(why.text) : NULL;
	l->sync_each = o.sync_each;
	l->told = true;
	config_put(c);
	if (!rc)
		return;
	tell(l, "gateway.listen: %s", why.text);
	notes_error(l->b->notes, 0, "config", &why, clock_real_ms());
}

/* ---- the thread ---- */

static void one_round(struct gate_link *l)
{
	struct err why = ERR_INIT;
	pthread_mutex_lock(&l->lock);
	uint64_t wanted = l->wanted;
	pthread_mutex_unlock(&l->lock);
	if (l->line < 0 && clock_mono_ms() >= l->next_try_ms)
		bring_up(l);
	if (l->line >= 0 && read_line(l) && send(l->line, "?", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) {
		l->looked_ms = clock_mono_ms();
		tell_options(l);
		int rc = gate_look(l, &why);
		if (rc == -ETIMEDOUT && ++l->silent < SILENT_MAX)
			gate_want(l);
		else if (rc)
			end_useless(l, rc, &why);
		else
			l->silent = 0;
	} else if (l->line >= 0) {
		lost(l);
	}
	pthread_mutex_lock(&l->lock);
	l->done = wanted;
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
}

/* Until there is a reason for another round. */
static void rest(struct gate_link *l)
{
	uint64_t n;
	int64_t now = clock_mono_ms();
	int64_t left = l->line < 0 ? l->next_try_ms - now : l->looked_ms + AGES_MS - now;
	struct pollfd p[] = {{.fd = l->wake, .events = POLLIN}, {.fd = l->line, .events = POLLIN}};
	poll(p, 2, left > 0 ? (int)left : 0);
	if (!p[0].revents && p[1].revents == POLLIN) { /* not more often, unless somebody waits */
		int64_t gap = l->looked_ms + GAP_MS - clock_mono_ms();
		poll(p, 1, gap > 0 ? (int)gap : 0);
	}
	if (p[0].revents && read(l->wake, &n, sizeof n) != sizeof n)
		log_debug("gateway: woken by nobody");
}

static void *link_main(void *arg)
{
	struct gate_link *l = arg;
	while (!gate_stopping(l)) {
		one_round(l);
		rest(l);
	}
	return NULL;
}

/* ---- waiting for it ---- */

static void wait_change(struct gate_link *l, int ms)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += ms % 1000 * 1000000L;
	t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&l->change, &l->lock, &t);
}

int gate_wait_up(struct gate_link *l, const atomic_bool *cancel, struct err *err)
{
	int64_t until = clock_mono_ms() + WAIT_MS;
	int rc = 0;
	pthread_mutex_lock(&l->lock);
	while (l->state == GATE_STARTING && !l->stop && clock_mono_ms() < until && !(cancel && atomic_load(cancel)))
		wait_change(l, 100);
	if (cancel && atomic_load(cancel))
		rc = err_set(err, ECANCELED, "stopped");
	else if (l->state != GATE_UP)
		rc = err_set(err, EAGAIN, "the gateway does not run: %s", *l->why.text ? l->why.text : "not yet");
	pthread_mutex_unlock(&l->lock);
	return rc;
}

int gate_settle(struct backend *b, int ms, struct err *err)
{
	struct gate_link *l = b->link;
	int64_t until = clock_mono_ms() + ms;
	if (!l)
		return 0;
	gate_want(l);
	pthread_mutex_lock(&l->lock);
	uint64_t mine = l->wanted;
	while (l->done < mine && !l->stop && clock_mono_ms() < until)
		wait_change(l, (int)(until - clock_mono_ms()) + 1);
	int rc = l->done < mine	       ? err_set(err, ETIMEDOUT, "the gateway has not answered yet")
		 : l->state != GATE_UP ? err_set(err, EAGAIN, "the gateway does not run: %s", l->why.text)
				       : 0;
	pthread_mutex_unlock(&l->lock);
	return rc;
}

/* ---- start and stop ---- */

static bool sandbox_is_up(struct gate_link *l)
{
	struct rows r;
	bool up = false;
	int rc = db_query(l->db, &r, NULL,
			  "SELECT id, sandbox FROM sessions WHERE sandbox_state LIKE '% running%' OR "
			  "sandbox_state LIKE '% paused%' UNION ALL SELECT id + ?, kind FROM templates WHERE "
			  "state='building'",
			  "i", TEMPLATE_SANDBOX);
	while (!rc && !up && rows_next(&r)) {
		enum sandbox_state state = sandbox_state(l->b->paths, row_text(&r, 1), row_int(&r, 0));
		up = state == SANDBOX_RUNNING || state == SANDBOX_PAUSED;
	}
	rows_end(&r);
	return up;
}

struct gate_link *gate_link_new(struct backend *b, int log_fd)
{
	struct gate_link *l = xcalloc(1, sizeof *l);
	pthread_condattr_t attr;
	l->b = b;
	l->log_fd = log_fd;
	l->line = -1;
	l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&l->lock, NULL);
	pthread_mutex_init(&l->minting, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->change, &attr);
	pthread_condattr_destroy(&attr);
	queue_init(&l->asks);
	l->view = gateway_view_new();
	l->view->state = xstrdup("starting");
	return l;
}

int gate_link_start(struct gate_link *l, struct err *err)
{
	int rc = l->wake < 0 || queue_fd(&l->asks) < 0 ? err_sys(err, EMFILE, "cannot watch the gateway")
						       : db_open(l->b->db_path, false, &l->db, err);
	if (rc)
		return rc;
	rc = pthread_create(&l->asker, NULL, gate_asker, l);
	l->has_asker = !rc;
	rc = rc ? rc : pthread_create(&l->thread, NULL, link_main, l);
	l->has_thread = !rc;
	return rc ? err_sys(err, rc, "cannot start the gateway's threads") : 0;
}

void gate_link_stop(struct gate_link *l)
{
	struct err why = ERR_INIT;
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
	wake(l);
	queue_close(&l->asks);
	if (l->has_asker)
		pthread_join(l->asker, NULL);
	if (!l->has_thread)
		return;
	pthread_join(l->thread, NULL);
	if (sandbox_is_up(l))
		log_info("gateway: goes on, since a sandbox is up");
	else if (gateway_stop(l->b->paths, &why))
		log_warn("gateway: %s", why.text);
}

void gate_link_free(struct gate_link *l)
{
	if (!l)
		return;
	fd_close(&l->line);
	fd_close(&l->wake);
	gate_tokens_release(l);
	gateway_view_put(l->view);
	db_close(l->db);
	queue_release(&l->asks);
	pthread_cond_destroy(&l->change);
	pthread_mutex_destroy(&l->lock);
	pthread_mutex_destroy(&l->minting);
	free(l->listen);
	free(l->listen_words);
	free(l->draft);
	free(l);
}
