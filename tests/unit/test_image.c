/* What an image is, by its bytes: real headers, cut ones, noise. */
#include "backend/parse/image.h"

#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "check.h"

#define BYTES(s) s, sizeof s - 1

static const struct {
	const char *name;
	const char *p;
	size_t n;
	const char *media;
	unsigned w, h; /* 0: cannot be read */
} cases[] = {
	{"png", BYTES("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\2\0\0\3\4\10\2\0\0\0"), "image/png", 0x102, 0x304},
	{"cut png", BYTES("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0"), "image/png", 0, 0},
	{"png without IHDR", BYTES("\x89PNG\r\n\x1a\n\0\0\0\rXXXX\0\0\1\2\0\0\3\4\10\2\0\0\0"), "image/png", 0, 0},
	{"empty png", BYTES("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\0\0\0\3\4\10\2\0\0\0"), "image/png", 0, 0},
	{"gif", BYTES("GIF89a\2\1\4\3\0\0\0"), "image/gif", 0x102, 0x304},
	{"jpeg", BYTES("\xff\xd8\xff\xe0\0\6abcd\xff\xff\xc0\0\x11\10\1\2\3\4\3\1\1\1\1\1\1"), "image/jpeg", 0x304,
	 0x102},
	{"jpeg that ends", BYTES("\xff\xd8\xff\xd9\0\0\0\0\0\0\0\0\0\0"), "image/jpeg", 0, 0},
	{"jpeg with a long segment", BYTES("\xff\xd8\xff\xe0\xff\xff\0\0\0\0\0\0\0\0"), "image/jpeg", 0, 0},
	{"webp, lossy", BYTES("RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\1\x2a\2\1\4\3"), "image/webp", 0x102, 0x304},
	{"webp, extended", BYTES("RIFF\0\0\0\0WEBPVP8X\n\0\0\0\0\0\0\0\1\1\0\3\3\0"), "image/webp", 0x102, 0x304},
	{"webp, unknown", BYTES("RIFF\0\0\0\0WEBPXXXX\n\0\0\0\0\0\0\0\1\1\0\3\3\0"), "image/webp", 0, 0},
	{"text", BYTES("hello world, this is text"), NULL, 0, 0},
	{"svg", BYTES("<svg xmlns=\"http://www.w3.org/2000/svg\"/>"), NULL, 0, 0},
	{"nothing", BYTES(""), NULL, 0, 0},
};

TEST(headers)
{
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		unsigned w = 0, h = 0;
		const char *media = image_media(cases[i].p, cases[i].n);
		bool read = image_size(cases[i].p, cases[i].n, &w, &h);
		if (read != (cases[i].w > 0))
			printf("# %s\n", cases[i].name);
		CHECK(media == cases[i].media || (media && cases[i].media && !strcmp(media, cases[i].media)));
		CHECK(read == (cases[i].w > 0));
		if (read) {
			CHECK_INT(w, cases[i].w);
			CHECK_INT(h, cases[i].h);
		}
	}
}

/* Every begin of every case, in memory of just that size. */
TEST(cut_anywhere)
{
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		for (size_t n = 0; n <= cases[i].n; n++) {
			unsigned w, h;
			char *p = xmalloc(n + 1);
			memcpy(p, cases[i].p, n);
			char *exact = xmemdup(p, n ? n : 1);
			image_media(exact, n);
			image_size(exact, n, &w, &h);
			free(exact);
			free(p);
		}
	CHECK(true);
}

CHECK_MAIN()
