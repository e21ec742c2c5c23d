/* SHA-256 by OpenSSL, fetched once. Never keeps what was hashed. */
#include "sha.h"

#include <errno.h>

#include "ledger.h"

int sha_init(struct sha *s, struct err *err)
{
	s->md = EVP_MD_fetch(NULL, "SHA256", NULL);
	s->ctx = EVP_MD_CTX_new();
	if (s->md && s->ctx)
		return 0;
	sha_release(s);
	return err_set(err, ENOSYS, "the crypto library has no SHA-256");
}

void sha_release(struct sha *s)
{
	EVP_MD_CTX_free(s->ctx);
	EVP_MD_free(s->md);
	*s = (struct sha){0};
}

void sha_end(EVP_MD_CTX *ctx, char *hex)
{
	unsigned char d[EVP_MAX_MD_SIZE];
	EVP_DigestFinal_ex(ctx, d, NULL);
	ledger_hex(d, SHA_HEX / 2, hex);
}

void sha_hex(struct sha *s, const void *p, size_t n, char *hex)
{
	EVP_DigestInit_ex2(s->ctx, s->md, NULL);
	EVP_DigestUpdate(s->ctx, p, n);
	sha_end(s->ctx, hex);
}

EVP_MD_CTX *sha_begin(struct sha *s)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	EVP_DigestInit_ex2(ctx, s->md, NULL);
	return ctx;
}
