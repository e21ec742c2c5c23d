/* `berthfs umount`, and the options of mount. Not on the loop. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "backend/base/mem.h"
#include "instance.h"
#include "mount.h"
#include "mountinfo.h"

#define GONE_MS 30000 /* commits are finished and workers brought to a safe point by then */

/* ---- umount ---- */

/* Ends the daemon of this instance as SIGTERM does and waits until it is gone. */
static int end_daemon(const struct paths *paths, pid_t pid)
{
	if (pid < 0 || (kill(pid, SIGTERM) && errno != ESRCH)) { /* it may have ended by itself just now */
		fprintf(stderr, "berthfs: cannot end the daemon (pid %d): %s\n", (int)pid,
			pid < 0 ? "it runs in another pid namespace; end it there" : strerror(errno));
		return EX_NOPERM;
	}
	if (!instance_wait_gone(paths, GONE_MS))
		return EX_OK;
	fprintf(stderr, "berthfs: the daemon (pid %d) is still finishing; see %s/log\n", (int)pid, paths->state);
	return EX_TEMPFAIL;
}

/* A mount that no living daemon of this instance serves. */
static int clear_dir(const char *dir)
{
	struct mounted at;
	if (mountinfo_at(dir, &at)) {
		printf("nothing is mounted at %s\n", dir);
		return EX_OK;
	}
	bool ours = mounted_is_ours(&at);
	mounted_release(&at);
	if (!ours) {
		fprintf(stderr, "berthfs: %s is no berthfs mount of yours\n", dir);
		return EX_UNAVAILABLE;
	}
	int rc = mount_detach(dir);
	if (rc)
		fprintf(stderr, "berthfs: cannot unmount %s: %s; `fusermount3 -u %s` says why\n", dir, strerror(-rc),
			dir);
	return rc ? EX_OSERR : EX_OK;
}

/* A daemon without root unmounts by fusermount3, which fails where there is no /etc/mtab: then it ended and the mount
 * is still there. */
static int clear_rest(const char *dir)
{
	struct mounted at;
	if (mountinfo_at(dir, &at))
		return EX_OK;
	mounted_release(&at);
	return clear_dir(dir);
}

int umount_main(const char *dir)
{
	struct err err = ERR_INIT;
	struct paths paths;
	struct record r;
	if (paths_init(&paths, &err)) {
		fprintf(stderr, "berthfs: %s\n", err.text);
		return EX_OSERR;
	}
	bool known = !record_read(&paths, &r);
	const char *home = getenv("HOME");
	CLEAN_FREE char *usual = home ? xasprintf("%s/berth", home) : NULL;
	CLEAN_FREE char *path = dir ? mount_resolve(dir) : known ? xstrdup(r.dir) : usual ? mount_resolve(usual) : NULL;
	pid_t pid = instance_pid(&paths);
	int code;
	if (!path) {
		printf("nothing is mounted%s%s\n", dir ? " at " : "", dir ? dir : "");
		code = EX_OK;
	} else if (known && !strcmp(path, r.dir) && pid) {
		code = end_daemon(&paths, pid);
		if (code == EX_OK)
			code = clear_rest(path);
	} else {
		code = clear_dir(path);
	}
	record_release(&r);
	paths_release(&paths);
	return code;
}

/* ---- options of mount ---- */

/* What mount(8), fstab, systemd and mount.fuse3 pass on and what other FUSE programs are used to; nothing to do for us:
 * the mount is always nosuid and nodev, and it is cleared away by itself when the daemon dies. */
static bool is_ignored(const char *o)
{
	static const char *const names[] = {
		"rw",	      "dev",	     "nodev",	   "suid",	   "nosuid",   "exec",	   "noexec",
		"auto",	      "noauto",	     "nofail",	   "_netdev",	   "user",     "nouser",   "users",
		"owner",      "group",	     "async",	   "sync",	   "dirsync",  "defaults", "atime",
		"noatime",    "diratime",    "relatime",   "norelatime",   "lazytime", "silent",   "loud",
		"nodiratime", "strictatime", "nolazytime", "auto_unmount",
	};
	static const char *const prefixes[] = {"x-", "X-", "comment=", "user=", "uhelper=", "helper="};
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(o, names[i]))
			return true;
	for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
		if (!strncmp(o, prefixes[i], strlen(prefixes[i])))
			return true;
	return !o[0];
}

/* Known to mount(8) or libfuse, and against what the tree is. */
static const char *why_not(const char *o)
{
	static const struct {
		const char *option, *why;
	} no[] = {
		{"ro", "the tree is driven by writing; `allow_other` lets others read and not write"},
		{"remount", "unmount and mount again; nothing that runs is lost by that"},
		{"allow_root", "there is allow_other, which lets others read and not write"},
		{"nonempty", "the directory has to be empty, so that nothing is hidden"},
		{"default_permissions", "the daemon checks users and modes itself"},
	};
	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		if (!strcmp(o, no[i].option))
			return no[i].why;
	return NULL;
}

int mount_option_list(struct mount_options *opt, const char *list)
{
	CLEAN_FREE char *copy = xstrdup(list);
	char *at = copy;
	for (char *o; (o = strsep(&at, ","));) {
		if (!strcmp(o, "allow_other")) {
			opt->allow_other = true;
		} else if (!strcmp(o, "nowatch")) {
			opt->nowatch = true;
		} else if (!strncmp(o, "fsname=", 7) && o[7]) {
			free(opt->fsname);
			opt->fsname = xstrdup(o + 7);
		} else if (why_not(o)) {
			fprintf(stderr, "berthfs: no mount option %s: %s\n", o, why_not(o));
			return -EINVAL;
		} else if (!is_ignored(o)) {
			fprintf(stderr, "berthfs: unknown mount option %s; there are allow_other and nowatch\n", o);
			return -EINVAL;
		}
	}
	return 0;
}
