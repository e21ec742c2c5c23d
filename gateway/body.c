/* Checks a request's body and builds the one that goes out. */
#include "body.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"

/* What an input has at most. No tokenizer makes more than one token of a byte of text, and none makes fewer of every
 * text: half a token is much for words, and too little for digits, signs, letters that make no word. So a whole one is
 * reserved for each byte of the request as it is written, escapes and all, which leaves room for what the provider puts
 * around messages. Bytes of pictures and of documents of pages are no text: these have their own bounds, since few
 * bytes can be a large one. What a limit holds back by that is given free as soon as the provider has said what it was.
 */
#define IMAGE_TOKENS	       5000 /* of Anthropic's models */
#define IMAGE_TOKENS_OTHERS    12000
#define IMAGE_TOKENS_GPT4OMINI 50000   /* counts pictures thirty times */
#define DOCUMENT_TOKENS	       1000000 /* hundreds of pages */
#define TOOLS_TOKENS	       1500    /* what a provider tells its model of tools, if there are any */
#define OWN_TOOL_TOKENS	       2500    /* and of one that it knows by its type alone */
#define FORMAT_TOKENS	       500
#define CONTEXT_ANTHROPIC      1100000 /* no model takes more: what would have more is refused, and costs nothing */
#define CONTEXT_OTHERS	       2200000
#define WORD		       (2 * MODEL_MAX) /* bytes; no word that is looked for, and no beginning of a URL, is longer */

/* ---- denials ---- */

int deny(struct denial *d, int status, const char *rule, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(d->text, sizeof d->text, fmt, ap);
	va_end(ap);
	d->status = status;
	d->rule = rule;
	d->retry_after = 0;
	return -EPERM;
}

static const char *type_of(int status, bool anthropic)
{
	static const struct {
		int status;
		const char *anthropic, *openai;
	} types[] = {{400, "invalid_request_error", "invalid_request_error"},
		     {401, "authentication_error", "invalid_request_error"},
		     {403, "permission_error", "invalid_request_error"},
		     {404, "not_found_error", "invalid_request_error"},
		     {413, "request_too_large", "invalid_request_error"},
		     {429, "rate_limit_error", "rate_limit_error"},
		     {503, "overloaded_error", "server_error"}};
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (types[i].status == status)
			return anthropic ? types[i].anthropic : types[i].openai;
	return status < 500 ? "invalid_request_error" : anthropic ? "api_error" : "server_error";
}

void denial_json(struct buf *out, const struct denial *d, bool anthropic)
{
	buf_adds(out, anthropic ? "{\"type\":\"error\",\"error\":{\"type\":\"" : "{\"error\":{\"type\":\"");
	buf_adds(out, type_of(d->status, anthropic));
	buf_adds(out, "\",\"message\":");
	CLEAN_FREE char *text = xasprintf("%s (berthfs gateway, rule %s)", d->text, d->rule);
	json_quote(out, text, strlen(text));
	buf_adds(out, anthropic ? "}}" : ",\"param\":null,\"code\":\"");
	if (!anthropic)
		buf_addf(out, "%s\"}}", d->rule);
}

/* ---- the top's members; the text is known to be strict JSON ---- */

static const char *skip_string(const char *p, const char *end)
{
	for (p++;; p += 2) {
		p += json_plain(p, (size_t)(end - p));
		while (*p != '"' && *p != '\\')
			p++;
		if (*p == '"')
			return p + 1;
	}
}

static const char *skip_blanks(const char *p)
{
	while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')
		p++;
	return p;
}

static const char *skip_value(const char *p, const char *end)
{
	int depth = 0;
	do {
		if (*p == '"') {
			p = skip_string(p, end);
			continue;
		}
		if (*p == '{' || *p == '[')
			depth++;
		else if (*p == '}' || *p == ']')
			depth--;
		else if (!depth) {
			while (!strchr(",}] \t\r\n", *p)) /* a number or a word */
				p++;
			return p;
		}
		p++;
	} while (depth);
	return p;
}

static int split(const struct policy *p, const char *text, size_t n, struct ask *a, struct denial *d)
{
	const char *at = skip_blanks(skip_blanks(text) + 1);
	while (*at != '}') {
		if (a->n == (int)ARRAY_LEN(a->members))
			return deny(d, 403, "field", "the request has too many fields");
		struct member *m = &a->members[a->n++];
		const char *end = skip_string(at, text + n);
		m->key = at + 1;
		m->key_n = (size_t)(end - at - 2);
		/* A key with an escape in it equals no name: nothing is unescaped here */
		if (!words_have(&p->routes[a->api].fields, m->key, m->key_n))
			return deny(d, 403, "field", "the field \"%.*s\" is not allowed for %s",
				    m->key_n < 60 ? (int)m->key_n : 60, m->key, api_path(a->api));
		m->value = skip_blanks(skip_blanks(end) + 1);
		end = skip_value(m->value, text + n);
		m->value_n = (size_t)(end - m->value);
		at = skip_blanks(end);
		if (*at == ',')
			at = skip_blanks(at + 1);
	}
	return 0;
}

/* ---- features ---- */

static bool starts(const char *s, const char *with)
{
	return s && !strncmp(s, with, strlen(with));
}

/* "bash_20250124": what else begins like it may be something of the provider's. */
static bool dated(const char *s, const char *with)
{
	return starts(s, with) && strlen(s) == strlen(with) + 8 && strspn(s + strlen(with), "0123456789") == 8;
}

static bool takes_items(enum api api)
{
	return api == API_RESPONSES || api == API_COUNT_INPUT;
}

/* Tools that the client runs itself; all others run at the provider. */
static bool client_tool(enum api api, const char *type)
{
	static const char *const anthropic[] = {"custom", "bash_", "text_editor_", "computer_", "memory_"};
	static const char *const openai[] = {"function", "custom", "local_shell", "apply_patch"};
	if (api == API_MESSAGES || api == API_COUNT_TOKENS) {
		if (!type)
			return true;
		for (size_t i = 0; i < ARRAY_LEN(anthropic); i++)
			if (i ? dated(type, anthropic[i]) : !strcmp(type, anthropic[i]))
				return true;
		return false;
	}
	for (size_t i = 0; type && i < ARRAY_LEN(openai); i++)
		if (!strcmp(type, openai[i]))
			return true;
	return false;
}

/* A namespace only groups tools: it is the client's if it has nothing but a name and tools of the client. */
static bool client_namespace(enum api api, const cJSON *t, const char *type)
{
	static const char *const keys[] = {"type", "name", "description", "tools"};
	const cJSON *i, *tools = json_get(t, "tools");
	if (!takes_items(api) || !type || strcmp(type, "namespace") || !cJSON_IsArray(tools))
		return false;
	cJSON_ArrayForEach(i, t)
	{
		bool known = false;
		for (size_t k = 0; k < ARRAY_LEN(keys); k++)
			known = known || !strcmp(i->string, keys[k]);
		if (!known)
			return false;
	}
	cJSON_ArrayForEach(i, tools)
	{
		if (!cJSON_IsObject(i) || !client_tool(api, cJSON_GetStringValue(json_get(i, "type"))))
			return false;
	}
	return true;
}

/* Some servers read keys without regard to case: a key that is looked at here is written as it is, or not at all. */
static int same_case(const cJSON *o, struct denial *d)
{
	static const char *const looked_at[] = {"type",	 "source", "image_url", "file",	 "file_id", "file_url", "url",
						"audio", "id",	   "role",	"tools", "content", "output",	NULL};
	const cJSON *i;
	cJSON_ArrayForEach(i, o)
	{
		if (!i->string[strcspn(i->string, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")])
			continue;
		for (size_t k = 0; looked_at[k]; k++)
			if (!strcasecmp(i->string, looked_at[k]))
				return deny(d, 400, "json", "the key \"%.60s\" is written \"%s\"", i->string,
					    looked_at[k]);
	}
	return 0;
}

static int check_tools(const struct policy *p, const struct ask *a, const cJSON *tools, struct denial *d)
{
	const cJSON *t;
	if (tools && !cJSON_IsArray(tools) && !cJSON_IsNull(tools))
		return deny(d, 400, "json", "tools has to be a list");
	cJSON_ArrayForEach(t, tools)
	{
		const cJSON *type = json_get(t, "type");
		if (!cJSON_IsObject(t) || (type && !cJSON_IsString(type)))
			return deny(d, 400, "json", "each of tools has to be an object, its type a word");
		if (same_case(t, d))
			return -EPERM;
		const char *word = cJSON_GetStringValue(type);
		if (!client_tool(a->api, word) && !client_namespace(a->api, t, word) &&
		    !(p->features & FEATURE_SERVER_TOOLS))
			return deny(d, 403, "feature.server-tools", "the tool type \"%.60s\" runs at the provider",
				    word ? word : "");
	}
	return 0;
}

static int not_url(const struct policy *p, const char *url, struct denial *d)
{
	if (!url || starts(url, "data:") || p->features & FEATURE_URL_CONTENT)
		return 0;
	return deny(d, 403, "feature.url-content", "the provider would fetch a URL; send the data itself");
}

static int blocks(const struct policy *p, struct ask *a, const cJSON *list, struct denial *d);

static bool is_one(const char *word, const char *const *words)
{
	for (; word && *words; words++)
		if (!strcmp(word, *words))
			return true;
	return false;
}

static int64_t image_tokens(const struct ask *a)
{
	return a->provider->kind == KIND_ANTHROPIC ? IMAGE_TOKENS
	       : starts(a->model, "gpt-4o-mini")   ? IMAGE_TOKENS_GPT4OMINI
						   : IMAGE_TOKENS_OTHERS;
}

/* A picture of few bytes can have as many tokens as a large one, and so can a document that is pictures of pages. */
static void size_of(struct ask *a, const cJSON *b, const char *type, const char *kind)
{
	static const char *const pictures[] = {"image", "image_url", "input_image", "computer_screenshot", NULL},
				 *const files[] = {"file", "input_file", NULL},
				 *const pdf[] = {"application/pdf", NULL};
	const cJSON *image = json_get(b, "image_url"), *data = json_get(json_get(b, "source"), "data"),
		    *url = cJSON_IsObject(image) ? json_get(image, "url") : image;
	bool base64 = kind && !strcmp(kind, "base64"), document = type && !strcmp(type, "document"),
	     text = document && kind && (!strcmp(kind, "text") || !strcmp(kind, "content"));
	if (image || is_one(type, pictures)) {
		a->extra += image_tokens(a);
		if (starts(cJSON_GetStringValue(url), "data:image/"))
			a->seen += (int64_t)json_size(url, WORD);
		else if (!image && type && !strcmp(type, "image") && base64)
			a->seen += (int64_t)json_size(data, WORD);
	} else if (is_one(type, files) || (document && !text)) {
		const cJSON *file = json_get(json_get(b, "file"), "file_data");
		file = file ? file : json_get(b, "file_data");
		a->extra += DOCUMENT_TOKENS;
		if (base64 && is_one(json_str(json_get(b, "source"), "media_type"), pdf))
			a->seen += (int64_t)json_size(data, WORD);
		else if (!document && starts(cJSON_GetStringValue(file), "data:application/pdf"))
			a->seen += (int64_t)json_size(file, WORD);
	}
}

/* One content block, message or input item. What a tool was called with is data, and not looked into. */
static int block(const struct policy *p, struct ask *a, const cJSON *b, struct denial *d)
{
	const cJSON *source = json_get(b, "source"), *image = json_get(b, "image_url"), *file = json_get(b, "file");
	const char *type = json_str(b, "type"), *kind = json_str(source, "type");
	bool stored = json_get(b, "file_id") || json_get(file, "file_id") || json_get(source, "file_id") ||
		      json_get(json_get(b, "audio"), "id") || (kind && !strcmp(kind, "file")) ||
		      (type && !strcmp(type, "item_reference")) || (type && !strcmp(type, "container_upload"));
	if (same_case(b, d) || (cJSON_IsObject(file) && same_case(file, d)) ||
	    (cJSON_IsObject(image) && same_case(image, d)))
		return -EPERM;
	if (stored && !(p->features & FEATURE_STORED_OBJECTS))
		return deny(d, 403, "feature.stored-objects", "objects that are stored at the provider cannot be used");
	if (kind && !strcmp(kind, "url") && !(p->features & FEATURE_URL_CONTENT))
		return not_url(p, "url", d);
	const char *urls[] = {cJSON_GetStringValue(image), json_str(image, "url"), json_str(b, "file_url"),
			      json_str(source, "url"), json_str(file, "file_url")};
	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		int rc = not_url(p, urls[i], d);
		if (rc)
			return rc;
	}
	size_of(a, b, type, kind);
	static const char *const inner[] = {"content", "output", "source"};
	for (size_t i = 0; i < ARRAY_LEN(inner); i++) {
		const cJSON *c = json_get(b, inner[i]);
		int rc = cJSON_IsArray(c) ? blocks(p, a, c, d) : cJSON_IsObject(c) ? block(p, a, c, d) : 0;
		if (rc)
			return rc;
	}
	return 0;
}

static int blocks(const struct policy *p, struct ask *a, const cJSON *list, struct denial *d)
{
	const cJSON *b;
	cJSON_ArrayForEach(b, list)
	{
		int rc = cJSON_IsObject(b) ? block(p, a, b, d) : 0;
		if (rc)
			return rc;
	}
	return 0;
}

/* Of Responses: an item with an id and neither type nor role refers to a stored one, like an item_reference. */
static int check_items(const struct policy *p, const cJSON *input, struct denial *d)
{
	const cJSON *i;
	cJSON_ArrayForEach(i, input)
	{
		if (json_get(i, "id") && !json_str(i, "type") && !json_str(i, "role") &&
		    !(p->features & FEATURE_STORED_OBJECTS))
			return deny(d, 403, "feature.stored-objects",
				    "an item of the input has an id and neither type nor role");
	}
	return 0;
}

static int check_features(const struct policy *p, struct ask *a, const cJSON *o, struct denial *d)
{
	static const char *const lists[] = {"messages", "input", "system"};
	int rc = check_tools(p, a, json_get(o, "tools"), d);
	for (size_t i = 0; !rc && i < ARRAY_LEN(lists); i++)
		rc = blocks(p, a, json_get(o, lists[i]), d);
	if (!rc && takes_items(a->api))
		rc = check_items(p, json_get(o, "input"), d);
	const cJSON *store = json_get(o, "store");
	if (!rc && store && !cJSON_IsFalse(store) && !(p->features & FEATURE_STORED_OBJECTS))
		rc = deny(d, 403, "feature.stored-objects", "store has to be false");
	return rc;
}

/* ---- what the meter needs ---- */

static int check_model(const struct policy *p, struct ask *a, const char *provider, const cJSON *o, struct denial *d)
{
	const char *m = json_str(o, "model");
	if (!m)
		return deny(d, 400, "model", "model has to be given, as a text");
	size_t n = strlen(m);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)m[i] <= 0x20 || (unsigned char)m[i] >= 0x7f || m[i] == '"' || m[i] == '\\')
			return deny(d, 403, "model", "the model's name has a character that no model has");
	if (!n || n >= sizeof a->model)
		return deny(d, 403, "model", "the model's name is empty or too long");
	memcpy(a->model, m, n + 1);
	a->provider = policy_provider_named(p, a->api, m, provider);
	if (!a->provider && provider)
		return deny(d, 403, "model",
			    "the policy has no line that lets the provider %.60s serve the model %.100s", provider, m);
	if (!a->provider)
		return deny(d, 403, "model", "the model %.100s is not allowed for %s", m, api_path(a->api));
	a->price = policy_price(p, a->provider, m);
	if (!a->price)
		return deny(d, 403, "price", "the policy has no price for the model %.100s; add a price line", m);
	return 0;
}

static int check_numbers(const struct policy *p, struct ask *a, const cJSON *o, struct denial *d)
{
	static const char *const caps[] = {"max_tokens", "max_completion_tokens", "max_output_tokens"};
	a->answer = INT64_MAX;
	for (size_t i = 0; i < ARRAY_LEN(caps); i++) {
		const cJSON *v = json_get(o, caps[i]);
		int64_t n;
		if (!v || cJSON_IsNull(v))
			continue;
		if (!json_int(o, caps[i], &n) || n < 0 || n > TOKENS_MAX)
			return deny(d, 400, "json", "%s has to be a whole number", caps[i]);
		if (a->cap_field)
			return deny(d, 400, "json", "%s and %s cannot both be given", a->cap_field, caps[i]);
		a->cap_field = caps[i];
		a->answer = n;
	}
	if (!a->cap_field)
		a->cap_field = a->api == API_RESPONSES ? "max_output_tokens"
			       : a->api == API_CHAT    ? a->provider->output_field
						       : "max_tokens";
	const cJSON *stream = json_get(o, "stream");
	if (stream && !cJSON_IsBool(stream) && !cJSON_IsNull(stream))
		return deny(d, 400, "json", "stream has to be true or false");
	a->stream = cJSON_IsTrue(stream);
	if (api_counts(a->api))
		a->answer = a->input = 0;
	return 0;
}

static void most_input(struct ask *a, const cJSON *o, size_t n)
{
	static const char *const formats[] = {"response_format", "output_format", "output_config", "text"};
	const cJSON *t, *tools = json_get(o, "tools");
	int64_t most = a->provider->kind == KIND_ANTHROPIC ? CONTEXT_ANTHROPIC : CONTEXT_OTHERS;
	cJSON_ArrayForEach(t, tools)
	{
		const char *type = json_str(t, "type");
		a->extra += type && strcmp(type, "function") && strcmp(type, "custom") ? OWN_TOOL_TOKENS : 0;
	}
	a->extra += cJSON_GetArraySize(tools) ? TOOLS_TOKENS : 0;
	for (size_t i = 0; i < ARRAY_LEN(formats); i++)
		a->extra += json_get(o, formats[i]) ? FORMAT_TOKENS : 0;
	a->input = (int64_t)n + 16 - a->seen + a->extra;
	a->input = a->input < most ? a->input : most;
}

int body_check(const struct policy *p, enum api api, const char *text, size_t n, struct ask *a, struct denial *d)
{
	return body_check_for(p, api, NULL, text, n, a, d);
}

int body_check_for(const struct policy *p, enum api api, const char *provider, const char *text, size_t n,
		   struct ask *a, struct denial *d)
{
	struct err err = ERR_INIT;
	*a = (struct ask){.api = api};
	if (!n)
		return deny(d, 400, "json", "the request has no body");
	/* What goes out is put together from the text itself: here only words, numbers and the form count */
	CLEAN_JSON cJSON *o = json_parse_sized(text, n, WORD, &err);
	if (!o)
		return deny(d, 400, "json", "%.300s", err.text);
	if (!cJSON_IsObject(o))
		return deny(d, 400, "json", "the body has to be a JSON object");
	int rc = split(p, text, n, a, d);
	if (!rc)
		rc = check_model(p, a, provider, o, d);
	if (!rc)
		rc = check_numbers(p, a, o, d);
	if (!rc)
		rc = check_features(p, a, o, d);
	if (!rc && !api_counts(api))
		most_input(a, o, n);
	return rc;
}

static bool is_key(const struct member *m, const char *name)
{
	return m->key_n == strlen(name) && !memcmp(m->key, name, m->key_n);
}

void body_build(const struct policy *p, const struct ask *a, int64_t answer, struct buf *out)
{
	bool cap = answer != INT64_MAX && !api_counts(a->api);
	bool store =
		a->api == API_RESPONSES && !(p->features & FEATURE_STORED_OBJECTS); /* the provider's default is true */
	size_t size = 64;
	for (int i = 0; i < a->n; i++)
		size += a->members[i].key_n + a->members[i].value_n + 4;
	buf_reserve(out, size);
	buf_addf(out, "{\"model\":\"%s\"", a->model);
	for (int i = 0; i < a->n; i++) {
		const struct member *m = &a->members[i];
		if (is_key(m, "model") || (cap && is_key(m, a->cap_field)) || (store && is_key(m, "store")))
			continue;
		buf_adds(out, ",\"");
		buf_add(out, m->key, m->key_n);
		buf_adds(out, "\":");
		buf_add(out, m->value, m->value_n);
	}
	if (cap)
		buf_addf(out, ",\"%s\":%lld", a->cap_field, (long long)answer);
	buf_adds(out, store ? ",\"store\":false}" : "}");
}
