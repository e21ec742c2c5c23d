/* The chain's arithmetic: hash of a line after the one before, and the exported form of a line. Any thread. */
#include <errno.h>
#include <string.h>

#include "ledger_private.h"

int chain_init(struct chain *c, struct err *err)
{
	/* Fetched once: a fetch for each hash costs more than the hash */
	c->md = EVP_MD_fetch(NULL, "SHA256", NULL);
	c->ctx = EVP_MD_CTX_new();
	if (c->md && c->ctx)
		return 0;
	chain_release(c);
	return err_set(err, ENOSYS, "the crypto library has no SHA-256");
}

void chain_release(struct chain *c)
{
	EVP_MD_CTX_free(c->ctx);
	EVP_MD_free(c->md);
	c->ctx = NULL;
	c->md = NULL;
}

void chain_zero(char *hash)
{
	memset(hash, '0', LEDGER_HEX);
	hash[LEDGER_HEX] = 0;
}

void chain_next(struct chain *c, char *hash, const char *line, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char d[EVP_MAX_MD_SIZE];
	EVP_DigestInit_ex2(c->ctx, c->md, NULL);
	EVP_DigestUpdate(c->ctx, hash, LEDGER_HEX);
	EVP_DigestUpdate(c->ctx, line, n);
	EVP_DigestFinal_ex(c->ctx, d, NULL);
	for (int i = 0; i < LEDGER_HEX / 2; i++) {
		hash[2 * i] = digits[d[i] >> 4];
		hash[2 * i + 1] = digits[d[i] & 15];
	}
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
