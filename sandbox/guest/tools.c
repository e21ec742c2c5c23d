/* The tool daemon's core: its configuration and the threads of its connections. Any thread. */
#include "tools.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "conn.h"

#define STACK	  (256 * 1024)
#define CONNS_MAX 256 /* more at once are refused: something leaks connections */

struct tools {
	struct tools_config config;
	struct jobs *jobs;
	struct protect *protect;
	atomic_int conns;
};

struct start {
	struct conn conn;
	enum tools_how how;
};

int tools_new(const struct tools_config *config, struct tools **out, struct err *err)
{
	struct tools *t = xcalloc(1, sizeof *t);
	t->config = *config;
	t->config.jobs.home = xstrdup(config->jobs.home);
	t->config.url = xstrdup(config->url);
	t->config.busy = xstrdup(config->busy);
	t->protect = protect_new(t->config.jobs.home);
	*out = t;
	return jobs_new(&config->jobs, &t->jobs, err);
}

static void *serve(void *arg)
{
	struct start *s = arg;
	struct tools *t = s->conn.tools;
	conn_serve(&s->conn, s->how);
	bool shutdown = s->conn.shutdown;
	free(s);
	atomic_fetch_sub(&t->conns, 1);
	if (shutdown)
		t->config.shutdown(t->config.arg);
	return NULL;
}

int tools_serve(struct tools *t, int fd, enum tools_how how)
{
	if (atomic_fetch_add(&t->conns, 1) >= CONNS_MAX) {
		atomic_fetch_sub(&t->conns, 1);
		close(fd);
		return -EMFILE;
	}
	struct start *s = xcalloc(1, sizeof *s);
	s->how = how;
	s->conn = (struct conn){
		.tools = t, .config = &t->config, .jobs = t->jobs, .protect = t->protect, .fd = fd, .put = PUT_INIT};
	pthread_attr_t attr;
	pthread_t thread;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	int rc = -pthread_create(&thread, &attr, serve, s);
	pthread_attr_destroy(&attr);
	if (rc) {
		atomic_fetch_sub(&t->conns, 1);
		close(fd);
		free(s);
	}
	return rc;
}

int tools_connections(struct tools *t)
{
	return atomic_load(&t->conns);
}

struct jobs *tools_jobs(struct tools *t)
{
	return t->jobs;
}

void tools_close(struct tools *t)
{
	jobs_close(t->jobs);
}

void tools_stop(struct tools *t)
{
	jobs_stop(t->jobs);
}
