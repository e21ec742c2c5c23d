/* Inside the mux: what mux.c (port, frames, epochs) and mux_stream.c (streams and their descriptors) share. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/base/buf.h"
#include "mux.h"

enum mux_type { /* 0 with stream 0 and length 0 is padding */
		MUX_PAD = 0,
		MUX_OPEN = 1,
		MUX_DATA = 2,
		MUX_FIN = 3,
		MUX_CLOSE = 4,
		MUX_WINDOW = 5,
		MUX_HELLO = 'H',
};

enum {
	MUX_HEAD = 9,
	MUX_BUCKETS = 256,
	MUX_FULL = 256 * 1024, /* with this much waiting for the port the guest's streams are not read, with twice as
				  much no stream is */
};

struct mux_stream {
	struct mux_stream *next; /* in its bucket */
	uint32_t id;
	int fd;
	uint32_t events;	 /* what epoll watches fd for; 0: fd is not in the set */
	bool bulk;		 /* the guest has opened it */
	char kind[MUX_KIND + 1]; /* "" if the peer has opened it */
	bool eof;		 /* fd gave end of file and FIN was sent */
	bool fin;		 /* FIN came: after `out` the descriptor is shut down for writing */
	bool broken;		 /* fd takes no more: what comes for it is dropped */
	bool closing;		 /* CLOSE came: only `out` is still delivered */
	uint32_t credit;	 /* bytes that may still be sent */
	uint32_t allowed;	 /* bytes that the peer may still send */
	uint32_t delivered;	 /* bytes written to fd since the last WINDOW */
	struct buf out;		 /* received, not yet written to fd, from out_at on */
	size_t out_at;
};

struct mux {
	enum mux_side side;
	struct mux_ops ops;
	void *arg;
	int epoll, timer, port;
	bool port_socket;     /* send() works on it */
	uint32_t port_events; /* as in mux_stream */
	enum mux_state state;
	uint64_t own, seen; /* epochs */
	uint64_t told;	    /* the peer's epoch in our last HELLO */
	int retry_ms;	    /* until HELLO is repeated */
	struct buf in;	    /* from the port, not yet understood */
	struct buf out;	    /* for the port, from out_at on */
	size_t out_at;
	int full; /* streams wait: 1 those of the guest, 2 all */
	struct mux_stream *buckets[MUX_BUCKETS];
	size_t turn; /* the bucket whose streams are watched first when they may be read again */
	int streams, bulk_streams;
	uint32_t next_id;
};

/* mux.c */
void mux_frame(struct mux *m, enum mux_type type, uint32_t id, const void *p, uint32_t n);
ssize_t mux_put(int fd, bool *socket, const void *p, size_t n); /* write() without SIGPIPE; errno as usual */
/* Sets what epoll watches fd for; key comes back with its events. */
void mux_watch(struct mux *m, int fd, uint32_t *now, uint32_t want, uint64_t key);

/* mux_stream.c; all of them may free the stream */
struct mux_stream *mux_find(struct mux *m, uint32_t id);
struct mux_stream *mux_add(struct mux *m, uint32_t id, int fd);
void mux_close_all(struct mux *m);
void mux_interest_all(struct mux *m); /* after m->full has changed */
void mux_stream_event(struct mux *m, struct mux_stream *s, uint32_t events);
/* A frame for the stream; s NULL: the stream has ended here already. false: malformed. */
bool mux_stream_frame(struct mux *m, struct mux_stream *s, enum mux_type type, const char *p, uint32_t n);
