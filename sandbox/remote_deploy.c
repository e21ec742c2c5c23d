/* The guest program on the other machine: put there by SFTP under a name that is its SHA-256, and read back before it
 * is started, each time. Blocks; one thread a connection. Must never start what it has not just verified. */
#include <errno.h>
#include <inttypes.h>
#include <libssh2_sftp.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "guest/remote.h"
#include "guest_image.h"
#include "remote_parts.h"

#define PATH_ROOM 4096
#define PIECE	  30000 /* libssh2 sends no more in one request */

static char *hash_hex(const void *p, size_t n)
{
	unsigned char sum[EVP_MAX_MD_SIZE];
	CLEAN_BUF struct buf out = BUF_INIT;
	unsigned len = 0;
	if (!EVP_Digest(p, n, sum, &len, EVP_sha256(), NULL))
		abort();
	for (unsigned i = 0; i < len; i++)
		buf_addf(&out, "%02x", sum[i]);
	return xstrdup(buf_str(&out));
}

/* Tells this instance from others that use the same account there: another machine's, another state folder's. */
static char *instance_name(const struct paths *paths, int64_t id)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	file_read("/etc/machine-id", &b, 256, NULL);
	buf_addf(&b, "%d %s", (int)geteuid(), paths->state);
	CLEAN_FREE char *hash = hash_hex(b.p, b.n);
	return xasprintf("%.12s-%" PRId64, hash, id);
}

static int make_folder(struct remote *r, LIBSSH2_SFTP *sftp, const char *path, struct err *err)
{
	LIBSSH2_SFTP_ATTRIBUTES a = {0};
	if (libssh2_sftp_mkdir(sftp, path, 0700) && libssh2_sftp_lstat(sftp, path, &a))
		return remote_fail(r, err, EIO, "cannot make the folder %s on %s", path, r->conf.host);
	if (a.flags & LIBSSH2_SFTP_ATTR_PERMISSIONS && !LIBSSH2_SFTP_S_ISDIR(a.permissions))
		return err_set(err, ENOTDIR, "%s on %s is no folder", path, r->conf.host);
	return 0;
}

/* 1: it is there and whole; 0: it is not; -errno. */
static int verify(struct remote *r, LIBSSH2_SFTP *sftp, struct err *err)
{
	LIBSSH2_SFTP_HANDLE *h = libssh2_sftp_open(sftp, r->program, LIBSSH2_FXF_READ, 0);
	if (!h && libssh2_session_last_errno(r->session) != LIBSSH2_ERROR_SFTP_PROTOCOL)
		return remote_fail(r, err, EIO, "cannot read %s on %s", r->program, r->conf.host);
	if (!h)
		return 0;
	CLEAN_BUF struct buf b = BUF_INIT;
	char room[PIECE];
	ssize_t n;
	while ((n = libssh2_sftp_read(h, room, sizeof room)) > 0 && b.n <= guest_image_size)
		buf_add(&b, room, (size_t)n);
	libssh2_sftp_close(h);
	if (n < 0)
		return remote_fail(r, err, EIO, "cannot read %s on %s", r->program, r->conf.host);
	CLEAN_FREE char *got = hash_hex(b.p, b.n);
	CLEAN_FREE char *wanted = hash_hex(guest_image, guest_image_size);
	return !strcmp(got, wanted);
}

static int upload(struct remote *r, LIBSSH2_SFTP *sftp, struct err *err)
{
	/* the sandbox's own name: what an upload that was cut has left is found again, by the next one or by `end` */
	CLEAN_FREE char *tmp = xasprintf("%s.%s", r->program, strrchr(r->folder, '/') + 1);
	libssh2_sftp_unlink(sftp, tmp);
	LIBSSH2_SFTP_HANDLE *h =
		libssh2_sftp_open(sftp, tmp, LIBSSH2_FXF_WRITE | LIBSSH2_FXF_CREAT | LIBSSH2_FXF_EXCL, 0700);
	if (!h)
		return remote_fail(r, err, EIO, "cannot write %s on %s", tmp, r->conf.host);
	ssize_t n = 0;
	for (size_t at = 0; at < guest_image_size && n >= 0; at += n > 0 ? (size_t)n : 0) {
		size_t left = guest_image_size - at;
		n = libssh2_sftp_write(h, (const char *)guest_image + at, left < PIECE ? left : PIECE);
	}
	bool closed = !libssh2_sftp_close(h);
	if (n >= 0 && closed) {
		libssh2_sftp_unlink(sftp, r->program); /* a plain rename does not replace */
		if (!libssh2_sftp_rename(sftp, tmp, r->program))
			return 0;
	}
	int rc = remote_fail(r, err, EIO, "cannot write %s on %s", r->program, r->conf.host);
	libssh2_sftp_unlink(sftp, tmp);
	return rc;
}

static int deploy(struct remote *r, const struct remote_spec *spec, LIBSSH2_SFTP *sftp, struct err *err)
{
	char home[PATH_ROOM];
	CLEAN_FREE char *name = instance_name(spec->paths, spec->id);
	CLEAN_FREE char *hash = hash_hex(guest_image, guest_image_size);
	int n = libssh2_sftp_realpath(sftp, ".", home, sizeof home - 1);
	if (n <= 0 || home[0] != '/')
		return remote_fail(r, err, EIO, "%s does not tell where its home folder is", r->conf.host);
	home[n] = 0;
	CLEAN_FREE char *top = xasprintf("%s/" REMOTE_FOLDER, n == 1 ? "" : home);
	CLEAN_FREE char *bin = xasprintf("%s/bin", top);
	r->folder = xasprintf("%s/%s", top, name);
	r->program = xasprintf("%s/%s", bin, hash);
	int rc = make_folder(r, sftp, top, err);
	rc = rc ? rc : make_folder(r, sftp, bin, err);
	rc = rc ? rc : make_folder(r, sftp, r->folder, err);
	rc = rc ? rc : verify(r, sftp, err);
	if (rc)
		return rc < 0 ? rc : 0;
	if (spec->progress)
		spec->progress(spec->arg, "putting the tool daemon there");
	rc = upload(r, sftp, err);
	rc = rc ? rc : verify(r, sftp, err);
	return rc == 0	? err_set(err, EBADMSG,
				  "the tool daemon on %s is not what was put there (%s): something changes it; it is "
				   "not "
				   "started",
				  r->conf.host, r->program)
	       : rc < 0 ? rc
			: 0;
}

int remote_deploy(struct remote *r, const struct remote_spec *spec, struct err *err)
{
	LIBSSH2_SFTP *sftp = libssh2_sftp_init(r->session);
	if (!sftp)
		return remote_fail(r, err, EOPNOTSUPP, "%s has no sftp, which the tool daemon comes by", r->conf.host);
	int rc = deploy(r, spec, sftp, err);
	libssh2_sftp_shutdown(sftp);
	return rc;
}
