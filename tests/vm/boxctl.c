/* sandbox.h on the command line, for tests that put a real gateway behind a sandbox: one call a run. The instance is
 * that of the environment; BERTHFS names the program, BOX_CACHE the folder with the base images, BOX_DISK how many MiB
 *a container may fill.
 *
 *	boxctl up KIND ID [SOCKET]          boxctl environ KIND ID KEY=VALUE...
 *	boxctl run KIND ID SCRIPT           its output, its exit code
 *	boxctl url KIND ID                  boxctl put KIND ID FILE PATH        boxctl destroy KIND ID
 *	boxctl state KIND ID                boxctl pause KIND ID                boxctl resume KIND ID */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/sandbox.h"

static void say(void *arg, const char *line)
{
	fprintf(stderr, "%s\n", line);
}

static int run(struct env *env, const char *script, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *job = xasprintf("boxctl.%d", (int)getpid());
	const char *argv[] = {"/bin/bash", "-c", script, NULL};
	struct env_exec exec = {.job = job, .argv = argv, .timeout_ms = 120000};
	int rc = env_run(env, &exec, NULL, 1 << 20, &out, err);
	fwrite(buf_str(&out), 1, out.n, stdout);
	return rc;
}

static int inside(const struct paths *p, const char *verb, const char *kind, int64_t id, char **a, struct err *err)
{
	struct env *env = NULL;
	int rc = env_open(p, kind, id, NULL, &env, err);
	if (rc)
		return rc;
	if (!strcmp(verb, "run"))
		rc = run(env, a[0], err);
	else if (!strcmp(verb, "environ"))
		rc = env_set_environ(env, (const char *const *)(uintptr_t)a, err);
	else if (!strcmp(verb, "put"))
		rc = env_send_file(env, a[0], a[1], err);
	else
		puts(env_gateway_url(env) ? env_gateway_url(env) : "none");
	env_close(env);
	return rc;
}

static int tell_state(const struct paths *p, const char *kind, int64_t id)
{
	char line[64];
	sandbox_describe(p, kind, id, sandbox_state(p, kind, id), line);
	puts(line);
	return 0;
}

int main(int argc, char **argv)
{
	struct paths p;
	struct err err = ERR_INIT;
	const char *self = getenv("BERTHFS"), *cache = getenv("BOX_CACHE"), *disk = getenv("BOX_DISK");
	if (argc < 4 || !self || paths_init(&p, &err))
		return 64;
	free(p.self);
	p.self = xstrdup(self);
	if (cache) {
		free(p.cache);
		p.cache = xstrdup(cache);
	}
	const char *verb = argv[1], *kind = argv[2];
	int64_t id = atoll(argv[3]);
	struct sandbox_spec spec = {.paths = &p,
				    .kind = kind,
				    .id = id,
				    .name = "box",
				    .size = "mini",
				    .disk_mib = disk ? atoi(disk) : 0,
				    .net = argv[4],
				    .boot_timeout_ms = 120000,
				    .progress = say};
	int rc = !strcmp(verb, "up")	    ? sandbox_up(&spec, &err)
		 : !strcmp(verb, "state")   ? tell_state(&p, kind, id)
		 : !strcmp(verb, "pause")   ? sandbox_pause(&p, kind, id, &err)
		 : !strcmp(verb, "resume")  ? sandbox_resume(&p, kind, id, &err)
		 : !strcmp(verb, "destroy") ? sandbox_destroy(&p, kind, id, &err)
					    : inside(&p, verb, kind, id, argv + 4, &err);
	if (rc < 0)
		fprintf(stderr, "%s\n", err.text);
	paths_release(&p);
	return rc < 0 ? 125 : rc;
}
