/* Many byte streams over one byte stream: the virtio-serial port between a VM's keeper (host) and its init (guest).
 *
 * Every stream ends in a descriptor on each side: mux_open() takes one and relays it to the peer, and the peer's accept
 * callback answers with another. Half-close is kept (end of file on one side is shutdown(SHUT_WR) on the other), and a
 * slow stream holds up nobody else: each has 256 KiB of credit a direction, those that the guest opens 64 KiB. The
 * host's streams (tools) go before the guest's (the gateway): behind any number of busy ones of the guest they wait for
 * half a MiB at most.
 *
 * One thread owns a mux. It never blocks. The owner polls mux_fd() for POLLIN in its own loop and calls mux_work()
 * when it is readable (timers are behind the same descriptor):
 *
 *	static int on_accept(void *arg, const char *kind) { return strcmp(kind, "net") ? -EPROTONOSUPPORT : dial(); }
 *	static void on_state(void *arg, enum mux_state s, const char *why) { ... s == MUX_DOWN: reconnect later ... }
 *	struct mux_ops ops = {on_accept, on_state};
 *	mux_new(MUX_HOST, &ops, arg, &mux, err);
 *	mux_port(mux, unix_connect("mux.sock", err));     begins; on_state(MUX_SYNC), later on_state(MUX_LIVE)
 *	for (;;) { poll {mux_fd(mux), POLLIN}, listener, ...; mux_work(mux); }
 *	a client connected and sent "tool\n":  write "ok\n" to it; mux_open(mux, "tool", client_fd, err);
 *
 * On the wire a frame is: u8 type, u32 stream, u32 length (big-endian), then length bytes (at most MUX_FRAME).
 *
 *	type    payload
 *	HELLO   16 bytes of magic, u64 own epoch, u64 peer's epoch as seen last (0: none); stream 0
 *	OPEN    the stream's kind, 1-32 letters; host ids are even, guest ids odd
 *	DATA    1 to MUX_FRAME bytes, never more than the credit left
 *	FIN     nothing: no more DATA from the sender
 *	CLOSE   nothing: the stream is dead in both directions, or was refused
 *	WINDOW  u32: that many bytes more credit, sent as soon as a quarter of the credit has been used up
 *
 * Epochs: each mux_port() draws a random epoch and says it in HELLO. Nothing but HELLO is sent or believed until a
 *HELLO has come that names our own epoch, so bytes of an older connection are skipped, and a peer that starts again
 * (HELLO with a new epoch) closes all streams here. While that has not happened HELLO is repeated, behind filler that
 * completes whatever half frame the peer may still be in. A malformed frame closes all streams and starts a new epoch.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "backend/base/err.h"

enum {
	MUX_FRAME = 32 * 1024,	 /* payload limit; small so that streams take turns */
	MUX_CREDIT = 256 * 1024, /* bytes in flight a stream and direction, of streams that the host opens */
	MUX_STREAMS = 1024,	 /* open at once, both sides' together */
	/* What the guest opens: few enough, with so little credit, that a guest which sends and never reads costs the
	 * host 16 MiB and leaves it streams of its own. */
	MUX_GUEST_STREAMS = 256,
	MUX_GUEST_CREDIT = 64 * 1024,
	MUX_KIND = 32, /* longest kind */
};

enum mux_side {
	MUX_HOST,
	MUX_GUEST,
};

enum mux_state {
	MUX_DOWN, /* no port: give one with mux_port() */
	MUX_SYNC, /* there is a port; the peer has not answered our HELLO yet */
	MUX_LIVE, /* streams can be opened */
};

struct mux_ops {
	/* The peer opens a stream. Returns a descriptor that can be read and written (a socket), which the mux then
	 * owns and makes non-blocking, or -errno to refuse. Called inside mux_work(); must not block or call the mux.
	 */
	int (*accept)(void *arg, const char *kind);
	/* The state has changed; may be NULL. Leaving MUX_LIVE, all streams have been closed already. On MUX_DOWN the
	 * mux has closed the port; why says so in words ("the port was closed by the peer"). Called inside mux_work(),
	 * mux_port() and mux_open(); must not call the mux. */
	void (*state)(void *arg, enum mux_state state, const char *why);
};

struct mux;

/* ops is copied. 0 or -errno. */
int mux_new(enum mux_side side, const struct mux_ops *ops, void *arg, struct mux **out, struct err *err);
void mux_free(struct mux *m); /* closes streams and port; NULL is fine; calls nobody back */

/* Gives the port, which the mux then owns and makes non-blocking, and begins a new epoch: streams of the old port are
 * closed. -1 only closes the old one (MUX_DOWN). */
void mux_port(struct mux *m, int fd);
/* The same on the port that is there: once MUX_LIVE again, the peer has taken in every byte from before, and nothing is
 * on its way to it. */
void mux_restart(struct mux *m);
int mux_fd(const struct mux *m); /* readable when mux_work() has something to do; belongs to the mux */
void mux_work(struct mux *m);	 /* all that can be done without blocking */

/* Relays fd over a new stream of that kind until both directions have ended. fd belongs to the mux from here on, also
 * when this fails (it is closed then). -ENOTCONN unless MUX_LIVE, -EMFILE at MUX_STREAMS or, in the guest, at
 * MUX_GUEST_STREAMS, -EINVAL for a bad kind.
 * If the peer refuses, fd is simply closed. */
int mux_open(struct mux *m, const char *kind, int fd, struct err *err);

enum mux_state mux_state(const struct mux *m);
int mux_streams(const struct mux *m);			   /* open streams, of either side */
int mux_guest_streams(const struct mux *m);		   /* those that the guest has opened */
int mux_streams_of(const struct mux *m, const char *kind); /* those of a kind that this side has opened */
