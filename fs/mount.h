/* `berthfs mount` and `berthfs umount`. */
#pragma once
#include <stdbool.h>

struct mount_options {
	const char *dir;    /* as given; NULL: ~/berth */
	const char *source; /* shown as the device by mount(8); NULL: fsname */
	char *fsname;	    /* the same by -o fsname=; malloc'd; NULL: berthfs */
	bool allow_other;
	bool foreground;
	bool nowatch; /* no events for inotify */
};

/* Both return an exit code (sysexits) and have told on standard error what is wrong. */
int mount_main(const struct mount_options *opt);
int umount_main(const char *dir);
/* Takes a comma-separated list as of mount -o into opt. 0, or -EINVAL after telling. */
int mount_option_list(struct mount_options *opt, const char *list);
