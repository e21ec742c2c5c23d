/* Plan, question and ship verdict from answers as models write them. */
#include "backend/base/mem.h"
#include "backend/parse/blocks.h"
#include "check.h"

static const char *plan(const char *text)
{
	static struct buf b;
	buf_reset(&b);
	return blocks_plan(text, strlen(text), &b) ? buf_str(&b) : "(none)";
}

static const char *question(const char *text)
{
	static struct buf b;
	buf_reset(&b);
	return blocks_question(text, strlen(text), &b) ? buf_str(&b) : "(none)";
}

TEST(plan_plain)
{
	CHECK_STR(plan("Done.\n\n```plan\n- [x] a\n- [>] b\n- [ ] c\n```\n"), "- [x] a\n- [>] b\n- [ ] c\n");
	CHECK_STR(plan("no block"), "(none)");
	CHECK_STR(plan(""), "(none)");
	CHECK_STR(plan("```plan\n```"), "");
	CHECK_STR(plan("```plan"), "");
}

TEST(plan_newest_wins)
{
	CHECK_STR(plan("```plan\n- [ ] old\n```\ntext\n```plan\n- [x] new\n```"), "- [x] new\n");
}

TEST(plan_shapes)
{
	static const struct {
		const char *text, *want;
	} shapes[] = {
		{"```plan\r\n- [x] a\r\n```\r\n", "- [x] a\n"},
		{"  ```plan\n  - [x] a\n    - [ ] b\n  ```\n", "- [x] a\n  - [ ] b\n"},
		{"\t```plan\n\t- [x] a\n\t```\n", "- [x] a\n"},
		{"``` plan\n- a\n```", "- a\n"},
		{"```Plan\n- a\n```", "- a\n"},
		{"```plan today\n- a\n```", "- a\n"},
		{"```planning\n- a\n```", "(none)"},
		{"~~~plan\n- a\n```\n- b\n~~~\n", "- a\n```\n- b\n"},
		{"````plan\n- a\n```\n- b\n````\nafter", "- a\n```\n- b\n"},
		{"```plan\n- a\n`````\nafter", "- a\n"},
		{"```plan\n- [x] never closed\n- [ ] b", "- [x] never closed\n- [ ] b\n"},
		{"text ```plan\n- a\n```", "(none)"},
		{"```plan``` is inline\n- a\n", "(none)"},
		{"``plan\n- a\n``", "(none)"},
		/* shown as an example inside another block */
		{"````markdown\n```plan\n- example\n```\n````\n", "(none)"},
		{"```markdown\n```plan\n- example\n```\n", "(none)"},
		{"```c\nint x;\n```\n```plan\n- real\n```", "- real\n"},
		{"```plan\n- a\n```sh\n- b\n```\n", "- a\n```sh\n- b\n"},
		{"```plan\n- a\x01\x1b[31m\xff\n```", "- a[31m\xef\xbf\xbd\n"},
	};
	for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
		CHECK_STR(plan(shapes[i].text), shapes[i].want);
}

static const char *option(const char *text, int k)
{
	static struct buf b;
	buf_reset(&b);
	return blocks_option(text, strlen(text), k, &b) ? buf_str(&b) : "(none)";
}

TEST(options_by_number)
{
	const char *q = "```result\nquestion: Which?\nSome words.\n- left: the left one\n  * right\n7. seven\n3) "
			"three\n-none\n- \n```\n";
	CHECK_STR(question(q),
		  "question: Which?\nSome words.\n1. left: the left one\n2. right\n3. seven\n4. three\n-none\n- \n");
	CHECK_STR(option(q, 1), "left: the left one");
	CHECK_STR(option(q, 2), "right");
	CHECK_STR(option(q, 4), "three");
	CHECK_STR(option(q, 5), "(none)");
	CHECK_STR(option(q, 0), "(none)");
	CHECK_STR(option("```plan\n- x\n```", 1), "(none)");
	CHECK_STR(option("```result\n- no question\n```", 1), "(none)");
}

TEST(question_block)
{
	CHECK_STR(question("Hm.\n```result\nquestion: Which?\n- left: the left one\n- right: the other\n```\n"
			   "```plan\n- [>] a\n```\n"),
		  "question: Which?\n1. left: the left one\n2. right: the other\n");
	CHECK_STR(question("```result\nquestion:\n- a: b\n```"), "(none)");
	CHECK_STR(question("```result\nall fine\n```"), "(none)");
	CHECK_STR(question("```plan\nquestion: no\n```"), "(none)");
	CHECK_STR(question("question: bare\n"), "(none)");
	CHECK_STR(question("```result\r\nQuestion:  Now?\r\n"), "Question:  Now?\n");
	CHECK_STR(question("```result\nquestion: old?\n```\n```result\nno question\n```"), "(none)");
}

TEST(untouched_without_block)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_adds(&b, "kept");
	CHECK(!blocks_plan("x", 1, &b));
	CHECK(!blocks_question("x", 1, &b));
	CHECK_STR(buf_str(&b), "kept");
}

static enum ship_verdict verdict(const char *text, const char **why)
{
	static struct buf b;
	buf_reset(&b);
	enum ship_verdict v = ship_verdict(text, strlen(text), &b);
	*why = buf_str(&b);
	return v;
}

TEST(verdicts)
{
	static const struct {
		const char *text;
		enum ship_verdict want;
		const char *why;
	} v[] = {
		{"Rebased.\n\nSHIP-READY", SHIP_VERDICT_READY, ""},
		{"SHIP-READY\n\n  \n", SHIP_VERDICT_READY, ""},
		{"SHIP-READY\r\n", SHIP_VERDICT_READY, ""},
		{"**SHIP-READY**", SHIP_VERDICT_READY, ""},
		{"`SHIP-READY`\n", SHIP_VERDICT_READY, ""},
		{"__`SHIP-READY`__", SHIP_VERDICT_READY, ""},
		{"```\nSHIP-READY\n```\n", SHIP_VERDICT_READY, ""},
		{"SHIP-READY\nbut wait", SHIP_VERDICT_NONE, ""},
		{"NOT SHIP-READY", SHIP_VERDICT_NONE, ""},
		{"SHIP-READY?", SHIP_VERDICT_NONE, ""},
		{"ship-ready", SHIP_VERDICT_NONE, ""},
		{"SHIP-READYNESS", SHIP_VERDICT_NONE, ""},
		{"SHIP-READY\n```plan\n- [x] a\n```\n", SHIP_VERDICT_NONE, ""},
		{"", SHIP_VERDICT_NONE, ""},
		{"\n\n", SHIP_VERDICT_NONE, ""},
		{"SHIP-READY\nSHIP-BLOCKED: tests fail", SHIP_VERDICT_BLOCKED, "tests fail"},
		{"**SHIP-BLOCKED: tests fail**", SHIP_VERDICT_BLOCKED, "tests fail"},
		{"**SHIP-BLOCKED:** tests `a_b` fail", SHIP_VERDICT_BLOCKED, "tests `a_b` fail"},
		{"**SHIP-BLOCKED**: why", SHIP_VERDICT_BLOCKED, "why"},
		{"SHIP-BLOCKED", SHIP_VERDICT_BLOCKED, "no reason was given"},
		{"SHIP-BLOCKED:", SHIP_VERDICT_BLOCKED, "no reason was given"},
		{"SHIP-BLOCKEDX: y", SHIP_VERDICT_NONE, ""},
		{"SHIP-BLOCKED: \x1b[1mred\xff", SHIP_VERDICT_BLOCKED, "[1mred\xef\xbf\xbd"},
	};
	for (size_t i = 0; i < ARRAY_LEN(v); i++) {
		const char *why;
		CHECK_INT(verdict(v[i].text, &why), v[i].want);
		CHECK_STR(why, v[i].why);
	}
	CHECK_INT(ship_verdict("SHIP-BLOCKED: x", 15, NULL), SHIP_VERDICT_BLOCKED);
	CHECK_INT(ship_verdict("SHIP-READYxx", 10, NULL), SHIP_VERDICT_READY);
}

CHECK_MAIN()
