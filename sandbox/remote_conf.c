/* Settings and known keys of an ssh host, as OpenSSH's own programs tell them: aliases, patterns, hashed names and
 * Include are theirs to understand. Blocks; any thread. Must never take a key as known that ssh would not. */
#include "remote_conf.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"

#define RUN_MS 20000 /* `ssh -G` may run a Match exec */

/* What libssh2 1.10 can check and today's servers still sign with. */
static const char *const usable[] = {"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
				     "ecdsa-sha2-nistp521"};

int remote_host_check(const char *host, struct err *err)
{
	size_t n = strlen(host);
	bool good = n >= 1 && n <= REMOTE_HOST_MAX && *host != '-';
	for (const char *p = host; *p; p++)
		good &= isalnum((unsigned char)*p) || strchr("@._-:/[]%", *p);
	return good ? 0
		    : err_set(err, EINVAL,
			      "ssh: needs a host as ssh takes it behind it, such as ssh:box or ssh:me@box.lan, of at "
			      "most "
			      "%d letters, digits and @ . _ - : /, not \"%.60s\"",
			      REMOTE_HOST_MAX, host);
}

void remote_conf_release(struct remote_conf *c)
{
	free(c->host);
	free(c->hostname);
	free(c->user);
	free(c->known_as);
	free(c->proxy);
	free(c->agent);
	for (char **k = c->keys; *k; k++)
		free(*k);
	for (char **k = c->known; *k; k++)
		free(*k);
	*c = (struct remote_conf){0};
}

/* ---- ssh -G ---- */

/* The tokens that make sense here. */
static char *expand(const struct remote_conf *c, const char *s, const char *home)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	if (*s == '~' && (s[1] == '/' || !s[1]))
		buf_adds(&b, home), s++;
	for (; *s; s++) {
		if (*s != '%' || !s[1]) {
			buf_addc(&b, *s);
			continue;
		}
		switch (*++s) {
		case '%': buf_addc(&b, '%'); break;
		case 'd': buf_adds(&b, home); break;
		case 'h': buf_adds(&b, c->hostname); break;
		case 'n': buf_adds(&b, c->host); break;
		case 'p': buf_addf(&b, "%d", c->port); break;
		case 'r': buf_adds(&b, c->user); break;
		default: buf_addf(&b, "%%%c", *s); break;
		}
	}
	return xstrdup(buf_str(&b));
}

static void add(char **list, size_t room, char *own)
{
	size_t n = 0;
	while (list[n])
		n++;
	if (n + 1 < room)
		list[n] = own;
	else
		free(own);
}

/* The last line of that name; "" without one. */
struct settings {
	const char *hostname, *user, *port, *alias, *command, *jump, *agent, *only;
	const char *keys[16], *known[2];
	size_t n_keys;
};

/* `none` is nothing of those that may be so; a host may be called that. */
static bool is_set(const char *value)
{
	return *value && strcmp(value, "none") != 0;
}

static void split(char *text, struct settings *s)
{
	const struct {
		const char *name, **value;
	} single[] = {{"hostname", &s->hostname},
		      {"user", &s->user},
		      {"port", &s->port},
		      {"hostkeyalias", &s->alias},
		      {"proxycommand", &s->command},
		      {"proxyjump", &s->jump},
		      {"identityagent", &s->agent},
		      {"identitiesonly", &s->only},
		      {"userknownhostsfile", &s->known[0]},
		      {"globalknownhostsfile", &s->known[1]}};
	for (size_t i = 0; i < ARRAY_LEN(single); i++)
		*single[i].value = "";
	for (char *line; (line = strsep(&text, "\n"));) {
		char *value = strchr(line, ' ');
		if (!value)
			continue;
		*value++ = 0;
		for (size_t i = 0; i < ARRAY_LEN(single); i++)
			if (!strcmp(single[i].name, line))
				*single[i].value = value;
		if (!strcmp(line, "identityfile") && strcmp(value, "none") != 0 && s->n_keys < ARRAY_LEN(s->keys) - 1)
			s->keys[s->n_keys++] = value;
	}
}

static void quote(struct buf *b, const char *s)
{
	buf_addc(b, '\'');
	for (; *s; s++)
		if (*s == '\'')
			buf_adds(b, "'\\''");
		else
			buf_addc(b, *s);
	buf_addc(b, '\'');
}

/* `a,b,[USER@]HOST[:PORT]`: through a to b to HOST; one ssh does it, with its own questions of keys, which it must not
 * ask. */
static char *jump_command(const struct remote_conf *c, const char *jump, const char *file)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	const char *last = strrchr(jump, ',');
	for (const char *p = jump; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("@._-:/[],", *p))
			return NULL;
	buf_adds(&b, "exec ssh -o BatchMode=yes -o ServerAliveInterval=15");
	if (file) {
		buf_adds(&b, " -F ");
		quote(&b, file);
	}
	if (last)
		buf_addf(&b, " -J '%.*s'", (int)(last - jump), jump);
	CLEAN_FREE char *own = xstrdup(last ? last + 1 : jump);
	char *host = own, *at = strrchr(own, '@');
	if (at) {
		*at = 0;
		buf_addf(&b, " -l '%s'", own);
		host = at + 1;
	}
	char *colon = strrchr(host, ':');
	bool bracket = *host == '[';
	if (colon && (bracket ? colon[-1] == ']' : colon == strchr(host, ':'))) {
		*colon = 0;
		buf_addf(&b, " -p '%s'", colon + 1);
	}
	if (bracket) {
		host++;
		host[strcspn(host, "]")] = 0;
	}
	if (!*host)
		return NULL;
	buf_addf(&b, " -W '[%s]:%d' -- '%s'", c->hostname, c->port, host);
	return xstrdup(buf_str(&b));
}

/* The agent's socket; NULL for none. Without a word of it in the settings, the environment's. */
static char *agent_socket(const struct remote_conf *c, const char *setting, const char *home)
{
	if (!strcmp(setting, "none"))
		return NULL;
	if (*setting && *setting != '$' && strcmp(setting, "SSH_AUTH_SOCK") != 0)
		return expand(c, setting, home);
	const char *from = getenv(*setting == '$' ? setting + 1 : "SSH_AUTH_SOCK");
	return from && *from ? xstrdup(from) : NULL;
}

int remote_conf_parse(const char *host, char *text, const char *home, const char *file, struct remote_conf *out,
		      struct err *err)
{
	struct settings s = {0};
	split(text, &s);
	*out = (struct remote_conf){.host = xstrdup(host),
				    .hostname = xstrdup(s.hostname),
				    .user = xstrdup(s.user),
				    .port = atoi(s.port),
				    .identities_only = !strcmp(s.only, "yes")};
	if (!*s.hostname || !*s.user || out->port < 1 || out->port > 65535)
		return err_set(err, EINVAL, "`ssh -G %s` does not tell a host, a user and a port", host);
	if (*s.alias)
		out->known_as = xstrdup(s.alias);
	else
		out->known_as = out->port == 22 ? xstrdup(s.hostname) : xasprintf("[%s]:%d", s.hostname, out->port);
	if (is_set(s.command))
		out->proxy = expand(out, s.command, home);
	else if (is_set(s.jump) && !(out->proxy = jump_command(out, s.jump, file)))
		return err_set(err, EINVAL, "the ProxyJump of %s cannot be used: %.100s", host, s.jump);
	out->agent = agent_socket(out, s.agent, home);
	for (size_t i = 0; i < s.n_keys; i++)
		add(out->keys, ARRAY_LEN(out->keys), expand(out, s.keys[i], home));
	for (size_t i = 0; i < 2; i++) {
		CLEAN_FREE char *files = xstrdup(s.known[i]);
		char *rest = files;
		for (char *one; (one = strsep(&rest, " "));)
			if (is_set(one))
				add(out->known, ARRAY_LEN(out->known), expand(out, one, home));
	}
	return 0;
}

static char *home_folder(void)
{
	const struct passwd *p = getpwuid(geteuid()); /* as ssh does: HOME is nothing to it */
	const char *env = getenv("HOME");
	return xstrdup(p && p->pw_dir ? p->pw_dir : env ? env : "/");
}

int remote_conf_read(const struct paths *paths, const char *host, struct remote_conf *out, struct err *err)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_BUF struct buf words = BUF_INIT;
	CLEAN_FREE char *dir = xstrndup(paths->config, (size_t)(strrchr(paths->config, '/') - paths->config));
	CLEAN_FREE char *file = xasprintf("%s/ssh_config", dir);
	CLEAN_FREE char *home = home_folder();
	bool own = file_exists(file);
	const char *argv[] = {"ssh", "-G", own ? "-F" : host, own ? file : NULL, own ? host : NULL, NULL};
	struct child c = {.argv = argv, .out = &text, .errout = &words, .max = 1 << 20, .timeout_ms = RUN_MS};
	*out = (struct remote_conf){0};
	int rc = remote_host_check(host, err);
	rc = rc ? rc : child_run(&c, err);
	if (rc == -ENOENT)
		return err_set(err, ENOENT, "there is no ssh here: install the package openssh-client");
	if (rc > 0)
		return err_set(err, EINVAL, "ssh does not take the host %s: %.300s", host,
			       words.n ? text_trim(words.p) : "it does not say why");
	return rc ? rc : remote_conf_parse(host, text.p, home, own ? file : NULL, out, err);
}

/* ---- known_hosts ---- */

/* `[@MARKER] NAMES TYPE BASE64 [COMMENT]` */
static void known_line(char *line, struct buf *out)
{
	char *word[5] = {0};
	size_t n = 0;
	for (char *w; n < 5 && (w = strsep(&line, " \t"));)
		if (*w)
			word[n++] = w;
	bool marked = n && *word[0] == '@', revoked = marked && !strcmp(word[0], "@revoked");
	if (n < 3U + marked || *word[0] == '#' || (marked && !revoked))
		return; /* certificates are not ours to check */
	buf_addf(out, "%s%s %s\n", revoked ? "!" : "", word[1 + marked], word[2 + marked]);
}

int remote_known(const struct remote_conf *c, struct buf *out, struct err *err)
{
	for (char *const *file = c->known; *file; file++) {
		CLEAN_BUF struct buf text = BUF_INIT;
		const char *argv[] = {"ssh-keygen", "-F", c->known_as, "-f", *file, NULL};
		if (!file_exists(*file))
			continue;
		/* 1: it is not in there */
		int rc = child_run(&(struct child){.argv = argv, .out = &text, .max = 1 << 20, .timeout_ms = RUN_MS},
				   err);
		if (rc == -ENOENT)
			return err_set(err, ENOENT, "there is no ssh-keygen here: install the package openssh-client");
		if (rc < 0)
			return rc;
		char *rest = text.p;
		for (char *line; !rc && rest && (line = strsep(&rest, "\n"));)
			known_line(line, out);
	}
	return 0;
}

enum remote_trust remote_judge(const struct buf *known, const char *type, const char *base64)
{
	CLEAN_FREE char *text = xstrdup(buf_str(known));
	bool any = false, same_type = false, equal = false, revoked = false;
	char *rest = text;
	for (char *line; (line = strsep(&rest, "\n"));) {
		char *key = strchr(line, ' ');
		bool bad = *line == '!';
		if (!key)
			continue;
		*key++ = 0;
		bool same = !strcmp(line + bad, type) && !strcmp(key, base64);
		revoked |= bad && same;
		any |= !bad;
		same_type |= !bad && !strcmp(line, type);
		equal |= !bad && same;
	}
	return revoked	   ? REMOTE_REVOKED
	       : equal	   ? REMOTE_TRUSTED
	       : !any	   ? REMOTE_UNKNOWN
	       : same_type ? REMOTE_CHANGED
			   : REMOTE_OTHER_TYPE;
}

char *remote_known_types(const struct buf *known)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	for (size_t i = 0; i < ARRAY_LEN(usable); i++) {
		CLEAN_FREE char *first = xasprintf("%s ", usable[i]);
		CLEAN_FREE char *later = xasprintf("\n%s ", usable[i]);
		if (!strncmp(buf_str(known), first, strlen(first)) || strstr(buf_str(known), later))
			buf_addf(&b, "%s%s", b.n ? "," : "", usable[i]);
	}
	return xstrdup(buf_str(&b));
}
