/* What config says about providers, as lines of the gateway's policy; and which of them can be used. */
#pragma once
#include "core.h"
#include "models.h"

#define PROVIDER_POLICY 80 /* bytes of a provider's name in the policy */

/* The policy with the lines that config stands for, between two marks at its end; what a person wrote stays. Pure. */
void providers_merge(const char *policy, const struct config *c, struct buf *out);
/* By what name that policy knows a provider of config. Pure. */
void providers_name(const char *policy, const struct provider_info *p, char out[PROVIDER_POLICY]);
/* Sees to it that the gateway's policy has config's lines; out: the provider's name there. Worker threads; blocks.
 * -EAGAIN in words: the gateway cannot be reached. */
int providers_tell(struct backend *b, const struct config *c, const struct provider_info *p, char out[PROVIDER_POLICY],
		   struct err *err);
/* Names of the keys that there are, a line each; also while the gateway does not run. Blocks. */
void providers_keys(const struct paths *paths, struct buf *out);
/* claude-code if that is logged in, else the usual model of the first provider with a key, for sessions of a config
 * without one; malloc'd, NULL if there is neither. Pool threads; blocks. */
char *providers_default(const struct paths *paths, const struct config *c);
