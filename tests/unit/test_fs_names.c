/* Scratch names of editors, and where the front matter of a draft ends. */
#include "fs/names.h"

#include "check.h"

TEST(scratch)
{
	const char *const yes[] = {".x", ".x.swp", "x~",       "4913",	 "5036",     "#x#",	     ".",
				   "",	 "x.tmp",  "x.vsctmp", "x.save", "x.save.1", "a___jb_tmp___"};
	const char *const no[] = {"x", "fix-login", "a.b",	   "4914", "123",     "#x",   "x#",
				  "#", "sedation",  "49130000000", "tmp",  "x.tmp.y", "xtmp", "fix.1"};
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
		CHECK(name_is_scratch(yes[i]));
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		CHECK(!name_is_scratch(no[i]));
}

static enum front front(const char *s)
{
	return front_of(s, strlen(s));
}

TEST(front_matter)
{
	CHECK_INT(front(""), FRONT_UNDECIDED);
	CHECK_INT(front("-"), FRONT_UNDECIDED);
	CHECK_INT(front("---"), FRONT_UNDECIDED);
	CHECK_INT(front("--- "), FRONT_UNDECIDED);
	CHECK_INT(front("----"), FRONT_NONE);
	CHECK_INT(front("-x"), FRONT_NONE);
	CHECK_INT(front("hello"), FRONT_NONE);
	CHECK_INT(front("\n---\n"), FRONT_NONE);
	CHECK_INT(front("---\n"), FRONT_OPEN);
	CHECK_INT(front("---\na: b\n"), FRONT_OPEN);
	CHECK_INT(front("---\na: b\n--"), FRONT_OPEN);
	CHECK_INT(front("---\na: b\n---"), FRONT_OPEN); /* the line may go on */
	CHECK_INT(front("---\na: b\n---\n"), FRONT_FINISHED);
	CHECK_INT(front("---\r\na: b\r\n---\r\nx"), FRONT_FINISHED);
	CHECK_INT(front("---\n---\nx\n---\n"), FRONT_FINISHED);
}

/* However a text is cut into writes, the verdict at its end is the same and never goes back. */
TEST(front_matter_grows)
{
	const char *text = "---\nproject: x\nmodel: y\n---\nhello\n---\n";
	enum front last = FRONT_UNDECIDED;
	for (size_t n = 1; n <= strlen(text); n++) {
		enum front now = front_of(text, n);
		CHECK(now == last || (last == FRONT_UNDECIDED && now == FRONT_OPEN) ||
		      (last == FRONT_OPEN && now == FRONT_FINISHED));
		last = now;
	}
	CHECK_INT(last, FRONT_FINISHED);
	CHECK_STR(text + front_body(text, strlen(text)), "hello\n---\n");
	CHECK_INT(front_body("hello", 5), 0);
	CHECK_INT(front_body("---\nx", 5), 0);
}

CHECK_MAIN()
