/* berthfs(5) tells of every row of the tree, every verb and every key of config, and nothing that is not there. */
#include "backend/base/mem.h"
#include "check.h"
#include "fs/formats.h"
#include "fs/manual.h"
#include "fs/tree.h"

static void row_name(const struct file *file, char out[80])
{
	snprintf(out, 80, "place %d, name %s, kind %d", file->place, file->name ? file->name : "(own)", file->kind);
}

TEST(each_row_of_the_tree_has_a_format)
{
	for (unsigned i = 1; i < tree_rows; i++) {
		char name[80];
		row_name(&tree[i], name);
		const struct format *f = format_of(&tree[i]);
		if (!f)
			printf("# no format in fs/formats.c for %s\n", name);
		CHECK(f != NULL);
		CHECK(f && strlen(f->text) > 8);
		CHECK(f && (tree[i].name || f->shown));
	}
}

TEST(each_format_has_a_row_and_is_there_once)
{
	for (size_t i = 0; i < formats_n; i++) {
		const struct format *f = &formats[i];
		int rows = 0;
		for (unsigned r = 1; r < tree_rows; r++)
			rows += format_of(&tree[r]) == f;
		if (rows != 1)
			printf("# format %s: %d rows\n", f->name ? f->name : f->shown, rows);
		CHECK_INT(rows, 1);
		for (const char *const *c = f->columns; c && *c; c++)
			CHECK(strstr(*c, ": ") != NULL);
	}
}

TEST(marks_are_closed)
{
	for (size_t i = 0; i < formats_n; i++) {
		int ticks = 0;
		for (const char *p = formats[i].text; *p; p++)
			ticks += *p == '`';
		CHECK_INT(ticks % 2, 0);
		CHECK(formats[i].text[strlen(formats[i].text) - 1] == '.');
	}
}

static struct buf *page(struct buf *out)
{
	manual_make("head\n@TREE@\n@VERBS@\n@CONFIG@\nversion @VERSION@.\ntail\n", out);
	return out;
}

/* The name as it stands in the page. */
static void escaped(const char *s, char out[128])
{
	size_t n = 0;
	for (; *s && n < 120; s++) {
		if (*s == '-')
			out[n++] = '\\';
		out[n++] = *s;
	}
	out[n] = 0;
}

static void check_key(void *arg, const struct config_key_info *key)
{
	char name[128];
	escaped(key->name, name);
	CLEAN_FREE char *head = xasprintf(".TP\n\\fB%s\\fR = ", name);
	CHECK(strstr(arg, head) != NULL);
}

TEST(page_tells_of_all)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_BUF struct buf verbs = BUF_INIT;
	const char *text = buf_str(page(&out));
	CHECK(!strncmp(text, "head\n", 5));
	CHECK(buf_ends(&out, "version " BERTHFS_VERSION ".\ntail\n"));
	CHECK(!strstr(text, "\n@") && /* what was to be filled in */
	      !strstr(text, "?\\fR ("));
	for (unsigned i = 2; i < tree_rows; i++) {
		char name[128];
		escaped(tree[i].name ? tree[i].name : format_of(&tree[i])->shown, name);
		CLEAN_FREE char *head = xasprintf("%s%s\\fR (%04o)\n", name, tree[i].kind == KIND_DIR ? "/" : "",
						  (unsigned)tree[i].mode);
		CHECK(strstr(text, head) != NULL);
	}
	ctl_verbs(&verbs);
	char *at = verbs.p;
	for (char *line; (line = strsep(&at, "\n"));) {
		line[strcspn(line, " ")] = 0;
		CLEAN_FREE char *head = xasprintf(".TP\n\\fB%s", line);
		CHECK(strstr(text, head) != NULL);
	}
	config_describe(check_key, (void *)text);
	CHECK(strstr(text, "Possible: mini, small, large.") != NULL);
}

TEST(roff_is_escaped)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	for (const char *p = buf_str(page(&out)); *p; p += strcspn(p, "\n"), p += *p == '\n')
		if (*p == '.')
			CHECK(!strncmp(p, ".TP", 3) || !strncmp(p, ".IP", 3) || !strncmp(p, ".SS ", 4) ||
			      !strncmp(p, ".PD", 3) || !strncmp(p, ".RS\n", 4) || !strncmp(p, ".RE\n", 4));
		else
			CHECK(*p != '\'');
}

CHECK_MAIN()
