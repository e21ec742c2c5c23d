/* Feeds bytes as a request's body to the policy's check: what it lets through goes out as strict JSON that says the
 * same as what came, with the model that was checked. Built with -fsanitize=fuzzer, or with -DFUZZ_MAIN. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "gateway/body.h"
#include "gateway/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct policy *policy;
	static const enum api apis[] = {API_MESSAGES, API_COUNT_TOKENS, API_CHAT, API_RESPONSES};
	if (!policy && policy_parse(policy_default, strlen(policy_default), &policy, NULL))
		abort();
	for (size_t i = 0; i < sizeof apis / sizeof *apis; i++) {
		struct ask a;
		struct denial d = {0};
		CLEAN_BUF struct buf out = BUF_INIT;
		CLEAN_BUF struct buf text = BUF_INIT;
		buf_add(&text, p, n); /* with a NUL after it, as a request's body has */
		if (body_check(policy, apis[i], buf_str(&text), n, &a, &d)) {
			if (d.status < 400 || !d.rule || !*d.text)
				abort();
			continue;
		}
		body_build(policy, &a, INT64_MAX, &out);
		CLEAN_JSON cJSON *before = json_parse(buf_str(&text), n, NULL);
		CLEAN_JSON cJSON *after = json_parse(out.p, out.n, NULL);
		if (!before || !after || !a.provider || !a.price || strcmp(json_str(after, "model"), a.model) ||
		    !policy_provider(policy, apis[i], a.model))
			abort();
		if (apis[i] == API_RESPONSES) {
			if (!cJSON_IsFalse(json_get(after, "store")))
				abort();
			cJSON_DeleteItemFromObject(after, "store");
			cJSON_DeleteItemFromObject(before, "store");
		}
		if (!cJSON_Compare(before, after, true))
			abort();
	}
	return 0;
}

#ifdef FUZZ_MAIN
#include "fuzz_main.h"
#endif
