/* People's way into a sandbox: the keys of a session's ssh, and a stream to the ssh server inside. Runs in the process
 *of `berthfs connect` and blocks; the daemon is not needed. Must never give a stream before the server's key is pinned,
 * and makes no key itself: ssh-keygen does here, dropbearkey does inside.
 *
 * In the folder STATE/sandboxes/ID/ssh (0700):
 *	id, id.pub    the session's own key pair; the public half goes into the sandbox
 *	known_hosts   the key of the server inside, as it was read over the tool connection
 *	lock          flock: one at a time prepares */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "driver.h"
#include "guest/ssh.h"

#define READY	   SSH_FOLDER "/ready" /* two lines: our public key, that of the server */
#define SCRIPT_MS  60000	       /* an emulated machine on a busy host */
#define NO_SERVER  3		       /* exit code of the script */
#define OUTPUT_MAX 8192

/* $1 session, $2 our public key. Run as root, or where there is only one user as that. A disk that was copied from
 * another session's brings its keys along: both are made anew. The server gives terminals to the group tty, which has
 * to be one that there is in a container. The ready file is written last and is gone after a boot. */
static const char script[] =
	"set -e; umask 022; PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin\n"
	"command -v dropbear >/dev/null && command -v dropbearkey >/dev/null || exit 3\n"
	"store=/var/lib/berthfs/ssh; run=" SSH_FOLDER "; host=$store/host-$1\n"
	"mkdir -p $store $run; chmod 700 $store\n"
	"if [ ! -s $host ]; then\n"
	"	rm -f $store/host-*\n"
	"	dropbearkey -t ed25519 -f $store/new >/dev/null; mv $store/new $host\n"
	"fi\n"
	"ln -sfn $host " SSH_HOST_KEY "\n"
	"if [ $(id -u) != 0 ] && ! grep -q \"^tty:x:$(id -g):\" /etc/group; then\n"
	"	{ grep -v '^tty:' /etc/group; echo \"tty:x:$(id -g):\"; } >$run/group; cat $run/group >/etc/group\n"
	"fi\n"
	"home=$(getent passwd agent | cut -d: -f6)\n"
	"mkdir -p $home/.ssh; touch $home/.ssh/authorized_keys\n"
	"{ grep -v ' berthfs$' $home/.ssh/authorized_keys || :; printf '%s\\n' \"$2\"; } >$home/.ssh/new\n"
	"mv $home/.ssh/new $home/.ssh/authorized_keys\n"
	"chmod 700 $home/.ssh; chmod 600 $home/.ssh/authorized_keys; chown -R agent:agent $home/.ssh\n"
	"{ printf '%s\\n' \"$2\"; dropbearkey -y -f $host | grep '^ssh-'; } >$run/new\n"
	"mv $run/new " READY "\n";

static char *folder_of(const struct paths *paths, int64_t id)
{
	return xasprintf("%s/sandboxes/%" PRId64 "/ssh", paths->state, id);
}

/* ---- our key ---- */

static int make_key(const char *folder, struct err *err)
{
	CLEAN_FREE char *tmp = xasprintf("%s/new", folder);
	CLEAN_FREE char *tmp_pub = xasprintf("%s/new.pub", folder);
	CLEAN_FREE char *key = xasprintf("%s/id", folder);
	CLEAN_FREE char *pub = xasprintf("%s/id.pub", folder);
	CLEAN_BUF struct buf words = BUF_INIT;
	const char *argv[] = {"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "berthfs", "-f", tmp, NULL};
	unlink(tmp);
	unlink(tmp_pub);
	int rc =
		child_run(&(struct child){.argv = argv, .out = &words, .errout = &words, .timeout_ms = SCRIPT_MS}, err);
	if (rc == -ENOENT)
		return err_set(err, ENOENT, "there is no ssh-keygen here: install the package openssh-client");
	if (rc > 0)
		rc = err_set(err, EIO, "cannot make a key for this session: %s", buf_str(&words));
	/* the private half is the one that counts as made */
	if (!rc && (rename(tmp_pub, pub) || rename(tmp, key)))
		rc = err_sys(err, errno, "cannot make %s", key);
	return rc;
}

/* The public key as one line without its end. */
static int our_key(const char *folder, struct buf *out, struct err *err)
{
	CLEAN_FREE char *key = xasprintf("%s/id", folder);
	CLEAN_FREE char *pub = xasprintf("%s/id.pub", folder);
	int rc = file_exists(key) && file_exists(pub) ? 0 : make_key(folder, err);
	rc = rc ? rc : file_read(pub, out, OUTPUT_MAX, err);
	if (!rc)
		buf_cut(out, strcspn(buf_str(out), "\n"));
	return rc;
}

/* ---- the server's key ---- */

/* ready is READY's text. The server's key (`TYPE BASE64`, in place), or NULL if it is not for ours. */
static const char *server_key(struct buf *ready, const char *ours)
{
	size_t n = strlen(ours);
	char *text = ready->p;
	if (!ready->n || strncmp(buf_str(ready), ours, n) != 0 || text[n] != '\n')
		return NULL;
	char *key = text + n + 1, *base = strchr(key, ' ');
	if (!base || strncmp(key, "ssh-ed25519 ", 12) != 0)
		return NULL;
	base++;
	base[strspn(base, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")] = 0;
	return *base ? key : NULL;
}

/* Leaves READY behind. */
static int run_script(struct env *env, const struct sandbox_spec *spec, const char *ours, struct err *err)
{
	CLEAN_FREE char *id = xasprintf("%" PRId64, spec->id);
	CLEAN_FREE char *job = xasprintf("ssh.%d", (int)getpid());
	CLEAN_BUF struct buf words = BUF_INIT;
	const char *argv[] = {"sudo", "-n", "/bin/sh", "-c", script, "ssh", id, ours, NULL};
	bool root = !sandbox_one_user(spec->kind);
	struct env_exec exec = {.job = job, .argv = argv + (root ? 0 : 2), .cwd = "/", .timeout_ms = SCRIPT_MS};
	int rc = env_run(env, &exec, spec->cancel, OUTPUT_MAX, &words, err);
	if (rc == NO_SERVER)
		return err_set(
			err, ENOENT,
			"the sandbox has no ssh server (package dropbear-bin): its image is older than that, and "
			"new sessions have it%s",
			root ? "; here `apt-get install dropbear-bin` does where the network allows it" : "");
	if (rc <= 0)
		return rc;
	CLEAN_BUF struct buf clean = BUF_INIT;
	utf8_clean(&clean, buf_str(&words), words.n);
	return err_set(err, EIO, "the sandbox cannot be made ready for ssh: %.400s",
		       clean.n ? text_trim(clean.p) : "it does not say why");
}

/* Puts our key into the sandbox and the server's into known_hosts. */
static int exchange(const struct sandbox_spec *spec, const char *folder, struct err *err)
{
	CLEAN_BUF struct buf ours = BUF_INIT;
	CLEAN_BUF struct buf ready = BUF_INIT;
	CLEAN_FREE char *known = xasprintf("%s/known_hosts", folder);
	struct env *env = NULL;
	int rc = our_key(folder, &ours, err);
	rc = rc ? rc : env_open(spec->paths, spec->kind, spec->id, spec->cancel, &env, err);
	if (rc)
		return rc;
	const char *key = env_read(env, READY, 0, OUTPUT_MAX, &ready, NULL) ? NULL : server_key(&ready, buf_str(&ours));
	if (!key) {
		buf_reset(&ready);
		rc = run_script(env, spec, buf_str(&ours), err);
		rc = rc ? rc : env_read(env, READY, 0, OUTPUT_MAX, &ready, err);
		key = rc ? NULL : server_key(&ready, buf_str(&ours));
		if (!rc && !key)
			rc = err_set(err, EIO, "the sandbox does not tell its ssh server's key");
	}
	env_close(env);
	if (rc)
		return rc;
	/* the file belongs to this session alone, so any name that its user calls it by is right */
	CLEAN_FREE char *line = xasprintf("* %s\n", key);
	CLEAN_BUF struct buf old = BUF_INIT;
	if (!file_read(known, &old, OUTPUT_MAX, NULL) && !strcmp(buf_str(&old), line))
		return 0;
	return file_write(known, line, strlen(line), 0600, err);
}

/* ---- */

int sandbox_keys(const struct paths *paths, int64_t id, char **out, struct err *err)
{
	CLEAN_FREE char *folder = folder_of(paths, id);
	CLEAN_FREE char *path = xasprintf("%s/lock", folder);
	CLEAN_BUF struct buf ours = BUF_INIT;
	int rc = dir_make(folder, 0700, err);
	if (rc)
		return rc;
	CLEAN_FD int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, LOCK_EX))
		return err_sys(err, errno, "cannot lock %s", path);
	rc = our_key(folder, &ours, err);
	if (!rc)
		*out = take(folder);
	return rc;
}

int sandbox_enter(const struct sandbox_spec *spec, struct err *err)
{
	CLEAN_FREE char *folder = folder_of(spec->paths, spec->id);
	CLEAN_FREE char *path = xasprintf("%s/lock", folder);
	int rc = sandbox_enter_possible(spec->kind, err);
	if (rc)
		return rc;
	if (sandbox_state(spec->paths, spec->kind, spec->id) == SANDBOX_NONE)
		return err_set(err, ENOTCONN,
			       "its sandbox has not been made yet: `status` of the session says how far it is");
	rc = sandbox_up(spec, err);
	rc = rc ? rc : dir_make(folder, 0700, err);
	if (rc)
		return rc;
	CLEAN_FD int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, LOCK_EX))
		return err_sys(err, errno, "cannot lock %s", path);
	rc = exchange(spec, folder, err);
	return rc ? rc : sandbox_ssh(spec->paths, spec->kind, spec->id, err);
}
