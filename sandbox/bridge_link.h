/* Inside of the bridge: the bytes between its mux and the channel to the other machine. Its main thread. */
#pragma once
#include <stdbool.h>

#include "backend/base/buf.h"
#include "remote.h"

struct bridge_link {
	struct remote *remote;	    /* linked; owned */
	int end;		    /* the other end of the mux's port; owned */
	char in[32768], out[32768]; /* from there, to there */
	size_t in_at, in_n, out_at, out_n;
	enum {
		LINK_FREE,
		LINK_READ,
		LINK_WRITE
	} half;		  /* a call of libssh2 has sent half a packet: it has to be finished
			     by the same call */
	bool again;	  /* more may be there although no descriptor says so */
	struct buf words; /* what it says on standard error */
	int64_t keep_ms;  /* when bytes were last sent */
};

/* Takes the remote over, and returns the mux's port; -errno. */
int bridge_link_open(struct bridge_link *l, struct remote *remote);
void bridge_link_close(struct bridge_link *l);
/* Moves what can be moved now. False: the connection is gone. */
bool bridge_link_work(struct bridge_link *l);
/* What poll() should wait for. */
short bridge_link_socket_events(const struct bridge_link *l);
short bridge_link_end_events(const struct bridge_link *l);
