/* Where an instance keeps its things. Any thread. */
#include "paths.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"

/* $VAR/berthfs, else HOME/fallback/berthfs; NULL if there is no home either. */
static char *folder(const char *var, const char *home, const char *fallback)
{
	const char *v = getenv(var);
	if (v && v[0] == '/')
		return xasprintf("%s/berthfs", v);
	return home ? xasprintf("%s/%s/berthfs", home, fallback) : NULL;
}

static char *home_of(void)
{
	const char *home = getenv("HOME");
	if (home && home[0] == '/')
		return xstrdup(home);
	struct passwd pw, *found = NULL; /* mount units run without HOME */
	char room[4096];
	if (getpwuid_r(getuid(), &pw, room, sizeof room, &found) || !found)
		return NULL;
	return xstrdup(found->pw_dir);
}

int paths_init(struct paths *p, struct err *err)
{
	CLEAN_FREE char *home = home_of();
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	*p = (struct paths){
		.state = folder("XDG_STATE_HOME", home, ".local/state"),
		.cache = folder("XDG_CACHE_HOME", home, ".cache"),
		.runtime = folder("XDG_RUNTIME_DIR", NULL, NULL),
		.self = n > 0 ? xstrndup(self, (size_t)n) : NULL,
	};
	CLEAN_FREE char *config_dir = folder("XDG_CONFIG_HOME", home, ".config");
	if (!p->state || !p->cache || !config_dir || !p->self) {
		paths_release(p);
		return err_set(err, ENOENT,
			       "no home directory: set HOME, or XDG_STATE_HOME, XDG_CACHE_HOME and "
			       "XDG_CONFIG_HOME");
	}
	if (!p->runtime)
		p->runtime = xasprintf("%s/run", p->state);
	p->config = xasprintf("%s/config", config_dir);
	const char *dirs[] = {p->state, p->cache, p->runtime, config_dir};
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		struct stat st;
		int rc = dir_make(dirs[i], 0700, err);
		if (!rc && dirs[i] != config_dir && !stat(dirs[i], &st) && st.st_uid == geteuid() && st.st_mode & 077)
			chmod(dirs[i], st.st_mode & 0700); /* somebody has made it for us, and lets others in */
		if (rc) {
			paths_release(p);
			return rc;
		}
	}
	return 0;
}

void paths_release(struct paths *p)
{
	free(p->state);
	free(p->cache);
	free(p->runtime);
	free(p->config);
	free(p->self);
	*p = (struct paths){0};
}

const char *paths_program(const struct paths *p)
{
	return access(p->self, X_OK) ? "/proc/self/exe" : p->self;
}
