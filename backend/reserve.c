/* A reserve of disk space. Store thread. */
#include "reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"

#define RESERVE_BYTES (4 << 20) /* hundreds of small commits, and the log that SQLite writes for them */
#define ROOM_BYTES    (2 << 20) /* that must be free beside it: else the next commit fails again */
#define TRY_MS	      200

static bool lay_up(struct reserve *r)
{
	CLEAN_FD int fd = open(r->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct statvfs fs;
	if (fd < 0)
		return errno != ENOSPC && errno != EDQUOT; /* something else is wrong: work must not stop for it */
	int code = posix_fallocate(fd, 0, RESERVE_BYTES);
	if (code == ENOSPC || code == EDQUOT ||
	    (!fstatvfs(fd, &fs) && (uint64_t)fs.f_bavail * fs.f_frsize < ROOM_BYTES)) {
		unlink(r->path);
		return false;
	}
	return true;
}

void reserve_init(struct reserve *r, const char *folder)
{
	*r = (struct reserve){.path = xasprintf("%s/reserve", folder)};
	r->full = !lay_up(r);
	if (r->full)
		log_warn("the disk of %s is nearly full", folder);
}

void reserve_release(struct reserve *r)
{
	free(r->path);
	r->path = NULL;
}

void reserve_spend(struct reserve *r)
{
	if (!r->full)
		log_warn("the disk is full; the reserve %s is given up", r->path);
	r->full = true;
	r->tried_ms = clock_mono_ms();
	unlink(r->path);
}

bool reserve_room(struct reserve *r)
{
	int64_t now = clock_mono_ms();
	if (!r->full)
		return true;
	if (now - r->tried_ms < TRY_MS)
		return false;
	r->tried_ms = now;
	r->full = !lay_up(r);
	if (!r->full)
		log_info("the disk has room again");
	return !r->full;
}
