/* The busy probe, inside. Any thread; reads files that anybody may have made, so it must never wait for one or follow a
 * link. */
#include "busy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "job_run.h"

#define PID_MAX 4194304 /* the kernel's own limit */

static bool job_runs(struct jobs *jobs, struct buf *words)
{
	bool runs = false;
	pthread_mutex_lock(&jobs->lock);
	list_each (p, &jobs->all) {
		const struct job *job = list_entry(p, struct job, link);
		if (job->now.state != ENV_JOB_RUNNING)
			continue;
		runs = true;
		buf_addf(words, "the command %s runs", job->id);
		break;
	}
	pthread_mutex_unlock(&jobs->lock);
	return runs;
}

/* The number in a file's first line; 0: there is none. */
static pid_t pid_in(int folder, const char *name)
{
	char text[24] = "", *end;
	CLEAN_FD int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	long pid = n > 0 ? strtol(text, &end, 10) : 0;
	return n > 0 && *text >= '0' && *text <= '9' && (*end == '\n' || !*end) && pid > 0 && pid <= PID_MAX
		       ? (pid_t)pid
		       : 0;
}

static bool counts(int folder, const char *name)
{
	struct stat st;
	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno != ENOENT; /* it was just taken away */
	pid_t pid = S_ISREG(st.st_mode) ? pid_in(folder, name) : 0;
	if (pid)
		return !kill(pid, 0) || errno != ESRCH;
	return time(NULL) - st.st_mtime < BUSY_LEASE_S;
}

static bool claimed(const char *folder, struct buf *words)
{
	DIR *d = opendir(folder);
	bool found = false;
	if (!d && errno == ENOENT)
		return false;
	if (!d) {
		buf_addf(words, "%s cannot be read: %s", folder, strerror(errno));
		return true;
	}
	errno = 0;
	for (struct dirent *e; !found && (e = readdir(d)); errno = 0) {
		found = *e->d_name != '.' && counts(dirfd(d), e->d_name);
		if (found)
			buf_addf(words, "%s/%s", folder, e->d_name);
	}
	if (!found && errno) {
		buf_addf(words, "%s cannot be read: %s", folder, strerror(errno));
		found = true;
	}
	closedir(d);
	return found;
}

bool busy_look(const char *folder, struct jobs *jobs, struct buf *words)
{
	return job_runs(jobs, words) || (folder && claimed(folder, words));
}
