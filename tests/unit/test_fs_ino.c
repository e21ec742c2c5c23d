/* Packing of inode numbers and directory offsets. */
#include "fs/ino.h"

#include "check.h"

TEST(packs)
{
	const int64_t numbers[] = {0, 1, 255, 256, 10000, ((int64_t)1 << 53) - 1};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		for (unsigned row = 1; row < 256; row += 50) {
			uint64_t ino = ino_pack(numbers[i], row);
			CHECK_INT(ino_number(ino), numbers[i]);
			CHECK_INT(ino_row(ino), row);
			CHECK(!ino_is_random(ino));
			CHECK((int64_t)ino > 0);
		}
	CHECK_INT(ino_pack(0, 1), 1); /* the root, as the kernel wants it */
}

TEST(random_numbers_are_told_apart)
{
	CHECK(ino_is_random(INO_RANDOM));
	CHECK(ino_is_random(INO_RANDOM | 12345));
	CHECK((int64_t)(INO_RANDOM | (INO_RANDOM - 1)) > 0);
}

/* A listing goes on after an offset, so rows, numbers and drafts must not overlap and must grow. */
TEST(offsets_are_in_order)
{
	CHECK(DIR_DOT < DIR_DOTDOT);
	CHECK(DIR_DOTDOT < dir_off_row(1));
	CHECK(dir_off_row(252) < dir_off_number(1));
	CHECK(dir_off_number(1) < dir_off_number(2));
	CHECK(dir_off_number((int64_t)1 << 53) < dir_off_second(1));
	CHECK(dir_off_second(1) < dir_off_second(2));
	CHECK(dir_off_second((int64_t)1 << 53) > 0);
}

CHECK_MAIN()
