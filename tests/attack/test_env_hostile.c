/* The host's side of the tool protocol against a sandbox that belongs to an enemy: nothing that it says or leaves out
 * holds the host up, fills its disk or is taken for the host's own knowledge. */
#include <pthread.h>
#include <sys/stat.h>

#include "backend/base/fd.h"
#include "backend/tool.h"
#include "hostile.h"
#include "sandbox/env_call.h"
#include "tests/unit/check.h"

static struct {
	struct paths paths;
	char *socket;
	int listener;
	enum hostile how;
} here;

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	hostile_serve(fd, here.how);
	close(fd);
	return NULL;
}

static void *listen_main(void *arg)
{
	int fd;
	while ((fd = accept4(here.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		pthread_t t;
		pthread_create(&t, NULL, serve, (void *)(intptr_t)fd);
		pthread_detach(t);
	}
	return NULL;
}

static struct env *connect_to(enum hostile how, const atomic_bool *cancel)
{
	struct env *env = NULL;
	struct err err = ERR_INIT;
	here.how = how;
	if (env_open(&here.paths, "dir", 1, cancel, &env, &err))
		printf("# %s\n", err.text);
	return env;
}

struct later {
	atomic_bool *flag;
	int ms;
};

static void *later_main(void *arg)
{
	struct later *l = arg;
	clock_sleep_ms(l->ms);
	atomic_store(l->flag, true);
	return NULL;
}

#define SOON_MS 15000 /* on a busy machine; a wait that nobody ends lasts longer */

static const char *const argv[] = {"/bin/true", NULL};

TEST(a_stop_ends_every_wait)
{
	static const enum hostile hows[] = {HOSTILE_SILENT, HOSTILE_PONGS, HOSTILE_DRIP, HOSTILE_RUNNING};
	for (size_t i = 0; i < ARRAY_LEN(hows); i++) {
		atomic_bool cancel = false;
		struct later later = {&cancel, 200};
		struct env_exec exec = {.job = "j", .argv = argv};
		struct err err = ERR_INIT;
		pthread_t t;
		struct env *env = connect_to(hows[i], &cancel);
		CHECK(env != NULL);
		int64_t start = clock_mono_ms();
		pthread_create(&t, NULL, later_main, &later);
		CHECK_INT(env_start(env, &exec, NULL), hows[i] == HOSTILE_RUNNING ? 0 : -ECANCELED);
		struct env_job job;
		int rc = hows[i] == HOSTILE_RUNNING ? env_wait(env, "j", 0, &cancel, &job, &err)
						    : env_start(env, &exec, &err);
		CHECK_INT(rc, hows[i] == HOSTILE_RUNNING ? -ECANCELED : -ENOTCONN);
		CHECK(clock_mono_ms() - start < SOON_MS);
		CHECK(env_lost(env) == (hows[i] != HOSTILE_RUNNING));
		pthread_join(t, NULL);
		env_close(env);
	}
}

TEST(a_call_ends_by_itself)
{
	static const enum hostile hows[] = {HOSTILE_SILENT, HOSTILE_PONGS, HOSTILE_DRIP};
	for (size_t i = 0; i < ARRAY_LEN(hows); i++) {
		struct env *env = connect_to(hows[i], NULL);
		struct err err = ERR_INIT;
		int64_t start = clock_mono_ms();
		env_hurry(env, 300);
		CHECK_INT(env_kill(env, "j", &err), -ENOTCONN);
		CHECK(clock_mono_ms() - start < SOON_MS);
		env_close(env);
		start = clock_mono_ms();
		CHECK_INT(env_end_job(&here.paths, "dir", 1, "j", 300, &err), -ENOTCONN);
		CHECK(clock_mono_ms() - start < SOON_MS);
	}
}

TEST(a_job_that_never_ends_does_not_spin)
{
	atomic_bool cancel = false;
	struct later later = {&cancel, 500};
	struct env_job job;
	pthread_t t;
	struct env *env = connect_to(HOSTILE_RUNNING, NULL);
	atomic_store(&hostile_requests, 0);
	pthread_create(&t, NULL, later_main, &later);
	CHECK_INT(env_wait(env, "j", 0, &cancel, &job, NULL), -ECANCELED);
	CHECK(atomic_load(&hostile_requests) < 100);
	pthread_join(t, NULL);
	env_close(env);
}

TEST(exit_codes_are_no_errors)
{
	struct env *env = connect_to(HOSTILE_EXIT, NULL);
	struct env_exec exec = {.job = "j", .argv = argv};
	CHECK_INT(env_run(env, &exec, NULL, 100, NULL, NULL), 255);
	env_close(env);
}

TEST(errors_that_only_the_host_can_know)
{
	static const int codes[] = {ENOTCONN, ETIMEDOUT, ECANCELED, EPROTO, 0, -1, 1 << 20};
	for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
		struct env *env = connect_to(HOSTILE_CODES, NULL);
		struct err err = ERR_INIT;
		struct buf out = BUF_INIT;
		atomic_store(&hostile_code, codes[i]);
		CHECK_INT(env_read(env, "x", 0, 10, &out, &err), -EIO);
		CHECK(!strpbrk(err.text, "\033\n\t"));
		CHECK(!env_lost(env));
		env_close(env);
	}
	struct env *env = connect_to(HOSTILE_CODES, NULL);
	atomic_store(&hostile_code, ESHUTDOWN); /* the session's own end looks like this */
	CHECK_INT(env_kill(env, "j", NULL), -ENOTCONN);
	CHECK(env_lost(env));
	env_close(env);
}

TEST(endless_file)
{
	struct env *env = connect_to(HOSTILE_ENDLESS, NULL);
	CLEAN_FREE char *to = xasprintf("%s/got", here.paths.runtime);
	CLEAN_FREE char *link = xasprintf("%s/elsewhere", here.paths.runtime);
	struct err err = ERR_INIT;
	CHECK_INT(env_receive_file(env, "x", 1 << 20, to, &err), -EFBIG);
	CHECK(!file_exists(to));
	CHECK_INT(symlink("/etc/hostname", link), 0);
	CHECK_INT(env_receive_file(env, "x", 1 << 20, link, &err), -EFBIG);
	env_close(env);
}

TEST(homes)
{
	CLEAN_FREE char *large = xmalloc(1 << 20);
	memset(large, 'a', 1 << 20);
	large[0] = '/';
	large[(1 << 20) - 1] = 0;
	const char *const homes[] = {"", "/", "relative", "/a\nb", "/a\033[2J", "/\xff", large};
	for (size_t i = 0; i < ARRAY_LEN(homes); i++) {
		struct env *env = NULL;
		here.how = HOSTILE_HOME;
		hostile_home = homes[i];
		CHECK_INT(env_open(&here.paths, "dir", 1, NULL, &env, NULL), -ENOTCONN);
		CHECK(!env);
	}
	hostile_home = "/home/agent";
}

__attribute__((constructor(101))) static void setup(void)
{
	static char folder[] = "/tmp/berthfs-hostile-XXXXXX";
	pthread_t t;
	here.paths.runtime = mkdtemp(folder);
	here.socket = xasprintf("%s/1.sock", folder);
	here.listener = unix_listen(here.socket, 0600, NULL);
	pthread_create(&t, NULL, listen_main, NULL);
	pthread_detach(t);
}

__attribute__((destructor)) static void teardown(void)
{
	dir_remove(here.paths.runtime, NULL);
	free(here.socket);
}

CHECK_MAIN()
