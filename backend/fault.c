/* What a failed model request means: tables of the providers' error codes, of HTTP statuses and, for servers that give
 * no code, of phrases. Any thread. */
#include "fault.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "backend/base/mem.h"

#define BACKOFF_MS  2000 /* before the first retry; doubles */
#define BACKOFF_MAX 60000
#define ASKED_MAX   (7 * 86400000LL) /* a longer wait than a week is a mistake of the server */

/* Error types and codes of Anthropic, OpenAI and compatible servers. */
static const struct {
	const char *code;
	enum fault_kind kind;
	bool firm; /* holds whatever x-should-retry says */
} codes[] = {
	{"context_length_exceeded", FAULT_OVERFLOW, true},
	{"request_too_large", FAULT_OVERFLOW, true},
	{"model_context_window_exceeded", FAULT_OVERFLOW, true},
	{"insufficient_quota", FAULT_NEVER, true},
	{"billing_error", FAULT_NEVER, true},
	{"billing_hard_limit_reached", FAULT_NEVER, true},
	{"billing_not_active", FAULT_NEVER, true},
	{"contract_spend_limit_reached", FAULT_NEVER, true},
	{"enforced_spend_limit_reached", FAULT_NEVER, true},
	{"spend_limit_reached", FAULT_NEVER, true},
	{"usage_limit_reached", FAULT_NEVER, true},
	{"invalid_request_error", FAULT_NEVER, true},
	{"authentication_error", FAULT_NEVER, true},
	{"permission_error", FAULT_NEVER, true},
	{"not_found_error", FAULT_NEVER, true},
	{"invalid_api_key", FAULT_NEVER, true},
	{"model_not_found", FAULT_NEVER, true},
	{"content_policy_violation", FAULT_NEVER, true},
	{"invalid_prompt", FAULT_NEVER, true},
	{"ramp_limit_exceeded", FAULT_RETRY, false},
	{"rate_limit_error", FAULT_RETRY, false},
	{"rate_limit_exceeded", FAULT_RETRY, false},
	{"overloaded_error", FAULT_RETRY, false},
	{"engine_overloaded", FAULT_RETRY, false},
	{"server_overloaded", FAULT_RETRY, false},
	{"api_error", FAULT_RETRY, false},
	{"server_error", FAULT_RETRY, false},
	{"timeout_error", FAULT_RETRY, false},
};

static const struct {
	int status;
	enum fault_kind kind;
	bool firm;
} statuses[] = {
	{400, FAULT_NEVER, true},  {401, FAULT_NEVER, true},  {402, FAULT_NEVER, true},	 {403, FAULT_NEVER, true},
	{404, FAULT_NEVER, true},  {408, FAULT_RETRY, false}, {409, FAULT_RETRY, false}, {413, FAULT_OVERFLOW, true},
	{422, FAULT_NEVER, true},  {425, FAULT_RETRY, false}, {429, FAULT_RETRY, false}, {499, FAULT_RETRY, false},
	{501, FAULT_NEVER, false}, {505, FAULT_NEVER, false},
};

static const char *const limits_of_rate[] = {"rate limit", "too many requests", "throttl", "tokens per min"};
static const char *const overflows[] = {"prompt is too long",
					"prompt too long",
					"exceeds the context window",
					"maximum context length",
					"context length exceeded",
					"context window exceeded",
					"exceeds the available context size",
					"greater than the context length",
					"input token count exceeds",
					"maximum prompt length",
					"reduce the length",
					"exceeded model token limit",
					"range of input length",
					"exceed context limit",
					"exceeds the context limit"};
static const char *const spent[] = {"insufficient_quota",
				    "insufficient quota",
				    "exceeded your current quota",
				    "credit balance is too low",
				    "billing",
				    "spend limit",
				    "spending limit",
				    "usage limit",
				    "monthly limit"};

static bool says(const char *words, const char *const *list, size_t n)
{
	for (size_t i = 0; words && i < n; i++)
		if (strcasestr(words, list[i]))
			return true;
	return false;
}

/* What code or status say. False: neither is known. */
static bool listed(const struct model_fault *f, enum fault_kind *kind, bool *firm)
{
	for (size_t i = 0; i < ARRAY_LEN(codes); i++)
		if (*f->code && !strcmp(f->code, codes[i].code)) {
			*kind = codes[i].kind;
			*firm = codes[i].firm;
			return true;
		}
	for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
		if (f->status == statuses[i].status) {
			*kind = statuses[i].kind;
			*firm = statuses[i].firm;
			return true;
		}
	return false;
}

enum fault_kind fault_judge(const struct model_fault *f, const char *words)
{
	bool firm = false, rate = says(words, limits_of_rate, ARRAY_LEN(limits_of_rate));
	enum fault_kind kind = f->status >= 500 || (!f->status && f->retry) ? FAULT_RETRY : FAULT_NEVER;
	listed(f, &kind, &firm);
	/* servers that call everything a bad request, or 429, tell it only in words */
	bool vague = !*f->code || !strcmp(f->code, "invalid_request_error");
	if (vague && f->status && !rate && says(words, overflows, ARRAY_LEN(overflows)))
		return FAULT_OVERFLOW;
	if (!*f->code && f->status == 429 && says(words, spent, ARRAY_LEN(spent)))
		return FAULT_NEVER;
	if (firm || !f->should_retry)
		return kind;
	return f->should_retry > 0 ? FAULT_RETRY : FAULT_NEVER;
}

bool fault_of_thinking(const struct model_fault *f, const char *words)
{
	static const char *const list[] = {"thinking", "signature", "reasoning", "encrypted"};
	return (f->status == 400 || f->status == 404) && says(words, list, ARRAY_LEN(list));
}

static int64_t bounded(double ms)
{
	return !(ms > 0) ? 0 : ms > ASKED_MAX ? ASKED_MAX : (int64_t)(ms + 0.999);
}

int64_t fault_retry_after(const char *name, const char *value, int64_t now_ms)
{
	char *end;
	struct tm tm = {0};
	bool ms = !strcasecmp(name, "retry-after-ms");
	if (!ms && strcasecmp(name, "retry-after"))
		return 0;
	double v = strtod(value, &end);
	if (end != value && !end[strspn(end, " \t\r\n")])
		return bounded(ms ? v : v * 1000);
	const char *rest = ms ? NULL : strptime(value, "%a, %d %b %Y %H:%M:%S GMT", &tm);
	return rest ? bounded((double)timegm(&tm) * 1000 - (double)now_ms) : 0;
}

int64_t fault_backoff_ms(const struct model_fault *f, int64_t attempt, uint64_t random)
{
	int64_t ms = BACKOFF_MS;
	for (int64_t i = 1; i < attempt && ms < BACKOFF_MAX; i++)
		ms *= 2;
	if (ms > BACKOFF_MAX)
		ms = BACKOFF_MAX;
	ms -= ms / 4 * (int64_t)(random % 1000) / 1000; /* jitter: many sessions must not come back at once */
	return f->retry_after_ms > ms ? f->retry_after_ms : ms;
}
