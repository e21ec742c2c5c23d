/* Git inside a sandbox. Worker threads. Keeps no state; never puts data into a script's text. */
#include "env_git.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"

#define ARGS_MAX   70
#define OUTPUT_MAX (1 << 20)
#define JOB_TEXT   65 /* a job id and its end */

static const char *const quiet_env[] = {"LC_ALL=C",
					"GIT_TERMINAL_PROMPT=0",
					"GIT_OPTIONAL_LOCKS=0",
					"GIT_PAGER=cat",
					"GIT_LFS_SKIP_SMUDGE=1",
					"GIT_EDITOR=true",
					NULL};

static void job_name(const struct env_git *g, char out[JOB_TEXT])
{
	static atomic_uint count; /* ids of one process only have to differ from each other and from older ones */
	if (g->join)
		snprintf(out, JOB_TEXT, "%.40s-%.12s", g->prefix, g->step);
	else
		snprintf(out, JOB_TEXT, "%.32s-%.8s-%" PRIx64 ".%x", g->prefix, g->step, (uint64_t)clock_real_ms(),
			 atomic_fetch_add(&count, 1) & 0xffff);
}

int env_git(const struct env_git *g, struct buf *out, struct err *err)
{
	const char *argv[ARGS_MAX + 5] = {"/bin/bash", "-c", g->script, "berthfs"};
	char job[JOB_TEXT];
	size_t n = 4;
	for (size_t i = 0; g->args && g->args[i]; i++) {
		if (i == ARGS_MAX)
			return err_set(err, E2BIG, "too many arguments for a command in the sandbox");
		argv[n++] = g->args[i];
	}
	job_name(g, job);
	struct env_exec exec = {
		.job = job, .argv = argv, .environ = quiet_env, .timeout_ms = g->timeout_ms, .halt = g->halt};
	return env_run(g->env, &exec, g->cancel, OUTPUT_MAX, out, err);
}

char *env_git_file(const struct env_git *g)
{
	return xasprintf("%s/.berthfs-%s-%s.bundle", env_home(g->env), g->prefix, g->step);
}
