/* `berthfs doctor`: proves on this machine what the gateway promises, each denial and the swap of a token for a key. It
 * runs a gateway of its own in a folder that is removed afterwards, with a key that was made up for it and a provider
 * on loopback that tells what came. Must never touch the instance's own keys, ledger or gateway; of its policy it only
 * reads what is switched on. One thread. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "doctor_peer.h"
#include "gateway.h"
#include "ledger.h"
#include "policy.h"

#define ANSWER_MS 20000 /* on a busy machine, where nothing may be called broken that is slow */
#define LEDGER_MS 20000
#define TOKEN	  80

enum box { DAEMON, NONE, INTERNET, BOXES }; /* sockets; each has its token */

struct doctor {
	void (*line)(void *arg, bool ok, const char *name, const char *words);
	void *arg;
	struct paths paths; /* of the scratch instance */
	char *folder, key[64];
	char token[BOXES][TOKEN];
	char *socket[BOXES];
	struct peer peer;
	int bad;
};

__attribute__((format(printf, 4, 5))) static void say(struct doctor *d, bool ok, const char *name, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *words = xvasprintf(fmt, ap);
	va_end(ap);
	d->bad += !ok;
	d->line(d->arg, ok, name, words);
}

/* ---- one request ---- */

struct answer {
	int status;
	struct buf text; /* head and body */
	bool ended;	 /* the connection is over */
};

static void answer_release(struct answer *a)
{
	buf_release(&a->text);
}
#define CLEAN_ANSWER __attribute__((cleanup(answer_release)))

/* Has all come that its head promises? A connection may stay open after it. */
static bool whole(const struct buf *b)
{
	const char *text = buf_str(b), *end = strstr(text, "\r\n\r\n"),
		   *length = strcasestr(text, "\r\ncontent-length: ");
	return end && length && length < end && strlen(end + 4) >= strtoul(length + 18, NULL, 10);
}

/* Reads until the end, until (or NULL) has come, or time is up. */
static void take_answer(int fd, const char *until, int ms, struct answer *a)
{
	int64_t end = clock_mono_ms() + ms;
	while (!a->ended && !whole(&a->text) && !(until && strstr(buf_str(&a->text), until))) {
		char piece[4096];
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = end - clock_mono_ms();
		if (left <= 0 || poll(&p, 1, (int)left) <= 0)
			break;
		ssize_t n = recv(fd, piece, sizeof piece, 0);
		a->ended = n <= 0;
		buf_add(&a->text, piece, n > 0 ? (size_t)n : 0);
	}
	if (sscanf(buf_str(&a->text), "HTTP/1.1 %d", &a->status) != 1)
		a->status = 0;
}

/* head: lines that are added, each with its end. The connection, or -1. */
static int send_request(const char *socket, const char *request, const char *token, const char *head, const char *body)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FD int fd = unix_connect(socket, NULL);
	bool proxy = !strncmp(request, "CONNECT", 7);
	buf_addf(&b, "%s HTTP/1.1\r\nHost: gateway\r\n%s%s\r\n%s", request,
		 proxy ? "Proxy-Authorization: Bearer " : "x-api-key: ", token,
		 proxy || strstr(head, "Connection: ") ? "" : "Connection: close\r\n");
	buf_adds(&b, head);
	if (body)
		buf_addf(&b, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
	buf_addf(&b, "\r\n%s", body ? body : "");
	return fd < 0 || fd_write_full(fd, b.p, b.n) ? -1 : take_fd(&fd);
}

/* ---- the denials ---- */

#define MESSAGE(MORE)                                                                                                  \
	"{\"model\":\"claude-test\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" MORE "}"

static const struct probe {
	const char *name, *about, *request, *head, *body;
	enum box box, token; /* BOXES: one that was made up */
	int status;
	const char *rule;
} probes[] = {
	{"deny: token", "a token that was never given is refused", "POST /v1/messages", "", MESSAGE(""), DAEMON, BOXES,
	 401, "token"},
	{"deny: sharing", "a sandbox's token counts on its own socket alone", "POST /v1/messages", "", MESSAGE(""),
	 NONE, INTERNET, 403, "token.channel"},
	{"deny: route", "a call that the policy does not name is refused", "POST /v1/files", "", MESSAGE(""), NONE,
	 NONE, 403, "route"},
	{"deny: query", "so is a word after the question mark", "POST /v1/messages?debug=1", "", MESSAGE(""), NONE,
	 NONE, 403, "query"},
	{"deny: model", "a model that the policy does not name is refused", "POST /v1/messages", "",
	 "{\"model\":\"other\",\"max_tokens\":9,\"messages\":[]}", NONE, NONE, 403, "model"},
	{"deny: field", "a field that the policy does not name is refused (mcp_servers)", "POST /v1/messages", "",
	 MESSAGE(",\"mcp_servers\":[]"), NONE, NONE, 403, "field"},
	{"deny: beta", "so is a beta that it does not name (stored files)", "POST /v1/messages",
	 "anthropic-beta: files-api-2025-04-14\r\n", MESSAGE(""), NONE, NONE, 403, "beta"},
	{"deny: tools", "the provider's own tools are refused (web search)", "POST /v1/messages", "",
	 MESSAGE(",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]"), NONE, NONE, 403,
	 "feature.server-tools"},
	{"deny: twice", "a body that two readers could read differently is refused", "POST /v1/messages", "",
	 MESSAGE(",\"model\":\"claude-other\""), NONE, NONE, 400, "json"},
	{"deny: smuggling", "a request with two lengths is refused", "POST /v1/messages",
	 "Transfer-Encoding: chunked\r\n", MESSAGE(""), NONE, NONE, 400, ""},
	{"deny: upgrade", "a WebSocket is refused", "GET /v1/responses",
	 "Upgrade: websocket\r\nConnection: upgrade\r\n", NULL, NONE, NONE, 426, "upgrade"},
	{"deny: network", "network none: the proxy refuses every host", "CONNECT example.org:443", "", NULL, NONE, NONE,
	 403, "egress.none"},
	{"deny: address", "network internet: an address in place of a name is refused", "CONNECT 169.254.169.254:80",
	 "", NULL, INTERNET, INTERNET, 403, "egress.literal"},
	{"deny: port", "network internet: other ports than 443 are refused", "CONNECT example.org:22", "", NULL,
	 INTERNET, INTERNET, 403, "egress.port"},
	{"deny: loopback", "network internet: a name that leads to a private address is refused",
	 "CONNECT localhost:443", "", NULL, INTERNET, INTERNET, 403, "egress.address"},
};

static void try(struct doctor *d, const struct probe *p)
{
	static const char made_up[] = "berth-0000000000000000000000000000000000000000000000000000000000000000";
	CLEAN_ANSWER struct answer a = {0};
	int before = atomic_load(&d->peer.requests);
	CLEAN_FD int fd = send_request(d->socket[p->box], p->request, p->token == BOXES ? made_up : d->token[p->token],
				       p->head, p->body);
	take_answer(fd, NULL, fd < 0 ? 0 : ANSWER_MS, &a);
	bool passed = atomic_load(&d->peer.requests) != before;
	bool ok = a.status == p->status && strstr(buf_str(&a.text), p->rule) && !passed;
	if (ok)
		say(d, true, p->name, "%s: %d%s%s", p->about, p->status, *p->rule ? " " : "", p->rule);
	else
		say(d, false, p->name, "%s: NOT SO, the answer was %d%s", p->about, a.status,
		    passed ? " and it reached the provider" : "");
}

/* ---- what has to work, and what comes of it ---- */

static void try_swap(struct doctor *d)
{
	CLEAN_ANSWER struct answer a = {0};
	CLEAN_FD int fd = send_request(d->socket[NONE], "POST /v1/messages", d->token[NONE], "", MESSAGE(""));
	take_answer(fd, NULL, fd < 0 ? 0 : ANSWER_MS, &a);
	bool got = a.status == 200 && atomic_load(&d->peer.with_key) == 1;
	bool clean = got && strstr(buf_str(&a.text), "your key is ") && !strstr(buf_str(&a.text), d->key);
	say(d, got, "key swap", "a sandbox's token is swapped for the key%s",
	    got ? ": the provider saw the key and not the token" : ": NOT SO");
	say(d, clean, "key echo", "a provider that sends the key back: %s",
	    clean ? "it is blotted out" : "IT COMES THROUGH");
}

static void try_revoke(struct doctor *d)
{
	CLEAN_ANSWER struct answer a = {0};
	CLEAN_FD int fd = send_request(d->socket[DAEMON], "POST /v1/messages", d->token[DAEMON], "",
				       "{\"model\":\"claude-slow\",\"max_tokens\":9,\"stream\":true,\"messages\":[]}");
	take_answer(fd, "data: ", fd < 0 ? 0 : ANSWER_MS, &a);
	bool began = strstr(buf_str(&a.text), "data: ");
	gateway_token_revoke(&d->paths, "engine", "doctor", NULL);
	take_answer(fd, NULL, 1000, &a);
	bool ok = began && a.ended && !strstr(buf_str(&a.text), "\r\n0\r\n\r\n");
	say(d, ok, "revoked", "a token that is taken back cuts its streams, not as if they were complete%s",
	    ok ? "" : ": NOT SO");
}

static void try_limit(struct doctor *d, const char *policy)
{
	CLEAN_ANSWER struct answer a = {0};
	CLEAN_FREE char *tight = xasprintf("%slimit session tokens 5\n", policy);
	int before = atomic_load(&d->peer.requests);
	int rc = gateway_policy_set(&d->paths, tight, strlen(tight), NULL);
	CLEAN_FD int fd = send_request(d->socket[NONE], "POST /v1/messages", d->token[NONE], "", MESSAGE(""));
	take_answer(fd, NULL, fd < 0 ? 0 : ANSWER_MS, &a);
	bool ok = !rc && a.status == 429 && atomic_load(&d->peer.requests) == before;
	say(d, ok, "deny: limit", "a request beyond a limit is refused before it is sent%s",
	    ok ? ": 429 limit.session.tokens" : ": NOT SO");
}

static int count(const char *text, const char *part)
{
	int n = 0;
	for (const char *p = text; (p = strstr(p, part)); p++)
		n++;
	return n;
}

/* Denials in the ledger, once it has as many as there should be: they are written without holding up the answer. */
static int denials(struct doctor *d, int want)
{
	int found = 0;
	for (int64_t end = clock_mono_ms() + LEDGER_MS; found < want && clock_mono_ms() < end; clock_sleep_ms(10)) {
		CLEAN_BUF struct buf lines = BUF_INIT;
		if (gateway_ledger_read(&d->paths, 0, 1 << 20, &lines, NULL, NULL))
			return -1;
		/* A host is judged by its name at once, and by its addresses when they are known: in the outcome. */
		found = count(buf_str(&lines), "\"verdict\":\"denied\"") +
			count(buf_str(&lines), "\"result\":\"egress.");
	}
	return found;
}

static void try_ledger(struct doctor *d)
{
	CLEAN_FREE char *dir = xasprintf("%s/gateway", d->paths.state);
	CLEAN_BUF struct buf out = BUF_INIT;
	struct ledger_check c = {.dir = dir};
	int want = (int)ARRAY_LEN(probes) + 1; /* and the limit */
	int found = denials(d, want), rc = ledger_check(&c, &out, NULL);
	say(d, !rc && found == want, "ledger", "%d of %d denials are in it, and its chain %s", found, want,
	    rc ? "DOES NOT HOLD" : "holds");
}

static void custody(struct doctor *d)
{
	CLEAN_BUF struct buf status = BUF_INIT;
	bool secret = !gateway_status(&d->paths, &status, NULL) && strstr(buf_str(&status), "keys secret memory");
	say(d, true, "key custody", "%s",
	    secret ? "keys are in memory that is out of the kernel's own map, and of /proc (memfd_secret)"
		   : "keys are in locked memory, out of dumps; this kernel has no memfd_secret (boot it with "
		     "secretmem.enable=1)");
}

/* What the owner has switched on, since the rest of this speaks of the defaults. */
static void own_policy(struct doctor *d, const struct paths *paths)
{
	static const char *const names[] = {"server-tools", "url-content", "stored-objects"};
	CLEAN_FREE char *path = xasprintf("%s/gateway/policy", paths->state);
	CLEAN_BUF struct buf text = BUF_INIT, on = BUF_INIT;
	struct policy *p = NULL;
	struct err err = ERR_INIT;
	if (!file_exists(path))
		return;
	int rc = file_read(path, &text, 1 << 20, &err);
	rc = rc ? rc : policy_parse(buf_str(&text), text.n, &p, &err);
	for (size_t i = 0; p && i < ARRAY_LEN(names); i++)
		if (p->features & 1 << i)
			buf_addf(&on, "%s%s", on.n ? ", " : "", names[i]);
	say(d, !rc, "policy", "%s%s%s", rc ? err.text : "yours holds",
	    rc || !on.n ? "" : "; it lets through what is off by default: ", buf_str(&on));
	policy_put(p);
}

/* ---- the scratch instance ---- */

static char *policy_of(const struct doctor *d)
{
	struct buf b = BUF_INIT;
	buf_addf(&b, "provider doctor anthropic http://127.0.0.1:%d\nmodel doctor claude-*\n", d->peer.port);
	for (const char *p = policy_default; *p;) {
		size_t n = strcspn(p, "\n");
		if (!strncmp(p, "route ", 6) || !strncmp(p, "field ", 6))
			buf_add(&b, p, n + 1);
		p += n + 1;
	}
	return buf_take(&b);
}

static int make(struct doctor *d, const struct paths *paths, struct err *err)
{
	unsigned char raw[16];
	const char *tmp = getenv("TMPDIR");
	d->folder = xasprintf("%s/berthfs-doctor-XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
	if (getrandom(raw, sizeof raw, 0) != sizeof raw || !mkdtemp(d->folder)) {
		err_sys(err, errno, "cannot make the folder %s", d->folder);
		free(take(d->folder));
		return -err->code;
	}
	memcpy(d->key, "sk-doctor-", 10);
	ledger_hex(raw, sizeof raw, d->key + 10);
	d->paths = (struct paths){.state = xasprintf("%s/state", d->folder),
				  .runtime = xasprintf("%s/run", d->folder),
				  .self = paths->self};
	int rc = dir_make(d->paths.state, 0700, err);
	return rc ? rc : peer_start(&d->peer, d->key, err);
}

static int set_up(struct doctor *d, const char *policy, struct err *err)
{
	static const char *const networks[BOXES] = {"none", "none", "internet"};
	unsetenv("CREDENTIALS_DIRECTORY"); /* a scratch instance gets no real key */
	int rc = gateway_start(&d->paths, NULL, err);
	rc = rc ? rc : gateway_policy_set(&d->paths, policy, strlen(policy), err);
	rc = rc ? rc : gateway_key_set(&d->paths, "doctor", d->key, strlen(d->key), err);
	for (int i = 0; i < BOXES && !rc; i++) {
		CLEAN_FREE char *session = i == DAEMON ? xstrdup("doctor") : xasprintf("doctor-%s", networks[i]);
		d->socket[i] =
			i == DAEMON ? gateway_socket(&d->paths) : xasprintf("%s/%s.sock", d->folder, networks[i]);
		rc = gateway_token_mint(&d->paths, i == DAEMON ? "engine" : "sandbox", session, "doctor", networks[i],
					i == DAEMON ? NULL : d->socket[i], d->token[i], TOKEN, err);
	}
	return rc;
}

static void tear_down(struct doctor *d)
{
	if (d->paths.state)
		gateway_stop(&d->paths, NULL);
	peer_stop(&d->peer);
	if (d->folder)
		dir_remove(d->folder, NULL);
	for (int i = 0; i < BOXES; i++)
		free(d->socket[i]);
	free(d->folder);
	free(d->paths.state);
	free(d->paths.runtime);
}

void gateway_doctor(const struct paths *paths, void (*line)(void *arg, bool ok, const char *name, const char *words),
		    void *arg)
{
	struct doctor d = {.line = line, .arg = arg, .peer.fd = -1};
	struct err err = ERR_INIT;
	CLEAN_FREE char *policy = NULL;
	int rc = make(&d, paths, &err);
	if (!rc) {
		policy = policy_of(&d);
		rc = set_up(&d, policy, &err);
	}
	if (rc) {
		say(&d, false, "gateway", "it does not run: %s", err.text);
	} else {
		custody(&d);
		try_swap(&d);
		for (size_t i = 0; i < ARRAY_LEN(probes); i++)
			try(&d, &probes[i]);
		try_revoke(&d);
		try_limit(&d, policy);
		try_ledger(&d);
	}
	own_policy(&d, paths);
	tear_down(&d);
}
