/* Who serves which model, and how config and the gateway's policy stay of one mind. */
#include <errno.h>
#include <stdlib.h>

#include "backend/base/mem.h"
#include "backend/providers.h"
#include "check.h"
#define price policy_price_struct /* both folders have a struct price */
#include "gateway/policy.h"
#undef price

static struct err err;

static struct config *parse(const char *text)
{
	struct config *c = NULL;
	err = ERR_INIT;
	config_parse(text, strlen(text), &c, &err);
	return c;
}

static const char *const good[] = {
	"provider.ollama.kind = openai",
	"provider.ollama.url = http://127.0.0.1:11434",
	"provider.my_box-2.url = https://models.example:8443/base/v1",
	"provider.x.key = openai",
	"provider.x.quirks = max-tokens tool-name",
	"provider.x.quirks = none",
	"model.gpt-5.1.window = 400000",
	"model.qwen3:8b.max-output = 8192",
	"model.org/name.v2.provider = ollama",
	"model.m.id = another/name",
	"model.m.thinking = 4096",
	"model.m.thinking = high",
	"model.m.images = no",
};

static const struct {
	const char *line, *words;
} wrong[] = {
	{"provider.ollama = x", "lacks a name or a field"},
	{"provider..url = http://127.0.0.1", "lacks a name"},
	{"provider.a b.kind = openai", "letters, digits"},
	{"provider.x.kind = gemini", "possible: anthropic"},
	{"provider.x.url = http://models.example", "https:// is needed"},
	{"provider.x.url = ftp://127.0.0.1", "https://"},
	{"provider.x.url = https://u:p@models.example", "https://HOST"},
	{"provider.x.url = https://a b", "https://HOST"},
	{"provider.x.url = https://models.example key other", "https://HOST"},
	{"provider.x.quirks = max-tokens odd", "\"odd\" is no quirk"},
	{"provider.x.colour = red", "kind, url, key, ca and quirks"},
	{"provider.x.ca = relative.pem", "absolute path"},
	{"provider.x.ca = /a b", "absolute path"},
	{"model.m.window = many", "number of tokens"},
	{"model.m.window = 0", "number of tokens"},
	{"model.m.thinking = 100", "from 1024"},
	{"model.m.thinking = much", "off, on"},
	{"model.m.images = maybe", "yes or no"},
	{"model.m.speed = 3", "a model has provider"},
};

TEST(keys_of_config)
{
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct config *c = parse(good[i]);
		CHECK_STR(err.text, "");
		CHECK(c != NULL);
		config_put(c);
	}
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct config *c = parse(wrong[i].line);
		CHECK(!c);
		CHECK_INT(err.code, EINVAL);
		if (!strstr(err.text, wrong[i].words))
			CHECK_STR(err.text, wrong[i].words);
		config_put(c);
	}
}

static const char settings[] = "provider.ollama.url = http://127.0.0.1:9999\n"
			       "provider.box.kind = anthropic\nprovider.box.url = https://box.example\n"
			       "provider.box.ca = /etc/box.pem\n"
			       "provider.dumb.url = https://dumb.example\n"
			       "model.mine.provider = box\nmodel.mine.id = claude-of-box\nmodel.mine.window = 5000\n"
			       "model.claude-opus-4-5.thinking = off\n"
			       "price.mine = 1 2\nprice.openrouter/a/b = 0.5 1.5 0.05\n";

static const struct {
	const char *name, *id, *provider, *kind, *thinking;
	int64_t window;
	double in; /* -1: no price */
} found[] = {
	{"claude-sonnet-4-5", "claude-sonnet-4-5", "anthropic", "anthropic", "8192", 200000, 3},
	{"claude-sonnet-5-5", "claude-sonnet-5-5", "anthropic", "anthropic", "summarized", 1000000, 2},
	{"claude-opus-4-8", "claude-opus-4-8", "anthropic", "anthropic", "adaptive", 200000, 5},
	{"gpt-6.1-terra", "gpt-6.1-terra", "openai-responses", "responses", "on", 128000, -1},
	{"claude-opus-4-5", "claude-opus-4-5", "anthropic", "anthropic", "off", 200000, 5},
	{"claude-nobody-knows", "claude-nobody-knows", "anthropic", "anthropic", "off", 200000, -1},
	{"gpt-5-mini", "gpt-5-mini", "openai-responses", "responses", "on", 272000, 0.25},
	{"gpt-4.1", "gpt-4.1", "openai", "openai", "off", 1047576, 2},
	{"openai/gpt-5", "gpt-5", "openai", "openai", "off", 0, -1},
	{"ollama/qwen3:8b", "qwen3:8b", "ollama", "openai", "off", 0, 0},
	{"ollama/org/m", "org/m", "ollama", "openai", "off", 0, 0},
	{"openrouter/a/b", "a/b", "openrouter", "openai", "off", 0, 0.5},
	{"mine", "claude-of-box", "box", "anthropic", "off", 5000, 1},
};

TEST(who_serves_a_model)
{
	struct config *c = parse(settings);
	struct model_info m;
	CHECK_STR(err.text, "");
	for (size_t i = 0; i < ARRAY_LEN(found); i++) {
		CHECK_INT(models_find(c, found[i].name, &m, &err), 0);
		CHECK_STR(m.id, found[i].id);
		CHECK_STR(m.provider.name, found[i].provider);
		CHECK_STR(m.provider.kind, found[i].kind);
		CHECK_STR(m.thinking, found[i].thinking);
		CHECK_INT(m.window, found[i].window);
		CHECK_INT(m.priced, found[i].in >= 0);
		if (m.priced)
			CHECK(m.price.in > found[i].in - 1e-9 && m.price.in < found[i].in + 1e-9);
	}
	CHECK_INT(models_find(c, "llama3", &m, &err), -EINVAL);
	CHECK(strstr(err.text, "no provider is known for the model \"llama3\"") != NULL);
	CHECK_INT(models_find(c, "dumb/x", &m, &err), -EINVAL);
	CHECK(strstr(err.text, "provider.dumb.kind is not set") != NULL);
	CHECK_INT(models_find(c, "nobody/x", &m, &err), -EINVAL);
	CHECK_INT(models_find(c, "", &m, &err), -EINVAL);
	config_put(c);
}

static struct policy *policy_of(const char *text)
{
	struct policy *p = NULL;
	err = ERR_INIT;
	policy_parse(text, strlen(text), &p, &err);
	CHECK_STR(err.text, "");
	return p;
}

/* Merged twice it is the same; what a person added behind our part stays; without the keys our part goes. */
TEST(policy_follows_config)
{
	CLEAN_BUF struct buf once = BUF_INIT;
	CLEAN_BUF struct buf twice = BUF_INIT;
	CLEAN_BUF struct buf none = BUF_INIT;
	struct config *c = parse(settings), *empty = parse("");
	char name[PROVIDER_POLICY];
	providers_merge(policy_default, c, &once);
	buf_adds(&once, "limit day money 5\n");
	providers_merge(buf_str(&once), c, &twice);
	CHECK(strstr(twice.p, "limit day money 5") != NULL);
	buf_reset(&once);
	providers_merge(buf_str(&twice), c, &once);
	CHECK_STR(buf_str(&once), buf_str(&twice));
	struct policy *p = policy_of(buf_str(&once));
	const struct provider *v = policy_provider_named(p, API_CHAT, "gpt-oss:20b", "ollama");
	CHECK(v && v->local && !strcmp(v->url, "http://127.0.0.1:9999") && !strcmp(v->output_field, "max_tokens"));
	v = policy_provider(p, API_CHAT, "gpt-5"); /* what a person wrote comes first */
	CHECK(v && !strcmp(v->name, "openai"));
	v = policy_provider_named(p, API_MESSAGES, "claude-of-box", "box");
	CHECK(v && !strcmp(v->url, "https://box.example") && !strcmp(v->key, "box") && !strcmp(v->ca, "/etc/box.pem"));
	CHECK(!policy_provider_named(p, API_CHAT, "x", "nobody"));
	const struct policy_price_struct *price = policy_price(p, v, "claude-of-box");
	CHECK(price && price->input == 1000000 && price->output == 2000000);
	policy_put(p);
	providers_merge(buf_str(&once), empty, &none);
	CHECK(!strstr(none.p, "9999") && strstr(none.p, "limit day money 5"));
	struct provider_info info;
	CHECK_INT(models_provider(c, "box", &info, &err), 0);
	providers_name(buf_str(&once), &info, name);
	CHECK_STR(name, "box");
	config_put(c);
	config_put(empty);
}

TEST(a_provider_of_the_policy_moved_by_config)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	struct config *c = parse("provider.anthropic.url = http://127.0.0.1:1\n");
	struct provider_info info;
	char name[PROVIDER_POLICY];
	providers_merge(policy_default, c, &text);
	struct policy *p = policy_of(buf_str(&text));
	CHECK_INT(models_provider(c, "anthropic", &info, &err), 0);
	providers_name(buf_str(&text), &info, name);
	CHECK_STR(name, "config-anthropic");
	const struct provider *v = policy_provider_named(p, API_MESSAGES, "claude-x", name);
	CHECK(v && v->local && !strcmp(v->key, "anthropic"));
	policy_put(p);
	config_put(c);
}

CHECK_MAIN()
