/* model `script:FILE`: the n-th request of a session is answered by the n-th line of FILE, one JSON object:
 *   {"text":"...", "tools":[{"name":"bash","input":{...}}], "thinking":"...", "delay_ms":N, "error":529, "cut":true}
 * Beside error: "code", "message", "retry_after" (seconds), "should_retry" (bool). Beside all:
 * "usage":{"in":N,"out":N,"cached":N}. "show":true answers with what was sent, for tests. For the demo and for tests.
 * Worker threads. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "context.h"
#include "model.h"

#define SCRIPT_MAX (64 << 20) /* bytes of a script that are read */
#define PIECES	   20	      /* a delayed text streams in so many pieces */
#define LOOK_MS	   20	      /* how often cancel is looked at while waiting */

static char *script_path(const char *model, const char *project)
{
	const char *file = model + strlen(model_script.prefix);
	return *file == '/' ? xstrdup(file) : xasprintf("%s/%s", project, file);
}

static int check(const struct config *c, const char *model, const char *project, struct err *err)
{
	CLEAN_FREE char *path = script_path(model, project);
	CLEAN_BUF struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = file_read(path, &text, SCRIPT_MAX, &why);
	return rc ? err_set(err, EINVAL, "model %s: %s", model, why.text) : 0;
}

/* The n-th line (from 1) of text; false past the end. */
static bool line_at(const struct buf *text, int64_t n, const char **line, size_t *len)
{
	const char *p = buf_str(text), *end = p + text->n;
	for (int64_t i = 1; p < end; i++) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t here = nl ? (size_t)(nl - p) : (size_t)(end - p);
		if (i == n) {
			*line = p;
			*len = here;
			return true;
		}
		p += here + 1;
	}
	return false;
}

/* Waits ms; false if cancelled. */
static bool pause_for(const struct model_request *q, int64_t ms)
{
	int64_t end = clock_mono_ms() + ms;
	for (;;) {
		if (atomic_load(q->cancel))
			return false;
		int64_t left = end - clock_mono_ms();
		if (left <= 0)
			return true;
		clock_sleep_ms(left < LOOK_MS ? left : LOOK_MS);
	}
}

static bool stream(const struct model_request *q, struct model_reply *reply, const char *text, int64_t delay_ms)
{
	size_t n = strlen(text), step = delay_ms ? n / PIECES + 1 : n + 1;
	if (!n)
		return pause_for(q, delay_ms);
	for (size_t at = 0; at < n;) {
		size_t end = at + step < n ? at + step : n;
		while (end < n && (text[end] & 0xC0) == 0x80) /* not inside a character */
			end++;
		if (!pause_for(q, delay_ms * (int64_t)(end - at) / (int64_t)n))
			return false;
		buf_add(&reply->text, text + at, end - at);
		q->text(q->arg, text + at, end - at);
		at = end;
	}
	return true;
}

static int calls(const struct model_request *q, struct model_reply *reply, const cJSON *tools, struct err *err)
{
	int i = 0;
	const cJSON *t;
	cJSON_ArrayForEach(t, tools)
	{
		const char *name = json_str(t, "name");
		const cJSON *input = json_get(t, "input");
		if (!name || !*name)
			return err_set(err, EINVAL, "a tool without a name");
		CLEAN_BUF struct buf text = BUF_INIT;
		if (input)
			json_print(&text, input);
		else
			buf_adds(&text, "{}");
		model_reply_call(reply, xasprintf("call_%" PRId64 "_%d", q->n, ++i), xstrdup(name), buf_take(&text));
	}
	return 0;
}

static int refuse(const cJSON *o, int status, struct model_fault *fault, struct err *err)
{
	const char *code = json_str(o, "code"), *message = json_str(o, "message");
	const cJSON *after = json_get(o, "retry_after"), *should = json_get(o, "should_retry");
	fault->status = status;
	snprintf(fault->code, sizeof fault->code, "%s", code ? code : "");
	fault->should_retry = cJSON_IsTrue(should) ? 1 : cJSON_IsFalse(should) ? -1 : 0;
	if (cJSON_IsNumber(after))
		fault->retry_after_ms = (int64_t)(after->valuedouble * 1000);
	return err_set(err, EIO, "the model answered with error %d%s%s", status, message ? ": " : "",
		       message ? message : "");
}

static void usage(const cJSON *o, struct model_reply *reply)
{
	const cJSON *u = json_get(o, "usage");
	json_int(u, "in", &reply->tokens_in);
	json_int(u, "out", &reply->tokens_out);
	json_int(u, "cached", &reply->tokens_cached);
}

/* The request in words, an item a line: what a test can look at. */
static char *show(const struct model_request *q)
{
	static const char *const kinds[] = {"user", "assistant", "call", "result"};
	CLEAN_BUF struct buf out = BUF_INIT;
	buf_addf(&out, "request %" PRId64 ", %s\n", q->n, q->plain ? "no tools" : "tools");
	for (size_t i = 0; i < q->context->n; i++) {
		const struct item *item = &q->context->items[i];
		buf_addf(&out, "[%s] %s%s\n", kinds[item->kind], item->name ? item->name : "",
			 item->kind == ITEM_CALL ? item->input
			 : item->text		 ? item->text
						 : "");
		for (size_t k = 0; k < item->n_images; k++)
			buf_addf(&out, "[image] %s %s %zu bytes\n", item->images[k].name, item->images[k].media,
				 item->images[k].data.n);
	}
	return buf_take(&out);
}

static int answer(const struct model_request *q, const cJSON *o, struct model_reply *reply, struct model_fault *fault,
		  struct err *err)
{
	int64_t delay = 0, status = 0;
	const char *text = json_str(o, "text"), *thinking = json_str(o, "thinking");
	json_int(o, "delay_ms", &delay);
	usage(o, reply);
	if (json_int(o, "error", &status)) {
		if (!pause_for(q, delay))
			return -ECANCELED;
		return refuse(o, (int)status, fault, err);
	}
	if (thinking)
		buf_adds(&reply->thinking, thinking);
	CLEAN_FREE char *shown = json_bool(o, "show", false) ? show(q) : NULL;
	if (!stream(q, reply, shown ? shown : text ? text : "", delay))
		return -ECANCELED;
	if (json_bool(o, "cut", false)) {
		fault->retry = true;
		return err_set(err, EIO, "the model's answer was cut off");
	}
	strcpy(reply->stop, json_get(o, "tools") ? "tool_use" : "end_turn");
	return calls(q, reply, json_get(o, "tools"), err);
}

static int run(const struct model_request *q, struct model_reply *reply, struct model_fault *fault, struct err *err)
{
	CLEAN_FREE char *path = script_path(q->model, q->project);
	CLEAN_BUF struct buf text = BUF_INIT;
	int rc = file_read(path, &text, SCRIPT_MAX, err);
	if (rc)
		return rc;
	const char *line;
	size_t n;
	if (!line_at(&text, q->n, &line, &n)) {
		strcpy(reply->stop, "end_turn");
		return stream(q, reply, "(script ended)", 0) ? 0 : -ECANCELED;
	}
	struct err why = ERR_INIT;
	CLEAN_JSON cJSON *o = json_parse(line, n, &why);
	if (o && !cJSON_IsObject(o))
		err_set(&why, EINVAL, "it is no JSON object");
	rc = why.code ? -EINVAL : answer(q, o, reply, fault, err ? err : &why);
	if (why.code)
		return err_set(err, EINVAL, "script line %" PRId64 " of %s: %s", q->n, path, why.text);
	if (rc == -EINVAL)
		return err_prefix(err, "script line %" PRId64 " of %s", q->n, path);
	return rc;
}

const struct model_kind model_script = {"script:", check, run};
