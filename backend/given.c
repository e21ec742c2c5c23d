/* A turn of the transcript as its blocks, for the model that gets it back. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <string.h>

#include "answer.h"
#include "backend/base/hash.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"

#define CHUNK	  3072 /* bytes that are encoded at once: a multiple of 3 */
#define ID_LONG	  40   /* letters of a call's id that every provider takes: Chat Completions is the strictest */
#define NAME_LONG 64   /* letters of a tool's name */

/* Do the layout's places and calls fit what stands in the transcript? */
static bool fits(const struct given *g)
{
	const cJSON *b, *blocks = json_get(g->layout, "blocks");
	size_t text = 0, calls = 0, all = strlen(g->assistant->text);
	cJSON_ArrayForEach(b, blocks)
	{
		int64_t skip = 0, n = 0;
		json_int(b, "skip", &skip);
		json_int(b, "text", &n);
		if (skip < 0 || n < 0 || skip > (int64_t)all || n > (int64_t)all)
			return false;
		text += (size_t)(skip + n);
		if (text > all)
			return false;
		calls += json_get(b, "call") != NULL;
	}
	return cJSON_IsArray(blocks) && text == all && calls == g->n_calls;
}

size_t given_open(struct given *g, const struct context *c, size_t at, const char *model, const char *api)
{
	const struct item *a = &c->items[at];
	*g = (struct given){.assistant = a, .calls = a + 1};
	while (at + 1 + g->n_calls < c->n && c->items[at + 1 + g->n_calls].kind == ITEM_CALL)
		g->n_calls++;
	if (a->replay && a->model && !strcmp(a->model, model))
		g->layout = json_parse(a->replay, strlen(a->replay), NULL);
	const char *from = json_str(g->layout, "api");
	if (g->layout && (!from || strcmp(from, api) || !fits(g)))
		given_close(g);
	return at + 1 + g->n_calls;
}

void given_close(struct given *g)
{
	cJSON_Delete(g->layout);
	g->layout = NULL;
}

bool given_thinks(const struct given *g)
{
	const cJSON *first = cJSON_GetArrayItem(json_get(g->layout, "blocks"), 0);
	return json_get(first, "raw") != NULL;
}

static void text(const struct given_to *to, const char *p, size_t n)
{
	if (!utf8_blank(p, n))
		to->text(to->arg, p, n);
}

/* The last block that is told to others as well. What stands behind it alone would make a request that is refused,
 * unless the provider itself goes on from there. NULL: all are given. */
static const cJSON *last_shown(const struct given *g)
{
	const char *at = g->assistant->text;
	const cJSON *b, *last = NULL;
	cJSON_ArrayForEach(b, json_get(g->layout, "blocks"))
	{
		int64_t skip = 0, n = 0;
		json_int(b, "skip", &skip);
		json_int(b, "text", &n);
		if (json_get(b, "call") || !utf8_blank(at + skip, (size_t)n))
			last = b;
		at += skip + n;
	}
	return g->assistant->more ? NULL : last;
}

void given_each(const struct given *g, const struct given_to *to)
{
	const char *at = g->assistant->text;
	size_t call = 0;
	const cJSON *b, *last = last_shown(g);
	if (!g->layout) {
		text(to, at, strlen(at));
		while (call < g->n_calls)
			to->call(to->arg, &g->calls[call++]);
		return;
	}
	cJSON_ArrayForEach(b, json_get(g->layout, "blocks"))
	{
		int64_t skip = 0, n = 0;
		if (json_get(b, "raw")) {
			to->raw(to->arg, json_get(b, "raw"));
		} else if (json_get(b, "call")) {
			to->call(to->arg, &g->calls[call++]);
		} else {
			json_int(b, "skip", &skip);
			json_int(b, "text", &n);
			text(to, at + skip, (size_t)n);
			at += skip + n;
		}
		if (b == last)
			return;
	}
}

bool given_image(const struct model_info *m, const struct item_image *i, char **words)
{
	if (m->images && i->data.n)
		return true;
	*words = xasprintf("[the image %s is not shown: %s]", i->name,
			   m->images ? "it cannot be read any more" : "this model takes no images");
	return false;
}

void given_base64(struct buf *out, const struct buf *data)
{
	buf_reserve(out, data->n / 3 * 4 + 8);
	for (size_t at = 0; at < data->n; at += CHUNK) {
		size_t n = data->n - at < CHUNK ? data->n - at : CHUNK;
		char text[CHUNK / 3 * 4 + 4];
		buf_add(out, text,
			(size_t)EVP_EncodeBlock((unsigned char *)text, (unsigned char *)data->p + at, (int)n));
	}
}

static bool plain(const char *s)
{
	return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == strlen(s) && *s &&
	       strlen(s) <= ID_LONG;
}

void given_id(struct buf *out, const char *id)
{
	if (plain(id))
		buf_adds(out, id);
	else /* ids only have to stay apart */
		buf_addf(out, "call_%016" PRIx64, hash_add(HASH_BEGIN, id, strlen(id)));
}

void given_name(struct buf *out, const char *name)
{
	size_t n = 0;
	for (; name[n] && n < NAME_LONG; n++) {
		char c[2] = {name[n], 0};
		buf_addc(out, plain(c) ? *c : '_');
	}
	if (!n)
		buf_adds(out, "unnamed");
}
