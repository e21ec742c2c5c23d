/* What the driver of kind ssh and the bridge of one sandbox agree on. The bridge is a process of its own that outlives
 *the daemon: it keeps the ssh connection to the machine where the tools run, makes it anew when it breaks, and listens
 *at RUNTIME/ID.sock: each client's bytes go to the tool daemon there as they are. While there is no connection clients
 * wait.
 *
 * Files of one sandbox, in the folder STATE/sandboxes/ID (0700):
 *	host         as in ssh:HOST, one line
 *	there        we have been let in there: something may be left
 *	made         it has run once
 *	bridge.pid   held by the bridge as long as it lives, with its pid (guest/tools_main.h)
 *	turn         flock of who starts or ends one
 *	socket       path of the socket that the bridge listens on, one line; SIGHUP makes it read this again
 *	net          the gateway's socket of this sandbox, one line (net.h)
 *	bridge.log   its words, last start only
 *	trouble      why there is no connection now, one line; none while there is
 * What is left on a host that could not be reached when its sandbox was destroyed is noted in STATE/ssh-left/ID. */
#pragma once
#define BRIDGE_VERB	 "ssh-bridge" /* the program's hidden verb */
#define BRIDGE_STATUS_FD 3 /* lines "say WORDS", then "ok" once it is connected, or "error CODE WORDS" and it ends */
#define BRIDGE_LEFT	 "ssh-left"
