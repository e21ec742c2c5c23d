/* Talking to the keeper of a VM, and the files of its folder. Blocks; worker threads only. Holds nothing between calls.
 */
#include "vm_talk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "driver.h"
#include "keeper.h"
#include "process.h"

#define CANCEL_MS 50
#define REACH_MS  1000

char *vm_folder(const struct paths *paths, int64_t id)
{
	return xasprintf("%s/sandboxes/%lld", paths->state, (long long)id);
}

char *vm_file(const struct paths *paths, int64_t id, const char *name)
{
	CLEAN_FREE char *folder = vm_folder(paths, id);
	return xasprintf("%s/%s", folder, name);
}

bool vm_kvm(const struct paths *paths, int64_t id)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *note = vm_file(paths, id, KEEPER_ACCEL);
	return !file_read(note, &b, 16, NULL) && !strncmp(buf_str(&b), "kvm", 3);
}

bool vm_cancelled(const struct sandbox_spec *spec)
{
	return spec && spec->cancel && atomic_load(spec->cancel);
}

/* Reads until the end of the stream, or of the first line. spec (or NULL) may cancel. */
int vm_receive(int fd, bool to_end, int64_t deadline, const struct sandbox_spec *spec, struct buf *out, struct err *err)
{
	for (;;) {
		int64_t left = deadline - clock_mono_ms();
		if (!to_end && out->n && out->p[out->n - 1] == '\n')
			return 0;
		if (vm_cancelled(spec))
			return err_set(err, ECANCELED, "stopped");
		if (left <= 0)
			return err_set(err, ETIMEDOUT, "the VM's keeper does not answer");
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (poll(&p, 1, left < CANCEL_MS ? (int)left : CANCEL_MS) <= 0)
			continue;
		/* One byte at a time where more may follow that is not ours. */
		char room[4096];
		ssize_t n = read(fd, room, to_end ? sizeof room : 1);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return err_sys(err, errno, "cannot read from the VM's keeper");
		if (!n)
			return to_end ? 0 : err_set(err, ECONNRESET, "the VM's keeper has ended");
		buf_add(out, room, (size_t)n);
	}
}

int vm_note_socket(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_FREE char *socket = sandbox_socket(paths, id);
	CLEAN_FREE char *note = vm_file(paths, id, "socket");
	CLEAN_FREE char *line = xasprintf("%s\n", socket);
	return file_write(note, line, strlen(line), 0600, err);
}

/* Connects to the keeper; a live one whose socket is gone or elsewhere is told to listen where we look. */
static int reach(const struct paths *paths, int64_t id)
{
	CLEAN_FREE char *socket = sandbox_socket(paths, id);
	CLEAN_FREE char *pid_file = vm_file(paths, id, "keeper.pid");
	int fd = unix_connect(socket, NULL);
	pid_t pid = fd < 0 ? process_alive(pid_file) : 0;
	if (!pid || vm_note_socket(paths, id, NULL) || kill(pid, SIGHUP))
		return fd;
	int64_t end = clock_mono_ms() + REACH_MS;
	for (; fd < 0 && process_alive(pid_file) && clock_mono_ms() < end; clock_sleep_ms(10))
		fd = unix_connect(socket, NULL);
	return fd;
}

/* Sends a request and reads the answer's first line. The connection, or -errno: -ENOTCONN if there is no keeper, -EIO
 * with the keeper's words if it refused. */
int vm_request(const struct paths *paths, int64_t id, const char *line, int64_t deadline,
	       const struct sandbox_spec *spec, struct err *err)
{
	CLEAN_BUF struct buf answer = BUF_INIT;
	CLEAN_FD int fd = reach(paths, id);
	if (fd < 0)
		return err_set(err, ENOTCONN, "the VM is not running");
	int rc = fd_write_full(fd, line, strlen(line));
	if (rc)
		return err_set(err, ENOTCONN, "the VM's keeper has ended");
	rc = vm_receive(fd, false, deadline, spec, &answer, err);
	if (rc)
		return rc;
	buf_cut(&answer, answer.n - 1);
	if (!strncmp(buf_str(&answer), "error ", 6))
		return err_set(err, EIO, "%s", buf_str(&answer) + 6);
	return take_fd(&fd);
}

/* A request with an answer of its own after "ok". */
int vm_ask(const struct paths *paths, int64_t id, const char *line, int ms, struct buf *out, struct err *err)
{
	int64_t deadline = clock_mono_ms() + ms;
	CLEAN_FD int fd = vm_request(paths, id, line, deadline, NULL, err);
	return fd < 0 ? fd : vm_receive(fd, true, deadline, NULL, out, err);
}

/* Whether the lock of the disk is free: no keeper and no QEMU has it. Waits up to ms for that. */
bool vm_lock_free(const struct paths *paths, int64_t id, int ms)
{
	CLEAN_FREE char *path = vm_file(paths, id, "lock");
	int64_t end = clock_mono_ms() + ms;
	CLEAN_FD int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return true;
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (clock_mono_ms() >= end)
			return false;
		clock_sleep_ms(20);
	}
	return true; /* closing gives it back */
}
