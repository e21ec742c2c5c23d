/* The keeper's clients: one line in, one answer out, or a stream. Runs on the keeper's only thread; must never block on
 * a client, and serves only processes of the same user. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "keeper.h"
#include "keeper_vm.h"

#define LINE_MAX_BYTES 32

/* When a client has to be answered. */
enum client_wait {
	WAIT_LINE,    /* it has not said what it wants */
	WAIT_RUNNING, /* once the tool daemon can be reached */
	WAIT_PAUSED,  /* once the guest has stopped */
	WAIT_HELD,    /* the same; and it stands still as long as the client is there */
	WAIT_ENDED,   /* once QEMU has ended */
	WAIT_SAVED,   /* the same, or once it is known that it hibernates not */
};

struct client {
	struct list link;
	int fd;
	enum client_wait wait;
	const char *stream; /* WAIT_RUNNING: kind of the stream that it becomes, or NULL */
	bool told;	    /* WAIT_HELD: it has been answered */
	char line[LINE_MAX_BYTES + 1];
	size_t n;
};

static void drop(struct keeper *k, struct client *c)
{
	if (c->wait == WAIT_HELD)
		keeper_let_go(k);
	list_remove(&c->link);
	fd_close(&c->fd);
	free(c);
	k->client_count--;
}

/* An answer is far below a socket's buffer: it is sent whole, or the client has gone. */
static void answer(struct keeper *k, struct client *c, const char *words, const void *more, size_t n)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_adds(&b, words);
	buf_addc(&b, '\n');
	buf_add(&b, more, n);
	ssize_t r = send(c->fd, b.p, b.n, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)r;
	drop(k, c);
}

static void answer_stream(struct keeper *k, struct client *c)
{
	if (mux_state(k->mux) != MUX_LIVE) {
		answer(k, c, "error the connection to the VM is starting again", "", 0);
		return;
	}
	if (mux_streams(k->mux) >= MUX_STREAMS) {
		answer(k, c, "error too many connections into the VM", "", 0);
		return;
	}
	if (send(c->fd, "ok\n", 3, MSG_NOSIGNAL | MSG_DONTWAIT) == 3) {
		mux_open(k->mux, c->stream, c->fd, NULL); /* takes the descriptor, also when it fails */
		c->fd = -1;
	}
	drop(k, c);
}

static void want_running(struct keeper *k, struct client *c, const char *stream)
{
	c->wait = WAIT_RUNNING;
	c->stream = stream;
	keeper_resume(k);
	if (k->motion != VM_GOING && (k->phase == VM_BOOTING || k->phase == VM_RUNNING))
		return;
	if (k->phase == VM_RUNNING && stream)
		answer_stream(k, c);
	else if (k->phase == VM_RUNNING)
		answer(k, c, "ok", "", 0);
	else if (k->phase == VM_STOPPING)
		answer(k, c, "error the VM is powering off", "", 0);
}

static void verb_tool(struct keeper *k, struct client *c)
{
	want_running(k, c, "tool");
}

static void verb_ssh(struct keeper *k, struct client *c)
{
	want_running(k, c, "ssh");
}

static void verb_wait(struct keeper *k, struct client *c)
{
	want_running(k, c, NULL);
}

static void verb_status(struct keeper *k, struct client *c)
{
	static const char *const phases[] = {"booting", "running", "saving", "stopping", "ended"};
	bool up = k->phase == VM_BOOTING || k->phase == VM_RUNNING;
	const char *word = up && keeper_resting(k) ? "paused" : k->stalled ? "stalled" : phases[k->phase];
	CLEAN_FREE char *line =
		xasprintf("%s %s ssh %d\n", word, k->kvm ? "kvm" : "tcg", mux_streams_of(k->mux, "ssh"));
	answer(k, c, "ok", line, strlen(line));
}

static void verb_pause(struct keeper *k, struct client *c)
{
	const char *why = keeper_pause(k);
	CLEAN_FREE char *words = xasprintf("error %s", why ? why : "");
	c->wait = WAIT_PAUSED;
	if (why)
		answer(k, c, words, "", 0);
	else if (k->motion == VM_PAUSED)
		answer(k, c, "ok", "", 0);
}

static void answer_held(struct keeper *k, struct client *c)
{
	c->told = true;
	if (send(c->fd, "ok\n", 3, MSG_NOSIGNAL | MSG_DONTWAIT) != 3)
		drop(k, c);
}

static void verb_hold(struct keeper *k, struct client *c)
{
	const char *why = keeper_hold(k);
	CLEAN_FREE char *words = xasprintf("error %s", why ? why : "");
	if (why) {
		answer(k, c, words, "", 0);
		return;
	}
	c->wait = WAIT_HELD;
	if (k->motion == VM_PAUSED)
		answer_held(k, c);
}

static void verb_poweroff(struct keeper *k, struct client *c)
{
	c->wait = WAIT_ENDED;
	keeper_stop(k);
}

static void verb_hibernate(struct keeper *k, struct client *c)
{
	struct err err = ERR_INIT;
	if (k->holds) {
		answer(k, c, "error " KEEPER_BUSY "its disk is being copied", "", 0);
		return;
	}
	c->wait = WAIT_SAVED;
	if (k->phase == VM_STOPPING || !save_begin(k, &err))
		return; /* answered with its end */
	CLEAN_FREE char *line = xasprintf("error %s", err.text);
	answer(k, c, line, "", 0);
}

static void verb_kill(struct keeper *k, struct client *c)
{
	c->wait = WAIT_ENDED;
	keeper_kill(k);
}

static void verb_console(struct keeper *k, struct client *c)
{
	const struct buf *tail = &k->console.tail;
	size_t n = tail->n < KEEPER_CONSOLE_TAIL ? tail->n : KEEPER_CONSOLE_TAIL;
	answer(k, c, "ok", n ? tail->p + tail->n - n : "", n);
}

static const struct {
	const char *name;
	void (*run)(struct keeper *k, struct client *c);
} verbs[] = {
	{"tool", verb_tool},	       {"ssh", verb_ssh},   {"wait", verb_wait},       {"status", verb_status},
	{"poweroff", verb_poweroff},   {"kill", verb_kill}, {"console", verb_console}, {"pause", verb_pause},
	{"hibernate", verb_hibernate}, {"hold", verb_hold},
};

static void obey(struct keeper *k, struct client *c)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!strcmp(c->line, verbs[i].name)) {
			verbs[i].run(k, c);
			return;
		}
	answer(k, c, "error unknown request", "", 0);
}

/* What follows the line belongs to the stream. */
static void read_line(struct keeper *k, struct client *c)
{
	int rc = unix_line(c->fd, c->line, LINE_MAX_BYTES, &c->n);
	if (rc > 0)
		obey(k, c);
	else if (rc < 0)
		drop(k, c);
}

void clients_accept(struct keeper *k)
{
	while (k->client_count < CLIENTS_MAX) {
		CLEAN_FD int fd = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		if (!unix_peer_ours(fd))
			continue;
		struct client *c = xcalloc(1, sizeof *c);
		c->fd = take_fd(&fd);
		list_append(&k->clients, &c->link);
		k->client_count++;
		read_line(k, c);
	}
}

int clients_poll(struct keeper *k, struct pollfd *p)
{
	int n = 0;
	list_each (at, &k->clients) {
		struct client *c = list_entry(at, struct client, link);
		/* One that waits may have sent stream data ahead: only its end is of interest. */
		p[n++] = (struct pollfd){.fd = c->fd, .events = c->wait == WAIT_LINE ? POLLIN : 0};
	}
	return n;
}

void clients_work(struct keeper *k, const struct pollfd *p, int n)
{
	int i = 0;
	list_each_safe (at, &k->clients) {
		if (i == n)
			return;
		struct client *c = list_entry(at, struct client, link);
		short what = p[i++].revents;
		if (c->wait == WAIT_LINE && what)
			read_line(k, c);
		else if (what & (POLLERR | POLLHUP | POLLNVAL))
			drop(k, c);
	}
}

void clients_phase(struct keeper *k)
{
	list_each_safe (at, &k->clients) {
		struct client *c = list_entry(at, struct client, link);
		CLEAN_FREE char *how = xasprintf("%s\n", k->ended);
		CLEAN_FREE char *stuck = xasprintf("error %s", k->stuck);
		CLEAN_FREE char *not = xasprintf("error %s", k->save.why.text);
		CLEAN_FREE char *gone = xasprintf("error the VM has ended: %s", k->ended);
		bool ended = k->phase == VM_ENDED, saved = k->save.step == SAVE_DONE;
		if (ended && (c->wait == WAIT_ENDED || (c->wait == WAIT_SAVED && saved)))
			answer(k, c, "ok", how, strlen(how));
		else if (c->wait == WAIT_SAVED && !ended && !save_busy(k) && k->phase != VM_STOPPING)
			answer(k, c, not, "", 0);
		else if (ended && c->wait != WAIT_LINE)
			answer(k, c, gone, "", 0);
		else if (c->wait == WAIT_HELD && k->motion == VM_PAUSED && !c->told)
			answer_held(k, c);
		else if (c->wait == WAIT_HELD && k->motion != VM_PAUSING && !c->told)
			drop(k, c); /* it could not be stopped: an end without an answer */
		else if (c->wait == WAIT_PAUSED && k->motion == VM_PAUSED)
			answer(k, c, "ok", "", 0);
		else if (c->wait == WAIT_PAUSED && k->motion == VM_GOING && *k->stuck)
			answer(k, c, stuck, "", 0);
		else if (c->wait == WAIT_PAUSED && k->motion != VM_PAUSING)
			answer(k, c, "error " KEEPER_BUSY "somebody has connected to it", "", 0);
		else if (c->wait == WAIT_RUNNING && k->motion == VM_PAUSED && *k->stuck)
			answer(k, c, stuck, "", 0);
		else if (c->wait == WAIT_RUNNING)
			want_running(k, c, c->stream);
	}
	*k->stuck = 0;
}

void clients_release(struct keeper *k)
{
	list_each_safe (at, &k->clients)
		drop(k, list_entry(at, struct client, link));
}
