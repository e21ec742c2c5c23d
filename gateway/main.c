/* The gateway's process: puts itself out of reach, opens what it needs, serves until it is told to end. It outlives the
 * daemon that started it. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "gateway.h"
#include "gw.h"
#include "resolve.h"

#define CONNS_MAX 8192
#define OWN_FDS	  200 /* descriptors for all but clients' connections, each of which may lead to one of its own */
#define LARGE	  (256 << 10) /* bytes; what is larger goes back to the system when it is freed */
#define TELL	  16	      /* records that are told of in one go */
#define TABLE	  4096	      /* descriptors */

struct options {
	const char *state, *runtime, *listen, *sync, *ready, *segment;
};

static int parse(int argc, char **argv, struct options *o)
{
	const struct {
		const char *name, **value;
	} known[] = {{"--state", &o->state}, {"--runtime", &o->runtime}, {"--listen", &o->listen},
		     {"--sync", &o->sync},   {"--ready", &o->ready},	 {"--segment", &o->segment}};
	for (int i = 1; i < argc; i += 2) {
		bool found = false;
		for (size_t j = 0; j < ARRAY_LEN(known) && i + 1 < argc; j++)
			if (!strcmp(argv[i], known[j].name)) {
				*known[j].value = argv[i + 1];
				found = true;
			}
		if (!found)
			return -EINVAL;
	}
	return o->state && o->runtime ? 0 : -EINVAL;
}

/* Records that are written, each told to who asked for it. */
static void done_ready(struct source *s, uint32_t events)
{
	struct gw *g = (struct gw *)((char *)s - offsetof(struct gw, done_source));
	int told = 0;
	for (struct queue_node *n = queue_pop_all(&g->done), *next; n; n = next) {
		struct ledger_record *r = queue_entry(n, struct ledger_record, node);
		next = n->next;
		g->n_handed--;
		r->done(r);
		if (++told % TELL == 0) { /* those that may go now go out, and what streams already is passed on */
			forward_curl_timer(g);
			g->upstream.ready(&g->upstream, EPOLLIN);
		}
	}
	attach_tell(g);
}

struct signals {
	struct source source;
	struct gw *gw;
};

static void end_all(struct gw *g)
{
	g->stopping = true;
	list_each_safe (i, &g->calls)
		forward_cut(list_entry(i, struct call, link), "the gateway ended");
	pull_stop(g);
	list_each_safe (j, &g->tunnels)
		egress_cut(egress_of(j), "the gateway ended");
}

static void signal_ready(struct source *s, uint32_t events)
{
	struct signalfd_siginfo info;
	if (read(s->fd, &info, sizeof info) == sizeof info)
		((struct signals *)s)->gw->stopping = true;
}

/* A policy that cannot be read lets nothing through; the text stays for its owner to mend. */
static int open_policy(struct gw *g, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/policy", g->dir);
	CLEAN_BUF struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	if (!file_exists(path)) {
		int rc = file_write(path, policy_default, strlen(policy_default), 0600, err);
		if (rc)
			return rc;
	}
	if (!file_read(path, &text, 1 << 20, &why) && !policy_parse(buf_str(&text), text.n, &g->policy, &why))
		return 0;
	log_error("%s: %s; nothing is let through until it is put right", path, why.text);
	return policy_parse("", 0, &g->policy, err);
}

static int gather(void *arg, const char *aside, size_t n)
{
	return spend_gather(&((struct gw *)arg)->spend, aside, n);
}

static bool gathered(void *arg)
{
	return spend_full(&((struct gw *)arg)->spend);
}

static int write_gathered(sqlite3 *db, void *arg, struct err *err)
{
	return spend_write(db, &((struct gw *)arg)->spend, err);
}

static void written(void *arg)
{
	spend_forget(&((struct gw *)arg)->spend);
}

static const struct ledger_tables tables = {gather, gathered, write_gathered, written};

static int open_ledger(struct gw *g, const struct options *o, struct err *err)
{
	CLEAN_FREE char *schema = xasprintf("%s%s", spend_schema, token_schema);
	struct ledger_config c = {.dir = g->dir,
				  .schema = schema,
				  .tables = &tables,
				  .arg = g,
				  .sync_each = o->sync && !strcmp(o->sync, "each"),
				  .segment = o->segment ? strtoull(o->segment, NULL, 10) : 0};
	int rc = queue_init(&g->done);
	rc = rc ? err_sys(err, -rc, "no queue") : ledger_open(&c, &g->done, &g->ledger, &g->unknown, err);
	if (rc)
		return rc;
	if (g->unknown)
		log_warn("the outcome of %d requests of the last run is not known; each is charged as reserved",
			 g->unknown);
	g->done_source = (struct source){.fd = queue_fd(&g->done), .ready = done_ready};
	rc = source_add(g, &g->done_source, EPOLLIN);
	if (rc)
		return err_sys(err, -rc, "epoll");
	meter_init(&g->meter, ledger_reader(g->ledger));
	return tokens_load(&g->tokens, ledger_reader(g->ledger), err);
}

static int open_sockets(struct gw *g, const struct options *o, struct err *err)
{
	CLEAN_FREE char *daemon = xasprintf("%s/gateway.sock", g->runtime),
			*control = xasprintf("%s/gateway-control.sock", g->runtime);
	int rc = listen_unix(g, LISTEN_DAEMON, daemon, NULL, NULL, err);
	if (!rc && o->listen)
		rc = listen_set(g, o->listen, err);
	list_each (i, &g->tokens.all) {
		struct err why = ERR_INIT;
		if (!rc && sandbox_listen(g, list_entry(i, struct token, link), &why))
			log_warn("%s", why.text); /* its folder is gone: the sandbox is, too */
	}
	return rc ? rc : listen_unix(g, LISTEN_CONTROL, control, NULL, NULL, err);
}

/* One folder, and none above it: an instance that was removed must not come back half. */
static int make_dir(const char *path, struct err *err)
{
	return mkdir(path, 0700) && errno != EEXIST ? err_sys(err, errno, "cannot make %s", path) : 0;
}

static int open_all(struct gw *g, const struct options *o, struct signals *sig, struct err *err)
{
	CLEAN_FREE char *keys = xasprintf("%s/keys", g->dir);
	sigset_t set;
	int rc = keys_lock_down(err);
	unsetenv("SSLKEYLOGFILE"); /* by which libcurl would write down the secrets of its connections */
	if (!rc)
		rc = make_dir(g->dir, err);
	if (!rc)
		rc = make_dir(g->runtime, err);
	if (rc)
		return rc;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a limit on files is told like a full disk */
	g->epoll = epoll_create1(EPOLL_CLOEXEC);
	sig->source = (struct source){.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .ready = signal_ready};
	sig->gw = g;
	if (g->epoll < 0 || source_add(g, &sig->source, EPOLLIN))
		return err_sys(err, errno, "epoll");
	machine_hosts(&g->registries);
	if ((rc = sha_init(&g->sha, err)) || (rc = tokens_init(&g->tokens, err)) ||
	    (rc = keys_open(keys, getenv("CREDENTIALS_DIRECTORY"), &g->keys, err)) || (rc = open_policy(g, err)) ||
	    (rc = open_ledger(g, o, err)) || (rc = forward_init(g, err)) || (rc = resolve_init(g, err)))
		return rc;
	return open_sockets(g, o, err);
}

static void tell_ready(const struct options *o, int rc, const struct err *err)
{
	int fd = o->ready ? atoi(o->ready) : -1;
	if (fd < 0)
		return;
	char text[700];
	int n = snprintf(text, sizeof text, "%d %s", rc, rc ? err->text : "ready");
	fd_write_full(fd, text, (size_t)n);
	close(fd);
}

/* Requests end, what they leave is written, then the chain is closed. */
static void close_all(struct gw *g, struct err *err)
{
	end_all(g); /* before their connections are closed: it is not their clients that leave */
	list_each_safe (i, &g->listeners)
		listener_close(g, list_entry(i, struct listener, link));
	gw_loop(g, true, err);
	resolve_release(g);
	record_flush(g);
	ledger_close(g->ledger);
	g->ledger = NULL;
	for (struct queue_node *n; (n = queue_pop(&g->done));) {
		struct ledger_record *r = queue_entry(n, struct ledger_record, node);
		r->done(r);
	}
	control_release(g); /* whoever asked for the end sees it here */
	attach_release(g);
	gw_bury(g);
	forward_release(g);
	meter_release(&g->meter);
	spend_release(&g->spend);
	tokens_release(&g->tokens);
	sha_release(&g->sha);
	policy_put(g->policy);
	words_release(&g->registries);
	keys_close(g->keys);
	close(g->epoll);
}

/* As many as there may be, and no more connections than leave some: the daemon has to be heard whatever clients do. */
static void many_descriptors(struct gw *g)
{
	struct rlimit r = {.rlim_max = 1024};
	if (!getrlimit(RLIMIT_NOFILE, &r)) {
		r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
		setrlimit(RLIMIT_NOFILE, &r);
	}
	/* The kernel's table of them is made large while there is one thread: later it would wait for all processors
	 * each time that it doubles the table, and socket() with it, for tens of milliseconds */
	int high = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, r.rlim_cur > TABLE ? TABLE - 1 : (int)r.rlim_cur / 2);
	fd_close(&high);
	int most = r.rlim_max < 65536 ? ((int)r.rlim_max - OWN_FDS) / 2 : CONNS_MAX;
	g->most_conns = most < 32 ? 32 : most > CONNS_MAX ? CONNS_MAX : most;
}

int gateway_main(int argc, char **argv)
{
	struct options o = {0};
	struct err err = ERR_INIT;
	struct signals sig = {0};
	if (parse(argc, argv, &o)) {
		fprintf(stderr, "berthfs: gateway --state DIR --runtime DIR [--listen ADDRESS:PORT] [--sync each]\n");
		return EX_USAGE;
	}
	struct gw *g = xcalloc(1, sizeof *g);
	g->dir = xasprintf("%s/gateway", o.state);
	g->runtime = xstrdup(o.runtime);
	g->started_ms = clock_mono_ms();
	struct list *lists[] = {&g->listeners, &g->conns,    &g->calls, &g->tunnels, &g->pulls,
				&g->controls,  &g->attached, &g->dead,	&g->again,   &g->unsent};
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		list_init(lists[i]);
	many_descriptors(g);
	mallopt(M_MMAP_THRESHOLD, LARGE);      /* else the memory of large bodies stays with the process */
	mallopt(M_TRIM_THRESHOLD, 16 * LARGE); /* setting the one makes the other small and fixed */
	int rc = open_all(g, &o, &sig, &err);
	tell_ready(&o, rc, &err);
	if (rc) {
		log_error("gateway: %s", err.text);
		_exit(rc == -EBUSY ? EX_TEMPFAIL : EX_UNAVAILABLE); /* threads may run: nothing is taken apart */
	}
	rc = gw_loop(g, false, &err);
	close_all(g, &err);
	if (rc)
		log_error("gateway: %s", err.text);
	free(g->dir);
	free(g->runtime);
	free(g->listen);
	free(g);
	return rc ? EX_OSERR : EX_OK;
}

/* ---- berthfs ledger verify ---- */

int gateway_ledger_main(const struct paths *paths, int argc, char **argv)
{
	CLEAN_FREE char *dir = xasprintf("%s/gateway", paths->state);
	struct ledger_check c = {.dir = dir};
	CLEAN_BUF struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--expect-head") && i + 1 < argc)
			c.expect_head = argv[++i];
		else if (!strcmp(argv[i], "--key") && i + 1 < argc)
			c.key = argv[++i];
		else if (*argv[i] != '-' && !c.file)
			c.file = argv[i];
		else
			return EX_USAGE;
	}
	if (argc < 2 || strcmp(argv[1], "verify"))
		return EX_USAGE;
	int rc = ledger_check(&c, &out, &err);
	fputs(buf_str(&out), stdout);
	if (!rc)
		printf("%.0f records/s\n", (double)c.records / (c.seconds > 0 ? c.seconds : 1e-9));
	if (rc && rc != -EBADMSG)
		fprintf(stderr, "berthfs: %s\n", err.text);
	return !rc ? EX_OK : rc == -EBADMSG ? EX_DATAERR : rc == -EINVAL ? EX_USAGE : EX_NOINPUT;
}
