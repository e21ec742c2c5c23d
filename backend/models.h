/* Which models there are, who serves them and what they can: a built-in table, and over it the keys `provider.NAME.…`
 * and `model.NAME.…` of config. Pure; any thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "config.h"

#define MODEL_NAME 128 /* bytes with the NUL: what the gateway takes, and its provider's name before a slash */

/* Ways in which servers differ from the format that they speak: words of provider.NAME.quirks. */
enum quirk {
	QUIRK_MAX_TOKENS = 1,	/* max-tokens: the cap is called max_tokens */
	QUIRK_NO_USAGE = 2,	/* no-usage: refuses stream_options */
	QUIRK_TOOL_NAME = 4,	/* tool-name: a tool's result has to name the tool */
	QUIRK_NULL_CONTENT = 8, /* null-content: an answer of calls alone has content null, not "" */
};

struct provider_info {
	char name[64];
	char kind[16]; /* anthropic, openai, responses */
	char url[256]; /* "": the gateway's policy has it */
	char key[64];  /* whose key: a name in gateway/keys */
	char ca[256];  /* file of the certificates that its own is signed by; "": the machine's */
	int quirks;
	bool set; /* config says something about it */
};

struct model_info {
	char name[MODEL_NAME]; /* as the user writes it */
	char id[MODEL_NAME];   /* as the provider is asked */
	struct provider_info provider;
	int64_t window, max_output; /* tokens; 0: not known */
	char thinking[16];	    /* off, on, adaptive, summarized, an effort, or tokens */
	bool images;
	bool priced;
	struct price price;
};

/* By name: NAME of config or the table, or PROVIDER/ID. -EINVAL in words if nobody serves it. */
int models_find(const struct config *c, const char *name, struct model_info *out, struct err *err);
/* By name, also of one that config does not mention but knows by default. -EINVAL in words. */
int models_provider(const struct config *c, const char *name, struct provider_info *out, struct err *err);
/* Tokens that it takes, by config or the table; 0: not known. Any name will do. */
int64_t models_window(const struct config *c, const char *name);
/* Dollars for a million tokens; false if not known. */
bool models_price(const struct config *c, const char *name, struct price *out);
/* The providers: built in (with a place to go to) or of config. Names in out, a line each. */
void models_providers(const struct config *c, struct buf *out);
/* Names that config and the table have for this provider, a line each; those of the table are patterns. */
void models_names(const struct config *c, const char *provider, struct buf *out);
/* Is its address on this machine? Such a server needs no key and costs nothing. */
bool provider_near(const struct provider_info *p);

/* For config: one key of the family. name is the whole, e.g. "provider.ollama.url". */
int models_check_provider(const char *name, const char *value, struct err *err);
int models_check_model(const char *name, const char *value, struct err *err);
