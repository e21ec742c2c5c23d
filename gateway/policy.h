/* The policy: what may be asked, of whom, by which limits and at what price. A text of lines that a person edits; read
 * as a whole, refused as a whole with line and reason. Immutable once read; ref-counted; one thread. The words of the
 * text are explained in the default policy (policy_default.c), which is written at first start. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/base/list.h"

enum api { API_MESSAGES, API_COUNT_TOKENS, API_CHAT, API_RESPONSES, API_COUNT_INPUT, API_MODELS, API_N };
enum kind { KIND_ANTHROPIC, KIND_OPENAI, KIND_RESPONSES };
enum scope { SCOPE_SESSION, SCOPE_PROJECT, SCOPE_DAY, SCOPES };
enum limit { LIMIT_RATE, LIMIT_CONCURRENCY, LIMIT_TOKENS, LIMIT_MONEY, LIMIT_BYTES, LIMITS };
enum feature { FEATURE_SERVER_TOOLS = 1, FEATURE_URL_CONTENT = 2, FEATURE_STORED_OBJECTS = 4 };
enum egress { EGRESS_NONE, EGRESS_REGISTRIES, EGRESS_INTERNET };

#define LIMIT_OFF INT64_MAX

/* Betas of a policy without a beta line. They change how a model answers, or name fields and tools that are checked in
 * the body; none starts something at the provider by itself. Not here: what makes a model dearer than its price line
 * says (fast-mode, context-1m) or lets another model answer (server-side-fallback), and what is used up without being
 * told where it is looked for (compact). */
#define POLICY_BETAS_A "claude-code-* interleaved-thinking-* redact-thinking-* adaptive-thinking-* dev-full-thinking-*"
#define POLICY_BETAS_B                                                                                                 \
	"thinking-token-count-* effort-* task-budgets-* token-counting-* token-efficient-tools-* output-128k-*"
#define POLICY_BETAS_C                                                                                                 \
	"context-management-* context-hint-* model-context-window-exceeded-* prompt-caching-* cache-diagnosis-*"
#define POLICY_BETAS_D                                                                                                 \
	"extended-cache-ttl-* fine-grained-tool-streaming-* structured-outputs-* mid-conversation-system-*"
#define POLICY_BETAS_E                                                                                                 \
	"advanced-tool-use-* tool-search-tool-* advisor-tool-* computer-use-* pdfs-* summarize-connector-text-*"
#define POLICY_BETAS_F "afk-mode-* fallback-credit-*"

struct words { /* a list of strings */
	char **p;
	size_t n;
};

struct provider {
	struct list link;
	char *name, *url; /* url without a trailing slash or /v1 */
	char *key, *ca;	  /* name of its key; file of certificates, or NULL */
	enum kind kind;
	bool local;		  /* loopback or LAN: costs nothing by default and needs no key */
	const char *output_field; /* for chat: what caps the answer's length */
};

struct route {
	bool on;
	struct words query, fields;
};

struct price { /* picodollars a token, which is the same as microdollars a million tokens */
	struct list link;
	char *glob;
	int64_t input, output, cache_read, cache_write;
};

struct model_rule {
	struct list link;
	char *glob;
	const struct provider *provider;
};

struct host_rule { /* HOST[:PORT]; a port of 0 is 443 or 80 by the kind of request */
	struct list link;
	char *host;
	int port;
	char *to;    /* map: the ADDRESS:PORT that is dialled instead; or NULL */
	bool vendor; /* egress vendor: for the model vendor's own client on the host */
};

enum forge { FORGE_GITHUB, FORGE_GITLAB, FORGE_GITEA, FORGES };
struct forge_rule { /* who takes pull requests for the projects of a host */
	struct list link;
	char *host;
	char *url;	/* of its API, without a trailing slash */
	char *key, *ca; /* as of a provider */
	enum forge kind;
};

struct policy {
	int refs;
	char *text;
	struct route routes[API_N];
	struct list providers, models, prices, hosts, maps, forges;
	int features;
	struct words betas;		/* globs */
	int64_t limits[SCOPES][LIMITS]; /* money in nanodollars */
	int64_t answer_tokens;		/* reserved for an answer whose request names no maximum */
	int64_t body_max;
};

int policy_parse(const char *text, size_t n, struct policy **out, struct err *err); /* words: "line 3: ..." */
/* One line alone, for a file that is written line by line. */
int policy_line(const char *line, size_t n, struct err *err);
struct policy *policy_get(struct policy *p);
void policy_put(struct policy *p);
extern const char policy_default[];

/* The API that method and path name exactly, or API_N. */
enum api policy_api(const char *method, size_t method_n, const char *path, size_t path_n);
const char *api_method(enum api api);
const char *api_path(enum api api);
bool api_counts(enum api api); /* nothing is generated, and it costs nothing */
bool api_served(enum api api, enum kind kind);
bool glob_match(const char *glob, const char *text);
void words_release(struct words *w);
/* A name that anthropic-beta gives, of n bytes. */
bool policy_beta(const struct policy *p, const char *name, size_t n);
bool words_have(const struct words *w, const char *word, size_t n);
/* The provider that serves the model by this API, or NULL. */
const struct provider *policy_provider(const struct policy *p, enum api api, const char *model);
/* The same among the lines of one provider; NULL: any. */
const struct provider *policy_provider_named(const struct policy *p, enum api api, const char *model, const char *name);
/* The price of a model there, or NULL if none is known. */
const struct price *policy_price(const struct policy *p, const struct provider *provider, const char *model);
const struct host_rule *policy_map(const struct policy *p, const char *host, int port);
/* usual: the port of rules that name none, by the kind of request. */
const struct host_rule *policy_host(const struct policy *p, const char *host, int port, int usual, bool vendor);
const struct forge_rule *policy_forge(const struct policy *p, const char *host);
