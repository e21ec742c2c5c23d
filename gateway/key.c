/* The only place that holds key bytes. Must never log, print or return them, nor copy them to ordinary memory but for
 * the header of a request that goes out at once. */
#include "key.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"

#define SLOTS 64

struct slot {
	char name[64]; /* "": free */
	size_t n;
	bool lent; /* from the credentials folder: not ours to write or remove */
	unsigned changes;
};

struct keys {
	char *dir;
	bool secret;
	char *memory; /* SLOTS * KEY_MAX, and one more for reading a file */
	struct slot slots[SLOTS];
};

int keys_lock_down(struct err *err)
{
	struct rlimit none = {0, 0};
	if (prctl(PR_SET_DUMPABLE, 0) || setrlimit(RLIMIT_CORE, &none))
		return err_sys(err, errno, "cannot take the process out of reach of core dumps and debuggers");
	return 0;
}

/* Secret memory where there is some; else memory that is locked and left out of dumps. */
static int map_memory(struct keys *k, struct err *err)
{
	size_t n = (SLOTS + 1) * KEY_MAX;
	CLEAN_FD int fd = (int)syscall(SYS_memfd_secret, O_CLOEXEC);
	if (fd >= 0 && !ftruncate(fd, (off_t)n)) {
		k->memory = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		k->secret = k->memory != MAP_FAILED;
		if (k->secret) {
			memset(k->memory, 0, n);
			return 0;
		}
	}
	k->memory = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (k->memory == MAP_FAILED || mlock(k->memory, n) || madvise(k->memory, n, MADV_DONTDUMP) ||
	    madvise(k->memory, n, MADV_WIPEONFORK))
		return err_sys(err, errno, "cannot lock memory for keys (RLIMIT_MEMLOCK has to allow %zu bytes)", n);
	return 0;
}

static char *bytes_of(const struct keys *k, int slot)
{
	return k->memory + slot * KEY_MAX;
}

static int find(const struct keys *k, const char *name)
{
	for (int i = 0; *name && i < SLOTS; i++)
		if (!strcmp(k->slots[i].name, name))
			return i;
	return -1;
}

bool key_name_ok(const char *name)
{
	return *name && *name != '.' && strlen(name) < sizeof((struct slot *)0)->name &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == strlen(name);
}

/* Without what an editor or echo put around it; 0 if it cannot be a header's value. */
static size_t trim(char *p, size_t n, char **from)
{
	while (n && (p[n - 1] == '\n' || p[n - 1] == '\r' || p[n - 1] == ' ' || p[n - 1] == '\t'))
		n--;
	while (n && (*p == ' ' || *p == '\t' || *p == '\n')) {
		p++;
		n--;
	}
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] <= 0x20 || (unsigned char)p[i] >= 0x7f)
			return 0;
	*from = p;
	return n;
}

static int put(struct keys *k, const char *name, char *bytes, size_t n, bool lent, struct err *err)
{
	char *from = bytes;
	int slot = find(k, name);
	if (!key_name_ok(name))
		return err_set(err, EINVAL, "a key's name is letters, digits, '-', '_' and '.'");
	n = trim(bytes, n, &from);
	if (n < 8 || n > KEY_MAX)
		return err_set(err, EINVAL, "a key is one word of 8 to %d ASCII characters", KEY_MAX);
	for (int i = 0; slot < 0 && i < SLOTS; i++)
		if (!*k->slots[i].name)
			slot = i;
	if (slot < 0)
		return err_set(err, ENOSPC, "there are %d keys already", SLOTS);
	OPENSSL_cleanse(bytes_of(k, slot), KEY_MAX);
	memcpy(bytes_of(k, slot), from, n);
	snprintf(k->slots[slot].name, sizeof k->slots[slot].name, "%s", name);
	k->slots[slot].n = n;
	k->slots[slot].lent = lent;
	k->slots[slot].changes++;
	return 0;
}

/* A file straight into the mapping's last slot, without stdio's or our own buffers. */
static int load_file(struct keys *k, int dir, const char *name, bool lent, struct err *err)
{
	struct stat st;
	char *room = bytes_of(k, SLOTS);
	CLEAN_FD int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "the key %s is no plain file", name);
	if (st.st_mode & 077 && !lent)
		return err_set(err, EPERM, "the key %s can be read by others: chmod 600 it", name);
	ssize_t n = read(fd, room, KEY_MAX);
	int rc = n < 0 ? err_sys(err, errno, "cannot read the key %s", name) : put(k, name, room, (size_t)n, lent, err);
	OPENSSL_cleanse(room, KEY_MAX);
	return rc;
}

static int load_folder(struct keys *k, const char *path, bool lent, struct err *err)
{
	DIR *d = opendir(path);
	if (!d)
		return errno == ENOENT ? 0 : err_sys(err, errno, "cannot read %s", path);
	int rc = 0;
	for (struct dirent *e; !rc && (e = readdir(d));) {
		if (key_name_ok(e->d_name) && (lent || !strstr(e->d_name, ".tmp-")))
			rc = load_file(k, dirfd(d), e->d_name, lent, err);
		if (rc && lent) { /* the unit may be given other things than keys there */
			rc = 0;
			if (err)
				*err = ERR_INIT;
		}
	}
	closedir(d);
	return rc;
}

int keys_open(const char *dir, const char *credentials, struct keys **out, struct err *err)
{
	struct keys *k = xcalloc(1, sizeof *k);
	k->dir = xstrdup(dir);
	int rc = map_memory(k, err);
	if (!rc)
		rc = dir_make(dir, 0700, err);
	if (!rc && credentials)
		rc = load_folder(k, credentials, true, err);
	if (!rc)
		rc = load_folder(k, dir, false, err);
	if (rc)
		keys_close(k);
	else
		*out = k;
	return rc;
}

void keys_close(struct keys *k)
{
	if (!k)
		return;
	if (k->memory && k->memory != MAP_FAILED) {
		OPENSSL_cleanse(k->memory, (SLOTS + 1) * KEY_MAX);
		munmap(k->memory, (SLOTS + 1) * KEY_MAX);
	}
	free(k->dir);
	free(k);
}

bool keys_secret(const struct keys *k)
{
	return k->secret;
}

/* write(2) straight from the mapping, whole or not at all. */
static int save(struct keys *k, int slot, struct err *err)
{
	CLEAN_FREE char *path = xasprintf("%s/%s", k->dir, k->slots[slot].name);
	return file_write(path, bytes_of(k, slot), k->slots[slot].n, 0600, err);
}

int key_set(struct keys *k, const char *name, const void *bytes, size_t n, struct err *err)
{
	int slot = find(k, name);
	if (slot >= 0 && k->slots[slot].lent)
		return err_set(err, EROFS, "the key %s comes from $CREDENTIALS_DIRECTORY; change it there", name);
	if (!n) {
		if (slot < 0)
			return err_set(err, ENOENT, "there is no key %s", name);
		CLEAN_FREE char *path = xasprintf("%s/%s", k->dir, name);
		OPENSSL_cleanse(bytes_of(k, slot), KEY_MAX);
		k->slots[slot] = (struct slot){.changes = k->slots[slot].changes + 1};
		return unlink(path) && errno != ENOENT ? err_sys(err, errno, "cannot remove %s", path) : 0;
	}
	char *room = bytes_of(k, SLOTS);
	if (n > KEY_MAX)
		return err_set(err, EFBIG, "a key has at most %d bytes", KEY_MAX);
	memcpy(room, bytes, n);
	int rc = put(k, name, room, n, false, err);
	OPENSSL_cleanse(room, KEY_MAX);
	return rc ? rc : save(k, find(k, name), err);
}

bool key_known(const struct keys *k, const char *name)
{
	return find(k, name) >= 0;
}

bool key_fingerprint(const struct keys *k, const char *name, char out[KEY_TEXT])
{
	unsigned char d[SHA256_DIGEST_LENGTH];
	int slot = find(k, name);
	if (slot < 0)
		return false;
	SHA256((unsigned char *)bytes_of(k, slot), k->slots[slot].n, d);
	memcpy(out, "sha256:", 8);
	for (int i = 0; i < 8; i++)
		snprintf(out + 7 + 2 * i, 3, "%02x", d[i]);
	return true;
}

void key_list(const struct keys *k, struct buf *out)
{
	char f[KEY_TEXT];
	for (int i = 0; i < SLOTS; i++)
		if (key_fingerprint(k, k->slots[i].name, f))
			buf_addf(out, "%s %s\n", k->slots[i].name, f);
}

int key_header(const struct keys *k, const char *name, enum kind kind, char *out, size_t cap)
{
	int slot = find(k, name);
	const char *lead = kind == KIND_ANTHROPIC ? "x-api-key: " : "Authorization: Bearer ";
	if (slot < 0)
		return -ENOENT;
	size_t n = strlen(lead), m = k->slots[slot].n;
	if (n + m >= cap)
		return -ENOSPC;
	memcpy(out, lead, n);
	memcpy(out + n, bytes_of(k, slot), m);
	out[n + m] = 0;
	return 0;
}

/* ---- scrubbing ---- */

void scrub_start(struct scrub *s, const struct keys *k, const char *name)
{
	*s = (struct scrub){.keys = k, .slot = k ? find(k, name) : -1};
	s->changes = s->slot < 0 ? 0 : k->slots[s->slot].changes;
}

/* After a mismatch: the longest beginning of the key that what was matched so far ends with. */
static size_t shorter(const char *key, size_t matched, char next)
{
	for (size_t m = matched; m > 0; m--) {
		size_t len = m - 1; /* candidate: key[0..len) then next */
		if (key[len] == next && !memcmp(key, key + matched - len, len))
			return len + 1;
	}
	return 0;
}

void scrub_feed(struct scrub *s, const char *p, size_t n, bool last, struct buf *out)
{
	if (s->slot < 0) {
		buf_add(out, p, n);
		return;
	}
	const char *key = bytes_of(s->keys, s->slot);
	size_t len = s->keys->slots[s->slot].n;
	if (s->changes != s->keys->slots[s->slot].changes) {
		/* Its room holds another key by now, or none: what was held back, the beginning of the old one, is not
		 * there any more, and must not be taken from the new one */
		for (; s->matched; s->matched--)
			buf_addc(out, '*');
		s->changes = s->keys->slots[s->slot].changes;
	}
	if (!len) {
		buf_add(out, p, n);
		return;
	}
	for (size_t i = 0; i < n;) {
		if (!s->matched) { /* the usual case: nothing looks like the key */
			const char *at = memchr(p + i, key[0], n - i);
			size_t plain = at ? (size_t)(at - p) - i : n - i;
			buf_add(out, p + i, plain);
			i += plain;
			if (!at)
				break;
		}
		if (p[i] == key[s->matched]) {
			s->matched++;
			i++;
		} else {
			size_t keep = shorter(key, s->matched, p[i]);
			/* what was held back and cannot be part of the key any more */
			size_t go = s->matched + 1 - keep;
			buf_add(out, key, go > s->matched ? s->matched : go);
			if (go > s->matched)
				buf_addc(out, p[i]);
			s->matched = keep;
			i++;
		}
		if (s->matched == len) {
			for (size_t j = 0; j < len; j++)
				buf_addc(out, '*');
			s->matched = 0;
		}
	}
	if (last) {
		buf_add(out, key, s->matched);
		s->matched = 0;
	}
}
