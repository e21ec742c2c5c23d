/* What is mounted where, read from /proc/self/mountinfo: no path is touched, since the one asked about may hang. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#define FUSE_TYPE "fuse.berthfs"

struct mounted {
	char *point;  /* absolute, without the escapes */
	char *type;   /* e.g. fuse.berthfs */
	char dev[32]; /* "MAJOR:MINOR": names one mount until the next boot */
	uid_t owner;  /* user_id= of a FUSE mount, (uid_t)-1 of others */
};

/* The topmost mount at exactly this path. 0, -ENOENT if there is none, or -errno. */
int mountinfo_at(const char *path, struct mounted *out);
void mounted_release(struct mounted *m);
bool mounted_is_ours(const struct mounted *m); /* a berthfs of this user */

/* Detaches it even if its daemon hangs or is dead, or files in it are open: umount2() as root, else fusermount3. */
int mount_detach(const char *path);

/* Absolute path without symlinks of a directory that may be a dead mount: then only its parents are looked at. It need
 * not exist. malloc'd; NULL: errno. */
char *mount_resolve(const char *dir);
/* Is path the same as dir or below it? */
bool path_is_in(const char *path, const char *dir);
