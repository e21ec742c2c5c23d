/* HTTP to the gateway, by libcurl over its unix socket. Must never speak to anyone else: no name is resolved, no
 * redirect followed, no proxy used. */
#include "model_http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "answer.h"
#include "backend/base/clock.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "fault.h"

#define LOOK_MS	   50	      /* how often cancel and the times are looked at */
#define ERROR_MAX  (64 << 10) /* bytes of an error's body that are read */
#define LINGER_MS  2000	      /* what counts has come: how long the end of the stream is waited for */
#define CONNECT_MS 5000L      /* the gateway is on this machine */

struct transfer {
	const struct model_http *h;
	struct model_fault *fault;
	struct err *err;
	struct sse sse;
	struct buf error; /* body of an answer that is no 200 */
	int status, rc;
	bool begun, events; /* a byte of the body came; it is a stream of events */
	int64_t last_ms, done_ms;
};

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	char name[32], value[128];
	const char *colon = memchr(p, ':', n);
	if (n > 9 && !strncmp(p, "HTTP/", 5)) {
		CLEAN_FREE char *line = xstrndup(p, n);
		sscanf(line, "HTTP/%*s %d", &t->status);
		return n;
	}
	size_t name_n = colon ? (size_t)(colon - p) : n, value_n = colon ? n - name_n - 1 : 0;
	if (!colon || name_n >= sizeof name || value_n >= sizeof value)
		return n;
	memcpy(name, p, name_n);
	name[name_n] = 0;
	memcpy(value, colon + 1, value_n);
	value[value_n] = 0;
	const char *v = value + strspn(value, " ");
	int64_t asked = fault_retry_after(name, v, clock_real_ms());
	if (asked && (!t->fault->retry_after_ms || !strcasecmp(name, "retry-after-ms")))
		t->fault->retry_after_ms = asked;
	if (!strcasecmp(name, "x-should-retry"))
		t->fault->should_retry = !strncmp(v, "true", 4) ? 1 : !strncmp(v, "false", 5) ? -1 : 0;
	if (!strcasecmp(name, "content-type"))
		t->events = !strncasecmp(v, "text/event-stream", 17);
	return n;
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	t->last_ms = clock_mono_ms();
	t->begun = true;
	if (t->status != 200 || !t->events || t->h->whole) {
		buf_add(&t->error, p, n < ERROR_MAX - t->error.n ? n : ERROR_MAX - t->error.n);
		return n;
	}
	t->rc = sse_feed(&t->sse, p, n, t->err);
	return t->rc ? CURL_WRITEFUNC_ERROR : n;
}

static CURL *easy(struct transfer *t, char *words)
{
	const struct model_http *h = t->h;
	CLEAN_FREE char *url = xasprintf("http://gateway%s", h->path);
	CURL *e = curl_easy_init();
	if (!e)
		return NULL;
	curl_easy_setopt(e, CURLOPT_URL, url);
	curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, h->socket);
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http");
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	curl_easy_setopt(e, CURLOPT_POST, 1L);
	curl_easy_setopt(e, CURLOPT_POSTFIELDS, buf_str(h->body));
	curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)h->body->n);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, h->headers);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, words);
	return e;
}

/* Is it to be given up now? */
static bool over(struct transfer *t)
{
	int64_t now = clock_mono_ms(), limit = t->begun ? t->h->idle_ms : t->h->begin_ms;
	if (atomic_load(t->h->cancel)) {
		t->rc = -ECANCELED;
		return true;
	}
	if (!t->done_ms && t->begun && !t->h->whole && t->h->done(t->h->arg))
		t->done_ms = now;
	if (t->done_ms && now - t->done_ms > LINGER_MS)
		return true;
	if (now - t->last_ms <= limit)
		return false;
	t->fault->retry = true;
	t->rc = err_set(t->err, ETIMEDOUT,
			t->begun ? "the model's answer stalled: nothing came for %lld s (answer.idle-timeout)"
				 : "the model did not begin to answer within %lld s (answer.begin-timeout)",
			(long long)limit / 1000);
	return true;
}

/* Until it has ended; the result of curl, or -1 if it was given up. */
static int perform(struct transfer *t, CURLM *multi)
{
	for (;;) {
		int running, left;
		curl_multi_perform(multi, &running);
		for (CURLMsg *m; (m = curl_multi_info_read(multi, &left));)
			if (m->msg == CURLMSG_DONE)
				return (int)m->data.result;
		if (over(t))
			return -1;
		curl_multi_poll(multi, NULL, 0, LOOK_MS, NULL);
	}
}

/* An answer that is no stream of events. */
static int refused(struct transfer *t, struct err *err)
{
	CLEAN_JSON cJSON *o = answer_json(buf_str(&t->error), t->error.n);
	if (t->status != 200)
		return answer_error(t->fault, t->status, o, err);
	if (json_get(o, "error"))
		return answer_error(t->fault, 0, o, err);
	return err_set(err, EIO,
		       "the provider answered with something else than a stream of events: is provider.NAME.kind "
		       "right?");
}

static int ended(struct transfer *t, int result, bool *clean, const char *words, struct err *err)
{
	*clean = result == CURLE_OK;
	if (t->rc)
		return t->rc;
	if (t->h->whole && t->status == 200 && result == CURLE_OK) {
		buf_add(t->h->whole, buf_str(&t->error), t->error.n);
		return 0;
	}
	if (t->status && (t->status != 200 || (!t->events && result == CURLE_OK)))
		return refused(t, err);
	if (t->begun || result == CURLE_OK)
		return 0; /* whether it is whole, the format knows */
	t->fault->retry = true;
	return err_set(err, EIO, "the connection to the gateway broke: %s",
		       *words ? words : curl_easy_strerror((CURLcode)result));
}

int model_http(const struct model_http *h, bool *clean, struct model_fault *fault, struct err *err)
{
	char words[CURL_ERROR_SIZE] = "";
	struct transfer t = {.h = h, .fault = fault, .err = err, .last_ms = clock_mono_ms()};
	CURLM *multi = curl_multi_init();
	CURL *e = easy(&t, words);
	sse_init(&t.sse, SSE_MAX, h->event, h->arg);
	int rc = -ENOMEM;
	if (multi && e) {
		curl_multi_add_handle(multi, e);
		int result = perform(&t, multi);
		curl_multi_remove_handle(multi, e);
		rc = ended(&t, result, clean, words, err);
	} else {
		err_set(err, ENOMEM, "no memory for a connection");
	}
	curl_easy_cleanup(e);
	curl_multi_cleanup(multi);
	sse_release(&t.sse);
	buf_release(&t.error);
	return rc;
}
