/* The config file and values of settings. */
#include <errno.h>
#include <stdlib.h>

#include "backend/base/mem.h"
#include "backend/config.h"
#include "check.h"

static struct err err;

static struct config *parse(const char *text)
{
	struct config *c = NULL;
	err = ERR_INIT;
	int rc = config_parse(text, strlen(text), &c, &err);
	CHECK(!rc == !!c && !rc == !err.code);
	return c;
}

static bool refused(const char *text, const char *words)
{
	struct config *c = parse(text);
	bool ok = !c && strstr(err.text, words);
	if (!ok)
		printf("# %s: %s\n", text, c ? "accepted" : err.text);
	config_put(c);
	return ok;
}

TEST(defaults)
{
	struct config *c = parse("");
	CHECK_STR(c->value[CONFIG_SANDBOX], "vm");
	CHECK_STR(c->value[CONFIG_SIZE], "small");
	CHECK_STR(c->value[CONFIG_NETWORK], "none");
	CHECK_STR(c->value[CONFIG_MODEL], "");
	CHECK_STR(c->value[CONFIG_ALLOW_DIR], "no");
	CHECK_INT(config_int(c, CONFIG_BOOT_TIMEOUT), 60);
	CHECK_INT(config_int(c, CONFIG_CHECK_TIMEOUT), 300);
	config_put(c);
}

TEST(values)
{
	struct config *c = parse("# a comment\n\n  sandbox\t=  dir \r\nsandbox.allow-dir=yes\nmodel = script:/a = "
				 "b\ncheck.timeout = 5 m");
	CHECK_STR(c->value[CONFIG_SANDBOX], "dir");
	CHECK_STR(c->value[CONFIG_ALLOW_DIR], "yes");
	CHECK_STR(c->value[CONFIG_MODEL], "script:/a = b");
	CHECK_INT(config_int(c, CONFIG_CHECK_TIMEOUT), 300);
	struct config *d = config_get(c);
	CHECK(d == c);
	config_put(c);
	CHECK_STR(d->value[CONFIG_SANDBOX], "dir");
	config_put(d);
	config_put(NULL);
}

TEST(refusals_name_line_and_reason)
{
	CHECK(refused("sandbox = vm\ncolour = red\n", "line 2: unknown key \"colour\"; known: model, project,"));
	CHECK(refused("\n\nsandbox\n", "line 3"));
	CHECK(refused("= x", "unknown key"));
	CHECK(refused("sandbox = moon", "possible: vm container host dir"));
	CHECK(refused("sandbox =", "cannot be"));
	CHECK(refused("sandbox = v", "cannot be"));
	CHECK(refused("sandbox = vm dir", "cannot be"));
	CHECK(refused("size = small\nsize = large", "line 2: size stands twice, first in line 1"));
	CHECK(refused("sandbox = \xFF", "UTF-8"));
	CHECK(refused("workers = 0", "above 0"));
	CHECK(refused("workers = many", "number"));
	CHECK(refused("workers = 5 m", "number"));
	static const char *const times[] = {"",		 "0", "-5",   "5 d", "5.5", "99999999999999999999",
					    "1000001 h", "s", "5 s s"};
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		CLEAN_FREE char *line = xasprintf("check.timeout = %s", times[i]);
		CHECK(refused(line, "needs a time"));
	}
}

TEST(known_but_not_built)
{
	CHECK_INT(config_line("sandbox = ssh:box", 17, &err), 0);
	CHECK(refused("sandbox = ssh:-oProxyCommand=x", "needs a host"));
	CHECK(refused("sandbox = ssh:a b", "needs a host"));
	CHECK(refused("sandbox = ssh:", "needs a host"));
	CHECK(refused("http.listen = 127.0.0.1:80", "not built yet"));
	CHECK_INT(err.code, EOPNOTSUPP);
}

TEST(addresses)
{
	static const char *const good[] = {"off", "127.0.0.1:8081", "[::1]:1", "0.0.0.0:65535"};
	static const char *const bad[] = {
		"",	  "on",	   "127.0.0.1",	   "127.0.0.1:0", "127.0.0.1:65536", "localhost:80", "127.0.0.1:80 x",
		"::1:80", "[::1]", "127.0.0.1:80/"};
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		CHECK_INT(value_check("gateway.listen", good[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK_INT(value_check("gateway.listen", bad[i], NULL), -EINVAL);
	CHECK_INT(value_check("ledger.sync", "each", NULL), 0);
	CHECK_INT(value_check("ledger.sync", "often", NULL), -EINVAL);
	CHECK_INT(value_check("network", "registries", NULL), 0);
}

/* Each default that the first file shows holds when its # is taken away, alone and all together. */
TEST(the_default_file_is_true)
{
	CLEAN_BUF struct buf text = BUF_INIT, bare = BUF_INIT;
	config_default_text(&text);
	struct config *plain = parse(""), *c = parse(buf_str(&text));
	int keys = 0;
	CLEAN_FREE char *copy = xstrdup(buf_str(&text));
	char *rest = copy;
	for (char *line; (line = strsep(&rest, "\n"));) {
		if (line[0] != '#' || line[1] == ' ' || !strchr(line, '='))
			continue;
		if (config_line(line + 1, strlen(line + 1), &err)) {
			printf("# %s: %s\n", line, err.text);
			CHECK(!"a default is a good value");
		}
		buf_addf(&bare, "%s\n", line + 1);
		bool family = !strncmp(line, "#price.", 7) || !strncmp(line, "#provider.", 10) ||
			      !strncmp(line, "#model.NAME", 11);
		keys += !family; /* those are examples */
	}
	CHECK_INT(keys, CONFIG_KEYS);
	struct config *all = parse(buf_str(&bare));
	for (int i = 0; all && i < CONFIG_KEYS; i++) {
		CHECK_STR(c->value[i], plain->value[i]);
		CHECK_STR(all->value[i], plain->value[i]);
	}
	config_put(plain);
	config_put(c);
	config_put(all);
}

TEST(windows)
{
	struct config *c = parse("model.window = 50000\n"), *plain = parse("");
	CHECK_INT(config_window(c), 50000);
	CHECK_INT(config_window(plain), 0);
	config_put(c);
	config_put(plain);
	static const char *const bad[] = {"model.window = 12", "model.window = many", "model.window ="};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK_INT(config_line(bad[i], strlen(bad[i]), &err), -EINVAL);
}

TEST(one_line_alone)
{
	CHECK_INT(config_line("size = large\n", 13, &err), 0);
	CHECK_INT(config_line("size = largest", 12, &err), 0); /* the length counts, not the NUL */
	CHECK_INT(config_line("# x", 3, &err), 0);
	CHECK_INT(config_line("", 0, &err), 0);
	CHECK_INT(config_line("size", 4, &err), -EINVAL);
	CHECK_INT(config_line("sandbox = ssh:", 14, &err), -EINVAL);
}

TEST(single_values)
{
	CHECK_INT(value_check("sandbox", "dir", &err), 0);
	CHECK_INT(value_check("ship", "branch x", &err), 0);
	CHECK_INT(value_check("ship", "branch ", &err), -EINVAL);
	CHECK_INT(value_check("ship", "moon", &err), -EINVAL);
	CHECK_INT(value_check("model", "script:", &err), -EINVAL);
	CHECK_INT(value_check("model", "two words", &err), -EINVAL);
	CHECK_INT(value_check("model", "ollama/qwen3:8b", &err), 0);
	CHECK_INT(value_check("nothing", "x", &err), -EINVAL);
}

CHECK_MAIN()
