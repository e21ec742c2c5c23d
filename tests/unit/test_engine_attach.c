/* attach/ in the engine: budgets of images, deliveries over restarts, names. Row 14 of what users suffer from: no image
 * may make later requests fail. */
#include <dirent.h>

#include "backend/context.h"
#include "face.h"

static int put(int64_t id, const char *name, const void *p, size_t n)
{
	struct request *r = request_new(REQ_ATTACH, NULL, NULL);
	r->session = id;
	r->name = xstrdup(name);
	buf_add(&r->text, p, n);
	int rc = face_ask(r);
	if (rc)
		face.last_error = r->err;
	request_free(r);
	return rc;
}

/* A PNG of n bytes. */
static char *png(size_t n)
{
	static const char head[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\4\0\0\0\4\10\2\0\0\0";
	char *p = xcalloc(1, n);
	memcpy(p, head, sizeof head - 1);
	return p;
}

TEST(images_have_a_budget_of_bytes_and_the_newest_win)
{
	int64_t id = face_session("bytes", SAY("hello") SAY("one") SAY("two") SHOW, "go");
	CHECK(face_wait_idle(id));
	CLEAN_FREE char *big = png(3800000);
	for (int m = 0; m < 2; m++) {
		for (int i = 0; i < 3; i++) {
			CLEAN_FREE char *name = xasprintf("m%d-%d", m, i);
			CHECK_INT(put(id, name, big, 3800000), 0);
		}
		face_say(id, "look");
	}
	const char *sent = face_say(id, "again");
	CHECK_INT(face_count(sent, "[image] "), 4); /* 18 MiB */
	CHECK_INT(face_count(sent, "is left out: the request would be too large"), 2);
	CHECK(strstr(sent, "[image] m1-2") && strstr(sent, "the image m0-0 is left out") &&
	      strstr(sent, "the image m0-1 is left out"));
}

TEST(images_have_a_budget_of_number_and_tokens)
{
	int64_t id = face_session("number", SAY("hello") SHOW SHOW, "go");
	CHECK(face_wait_idle(id));
	CLEAN_FREE char *small = png(100);
	for (int i = 0; i < 25; i++) {
		CLEAN_FREE char *name = xasprintf("i%d", i);
		CHECK_INT(put(id, name, small, 100), 0);
	}
	CHECK_INT(face_count(face_say(id, "look"), "[image] "), 20);
	face_config("model.window = 20000\n"); /* a quarter: three */
	CHECK_INT(put(id, "new", small, 100), 0);
	const char *sent = face_say(id, "look");
	CHECK_INT(face_count(strstr(sent, "[assistant] request"), "\n[image] new"), 1);
	CHECK(strstr(sent, "the image i22 is left out") && !strstr(sent, "the image i24 is left out"));
	face_config("");
}

TEST(limits_and_names)
{
	int64_t id = face_session("names", SAY("hello") SHOW, "go");
	CHECK(face_wait_idle(id));
	static const char *const bad[] = {"", ".", "..", "a/b", "../x", "a\nb", "a\x7f"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK_INT(put(id, bad[i], "x", 1), -EINVAL);
	CHECK_INT(put(id, "a\xff", "x", 1), -EILSEQ);
	CHECK_INT(put(id, "same", "x", 1), 0);
	CHECK_INT(put(id, "same", "x", 1), -EEXIST);
	CHECK_INT(put(id, "-rf $(touch x) é", "", 0), 0);
	for (int i = 2; i < ATTACH_MAX; i++) {
		CLEAN_FREE char *name = xasprintf("n%d", i);
		CHECK_INT(put(id, name, "x", 1), 0);
	}
	CHECK_INT(put(id, "one more", "x", 1), -EDQUOT);
	CHECK_INT(face.view[id]->n_attach, ATTACH_MAX);
	face_say(id, "go");
	CHECK_INT(face.view[id]->n_attach, 0);
	CHECK_STR(sh("ls state/sandboxes/%" PRId64 "/home/attach/2", id), "-rf $(touch x) é");
	CHECK_INT(put(id, "same", "x", 1), 0); /* the name is free again */
}

TEST(a_message_to_one_that_prepares_and_a_restart)
{
	int64_t id = face_session("early", "{\"text\":\"slow\",\"delay_ms\":2000}\n" SHOW SHOW, "go");
	CHECK_INT(put(id, "early.txt", "early", 5), 0);
	CHECK_INT(face_do(REQ_MESSAGE, id, "with a file"), 0);
	face_stop();
	CHECK_INT(face_start(), 0);
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "[attached: early.txt, file ") != NULL);
	CHECK_STR(sh("cat state/sandboxes/%" PRId64 "/home/attach/1/early.txt", id), "early");
}

/* Bytes that are gone from the disk make no request fail. */
TEST(a_lost_image_is_said)
{
	int64_t id = face_session("lost", SAY("hello") SHOW, "go");
	CHECK(face_wait_idle(id));
	CLEAN_FREE char *small = png(100);
	CHECK_INT(put(id, "gone.png", small, 100), 0);
	sh("rm -r state/attach/%" PRId64, id);
	CHECK(strstr(face_say(id, "look"), "the image gone.png is left out: it cannot be read any more") != NULL);
}

FACE_MAIN()
