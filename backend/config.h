/* The `config` file: `key = value` lines, checked against one table of keys. An immutable struct, ref-counted. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

enum config_key {
	CONFIG_MODEL,
	CONFIG_PROJECT,
	CONFIG_SANDBOX,
	CONFIG_SIZE,
	CONFIG_NETWORK,
	CONFIG_AFTER_RUN,
	CONFIG_SHIP,
	CONFIG_APPROVALS,
	CONFIG_AGENT,
	CONFIG_ALLOW_DIR,
	CONFIG_BOOT_TIMEOUT,
	CONFIG_DISK,
	CONFIG_CHECK_TIMEOUT,
	CONFIG_WORKERS,
	CONFIG_IDLE_PAUSE,
	CONFIG_IDLE_HIBERNATE,
	CONFIG_IDLE_DOWN,
	CONFIG_GATEWAY_LISTEN,
	CONFIG_LEDGER_SYNC,
	CONFIG_HTTP_LISTEN,
	CONFIG_SANDBOX_LAUNCH,
	CONFIG_SHIP_HOSTS,
	CONFIG_PROTECTED,
	CONFIG_RETRY_LIMIT,
	CONFIG_OUTPUT_LIMIT,
	CONFIG_ANSWER_BEGIN,
	CONFIG_ANSWER_IDLE,
	CONFIG_WINDOW,
	CONFIG_APPROVALS_ASK,
	CONFIG_CLAUDE_PROGRAM,
	CONFIG_CLAUDE_KEEP,
	CONFIG_CLAUDE_IDLE,
	CONFIG_KEYS,
};

struct config {
	atomic_int refs;
	char *text;		  /* as written */
	char *value[CONFIG_KEYS]; /* never NULL: the default where the text has none */
	struct config_extra {	  /* keys of families, such as price.MODEL */
		char *name, *value;
	} * extra;
	size_t n_extra;
};

/* A value of a key that also stands in front matter and settings/ ("model", "sandbox", "size"...). Only its form is
 * checked. 0, -EINVAL (words list what is possible) or -EOPNOTSUPP (known, not built yet). */
int value_check(const char *key, const char *value, struct err *err);

int config_parse(const char *text, size_t n, struct config **out, struct err *err); /* words name line and reason */
/* One line alone; blank and # lines are fine. */
int config_line(const char *line, size_t n, struct err *err);
struct config *config_get(struct config *c);
void config_put(struct config *c);
/* Dollars for a million tokens. */
struct price {
	double in, out, cached;
};
bool config_price(const struct config *c, const char *model, struct price *out); /* false: no `price.MODEL` is set */
const char *config_extra(const struct config *c, const char *name);		 /* value of a family's key, or NULL */
int64_t config_window(const struct config *c);					 /* model.window in tokens, 0: auto */
int64_t config_int(const struct config *c, enum config_key key);
/* The file of a first start: every key with its default, commented out. */
void config_default_text(struct buf *out);
