/* The daemon's side of the gateway's pull requests: one HTTP request to its socket. Any thread; blocks. */
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "gateway.h"

#define TIMEOUT_MS 100000 /* the gateway asks the forge three times at most, 30 s each */

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct buf *out = arg;
	if (out->n + n > 1 << 20)
		return 0;
	buf_add(out, p, n);
	return n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const atomic_bool *cancel = arg;
	return cancel && atomic_load(cancel);
}

static void add_field(struct buf *out, const char *name, const char *text)
{
	buf_addf(out, "%s\"%s\":", out->n ? "," : "{", name);
	json_quote(out, text, strlen(text));
}

/* What the gateway answered. 403 is its own no: it has no line or no key for that forge. */
static int read_answer(const struct buf *in, long status, char **url, struct err *err)
{
	CLEAN_JSON cJSON *json = json_parse(buf_str(in), in->n, NULL);
	const char *found = json_str(json, "url"), *why = json_str(json_get(json, "error"), "message");
	if (status == 200 && found) {
		*url = xstrdup(found);
		return 0;
	}
	return err_set(err,
		       status == 403   ? ENOENT
		       : status == 401 ? EACCES
				       : EIO,
		       "%s", why ? why : "the gateway's answer makes no sense");
}

int gateway_pull_request(const char *socket, const char *token, const struct gateway_pull *p, char **url,
			 const atomic_bool *cancel, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT, in = BUF_INIT;
	CLEAN_FREE char *key = xasprintf("x-api-key: %s", token);
	long status = 0;
	CURL *e = curl_easy_init();
	struct curl_slist *headers = curl_slist_append(NULL, key);
	if (!e || !headers)
		return err_set(err, ENOMEM, "no memory for a request to the gateway");
	headers = curl_slist_append(headers, "Content-Type: application/json");
	headers = curl_slist_append(headers, "Expect:");
	add_field(&out, "host", p->host);
	add_field(&out, "project", p->project);
	add_field(&out, "head", p->head);
	add_field(&out, "base", p->base);
	add_field(&out, "title", p->title);
	add_field(&out, "body", p->body);
	buf_addc(&out, '}');
	curl_easy_setopt(e, CURLOPT_URL, "http://gateway/forge/pull-request");
	curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, socket);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)TIMEOUT_MS);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(e, CURLOPT_POSTFIELDS, out.p);
	curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)out.n);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, &in);
	curl_easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(e, CURLOPT_XFERINFODATA, cancel);
	CURLcode rc = curl_easy_perform(e);
	curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &status);
	curl_slist_free_all(headers);
	curl_easy_cleanup(e);
	explicit_bzero(key, strlen(key));
	if (rc == CURLE_ABORTED_BY_CALLBACK)
		return err_set(err, ECANCELED, "stopped");
	bool ended = rc == CURLE_COULDNT_CONNECT || rc == CURLE_GOT_NOTHING || rc == CURLE_RECV_ERROR ||
		     rc == CURLE_SEND_ERROR || rc == CURLE_PARTIAL_FILE;
	return rc ? err_set(err, ended ? EAGAIN : EIO, "the gateway cannot be asked: %s", curl_easy_strerror(rc))
		  : read_answer(&in, status, url, err);
}
