/* The chain's arithmetic: hash of a line after the one before, and the exported form of a line. Any thread. */
#include <string.h>

#include "ledger_private.h"

void chain_zero(char *hash)
{
	memset(hash, '0', LEDGER_HEX);
	hash[LEDGER_HEX] = 0;
}

void ledger_hex(const unsigned char *p, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * n] = 0;
}

void chain_next(struct sha *sha, char *hash, const char *line, size_t n)
{
	EVP_DigestInit_ex2(sha->ctx, sha->md, NULL);
	EVP_DigestUpdate(sha->ctx, hash, LEDGER_HEX);
	EVP_DigestUpdate(sha->ctx, line, n);
	sha_end(sha->ctx, hash);
}

void chain_export(struct buf *out, const char *line, size_t n, const char *hash)
{
	buf_reserve(out, n + LEDGER_TAIL + 1);
	buf_add(out, line, n - 1);
	buf_adds(out, ",\"hash\":\"");
	buf_adds(out, hash);
	buf_adds(out, "\"}\n");
}

bool chain_import(const char *p, size_t n, struct buf *line, char *hash)
{
	if (n < LEDGER_TAIL + 2)
		return false;
	const char *tail = p + n - LEDGER_TAIL;
	if (memcmp(tail, ",\"hash\":\"", 9) || memcmp(p + n - 2, "\"}", 2))
		return false;
	memcpy(hash, tail + 9, LEDGER_HEX);
	hash[LEDGER_HEX] = 0;
	buf_reset(line);
	buf_add(line, p, n - LEDGER_TAIL);
	buf_addc(line, '}');
	return true;
}
