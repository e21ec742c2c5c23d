/* UTF-8 checks. Any thread. */
#include "utf8.h"

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Length of the valid sequence at p (n > 0 bytes there), 0 if invalid, -1 if cut by the end. Unicode 15, table 3-7. */
static int sequence(const unsigned char *p, size_t n)
{
	unsigned char c = p[0], lo = 0x80, hi = 0xBF;
	int len;
	if (c < 0x80)
		return c ? 1 : 0;
	if (c < 0xC2 || c > 0xF4)
		return 0;
	len = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
	if (c == 0xE0)
		lo = 0xA0;
	else if (c == 0xED)
		hi = 0x9F;
	else if (c == 0xF0)
		lo = 0x90;
	else if (c == 0xF4)
		hi = 0x8F;
	for (int i = 1; i < len; i++, lo = 0x80, hi = 0xBF) {
		if ((size_t)i >= n)
			return -1;
		if (p[i] < lo || p[i] > hi)
			return 0;
	}
	return len;
}

#ifdef __SSE2__
static size_t quick(const char *p, size_t n)
{
	size_t i = 0;
	for (; n - i >= 32; i += 32) {
		__m128i a = _mm_loadu_si128((const __m128i *)(p + i)),
			b = _mm_loadu_si128((const __m128i *)(p + i + 16));
		__m128i nul = _mm_cmpeq_epi8(_mm_min_epu8(a, b), _mm_setzero_si128());
		if (_mm_movemask_epi8(_mm_or_si128(nul, _mm_or_si128(a, b))))
			break;
	}
	return i;
}
#else
static size_t quick(const char *p, size_t n)
{
	return 0;
}
#endif

/* Bytes of plain ASCII without NUL from p on, in steps of 32 and eight: most text is that. */
static size_t ascii(const char *p, size_t n)
{
	size_t i = quick(p, n);
	for (uint64_t w; i + sizeof w <= n; i += sizeof w) {
		memcpy(&w, p + i, sizeof w);
		if ((w | (w - 0x0101010101010101)) & 0x8080808080808080) /* a high bit, or a byte that was 0 */
			break;
	}
	return i;
}

size_t utf8_prefix(const char *p, size_t n, bool *cut)
{
	size_t i = ascii(p, n);
	int len = 0;
	while (i < n && (len = sequence((const unsigned char *)p + i, n - i)) > 0) {
		i += (size_t)len;
		i += ascii(p + i, n - i);
	}
	if (cut)
		*cut = i < n && len < 0;
	return i;
}

bool utf8_valid(const char *p, size_t n)
{
	return utf8_prefix(p, n, NULL) == n;
}

static bool keep_control(unsigned char c, bool all)
{
	return c >= ' ' ? c != 0x7F || all : c && (all || c == '\n' || c == '\t');
}

static void clean(struct buf *out, const char *p, size_t n, bool controls)
{
	buf_reserve(out, n);
	while (n) {
		int len = sequence((const unsigned char *)p, n);
		if (len > 1 || (len == 1 && keep_control((unsigned char)*p, controls)))
			buf_add(out, p, (size_t)len);
		else if (len != 1 && *p)
			buf_adds(out, "\xEF\xBF\xBD");
		if (len < 1)
			len = 1;
		p += len;
		n -= (size_t)len;
	}
}

void utf8_clean(struct buf *out, const char *p, size_t n)
{
	clean(out, p, n, false);
}

void utf8_scrub(struct buf *out, const char *p, size_t n)
{
	clean(out, p, n, true);
}

bool utf8_blank(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!memchr(" \t\r\n\v\f", p[i], 6))
			return false;
	return true;
}
