/* .agents/project.json: what is taken, and that each fault is named. */
#include <errno.h>
#include <stdlib.h>

#include "backend/base/buf.h"
#include "backend/base/mem.h"
#include "backend/parse/project.h"
#include "check.h"

static int parse(const char *text, struct project *p, struct err *e)
{
	*e = ERR_INIT;
	return project_parse(text, strlen(text), p, e);
}

TEST(whole)
{
	struct project p;
	struct err e;
	CHECK_INT(parse("{\"checks\":[{\"name\":\"unit tests\",\"command\":\"make test\",\"timeout\":60},"
			"{\"name\":\"pr\xc3\xbc"
			"fen\",\"command\":\"a && b\\nc\"}],\"setup\":{\"x\":1}}",
			&p, &e),
		  0);
	CHECK_INT(p.n_checks, 2);
	CHECK_STR(p.checks[0].name, "unit tests");
	CHECK_STR(p.checks[0].command, "make test");
	CHECK_INT(p.checks[0].timeout_ms, 60000);
	CHECK_STR(p.checks[1].command, "a && b\nc");
	CHECK_INT(p.checks[1].timeout_ms, 0);
	project_release(&p);
	CHECK_INT(p.n_checks, 0);
}

TEST(nothing_declared)
{
	struct project p;
	struct err e;
	CHECK_INT(parse("{}", &p, &e), 0);
	CHECK_INT(p.n_checks, 0);
	project_release(&p);
	CHECK_INT(parse("{\"checks\":[]}", &p, &e), 0);
	CHECK_INT(p.n_checks, 0);
	project_release(&p);
}

TEST(faults)
{
	static const struct {
		const char *text, *words;
	} bad[] = {
		{"", "project.json"},
		{"[]", "no object"},
		{"{\"checks\":{}}", "no list"},
		{"{\"checks\":[1]}", "check 1 is no object"},
		{"{\"checks\":[{\"command\":\"x\"}]}", "check 1 has no \"name\""},
		{"{\"checks\":[{\"name\":\" \",\"command\":\"x\"}]}", "check 1 has no \"name\""},
		{"{\"checks\":[{\"name\":\"a\"}]}", "check 1 (a) has no \"command\""},
		{"{\"checks\":[{\"name\":\"a\",\"command\":\" \"}]}", "no \"command\""},
		{"{\"checks\":[{\"name\":\"a\",\"command\":[\"x\"]}]}", "no \"command\""},
		{"{\"checks\":[{\"name\":\"a\",\"command\":\"x\"},{\"name\":\"a\",\"command\":\"y\"}]}", "1 and 2"},
		{"{\"checks\":[{\"name\":\"a\\tb\",\"command\":\"x\"}]}", "control character"},
		{"{\"checks\":[{\"name\":\"a\",\"command\":\"x\",\"timout\":3}]}", "unknown key \"timout\""},
		{"{\"checks\":[{\"name\":\"a\",\"command\":\"x\",\"Timeout\":3}]}", "unknown key \"Timeout\""},
		{"{\"checks\":[{\"name\":\"a\",\"command\":\"x\",\"timeout\":0}]}", "check 1 is not a whole number"},
		{"{\"checks\":[{\"name\":\"a\",\"command\":\"x\",\"timeout\":1.5}]}", "whole number"},
		{"{\"checks\":[{\"name\":\"a\",\"command\":\"x\",\"timeout\":\"5\"}]}", "whole number"},
		{"{\"checks\":[{\"name\":\"a\",\"command\":\"x\",\"timeout\":86401}]}", "whole number"},
		{"{\"checks\":[],\"checks\":[]}", "project.json"},
		{"{\"checks\":[]} x", "project.json"},
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct project p;
		struct err e;
		CHECK_INT(parse(bad[i].text, &p, &e), -EINVAL);
		if (!strstr(e.text, bad[i].words))
			printf("# %s: %s\n", bad[i].text, e.text);
		CHECK(strstr(e.text, bad[i].words));
		CHECK_INT(p.n_checks, 0);
	}
}

TEST(limits)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	struct project p;
	struct err e;
	for (int n = 64; n <= 65; n++) {
		buf_reset(&b);
		buf_adds(&b, "{\"checks\":[");
		for (int i = 0; i < n; i++)
			buf_addf(&b, "%s{\"name\":\"c%d\",\"command\":\"true\"}", i ? "," : "", i);
		buf_adds(&b, "]}");
		CHECK_INT(parse(b.p, &p, &e), n == 64 ? 0 : -EINVAL);
		CHECK_INT(p.n_checks, n == 64 ? 64 : 0);
		project_release(&p);
	}
	for (int n = 64; n <= 65; n++) { /* characters, not bytes */
		buf_reset(&b);
		buf_adds(&b, "{\"checks\":[{\"command\":\"true\",\"name\":\"");
		for (int i = 0; i < n; i++)
			buf_adds(&b, "\xc3\xa4");
		buf_adds(&b, "\"}]}");
		CHECK_INT(parse(b.p, &p, &e), n == 64 ? 0 : -EINVAL);
		project_release(&p);
	}
}

CHECK_MAIN()
