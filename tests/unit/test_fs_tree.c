/* The table of files: names, modes and kinds go together. */
#include "check.h"
#include "fs/show.h"
#include "fs/tree.h"

TEST(rows_are_sound)
{
	for (unsigned i = 1; i < tree_rows; i++) {
		const struct file *f = &tree[i];
		bool text = f->kind != KIND_DIR && f->kind != KIND_LINK;
		CHECK(!(f->mode & ~0777u));
		CHECK((f->kind == KIND_DIR) == (f->inside != PLACE_NONE));
		CHECK((f->kind == KIND_LINE) == (f->accept != NULL));
		if (f->kind == KIND_MADE || f->kind == KIND_LINE || f->kind == KIND_CONFIG || f->kind == KIND_ERRORS)
			CHECK(f->show != NULL);
		if (f->kind == KIND_MADE || f->kind == KIND_SNAPSHOT || f->kind == KIND_GROWING || f->kind == KIND_WAIT)
			CHECK(!file_writable(f));
		if (f->accept || f->kind == KIND_MESSAGE || f->kind == KIND_CONFIG || f->kind == KIND_DRAFT)
			CHECK(file_writable(f));
		if (text)
			CHECK(f->mode & 0400); /* a file that root cannot read breaks every crawler */
		if (f->place == PLACE_SESSION && f->kind == KIND_DIR)
			CHECK_INT(f->mode,
				  f->inside == PLACE_ATTACH ? 0755 : 0555); /* a session's directory is closed */
	}
}

TEST(names_are_found_and_once)
{
	for (unsigned i = 1; i < tree_rows; i++) {
		const struct file *f = &tree[i];
		CHECK(f->name ? tree_find(f->place, f->name) == f
			      : f->place == PLACE_NONE || tree_unnamed(f->place, f->kind) == f);
	}
	CHECK(!tree_find(PLACE_ROOT, "nothing"));
	CHECK(!tree_find(PLACE_SESSION, "config"));
	CHECK_INT(tree_row(tree_dir(PLACE_ROOT)), 1);
	CHECK(tree_rows < 256); /* ino.h keeps a byte */
}

TEST(readme_tells_of_each_file)
{
	struct buf out = BUF_INIT;
	readme_make(&out);
	size_t lines = 0;
	for (size_t i = 0; i < out.n; i++)
		lines += out.p[i] == '\n';
	CHECK(lines <= 48); /* it is to be read at a glance */
	for (unsigned i = 1; i < tree_rows; i++)
		if (tree[i].name && tree[i].about)
			CHECK(strstr(buf_str(&out), tree[i].about) != NULL);
	CHECK(buf_ends(&out, "\n"));
	buf_release(&out);
}

CHECK_MAIN()
