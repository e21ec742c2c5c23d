/* A tool daemon of an enemy: it speaks the protocol and lies. Serves one connection on the calling thread until that
 * is closed. */
#pragma once
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/wire.h"

enum hostile {
	HOSTILE_NOT,	 /* answers everything with success and nothing in it */
	HOSTILE_SILENT,	 /* takes requests and says nothing */
	HOSTILE_PONGS,	 /* answers with pongs, for ever */
	HOSTILE_DRIP,	 /* sends a frame of 16 MiB, a byte every 10 ms */
	HOSTILE_RUNNING, /* every job runs, for ever, and it says so at once */
	HOSTILE_EXIT,	 /* jobs end with an exit code that is -ECANCELED as a number */
	HOSTILE_CODES,	 /* fails with the errno that stands in hostile_code */
	HOSTILE_ENDLESS, /* files never end */
	HOSTILE_HOME,	 /* its home is hostile_home */
};

static _Atomic int hostile_code;
static const char *hostile_home = "/home/agent";
static atomic_long hostile_requests;

static inline bool hostile_send(int fd, struct wire_out *o, const void *p, size_t n)
{
	wire_end(o, p, n);
	int rc = fd_write_full(fd, o->b.p, o->b.n);
	wire_out_release(o);
	return !rc;
}

static inline void hostile_pongs(int fd)
{
	for (bool on = true; on;) {
		struct wire_out o = {0};
		wire_begin(&o, WIRE_PONG, 0);
		on = hostile_send(fd, &o, NULL, 0);
		clock_sleep_ms(1);
	}
}

static inline void hostile_drip(int fd)
{
	char c = 0;
	if (fd_write_full(fd, "\x01\0\0\0\x02\0\0\0\1\0\0\0\0", 13))
		return;
	while (!fd_write_full(fd, &c, 1))
		clock_sleep_ms(10);
}

static inline bool hostile_answer(int fd, enum hostile how, const struct wire_msg *m)
{
	static char chunk[WIRE_CHUNK];
	uint64_t op = wire_num(m, WIRE_OP, 0);
	struct wire_out o = {0};
	bool hello = op == WIRE_HELLO;
	if (how == HOSTILE_SILENT && !hello)
		return true;
	if (how == HOSTILE_PONGS && !hello)
		hostile_pongs(fd);
	if (how == HOSTILE_DRIP && !hello)
		hostile_drip(fd);
	bool refuse = how == HOSTILE_CODES && !hello;
	wire_begin(&o, refuse ? WIRE_ERROR : WIRE_RESULT, m->id);
	if (hello) {
		wire_add_num(&o, WIRE_VERSION_TAG, WIRE_VERSION);
		wire_add_text(&o, WIRE_HOME, hostile_home);
	} else if (op == WIRE_POLL) {
		wire_add_num(&o, WIRE_STATE, how == HOSTILE_RUNNING ? 1 : 2);
		wire_add_num(&o, WIRE_EXIT, how == HOSTILE_EXIT ? (uint64_t)-ECANCELED : 0);
	} else if (op == WIRE_STAT) {
		wire_add_text(&o, WIRE_PATH, "/x");
		wire_add_num(&o, WIRE_SIZE, 1 << 20);
	}
	if (refuse) {
		wire_add_num(&o, WIRE_CODE, (uint64_t)atomic_load(&hostile_code));
		wire_add_text(&o, WIRE_TEXT, "\033[2Jidle\nanother line\tand a column");
	}
	return hostile_send(fd, &o, chunk, op == WIRE_READ && how == HOSTILE_ENDLESS ? sizeof chunk : 0);
}

static inline void hostile_serve(int fd, enum hostile how)
{
	struct wire_reader in = {0};
	char room[65536];
	ssize_t n;
	if (read(fd, room, 5) != 5 || fd_write_full(fd, "ok\n", 3))
		return;
	while ((n = read(fd, room, sizeof room)) > 0) {
		struct wire_msg m;
		wire_feed(&in, room, (size_t)n);
		while (wire_next(&in, &m) > 0) {
			if (m.type != WIRE_REQUEST)
				continue;
			atomic_fetch_add(&hostile_requests, 1);
			if (!hostile_answer(fd, how, &m))
				break;
		}
	}
	wire_reader_release(&in);
}
