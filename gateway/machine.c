/* Which package hosts this machine's own package managers are set up for: apt's sources, npm, pip, cargo, Go. Read
 * once, at start, from their settings; no host is built in. What is in none of these files needs a line in the policy.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "gw.h"
#include "net.h"

#define FILE_MAX (256 << 10)

static void add_host(struct words *out, const char *authority, int usual_port)
{
	char host[256];
	int port;
	const char *at = strrchr(authority, '@'); /* user:password@ stays out */
	if (net_host_port(at ? at + 1 : authority, usual_port, host, sizeof host, &port) || net_is_literal(host) ||
	    !strchr(host, '.'))
		return;
	CLEAN_FREE char *word = port == usual_port ? xstrdup(host) : xasprintf("%s:%d", host, port);
	if (words_have(out, word, strlen(word)) || out->n >= 64)
		return;
	out->p = xrealloc(out->p, (out->n + 1) * sizeof *out->p);
	out->p[out->n++] = take(word);
}

/* Every http(s) URL of a line. */
static void add_urls(struct words *out, const char *line)
{
	for (const char *p = line; (p = strstr(p, "http"));) {
		bool tls = !strncmp(p, "https://", 8);
		if (!tls && strncmp(p, "http://", 7)) {
			p += 4;
			continue;
		}
		p += tls ? 8 : 7;
		CLEAN_FREE char *authority = xstrndup(p, strcspn(p, "/ \t\"',;?#|\r]"));
		add_host(out, authority, tls ? 443 : 80);
	}
}

/* Lines of the file that have one of the words (NULL: all), without comments. */
static void from_file(struct words *out, const char *path, const char *const *only)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	if (file_read(path, &text, FILE_MAX, NULL))
		return;
	char *rest = text.p;
	for (char *line; rest && (line = strsep(&rest, "\n"));) {
		char *t = text_trim(line);
		bool wanted = !only;
		for (const char *const *w = only; w && *w; w++)
			wanted |= strcasestr(t, *w) != NULL;
		if (wanted && *t != '#' && *t != ';')
			add_urls(out, t);
	}
}

static void from_home(struct words *out, const char *home, const char *name, const char *const *only)
{
	if (home && *home == '/') {
		CLEAN_FREE char *path = xasprintf("%s/%s", home, name);
		from_file(out, path, only);
	}
}

static void from_apt(struct words *out)
{
	from_file(out, "/etc/apt/sources.list", NULL);
	DIR *d = opendir("/etc/apt/sources.list.d");
	for (struct dirent *e; d && (e = readdir(d));) {
		CLEAN_FREE char *path = xasprintf("/etc/apt/sources.list.d/%s", e->d_name);
		const char *dot = strrchr(e->d_name, '.');
		if (dot && (!strcmp(dot, ".list") || !strcmp(dot, ".sources")))
			from_file(out, path, NULL);
	}
	if (d)
		closedir(d);
}

void machine_hosts(struct words *out)
{
	static const char *const npm[] = {"registry", NULL}, *const pip[] = {"index", "find-links", NULL},
				 *const cargo[] = {"registry", "index", NULL},
				 *const go[] = {"GOPROXY", "GOSUMDB", NULL};
	static const char *const variables[] = {
		"NPM_CONFIG_REGISTRY", "npm_config_registry", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL",
		"UV_INDEX_URL",	       "UV_DEFAULT_INDEX",    "GOPROXY",       "CARGO_REGISTRIES_CRATES_IO_INDEX"};
	const char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
	CLEAN_FREE char *own = home ? xasprintf("%s/.config", home) : NULL;
	config = config && *config == '/' ? config : own;
	from_apt(out);
	from_file(out, "/etc/npmrc", npm);
	from_home(out, home, ".npmrc", npm);
	from_file(out, "/etc/pip.conf", pip);
	from_home(out, home, ".pip/pip.conf", pip);
	from_home(out, config, "pip/pip.conf", pip);
	from_home(out, home, ".cargo/config", cargo);
	from_home(out, home, ".cargo/config.toml", cargo);
	from_home(out, config, "go/env", go);
	for (size_t i = 0; i < ARRAY_LEN(variables); i++)
		if (getenv(variables[i]))
			add_urls(out, getenv(variables[i]));
}
