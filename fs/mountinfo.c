/* What is mounted where. Before and after the loop, and in the helper process; never on the loop. */
#include "mountinfo.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"

/* Octal escapes of mountinfo (\040 for a space), in place. */
static void unescape(char *s)
{
	char *to = s;
	for (; *s; s++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = 0;
}

/* "36 35 0:52 / /home/u/berth rw,nosuid - fuse.berthfs berthfs rw,user_id=0,..." */
static bool parse(char *line, const char *path, struct mounted *out)
{
	char *field[6], *at = line;
	for (size_t i = 0; i < ARRAY_LEN(field); i++)
		if (!(field[i] = strsep(&at, " ")))
			return false;
	char *rest = at ? strstr(at, "- ") : NULL; /* optional fields end in a lone dash */
	unescape(field[4]);
	if (!rest || strcmp(field[4], path))
		return false;
	rest += 2;
	const char *type = strsep(&rest, " ");
	const char *user = rest ? strstr(rest, "user_id=") : NULL;
	mounted_release(out);
	*out = (struct mounted){
		.point = xstrdup(field[4]),
		.type = xstrdup(type),
		.owner = user ? (uid_t)strtoul(user + 8, NULL, 10) : (uid_t)-1,
	};
	snprintf(out->dev, sizeof out->dev, "%s", field[2]);
	return true;
}

int mountinfo_at(const char *path, struct mounted *out)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	*out = (struct mounted){0};
	int rc = file_read("/proc/self/mountinfo", &text, 16 << 20, NULL);
	if (rc)
		return rc;
	char *at = text.p;
	for (char *line; (line = strsep(&at, "\n"));) /* the last one is on top */
		parse(line, path, out);
	return out->point ? 0 : -ENOENT;
}

void mounted_release(struct mounted *m)
{
	free(m->point);
	free(m->type);
	*m = (struct mounted){0};
}

bool mounted_is_ours(const struct mounted *m)
{
	return !strcmp(m->type, FUSE_TYPE) && m->owner == getuid();
}

int mount_detach(const char *path)
{
	/* Both flags in one call: a lazy unmount alone leaves a hung one that nothing can abort afterwards. */
	if (!geteuid())
		return umount2(path, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) ? -errno : 0;
	const char *const argv[] = {"fusermount3", "-u", "-z", "-q", "--", path, NULL};
	int rc = child_run(&(struct child){.argv = argv, .timeout_ms = 10000}, NULL);
	return rc > 0 ? -EIO : rc;
}

char *mount_resolve(const char *dir)
{
	CLEAN_FREE char *a = xstrdup(dir), *b = xstrdup(dir);
	struct mounted m;
	const char *name = basename(a);
	if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, "/"))
		return realpath(dir, NULL);
	CLEAN_FREE char *parent = realpath(dirname(b), NULL);
	if (!parent)
		return NULL;
	char *path = xasprintf("%s/%s", strcmp(parent, "/") ? parent : "", name);
	bool is_mount = !mountinfo_at(path, &m);
	mounted_release(&m);
	char *real = is_mount ? NULL : realpath(path, NULL); /* no mount: it may be looked at; a symlink, then */
	if (!real)
		return path;
	free(path);
	return real;
}

bool path_is_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);
	while (n > 1 && dir[n - 1] == '/')
		n--;
	return !strncmp(path, dir, n) && (!path[n] || path[n] == '/' || n == 1);
}
