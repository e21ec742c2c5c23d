/* Whom we talk to, and who we are: the host's key against known_hosts, then keys of the agent and of files. Blocks; one
 * thread a connection. Must never go on with a host whose key is not known, and asks nobody anything. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "remote_parts.h"

#define TRIES_MAX 5 /* of sshd's usual 6: it hangs up after that */

/* ---- the host ---- */

static char *fingerprint(struct remote *r)
{
	const char *hash = libssh2_hostkey_hash(r->session, LIBSSH2_HOSTKEY_HASH_SHA256);
	CLEAN_FREE char *text = hash ? remote_base64(hash, 32) : xstrdup("?");
	text[strcspn(text, "=")] = 0;
	return xasprintf("SHA256:%s", text);
}

int remote_trust(struct remote *r, const struct buf *known, struct err *err)
{
	static const char *const types[] = {
		[LIBSSH2_HOSTKEY_TYPE_RSA] = "ssh-rsa",
		[LIBSSH2_HOSTKEY_TYPE_DSS] = "ssh-dss",
		[LIBSSH2_HOSTKEY_TYPE_ECDSA_256] = "ecdsa-sha2-nistp256",
		[LIBSSH2_HOSTKEY_TYPE_ECDSA_384] = "ecdsa-sha2-nistp384",
		[LIBSSH2_HOSTKEY_TYPE_ECDSA_521] = "ecdsa-sha2-nistp521",
		[LIBSSH2_HOSTKEY_TYPE_ED25519] = "ssh-ed25519",
	};
	size_t n = 0;
	int type = 0;
	const char *key = libssh2_session_hostkey(r->session, &n, &type);
	if (!key || type < 1 || type >= (int)ARRAY_LEN(types))
		return err_set(err, EACCES, "%s shows no key that can be checked", r->conf.host);
	CLEAN_FREE char *text = remote_base64(key, n);
	CLEAN_FREE char *print = fingerprint(r);
	switch (remote_judge(known, types[type], text)) {
	case REMOTE_TRUSTED: return 0;
	case REMOTE_REVOKED:
		return err_set(err, EACCES, "the key of %s, %s, is revoked in known_hosts", r->conf.host, print);
	case REMOTE_CHANGED:
		return err_set(err, EACCES,
			       "the %s key of %s is not the one in known_hosts: it is %s now. Somebody may stand in "
			       "between. If "
			       "the host was made anew: `ssh-keygen -R '%s'`, then `ssh %s` once and compare",
			       types[type], r->conf.host, print, r->conf.known_as, r->conf.host);
	default:
		return err_set(err, EACCES,
			       "the key of %s is not in known_hosts: its %s key is %s. Run `ssh %s` once, compare, and "
			       "say yes",
			       r->conf.host, types[type], print, r->conf.host);
	}
}

/* ---- us ---- */

struct login {
	struct remote *r;
	struct buf tried;   /* public keys, base64, a line each */
	struct buf refused; /* words */
	int tries;
};

static bool usable(const char *type)
{
	return !strcmp(type, "ssh-ed25519") || !strncmp(type, "ecdsa-sha2-nistp", 16);
}

static void cannot(struct login *l, const char *what, const char *why)
{
	buf_addf(&l->refused, "%s%s (%s)", l->refused.n ? ", " : "", what, why);
}

static const char *why_not(const char *type)
{
	return !strcmp(type, "ssh-rsa")	  ? "an RSA key, which libssh2 cannot use with today's servers"
	       : !strncmp(type, "sk-", 3) ? "a key on a token, which libssh2 cannot use"
					  : "a key of a type that libssh2 cannot use";
}

/* A public key's blob begins with its type. */
static void type_of(const unsigned char *blob, size_t n, char out[64])
{
	size_t len = n > 4 ? (size_t)blob[2] << 8 | blob[3] : 0;
	*out = 0;
	if (len && len < 64 && !blob[0] && !blob[1] && len + 4 <= n) {
		memcpy(out, blob + 4, len);
		out[len] = 0;
	}
}

/* `TYPE BASE64 ...` of a private key's file; -ENOKEY: it has a passphrase or is no key. */
static int public_of(const char *file, char type[64], char **base64)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	const char *argv[] = {"ssh-keygen", "-y", "-P", "", "-f", file, NULL};
	int rc = child_run(&(struct child){.argv = argv, .out = &text, .max = 65536, .timeout_ms = REMOTE_CALL_MS},
			   NULL);
	char *rest = text.p;
	char *word = rc || !rest ? NULL : strsep(&rest, " \n"), *key = rest ? strsep(&rest, " \n") : NULL;
	if (!key || !*key || strlen(word) > 63)
		return -ENOKEY;
	memcpy(type, word, strlen(word) + 1);
	*base64 = xstrdup(key);
	return 0;
}

/* Whether the agent's key is one of the files that alone may be used. */
static bool is_named(const struct login *l, const char *base64)
{
	for (char *const *file = l->r->conf.keys; *file; file++) {
		CLEAN_BUF struct buf text = BUF_INIT;
		CLEAN_FREE char *pub = xasprintf("%s.pub", *file);
		if (!file_read(pub, &text, 65536, NULL) && strstr(buf_str(&text), base64))
			return true;
	}
	return false;
}

static bool try_identity(struct login *l, LIBSSH2_AGENT *agent, struct libssh2_agent_publickey *id)
{
	char type[64];
	CLEAN_FREE char *base64 = remote_base64(id->blob, id->blob_len);
	type_of(id->blob, id->blob_len, type);
	if (l->r->conf.identities_only && !is_named(l, base64))
		return false;
	if (!usable(type)) {
		cannot(l, id->comment && *id->comment ? id->comment : "a key of the agent", why_not(type));
		return false;
	}
	if (l->tries++ >= TRIES_MAX)
		return false;
	buf_addf(&l->tried, "%s\n", base64);
	if (!libssh2_agent_userauth(agent, l->r->conf.user, id))
		return true;
	cannot(l, id->comment && *id->comment ? id->comment : "a key of the agent", "not accepted");
	return false;
}

static bool by_agent(struct login *l)
{
	struct libssh2_agent_publickey *id = NULL;
	bool in = false;
	LIBSSH2_AGENT *agent = l->r->conf.agent ? libssh2_agent_init(l->r->session) : NULL;
	if (!agent)
		return false;
	libssh2_agent_set_identity_path(agent, l->r->conf.agent);
	if (!libssh2_agent_connect(agent) && !libssh2_agent_list_identities(agent))
		while (!in && !libssh2_agent_get_identity(agent, &id, id))
			in = try_identity(l, agent, id);
	libssh2_agent_disconnect(agent);
	libssh2_agent_free(agent);
	return in;
}

static bool by_file(struct login *l, const char *file)
{
	char type[64];
	CLEAN_FREE char *base64 = NULL;
	if (access(file, R_OK))
		return false;
	if (public_of(file, type, &base64)) {
		cannot(l, file, "it has a passphrase: `ssh-add` it");
		return false;
	}
	if (!usable(type)) {
		cannot(l, file, why_not(type));
		return false;
	}
	if (strstr(buf_str(&l->tried), base64) || l->tries++ >= TRIES_MAX)
		return false;
	if (!libssh2_userauth_publickey_fromfile(l->r->session, l->r->conf.user, NULL, file, ""))
		return true;
	cannot(l, file, "not accepted");
	return false;
}

int remote_login(struct remote *r, struct err *err)
{
	struct login l = {.r = r};
	const char *ways = libssh2_userauth_list(r->session, r->conf.user, (unsigned)strlen(r->conf.user));
	if (!ways && libssh2_userauth_authenticated(r->session))
		return 0;
	if (!ways)
		return remote_fail(r, err, EHOSTUNREACH, "%s does not let anybody log in", r->conf.host);
	if (!strstr(ways, "publickey"))
		return err_set(err, EACCES,
			       "%s takes no public keys from %s (it offers %.100s), and nothing else can be done "
			       "here",
			       r->conf.host, r->conf.user, ways);
	bool in = by_agent(&l);
	for (char *const *file = r->conf.keys; !in && *file; file++)
		in = by_file(&l, *file);
	int rc = 0;
	if (!in && libssh2_session_last_errno(r->session) == LIBSSH2_ERROR_SOCKET_DISCONNECT)
		rc = remote_fail(r, err, EHOSTUNREACH, "%s hung up while we logged in", r->conf.host);
	else if (!in)
		rc = err_set(
			err, EACCES,
			"%s lets %s in by none of our keys: %.300s. An Ed25519 or ECDSA key is needed, in the agent or "
			"in a file without a passphrase",
			r->conf.host, r->conf.user, l.refused.n ? buf_str(&l.refused) : "there is none");
	buf_release(&l.tried);
	buf_release(&l.refused);
	return rc;
}
