/* A connection to a tool daemon: opening, requests, deadlines. The caller's thread, which it blocks; must never wait on
 * a peer that says nothing, nor use a connection on which an answer is still outstanding. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "driver.h"
#include "env_call.h"

#define SILENCE_MS 60000  /* an emulated machine on a busy host may well need 20 s for a large fsync */
#define CALL_MS	   300000 /* pings keep a peer that waits; this ends one that only ever answers pings */
#define OPEN_MS	   30000
#define PING_MS	   5000
#define LOOK_MS	   100	/* how often the cancel flag is looked at */
#define GRACE_MS   1000 /* an answer that comes so soon after a cancel is taken: else the connection has to go */
#define ENTROPY	   64
#define HOME_MAX   1024

static int lost(struct env *env, struct err *err, const char *why)
{
	fd_close(&env->fd);
	return err_set(err, ENOTCONN, "the tool daemon of sandbox %" PRId64 " is gone: %s", env->id, why);
}

static void begin(struct env *env)
{
	env->deadline = clock_mono_ms() + env->call_ms;
	env->cancelled = 0;
}

/* Whether this call may go on: a peer that sends forever must not hold it up. */
static int may_go_on(struct env *env, struct err *err)
{
	int64_t now = clock_mono_ms();
	if (now >= env->deadline)
		return lost(env, err, "it does not come to an end with its answer");
	if (!env->cancel || !atomic_load(env->cancel))
		return 0;
	if (!env->cancelled)
		env->cancelled = now;
	if (now - env->cancelled < GRACE_MS)
		return 0;
	fd_close(&env->fd);
	return err_set(err, ECANCELED, "stopped before sandbox %" PRId64 " had answered", env->id);
}

/* Waits at most ms, less if something has to be looked at before. */
static int wait_for(struct env *env, short events, int64_t ms, struct err *err)
{
	int rc = may_go_on(env, err);
	if (rc)
		return rc;
	int64_t left = env->deadline - clock_mono_ms();
	ms = ms < left ? ms : left > 0 ? left : 0;
	struct pollfd p = {.fd = env->fd, .events = events};
	if (poll(&p, 1, (int)(env->cancel && ms > LOOK_MS ? LOOK_MS : ms)) < 0 && errno != EINTR)
		return lost(env, err, strerror(errno));
	return 0;
}

/* Sends it all, as long as the peer keeps taking some. */
static int send_all(struct env *env, const char *p, size_t n, struct err *err)
{
	int64_t heard = clock_mono_ms();
	while (n) {
		ssize_t r = send(env->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (r > 0) {
			p += r;
			n -= (size_t)r;
			heard = clock_mono_ms();
			continue;
		}
		if (r < 0 && errno != EAGAIN && errno != EINTR)
			return lost(env, err, strerror(errno));
		int64_t left = heard + env->silence_ms - clock_mono_ms();
		if (left <= 0)
			return lost(env, err, "it takes no more bytes");
		int rc = wait_for(env, POLLOUT, left, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* More bytes for the reader. Pings now and then, so that a peer which only waits is not taken for a lost one. */
static int receive(struct env *env, struct err *err)
{
	int64_t start = clock_mono_ms(), pinged = start;
	for (;;) {
		char room[65536];
		ssize_t n = recv(env->fd, room, sizeof room, MSG_DONTWAIT);
		if (n > 0) {
			wire_feed(&env->in, room, (size_t)n);
			return 0;
		}
		if (n == 0)
			return lost(env, err, "it closed the connection");
		if (errno != EAGAIN && errno != EINTR)
			return lost(env, err, strerror(errno));
		int64_t now = clock_mono_ms(), left = start + env->silence_ms - now, next = pinged + PING_MS - now;
		if (left <= 0)
			return lost(env, err, "it does not answer");
		if (next <= 0) {
			struct wire_out ping = {0};
			wire_begin(&ping, WIRE_PING, 0);
			wire_end(&ping, NULL, 0);
			int rc = send_all(env, ping.b.p, ping.b.n, err);
			wire_out_release(&ping);
			if (rc)
				return rc;
			pinged = now;
			next = PING_MS;
		}
		int rc = wait_for(env, POLLIN, left < next ? left : next, err);
		if (rc)
			return rc;
	}
}

struct wire_out *env_request(struct env *env, enum wire_op op)
{
	buf_reset(&env->out.b);
	wire_begin(&env->out, WIRE_REQUEST, ++env->last);
	wire_add_num(&env->out, WIRE_OP, op);
	return &env->out;
}

/* What the sandbox says must not be taken for what only this side can know: that a connection is lost, that someone
 * said stop. A file of the guest may well give such an error. */
static int remote_code(uint64_t code)
{
	static const int ours[] = {ENOTCONN, ETIMEDOUT, ECANCELED, EPROTO};
	if (code == 0 || code >= 4096)
		return EIO;
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (code == (uint64_t)ours[i])
			return EIO;
	return (int)code;
}

static int remote_error(struct env *env, const struct wire_msg *m, struct err *err)
{
	int code = remote_code(wire_num(m, WIRE_CODE, EIO));
	CLEAN_FREE char *text = wire_text(m, WIRE_TEXT);
	CLEAN_BUF struct buf clean = BUF_INIT;
	if (code == ESHUTDOWN)
		return lost(env, err, "it is shutting down");
	if (text)
		utf8_clean(&clean, text, strlen(text));
	return err_set(err, code, "%s", clean.n ? buf_str(&clean) : "the tool daemon refused");
}

int env_call(struct env *env, const void *payload, size_t n, struct wire_msg *m, struct err *err)
{
	struct wire_msg room;
	m = m ? m : &room;
	if (env->fd < 0)
		return lost(env, err, "the connection was lost before");
	wire_end(&env->out, payload, n);
	begin(env);
	int rc = send_all(env, env->out.b.p, env->out.b.n, err);
	while (!rc && !(rc = may_go_on(env, err))) {
		int got = wire_next(&env->in, m);
		if (got < 0)
			return lost(env, err, "it sent a malformed frame");
		if (!got)
			rc = receive(env, err);
		else if ((m->type == WIRE_RESULT || m->type == WIRE_ERROR) && m->id == env->last)
			return m->type == WIRE_RESULT ? 0 : remote_error(env, m, err);
		else if (m->type != WIRE_PONG)
			return lost(env, err, "it answered what was not asked");
	}
	return rc;
}

/* "tool\n" and the answer's line, byte by byte, since frames follow it. */
static int greet(struct env *env, struct err *err)
{
	CLEAN_BUF struct buf line = BUF_INIT;
	begin(env);
	int rc = send_all(env, "tool\n", 5, err);
	int64_t end = clock_mono_ms() + env->silence_ms;
	while (!rc && !buf_ends(&line, "\n") && line.n < 600) {
		char c;
		ssize_t n = recv(env->fd, &c, 1, MSG_DONTWAIT);
		int64_t left = end - clock_mono_ms();
		if (n == 1)
			buf_addc(&line, c);
		else if (n == 0)
			return lost(env, err, "it closed the connection");
		else if (errno != EAGAIN && errno != EINTR)
			return lost(env, err, strerror(errno));
		else if (left <= 0)
			return lost(env, err, "it does not answer");
		else
			rc = wait_for(env, POLLIN, left, err);
	}
	if (rc || !strcmp(buf_str(&line), "ok\n"))
		return rc;
	const char *words = !strncmp(buf_str(&line), "error ", 6) ? line.p + 6 : "it speaks another protocol";
	return err_set(err, ENOTCONN, "sandbox %" PRId64 ": %s", env->id, words);
}

/* Paths are made from it, shown to people and put into prompts. */
static bool home_ok(const char *home)
{
	size_t n = home ? strlen(home) : 0;
	if (n < 2 || n > HOME_MAX || *home != '/' || !utf8_valid(home, n))
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)home[i] < ' ' || home[i] == 0x7f)
			return false;
	return true;
}

/* It goes into environments and configuration: digits behind a fixed beginning, else there is none. */
static char *url_of(const struct wire_msg *m)
{
	static const char begin[] = "http://127.0.0.1:";
	CLEAN_FREE char *url = wire_text(m, WIRE_URL);
	size_t n = url ? strlen(url) : 0, k = sizeof begin - 1;
	if (n <= k || n > k + 5 || strncmp(url, begin, k) != 0 || strspn(url + k, "0123456789") != n - k)
		return NULL;
	return take(url);
}

static int hello(struct env *env, struct err *err)
{
	unsigned char entropy[ENTROPY];
	struct wire_msg m;
	ssize_t n = getrandom(entropy, sizeof entropy, 0);
	struct wire_out *o = env_request(env, WIRE_HELLO);
	wire_add_num(o, WIRE_VERSION_TAG, WIRE_VERSION);
	wire_add_num(o, WIRE_TIME, (uint64_t)clock_real_ms());
	int rc = env_call(env, entropy, n > 0 ? (size_t)n : 0, &m, err);
	if (rc)
		return rc;
	env->home = wire_text(&m, WIRE_HOME);
	env->url = url_of(&m);
	return home_ok(env->home) ? 0 : lost(env, err, "its answer has no home");
}

void env_hurry(struct env *env, int ms)
{
	env->silence_ms = env->call_ms = ms;
}

int env_open_at(const char *socket, int64_t id, int ms, const atomic_bool *cancel, struct env **out, struct err *err)
{
	*out = NULL;
	struct env *env = xcalloc(1, sizeof *env);
	env->id = id;
	env->socket = xstrdup(socket);
	env->cancel = cancel;
	env_hurry(env, ms);
	int64_t start = clock_mono_ms();
	env->fd = unix_connect(socket, NULL);
	int rc = env->fd < 0 ? err_set(err, ENOTCONN, "sandbox %" PRId64 " is not running", id) : greet(env, err);
	rc = rc ? rc : hello(env, err);
	if (rc) {
		/* a peer that is there and silent may come to life yet: the caller can tell */
		bool silent = rc == -ENOTCONN && clock_mono_ms() - start >= ms;
		env_close(env);
		return silent ? err_set(err, ETIMEDOUT, "sandbox %" PRId64 " does not answer", id) : rc;
	}
	env->silence_ms = SILENCE_MS;
	env->call_ms = CALL_MS;
	*out = env;
	return 0;
}

int env_open_within(const struct paths *paths, int64_t id, int ms, const atomic_bool *cancel, struct env **out,
		    struct err *err)
{
	CLEAN_FREE char *socket = sandbox_socket(paths, id);
	return env_open_at(socket, id, ms, cancel, out, err);
}

int env_open(const struct paths *paths, const char *kind, int64_t id, const atomic_bool *cancel, struct env **out,
	     struct err *err)
{
	return env_open_within(paths, id, OPEN_MS, cancel, out, err);
}

void env_close(struct env *env)
{
	if (!env)
		return;
	fd_close(&env->fd);
	wire_reader_release(&env->in);
	wire_out_release(&env->out);
	free(env->socket);
	free(env->home);
	free(env->url);
	free(env->guard);
	free(env);
}

bool env_lost(const struct env *env)
{
	return env->fd < 0;
}

const char *env_home(const struct env *env)
{
	return env->home;
}

const char *env_gateway_url(const struct env *env)
{
	return env->url;
}

int env_shutdown(struct env *env, struct err *err)
{
	env_request(env, WIRE_SHUTDOWN);
	return env_call(env, NULL, 0, NULL, err);
}

static int ask_busy(struct env *env, struct env_busy *out, struct err *err)
{
	struct wire_msg m;
	CLEAN_BUF struct buf clean = BUF_INIT;
	env_request(env, WIRE_BUSY);
	int rc = env_call(env, NULL, 0, &m, err);
	if (rc)
		return rc;
	CLEAN_FREE char *text = wire_text(&m, WIRE_TEXT);
	uint64_t state = wire_num(&m, WIRE_STATE, 1), cpu = wire_num(&m, WIRE_SIZE, UINT64_MAX);
	utf8_clean(&clean, text ? text : "", text ? strlen(text) : 0);
	size_t n = clean.n;
	while (n >= sizeof out->words || (n && n < clean.n && ((unsigned char)clean.p[n] & 0xc0) == 0x80))
		n--; /* cut where a character begins */
	buf_cut(&clean, n);
	*out = (struct env_busy){.busy = state != 0, .cpu_ms = cpu < INT64_MAX ? (int64_t)cpu : -1};
	snprintf(out->words, sizeof out->words, "%s", buf_str(&clean));
	text_one_line(out->words, sizeof out->words - 1);
	return 0;
}

int env_busy(const struct paths *paths, const char *kind, int64_t id, int ms, struct env_busy *out, struct err *err)
{
	struct env *env = NULL;
	int64_t end = clock_mono_ms() + ms;
	int rc = env_open_within(paths, id, ms, NULL, &env, err);
	if (rc)
		return rc;
	env_hurry(env, (int)(end - clock_mono_ms()));
	rc = ask_busy(env, out, err);
	env_close(env);
	return rc;
}
