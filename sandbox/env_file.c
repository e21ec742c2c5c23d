/* Files inside a sandbox, seen from the host: requests of at most WIRE_CHUNK bytes, so that a large file does not keep
 * other streams waiting. The caller's thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "env_call.h"

static struct wire_out *path_request(struct env *env, enum wire_op op, const char *path)
{
	struct wire_out *o = env_request(env, op);
	wire_add_text(o, WIRE_PATH, path);
	return o;
}

void env_guard(struct env *env, const char *patterns)
{
	free(env->guard);
	env->guard = xstrdup(patterns);
}

int env_stat(struct env *env, const char *path, struct env_stat *out, struct err *err)
{
	struct wire_msg m;
	path_request(env, WIRE_STAT, path);
	int rc = env_call(env, NULL, 0, &m, err);
	if (rc)
		return rc;
	*out = (struct env_stat){.size = wire_num(&m, WIRE_SIZE, 0),
				 .mode = (uint32_t)wire_num(&m, WIRE_MODE, 0),
				 .mtime_ms = (int64_t)wire_num(&m, WIRE_MTIME, 0),
				 .real = wire_text(&m, WIRE_PATH)};
	return out->real ? 0 : err_set(err, EPROTO, "the tool daemon's answer has no path");
}

/* One chunk. m holds it until the next request. */
static int read_chunk(struct env *env, const char *path, uint64_t offset, size_t want, struct wire_msg *m,
		      struct err *err)
{
	struct wire_out *o = path_request(env, WIRE_READ, path);
	wire_add_num(o, WIRE_OFFSET, offset);
	wire_add_num(o, WIRE_MAXIMUM, want);
	wire_add_text(o, WIRE_GUARD, env->guard);
	int rc = env_call(env, NULL, 0, m, err);
	if (!rc && m->payload_n > want)
		rc = err_set(err, EPROTO, "the tool daemon sent more than was asked for");
	return rc;
}

int env_read(struct env *env, const char *path, uint64_t offset, size_t max, struct buf *out, struct err *err)
{
	size_t done = 0;
	do {
		struct wire_msg m;
		size_t want = max - done < WIRE_CHUNK ? max - done : WIRE_CHUNK;
		int rc = read_chunk(env, path, offset + done, want, &m, err);
		if (rc)
			return rc;
		buf_add(out, m.payload, m.payload_n);
		done += m.payload_n;
		if (m.payload_n < want)
			break;
	} while (done < max);
	return 0;
}

static void flagged(struct env *env, enum wire_op op, const char *path, uint64_t flags)
{
	struct wire_out *o = path_request(env, op, path);
	wire_add_num(o, WIRE_FLAGS, flags);
	wire_add_text(o, WIRE_GUARD, env->guard);
}

static int append(struct env *env, const char *path, const char *p, size_t n, uint64_t flags, struct err *err)
{
	do { /* at least once: appending nothing still makes the file */
		size_t part = n < WIRE_CHUNK ? n : WIRE_CHUNK;
		flagged(env, WIRE_APPEND, path, flags);
		int rc = env_call(env, p, part, NULL, err);
		if (rc)
			return rc;
		p += part;
		n -= part;
	} while (n);
	return 0;
}

static int put_begin(struct env *env, const char *path, uint64_t flags, struct err *err)
{
	flagged(env, WIRE_PUT, path, flags);
	return env_call(env, NULL, 0, NULL, err);
}

static int put_data(struct env *env, const char *p, size_t n, struct err *err)
{
	env_request(env, WIRE_PUT_DATA);
	return env_call(env, p, n, NULL, err);
}

static int put_end(struct env *env, struct err *err)
{
	env_request(env, WIRE_PUT_END);
	return env_call(env, NULL, 0, NULL, err);
}

int env_write(struct env *env, const char *path, const void *data, size_t n, int flags, struct err *err)
{
	uint64_t wire = flags & ENV_WRITE_PARENTS ? WIRE_PARENTS : 0;
	if (flags & ENV_WRITE_APPEND)
		return append(env, path, data, n, wire, err);
	int rc = put_begin(env, path, wire, err);
	for (const char *p = data; !rc && n;) {
		size_t part = n < WIRE_CHUNK ? n : WIRE_CHUNK;
		rc = put_data(env, p, part, err);
		p += part;
		n -= part;
	}
	return rc ? rc : put_end(env, err);
}

int env_remove(struct env *env, const char *path, struct err *err)
{
	path_request(env, WIRE_REMOVE, path);
	return env_call(env, NULL, 0, NULL, err);
}

int env_send_file(struct env *env, const char *host_path, const char *path, struct err *err)
{
	CLEAN_FD int fd = open(host_path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "cannot open %s", host_path);
	CLEAN_FREE char *chunk = xmalloc(WIRE_CHUNK);
	int rc = put_begin(env, path, WIRE_PARENTS, err);
	while (!rc) {
		ssize_t n = read(fd, chunk, WIRE_CHUNK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			/* what was begun inside is forgotten with the next PUT or the connection */
			return err_sys(err, errno, "cannot read %s", host_path);
		if (n == 0)
			return put_end(env, err);
		rc = put_data(env, chunk, (size_t)n, err);
	}
	return rc;
}

/* The whole file into fd. A file that is written to meanwhile would come out as a mixture. */
static int receive(struct env *env, const char *path, uint64_t max, int fd, struct err *err)
{
	uint64_t done = 0, first = 0;
	for (;;) {
		struct wire_msg m;
		int rc = read_chunk(env, path, done, WIRE_CHUNK, &m, err);
		if (rc)
			return rc;
		uint64_t generation = wire_num(&m, WIRE_GENERATION, 0);
		if (done == 0)
			first = generation;
		if (generation != first)
			return err_set(err, EAGAIN, "%s changed while it was copied: try again", path);
		if (done + m.payload_n > max)
			return err_set(err, EFBIG, "%s is larger than the sandbox said", path);
		if ((rc = fd_write_full(fd, m.payload, m.payload_n)))
			return err_sys(err, -rc, "cannot write the copy of %s", path);
		done += m.payload_n;
		if (m.payload_n < WIRE_CHUNK)
			return 0;
	}
}

int env_receive_file(struct env *env, const char *path, uint64_t max, const char *host_path, struct err *err)
{
	CLEAN_FREE char *tmp = xasprintf("%s.tmp-%d", host_path, (int)gettid());
	CLEAN_FD int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(err, errno, "cannot write %s", tmp);
	int rc = receive(env, path, max, fd, err);
	if (!rc && (fsync(fd) || rename(tmp, host_path)))
		rc = err_sys(err, errno, "cannot write %s", host_path);
	if (rc)
		unlink(tmp);
	return rc;
}
