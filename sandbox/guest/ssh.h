/* Ssh into a VM or a container: a stream of kind `ssh` gets a dropbear of its own. The host's part is sandbox/enter.c,
 * which also sees to the keys before it opens such a stream. Any thread. */
#pragma once
#include "job.h"

/* What sandbox/enter.c makes inside; the folder is memory, so that a new boot asks for keys again. */
#define SSH_FOLDER   "/run/berthfs/ssh"
#define SSH_HOST_KEY SSH_FOLDER "/host" /* a link to the private host key */

/* Starts a server. Our end of its stream (a socket), or -errno: -ENOENT without dropbear or a host key. */
int ssh_serve(struct jobs *jobs);
