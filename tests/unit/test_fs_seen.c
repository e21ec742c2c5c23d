/* Inodes that the kernel knows: counting, forgetting, growing. */
#include "fs/seen.h"

#include "check.h"
#include "fs/face.h"
#include "fs/ino.h"

TEST(an_inode_is_known_until_all_its_lookups_are_forgotten)
{
	struct face f = {0};
	CHECK(!seen_known(&f, 4242));
	CHECK(seen_known(&f, FUSE_ROOT_ID));
	seen_get(&f, 4242)->lookups += 2;
	CHECK(seen_known(&f, 4242));
	seen_forget(&f, 4242, 1);
	CHECK(seen_known(&f, 4242));
	seen_forget(&f, 4242, 1);
	CHECK(!seen_known(&f, 4242));
	CHECK(!seen_find(&f, 4242));
	seen_forget(&f, 4242, 1); /* one that is not known: nothing */
	CHECK_INT(f.seen.n, 0);
	seen_release(&f);
}

TEST(more_are_forgotten_than_were_looked_up)
{
	struct face f = {0};
	seen_get(&f, 300)->lookups = 1;
	seen_forget(&f, 300, 5);
	CHECK_INT(f.seen.n, 0);
	seen_release(&f);
}

TEST(one_that_waits_for_the_poker_stays)
{
	struct face f = {0};
	struct seen *s = seen_get(&f, 300);
	struct list due;
	list_init(&due);
	list_append(&due, &s->due);
	seen_forget(&f, 300, 1);
	CHECK(seen_find(&f, 300) == s);
	CHECK(!seen_known(&f, 300));
	list_remove(&s->due);
	seen_put(&f, s);
	CHECK(!seen_find(&f, 300));
	seen_release(&f);
}

TEST(thousands)
{
	struct face f = {0};
	for (int64_t id = 1; id <= 3000; id++)
		for (unsigned row = 1; row < 6; row++)
			seen_get(&f, ino_pack(id, row))->lookups = (uint64_t)id;
	CHECK_INT(f.seen.n, 15000);
	int wrong = 0;
	for (int64_t id = 1; id <= 3000; id++)
		for (unsigned row = 1; row < 6; row++)
			wrong += seen_find(&f, ino_pack(id, row))->lookups != (uint64_t)id;
	CHECK_INT(wrong, 0);
	for (int64_t id = 1; id <= 3000; id += 2)
		for (unsigned row = 1; row < 6; row++)
			seen_forget(&f, ino_pack(id, row), (uint64_t)id);
	CHECK_INT(f.seen.n, 7500);
	CHECK(!seen_known(&f, ino_pack(1, 1)) && seen_known(&f, ino_pack(2, 1)));
	seen_release(&f);
}

CHECK_MAIN()
