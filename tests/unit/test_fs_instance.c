/* Who the daemon of an instance is, while others on the machine lock and unlock files without end. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "fs/instance.h"

#define FILES	 600
#define CHANGING 100
#define LOOKS	 400

static struct paths paths;
static atomic_bool over;

static void *crowd(void *arg)
{
	int fds[FILES];
	unsigned seed = 1;
	for (int i = 0; i < FILES; i++) {
		CLEAN_FREE char *path = xasprintf("%s/%d", paths.state, i);
		fds[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		flock(fds[i], LOCK_EX);
	}
	while (!atomic_load(&over)) {
		int from = rand_r(&seed) % (FILES - CHANGING);
		for (int i = 0; i < CHANGING; i++)
			flock(fds[from + i], LOCK_UN);
		for (int i = 0; i < CHANGING; i++)
			flock(fds[from + i], LOCK_EX);
	}
	for (int i = 0; i < FILES; i++)
		close(fds[i]);
	return NULL;
}

TEST(its_pid_is_found_in_a_crowd)
{
	int ready[2], missed = 0;
	char c;
	pthread_t t;
	CHECK_INT(instance_pid(&paths), 0);
	CHECK_INT(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct instance in;
		if (instance_claim(&paths, &in, NULL) || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	CHECK_INT(read(ready[0], &c, 1), 1);
	pthread_create(&t, NULL, crowd, NULL);
	for (int i = 0; i < LOOKS; i++)
		missed += instance_pid(&paths) != pid;
	atomic_store(&over, true);
	pthread_join(t, NULL);
	CHECK_INT(missed, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK_INT(instance_pid(&paths), 0);
	close(ready[0]);
	close(ready[1]);
}

static void *last_thread(void *arg)
{
	clock_sleep_ms(1500);
	_exit(0);
}

/* A daemon of this instance, in another process. dies: its end has begun, and takes 1.5 s. */
static pid_t daemon_of(bool dies)
{
	int ready[2];
	char c;
	pthread_t t;
	CHECK_INT(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct instance in;
		if (instance_claim(&paths, &in, NULL) || record_write(&paths, "/nowhere", "0:1", NULL))
			_exit(1);
		if (dies)
			pthread_create(&t, NULL, last_thread, NULL);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		if (dies)
			pthread_exit(NULL);
		for (;;)
			pause();
	}
	CHECK_INT(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

TEST(one_that_lives_is_in_the_way)
{
	struct instance in;
	struct err err = ERR_INIT;
	pid_t pid = daemon_of(false);
	CHECK_INT(instance_claim(&paths, &in, &err), -EBUSY);
	CHECK(strstr(err.text, "is mounted at /nowhere") != NULL);
	kill(pid, SIGKILL);
	CHECK_INT(instance_claim(&paths, &in, NULL), 0);
	instance_release(&in);
	waitpid(pid, NULL, 0);
}

/* On a busy machine one that was killed holds its lock for longer than anybody waits for one that lives. */
TEST(one_that_dies_is_waited_for)
{
	struct instance in;
	pid_t pid = daemon_of(true);
	CHECK_INT(instance_claim(&paths, &in, NULL), 0);
	instance_release(&in);
	waitpid(pid, NULL, 0);
}

__attribute__((constructor(101))) static void setup(void)
{
	static char folder[] = "/tmp/berthfs-instance-XXXXXX";
	paths.state = mkdtemp(folder);
}

__attribute__((destructor)) static void teardown(void)
{
	dir_remove(paths.state, NULL);
}

CHECK_MAIN()
