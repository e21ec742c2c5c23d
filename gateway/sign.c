/* Signs checkpoints: an Ed25519 key and OpenSSH's signature format (PROTOCOL.sshsig), so that stock tools check them.
 * Any thread, one at a time. The private key is read from a 0600 file and never leaves the process. */
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "ledger_private.h"

#define TYPE "ssh-ed25519"

struct sign_key {
	EVP_PKEY *pkey;
	unsigned char raw[32]; /* the public key */
	char *words;
};

/* ---- ssh's wire form ---- */

static void put_string(struct buf *b, const void *p, size_t n)
{
	const char len[4] = {(char)(n >> 24), (char)(n >> 16), (char)(n >> 8), (char)n};
	buf_add(b, len, 4);
	buf_add(b, p, n);
}

/* Takes a string off the front of p. */
static bool get_string(const unsigned char **p, size_t *left, const unsigned char **s, size_t *n)
{
	if (*left < 4)
		return false;
	*n = (size_t)(*p)[0] << 24 | (size_t)(*p)[1] << 16 | (size_t)(*p)[2] << 8 | (*p)[3];
	if (*n > *left - 4)
		return false;
	*s = *p + 4;
	*left -= 4 + *n;
	*p += 4 + *n;
	return true;
}

static bool is(const unsigned char *s, size_t n, const char *word)
{
	return n == strlen(word) && !memcmp(s, word, n);
}

static void base64(struct buf *out, const void *p, size_t n)
{
	buf_reserve(out, n / 3 * 4 + 8);
	out->n += (size_t)EVP_EncodeBlock((unsigned char *)out->p + out->n, p, (int)n);
}

/* Decoded bytes, or -1. */
static long unbase64(const char *s, unsigned char *out, size_t cap)
{
	size_t n = strlen(s);
	if (!n || n % 4 || n / 4 * 3 > cap)
		return -1;
	int got = EVP_DecodeBlock(out, (const unsigned char *)s, (int)n);
	return got < 0 ? -1 : got - (s[n - 1] == '=') - (s[n - 2] == '=');
}

static void public_blob(struct buf *b, const struct sign_key *k)
{
	put_string(b, TYPE, strlen(TYPE));
	put_string(b, k->raw, sizeof k->raw);
}

/* What is really signed: names, and the hash of the text. */
static void signed_blob(struct buf *b, const char *text, size_t n)
{
	unsigned char d[SHA512_DIGEST_LENGTH];
	SHA512((const unsigned char *)text, n, d);
	buf_add(b, "SSHSIG", 6);
	put_string(b, LEDGER_NAME, strlen(LEDGER_NAME));
	put_string(b, "", 0);
	put_string(b, "sha512", 6);
	put_string(b, d, sizeof d);
}

/* ---- keys ---- */

void sign_free(struct sign_key *k)
{
	if (!k)
		return;
	EVP_PKEY_free(k->pkey);
	free(k->words);
	free(k);
}

const char *sign_words(const struct sign_key *k)
{
	return k->words;
}

static void words_of(struct sign_key *k)
{
	CLEAN_BUF struct buf blob = BUF_INIT;
	CLEAN_BUF struct buf b64 = BUF_INIT;
	public_blob(&blob, k);
	base64(&b64, blob.p, blob.n);
	k->words = xasprintf(TYPE " %s", buf_str(&b64));
}

int sign_public(const char *ssh_words, struct sign_key **out)
{
	unsigned char d[64];
	const unsigned char *p = d, *type, *raw;
	size_t type_n, raw_n;
	if (strncmp(ssh_words, TYPE " ", strlen(TYPE) + 1))
		return -EINVAL;
	CLEAN_FREE char *b64 = xstrdup(ssh_words + strlen(TYPE) + 1);
	b64[strcspn(b64, " \r\n")] = 0;
	long n = unbase64(b64, d, sizeof d);
	size_t left = n < 0 ? 0 : (size_t)n;
	if (!get_string(&p, &left, &type, &type_n) || !is(type, type_n, TYPE) || !get_string(&p, &left, &raw, &raw_n) ||
	    raw_n != 32 || left)
		return -EINVAL;
	struct sign_key *k = xcalloc(1, sizeof *k);
	memcpy(k->raw, raw, 32);
	k->pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, raw, 32);
	words_of(k);
	*out = k;
	return k->pkey ? 0 : (sign_free(k), -EINVAL);
}

static int save(const char *path, EVP_PKEY *pkey, struct err *err)
{
	BIO *bio = BIO_new(BIO_s_secmem());
	char *p;
	int rc = -EIO;
	if (bio && PEM_write_bio_PrivateKey(bio, pkey, NULL, NULL, 0, NULL, NULL)) {
		long n = BIO_get_mem_data(bio, &p);
		rc = file_write(path, p, (size_t)n, 0600, err);
	}
	BIO_free(bio);
	return rc;
}

int sign_load(const char *key_path, const char *pub_path, struct sign_key **out, struct err *err)
{
	struct sign_key *k = xcalloc(1, sizeof *k);
	size_t n = sizeof k->raw;
	int rc = 0;
	FILE *f = fopen(key_path, "re");
	if (f) {
		k->pkey = PEM_read_PrivateKey(f, NULL, NULL, NULL);
		fclose(f);
		if (!k->pkey || EVP_PKEY_base_id(k->pkey) != EVP_PKEY_ED25519)
			rc = err_set(err, EINVAL, "%s is no Ed25519 key in PEM form: put back the file from a backup",
				     key_path);
	} else if (errno != ENOENT) {
		rc = err_sys(err, errno, "cannot read %s", key_path);
	} else {
		k->pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
		rc = k->pkey ? save(key_path, k->pkey, err)
			     : err_set(err, EIO, "cannot make a key that signs the ledger");
	}
	if (!rc && EVP_PKEY_get_raw_public_key(k->pkey, k->raw, &n) != 1)
		rc = err_set(err, EIO, "%s has no public key", key_path);
	if (!rc) {
		words_of(k);
		/* a line of ssh-keygen's allowed signers */
		CLEAN_FREE char *line = xasprintf("%s namespaces=\"%s\" %s\n", LEDGER_NAME, LEDGER_NAME, k->words);
		CLEAN_BUF struct buf have = BUF_INIT;
		if (file_read(pub_path, &have, 4096, NULL) || strcmp(buf_str(&have), line))
			rc = file_write(pub_path, line, strlen(line), 0644, err);
	}
	if (rc)
		sign_free(k);
	else
		*out = k;
	return rc;
}

/* ---- signatures ---- */

int sign_text(const struct sign_key *k, const char *text, size_t n, struct buf *out)
{
	CLEAN_BUF struct buf message = BUF_INIT;
	CLEAN_BUF struct buf blob = BUF_INIT;
	CLEAN_BUF struct buf part = BUF_INIT;
	unsigned char sig[64];
	size_t sig_n = sizeof sig;
	signed_blob(&message, text, n);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
		  EVP_DigestSign(ctx, sig, &sig_n, (unsigned char *)message.p, message.n) == 1;
	EVP_MD_CTX_free(ctx);
	if (!ok)
		return -EIO;
	buf_add(&blob, "SSHSIG\0\0\0\1", 10);
	public_blob(&part, k);
	put_string(&blob, part.p, part.n);
	put_string(&blob, LEDGER_NAME, strlen(LEDGER_NAME));
	put_string(&blob, "", 0);
	put_string(&blob, "sha512", 6);
	buf_reset(&part);
	put_string(&part, TYPE, strlen(TYPE));
	put_string(&part, sig, sig_n);
	put_string(&blob, part.p, part.n);
	base64(out, blob.p, blob.n);
	return 0;
}

bool sign_check(const struct sign_key *k, const char *text, size_t n, const char *b64)
{
	unsigned char d[512];
	long got = unbase64(b64, d, sizeof d);
	const unsigned char *p = d + 10, *s, *inner;
	size_t len, left = got < 10 ? 0 : (size_t)got - 10, inner_n;
	CLEAN_BUF struct buf want = BUF_INIT;
	CLEAN_BUF struct buf message = BUF_INIT;
	public_blob(&want, k);
	if (got < 10 || memcmp(d, "SSHSIG\0\0\0\1", 10) || !get_string(&p, &left, &s, &len) || len != want.n ||
	    memcmp(s, want.p, len) || !get_string(&p, &left, &s, &len) || !is(s, len, LEDGER_NAME) ||
	    !get_string(&p, &left, &s, &len) || len || !get_string(&p, &left, &s, &len) || !is(s, len, "sha512") ||
	    !get_string(&p, &left, &inner, &inner_n) || left || !get_string(&inner, &inner_n, &s, &len) ||
	    !is(s, len, TYPE) || !get_string(&inner, &inner_n, &s, &len) || len != 64 || inner_n)
		return false;
	signed_blob(&message, text, n);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
		  EVP_DigestVerify(ctx, s, len, (unsigned char *)message.p, message.n) == 1;
	EVP_MD_CTX_free(ctx);
	return ok;
}

/* ---- checkpoints ---- */

void hex_to_bytes(const char *hex, unsigned char *out, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char a = hex[2 * i], b = hex[2 * i + 1];
		out[i] = (unsigned char)((a <= '9' ? a - '0' : (a | 32) - 'a' + 10) << 4 |
					 (b <= '9' ? b - '0' : (b | 32) - 'a' + 10));
	}
}

void checkpoint_text(struct buf *out, const char *id, uint64_t size, const char *hash, char *root)
{
	unsigned char raw[LEDGER_HEX / 2];
	hex_to_bytes(hash, raw, sizeof raw);
	EVP_EncodeBlock((unsigned char *)root, raw, sizeof raw);
	buf_addf(out, LEDGER_NAME "/%s\n%llu\n%s\n", id, (unsigned long long)size, root);
}
