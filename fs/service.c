/* The few words that a service manager wants to hear: a datagram of `KEY=value` lines to the socket that it names in
 * NOTIFY_SOCKET. That protocol is public and fixed, so that no library is needed for it. Main thread only; it never
 * waits: a manager whose queue is full is not told. */
#include "service.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/base/buf.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"

void service_init(struct service *s)
{
	const char *name = getenv("NOTIFY_SOCKET");
	*s = (struct service){.socket = name && *name ? xstrdup(name) : NULL};
	unsetenv("NOTIFY_SOCKET");
}

void service_release(struct service *s)
{
	free(s->socket);
	*s = (struct service){0};
}

static int send_to(const char *name, const struct buf *text)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t n = strlen(name);
	if ((name[0] != '/' && name[0] != '@') || n >= sizeof to.sun_path)
		return -EAFNOSUPPORT;
	memcpy(to.sun_path, name, n);
	if (name[0] == '@')
		to.sun_path[0] = 0; /* in the abstract space, where the length is part of the name */
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] == '/'));
	CLEAN_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	return sendto(fd, text->p, text->n, MSG_NOSIGNAL, (struct sockaddr *)&to, len) < 0 ? -errno : 0;
}

static void tell(const struct service *s, const struct buf *text)
{
	int rc = send_to(s->socket, text);
	if (rc)
		log_warn("the service manager at %s was not told: %s", s->socket, strerror(-rc));
}

void service_ready(const struct service *s, const char *dir)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	if (!s->socket)
		return;
	/* In the background we are not the process that was started. */
	buf_addf(&text, "READY=1\nMAINPID=%d\nSTATUS=mounted at ", (int)getpid());
	for (; *dir; dir++)
		buf_addc(&text, *dir == '\n' ? ' ' : *dir);
	tell(s, &text);
}

void service_stopping(const struct service *s)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	if (!s->socket)
		return;
	buf_adds(&text, "STOPPING=1\nSTATUS=finishing");
	tell(s, &text);
}
