/* Starts a dropbear for one stream. Runs in PID 1, which has other threads: between fork and exec only
 * async-signal-safe calls. Must never serve by a key that the host does not know: without SSH_HOST_KEY there is no ssh.
 *
 * In a VM the server runs as root, as it has to become `agent`; in a container all is the one user's, and so is it.
 * Root may not log in, and nobody by a password. Forwarding goes one way: to ports in here (-L, -D), never from here to
 * the user's machine (-R). The base environment of jobs is passed on, so that an agent that a person starts reaches its
 * models as one that is a job does. */
#include "ssh.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/fd.h"

static const char *const programs[] = {"/usr/sbin/dropbear", "/usr/local/sbin/dropbear"};

/* -W: the receive window; the default of 24 KiB halves the speed of scp. */
static const char *const argv[] = {"dropbear", "-i", "-e",	   "-m", "-s",	   "-w",
				   "-k",       "-r", SSH_HOST_KEY, "-W", "262144", NULL};

static void become(const char *program, char **env, int socket, int null)
{
	sigset_t none;
	sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	if (dup2(socket, 0) == 0 && dup2(socket, 1) == 1 && dup2(null, 2) == 2)
		execve(program, (char *const *)(uintptr_t)argv, env);
	_exit(127);
}

/* Two ends of a connection over the loopback: of any other socket dropbear makes nonsense in SSH_CONNECTION. Whoever
 * else connects to the port meanwhile is turned away. */
static int pair(int s[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, us, peer;
	socklen_t n = sizeof at, m = sizeof us;
	int on = 1;
	CLEAN_FD int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CLEAN_FD int near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || near < 0 || bind(listener, (struct sockaddr *)&at, n) || listen(listener, 8) ||
	    getsockname(listener, (struct sockaddr *)&at, &n) || connect(near, (struct sockaddr *)&at, n) ||
	    getsockname(near, (struct sockaddr *)&us, &m))
		return -errno;
	for (;;) {
		m = sizeof peer;
		CLEAN_FD int far = accept4(listener, (struct sockaddr *)&peer, &m, SOCK_CLOEXEC);
		if (far < 0)
			return -errno;
		if (peer.sin_port != us.sin_port || peer.sin_addr.s_addr != us.sin_addr.s_addr)
			continue;
		setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		s[0] = take_fd(&near);
		s[1] = take_fd(&far);
		return 0;
	}
}

int ssh_serve(struct jobs *jobs)
{
	const char *program = NULL;
	int s[2] = {-1, -1};
	for (size_t i = 0; i < sizeof programs / sizeof *programs && !program; i++)
		program = access(programs[i], X_OK) ? NULL : programs[i];
	if (!program || access(SSH_HOST_KEY, R_OK))
		return -ENOENT;
	CLEAN_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int rc = null < 0 ? -errno : pair(s);
	if (rc)
		return rc;
	char **env = jobs_environ(jobs);
	pid_t pid = fork();
	if (pid == 0)
		become(program, env, s[1], null);
	rc = pid < 0 ? -errno : s[0];
	for (char **e = env; *e; e++)
		free(*e);
	free(env);
	close(s[1]);
	if (pid < 0)
		close(s[0]);
	else
		jobs_forked(jobs);
	return rc;
}
