/* Who connects to a container says in a line what for (box.h). Tools' and people's connections are handed to the
 * program inside; the other requests are answered here, and wake nobody. Must never block on a client or on what is
 * inside, nor let anything stand still while somebody is connected to it. */
#include "box_door.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "box.h"

#define LINE_MAX_BYTES 16
#define ANSWER_MS      5000 /* the program inside answers at once; this is for a machine that swaps */
#define FREEZE_MS      500  /* what sleeps in the kernel then stands still as soon as it comes out */

struct client {
	struct list link;
	int fd;
	bool waits; /* for the pause */
	char line[LINE_MAX_BYTES + 1];
	size_t n;
};

/* It stays in the list until that is swept, so that any of them may go while the list is walked through. */
static void drop(struct client *c)
{
	fd_close(&c->fd);
	c->waits = false;
}

static void sweep(struct door *d)
{
	list_each_safe (at, &d->clients) {
		struct client *c = list_entry(at, struct client, link);
		if (c->fd >= 0)
			continue;
		list_remove(&c->link);
		free(c);
		d->count--;
	}
}

/* Far below a socket's buffer: it is sent whole, or the client has gone. */
static void answer(struct client *c, const char *words)
{
	CLEAN_FREE char *line = xasprintf("%s\n", words);
	ssize_t r = send(c->fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)r;
	drop(c);
}

static void answer_waiting(struct door *d, const char *words)
{
	list_each (at, &d->clients) {
		struct client *c = list_entry(at, struct client, link);
		if (c->waits)
			answer(c, words);
	}
}

/* ---- the program inside ---- */

/* Words, and a descriptor that goes along (or -1). */
static bool tell(struct door *d, const char *words, int fd)
{
	size_t n = strlen(words);
	return d->inside >= 0 && unix_send(d->inside, words, n, fd, MSG_DONTWAIT) == (ssize_t)n;
}

static int set_frozen(struct door *d, bool frozen)
{
	CLEAN_FREE char *path = xasprintf("%s/cgroup.freeze", d->group);
	CLEAN_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 || write(fd, frozen ? "1" : "0", 1) != 1 ? -errno : 0;
}

static bool all_frozen(struct door *d)
{
	CLEAN_FREE char *path = xasprintf("%s/cgroup.events", d->group);
	CLEAN_BUF struct buf b = BUF_INIT;
	return file_read(path, &b, 4096, NULL) || strstr(buf_str(&b), "frozen 1");
}

static int freeze(struct door *d)
{
	int rc = set_frozen(d, true);
	for (int64_t end = clock_mono_ms() + FREEZE_MS; !rc && !all_frozen(d) && clock_mono_ms() < end;)
		clock_sleep_ms(1);
	d->frozen = !rc;
	return rc;
}

/* Whatever was asked of the program inside, it hears this after. */
static int go_on(struct door *d)
{
	int rc = d->frozen ? set_frozen(d, false) : 0;
	if (!rc && d->motion != DOOR_GOING && !d->group && d->inside >= 0 && !tell(d, BOX_GO, -1))
		rc = -errno;
	if (rc)
		return rc;
	d->frozen = false;
	d->motion = DOOR_GOING;
	return 0;
}

static void hear_inside(struct door *d)
{
	char text[64];
	unsigned asked, connected;
	ssize_t n = recv(d->inside, text, sizeof text - 1, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) { /* it has ended; bubblewrap, which is frozen with it, sees that once it goes on */
		fd_close(&d->inside);
		go_on(d);
		answer_waiting(d, "error the container has ended");
		return;
	}
	text[n] = 0;
	if (sscanf(text, "%u %u", &asked, &connected) != 2 || asked != d->asked || d->motion != DOOR_ASKED)
		return; /* somebody has come meanwhile */
	int rc = connected || !d->group ? 0 : freeze(d);
	d->motion = connected || rc ? DOOR_GOING : DOOR_PAUSED;
	if (rc) { /* from here on without the group */
		log_warn("the container cannot be frozen: %s", strerror(-rc));
		go_on(d);
		d->group = NULL;
	}
	answer_waiting(d, connected ? "error " BOX_BUSY "somebody is connected to the container"
			  : rc	    ? "error " BOX_BUSY "the container cannot be frozen"
				    : "ok");
}

/* ---- requests ---- */

static void hand_in(struct door *d, struct client *c)
{
	int rc = go_on(d);
	if (rc) {
		CLEAN_FREE char *words = xasprintf("error the paused container does not go on: %s", strerror(-rc));
		log_warn("%s", words);
		answer(c, words);
		return;
	}
	answer_waiting(d, "error " BOX_BUSY "somebody has connected to the container");
	if (tell(d, c->line, c->fd))
		drop(c);
	else
		answer(c,
		       d->inside < 0 ? "error the container has ended" : "error too many connections to the container");
}

static void pause_for(struct door *d, struct client *c)
{
	c->waits = true;
	if (d->motion == DOOR_PAUSED) {
		answer(c, "ok");
		return;
	}
	if (d->motion == DOOR_ASKED)
		return;
	CLEAN_FREE char *words = xasprintf("%s %u", d->group ? BOX_COUNT : BOX_STOP, ++d->asked);
	if (!tell(d, words, -1)) {
		answer(c, "error the container has ended");
		return;
	}
	d->motion = DOOR_ASKED;
	d->until = clock_mono_ms() + ANSWER_MS;
}

static void obey(struct door *d, struct client *c)
{
	if (!strcmp(c->line, BOX_TOOL) || !strcmp(c->line, BOX_SSH))
		hand_in(d, c);
	else if (!strcmp(c->line, BOX_STATUS))
		answer(c, d->motion == DOOR_PAUSED ? "ok paused" : "ok running");
	else if (!strcmp(c->line, BOX_PAUSE))
		pause_for(d, c);
	else
		answer(c, "error unknown request");
}

/* What follows the line is for whoever gets the connection. */
static void read_line(struct door *d, struct client *c)
{
	int rc = unix_line(c->fd, c->line, LINE_MAX_BYTES, &c->n);
	if (rc > 0)
		obey(d, c);
	else if (rc < 0)
		drop(c);
}

static void accept_all(struct door *d)
{
	while (d->count < DOOR_CLIENTS) {
		CLEAN_FD int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			return;
		if (!unix_peer_ours(fd))
			continue;
		struct client *c = xcalloc(1, sizeof *c);
		c->fd = take_fd(&fd);
		list_append(&d->clients, &c->link);
		d->count++;
		read_line(d, c);
	}
}

/* ---- */

void door_init(struct door *d, int listener, int inside, const char *group)
{
	*d = (struct door){.listener = listener, .inside = inside, .group = group};
	list_init(&d->clients);
	fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
}

int door_poll(struct door *d, struct pollfd *p, int *ms)
{
	int n = 0;
	int64_t left = d->until - clock_mono_ms();
	if (d->motion == DOOR_ASKED && (*ms < 0 || *ms > left))
		*ms = left > 0 ? (int)left : 0;
	p[n++] = (struct pollfd){.fd = d->count < DOOR_CLIENTS ? d->listener : -1, .events = POLLIN};
	p[n++] = (struct pollfd){.fd = d->inside, .events = POLLIN};
	list_each (at, &d->clients) {
		const struct client *c = list_entry(at, struct client, link);
		p[n++] = (struct pollfd){.fd = c->fd, .events = c->waits ? 0 : POLLIN};
	}
	return n;
}

void door_work(struct door *d, const struct pollfd *p, int n)
{
	int i = 2;
	list_each (at, &d->clients) { /* before others come: the list is that of p */
		struct client *c = list_entry(at, struct client, link);
		short what = i < n ? p[i++].revents : 0;
		if (c->waits && what)
			drop(c);
		else if (what && c->fd >= 0)
			read_line(d, c);
	}
	if (p[1].revents)
		hear_inside(d);
	if (p[0].revents)
		accept_all(d);
	if (d->motion == DOOR_ASKED && clock_mono_ms() >= d->until) {
		go_on(d);
		answer_waiting(d, "error " BOX_BUSY "the container does not answer");
	}
	sweep(d);
}

void door_open(struct door *d)
{
	go_on(d);
}

void door_release(struct door *d)
{
	list_each (at, &d->clients)
		drop(list_entry(at, struct client, link));
	sweep(d);
	fd_close(&d->listener);
	fd_close(&d->inside);
}
