/* The gateway, as the rest of berthfs sees it: a process of its own that holds the keys. All calls block, at most for
 * their deadline, and may be made from any thread; each speaks to the process anew, so that a gateway that died and
 * came back is simply spoken to again. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/base/paths.h"

/* A request's header: which of the policy's providers of that model is asked; without it the first one. */
#define GATE_PROVIDER "berthfs-provider"

struct gateway_options {
	const char *listen; /* ADDRESS:PORT for the daemon's own tokens; or NULL */
	bool sync_each;	    /* ledger.sync = each */
	int log_fd;	    /* where its words go; 0: where ours go now */
};

/* Finds the running gateway of this instance, or starts one, and waits until it serves (10 s). Of another version: it
 * is told to end, and one is started. -EBUSY, -ETIMEDOUT, or what its start failed with, in words. */
int gateway_start(const struct paths *paths, const struct gateway_options *options, struct err *err);
/* Ends it: requests are cut, the ledger gets a last checkpoint. 0 also if none runs. */
int gateway_stop(const struct paths *paths, struct err *err);
bool gateway_running(const struct paths *paths);
/* What a running one goes on with. -EINVAL, -EADDRINUSE...: it does not listen then. */
int gateway_options_set(const struct paths *paths, const struct gateway_options *options, struct err *err);
/* The daemon's open line: a descriptor that becomes readable when something has changed, and ends with the gateway.
 * To be told again, read all that is there and write a byte, before looking at what has changed. Once such a line has
 * ended and no other is open, a gateway ends by itself when no sandbox lives (10 s). */
int gateway_attach(const struct paths *paths, struct err *err);
/* Where requests go: the daemon's socket. */
char *gateway_socket(const struct paths *paths);

/* A token of a session: kind "engine" (taken on the daemon's socket) or "sandbox" (on socket, which the gateway makes,
 * 0600). network: none, registries, internet. token gets at most cap bytes (72 are enough). It is in the ledger, and
 * survives a restart of the gateway, before this returns. Minting again for the same session and kind revokes the older
 * one. */
int gateway_token_mint(const struct paths *paths, const char *kind, const char *session, const char *project,
		       const char *network, const char *socket, char *token, size_t cap, struct err *err);
/* kind "engine", "sandbox" or "all". Its streams are cut before this returns. 0 also if there was none. */
int gateway_token_revoke(const struct paths *paths, const char *kind, const char *session, struct err *err);
/* path: a unix socket that takes connections as long as the session's sandbox runs. Told anew to each gateway. */
int gateway_life_set(const struct paths *paths, const char *session, const char *path, struct err *err);
int gateway_network_set(const struct paths *paths, const char *session, const char *network, struct err *err);

/* Hands a key over; n 0 removes it. The bytes are wiped from everything but the caller's buffer. */
int gateway_key_set(const struct paths *paths, const char *provider, const void *bytes, size_t n, struct err *err);
bool gateway_key_name(const char *name);					   /* may a key have that name? */
int gateway_key_list(const struct paths *paths, struct buf *out, struct err *err); /* "NAME sha256:..." lines */

struct gateway_pull {
	const char *host, *project; /* "github.com", "ann/app" */
	const char *head, *base;    /* branches there: from, to */
	const char *title, *body;
};
/* Opens a pull request at the forge of that host, or finds the one that is open; url: malloc'd. socket and token are
 * those of the session's engine. -ENOENT: the gateway knows no forge or has no key for that host, words say what to
 * do; -EACCES: the token is not valid; -EAGAIN: the gateway is not there, or ended in the middle (asking again opens no
 * second one); -ECANCELED once *cancel is true; -EIO with the forge's words. 100 s at most. */
int gateway_pull_request(const char *socket, const char *token, const struct gateway_pull *p, char **url,
			 const atomic_bool *cancel, struct err *err);

/* What a model has used by its own word, where its requests pass as bytes alone (a client with a login of its own):
 * into the ledger, and against the session's limit of tokens. */
int gateway_usage_report(const struct paths *paths, const char *session, const char *model, int64_t in, int64_t out,
			 int64_t cached, struct err *err);

int gateway_policy_get(const struct paths *paths, struct buf *out, struct err *err);
/* -EINVAL: words say which line and why; the old policy stays. */
int gateway_policy_set(const struct paths *paths, const char *text, size_t n, struct err *err);
int gateway_policy_check_line(const char *line, size_t n, struct err *err); /* without a gateway */

bool gateway_near(const char *url); /* is its host this machine or its LAN, by the address as it is written? */

int gateway_status(const struct paths *paths, struct buf *out, struct err *err); /* `key value` lines */
int gateway_head(const struct paths *paths, struct buf *out, struct err *err); /* of the ledger, with its checkpoint */
int gateway_tokens(const struct paths *paths, struct buf *out,
		   struct err *err); /* session, kind, first 8 hex, age in s, tokens, nanodollars, network; tabs */
/* Bytes of the ledger's lines from offset on; size gets the number of all. */
int gateway_ledger_read(const struct paths *paths, uint64_t offset, size_t max, struct buf *out, uint64_t *size,
			struct err *err);
/* Requests of the session that run now, and milliseconds since its last one ended or began (-1: none yet). For
 * hibernation. */
int gateway_activity(const struct paths *paths, const char *session, int *running, int64_t *idle_ms, struct err *err);

/* `berthfs doctor`: one line a thing that the gateway promises, tried on this machine with a scratch instance that is
 * removed again; some seconds. */
void gateway_doctor(const struct paths *paths, void (*line)(void *arg, bool ok, const char *name, const char *words),
		    void *arg);

/* main() of the process, and of `berthfs ledger verify`; argv[0] is the verb. Exit codes as in sysexits. */
int gateway_main(int argc, char **argv);
int gateway_ledger_main(const struct paths *paths, int argc, char **argv);
