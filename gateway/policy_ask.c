/* Questions to a policy. One thread; pure. */
#include <string.h>

#include "policy.h"

bool glob_match(const char *glob, const char *text)
{
	const char *star = NULL, *back = NULL;
	while (*text) {
		if (*glob == '*') {
			star = glob++;
			back = text;
		} else if (*glob == *text) {
			glob++;
			text++;
		} else if (star) {
			glob = star + 1;
			text = ++back;
		} else {
			return false;
		}
	}
	while (*glob == '*')
		glob++;
	return !*glob;
}

bool policy_beta(const struct policy *p, const char *text, size_t n)
{
	char name[128];
	if (!n || n >= sizeof name)
		return false;
	memcpy(name, text, n);
	name[n] = 0;
	if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != n) /* or a * would stand for a list */
		return false;
	for (size_t i = 0; i < p->betas.n; i++)
		if (glob_match(p->betas.p[i], name))
			return true;
	return false;
}

const struct provider *policy_provider(const struct policy *p, enum api api, const char *model)
{
	return policy_provider_named(p, api, model, NULL);
}

const struct provider *policy_provider_named(const struct policy *p, enum api api, const char *model, const char *name)
{
	list_each (i, &p->models) {
		const struct model_rule *m = list_entry(i, struct model_rule, link);
		if (name && strcmp(name, m->provider->name))
			continue;
		if (api_served(api, m->provider->kind) && glob_match(m->glob, model))
			return m->provider;
	}
	return NULL;
}

const struct price *policy_price(const struct policy *p, const struct provider *provider, const char *model)
{
	static const struct price free_of_charge;
	list_each (i, &p->prices) {
		const struct price *c = list_entry(i, struct price, link);
		if (glob_match(c->glob, model))
			return c;
	}
	return provider->local ? &free_of_charge : NULL;
}

const struct host_rule *policy_map(const struct policy *p, const char *host, int port)
{
	list_each (i, &p->maps) {
		const struct host_rule *h = list_entry(i, struct host_rule, link);
		if (!strcmp(h->host, host) && (!h->port || h->port == port))
			return h;
	}
	return NULL;
}

const struct host_rule *policy_host(const struct policy *p, const char *host, int port, int usual, bool vendor)
{
	list_each (i, &p->hosts) {
		const struct host_rule *h = list_entry(i, struct host_rule, link);
		bool port_fits = port == (h->port ? h->port : usual);
		if (h->vendor == vendor && port_fits && !strcmp(h->host, host))
			return h;
	}
	return NULL;
}

const struct forge_rule *policy_forge(const struct policy *p, const char *host)
{
	list_each (i, &p->forges) {
		const struct forge_rule *f = list_entry(i, struct forge_rule, link);
		if (!strcmp(f->host, host))
			return f;
	}
	return NULL;
}
