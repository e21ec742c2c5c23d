/* Front matter: judged line by line while it is written, and wholly at its end. */
#include <errno.h>
#include <stdlib.h>

#include "backend/base/mem.h"
#include "backend/draft.h"
#include "check.h"

static struct err err;

static struct draft parse(const char *text, bool whole)
{
	struct draft d;
	err = ERR_INIT;
	CHECK_INT(draft_parse(text, whole, &d, &err), 0);
	if (err.code)
		printf("# %s: %s\n", text, err.text);
	return d;
}

static bool refused(const char *text, bool whole, const char *words)
{
	struct draft d;
	err = ERR_INIT;
	int rc = draft_parse(text, whole, &d, &err);
	bool ok = rc && strstr(err.text, words);
	if (!ok)
		printf("# %s: %s\n", text, rc ? err.text : "accepted");
	draft_release(&d);
	return ok;
}

TEST(no_front_matter)
{
	static const char *const texts[] = {"Fix it.\n", "",	   "--- a dash\n",
					    "----\nx",	 "-- -\n", "\n---\nmodel: x\n---\n"};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct draft d = parse(texts[i], true);
		CHECK(d.message == texts[i] && !d.open);
		draft_release(&d);
	}
}

TEST(front_matter)
{
	static const char text[] = "---\n# how\nproject: ~/code/app\n\nmodel:  script:/a:b \nsandbox: vm\nafter-run: "
				   "merge\n---\nFix it.\n---\n";
	struct draft d = parse(text, true);
	CHECK_STR(d.value[DRAFT_PROJECT], "~/code/app");
	CHECK_STR(d.value[DRAFT_MODEL], "script:/a:b");
	CHECK_STR(d.value[DRAFT_SANDBOX], "vm");
	CHECK_STR(d.value[DRAFT_AFTER_RUN], "merge");
	CHECK(!d.value[DRAFT_SIZE]);
	CHECK_STR(d.message, "Fix it.\n---\n");
	draft_release(&d);
	CHECK(!d.value[DRAFT_PROJECT]);
	d = parse("---\r\nsize: mini\r\n---\r\nFix it.\r\n", true);
	CHECK_STR(d.value[DRAFT_SIZE], "mini");
	CHECK_STR(d.message, "Fix it.\r\n");
	draft_release(&d);
	d = parse("---\n---", true);
	CHECK_STR(d.message, "");
	draft_release(&d);
}

/* A good draft is never refused in the middle, wherever a write ends; and the end is the same as at once. */
TEST(a_good_draft_in_any_pieces)
{
	static const char text[] =
		"---\nproject: /x\nsandbox: dir\nsize: small\nship: branch a\n# note\n---\nFix it.\n";
	for (size_t n = 0; n <= sizeof text - 1; n++) {
		CLEAN_FREE char *part = xstrndup(text, n);
		struct draft d = parse(part, false);
		const char *body = strstr(part, "\n---\n");
		CHECK(d.open ? !d.message && n < sizeof text - 9 : n == 0 || body || n >= sizeof text - 10);
		if (body && d.message)
			CHECK_STR(d.message, body + 5);
		draft_release(&d);
	}
}

TEST(bad_lines_are_refused_when_they_are_complete)
{
	CHECK(refused("---\ncolour: red\n", false, "line 2: unknown key \"colour\"; known: project, model,"));
	struct draft d = parse("---\ncolour: red", false);
	CHECK(d.open);
	draft_release(&d);
	CHECK(refused("---\nsize: mini\nsize: large\n", false, "line 3: size stands twice"));
	CHECK(refused("---\nsandbox: moon\n", false, "line 2: sandbox cannot be"));
	CHECK(refused("---\nsandbox:\n", false, "no value"));
	CHECK(refused("---\nFix it.\n", false, "is the closing --- missing?"));
	CHECK(refused("---\nfrom:\n", false, "no value"));
}

TEST(front_matter_without_an_end)
{
	CHECK(refused("---", true, "no closing"));
	CHECK(refused("---\n", true, "no closing"));
	CHECK(refused("---\nsize: mini\n", true, "no closing"));
	CHECK(refused("---\nsize: mini", true, "no closing"));
	CHECK(refused("---\nsize: m", true, "cannot be"));
}

CHECK_MAIN()
