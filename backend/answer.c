/* Puts a reply together. Must never make up an argument or a block that the provider has not ended. */
#include "answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"

#define PARTS_MAX 1024
#define WORDS_MAX 300 /* bytes of a provider's words that are shown */

void answer_release(struct answer *a)
{
	for (size_t i = 0; i < a->n; i++) {
		struct part *p = &a->parts[i];
		buf_release(&p->text);
		buf_release(&p->sign);
		free(p->raw);
		free(p->id);
		free(p->name);
	}
	free(a->parts);
	a->parts = NULL;
	a->n = 0;
}

struct part *answer_part(struct answer *a, enum part_kind kind, int64_t index)
{
	for (size_t i = a->n; i-- > 0;)
		if (a->parts[i].kind == kind && a->parts[i].index == index && !a->parts[i].ended)
			return &a->parts[i];
	return NULL;
}

struct part *answer_add(struct answer *a, enum part_kind kind, int64_t index)
{
	size_t writing = a->writing ? (size_t)(a->writing - a->parts) : SIZE_MAX;
	a->parts = xrealloc(a->parts, (a->n + 1) * sizeof *a->parts);
	a->writing = writing == SIZE_MAX ? NULL : &a->parts[writing];
	struct part *p = &a->parts[a->n++];
	*p = (struct part){.kind = kind, .index = index};
	return p;
}

int answer_bounds(struct answer *a, struct err *err)
{
	if (a->bytes <= ANSWER_BYTES && a->n <= PARTS_MAX)
		return 0;
	return err_set(err, EFBIG, "the model's answer has more than %d bytes or %d blocks", ANSWER_BYTES, PARTS_MAX);
}

int answer_bytes(struct answer *a, struct buf *to, const char *text, struct err *err)
{
	buf_adds(to, text ? text : "");
	a->bytes += text ? strlen(text) : 0;
	return answer_bounds(a, err);
}

static void emit(struct answer *a, const char *p, size_t n)
{
	buf_add(&a->reply->text, p, n);
	a->q->text(a->q->arg, p, n);
}

int answer_text(struct answer *a, struct part *p, const char *text, struct err *err)
{
	CLEAN_BUF struct buf clean = BUF_INIT;
	if (!text || !*text)
		return 0;
	utf8_clean(&clean, text, strlen(text));
	if (a->writing != p) {
		if (p->size)
			a->mixed = true;
		if (a->reply->text.n && !buf_ends(&a->reply->text, "\n")) { /* two texts are two paragraphs */
			emit(a, "\n\n", 2);
			p->skip = 2;
		}
		a->writing = p;
	}
	emit(a, buf_str(&clean), clean.n);
	p->size += clean.n;
	a->bytes += clean.n;
	return answer_bounds(a, err);
}

/* ---- the end ---- */

static void finish_call(struct answer *a, struct part *p, bool own_ids, bool cut)
{
	bool whole = p->ended || !cut;
	char *input = whole && !p->text.n ? xstrdup("{}") : xstrdup(buf_str(&p->text));
	if (!whole && json_check(input, strlen(input), NULL) == 0) {
		free(input);
		input = xstrdup(""); /* is no JSON: it does not run, and the model is told */
	}
	bool have = !own_ids && p->id && *p->id;
	char *id = have ? xstrdup(p->id) : xasprintf("call_%" PRId64 "_%zu", a->q->n, a->reply->n_calls + 1);
	model_reply_call(a->reply, id, xstrdup(p->name ? p->name : ""), input);
}

static void layout(struct buf *out, const struct part *p)
{
	buf_addc(out, buf_ends(out, "[") ? ' ' : ',');
	if (p->kind == PART_TEXT)
		buf_addf(out, "{\"skip\":%zu,\"text\":%zu}", p->skip, p->size);
	else if (p->kind == PART_CALL)
		buf_adds(out, "{\"call\":true}");
	else
		buf_addf(out, "{\"raw\":%s}", p->raw);
}

void answer_finish(struct answer *a, const char *api, bool own_ids, bool cut)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	bool raw = false;
	buf_addf(&out, "{\"api\":\"%s\",\"blocks\":[", api);
	for (size_t i = 0; i < a->n; i++) {
		struct part *p = &a->parts[i];
		if (p->kind == PART_CALL)
			finish_call(a, p, own_ids, cut);
		if (p->kind == PART_THINKING && p->text.n) {
			if (a->reply->thinking.n)
				buf_adds(&a->reply->thinking, "\n\n");
			buf_add(&a->reply->thinking, p->text.p, p->text.n);
		}
		if (p->kind == PART_THINKING && !p->raw)
			continue;
		raw |= p->raw != NULL;
		layout(&out, p);
	}
	buf_adds(&out, "]}");
	if (raw && !a->mixed)
		a->reply->replay = buf_take(&out);
}

/* ---- what goes wrong ---- */

int answer_broken(struct answer *a, struct err *err, const char *why)
{
	a->fault->retry = true;
	return err_set(err, EIO, "the model's answer broke off: %s", why);
}

int answer_error(struct model_fault *fault, int status, const cJSON *o, struct err *err)
{
	const cJSON *e = json_get(o, "error") ? json_get(o, "error") : o;
	const char *words = cJSON_IsString(e) ? e->valuestring : json_str(e, "message");
	const char *code = json_str(json_get(e, "details"), "error_code");
	code = code ? code : json_str(e, "code");
	code = code ? code : json_str(e, "type");
	CLEAN_BUF struct buf clean = BUF_INIT;
	utf8_clean(&clean, words ? words : "", words ? strlen(words) : 0);
	text_one_line(clean.p, utf8_prefix(buf_str(&clean), clean.n < WORDS_MAX ? clean.n : WORDS_MAX, NULL));
	fault->status = status;
	fault->retry = !status;
	snprintf(fault->code, sizeof fault->code, "%s", code ? code : "");
	for (char *c = fault->code; *c; c++)
		if ((unsigned char)*c < 0x21 || (unsigned char)*c > 0x7e)
			*c = '?';
	const char *colon = clean.n ? ": " : "";
	if (!status)
		return err_set(err, EIO, "the model's answer ended with the error %s%s%s", fault->code, colon,
			       buf_str(&clean));
	return err_set(err, EIO, "the model answered with error %d%s%s%s%s", status, *fault->code ? " " : "",
		       fault->code, colon, buf_str(&clean));
}

/* ---- JSON of events ---- */

static int hex4(const char *p, const char *end)
{
	int v = 0;
	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		int d = c >= '0' && c <= '9'   ? c - '0'
			: c >= 'a' && c <= 'f' ? c - 'a' + 10
			: c >= 'A' && c <= 'F' ? c - 'A' + 10
					       : -1;
		if (d < 0)
			return -1;
		v = v << 4 | d;
	}
	return v;
}

/* Copies; an escape of NUL or of half a surrogate pair becomes that of U+FFFD. */
static void mend(struct buf *out, const char *p, size_t n)
{
	const char *end = p + n;
	while (p < end) {
		if (*p != '\\' || end - p < 2) {
			buf_addc(out, *p++);
			continue;
		}
		int u = p[1] == 'u' ? hex4(p + 2, end) : -1;
		int low = u >= 0xD800 && u < 0xDC00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, end)
												    : -1;
		size_t len = u < 0 ? 2 : low >= 0xDC00 && low < 0xE000 ? 12 : 6;
		bool bad = !u || (len == 6 && u >= 0xD800 && u < 0xE000);
		buf_add(out, bad ? "\\ufffd" : p, len);
		p += len;
	}
}

cJSON *answer_json(const char *p, size_t n)
{
	cJSON *o = json_parse(p, n, NULL);
	if (o)
		return o;
	CLEAN_BUF struct buf scrubbed = BUF_INIT;
	CLEAN_BUF struct buf mended = BUF_INIT;
	utf8_scrub(&scrubbed, p, n);
	mend(&mended, buf_str(&scrubbed), scrubbed.n);
	return json_parse(buf_str(&mended), mended.n, NULL);
}

void answer_count(const cJSON *o, const char *key, int64_t *out)
{
	int64_t v;
	if (json_int(o, key, &v) && v >= 0)
		*out = v;
}
