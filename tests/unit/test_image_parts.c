/* The pure parts of the base image: ramdisk writer, kernel finder and unpacker, clock rate. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "backend/base/child.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/bzimage.h"
#include "sandbox/cpio.h"
#include "sandbox/tsc.h"

static void put32(struct buf *b, size_t at, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		b->p[at + (size_t)i] = (char)(v >> (8 * i));
}

/* A bzImage with 2 setup sectors and a payload at offset 100 of the rest. */
static void make_image(struct buf *b, const void *payload, size_t n)
{
	CLEAN_FREE char *zero = xcalloc(1, 3 * 512 + 100);
	buf_add(b, zero, 3 * 512 + 100);
	b->p[0x1f1] = 2;
	memcpy(b->p + 0x202, "HdrS", 4);
	b->p[0x206] = 0x0f;
	b->p[0x207] = 0x02;
	put32(b, 0x248, 100);
	put32(b, 0x24c, (uint32_t)n);
	buf_add(b, payload, n);
	buf_adds(b, "what follows the kernel");
}

/* "\x7fELF" + 300 times "ab" + "end", packed by hand: a match that overlaps itself, and lengths over 15. */
static const unsigned char packed[] = {
	0x02, 0x21, 0x4c, 0x18,	     /* magic */
	17,   0,    0,	  0,	     /* block length */
	0x6f, 0x7f, 'E',  'L',	'F', /* 6 literals, match of 15 + more */
	'a',  'b',  2,	  0,	     /* distance 2 */
	255,  255,  69,		     /* 15 + 255 + 255 + 69 + 4 = 598 */
	0x30, 'e',  'n',  'd',	     /* 3 literals, the end */
	0,
};

static void expected(struct buf *b)
{
	buf_adds(b, "\x7f"
		    "ELF");
	for (int i = 0; i < 300; i++)
		buf_adds(b, "ab");
	buf_adds(b, "end");
}

TEST(lz4_unpacks)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_BUF struct buf want = BUF_INIT;
	struct err err = ERR_INIT;
	expected(&want);
	CHECK_INT(sizeof packed, 8 + 17);
	CHECK_INT(lz4_unpack(packed, 4 + 4 + 16, 1 << 20, &out, &err), -EINVAL); /* shorter than its block says */
	buf_reset(&out);
	unsigned char block[sizeof packed];
	memcpy(block, packed, sizeof block);
	block[4] = 16; /* without the filler byte */
	CHECK_INT(lz4_unpack(block, 4 + 4 + 16, 1 << 20, &out, &err), 0);
	CHECK_INT(out.n, want.n);
	CHECK(!memcmp(buf_str(&out), buf_str(&want), want.n));
	buf_reset(&out);
	CHECK_INT(lz4_unpack(block, 4 + 4 + 16, 100, &out, &err), -EFBIG);
}

/* No byte may be read or written outside of its place whatever the data is: the sanitizers tell. */
TEST(lz4_survives_damage)
{
	unsigned char block[24];
	uint32_t seed = 1; /* the same damage each time */
	for (int round = 0; round < 20000; round++) {
		CLEAN_BUF struct buf out = BUF_INIT;
		memcpy(block, packed, sizeof block);
		block[4] = 16;
		for (int i = 0; i < 3; i++) {
			seed = seed * 1664525 + 1013904223;
			block[8 + (seed >> 24) % 16] = (unsigned char)(seed >> 16);
		}
		CLEAN_FREE void *exact = xmemdup(block, sizeof block);
		int rc = lz4_unpack(exact, sizeof block, 1 << 20, &out, NULL);
		if (rc && rc != -EINVAL && rc != -EFBIG)
			CHECK_INT(rc, 0);
	}
	CHECK(1);
}

TEST(bzimage_finds_payload)
{
	CLEAN_BUF struct buf image = BUF_INIT;
	CLEAN_BUF struct buf load = BUF_INIT;
	CLEAN_BUF struct buf out = BUF_INIT;
	struct bzimage_payload found;
	struct err err = ERR_INIT;
	buf_add(&load, packed, 24);
	load.p[4] = 16;
	buf_add(&load, "\x5f\x02\0\0", 4); /* unpacked: 607 bytes */
	make_image(&image, load.p, load.n);
	CHECK_INT(bzimage_payload(image.p, image.n, &found, &err), 0);
	CHECK_INT(found.offset, 3 * 512 + 100);
	CHECK_INT(found.length, 24);
	CHECK_INT(found.size, 607);
	CHECK(!found.unpacker[0]);
	CHECK_INT(bzimage_extract(image.p, image.n, &out, &err), 0);
	CHECK_INT(out.n, 607);
	CHECK(!memcmp(buf_str(&out),
		      "\x7f"
		      "ELF",
		      4));
	/* a wrong size is noticed */
	put32(&image, found.offset + 24, 608);
	buf_reset(&out);
	CHECK_INT(bzimage_extract(image.p, image.n, &out, &err), -EINVAL);
}

TEST(bzimage_refuses)
{
	CLEAN_BUF struct buf image = BUF_INIT;
	struct bzimage_payload found;
	struct err err = ERR_INIT;
	make_image(&image, "unknown packing of some kernel", 30);
	CHECK_INT(bzimage_payload(image.p, image.n, &found, &err), -EINVAL);
	CHECK(strstr(err.text, "packed in a way") != NULL);
	put32(&image, 0x24c, 1 << 30);
	CHECK_INT(bzimage_payload(image.p, image.n, &found, &err), -EINVAL);
	CHECK(strstr(err.text, "cut short") != NULL);
	image.p[0x206] = 7;
	CHECK_INT(bzimage_payload(image.p, image.n, &found, &err), -EINVAL);
	CHECK(strstr(err.text, "too old") != NULL);
	image.p[0x202] = 'X';
	CHECK_INT(bzimage_payload(image.p, image.n, &found, &err), -EINVAL);
	CHECK_INT(bzimage_payload("", 0, &found, &err), -EINVAL);
}

/* Other packings go through their own programs. */
TEST(bzimage_runs_unpackers)
{
	static const char *const programs[] = {"xz", "gzip"};
	for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
		CLEAN_BUF struct buf elf = BUF_INIT;
		CLEAN_BUF struct buf load = BUF_INIT;
		CLEAN_BUF struct buf image = BUF_INIT;
		CLEAN_BUF struct buf out = BUF_INIT;
		struct err err = ERR_INIT;
		const char *argv[] = {programs[i], "-c", NULL};
		expected(&elf);
		struct child c = {.argv = argv, .in = elf.p, .in_n = elf.n, .out = &load, .timeout_ms = 10000};
		CHECK_INT(child_run(&c, &err), 0);
		if (i == 0)
			buf_add(&load, "\x5f\x02\0\0", 4);
		make_image(&image, load.p, load.n);
		CHECK_INT(bzimage_extract(image.p, image.n, &out, &err), 0);
		CHECK_INT(out.n, elf.n);
		CHECK(!memcmp(buf_str(&out), buf_str(&elf), elf.n));
	}
}

/* cpio(1) reads what we write, two archives in a row as the kernel does. */
TEST(cpio_is_read)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_BUF struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	cpio_dir(&b, "modules", 0755);
	cpio_file(&b, "modules/list", 0644, "one\ntwo\n", 8);
	cpio_file(&b, "modules/empty", 0600, "", 0);
	cpio_end(&b);
	CHECK_INT(b.n % 512, 0);
	CHECK(!memcmp(b.p, "070701", 6));
	const char *list[] = {"cpio", "-itv", "--numeric-uid-gid", "--quiet", NULL};
	struct child c = {.argv = list, .in = b.p, .in_n = b.n, .out = &out, .timeout_ms = 10000};
	CHECK_INT(child_run(&c, &err), 0);
	CHECK(strstr(buf_str(&out), "drwxr-xr-x") != NULL);
	CHECK(strstr(buf_str(&out), "modules/list") != NULL);
	CHECK(strstr(buf_str(&out), "-rw------- ") != NULL);
	buf_reset(&out);
	const char *extract[] = {"cpio", "-i", "--to-stdout", "--quiet", "modules/list", NULL};
	c.argv = extract;
	CHECK_INT(child_run(&c, &err), 0);
	CHECK_STR(buf_str(&out), "one\ntwo\n");
	/* the same again gives the same bytes */
	CLEAN_BUF struct buf again = BUF_INIT;
	cpio_dir(&again, "modules", 0755);
	cpio_file(&again, "modules/list", 0644, "one\ntwo\n", 8);
	cpio_file(&again, "modules/empty", 0600, "", 0);
	cpio_end(&again);
	CHECK_INT(again.n, b.n);
	CHECK(!memcmp(again.p, b.p, b.n));
}

/* Two measurements agree within 100 ppm, and the rate is one of a processor. */
TEST(tsc_is_steady)
{
	long a = tsc_khz(), b = tsc_khz();
	if (!a) /* no such counter on this machine */
		return;
	CHECK(a > 500000 && a < 10000000);
	CHECK(labs(a - b) < a / 10000 + 1);
}

CHECK_MAIN()
