/* Inode numbers and directory offsets. Pure arithmetic; any thread.
 *
 * Most inodes are a number (session id, project number, or 0) and a row of the tree packed together: nothing has to be
 * remembered about them and FORGET is a no-op. `input` and the files of the drop box are the exception: theirs are
 * drawn at random (node.h), so that an inode number found in /proc/PID/fdinfo names one open file. Bit 62 tells the
 * two apart; bit 63 stays clear, since some programs keep inode numbers in signed integers. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define INO_ROW_BITS 8
#define INO_ROW_MASK ((1u << INO_ROW_BITS) - 1)
#define INO_RANDOM   ((uint64_t)1 << 62)

static inline uint64_t ino_pack(int64_t number, unsigned row)
{
	return (uint64_t)number << INO_ROW_BITS | row;
}

static inline int64_t ino_number(uint64_t ino)
{
	return (int64_t)(ino >> INO_ROW_BITS);
}

static inline unsigned ino_row(uint64_t ino)
{
	return (unsigned)(ino & INO_ROW_MASK);
}

static inline bool ino_is_random(uint64_t ino)
{
	return ino & INO_RANDOM;
}

/* Directory offsets name an entry, not a position, so that a listing stays right while entries come and go: rows of
 * the tree first, then numbered entries, then a second kind of numbered entries. An offset is given back by the
 * kernel as "go on after this one". */
#define DIR_DOT		 1
#define DIR_DOTDOT	 2
#define DIR_ROW_FIRST	 3
#define DIR_NUMBER_FIRST ((int64_t)1 << INO_ROW_BITS)
#define DIR_SECOND_FIRST ((int64_t)1 << 60)

static inline int64_t dir_off_row(unsigned row)
{
	return DIR_ROW_FIRST + (int64_t)row;
}

static inline int64_t dir_off_number(int64_t number)
{
	return DIR_NUMBER_FIRST + number;
}

static inline int64_t dir_off_second(int64_t number)
{
	return DIR_SECOND_FIRST + number;
}
