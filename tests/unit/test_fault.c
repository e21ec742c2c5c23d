/* Which failed model requests are tried again, and when. */
#include "backend/fault.h"

#include "backend/base/mem.h"
#include "check.h"

static enum fault_kind judge(int status, const char *code, const char *words, int should, bool broken)
{
	struct model_fault f = {.status = status, .retry = broken, .should_retry = (signed char)should};
	snprintf(f.code, sizeof f.code, "%s", code);
	return fault_judge(&f, words);
}

TEST(statuses)
{
	static const int again[] = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529},
			 never[] = {400, 401, 402, 403, 404, 405, 422, 501};
	for (size_t i = 0; i < ARRAY_LEN(again); i++)
		CHECK_INT(judge(again[i], "", "", 0, false), FAULT_RETRY);
	for (size_t i = 0; i < ARRAY_LEN(never); i++)
		CHECK_INT(judge(never[i], "", "", 0, false), FAULT_NEVER);
	CHECK_INT(judge(413, "", "", 0, false), FAULT_OVERFLOW);
	CHECK_INT(judge(0, "", "connection reset", 0, true), FAULT_RETRY);
	CHECK_INT(judge(0, "", "no such model", 0, false), FAULT_NEVER);
}

TEST(spent_money_and_bad_requests_are_never_tried_again)
{
	static const char *const codes[] = {"insufficient_quota",	    "billing_error",
					    "contract_spend_limit_reached", "enforced_spend_limit_reached",
					    "invalid_request_error",	    "authentication_error"};
	for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
		CHECK_INT(judge(429, codes[i], "", 0, false), FAULT_NEVER);
		CHECK_INT(judge(429, codes[i], "rate limit", 1, true), FAULT_NEVER);
	}
	CHECK_INT(
		judge(429, "", "You exceeded your current quota, please check your plan and billing details", 1, false),
		FAULT_NEVER);
	CHECK_INT(judge(400, "", "bad", 1, false), FAULT_NEVER);
	CHECK_INT(judge(429, "ramp_limit_exceeded", "spend limit", 0, false),
		  FAULT_RETRY); /* a code goes before words */
}

TEST(the_servers_own_word)
{
	CHECK_INT(judge(529, "overloaded_error", "", -1, false), FAULT_NEVER);
	CHECK_INT(judge(501, "", "", 1, false), FAULT_RETRY);
	CHECK_INT(judge(418, "", "", 1, false), FAULT_RETRY);
	CHECK_INT(judge(400, "overloaded_error", "", 0, false),
		  FAULT_RETRY); /* an error inside a stream that began with 200 */
}

TEST(too_long)
{
	CHECK_INT(judge(400, "invalid_request_error",
			"input length and `max_tokens` exceed context limit: 150000 + 64000 > 200000", 0, false),
		  FAULT_OVERFLOW);
	CHECK_INT(judge(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", 0, false),
		  FAULT_OVERFLOW);
	CHECK_INT(judge(400, "context_length_exceeded", "", 0, false), FAULT_OVERFLOW);
	CHECK_INT(judge(500, "", "the request exceeds the available context size", 0, false), FAULT_OVERFLOW);
	CHECK_INT(judge(429, "", "Rate limit: reduce the length or wait", 0, false), FAULT_RETRY);
}

TEST(retry_after)
{
	int64_t now = 1800000000000; /* 2027-01-15T08:00:00Z */
	CHECK_INT(fault_retry_after("Retry-After", "7", now), 7000);
	CHECK_INT(fault_retry_after("retry-after", "0.5 ", now), 500);
	CHECK_INT(fault_retry_after("retry-after-ms", "1500", now), 1500);
	CHECK_INT(fault_retry_after("RETRY-AFTER", "Fri, 15 Jan 2027 08:00:30 GMT", now), 30000);
	CHECK_INT(fault_retry_after("retry-after", "Fri, 15 Jan 2027 07:00:00 GMT", now), 0);
	CHECK_INT(fault_retry_after("retry-after", "-5", now), 0);
	CHECK_INT(fault_retry_after("retry-after", "soon", now), 0);
	CHECK_INT(fault_retry_after("retry-after", "nan", now), 0);
	CHECK_INT(fault_retry_after("retry-after", "1e300", now), 7 * 86400000LL);
	CHECK_INT(fault_retry_after("x-other", "7", now), 0);
	CHECK_INT(fault_retry_after("retry-after-ms", "Fri, 15 Jan 2027 08:00:30 GMT", now), 0);
}

TEST(backoff)
{
	struct model_fault f = {0};
	CHECK_INT(fault_backoff_ms(&f, 1, 0), 2000);
	CHECK_INT(fault_backoff_ms(&f, 2, 0), 4000);
	CHECK_INT(fault_backoff_ms(&f, 1000000, 0), 60000);
	for (uint64_t r = 0; r < 1000; r++)
		CHECK(fault_backoff_ms(&f, 9, r) > 45000 - 1 && fault_backoff_ms(&f, 9, r) <= 60000);
	f.retry_after_ms = 90000;
	CHECK_INT(fault_backoff_ms(&f, 1, 500), 90000);
	f.retry_after_ms = 1;
	CHECK_INT(fault_backoff_ms(&f, 1, 0), 2000);
}

CHECK_MAIN()
