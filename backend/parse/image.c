/* Headers of PNG, JPEG, GIF and WebP. Nothing is decoded. Pure. */
#include "image.h"

#include <stdint.h>
#include <string.h>

#include "backend/base/mem.h"

static bool is_png(const uint8_t *p, size_t n)
{
	return n >= 8 && !memcmp(p, "\x89PNG\r\n\x1a\n", 8);
}

static bool is_jpeg(const uint8_t *p, size_t n)
{
	return n >= 3 && !memcmp(p, "\xff\xd8\xff", 3);
}

static bool is_gif(const uint8_t *p, size_t n)
{
	return n >= 6 && (!memcmp(p, "GIF87a", 6) || !memcmp(p, "GIF89a", 6));
}

static bool is_webp(const uint8_t *p, size_t n)
{
	return n >= 12 && !memcmp(p, "RIFF", 4) && !memcmp(p + 8, "WEBP", 4);
}

static unsigned be16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

static unsigned le16(const uint8_t *p)
{
	return (unsigned)p[1] << 8 | p[0];
}

static bool png_size(const uint8_t *p, size_t n, unsigned *w, unsigned *h)
{
	if (n < 24 || memcmp(p + 12, "IHDR", 4))
		return false;
	*w = be16(p + 16) << 16 | be16(p + 18);
	*h = be16(p + 20) << 16 | be16(p + 22);
	return true;
}

/* Segments up to the first frame header. */
static bool jpeg_size(const uint8_t *p, size_t n, unsigned *w, unsigned *h)
{
	for (size_t i = 2; i + 9 < n;) {
		if (p[i] != 0xff)
			return false;
		unsigned mark = p[i + 1];
		if (mark == 0xff) { /* filling */
			i++;
			continue;
		}
		if (mark >= 0xc0 && mark <= 0xcf && mark != 0xc4 && mark != 0xc8 && mark != 0xcc) {
			*h = be16(p + i + 5);
			*w = be16(p + i + 7);
			return true;
		}
		if (mark == 0xd9 || mark == 0xda)
			return false;
		i += 2 + be16(p + i + 2);
	}
	return false;
}

static bool gif_size(const uint8_t *p, size_t n, unsigned *w, unsigned *h)
{
	if (n < 10)
		return false;
	*w = le16(p + 6);
	*h = le16(p + 8);
	return true;
}

static bool webp_size(const uint8_t *p, size_t n, unsigned *w, unsigned *h)
{
	if (n < 30)
		return false;
	if (!memcmp(p + 12, "VP8X", 4)) {
		*w = 1 + (p[24] | (unsigned)p[25] << 8 | (unsigned)p[26] << 16);
		*h = 1 + (p[27] | (unsigned)p[28] << 8 | (unsigned)p[29] << 16);
	} else if (!memcmp(p + 12, "VP8L", 4)) {
		*w = 1 + (le16(p + 21) & 0x3fff);
		*h = 1 + ((le16(p + 22) >> 6 | (unsigned)p[24] << 10) & 0x3fff);
	} else if (!memcmp(p + 12, "VP8 ", 4)) {
		*w = le16(p + 26) & 0x3fff;
		*h = le16(p + 28) & 0x3fff;
	} else {
		return false;
	}
	return true;
}

static const struct {
	const char *media;
	bool (*is)(const uint8_t *p, size_t n);
	bool (*size)(const uint8_t *p, size_t n, unsigned *w, unsigned *h);
} kinds[] = {
	{"image/png", is_png, png_size},
	{"image/jpeg", is_jpeg, jpeg_size},
	{"image/gif", is_gif, gif_size},
	{"image/webp", is_webp, webp_size},
};

const char *image_media(const void *p, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (kinds[i].is(p, n))
			return kinds[i].media;
	return NULL;
}

bool image_size(const void *p, size_t n, unsigned *width, unsigned *height)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (kinds[i].is(p, n))
			return kinds[i].size(p, n, width, height) && *width && *height;
	return false;
}
