/* What a session has used: requests, tokens and cost by model, calls by tool. Store thread, in the commit of what is
 * counted (usage_text: reader threads too). */
#pragma once
#include "config.h"
#include "session.h"

enum use_end { USE_DONE, USE_FAILED, USE_ABORTED };

/* One attempt of a model request. tokens_in holds the cached ones as well; 0 where nothing is known. */
int usage_request(struct tx *tx, struct session *s, const struct config *c, const char *model, enum use_end end,
		  int64_t tokens_in, int64_t tokens_out, int64_t cached, struct err *err);
/* The same for several that went well and were counted together. */
int usage_requests(struct tx *tx, struct session *s, const struct config *c, const char *model, int64_t requests,
		   int64_t tokens_in, int64_t tokens_out, int64_t cached, struct err *err);
/* One tool call. */
int usage_call(struct tx *tx, struct session *s, const char *tool, enum use_end end, struct err *err);
/* The `usage` file: tab-separated requests, tokens in, out, cached, cost in dollars, model or `tool NAME`, failed,
 * aborted. A tool has `-` for tokens and cost, a model without a known price for its cost. */
int usage_text(struct db *db, int64_t session, struct buf *out, struct err *err);
