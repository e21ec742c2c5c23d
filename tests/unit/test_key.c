/* Keys: where they come from, what is shown of them, and that they never come back in an answer. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "gateway/key.h"

static char *folder(void)
{
	CLEAN_FREE char *t = xasprintf("%s/keys-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	return xstrdup(mkdtemp(t));
}

TEST(key_sources)
{
	char *dir = folder(), *lent = folder();
	CLEAN_FREE char *file = xasprintf("%s/openai", lent), *own = xasprintf("%s/anthropic", dir);
	struct keys *k = NULL;
	struct err err = ERR_INIT;
	char f[KEY_TEXT], header[200];
	CHECK_INT(file_write(file, "  sk-from-credentials \n", 23, 0400, NULL), 0);
	CLEAN_FREE char *cert = xasprintf("%s/cert", lent);
	CHECK_INT(file_write(cert, "two lines of\nsomething else\n", 28, 0400, NULL), 0);
	CHECK_INT(keys_open(dir, lent, &k, &err), 0);
	CHECK(!key_known(k, "cert"));
	CHECK_INT(key_set(k, "anthropic", "sk-written-1234\n", 16, &err), 0);
	struct stat st;
	CHECK(!stat(own, &st) && (st.st_mode & 0777) == 0600);
	CHECK(key_fingerprint(k, "anthropic", f) && !strncmp(f, "sha256:", 7) && strlen(f) == 23);
	CHECK(!key_fingerprint(k, "none", f));
	CHECK_INT(key_header(k, "anthropic", KIND_ANTHROPIC, header, sizeof header), 0);
	CHECK_STR(header, "x-api-key: sk-written-1234");
	CHECK_INT(key_header(k, "openai", KIND_OPENAI, header, sizeof header), 0);
	CHECK_STR(header, "Authorization: Bearer sk-from-credentials");
	CHECK_INT(key_header(k, "openai", KIND_OPENAI, header, 20), -ENOSPC);
	CHECK_INT(key_header(k, "x", KIND_OPENAI, header, sizeof header), -ENOENT);
	CHECK_INT(key_set(k, "openai", "sk-other-key", 12, &err), -EROFS);
	CHECK_INT(key_set(k, "../x", "sk-other-key", 12, &err), -EINVAL);
	CHECK_INT(key_set(k, "y", "two words!", 10, &err), -EINVAL);
	CHECK_INT(key_set(k, "y", "sk-\r\nx: y1", 10, &err), -EINVAL);
	CHECK_INT(key_set(k, "y", "short", 5, &err), -EINVAL);
	CHECK(!key_known(k, "y"));
	CLEAN_BUF struct buf list = BUF_INIT;
	key_list(k, &list);
	CHECK(strstr(buf_str(&list), "anthropic sha256:") && !strstr(buf_str(&list), "sk-"));
	keys_close(k);
	CHECK_INT(keys_open(dir, NULL, &k, &err), 0); /* the written one is there again */
	CHECK(key_known(k, "anthropic") && !key_known(k, "openai"));
	CHECK_INT(key_set(k, "anthropic", NULL, 0, &err), 0);
	CHECK(!key_known(k, "anthropic") && !file_exists(own));
	keys_close(k);
	CHECK_INT(file_write(own, "sk-readable-by-all", 18, 0644, NULL), 0);
	CHECK_INT(keys_open(dir, NULL, &k, &err), -EPERM);
	CHECK(strstr(err.text, "chmod 600") != NULL);
	dir_remove(dir, NULL);
	dir_remove(lent, NULL);
	free(dir);
	free(lent);
}

/* Any text with the key in it, in any pieces: the key is stars, all else is as it was. */
TEST(key_scrubbed_over_borders)
{
	static const char *const keys[] = {"sk-aabaabaab", "aaaaaaaaab", "abcabcabd", "sk-ant-0123456789"};
	char *dir = folder();
	struct keys *k = NULL;
	CHECK_INT(keys_open(dir, NULL, &k, NULL), 0);
	unsigned seed = 3;
	int bad = 0, found = 0;
	for (int round = 0; round < 40000; round++) {
		const char *key = keys[(size_t)rand_r(&seed) % ARRAY_LEN(keys)];
		if (round % 100 == 0) {
			key_set(k, "k", key, strlen(key), NULL);
		} else {
			char f[KEY_TEXT];
			CHECK(key_fingerprint(k, "k", f));
		}
		char header[100];
		key_header(k, "k", KIND_ANTHROPIC, header, sizeof header);
		key = header + strlen("x-api-key: ");
		CLEAN_BUF struct buf text = BUF_INIT;
		CLEAN_BUF struct buf want = BUF_INIT;
		for (int i = rand_r(&seed) % 6; i >= 0; i--) { /* the key, beginnings of it, and noise of its letters */
			size_t n = strlen(key), cut = rand_r(&seed) % 3 ? n : (size_t)rand_r(&seed) % n;
			buf_add(&text, key, cut);
			for (int j = rand_r(&seed) % 4; j > 0; j--)
				buf_addc(&text, key[(size_t)rand_r(&seed) % n]);
		}
		buf_adds(&want, buf_str(&text));
		for (char *at = want.p; at && (at = strstr(at, key)); found++)
			memset(at, '*', strlen(key));
		struct scrub s;
		scrub_start(&s, k, "k");
		CLEAN_BUF struct buf out = BUF_INIT;
		for (size_t at = 0; at < text.n;) {
			size_t n = 1 + (size_t)rand_r(&seed) % 7;
			n = n < text.n - at ? n : text.n - at;
			scrub_feed(&s, text.p + at, n, false, &out);
			at += n;
			bad += out.n + strlen(key) <= at; /* no more than a key's length is held back */
		}
		scrub_feed(&s, "", 0, true, &out);
		bad += strcmp(buf_str(&out), buf_str(&want)) != 0;
	}
	CHECK_INT(bad, 0);
	CHECK(found > 10000);
	keys_close(k);
	dir_remove(dir, NULL);
	free(dir);
}

/* A key that is changed while an answer comes: of the new one, or of another in its place, nothing comes out. */
TEST(key_changed_in_an_answer)
{
	char *dir = folder();
	struct keys *k = NULL;
	struct scrub s;
	CLEAN_BUF struct buf out = BUF_INIT;
	CHECK_INT(keys_open(dir, NULL, &k, NULL), 0);
	CHECK_INT(key_set(k, "a", "sk-old-0123456789", 17, NULL), 0);
	scrub_start(&s, k, "a");
	scrub_feed(&s, "x sk-old-012345678", 18, false, &out); /* but for the last letter */
	CHECK_STR(buf_str(&out), "x ");
	CHECK_INT(key_set(k, "a", "NEW-SECRET-KEY-99", 17, NULL), 0);
	scrub_feed(&s, " y NEW-SECRET-KEY-99 z", 22, false, &out);
	CHECK_STR(buf_str(&out), "x **************** y ***************** z");
	buf_reset(&out);
	scrub_feed(&s, "NEW-SECRET-KEY-9", 16, false, &out);
	CHECK_INT(key_set(k, "a", NULL, 0, NULL), 0);
	char zeros[3000] = {0};
	scrub_feed(&s, zeros, sizeof zeros, false, &out);
	CHECK_INT(out.n, 16 + sizeof zeros);
	CHECK(!memcmp(out.p, "****************", 16) && !memcmp(out.p + 16, zeros, sizeof zeros));
	buf_reset(&out);
	CHECK_INT(key_set(k, "b", "OTHER-PROVIDERS-1", 17, NULL), 0); /* in the room that is free again */
	scrub_feed(&s, "NEW-SECRET-KEY-9!", 17, true, &out);
	CHECK_STR(buf_str(&out), "NEW-SECRET-KEY-9!");
	keys_close(k);
	dir_remove(dir, NULL);
	free(dir);
}

CHECK_MAIN()
