/* Sends an allowed request to its provider and its answer to the client, as it comes. By libcurl over HTTP/1.1, since
 * with HTTP/2 this curl does not cancel a stream. Must never follow a redirect, use a proxy, or let a header pass that
 * is not listed; and never let a cut stream look complete. */
#include <errno.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "gw.h"

#define CONNECT_MS 10000
#define SILENT_MS  600000 /* without a byte from the provider */
#define HEAD_MOST  (400 << 10)
#define SWALLOW_MS 5000	     /* for the end of an answer that is not passed on; then its connection is given up */
#define POOL	   8	     /* connections kept open: this part of the most that clients may have */
#define BUFFER	   (8 << 10) /* for what comes of an answer; each stream has one, which is wiped when it ends */

/* ---- memory: curl's copies of a header with a key in it are wiped when it frees them ---- */

static void wiping_free(void *p)
{
	if (p)
		explicit_bzero(p, malloc_usable_size(p)); /* much is freed: it has to be quick */
	free(p);
}

static void *wiping_realloc(void *p, size_t n)
{
	void *q = malloc(n);
	if (q && p) {
		size_t had = malloc_usable_size(p);
		memcpy(q, p, had < n ? had : n);
	}
	if (q)
		wiping_free(p);
	return q;
}

/* ---- curl's timer in our loop ---- */

static int on_timer(CURLM *multi, long ms, void *arg)
{
	struct gw *g = arg;
	g->curl_at = ms < 0 ? -1 : clock_mono_ms() + ms;
	return 0;
}

void forward_curl_timer(struct gw *g)
{
	int running;
	g->curl_at = -1;
	curl_multi_socket_action(g->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	forward_finished(g);
	conn_flush_all(g);
}

/* ---- curl's handles ---- */

struct handle {
	CURL *easy;
	CURLU *url; /* parsed once for all requests to the same one */
	char *text;
};

static void handle_free(struct handle *h)
{
	curl_easy_cleanup(h->easy);
	curl_url_cleanup(h->url);
	free(h->text);
	free(h);
}

static bool handle_to(struct handle *h, const char *url)
{
	if (h->text && !strcmp(h->text, url))
		return true;
	free(h->text);
	h->text = xstrdup(url);
	curl_easy_setopt(h->easy, CURLOPT_URL, NULL); /* curl keeps the text of the one before */
	return !curl_url_set(h->url, CURLUPART_URL, url, CURLU_PATH_AS_IS) &&
	       !curl_easy_setopt(h->easy, CURLOPT_CURLU, h->url);
}

int forward_init(struct gw *g, struct err *err)
{
	if (curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wiping_free, wiping_realloc, strdup, calloc))
		return err_set(err, EIO, "libcurl cannot be used");
	g->curl_at = -1;
	g->multi = curl_multi_init();
	curl_multi_setopt(g->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(g->multi, CURLMOPT_TIMERDATA, g);
	curl_multi_setopt(g->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
	curl_multi_setopt(g->multi, CURLMOPT_MAXCONNECTS, (long)(g->most_conns / POOL));
	return sockets_init(g, err);
}

void forward_release(struct gw *g)
{
	while (g->n_spare)
		handle_free(g->spare[--g->n_spare]);
	curl_multi_cleanup(g->multi);
	sockets_release(g);
	buf_release(&g->clean);
	curl_global_cleanup();
}

/* ---- the request is sent once ---- */

/* curl sends a request again, without a word, when a connection that it used before breaks before the answer. The
 * provider may have taken the first one: one decision is one request, so whoever asked hears of it and decides anew. */
static int before_sending(void *arg, char *there, char *here, int port_there, int port_here)
{
	struct call *k = arg;
	k->twice = k->sent;
	k->sent = true;
	return k->twice ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/* ---- the answer's head ---- */

/* What may come back. Not: cookies, organisation and project names, the account's own rate limits. */
static const char *const passes[] = {"content-type", "request-id",     "x-request-id",
				     "retry-after",  "retry-after-ms", "x-should-retry"};
#define CONTENT_TYPE 0

static bool named(const char *p, size_t n, const char *name)
{
	return n == strlen(name) && !strncasecmp(p, name, n);
}

/* How long the answer is: the client is told, so it has to be what curl takes it for. */
static void take_framing(struct call *k, const char *name, size_t n, const char *value, size_t value_n)
{
	if (named(name, n, "transfer-encoding"))
		k->length = LENGTH_CODED;
	else if (named(name, n, "content-length") && k->length != LENGTH_CODED)
		k->length = strtoll(value, NULL, 10);
	else if (named(name, n, "content-encoding") && value_n && !named(value, value_n, "identity"))
		k->encoded = true;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	struct call *k = arg;
	if ((k->head_bytes += n) > HEAD_MOST) /* libcurl keeps all of them, and bounds the head alone */
		return 0;
	if (k->head_sent) /* a trailer */
		return n;
	if (n > 5 && !strncmp(p, "HTTP/", 5)) { /* also after a 100 */
		buf_reset(&k->head);
		k->length = LENGTH_OPEN;
		k->encoded = k->events = false;
		return n;
	}
	const char *colon = memchr(p, ':', n);
	if (!colon)
		return n;
	size_t name = (size_t)(colon - p), len = n, from = name + 1;
	while (len && (p[len - 1] == '\n' || p[len - 1] == '\r' || p[len - 1] == ' '))
		len--;
	while (from < len && (p[from] == ' ' || p[from] == '\t'))
		from++;
	take_framing(k, p, name, p + from, len > from ? len - from : 0);
	for (size_t i = 0; i < ARRAY_LEN(passes); i++) {
		if (strlen(passes[i]) != name || strncasecmp(p, passes[i], name) || k->head.n + len > 4096)
			continue;
		struct scrub s;
		CLEAN_BUF struct buf value = BUF_INIT;
		scrub_start(&s, k->ask.provider->key ? k->gw->keys : NULL, k->ask.provider->key);
		scrub_feed(&s, colon + 1, len - name - 1, true, &value);
		bool plain = true;
		for (size_t j = 0; j < value.n; j++)
			plain &= (unsigned char)value.p[j] >= 0x20 && (unsigned char)value.p[j] < 0x7f;
		if (!plain)
			continue;
		buf_adds(&k->head, passes[i]);
		buf_addc(&k->head, ':');
		buf_add(&k->head, value.p, value.n);
		buf_adds(&k->head, "\r\n");
		if (i == CONTENT_TYPE && len >= from + 17 && !strncasecmp(p + from, "text/event-stream", 17))
			k->events = true;
	}
	return n;
}

static void deny_instead(struct call *k, int status, const char *rule, const char *text)
{
	struct denial d;
	struct conn *c = k->conn;
	deny(&d, status, rule, "%s", text);
	k->head_sent = k->swallow = true;
	k->swallow_ms = clock_mono_ms();
	k->conn = NULL;
	if (!c)
		return;
	conn_deny(c, &d, k->ask.provider->kind == KIND_ANTHROPIC);
	conn_read(c);
}

/* Once the first byte, or the end, of the answer is there. */
static void send_head(struct call *k)
{
	long status = 0;
	struct conn *c = k->conn;
	curl_easy_getinfo(k->easy, CURLINFO_RESPONSE_CODE, &status);
	k->status = (int)status;
	k->head_sent = true;
	usage_start(&k->usage, k->ask.api, k->events);
	curl_off_t sent = 0;
	curl_easy_getinfo(k->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
	if ((size_t)sent == k->body.n) { /* a thousand streams would hold a thousand requests */
		buf_release(&k->body);
		if (c)
			conn_body_sent(c);
	}
	if (!c)
		return;
	if (status == 401 || status == 403) {
		char text[240];
		snprintf(text, sizeof text,
			 "the provider refused the gateway's key, or what it is used for; gateway/keys/%.60s takes "
			 "another",
			 k->ask.provider->key);
		deny_instead(k, 502, "provider.key", text);
		return;
	}
	if (status < 200 || (status >= 300 && status < 400)) {
		deny_instead(k, 502, "provider.redirect",
			     "the provider answered with a redirect, which is not followed");
		return;
	}
	if (k->encoded) {
		deny_instead(k, status < 400 ? 502 : (int)status, "provider.encoding",
			     "the provider's answer is compressed, which was not asked for: it cannot be looked at");
		return;
	}
	if (status == 204) /* has no body, whatever is said of one */
		k->length = 0;
	k->chunked = k->length < 0 && !c->in.http10;
	if (k->length < 0 && c->in.http10)
		c->close_after = true;
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_addf(&b, "HTTP/1.1 %d %s\r\n", k->status, http_reason(k->status));
	buf_add(&b, k->head.p, k->head.n);
	if (k->chunked)
		buf_adds(&b, "Transfer-Encoding: chunked\r\n");
	else if (k->length >= 0 && status != 204)
		buf_addf(&b, "Content-Length: %lld\r\n", (long long)k->length);
	buf_adds(&b, !c->in.keep_alive || c->close_after ? "Connection: close\r\n\r\n" : "\r\n");
	c->state = CONN_ANSWERING;
	c->progress_ms = clock_mono_ms();
	buf_add(&c->out, b.p, b.n); /* goes out with what follows: the body's first bytes, or its end */
}

/* ---- the answer's body ---- */

static void to_client(struct call *k, const char *p, size_t n)
{
	struct conn *c = k->conn;
	char size[18];
	if (c && !k->chunked && k->length >= 0 && n > (uint64_t)k->length - k->bytes)
		n = (uint64_t)k->length - k->bytes; /* more would be taken for the next answer */
	if (!c || !n)
		return;
	EVP_DigestUpdate(k->hash, p, n);
	k->bytes += n;
	if (!k->chunked) {
		conn_add(c, p, n);
		return;
	}
	size_t at = sizeof size;
	size[--at] = '\n';
	size[--at] = '\r';
	for (size_t left = n; left; left >>= 4)
		size[--at] = "0123456789abcdef"[left & 15];
	conn_add(c, size + at, sizeof size - at);
	buf_add(&c->out, p, n);
	conn_add(c, "\r\n", 2);
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct call *k = arg;
	k->heard_ms = clock_mono_ms();
	if (!k->head_sent)
		send_head(k);
	if (k->swallow)
		return n;
	if (!k->conn)
		return 0;
	if (conn_backlog(k->conn) > BACKLOG_HIGH) {
		k->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	usage_feed(&k->usage, p, n);
	struct buf *clean = &k->gw->clean;
	buf_reset(clean);
	scrub_feed(&k->scrub, p, n, false, clean);
	to_client(k, clean->p, clean->n);
	return n;
}

void forward_resume(struct call *k)
{
	struct gw *g = k->gw;
	if (!k->paused || !k->easy)
		return;
	k->paused = false;
	curl_easy_pause(k->easy, CURLPAUSE_CONT);
	conn_flush_all(g);
}

/* ---- the end ---- */

static void wipe_headers(struct call *k)
{
	if (k->lines)
		OPENSSL_cleanse(k->lines, k->lines_n);
	free(k->lines);
	k->lines = NULL;
	k->n_headers = 0;
}

static void let_go(struct call *k)
{
	struct gw *g = k->gw;
	curl_multi_remove_handle(g->multi, k->easy);
	wipe_headers(k);
	if (g->n_spare < (int)ARRAY_LEN(g->spare) && !k->ask.provider->ca) {
		/* nothing of this request may be reached by the next one */
		curl_easy_setopt(k->easy, CURLOPT_HTTPHEADER, NULL);
		curl_easy_setopt(k->easy, CURLOPT_POSTFIELDS, NULL);
		curl_easy_setopt(k->easy, CURLOPT_PRIVATE, NULL);
		g->spare[g->n_spare++] = k->handle;
	} else { /* one with a CA of its own is not used for others */
		handle_free(k->handle);
	}
}

/* An answer of events is complete with its last event, whatever the connection says. */
static const char *verdict(struct call *k, CURLcode rc)
{
	usage_end(&k->usage);
	if (k->status >= 400)
		return "provider error";
	if (k->usage.events)
		return k->usage.final ? "complete" : "truncated";
	return rc == CURLE_OK ? "complete" : "truncated";
}

static void answer_end(struct call *k, const char *result)
{
	struct conn *c = k->conn;
	CLEAN_BUF struct buf rest = BUF_INIT;
	scrub_feed(&k->scrub, "", 0, true, &rest);
	to_client(k, rest.p, rest.n);
	k->conn = NULL;
	c->call = NULL;
	bool less = !k->chunked && k->length >= 0 && k->bytes != (uint64_t)k->length;
	if (less || !strcmp(result, "truncated")) {
		conn_abort(c);
		return;
	}
	if (k->chunked)
		conn_add(c, "0\r\n\r\n", 5);
	conn_flush(c);
	conn_done(c);
	conn_read(c);
}

static void end(struct call *k, CURLcode rc)
{
	const char *result;
	long status = 0;
	curl_easy_getinfo(k->easy, CURLINFO_RESPONSE_CODE, &status);
	if (!k->head_sent && status >= 200 && (rc == CURLE_OK || k->head.n))
		send_head(k);
	if (!k->head_sent) {
		bool slow = rc == CURLE_OPERATION_TIMEDOUT;
		char text[200];
		k->status = 0;
		k->cut = rc != CURLE_COULDNT_CONNECT && rc != CURLE_COULDNT_RESOLVE_HOST &&
			 rc != CURLE_PEER_FAILED_VERIFICATION && rc != CURLE_SSL_CONNECT_ERROR;
		snprintf(text, sizeof text, "the provider %.60s %s: %s", k->ask.provider->name,
			 k->twice ? "closed the connection" : "cannot be reached",
			 k->twice ? "it may have the request, which is not sent twice" : curl_easy_strerror(rc));
		deny_instead(k, slow ? 504 : 502, k->twice ? "provider.closed" : "provider.unreachable", text);
		result = slow	    ? "provider silent"
			 : k->twice ? "provider closed the connection"
				    : "provider unreachable";
	} else {
		result = verdict(k, rc);
		if (k->conn)
			answer_end(k, result);
	}
	let_go(k);
	call_outcome(k, result);
}

void forward_finished(struct gw *g)
{
	CURLMsg *m;
	int left;
	while ((m = curl_multi_info_read(g->multi, &left))) {
		struct call *k;
		CURLcode rc = m->data.result;
		if (m->msg != CURLMSG_DONE || pull_finished(g, m->easy_handle, rc))
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&k);
		end(k, rc);
	}
}

/* Not inside a callback of curl's. The answer's last event may have been read already: then it is complete. */
void forward_client_gone(struct call *k)
{
	forward_cut(k, "client left");
}

void forward_cut(struct call *k, const char *result)
{
	struct conn *c = k->conn;
	k->conn = NULL;
	if (c)
		conn_abort(c);
	if (!k->easy) {
		k->result = result; /* the ledger still writes its decision: decided() goes on */
		return;
	}
	if (!k->head_sent) {
		k->cut = true;
		k->status = 0;
	}
	usage_end(&k->usage);
	let_go(k);
	call_outcome(k, k->usage.final && k->usage.events ? "complete" : result);
}

/* By our own clock: curl's would cost a timer for each event of each stream. One whose client takes nothing is not
 * silent, it is not listened to. */
void forward_sweep(struct gw *g, int64_t now)
{
	list_each_safe (i, &g->calls) {
		struct call *k = list_entry(i, struct call, link);
		if (k->easy && k->swallow && now - k->swallow_ms > SWALLOW_MS) {
			forward_cut(k, "provider error");
			continue;
		}
		if (!k->easy || k->paused || now - k->heard_ms < SILENT_MS)
			continue;
		if (!k->head_sent) {
			k->cut = true;
			deny_instead(k, 504, "provider.unreachable", "the provider does not answer");
		}
		forward_cut(k, "provider silent");
	}
}

/* ---- the request ---- */

static void add(struct call *k, const char *line)
{
	struct curl_slist *h = &k->headers[k->n_headers];
	*h = (struct curl_slist){.data = (char *)line}; /* curl only reads it */
	if (k->n_headers++)
		h[-1].next = h;
}

static char *add_copy(struct call *k, char *to, const char *name, const char *value)
{
	char *end = stpcpy(stpcpy(to, name), value);
	add(k, to);
	return end + 1;
}

/* Only these go out. The key's line is made last, and its copies are wiped. */
static int headers(struct call *k)
{
	char line[KEY_MAX + 64] = "";
	const struct provider *p = k->ask.provider;
	int rc = key_header(k->gw->keys, p->key, p->kind, line, sizeof line);
	k->lines_n = strlen(line) + sizeof k->version + strlen(k->beta) + 64;
	k->lines = xmalloc(k->lines_n);
	char *at = k->lines;
	add(k, "Expect:");
	add(k, "Accept-Encoding: identity");
	add(k, "User-Agent: berthfs/" BERTHFS_VERSION);
	if (k->ask.api != API_MODELS)
		add(k, "Content-Type: application/json");
	add(k, k->ask.stream ? "Accept: text/event-stream" : "Accept: application/json");
	if (p->kind == KIND_ANTHROPIC)
		at = add_copy(k, at, "anthropic-version: ", *k->version ? k->version : "2023-06-01");
	if (p->kind == KIND_ANTHROPIC && *k->beta)
		at = add_copy(k, at, "anthropic-beta: ", k->beta);
	if (!rc)
		add_copy(k, at, line, "");
	OPENSSL_cleanse(line, sizeof line);
	return !rc || p->local ? 0 : -EIO;
}

/* What is the same for all requests. */
static struct handle *handle_new(struct gw *g)
{
	struct handle *h = xcalloc(1, sizeof *h);
	CURL *e = h->easy = curl_easy_init();
	h->url = curl_url();
	if (!e || !h->url) {
		handle_free(h);
		return NULL;
	}
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_BUFFERSIZE, (long)BUFFER);
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	curl_easy_setopt(e, CURLOPT_HTTP_CONTENT_DECODING, 0L);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, before_sending);
	sockets_keep(g, e);
	return h;
}

static void options(struct call *k)
{
	const struct provider *p = k->ask.provider;
	CURL *e = k->easy;
	curl_easy_setopt(e, CURLOPT_PRIVATE, k);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, &k->headers[0]);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, k);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, k);
	curl_easy_setopt(e, CURLOPT_PREREQDATA, k);
	if (p->ca)
		curl_easy_setopt(e, CURLOPT_CAINFO, p->ca);
	if (k->ask.api == API_MODELS) {
		curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
	} else {
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, k->body.p);
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)k->body.n);
	}
}

void forward_start(struct call *k)
{
	struct gw *g = k->gw;
	char url[1200];
	snprintf(url, sizeof url, "%s%s%s%s", k->ask.provider->url, api_path(k->ask.api), *k->query ? "?" : "",
		 k->query);
	k->handle = g->n_spare ? g->spare[--g->n_spare] : handle_new(g);
	k->easy = k->handle ? k->handle->easy : NULL;
	k->hash = sha_begin(&g->sha);
	scrub_start(&k->scrub, g->keys, k->ask.provider->key);
	if (!k->handle || !handle_to(k->handle, url) || headers(k)) {
		deny_instead(k, 503, "memory",
			     "the request cannot be sent: no memory, or its key has just been removed");
		wipe_headers(k);
		if (k->handle)
			handle_free(k->handle);
		k->handle = NULL;
		k->easy = NULL;
		call_outcome(k, "not sent");
		return;
	}
	options(k);
	k->heard_ms = clock_mono_ms();
	curl_multi_add_handle(g->multi, k->easy);
}
