/* SHA-256 with what OpenSSL needs for it fetched once: a fetch for each hash costs more than the hash of a short text.
 * One thread at a time. */
#pragma once
#include <openssl/evp.h>
#include <stddef.h>

#include "backend/base/err.h"

#define SHA_HEX 64 /* digits */

struct sha {
	EVP_MD *md;
	EVP_MD_CTX *ctx;
};
int sha_init(struct sha *s, struct err *err); /* -ENOSYS: the crypto library has none */
void sha_release(struct sha *s);
/* hex: SHA_HEX digits and a NUL */
void sha_hex(struct sha *s, const void *p, size_t n, char *hex);
/* For bytes that come in pieces, by EVP_DigestUpdate(); freed by EVP_MD_CTX_free(). */
EVP_MD_CTX *sha_begin(struct sha *s);
void sha_end(EVP_MD_CTX *ctx, char *hex);
